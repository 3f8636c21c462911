// Why policies, bindings and mutators did nothing.
import type {Answer, Result, Text, Traced} from "../api"
import {h} from "../dom"
import type {Page, Pane} from "../page"
import {asking, bounded, count, empty, fault, Folds, short, tableRow, unbound, verdict} from "./kit"
import {locate} from "./texts"
import {excerptText} from "./trace"

let root: HTMLElement
let page: Page
const folds = new Folds()

export const whynot: Pane = {
  id: "whynot",
  title: "Why not",
  help: "Why a policy or a binding did nothing with the object.",
  needs: {only: [], trace: true, whyNot: true},
  mount(element, p) {
    root = element
    page = p
    asking(root)
  },
  show(turn) {
    root.replaceChildren(...content(turn.answer))
  },
}

// A Why is a policy or a binding that did nothing, and the reason.
interface Why {
  policy: string
  binding?: string
  field?: string
  text: string
  near: boolean // the author may have expected something else
  condition?: boolean
  values: string[]
}

function content(answer: Answer): Node[] {
  const results = answer.results ?? []
  if (results.length === 0) return answer.errors?.length ? [] : [empty("Write an object below “Objects”. Here is why a policy or a binding did nothing with it.")]
  let room = 300 // rows
  return [...unbound(page, answer.unbound), ...bounded(results, 100, (r, i) => {
    const list = r.error ? [] : whys(r)
    const open = room > 0
    room -= list.length
    return folds.make(`${i} ${r.name}`, open, [h("strong", null, r.name ?? `object ${i + 1}`), " ", verdict(r.verdict ?? "error")], () =>
      r.error ? fault(page, r.error)
      : list.length === 0 ? h("p", null, r.trace?.length ? "All policies and bindings met this object." : "There is no policy among the documents. Write one, or open an example.")
      : table(r, list), "object")
  }, "objects")]
}

function whys(r: Result): Why[] {
  const out: Why[] = []
  const seen = new Set<string>()
  for (const t of r.trace ?? []) {
    if (t.outcome !== "skipped" || t.round > 1) continue
    const key = [t.policy, t.binding, t.param, t.reason].join("\n")
    if (seen.has(key)) continue
    seen.add(key)
    out.push({policy: t.policy, binding: t.binding, text: t.reason ?? "skipped", near: true, condition: !!t.conditions, values: values(t)})
  }
  for (const w of r.whyNot ?? []) {
    out.push({policy: w.policy, binding: w.binding, field: w.field, text: w.text + (w.generated ? " (the policy is about the Pods that this creates)" : ""), near: w.near, values: []})
  }
  return out.sort((a, b) => Number(b.near) - Number(a.near))
}

// values are what the condition read that is false.
function values(t: Traced): string[] {
  const unmet = t.conditions?.evaluations.find(e => e.result.value === false)
  return (unmet?.reads ?? []).map(r => `${r.text} = ${r.values.map(excerptText).join(", ")}`)
}

function table(r: Result, list: readonly Why[]): HTMLElement {
  return h("div", {class: "scroll"}, h("table", {class: "whys"},
    h("caption", null, `${count(list.length, "policy or binding", "policies or bindings")} did nothing with ${r.name}`),
    h("thead", null, h("tr", null, ["Policy", "Binding", "Why", "Values read", "Place"].map(t => h("th", {scope: "col"}, t)))),
    h("tbody", null, bounded(list, 200, w => h("tr", {class: w.near ? "near" : undefined},
      h("td", null, w.policy),
      h("td", null, w.binding ?? ""),
      h("td", null, w.field && [h("code", null, w.field), " "], short(w.text, 500)),
      h("td", null, bounded(w.values, 8, v => h("div", null, h("code", null, short(v, 300))), "values")),
      h("td", null, h("button", {type: "button", class: "place", title: `show ${w.binding ?? w.policy} in the documents`, onclick: () => reveal(w)}, "show"))), "rows", tableRow))))
}

// reveal shows where the reason stands.
function reveal(w: Why) {
  const at = find(page.state().documents, w)
  if (at) page.reveal(at.name, at.line, 1)
  else page.say(`${w.binding ?? w.policy} is not among the documents.`)
}

function find(documents: readonly Text[], w: Why) {
  const [kind, name] = w.policy.includes("/") ? w.policy.split("/", 2) : ["", w.policy]
  const binding = w.binding
  // Reasons of mutators have the field in their text.
  const path = w.condition ? "spec.matchConditions" : w.field ?? /^spec\.[\w.[\]]+/.exec(w.text)?.[0]
  if (binding && !w.condition) {
    const at = locate(documents, id => id.kind.endsWith("Binding") && id.name === binding, path)
    if (at) return at
  }
  return locate(documents, id => id.name === name && (kind ? id.kind === kind : id.kind.endsWith("Policy")), path)
}
