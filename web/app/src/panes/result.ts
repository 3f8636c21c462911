// The objects as a server stores them.
import type {Answer, Result} from "../api"
import {Cache, h, sync} from "../dom"
import type {Page, Pane, Turn} from "../page"
import {asking, bounded, copyButton, count, empty, fault, Folds, row, short, unbound, verdict} from "./kit"
import {fold, lineDiff, lines, signs} from "./rows"
import {writers} from "./steps"
import {before} from "./texts"

// A text up to this many lines is shown whole, and so many lines of all objects at first.
const whole = 1000
const atFirst = 4000

let root: HTMLElement
let page: Page
const folds = new Folds()
const views: View[] = [] // of the objects in their order

export const result: Pane = {
  id: "result",
  title: "Result",
  help: "What a server would store, and who wrote each changed line.",
  needs: {only: ["text", "summary"]},
  mount(element, p) {
    root = element
    page = p
    asking(root)
  },
  show(turn) {
    sync(root, content(turn))
  },
}

function content({state, answer}: Turn): Node[] {
  const results = answer.results ?? []
  views.length = Math.min(views.length, results.length)
  if (results.length === 0) return answer.errors?.length ? [notes(answer)] : [empty("Write an object below “Objects”, such as a Pod. Here is what a server would store of it."), notes(answer)]
  const texts = before(state.objects, results)
  let room = atFirst
  return [
    ...unbound(page, answer.unbound),
    ...bounded(results, 100, (r, i) => {
      const size = r.text?.length ?? 0
      const open = room > 0
      room -= Math.min(size / 30, whole)
      const view = views[i] ??= new View()
      return view.show(r, i, texts[i], open)
    }, "objects"),
    notes(answer),
  ]
}

function notes(answer: Answer): HTMLElement {
  return h("div", {class: "notes"}, (answer.notes ?? []).map(n => h("p", null, "note: ", n)))
}

// A View shows one object. What is as before stays the same element.
class View {
  private result!: Result
  private given?: string
  private name = ""
  private folding?: {element: HTMLDetailsElement; summary: HTMLElement; content: HTMLElement}
  private readonly cache = new Cache<HTMLElement>()
  private readonly code = h("div", {class: "code", tabindex: 0, role: "group"})
  private readonly copy = copyButton(page, () => `the YAML of ${this.result.name}`, () => this.result.text!)

  show(r: Result, at: number, given: string | undefined, open: boolean): HTMLElement {
    this.result = r
    this.given = given
    const name = `${at} ${r.name}`
    const title = h("strong", null, r.name ?? `object ${at + 1}`)
    const first = (r.summary ?? "").split("\n", 1)[0]!
    const words = r.name && first.startsWith(r.name + ": ") ? first.slice(r.name.length + 2) : r.verdict
    const chip = r.error ? verdict("error", "cannot be evaluated") : verdict(r.verdict ?? "", words)
    let f = this.folding
    const known = f && (this.name === name || f.element.open)
    this.name = name
    if (!f || !known) {
      const summary = h("summary"), content = h("div", {class: "content"})
      const element = folds.of(() => this.name, open || !!r.error, summary, content, () => this.fill(), "object")
      f = this.folding = {element, summary, content}
    }
    f.summary.replaceChildren(title, " ", chip)
    if (f.element.open) this.fill()
    return f.element
  }

  private fill() {
    this.cache.next()
    sync(this.folding!.content, this.content())
  }

  private content(): Node[] {
    const {result: r, given} = this
    if (r.error) return [fault(page, r.error)]
    const text = r.text !== undefined && r.verdict !== "denied"
    const p = (kind: string, ...words: Parameters<typeof h>[2][]) => h("p", {class: kind}, words)
    return [
      ...r.refusal ? [p("refusal", r.refusal)] : [],
      ...r.verdict === "no match" ? [p("why", "No policy matches this object, so it is stored as it is. ", h("button", {type: "button", class: "place", onclick: () => document.getElementById("tab-whynot")!.click()}, "Why not?"))] : [],
      ...(r.warnings ?? []).map(w => p("warning", "Warning: ", w)),
      ...r.missing?.length ? [p("warning", "A server will refuse this: it requires ", list(r.missing), ".")] : [],
      ...text ? [this.yaml(r, given)] : [],
      ...r.defaults?.length ? [p("filled", "A server also fills in the defaults of what policies added: ", list(r.defaults), ".")] : [],
      ...r.filledIn?.length ? [p("filled", "Filled in by a server afterwards: ", list(r.filledIn), ".")] : [],
      ...steps(r),
    ]
  }

  private readonly box = h("div", {class: "box"})

  // yaml is the text with a sign before each line that a policy changed, and at the end of the
  // line who wrote it, unless the line above names the same.
  private yaml(r: Result, given: string | undefined): HTMLElement {
    const text = lines(r.text!)
    const by = writers(r.verdict === "changed" ? r.lines ?? [] : [], text.length)
    const marks = new Map<number, "+" | "~">()
    if (r.verdict === "changed") {
      const known = given === undefined ? undefined : signs(lineDiff(lines(given), text))
      for (const l of r.lines ?? []) {
        for (let n = l.line; n <= l.last && n <= text.length; n++) marks.set(n, known?.get(n) ?? "~")
      }
      if (!r.lines?.length) for (const [n, sign] of known ?? []) marks.set(n, sign)
    }
    const line = (t: string, i: number) => {
      const who = by[i] && by[i] !== by[i - 1] ? by[i] : undefined
      const sign = marks.get(i + 1) ?? " "
      return this.cache.make(`${sign}${i} ${who ?? ""}\n${t}`, () => row(sign, t, i + 1, who && h("span", {class: "who", title: who}, short(who, 300))))
    }
    const numbered = text.map((t, i) => ({t, i}))
    sync(this.code, text.length <= whole
      ? numbered.map(({t, i}) => line(t, i))
      : fold(numbered, ({i}) => marks.has(i + 1) || i < 20, 5).flatMap(f => {
        const show = () => bounded(f.rows, whole, ({t, i}) => line(t, i), "lines")
        if (!f.folded) return show()
        const more = h("button", {type: "button", class: "more", onclick: () => more.replaceWith(...show())}, `show ${count(f.rows.length, "line")} that no policy changed`)
        return [more]
      }))
    this.code.setAttribute("aria-label", `${r.name} as stored`)
    const removed = r.removed ?? []
    sync(this.box, [this.copy, this.code, ...removed.length > 0 ? [h("p", {class: "gone"}, "− removed: ", list(removed))] : []])
    return this.box
  }
}

function list(paths: readonly string[]) {
  return paths.slice(0, 100).map((p, i) => [i > 0 && ", ", h("code", null, short(p, 300))])
}

// steps are the lines below the verdict: what each policy did.
function steps(r: Result): HTMLElement[] {
  const all = lines(r.summary ?? "").slice(1)
  return all.length > 0 ? [h("ul", {class: "steps", "aria-label": "What policies did"}, bounded(all, 50, l => h("li", null, short(l.trim().replace(/^(.+?) › (?:unbound-)?\1(?= ›|:)/, "$1"))), "steps", b => h("li", null, b)))] : []
}
