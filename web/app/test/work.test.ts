import assert from "node:assert/strict"
import {test} from "node:test"
import type {State} from "../src/state"
import type {Store} from "../src/store"
import {adopt, largestPiece, mostPieces, Work} from "../src/work"

class Memory implements Store {
  texts = new Map<string, string>()
  constructor(private room = Infinity) {}
  keys(prefix: string) {
    return [...this.texts.keys()].filter(k => k.startsWith(prefix))
  }
  load(key: string) {
    return this.texts.get(key) ?? null
  }
  save(key: string, text: string | undefined) {
    if (text === undefined) return this.texts.delete(key) || true
    const others = [...this.texts].reduce((n, [k, t]) => k === key ? n : n + t.length, 0)
    if (others + text.length > this.room) return false
    this.texts.set(key, text)
    return true
  }
}

const state = (text: string): State => ({documents: [{name: "policy.yaml", text}], objects: []})

test("two tabs keep their work apart, in any order of writes", () => {
  const store = new Memory()
  let now = 0
  const tabs = [new Work(store, () => ++now), new Work(store, () => ++now)]
  let seed = 7
  const random = (n: number) => (seed = seed * 1103515245 + 12345 & 0x7fffffff) % n
  const last = new Map<string, string>()
  for (let i = 0; i < 2000; i++) {
    const tab = random(2)
    const id = `${tab}-${random(mostPieces / 2)}`
    assert.equal(tabs[tab]!.keep(id, state(`${i}`)), undefined)
    last.set(id, `${i}`)
    for (const [id, text] of last) assert.equal(tabs[random(2)]!.get(id)?.state.documents[0]?.text, text)
  }
  assert.deepEqual(tabs[0]!.list().map(p => p.at), tabs[0]!.list().map(p => p.at).sort((a, b) => b - a))
})

test("only the oldest pieces make room", () => {
  const store = new Memory()
  let now = 0
  const work = new Work(store, () => ++now)
  for (let i = 0; i < mostPieces + 5; i++) work.keep(`p${i}`, state(`${i}`))
  assert.deepEqual(work.list().map(p => p.id), Array.from({length: mostPieces}, (_, i) => `p${mostPieces + 4 - i}`))
})

test("what the browser does not keep is there until the page is closed", () => {
  const store = new Memory(3000)
  let now = 0
  const work = new Work(store, () => ++now)
  assert.equal(work.keep("a", state("a".repeat(500))), undefined)
  assert.equal(work.keep("b", state("b".repeat(2500))), undefined)
  assert.equal(work.get("a"), undefined, "the older one made room")
  assert.equal(work.keep("c", state("c".repeat(5000))), "refused")
  assert.equal(work.get("c")?.state.documents[0]?.text.length, 5000)
  assert.equal(work.list()[0]?.id, "c")
  assert.equal(work.keep("c", state("short")), undefined)
  assert.equal(new Work(store).get("c")?.state.documents[0]?.text, "short")
  assert.equal(work.keep("d", state("d".repeat(largestPiece))), "large")
  assert.equal(new Work(store).get("d"), undefined)
  assert.equal(work.get("c")?.state.documents[0]?.text, "short", "one that is too large removes no other")
})

test("what cannot be read is left alone", () => {
  const store = new Memory()
  store.save("work:x", "{")
  store.save("work:y", JSON.stringify({at: 1, state: {later: true}}))
  const work = new Work(store)
  assert.deepEqual(work.list(), [])
  assert.equal(store.texts.size, 2)
})

test("the one state of an earlier version becomes a piece", () => {
  const store = new Memory()
  store.save("state", JSON.stringify(state("old")))
  const work = new Work(store)
  adopt(work, store)
  adopt(work, store)
  assert.deepEqual(work.list().map(p => p.state), [state("old")])
  assert.equal(store.load("state"), null)
})
