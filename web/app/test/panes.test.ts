import assert from "node:assert/strict"
import {test} from "node:test"
import type {Traced} from "../src/api"
import {Latest} from "../src/panes/kit"
import {fold, lineDiff, lines, signs, type Row} from "../src/panes/rows"
import {passes, total, who, writers} from "../src/panes/steps"
import {apply, before, identity, locate, parts, replaceMutators} from "../src/panes/texts"
import {encode, inline, nested, scalar} from "../src/panes/yaml"

const show = (rows: Row[]) => rows.map(r => r.sign + r.text).join("|")

test("lineDiff", () => {
  for (const [a, b, want] of [
    ["", "", ""],
    ["", "ab", "+a|+b"],
    ["ab", "", "-a|-b"],
    ["abc", "abc", " a| b| c"],
    ["abc", "axc", " a|-b|+x| c"],
    ["abc", "abxc", " a| b|+x| c"],
    ["abcabba", "cbabac", "-a|-b| c|+b| a| b|-b| a|+c"],
    ["aab", "ab", " a|-a| b"],
  ] as const) assert.equal(show(lineDiff([...a], [...b])), want, `${a} ${b}`)
})

// A pseudo-random sequence is the same in each run.
function* numbers(seed: number) {
  for (;;) yield (seed = seed * 48271 % 2147483647)
}

test("lineDiff keeps both texts, and is as short as a table of all pairs finds", () => {
  const next = numbers(7)
  const random = (n: number) => next.next().value! % n
  for (let i = 0; i < 500; i++) {
    const text = () => Array.from({length: random(9)}, () => "abc"[random(3)]!)
    const [a, b] = [text(), text()]
    const rows = lineDiff(a, b)
    assert.deepEqual(rows.filter(r => r.sign !== "+").map(r => [r.before, r.text]), a.map((t, j) => [j + 1, t]))
    assert.deepEqual(rows.filter(r => r.sign !== "-").map(r => [r.after, r.text]), b.map((t, j) => [j + 1, t]))
    const table = Array.from({length: a.length + 1}, () => new Array<number>(b.length + 1).fill(0))
    for (let x = 1; x <= a.length; x++) {
      for (let y = 1; y <= b.length; y++) {
        table[x]![y] = a[x - 1] === b[y - 1] ? table[x - 1]![y - 1]! + 1 : Math.max(table[x - 1]![y]!, table[x]![y - 1]!)
      }
    }
    assert.equal(rows.filter(r => r.sign === " ").length, table[a.length]![b.length], `${a} ${b}`)
  }
})

test("lineDiff of texts that have nothing in common is bounded", () => {
  const a = Array.from({length: 100_000}, (_, i) => "a" + i)
  const b = Array.from({length: 100_000}, (_, i) => "b" + i)
  const rows = lineDiff(["same", ...a, "end"], ["same", ...b, "end"])
  assert.equal(rows.length, 200_002)
  assert.equal(rows.filter(r => r.sign === " ").length, 2)
})

test("lines", () => {
  assert.deepEqual(lines("a\r\nb\n\nc"), ["a", "b", "", "c"])
  assert.deepEqual(lines("a\n"), ["a"])
  assert.deepEqual(lines(""), [])
})

test("fold", () => {
  const rows = [..."aaaaaXaaaaaaaaXa"]
  assert.deepEqual(fold(rows, r => r === "X", 2).map(f => (f.folded ? "-" : "") + f.rows.join("")), ["-aaa", "aaXaa", "-aaaa", "aaXa"])
  assert.deepEqual(fold([..."aXa"], r => r === "X", 0).map(f => f.folded + f.rows.join("")), ["falseaXa"])
  assert.deepEqual(fold([], () => true), [])
  const many = fold(Array.from({length: 300_000}, (_, i) => i), i => i === 150_000)
  assert.deepEqual(many.map(f => f.rows.length), [149_997, 7, 149_996])
})

test("signs", () => {
  const rows = lineDiff(lines("a: 1\nb: 2\nc: 3\n"), lines("a: 1\nb: 4\nnew: x\nc: 3\n"))
  assert.deepEqual([...signs(rows)], [[2, "~"], [3, "+"]])
})

// What follows would take minutes with an expression that goes back.
const long = 400_000

test("signs of a long line of white space", () => {
  assert.deepEqual([...signs(lineDiff([" ".repeat(long)], ["a: 1"]))], [[1, "+"]])
})

test("the name of an object in braces with many commas", () => {
  const text = (s: string) => identity(parts([{name: "f", text: s}])[0]!).name
  assert.equal(text("metadata: {labels: {a: b, c: {d: e}}, name: x}"), "x")
  const commas = `metadata: {a: "${",".repeat(9_900)}"}\n---\n`
  for (const p of parts([{name: "f", text: commas.repeat(400)}])) assert.equal(identity(p).name, "")
})

test("yaml", () => {
  for (const [v, want] of [
    ["nginx:1.29", "nginx:1.29"], ["a b", "a b"], ["", '""'], ["true", '"true"'], ["No", '"No"'], ["1", '"1"'], ["1.5e3", '"1.5e3"'], [".5", '".5"'], ["-", '"-"'],
    ["a: b", '"a: b"'], ["a #b", '"a #b"'], ["a:", '"a:"'], ["*x", '"*x"'], ["a\nb", '"a\\nb"'], ["\u2028\u007f", '"\\u2028\\u007f"'], ["null", '"null"'], ["~", '"~"'],
    [1, "1"], [true, "true"], [null, "null"], [[1, "a"], '[1,"a"]'], [{}, "{}"],
  ] as const) assert.equal(scalar(v), want)
  assert.equal(inline({a: "b"}), '{"a":"b"}')
  assert.equal(nested([1, "a"]), false)
  assert.equal(nested([{}]), true)
  assert.equal(nested({}), false)
  assert.equal(encode({a: {b: [{c: 1, d: [2, {e: []}]}, [3, [4]]]}, "x y": "z", "": {}}),
    'a:\n  b:\n  - c: 1\n    d:\n    - 2\n    - e: []\n  - - 3\n    - - 4\nx y: z\n"": {}\n')
  assert.equal(encode("a"), "a\n")
})

const step = (t: Partial<Traced>): Traced => ({stage: "policies", round: 1, policy: "p", outcome: "changed", cost: 1, ...t})

test("passes", () => {
  const list = passes([
    step({policy: "a", binding: "x", mutation: 0, cost: 5, conditionCost: 2}),
    step({policy: "a", binding: "x", mutation: 1, cost: 7}),
    step({policy: "a", binding: "y"}),
    step({policy: "b", outcome: "skipped", cost: 8, conditions: {evaluations: []}}),
    step({stage: "mutators", policy: "Assign/m", cost: 0}),
    step({round: 2, policy: "a", binding: "x", cost: 3}),
    step({mode: "shadow", policy: "s"}),
  ])
  assert.deepEqual(list.map(p => [p.stage, p.round, p.mode, p.cost, p.members.map(m => [who(m), m.steps.length, m.mutations, m.conditions])]), [
    ["policies", 1, "", 23, [["a › x", 2, 12, 2], ["a › y", 1, 1, 0], ["b", 1, 0, 8]]],
    ["mutators", 1, "", 0, [["Assign/m", 1, 0, 0]]],
    ["policies", 2, "", 3, [["a › x", 1, 3, 0]]],
    ["policies", 1, "shadow", 1, [["s", 1, 1, 0]]],
  ])
  assert.equal(total(list), 27)
  assert.equal(who({stage: "policies", policy: "a", binding: "b", param: "n/c", mutation: 1}), "a › b › n/c › mutations[1]")
  assert.equal(who({stage: "mutators", policy: "Assign/m", param: "m", mutation: 0}), "Assign/m")
})

const policy = `# a policy
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  labels: {name: wrong}
  name: "pull" # the name
spec:
  matchConditions:
  - {name: a, expression: "true"}
  matchConstraints:
    objectSelector: {}
    resourceRules:
    - apiGroups: [""]
      resources: [pods]
    # a comment
    - apiGroups: [apps]
      resources:
      - deployments
      operations: [CREATE]
`
const binding = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: pull}\nspec: {policyName: pull, matchResources: {}}\n"
const mutator = (name: string) => `apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: ${name}}\nspec: {}\n`
const texts = [{name: "a.yaml", text: `---\n${policy}---\n# nothing\n--- # then\n${binding}`}, {name: "b.yaml", text: '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}'}]

test("parts", () => {
  assert.deepEqual(parts(texts).map(p => [p.name, p.line, identity(p)]), [
    ["a.yaml", 2, {apiVersion: "admissionregistration.k8s.io/v1", kind: "MutatingAdmissionPolicy", name: "pull"}],
    ["a.yaml", 24, {apiVersion: "admissionregistration.k8s.io/v1", kind: "MutatingAdmissionPolicyBinding", name: "pull"}],
    ["b.yaml", 1, {apiVersion: "v1", kind: "Pod", name: "p"}],
  ])
})

test("identity", () => {
  for (const [text, want] of [
    ["metadata: {labels: {name: x, y: {name: z}}, name: 'a'}", "a"],
    ["metadata:\n    # c\n    annotations:\n      name: x\n    name: a\nspec:\n    name: b\n", "a"],
    ["spec: {name: b}\nmetadata:\n  labels: {a: b}\n", ""],
    ["a: 1\n", ""],
    ['{"metadata": {"annotations": {"name": "x"}, "name": "a"}, "spec": {}}', "a"],
  ] as const) assert.equal(identity(parts([{name: "t", text}])[0]!).name, want, text)
  assert.equal(identity(parts([{name: "t", text: "spec: {kind: B}\nkind: A\n"}])[0]!).kind, "A")
})

test("locate", () => {
  const line = (kind: string, path?: string) => {
    const at = locate(texts, id => id.kind === kind, path)
    return at && texts.find(t => t.name === at.name)!.text.split("\n")[at.line - 1]!.trim()
  }
  for (const [path, want] of [
    [undefined, "apiVersion: admissionregistration.k8s.io/v1"],
    ["spec.matchConstraints.resourceRules[0].resources", "resources: [pods]"],
    ["spec.matchConstraints.resourceRules[0].apiGroups", '- apiGroups: [""]'],
    ["spec.matchConstraints.resourceRules[1].resources", "resources:"],
    ["spec.matchConstraints.resourceRules[1].resources[0]", "- deployments"],
    ["spec.matchConstraints.resourceRules[1].operations", "operations: [CREATE]"],
    ["spec.matchConstraints.resourceRules[2].operations", "resourceRules:"],
    ["spec.matchConstraints.objectSelector", "objectSelector: {}"],
    ["spec.matchConditions[0].expression", '- {name: a, expression: "true"}'],
    ["spec.nothing", "spec:"],
  ] as const) assert.equal(line("MutatingAdmissionPolicy", path), want)
  assert.equal(line("MutatingAdmissionPolicyBinding", "spec.matchResources.namespaceSelector"), "spec: {policyName: pull, matchResources: {}}")
  assert.equal(line("Pod", "spec"), texts[1]!.text)
  assert.equal(line("Nothing"), undefined)
})

test("before", () => {
  const text = (kind: string, name: string) => `kind: ${kind}\nmetadata: {name: ${name}}\n`
  const objects = [{name: "o", text: [text("Pod", "a"), "# none\n", text("Node", "b"), text("List", ""), text("Pod", "c")].join("---\n")}]
  assert.deepEqual(before(objects, ["Pod x/a", "Node b", "Pod x/d", "Pod x/e"].map(name => ({name, verdict: "changed"}))), [text("Pod", "a"), text("Node", "b"), undefined, undefined])
  assert.deepEqual(before(objects, [{name: "Pod x/a", verdict: "unchanged"}, {verdict: "changed"}, {name: "Pod x/y", verdict: "changed"}]), [undefined, undefined, undefined])
  assert.deepEqual(before([], [{name: "Pod x/a", verdict: "changed"}]), [undefined])
})

test("apply", () => {
  const edit = (line: number, character: number, toLine: number, to: number, newText: string) =>
    ({range: {start: {line, character}, end: {line: toLine, character: to}}, newText})
  assert.equal(apply("a😀b\ncd\n", [edit(0, 3, 0, 4, "X"), edit(1, 0, 1, 1, ""), edit(2, 0, 2, 0, "end")]), "a😀X\nd\nend")
  assert.equal(apply("ab\ncd", [edit(0, 99, 1, 1, "-"), edit(9, 0, 9, 0, "!")]), "ab-d!")
})

test("replaceMutators", () => {
  const documents = [
    {name: "m.yaml", text: mutator("a") + "---\n# kept\n" + binding + "---\n" + mutator("b")},
    {name: "n.yaml", text: mutator("c")},
    {name: "o.yaml", text: mutator("d")},
  ]
  assert.deepEqual(replaceMutators(documents, ["Assign/a", "Assign/c", "Assign/x"], [{name: "a.yaml", text: "A"}, {name: "m.yaml", text: "M"}]), {
    documents: [
      {name: "m.yaml", text: "# kept\n" + binding + "---\n" + mutator("b")},
      {name: "o.yaml", text: mutator("d")},
      {name: "a.yaml", text: "A"},
      {name: "m-2.yaml", text: "M"},
    ],
    left: ["Assign/x"],
  })
})

test("Latest asks one at a time, and the last of those that wait", async () => {
  const asked: string[] = []
  const waiting: {resolve(a: string): void; reject(err: Error): void}[] = []
  const said: string[] = []
  const latest = new Latest<string, string>(q => {
    asked.push(q)
    return new Promise((resolve, reject) => waiting.push({resolve, reject}))
  }, (q, a) => said.push(q + a), (q, err) => said.push(q + err.message))
  const settled = () => new Promise(resolve => setTimeout(resolve))
  for (const q of ["a", "b", "c"]) latest.put(q)
  assert.deepEqual(asked, ["a"])
  waiting[0]!.resolve("1")
  await settled()
  assert.deepEqual([asked, said], [["a", "c"], []])
  waiting[1]!.reject(new Error(" no"))
  await settled()
  assert.deepEqual(said, ["c no"])
  latest.put("d")
  waiting[2]!.resolve("2")
  await settled()
  assert.deepEqual([asked, said], [["a", "c", "d"], ["c no", "d2"]])
})

test("each changed line has the mutation that wrote it", () => {
  const line = (line: number, last: number, path: string, mutation: number) => ({line, last, path, stage: "policies", policy: "p", binding: "b", mutation})
  const by = (n: number) => `p › b › mutations[${n}]`
  // labels as a whole, and one of them again
  assert.deepEqual(writers([line(2, 5, "metadata.labels", 0), line(4, 4, "metadata.labels.env", 1)], 6), ["", by(0), by(0), by(1), by(0), ""])
  // a field that two wrote, and two fields in one line
  assert.deepEqual(writers([line(1, 1, "a", 0), line(1, 1, "a", 1)], 1), [`${by(0)}, then ${by(1)}`])
  assert.deepEqual(writers([line(1, 1, "a", 0), line(1, 1, "b", 1)], 2), [`a: ${by(0)}; b: ${by(1)}`, ""])
  assert.deepEqual(writers([line(1, 9, "a", 0)], 2), [by(0), by(0)])
  assert.deepEqual(writers([], 2), ["", ""])
})
