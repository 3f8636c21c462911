import assert from "node:assert/strict"
import test from "node:test"
import {highlightTree} from "@lezer/highlight"
import {below, highlighter, isExpression, isText, unquoted, yaml} from "../src/editor/yaml"

// colours are the tokens of a text that have a class of CEL.
function colours(text: string, withCEL = true): string[] {
  const out: string[] = []
  highlightTree(yaml(withCEL).language.parser.parse(text), highlighter, (from, to, c) => {
    if (!["tok-key", "tok-sign", "tok-meta"].includes(c)) out.push(`${c.slice(4)} ${text.slice(from, to)}`)
  })
  return out
}

const cases: [string, string, string[]][] = [
  ["plain", "expression: a.b == 1\n", ["name a", "property b", "number 1"]],
  ["not an expression", "name: a.b == true\n", []],
  ["double quotes", `expression: "a == \\"x\\" && true"\n`, [`string "`, "name a", "string \\", `string "x`, "string \\", `string "`, "atom true", `string "`]],
  ["single quotes", `messageExpression: 'a + ''x'''\n`, ["string '", "name a", "string '", "string 'x", "string '", "string '", "string '"]],
  ["literal block", "a:\n- valueExpression: |-\n    has(a) // b\n    && true\n  name: true\n", ["call has", "name a", "comment // b", "atom true"]],
  ["folded block", "expression: >\n  a in\n\n  [2u]\nb: c\n", ["name a", "keyword in", "number 2u"]],
  ["comment of YAML", "expression: a # b\n", ["name a", "comment # b"]],
  ["on the next line", "expression:\n  a\n  && true\n", ["name a", "atom true"]],
  ["in braces", "x: {name: a, expression: 'b == 1'}\n", ["string '", "name b", "number 1", "string '"]],
  ["quoted key", `"expression": true\n`, ["atom true"]],
  ["tag and anchor", "expression: &x !!str true\n", ["atom &x", "type !!str", "atom true"]],
  ["empty", "expression:\nexpression: ''\n", ["string ''"]],
  ["several documents", "expression: 1\n---\nexpression: 2\n", ["number 1", "number 2"]],
]
for (const [name, text, want] of cases) test(name, () => assert.deepEqual(colours(text), want))

test("objects have no CEL", () => assert.deepEqual(colours("expression: a == 1\n", false), []))

test("isExpression", () => {
  const text = "name: a\nexpression: b\n", tree = yaml(true).language.parser.parse(text)
  assert.equal(isExpression(tree, text.indexOf("a")), false)
  assert.equal(isExpression(tree, text.indexOf("b")), true)
  assert.equal(isExpression(tree, text.indexOf("b") + 1), true)
})

test("unquoted covers the text between the quotes", () => {
  const read = (text: string) => unquoted(text, 0).map(r => text.slice(r.from, r.to)).join("")
  assert.equal(read(`"a\\"b"`), `a"b`)
  assert.equal(read(`"a\\\\"`), "a\\")
  assert.equal(read("'a''b'"), "a'b")
  assert.equal(read("''''"), "'")
  assert.equal(read(`""`), "")
  assert.equal(read(`"open`), "open")
  assert.equal(read(`"`), "")
})

test("what is below a line of YAML", () => {
  for (const [line, want] of [
    ["spec:", 2], ["  matchConstraints:", 4], ["  matchConstraints:   # why", 4], ["  - spec:", 6], ["- - a:", 6], ["- name: x", 2], ["  - op: add", 4], ['  "quoted key":', 4], ["  'it''s':", 4],
    ["name: x", undefined], ["  text: |", undefined], ["- text: >-", undefined], ["- a", undefined], ["a:b", undefined], ["# key:", undefined], ["", undefined], ["  - {a:", undefined], ["x: [a:", undefined],
    ["- x: [", undefined], ["- http://x", undefined], ["- a: # b", 4],
  ] as const) assert.equal(below(line, 2), want, line)
})

test("isText", () => {
  const text = "# one\nexpression: a == 'b' // c\nname: 'd'\n", tree = yaml(true).language.parser.parse(text)
  for (const [part, want] of [["# on", true], ["== 'b", true], ["// c", true], ["expression: a", false], ["name: 'd", false], ["exp", false]] as const) {
    assert.equal(isText(tree, text.indexOf(part) + part.length), want, part)
  }
})
