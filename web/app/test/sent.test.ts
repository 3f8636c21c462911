import assert from "node:assert/strict"
import {test} from "node:test"
import {Sent} from "../src/sent"

const long = (s: string) => s + "#".repeat(300)

test("a text is sent once", () => {
  const s = new Sent()
  const read = (params: unknown) => JSON.parse(s.pack(params)) as unknown
  assert.deepEqual(read({documents: [{name: "a", text: long("1")}, {name: "b", text: "short"}], trace: true}),
    {documents: [{name: "a", text: long("1"), ref: 1}, {name: "b", text: "short"}], trace: true})
  assert.deepEqual(read({documents: [{name: "x", text: long("1")}], objects: [{name: "o", text: long("2")}]}),
    {documents: [{name: "x", text: "", ref: 1}], objects: [{name: "o", text: long("2"), ref: 2}]})
  assert.deepEqual(read({question: {documents: [{name: "a", text: long("2")}], objects: []}, limit: 7}), {question: {documents: [{name: "a", text: "", ref: 2}], objects: []}, limit: 7})
  s.forget()
  assert.deepEqual(read({documents: [{name: "a", text: long("1")}]}), {documents: [{name: "a", text: long("1"), ref: 3}]})
  for (const other of [null, 7, [1], {name: "a"}]) assert.deepEqual(read(other), other)
})

test("the texts that are kept are bounded", () => {
  const s = new Sent()
  const all = Array.from({length: 20}, (_, i) => ({name: "a", text: String(i) + "#".repeat(1 << 20)}))
  for (const t of all) s.pack({documents: [t]})
  assert.match(s.pack({documents: [all[0]]}).slice(-60), /"ref":21/)
})
