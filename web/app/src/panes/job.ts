// Long work in the engine of the background, in steps that become larger, with a button
// that cancels it.
import {h} from "../dom"
import type {Page} from "../page"

// A Job runs one thing at a time. It ends when it is cancelled, which ends the engine.
export class Job {
  readonly bar: HTMLElement
  private number = 0
  private readonly words = h("span")
  private readonly cancel = h("button", {type: "button", onclick: () => this.stop()}, "Cancel")

  constructor(private page: Page, private start: HTMLButtonElement) {
    this.bar = h("div", {class: "job", role: "status", hidden: true}, h("progress", {"aria-label": "running"}), " ", this.words, " ", this.cancel)
  }

  // run calls a method once for each of the params, until done says so.
  async run<A>(method: string, params: readonly {words: string; params: unknown}[], done: (answer: A, last: boolean) => boolean): Promise<void> {
    const number = ++this.number
    this.bar.hidden = false
    this.start.disabled = true
    try {
      for (const [i, step] of params.entries()) {
        this.words.textContent = step.words
        const answer = await this.page.background().call<A>(method, step.params)
        if (number !== this.number || done(answer, i === params.length - 1)) break
      }
    } finally {
      if (number === this.number) this.end()
    }
  }

  private stop() {
    this.number++
    this.page.background().stop("cancelled")
    this.end()
    this.start.focus()
  }

  private end() {
    this.bar.hidden = true
    this.start.disabled = false
  }

  get running(): boolean {
    return !this.bar.hidden
  }
}
