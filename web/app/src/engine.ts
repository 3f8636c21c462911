// The page's side of the worker that runs mapd. A call that takes too long ends the
// worker and starts another, so no policy can keep the page from answering.

export class EngineError extends Error {}

interface Call {
  resolve(answer: string): void
  reject(err: Error): void
  timer: number
}

export class Engine {
  private worker?: Worker
  private calls = new Map<number, Call>()
  private next = 0

  constructor(private script: string | TrustedScriptURL, private deadline: number) {}

  // call sends params to a method of web/main_js.go. Both are JSON.
  call<T>(method: string, params: unknown): Promise<T> {
    const id = ++this.next
    return new Promise<string>((resolve, reject) => {
      const timer = window.setTimeout(() => this.restart(new EngineError(`no answer within ${this.deadline / 1000} s; the engine was started anew`)), this.deadline)
      this.calls.set(id, {resolve, reject, timer})
      this.start().postMessage({id, method, params: JSON.stringify(params)})
    }).then(answer => JSON.parse(answer) as T)
  }

  private start(): Worker {
    if (this.worker) return this.worker
    const w = new Worker(this.script as string)
    w.onmessage = e => {
      const call = this.calls.get(e.data.id)
      if (!call) return
      this.calls.delete(e.data.id)
      clearTimeout(call.timer)
      if (e.data.error === undefined) call.resolve(e.data.answer)
      else call.reject(new EngineError(e.data.error))
    }
    w.onerror = e => this.restart(new EngineError(`the engine ended: ${e.message}`))
    return this.worker = w
  }

  // restart ends the worker; every call that waits for it fails with err.
  private restart(err: Error) {
    this.worker?.terminate()
    this.worker = undefined
    for (const call of this.calls.values()) {
      clearTimeout(call.timer)
      call.reject(err)
    }
    this.calls.clear()
  }
}
