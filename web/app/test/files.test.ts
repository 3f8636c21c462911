import assert from "node:assert/strict"
import test from "node:test"
import {example} from "../src/example"
import {kindOf, paramKinds, readJSON, sort, toGist} from "../src/files"
import type {State} from "../src/state"

const policy = "# mine\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n  paramKind:\n    apiVersion: v1\n    kind: ConfigMap\n"
const params = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
const pod = "apiVersion: v1\nkind: Pod # a comment\nmetadata: {name: w}\n"

const kinds: [string, string, string][] = [
  [pod, "v1", "Pod"],
  ['{"apiVersion":"v1","kind":"Pod"}', "v1", "Pod"],
  ["{apiVersion: v1, kind: Pod, metadata: {name: x}}", "v1", "Pod"],
  ["kind: 'Deployment'\napiVersion: \"apps/v1\"\n", "apps/v1", "Deployment"],
  ["spec:\n  kind: Pod\n", "", ""],
]
for (const [text, apiVersion, kind] of kinds) test(`the kind of ${JSON.stringify(text)}`, () => assert.deepEqual(kindOf(text), {apiVersion, kind}))

// These would take minutes with an expression that goes back.
for (const text of ["\n".repeat(400_000), "paramKind:" + "\n".repeat(400_000), "paramKind:{".repeat(200_000), "{" + " ".repeat(400_000)]) {
  test(`a file that begins with ${JSON.stringify(text.slice(0, 14))} and is long`, () => assert.equal(sort([{name: "f", text}]).objects.length, 1))
}

test("kinds of parameters", () => {
  assert.deepEqual(paramKinds([policy, "  paramKind: {apiVersion: example.com/v1, kind: \"Rule\"}\n", "  paramKind:\n\n    kind: A\n    apiVersion: a/v1\n", '{"paramKind": {"kind": "B", "apiVersion": "b/v1"}}']),
    [{apiVersion: "v1", kind: "ConfigMap"}, {apiVersion: "example.com/v1", kind: "Rule"}, {apiVersion: "a/v1", kind: "A"}, {apiVersion: "b/v1", kind: "B"}])
})

const places: [string, "documents" | "objects"][] = [
  [policy, "documents"],
  ["apiVersion: v1\nkind: Namespace\n", "documents"],
  ["apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n", "documents"],
  ["apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\n", "documents"],
  ["apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n", "documents"],
  ["apiVersion: v1\nkind: List\nitems:\n- apiVersion: mutations.gatekeeper.sh/v1\n  kind: Assign\n", "documents"],
  ["apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n", "objects"],
  [pod, "objects"],
  [params, "objects"],
  ["# nothing\n", "objects"],
  ["apiVersion: gatekeeper.sh.example.com/v1\nkind: Assign\n", "objects"],
]
for (const [text, want] of places) test(`${JSON.stringify(text.slice(0, 60))} is one of the ${want}`, () => {
  const got = sort([{name: "f", text}])
  assert.deepEqual(got[want], [{name: "f", text}])
  assert.equal(got.documents.length + got.objects.length, 1)
})

test("parameters are documents, of a policy among the files or before", () => {
  const want = [{name: "c", text: params}]
  assert.deepEqual(sort([{name: "c", text: params}], [{name: "p", text: policy}]).documents, want)
  assert.deepEqual(sort([{name: "p", text: policy}, {name: "c", text: params}]).documents.slice(1), want)
})

test("a file of both becomes two", () => {
  assert.deepEqual(sort([{name: "all.yaml", text: `# head\n---\n${pod}---\n${policy}--- # next\n${params}`}]), {
    documents: [{name: "all.yaml", text: `${policy}---\n${params}`}],
    objects: [{name: "all.yaml", text: `# head\n${pod}`}],
  })
})

test("files of one name get another", () => {
  assert.deepEqual(sort([{name: "a.yaml", text: pod}, {name: "a.yaml", text: pod}]).objects.map(t => t.name), ["a.yaml", "a-2.yaml"])
})

test("a gist has the whole state", () => {
  const full: State = {
    documents: [{name: "dir/p.yaml", text: "a"}, {name: "playground.json", text: "b"}], objects: [{name: "o.yaml", text: "c"}], old: [{name: "o.yaml", text: "d"}],
    operation: "UPDATE", kubernetes: "1.35", user: {username: "u"},
  }
  for (const state of [example, full]) assert.deepEqual(readJSON(JSON.stringify(toGist(state))), {state})
  assert.deepEqual(Object.keys(toGist(full).files), ["playground.json", "dir-p.yaml", "playground-2.json", "o.yaml", "old-o.yaml"])
})

test("other JSON", () => {
  assert.deepEqual(readJSON('{"files":{"a.yaml":{"content":"x"}}}'), {files: [{name: "a.yaml", text: "x"}]})
  assert.deepEqual(readJSON('{"documents":[{"name":"a","text":"x"}]}'), {state: {documents: [{name: "a", text: "x"}], objects: []}})
  for (const text of ["a: b", "{", "[]", '{"apiVersion":"v1","kind":"Pod","files":{}}', '{"a":1}', "null", "", '{"files":null}']) assert.equal(readJSON(text), undefined, text)
  assert.throws(() => readJSON('{"files":{"a":{}}}'), /files\["a"\]\.content: want a text/)
  assert.throws(() => readJSON('{"files":{"playground.json":{"content":"{\\"documents\\":[\\"b\\"]}"}}}'), /there is no file "b"/)
})
