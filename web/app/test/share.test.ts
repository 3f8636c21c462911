import assert from "node:assert/strict"
import test from "node:test"
import {deflateRawSync, gzipSync} from "node:zlib"
import {example} from "../src/example"
import {decode, encode, isLink} from "../src/share"
import type {State} from "../src/state"

const pack = (text: string | Uint8Array) => "1." + deflateRawSync(text).toString("base64url")

test("a link has the whole state", async () => {
  const full: State = {
    documents: [{name: "p/ä.yaml", text: "a: \u{1f600}\n"}, {name: "q", text: ""}],
    objects: [{name: "o", text: "x".repeat(100_000)}],
    old: [{name: "o", text: "y"}],
    kubernetes: "1.36", namespace: "shop", unbound: true, operation: "UPDATE", subresource: "scale", dryRun: true,
    user: {username: "u", uid: "1", groups: ["a", "b"], extra: {k: ["v"]}},
  }
  for (const state of [example, full, {documents: [], objects: []}]) {
    const link = await encode(state)
    assert.match(link, /^1\.[-_A-Za-z0-9]+$/)
    assert.deepEqual(await decode(link), state)
    assert.deepEqual(await decode("#" + link), state)
  }
})

test("a text that is too long for a link is an error", async () => {
  await assert.rejects(encode({documents: [{name: "p", text: "x".repeat(5 << 20)}], objects: []}), /bytes, and a link takes at most/)
})

const hostile: [string, string, RegExp][] = [
  ["nothing", "", /no link/],
  ["another fragment", "#documents", /no link/],
  ["no data", "1.", /damaged: it has characters/],
  ["a newer version", "2.abc", /version 2, and this playground reads version 1/],
  ["a long version", "9".repeat(5000) + ".abc", /version 9{20}, /],
  ["markup", '1.<img src=x onerror="x">', /characters that no link has/],
  ["no base64", "1.a", /damaged/],
  ["no deflate", "1.AAAAAAAA", /damaged/],
  ["gzip", "1." + gzipSync("{}").toString("base64url"), /damaged/],
  ["cut", pack("x".repeat(10)).slice(0, -3), /damaged/],
  ["no UTF-8", pack(Uint8Array.of(0xff, 0xfe)), /damaged/],
  ["no JSON", pack("{"), /not JSON/],
  ["a bomb", pack("0".repeat(64 << 20)), /more than 4194304 bytes/],
  ["a list", pack("[]"), /cannot be opened: the state: want an object/],
  ["null", pack("null"), /the state: want an object/],
  ["an unknown field", pack('{"documents":[],"evil":1}'), /unknown field "evil"/],
  ["a prototype", pack('{"__proto__":{"x":1}}'), /unknown field "__proto__"/],
  ["documents that are none", pack('{"documents":{}}'), /documents: want a list/],
  ["a text that is none", pack('{"documents":[{"name":"a","text":1}]}'), /documents\[0\]\.text: want a text/],
  ["a name that is none", pack('{"documents":[{"name":{},"text":""}]}'), /documents\[0\]\.name: want a text/],
  ["a long name", pack(JSON.stringify({objects: [{name: "n".repeat(301), text: ""}]})), /objects\[0\]\.name: longer than 300/],
  ["many texts", pack(JSON.stringify({objects: Array.from({length: 1001}, () => ({name: "n", text: ""}))})), /objects: 1001 are too many/],
  ["a flag that is none", pack('{"dryRun":"yes"}'), /dryRun: want true or false/],
  ["groups", pack('{"user":{"groups":"admin"}}'), /user\.groups: want a list/],
  ["extra", pack('{"user":{"extra":{"a":"b"}}}'), /user\.extra: want a list/],
]
for (const [name, link, want] of hostile) test(`${name} is an error in words`, async () => await assert.rejects(decode(link), want))

test("names differ, and nothing reaches a prototype", async () => {
  const s = await decode(pack('{"documents":[{"name":"a.yaml","text":""},{"name":"a.yaml","text":""},{"name":"","text":""}],"user":{"extra":{"__proto__":["x"]}}}'))
  assert.deepEqual(s.documents.map(t => t.name), ["a.yaml", "a-2.yaml", "document.yaml"])
  assert.deepEqual(Object.getOwnPropertyNames(s.user!.extra), ["__proto__"])
  assert.equal(({} as Record<string, unknown>)["0"], undefined)
})

test("only a fragment with a version is a link", () => {
  for (const [fragment, want] of [["#1.abc", true], ["2.x", true], ["#example=a.1", false], ["#documents", false], ["", false]] as const) assert.equal(isLink(fragment), want, fragment)
})
