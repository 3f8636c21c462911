import assert from "node:assert/strict"
import test from "node:test"
import {Engine, EngineError} from "../src/engine"

type Message = {id: number; method: string; params: string; module?: unknown}

// A worker of a test: answer gets every call, and may say anything through say.
class FakeWorker {
  static all: FakeWorker[] = []
  static answer: (w: FakeWorker, m: Message) => void
  onmessage?: (e: {data: unknown}) => void
  ended = false

  constructor() {
    FakeWorker.all.push(this)
  }

  say(data: unknown) {
    if (!this.ended) this.onmessage!({data})
  }

  postMessage(m: Message) {
    if (m.module) queueMicrotask(() => this.say({ready: true}))
    else FakeWorker.answer(this, m)
  }

  terminate() {
    this.ended = true
  }
}
Object.assign(globalThis, {Worker: FakeWorker})

const echo = (memory = 1) => (w: FakeWorker, m: Message) => queueMicrotask(() => w.say({id: m.id, answer: `[${JSON.stringify(m.method)},${m.params}]`, memory}))

function engine(answer: typeof FakeWorker.answer, deadline = 60_000): Engine {
  FakeWorker.all = []
  FakeWorker.answer = answer
  return new Engine({script: "worker.js", module: () => Promise.resolve({} as WebAssembly.Module), deadline})
}

const failure = (restarted: boolean, message: RegExp) => (err: unknown) => err instanceof EngineError && err.restarted === restarted && message.test(err.message)

test("calls are answered in turn, and an urgent one is first", async () => {
  const order: string[] = []
  const e = engine((w, m) => {
    order.push(m.method)
    echo()(w, m)
  })
  const answers = await Promise.all([e.call("a", 1), e.call("b", 2), e.call("c", 3, true)])
  assert.deepEqual(answers, [["a", 1], ["b", 2], ["c", 3]])
  assert.deepEqual(order, ["c", "a", "b"])
  assert.equal(FakeWorker.all.length, 1)
})

test("an error of a method is one of its call", async () => {
  const e = engine((w, m) => m.method === "bad" ? w.say({id: m.id, error: "no"}) : echo()(w, m))
  await assert.rejects(e.call("bad", 0), failure(false, /^no$/))
  assert.deepEqual(await e.call("a", 1), ["a", 1])
  assert.equal(FakeWorker.all.length, 1)
})

test("a call without an answer ends its worker, and those behind it have another", async () => {
  const e = engine((w, m) => m.method === "loop" ? undefined : echo()(w, m), 1)
  const loop = e.call("loop", 0)
  const behind = assert.rejects(loop, failure(true, /no answer within .* started anew/)).then(() => e.call("a", 1))
  assert.deepEqual(await behind, ["a", 1])
  assert.deepEqual(FakeWorker.all.map(w => w.ended), [true, false])
})

test("a worker that ends is replaced", async () => {
  const e = engine((w, m) => m.method === "crash" ? w.say({ended: "out of memory"}) : echo()(w, m))
  const crash = e.call("crash", 0)
  const next = e.call("a", 1)
  await assert.rejects(crash, failure(true, /ended \(out of memory\)/))
  assert.deepEqual(await next, ["a", 1])
  assert.deepEqual(FakeWorker.all.map(w => w.ended), [true, false])
})

test("a program that cannot start fails its calls, and does not start for ever", async () => {
  const e = engine(echo())
  const call = e.call("a", 1)
  FakeWorker.all[0]!.say({ended: "no memory"})
  await assert.rejects(call, failure(true, /no memory/))
  assert.equal(FakeWorker.all.length, 1)
})

test("a program that cannot be loaded is tried again by the next call", async () => {
  FakeWorker.all = []
  FakeWorker.answer = echo()
  let tries = 0
  const e = new Engine({script: "worker.js", deadline: 60_000, module: () => ++tries === 1 ? Promise.reject(new Error("offline")) : Promise.resolve({} as WebAssembly.Module)})
  await assert.rejects(e.call("a", 1), failure(true, /cannot be loaded: offline/))
  assert.deepEqual(await e.call("a", 1), ["a", 1])
})

test("a worker with much memory is renewed when nothing waits", async () => {
  const e = engine(echo(800 * 2 ** 20))
  await Promise.all([e.call("a", 1), e.call("b", 2)])
  assert.deepEqual(FakeWorker.all.map(w => w.ended), [true, false])
  FakeWorker.answer = echo()
  assert.deepEqual(await e.call("c", 3), ["c", 3])
  assert.equal(FakeWorker.all.length, 2)
})

test("stop fails all calls", async () => {
  const e = engine(() => {})
  const calls = ["a", "b"].map(m => assert.rejects(e.call(m, 0), failure(true, /cancelled/)))
  e.stop("cancelled")
  await Promise.all(calls)
})

test("a text that the program has forgotten is sent again, once", async () => {
  const text = "#".repeat(300), sent: string[] = []
  let forget = 1
  const e = engine((w, m) => {
    sent.push(m.params)
    if (sent.length > 1 && forget-- > 0) w.say({id: m.id, error: "a text is not known any more"})
    else echo()(w, m)
  })
  const ask = () => e.call("a", {documents: [{name: "d", text}]})
  await ask()
  assert.deepEqual(await ask(), ["a", {documents: [{name: "d", text, ref: 2}]}])
  assert.deepEqual(sent.map(s => s.includes(text)), [true, false, true])
  forget = 2
  await assert.rejects(ask(), failure(false, /not known any more/))
  assert.equal(sent.length, 5)
})
