// The worker that runs mapd: it loads the program, then answers one call after the
// other.
// The Go toolchain's own support file, see build.mjs; it sets globalThis.Go.
import "wasm-exec"

interface GoProgram {
  importObject: WebAssembly.Imports
  run(instance: WebAssembly.Instance): Promise<void>
}

declare const Go: new () => GoProgram
declare const mapd: {call(method: string, params: string): Promise<string>}

// program fetches the program, which is compressed, unless the server has said so and
// the browser has undone it already.
async function program(): Promise<Response> {
  const r = await fetch("mapd.wasm.gz")
  if (!r.ok || !r.body) throw new Error(`mapd.wasm.gz: ${r.status} ${r.statusText}`)
  const reader = r.body.getReader()
  const first = await reader.read()
  const zipped = first.value?.[0] === 0x1f && first.value[1] === 0x8b
  const all = new ReadableStream<Uint8Array<ArrayBuffer>>({
    start(c) {
      if (first.value) c.enqueue(first.value)
    },
    async pull(c) {
      const {done, value} = await reader.read()
      if (done) c.close()
      else c.enqueue(value)
    },
  })
  const body = zipped ? all.pipeThrough(new DecompressionStream("gzip")) : all
  return new Response(body, {headers: {"Content-Type": "application/wasm"}})
}

async function load(): Promise<void> {
  const go = new Go()
  const {instance} = await WebAssembly.instantiateStreaming(program(), go.importObject)
  void go.run(instance).then(() => self.close())
}

const loaded = load()
let last: Promise<unknown> = loaded

self.onmessage = e => {
  const {id, method, params} = e.data
  last = last.catch(() => {}).then(() => loaded).then(() => mapd.call(method, params)).then(
    answer => self.postMessage({id, answer}),
    err => self.postMessage({id, error: String(err?.message ?? err)}),
  )
}
