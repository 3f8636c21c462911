// What the policies did, in the order in which they ran: expressions with the values that
// they read and gave, and what they cost.
import type {Answer, Evaluation, Excerpt, Limits, Read, Result, Trace, Traced} from "../api"
import {h} from "../dom"
import type {Page, Pane} from "../page"
import {asking, bounded, count, empty, fault, Folds, short, tableRow, verdict, type Child} from "./kit"
import {passes, total, who, type Member, type Pass} from "./steps"

let root: HTMLElement
let page: Page
const folds = new Folds()

export const trace: Pane = {
  id: "trace",
  title: "Trace",
  help: "What each expression read, gave and cost.",
  needs: {only: [], trace: true},
  mount(element, p) {
    root = element
    page = p
    asking(root)
  },
  show(turn) {
    root.replaceChildren(...content(turn.answer))
  },
}

function content(answer: Answer): Node[] {
  const results = answer.results ?? []
  if (results.length === 0) return answer.errors?.length ? [] : [empty("Write an object below “Objects”. Here is what each policy reads of it, what its expressions give, and what they cost.")]
  let room = 100 // steps that are open at first
  return bounded(results, 100, (r, i) => {
    const open = room > 0
    room -= r.trace?.length ?? 1
    return object(r, i, open, answer.limits)
  }, "objects")
}

function object(r: Result, at: number, open: boolean, limits: Limits | undefined): HTMLElement {
  const list = passes(r.trace ?? [])
  const name = `${at} ${r.name}`
  if (r.error) return folds.make(name, true, h("strong", null, r.name ?? `object ${at + 1}`), () => fault(page, r.error!), "object")
  return folds.make(name, open, [h("strong", null, r.name ?? ""), " ", verdict(r.verdict ?? ""), " ", cost(total(list))], () => [
    list.length === 0 && empty("No policy matched this object. The tab “Why not” says why."),
    bounded(list, 50, (p, i) => pass(`${name} ${i}`, p, limits), "passes"),
  ], "object")
}

function passTitle(p: Pass): string {
  const mode = p.mode ? `, ${p.mode}: what it would have done` : ""
  if (p.round === 1) return `${p.stage}, first pass${mode}`
  if (p.stage === "policies") return `${p.stage}, second pass: those with reinvocationPolicy IfNeeded run again, since the object has changed${mode}`
  return `${p.stage}, pass ${p.round}${mode}`
}

function pass(name: string, p: Pass, limits: Limits | undefined): HTMLElement {
  return folds.make(name, true, [passTitle(p), " ", cost(p.cost)], () =>
    bounded(p.members, 100, (m, i) => member(`${name} ${i} ${who(m)}`, m, limits), "policies"), "pass")
}

function member(name: string, m: Member, limits: Limits | undefined): HTMLElement {
  const outcomes = [...new Set(m.steps.map(outcome))]
  return folds.make(name, true, [h("strong", null, who(m)), outcomes.map(o => [" ", verdict(o)]), " ", cost(m.conditions + m.mutations)], () => [
    limits && m.conditions > 0 && meter("match conditions", m.conditions, limits.conditions),
    bounded(m.steps, 50, (t, i) => step(`${name} ${i}`, t, limits), "steps"),
  ], "member")
}

function outcome(t: Traced): string {
  return t.outcome === "failed" || t.error ? "error" : t.outcome
}

function cost(n: number): HTMLElement {
  return h("span", {class: "cost"}, `cost ${n.toLocaleString("en")}`)
}

// meter is what something costs of what it may cost.
function meter(what: string, cost: number, limit: number): HTMLElement {
  const text = `${cost.toLocaleString("en")} of ${limit.toLocaleString("en")}`
  return h("div", {class: "meter"}, h("span", null, what, ": "), h("meter", {min: 0, max: limit, high: limit / 2, value: cost, "aria-label": `cost of ${what}`}, text), h("span", {class: "cost"}, " cost ", text))
}

function step(name: string, t: Traced, limits: Limits | undefined): HTMLElement {
  return h("div", {class: "step"},
    t.conditions && evaluations(`${name} c`, t.conditions, limits),
    h("p", null,
      t.mutation !== undefined && t.type ? [h("code", null, `mutations[${t.mutation}]`), " ", t.type, " "] : "",
      verdict(outcome(t), t.outcome),
      t.reason && [": ", t.reason],
      t.error && [": ", h("span", {class: "refusal"}, t.error), t.ignored && " (ignored: failurePolicy)"],
      t.changed && t.changed.length > 0 && [": ", t.changed.slice(0, 50).map((p, i) => [i > 0 && ", ", h("code", null, short(p, 300))]), t.changed.length > 50 && ` and ${t.changed.length - 50} more`]),
    limits && t.mutation !== undefined && t.cost > 0 && meter(`mutations[${t.mutation}] with its variables`, t.cost, limits.mutation),
    t.trace && evaluations(`${name} t`, t.trace, limits))
}

function evaluations(name: string, t: Trace, limits: Limits | undefined): Child {
  return [
    bounded(t.evaluations, 50, (e, i) => evaluation(`${name} ${i}`, e, limits), "expressions"),
    t.leftOut ? h("p", null, `${count(t.leftOut, "expression")} not kept: there are too many`) : "",
  ]
}

function evaluation(name: string, e: Evaluation, limits: Limits | undefined): HTMLElement {
  const result = excerptText(e.result)
  const head = [h("code", null, e.name), " = ", h("code", null, result.length > 200 ? result.slice(0, 200) + "…" : result), " ", cost(e.cost)]
  return folds.make(name, false, head, () => [
    limits && meter(e.name, e.cost, limits.expression),
    h("div", {class: "value"}, excerpt(e.result, 5000)),
    e.reads?.length
      ? h("table", {class: "reads"}, h("caption", null, "read"), h("tbody", null, bounded(e.reads, 64, read, "values", tableRow)))
      : h("p", null, "It read no value."),
    e.leftOut ? h("p", null, `and ${e.leftOut} more that were not kept`) : "",
  ], "evaluation")
}

function read(r: Read): HTMLElement {
  return h("tr", null, h("th", {scope: "row"}, h("code", null, r.text)), h("td", null, r.values.map((v, i) => [
    i > 0 && ", ",
    r.leftOut && i === r.values.length - 1 ? `(${r.leftOut} more), ` : "",
    excerpt(v, 500),
  ])))
}

export function excerptText(v: Excerpt): string {
  const text = v.hidden ? "***" : v.error !== undefined ? "error: " + v.error : v.text ?? JSON.stringify(v.value ?? null)
  return v.cut ? text + "…" : text
}

function excerpt(v: Excerpt, max: number): HTMLElement {
  return h("code", {class: v.error !== undefined ? "refusal" : undefined}, short(excerptText(v), max))
}
