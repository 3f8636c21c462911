// What several panes are made of.
import type {Action, Change, Fault} from "../api"
import {h} from "../dom"
import type {Page} from "../page"
import {lines} from "./rows"
import {apply, locate} from "./texts"
import {encode, inline, nested} from "./yaml"

export type Child = Parameters<typeof h>[2]

// Latest asks one question at a time. Of those that come meanwhile only the last one is
// asked, and only its answer counts.
export class Latest<Q, A> {
  private running = false
  private next?: {question: Q}

  constructor(private ask: (q: Q) => Promise<A>, private done: (q: Q, a: A) => void, private failed: (q: Q, err: Error) => void) {}

  put(question: Q) {
    this.next = {question}
    if (!this.running) void this.run()
  }

  private async run() {
    this.running = true
    while (this.next) {
      const {question} = this.next
      this.next = undefined
      try {
        const answer = await this.ask(question)
        if (!this.next) this.done(question, answer)
      } catch (err) {
        if (!this.next) this.failed(question, err as Error)
      }
    }
    this.running = false
  }
}

// Folds are elements with a summary whose content is made when they are open. They stay
// as the user left them, by a name.
export class Folds {
  private left = new Map<string, boolean>()

  make(name: string, open: boolean, summary: Child, content: () => Child, kind = ""): HTMLElement {
    const inside = h("div", {class: "content"})
    let filled = false
    const fill = () => {
      if (!filled) inside.append(...h("div", null, content()).childNodes)
      filled = true
    }
    const e = this.of(() => name, open, h("summary", null, summary), inside, fill, kind)
    if (e.open) fill()
    return e
  }

  // of is make for a content that the caller fills, now if the element is open, and with fill
  // when it is opened.
  of(name: () => string, open: boolean, summary: HTMLElement, content: HTMLElement, fill: () => void, kind = ""): HTMLDetailsElement {
    const e = h("details", {class: kind || undefined}, summary, content)
    e.open = this.left.get(name()) ?? open
    const was = e.open
    e.addEventListener("toggle", () => {
      if (e.open !== was || this.left.has(name())) {
        if (this.left.size > 1000) this.left.clear()
        this.left.set(name(), e.open)
      }
      if (e.open) fill()
    })
    return e
  }
}

// bounded returns elements of the first items, and a button that shows as many again, in
// what wrap puts around it.
export function bounded<T>(items: readonly T[], count: number, render: (item: T, at: number) => Node, what: string, wrap = (b: HTMLElement) => b): Node[] {
  const from = (start: number): Node[] => {
    const out = items.slice(start, start + count).map((item, i) => render(item, start + i))
    const left = items.length - start - count
    if (left > 0) {
      const more = h("button", {type: "button", class: "more", onclick: () => {
        const next = from(start + count)
        const first = next[0]
        holder.replaceWith(...next)
        if (first instanceof HTMLElement) {
          first.tabIndex = -1
          first.focus()
        }
      }}, `show ${Math.min(left, count).toLocaleString("en")} more of ${left.toLocaleString("en")} ${what}`)
      const holder = wrap(more)
      out.push(holder)
    }
    return out
  }
  return from(0)
}

// place is a button that shows a place of a document; without a document it is its text.
export function place(page: Page, at: {name?: string; line?: number; column?: number}, text?: Child): HTMLElement {
  const words = text ?? [at.name, at.line, at.column].filter(Boolean).join(":")
  if (!at.name) return h("span", null, words)
  return h("button", {type: "button", class: "place", title: `show it in ${at.name}`, onclick: () => page.reveal(at.name!, at.line || 1, at.column || 1)}, words)
}

export function fault(page: Page, f: Fault): HTMLElement {
  return h("p", {class: "fault"}, f.file && [place(page, {name: f.file, line: f.line, column: f.column}), " "], f.message)
}

// faults are the errors of an answer: one that has them may have nothing else.
export function faults(page: Page, list: readonly Fault[] | undefined): HTMLElement[] {
  return list?.length ? [h("div", {class: "faults", role: "alert"}, h("p", null, count(list.length, "error"), ":"), bounded(list, 100, f => fault(page, f), "errors"))] : []
}

// unbound says of policies that they have no binding, with a button that makes one and one that
// runs them without.
export function unbound(page: Page, policies: readonly string[] | undefined): HTMLElement[] {
  if (!policies?.length) return []
  const some = policies.slice(0, 3).join(", ") + (policies.length > 3 ? ` and ${policies.length - 3} more` : "")
  const [have, it] = policies.length === 1 ? ["has", "it does"] : ["have", "they do"]
  return [h("div", {class: "call"},
    h("p", null, h("strong", null, some), ` ${have} no binding, so ${it} nothing, here and in a cluster.`),
    h("div", {class: "controls"},
      h("button", {type: "button", class: "primary", id: "make-binding", onclick: () => void bind(page, policies)}, policies.length === 1 ? "Make a binding" : "Make bindings"),
      h("button", {type: "button", id: "run-unbound", onclick: () => page.change({unbound: true})}, "Run without bindings")))]
}

// bind adds bindings with the quick fix that the editor has for a policy without one.
async function bind(page: Page, policies: readonly string[]) {
  const {documents, objects, kubernetes} = page.state()
  let next = documents
  try {
    for (const policy of policies.slice(0, 100)) {
      const at = locate(next, id => id.name === policy && id.kind.endsWith("Policy"), "metadata.name")
      const text = next.find(d => d.name === at?.name)
      if (!at || !text) continue
      const range = {start: {line: at.line - 1, character: 0}, end: {line: at.line - 1, character: 10_000}}
      const actions = await page.call<Action[]>("actions", {documents: next, kubernetes, name: text.name, range})
      const edits = actions.find(a => a.diagnostic?.rule === "binding")?.edits
      if (edits) next = next.map(d => d === text ? {name: d.name, text: apply(d.text, edits)} : d)
    }
  } catch (err) {
    return page.say((err as Error).message, "error")
  }
  if (page.state().documents !== documents || page.state().objects !== objects) return page.say("The documents have changed meanwhile; press the button again.", "error")
  if (next === documents) return page.say("There is no quick fix for a policy that is written like this. Add a MutatingAdmissionPolicyBinding with its name in spec.policyName.", "error")
  page.change({documents: next})
  page.say(policies.length === 1 ? `Added a binding for ${policies[0]}.` : "Added bindings.")
}

export function failure(err: Error): HTMLElement {
  return h("p", {class: "fault", role: "alert"}, err.message)
}

// asking says that an answer is on its way; what element has already stays until then.
export function asking(root: HTMLElement, element = root) {
  root.setAttribute("aria-busy", "true")
  if (!element.hasChildNodes()) element.append(h("p", {class: "empty asking"}, "Asking the engine…"))
}

export function empty(...words: Child[]): HTMLElement {
  return h("p", {class: "empty"}, words)
}

// copyButton copies a text.
export function copyButton(page: Page, what: () => string, text: () => string): HTMLElement {
  return h("button", {type: "button", class: "copy", title: "Copy this text", onclick: () => {
    navigator.clipboard.writeText(text()).then(() => page.say(`Copied ${what()}.`), (err: Error) => page.say(`Not copied: ${err.message}`, "error"))
  }}, "Copy")
}

const maxLine = 2000

// short cuts a long line.
export function short(text: string, max = maxLine): string {
  return text.length <= max ? text : `${text.slice(0, max)}… and ${(text.length - max).toLocaleString("en")} more characters`
}

// count is a number with its unit.
export function count(n: number, one: string, many = one + "s"): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`
}

const kinds = {"+": "added", "-": "removed", "~": "altered", " ": ""}

// row is a line of a text with a sign.
export function row(sign: keyof typeof kinds, text: string, number?: number, ...rest: Child[]): HTMLElement {
  return h("div", {class: `row ${kinds[sign]}`}, h("span", {class: "sign", "data-number": number}, sign), h("span", {class: "text"}, short(text) || " "), rest)
}

// change is a field that differs, as mapd eval prints it.
export function change(c: Change): HTMLElement {
  if (c.moved) return h("div", {class: "change"}, row("~", `${c.path}: order [${c.before}] → [${c.after}]`))
  const whole = (sign: "+" | "-", v: unknown) => nested(v)
    ? h("div", {class: "change"}, row(sign, c.path + ":"), bounded(lines(encode(v)), 200, l => row(sign, "    " + l), "lines"))
    : h("div", {class: "change"}, row(sign, `${c.path}: ${inline(v)}`))
  if (c.before === null || c.before === undefined) return whole("+", c.after)
  if (c.after === null || c.after === undefined) return whole("-", c.before)
  return h("div", {class: "change"}, h("div", {class: "row altered"}, h("span", {class: "sign"}, "~"), h("span", {class: "text"},
    short(c.path), ": ", h("del", null, short(inline(c.before))), " → ", h("ins", null, short(inline(c.after))))))
}

export function changes(list: readonly Change[]): HTMLElement {
  return h("div", {class: "code"}, bounded(list, 200, change, "fields"))
}

const signs: Record<string, string> = {warn: "!", info: "i", changed: "~", unchanged: "=", "no match": "–", denied: "✗", skipped: "–", error: "✗", exact: "=", differs: "≠", "engine-only": "–", refused: "✗"}

// verdict is a word with a sign and a colour.
export function verdict(word: string, text = word): HTMLElement {
  return h("span", {class: `verdict ${word.replace(" ", "-")}`}, h("span", {"aria-hidden": "true"}, signs[word] ?? "·"), " ", text)
}

// tableRow puts a button into a row of a table.
export function tableRow(b: HTMLElement): HTMLElement {
  return h("tr", null, h("td", {colspan: 9}, b))
}
