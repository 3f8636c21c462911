import assert from "node:assert/strict"
import test from "node:test"
import {tokenize} from "../src/editor/cel"

// words are the tokens of an expression as "kind text".
const words = (text: string) => tokenize(text).map(k => `${k.kind} ${text.slice(k.from, k.to)}`)

const cases: [string, string[]][] = [
  ["", []],
  ["true || null == false", ["atom true", "operator ||", "atom null", "operator ==", "atom false"]],
  ["x in y", ["name x", "keyword in", "name y"]],
  ["index", ["name index"]],
  ["1 + 2u - 0xFFu * 0x1a", ["number 1", "operator +", "number 2u", "operator -", "number 0xFFu", "operator *", "number 0x1a"]],
  ["1.5e-3 2e9 .5 1e", ["number 1.5e-3", "number 2e9", "number .5", "number 1", "name e"]],
  ["a.b[0].c", ["name a", "operator .", "property b", "bracket [", "number 0", "bracket ]", "operator .", "property c"]],
  ["object.?spec.?a.orValue(1)", ["name object", "operator .", "operator ?", "property spec", "operator .", "operator ?", "property a", "operator .", "call orValue", "bracket (", "number 1", "bracket )"]],
  [`"a\\"b" 'c'`, [`string "a\\"b"`, "string 'c'"]],
  [`r"a\\" b'x' rb'''y\n'z''' Br"q" bR"w" x`, [`string r"a\\"`, "string b'x'", "string rb'''y\n'z'''", `string Br"q"`, `string bR"w"`, "name x"]],
  [`"""a "b" \\""" c""" d`, [`string """a "b" \\""" c"""`, "name d"]],
  ['"open\nx', ['string "open', "name x"]],
  ["'''open\nx", ["string '''open\nx"]],
  ["a // b\n+ c", ["name a", "comment // b", "operator +", "name c"]],
  ["// only", ["comment // only"]],
  [`"//" + a`, [`string "//"`, "operator +", "name a"]],
  ["has(a.b) && size(x) > int(y)", ["call has", "bracket (", "name a", "operator .", "property b", "bracket )", "operator &&", "call size", "bracket (", "name x", "bracket )", "operator >", "type int", "bracket (", "name y", "bracket )"]],
  ["Object.spec.containers{name: x}", ["type Object", "operator .", "type spec", "operator .", "type containers", "bracket {", "property name", "operator :", "name x", "bracket }"]],
  ["Object{spec: Object.spec{replicas: 1}}", ["type Object", "bracket {", "property spec", "operator :", "type Object", "operator .", "type spec", "bracket {", "property replicas", "operator :", "number 1", "bracket }", "bracket }"]],
  ["Object.spec{?a: b, c: d}", ["type Object", "operator .", "type spec", "bracket {", "operator ?", "property a", "operator :", "name b", "operator ,", "property c", "operator :", "name d", "bracket }"]],
  ["a ? b : c", ["name a", "operator ?", "name b", "operator :", "name c"]],
  ["[a ? b : c]", ["bracket [", "name a", "operator ?", "name b", "operator :", "name c", "bracket ]"]],
  ["JSONPatch{op: 'add'}", ["type JSONPatch", "bracket {", "property op", "operator :", "string 'add'", "bracket }"]],
  ["object.Object", ["name object", "operator .", "property Object"]],
  ["a.`b.c/d`", ["name a", "operator .", "property `b.c/d`"]],
  ["a # b 😀", ["name a", "invalid #", "name b", "invalid 😀"]],
  ["a\\n&& b", ["name a", "operator &&", "name b"]],
  ["\\", ["invalid \\"]],
]

for (const [text, want] of cases) test(`tokens of ${JSON.stringify(text)}`, () => assert.deepEqual(words(text), want))

test("any text is tokens and white space, in order", () => {
  const parts = ["a", ".", "'", '"""', "r'", "\\", "\n", " ", "//", "/", "{", "}", "0x", "1", "e", "`", "?", "é", "\ud83d", "😀", "Object", "#", "\t"]
  let seed = 1
  const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n
  for (let i = 0; i < 2000; i++) {
    const text = Array.from({length: random(12)}, () => parts[random(parts.length)]).join("")
    let at = 0
    for (const k of tokenize(text)) {
      assert.match(text.slice(at, k.from), /^(?:\s|\\[nrt\n])*$/, JSON.stringify(text))
      assert.ok(k.to > k.from, JSON.stringify(text))
      at = k.to
    }
    assert.match(text.slice(at), /^(?:\s|\\[nrt\n])*$/, JSON.stringify(text))
  }
})
