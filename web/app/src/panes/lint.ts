// What mapd lint says about the documents.
import type {Action, Diagnostic, Range, Text} from "../api"
import {h} from "../dom"
import type {Page, Pane, Turn} from "../page"
import {asking, bounded, count, empty, failure, Folds, Latest, place, verdict} from "./kit"
import {apply} from "./texts"

type Question = Pick<Turn["state"], "documents" | "kubernetes">

let root: HTMLElement
let page: Page
let shown: Question | undefined
const folds = new Folds()

const latest = new Latest<Question, Record<string, Diagnostic[]>>(
  ({documents, kubernetes}) => page.call("diagnose", {documents, kubernetes}),
  (q, answer) => {
    root.removeAttribute("aria-busy")
    shown = q
    root.replaceChildren(...content(q, new Map(Object.entries(answer))))
  },
  (_, err) => {
    root.removeAttribute("aria-busy")
    shown = undefined
    root.replaceChildren(failure(err))
  })

export const lint: Pane = {
  id: "lint",
  title: "Lint",
  help: "What is likely to be a mistake in the documents, and quick fixes.",
  mount(element, p) {
    root = element
    page = p
    asking(root)
  },
  show({state}) {
    if (shown?.documents === state.documents && shown.kubernetes === state.kubernetes) return
    asking(root)
    latest.put({documents: state.documents, kubernetes: state.kubernetes})
  },
}

const worst = ["error", "warning", "info"]
const words: Record<string, string> = {error: "denied", warning: "warn", info: "info"}

function content(q: Question, answer: ReadonlyMap<string, Diagnostic[]>): Node[] {
  const names = q.documents.map(d => d.name).filter(n => answer.get(n)?.length)
  const all = names.flatMap(n => answer.get(n)!)
  if (!q.documents.some(d => d.text.trim())) return [empty("Write a policy. Here is what “mapd lint” says about it: errors, and what is likely to be a mistake.")]
  if (all.length === 0) return [empty("mapd lint found nothing in the documents.")]
  const fixable = names.filter(n => answer.get(n)!.some(d => d.fixable))
  return [
    h("div", {class: "controls"},
      h("span", null, worst.map(s => [s, all.filter(d => d.severity === s).length] as const).filter(([, n]) => n > 0).map(([s, n]) => s === "info" ? `${n} info` : count(n, s)).join(", ")),
      fixable.length > 0 && h("button", {type: "button", id: "fix-all", onclick: () => void fixAll(fixable)}, `Fix all (${count(all.filter(d => d.fixable).length, "quick fix", "quick fixes")})`)),
    ...names.map(name => folds.make(name, true, [h("strong", null, name), " ", count(answer.get(name)!.length, "finding")], () =>
      h("ul", {class: "findings"}, bounded(answer.get(name)!, 200, d => diagnostic(name, d), "findings", b => h("li", null, b))), "object")),
  ]
}

function diagnostic(name: string, d: Diagnostic): HTMLElement {
  return h("li", null,
    verdict(words[d.severity] ?? "info", d.severity), " ",
    place(page, {name, line: d.range.start.line + 1, column: d.range.start.character + 1}), " ",
    d.message, " ",
    h("a", {href: `docs/author/lint.html#${encodeURIComponent(d.rule)}`, target: "_blank", rel: "noopener", title: "what the rule says"}, d.rule), " ",
    d.fixable && h("button", {type: "button", class: "fix", onclick: () => void fix(name, d)}, "Fix"))
}

// actions asks for the quick fixes of a range as the documents are now.
function actions(documents: readonly Text[], name: string, range: Range): Promise<Action[]> {
  return page.call("actions", {documents, kubernetes: page.state().kubernetes, name, range})
}

// mended returns documents with the edits of an action.
function mended(documents: readonly Text[], name: string, action: Action): Text[] {
  return documents.map(d => d.name === name ? {name, text: apply(d.text, action.edits)} : d)
}

async function fix(name: string, d: Diagnostic) {
  await change(async documents => {
    const list = await actions(documents, name, d.range)
    const same = (o?: Diagnostic) => o && o.rule === d.rule && o.message === d.message && o.range.start.line === d.range.start.line && o.range.start.character === d.range.start.character
    const action = list.find(a => same(a.diagnostic))
    return action && mended(documents, name, action)
  })
}

async function fixAll(names: readonly string[]) {
  const start = {line: 0, character: 0}
  await change(async documents => {
    let all: Text[] | undefined
    for (const name of names) {
      const list = await actions(all ?? documents, name, {start, end: start})
      const action = list.find(a => !a.diagnostic)
      if (action) all = mended(all ?? documents, name, action)
    }
    return all
  })
}

// change changes the documents, unless they have changed meanwhile.
async function change(mend: (documents: Text[]) => Promise<Text[] | undefined>) {
  const documents = page.state().documents
  for (const b of root.querySelectorAll("button")) b.disabled = true
  try {
    const next = await mend(documents)
    if (page.state().documents !== documents) page.say("The documents have changed meanwhile; nothing was fixed.", "error")
    else if (!next) page.say("There is no edit after which the policy still compiles.", "error")
    else {
      page.change({documents: next})
      page.say("Fixed.")
      root.focus()
      return
    }
  } catch (err) {
    page.say((err as Error).message, "error")
  }
  for (const b of root.querySelectorAll("button")) b.disabled = false
}
