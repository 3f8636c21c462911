// The worker that runs mapd: it takes the compiled program, then answers one call after
// the other; see engine.ts.
// The Go toolchain's own support file, see build.mjs; it sets globalThis.Go.
import "wasm-exec"
import type {FromWorker} from "./engine"

interface GoProgram {
  importObject: WebAssembly.Imports
  exit(code: number): void
  run(instance: WebAssembly.Instance): Promise<void>
}

declare const Go: new () => GoProgram
declare const mapd: {call(method: string, params: string): Promise<string>}

// largest is what the page can take without stopping: a long key in an object is a part of each
// path below it, so an answer may be larger than the question by any factor.
const largest = 64 << 20 // UTF-16 units

const send = (m: FromWorker) => self.postMessage(m)
let memory: WebAssembly.Memory

// mapdSchema is what the program reads the schemas of a group of built-in kinds with, when it
// first needs one of them, and the descriptions of their fields, without which a call has an
// answer, too; see web/schemas_js.go. The wait is no part of the time that a call may take.
Object.assign(globalThis, {
  async mapdSchema(name: string): Promise<Uint8Array> {
    send({fetching: 1})
    try {
      const r = await fetch("schemas/" + name, {signal: AbortSignal.timeout(name.endsWith(".descriptions") ? 5_000 : 30_000)})
      if (!r.ok) throw new Error(`schemas/${name}: ${r.status} ${r.statusText}`)
      return new Uint8Array(await r.arrayBuffer())
    } finally {
      send({fetching: -1})
    }
  },
})

async function start(module: WebAssembly.Module) {
  const go = new Go()
  let code = 0
  go.exit = c => {
    code = c
  }
  const instance = await WebAssembly.instantiate(module, go.importObject)
  memory = instance.exports["mem"] as WebAssembly.Memory
  go.run(instance).then(() => end(code === 2 ? "out of memory, or a fault in the program" : `exit code ${code}`), err => end(String(err)))
  send({ready: true})
}

function end(ended: string) {
  send({ended})
  self.close()
}

self.onmessage = e => {
  if (e.data.module) {
    start(e.data.module).catch(err => end(String(err?.message ?? err)))
    return
  }
  const {id, method, params} = e.data
  mapd.call(method, params).then(
    answer => send({
      id, memory: memory.buffer.byteLength,
      ...answer.length > largest ? {error: `the answer has ${answer.length >> 20} MiB, and the page shows at most ${largest >> 20}`} : {answer},
    }),
    err => send({id, error: String(err?.message ?? err), memory: memory.buffer.byteLength}),
  )
}
