// The objects as a server stores them.
import type {Answer, Result} from "../api"
import {h} from "../dom"
import type {Page, Pane, Turn} from "../page"
import {asking, bounded, copyButton, count, empty, fault, faults, Folds, row, short, verdict} from "./kit"
import {fold, lineDiff, lines, signs} from "./rows"
import {writers} from "./steps"
import {before} from "./texts"

// A text up to this many lines is shown whole, and so many lines of all objects at first.
const whole = 1000
const atFirst = 4000

let root: HTMLElement
let page: Page
const folds = new Folds()

export const result: Pane = {
  id: "result",
  title: "Result",
  mount(element, p) {
    root = element
    page = p
    asking(root)
  },
  show(turn) {
    root.removeAttribute("aria-busy")
    root.replaceChildren(...content(turn))
  },
}

function content({state, answer}: Turn): Node[] {
  const [results, wrong] = [answer.results ?? [], faults(page, answer.errors)]
  if (results.length === 0) return wrong.length > 0 ? [...wrong, notes(answer)] : [empty("Write an object below “Objects”, such as a Pod. Here is what a server would store of it."), notes(answer)]
  const texts = before(state.objects, results)
  let room = atFirst
  return [
    ...wrong,
    ...bounded(results, 100, (r, i) => {
      const size = r.text?.length ?? 0
      const open = room > 0
      room -= Math.min(size / 30, whole)
      return object(r, i, texts[i], open)
    }, "objects"),
    notes(answer),
  ]
}

function notes(answer: Answer): HTMLElement {
  return h("div", {class: "notes"}, (answer.notes ?? []).map(n => h("p", null, "note: ", n)))
}

function object(r: Result, at: number, given: string | undefined, open: boolean): HTMLElement {
  const title = [h("strong", null, r.name ?? `object ${at + 1}`), " "]
  if (r.error) return folds.make(`${at} ${r.name}`, true, [title, verdict("error", "cannot be evaluated")], () => fault(page, r.error!), "object")
  const first = (r.summary ?? "").split("\n", 1)[0]!
  const words = r.name && first.startsWith(r.name + ": ") ? first.slice(r.name.length + 2) : r.verdict
  return folds.make(`${at} ${r.name}`, open, [title, verdict(r.verdict ?? "", words)], () => [
    r.refusal && h("p", {class: "refusal"}, r.refusal),
    (r.warnings ?? []).map(w => h("p", {class: "warning"}, "Warning: ", w)),
    r.missing?.length && h("p", {class: "warning"}, "A server will refuse this: it requires ", list(r.missing), "."),
    r.text !== undefined && r.verdict !== "denied" && yaml(r, given),
    r.defaults?.length && h("p", {class: "filled"}, "A server also fills in the defaults of what policies added: ", list(r.defaults), "."),
    r.filledIn?.length && h("p", {class: "filled"}, "Filled in by a server afterwards: ", list(r.filledIn), "."),
    steps(r),
  ], "object")
}

function list(paths: readonly string[]) {
  return paths.slice(0, 100).map((p, i) => [i > 0 && ", ", h("code", null, short(p, 300))])
}

// steps are the lines below the verdict: what each policy did.
function steps(r: Result): HTMLElement | undefined {
  const all = lines(r.summary ?? "").slice(1)
  return all.length > 0 ? h("ul", {class: "steps", "aria-label": "What policies did"}, bounded(all, 50, l => h("li", null, short(l.trim())), "steps")) : undefined
}

// yaml is the text with a sign before each line that a policy changed, and at the end of the
// line who wrote it, unless the line above names the same.
function yaml(r: Result, given: string | undefined): HTMLElement {
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
  const removed = (r.diff ?? []).filter(c => c.after === null && !c.moved)
  const line = (t: string, i: number) => {
    return row(marks.get(i + 1) ?? " ", t, i + 1, by[i] && by[i] !== by[i - 1] ? h("span", {class: "who"}, by[i]) : undefined)
  }
  const numbered = text.map((t, i) => ({t, i}))
  const rows = text.length <= whole
    ? numbered.map(({t, i}) => line(t, i))
    : fold(numbered, ({i}) => marks.has(i + 1) || i < 20, 5).map(f => {
      const show = () => bounded(f.rows, whole, ({t, i}) => line(t, i), "lines")
      if (!f.folded) return show()
      const more = h("button", {type: "button", class: "more", onclick: () => more.replaceWith(...show())}, `show ${count(f.rows.length, "line")} that no policy changed`)
      return more
    })
  return h("div", {class: "box"},
    copyButton(page, `the YAML of ${r.name}`, () => r.text!),
    h("div", {class: "code", tabindex: 0, role: "group", "aria-label": `${r.name} as stored`}, rows),
    removed.length > 0 && h("p", {class: "gone"}, "− removed: ", list(removed.map(c => c.path))))
}


