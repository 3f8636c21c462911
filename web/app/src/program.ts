// The engine as a WebAssembly module: fetched and compiled once, for all workers.

// programFile is its name in the site.
export const programFile = "mapd.wasm.gz"

// fetched is the program as it came, for the service worker: a private window keeps no file of
// its size, and would fetch it twice.
let fetched: Response | undefined

// takeFetched returns the program as it came, once; undefined if the server has packed it in
// another way.
export function takeFetched(): Response | undefined {
  const r = fetched
  fetched = undefined
  return r
}

// loadProgram fetches and compiles the program. It is compressed, unless the server has
// said so and the browser has undone it already.
export async function loadProgram(progress: (loaded: number, total?: number) => void): Promise<WebAssembly.Module> {
  const r = await fetch(programFile)
  if (!r.ok || !r.body) throw new Error(`${programFile}: ${r.status} ${r.statusText}`)
  if (!r.headers.get("Content-Encoding") && !navigator.serviceWorker?.controller) fetched = r.clone()
  // The length is that of what is transferred, which is more than what arrives here if
  // the browser has undone it.
  const total = r.headers.get("Content-Encoding") ? undefined : Number(r.headers.get("Content-Length")) || undefined
  const reader = r.body.getReader()
  const first = await reader.read()
  const zipped = first.value?.[0] === 0x1f && first.value[1] === 0x8b
  let loaded = 0
  const all = new ReadableStream<Uint8Array<ArrayBuffer>>({
    start: c => push(c, first),
    pull: async c => push(c, await reader.read()),
    cancel: reason => reader.cancel(reason),
  })
  function push(c: ReadableStreamDefaultController<Uint8Array<ArrayBuffer>>, {done, value}: ReadableStreamReadResult<Uint8Array<ArrayBuffer>>) {
    if (done) return c.close()
    loaded += value.length
    progress(loaded, total)
    c.enqueue(value)
  }
  const body = zipped ? all.pipeThrough(new DecompressionStream("gzip")) : all
  return WebAssembly.compileStreaming(new Response(body, {headers: {"Content-Type": "application/wasm"}}))
}
