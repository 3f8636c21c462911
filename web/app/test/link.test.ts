// The links of `mapd playground FILE` and those of the page are the same: each side opens
// what the other has written. internal/author/playground/testdata has a state and a link of each.
import assert from "node:assert/strict"
import {readFileSync} from "node:fs"
import test from "node:test"
import {decode, encode} from "../src/share"
import type {State} from "../src/state"

// From node_modules/.test-…, where test.mjs puts this.
const read = (name: string) => readFileSync(new URL("../../../../internal/author/playground/testdata/" + name, import.meta.url), "utf8").trim()
const state = JSON.parse(read("state.json")) as State

test("a link that Go wrote", async () => {
  assert.deepEqual(await decode("#" + read("go.link")), state)
})

test("the link that Go reads is one of this page", async () => {
  assert.deepEqual(await decode("#" + read("page.link")), state)
  assert.deepEqual(await decode(await encode(state)), state)
})
