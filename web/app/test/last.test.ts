import assert from "node:assert/strict"
import {test} from "node:test"
import type {Answer} from "../src/api"
import {Last} from "../src/last"
import type {Turn} from "../src/page"
import type {State} from "../src/state"

const state = (policy: string, other = "q", object = "o"): State => ({documents: [{name: "p", text: policy}, {name: "q", text: other}], objects: [{name: "o", text: object}]})
const turn = (number: number, state: State, answer: Answer): Turn => ({number, pane: "result", state, answer})
const fine: Answer = {results: [{name: "fine"}]}
const wrong = (...files: string[]): Answer => ({errors: files.map(file => ({file, message: "no"}))})
const part: Answer = {errors: [{file: "p", message: "no"}], leftOut: ["p"], results: [{name: "part"}]}

test("the last answer without errors stays, as an old one", () => {
  const last = new Last()
  const first = turn(1, state("a"), wrong("p"))
  assert.equal(last.of(first), first)
  const good = turn(2, state("b"), fine)
  assert.equal(last.of(good), good)
  const old = last.of(turn(3, state("c"), wrong("p")))
  assert.deepEqual(old, {...good, number: 3, old: {errors: [{file: "p", message: "no"}]}})
  assert.equal(last.turn, good)
  // Also if something else changes meanwhile: there is nothing else to show.
  assert.equal(last.of(turn(4, state("c", "q", "other"), wrong("p"))).answer, fine)
})

test("results of the policies without errors count if something else has changed", () => {
  const last = new Last()
  last.of(turn(1, state("a"), fine))
  assert.equal(last.of(turn(2, state("b"), part)).answer, fine)
  assert.equal(last.of(turn(3, state("b", "q", "other"), part)).answer, part)
  assert.equal(last.of(turn(4, state("b", "other"), part)).answer, part)
  assert.equal(last.of(turn(5, {...state("b"), unbound: true}, part)).answer, part)
  assert.equal(last.of(turn(6, state("c"), part)).answer, fine)
})
