// The page's side of a worker that runs mapd. A call that takes too long ends the worker
// and starts another, so no policy can keep the page from answering.
import {Sent, unknownRef} from "./sent"

// An EngineError is an answer in words: from a method, or because the worker was ended.
export class EngineError extends Error {
  // restarted is set if the worker was ended, and the next call starts another.
  constructor(message: string, readonly restarted = false) {
    super(message)
  }
}

export interface EngineOptions {
  script: string
  module(): Promise<WebAssembly.Module> // compiled once for all workers
  deadline: number // milliseconds for one call, while it computes
  idle?: number // milliseconds without work after which the worker is ended
}

interface Call {
  id: number
  method: string
  params: unknown // which nobody changes
  again?: true // the program did not have a text
  resolve(answer: string): void
  reject(err: Error): void
}

// What a worker sends: that it is there, that a call waits for a file (+1) or has it
// (-1), and answers.
export interface FromWorker {
  ready?: true
  fetching?: 1 | -1
  ended?: string // why
  id?: number
  answer?: string
  error?: string
  memory?: number // bytes
}

const tooLarge = 768 * 2 ** 20 // memory only grows; a worker above is renewed when idle

export class Engine {
  private worker?: Worker
  private ready = false
  private queue: Call[] = []
  private running?: Call
  private timer = 0
  private idle = 0
  private left = 0 // milliseconds of the deadline
  private since = 0
  private fetching = 0
  private memory = 0
  private next = 0
  private sent = new Sent()

  constructor(private options: EngineOptions) {}

  // call asks a method of the engine, from JSON to JSON. Calls are answered one after the
  // other; an urgent one is before those that wait.
  call<T>(method: string, params: unknown, urgent = false): Promise<T> {
    return new Promise<string>((resolve, reject) => {
      const call = {id: ++this.next, method, params, resolve, reject}
      if (urgent) this.queue.unshift(call)
      else this.queue.push(call)
      this.work()
    }).then(answer => JSON.parse(answer) as T)
  }

  // stop ends the worker and all calls, which fail with the reason.
  stop(reason: string) {
    const calls = this.queue
    this.queue = []
    this.restart(reason)
    for (const c of calls) c.reject(new EngineError(reason, true))
  }

  private work() {
    if (this.running || !this.queue.length) return
    clearTimeout(this.idle)
    if (!this.worker) this.start()
    if (!this.ready) return
    const {id, method, params} = this.running = this.queue.shift()!
    this.fetching = 0
    this.left = this.options.deadline
    this.clock()
    this.worker!.postMessage({id, method, params: this.sent.pack(params)})
  }

  // clock runs while the worker computes and stands while it waits for a file.
  private clock() {
    clearTimeout(this.timer)
    if (this.fetching > 0) {
      this.left -= performance.now() - this.since
      return
    }
    this.since = performance.now()
    this.timer = setTimeout(() => this.restart(`no answer within ${this.options.deadline / 1000} s: the engine was started anew`), this.left)
  }

  private start() {
    const w = this.worker = new Worker(this.options.script)
    w.onmessage = e => this.receive(e.data as FromWorker)
    w.onerror = e => {
      e.preventDefault()
      this.restart(`the engine ended (${e.message}) and was started anew`)
    }
    this.options.module().then(
      module => {
        if (w === this.worker) w.postMessage({module})
      },
      err => {
        if (w === this.worker) this.stop(`the engine cannot be loaded: ${(err as Error).message}`)
      },
    )
  }

  private receive(m: FromWorker) {
    if (m.ready) {
      this.ready = true
      this.work()
    } else if (m.fetching) {
      this.fetching += m.fetching
      if (this.running) this.clock()
    } else if (m.ended !== undefined) this.restart(`the engine ended (${m.ended}) and was started anew`)
    else if (m.id === this.running?.id) {
      const call = this.running!
      this.running = undefined
      clearTimeout(this.timer)
      this.memory = m.memory ?? 0
      if (m.error === undefined) call.resolve(m.answer!)
      else if (m.error === unknownRef && !call.again) {
        this.sent.forget()
        this.queue.unshift({...call, again: true})
      } else call.reject(new EngineError(m.error))
      if (!this.queue.length && this.memory > tooLarge) {
        this.end()
        this.start()
      }
      if (!this.queue.length && this.options.idle !== undefined) this.idle = setTimeout(() => this.end(), this.options.idle)
      this.work()
    }
  }

  private end() {
    clearTimeout(this.timer)
    clearTimeout(this.idle)
    this.worker?.terminate()
    this.worker = undefined
    this.ready = false
    this.sent.forget()
  }

  // restart ends the worker, and the call that runs fails; those that wait go to a new
  // worker.
  private restart(reason: string) {
    const call = this.running
    this.running = undefined
    const ready = this.ready
    this.end()
    if (call) call.reject(new EngineError(reason, true))
    else if (!ready) {
      // It ends before it does anything: another would too.
      for (const c of this.queue.splice(0)) c.reject(new EngineError(reason, true))
    }
    this.work()
  }
}
