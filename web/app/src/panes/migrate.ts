// The native policies for Gatekeeper's mutators, and whether both do the same.
import type {Comparison, Disagreement, Entry, MigrateAnswer, Text, VerifyAnswer} from "../api"
import {h} from "../dom"
import type {Page, Pane, Turn} from "../page"
import type {State} from "../state"
import {Tabs} from "../tabs"
import {Job} from "./job"
import {asking, bounded, copyButton, count, empty, failure, faults, Folds, Latest, place, row, verdict} from "./kit"
import {lines} from "./rows"
import {identity, locate, parts, replaceMutators} from "./texts"
import {encode} from "./yaml"

let page: Page
let pane: HTMLElement
let job: Job
let shown: Text[] | undefined // the documents of what is shown
let compared: Text[] | undefined // those of the comparisons
const body = h("div")
const comparisons = h("div")
const folds = new Folds()
const start = h("button", {type: "button", id: "run-verify", onclick: () => void verify()}, "Verify")
const seed = h("input", {type: "number", name: "seed", min: 0, max: Number.MAX_SAFE_INTEGER, value: 1, class: "number"})
const number = h("input", {type: "number", name: "count", min: 1, max: 100000, value: 500, class: "number"})
const stale = h("p", {class: "warning", hidden: true}, "The documents have changed since. Verify again.")
const verification = h("section", {hidden: true, "aria-label": "Verification"})

const latest = new Latest<Text[], MigrateAnswer>(
  documents => page.call("migrate", {documents}),
  (documents, answer) => {
    pane.removeAttribute("aria-busy")
    shown = documents
    body.replaceChildren(...content(answer))
    verification.hidden = !answer.files?.length
    stale.hidden = !compared || compared === documents
  },
  (_, err) => {
    pane.removeAttribute("aria-busy")
    shown = undefined
    body.replaceChildren(failure(err))
  })

export const migrate: Pane = {
  id: "migrate",
  title: "Migrate",
  help: "The policies that do the same as Gatekeeper's mutators.",
  mount(root, p) {
    pane = root
    page = p
    job = new Job(page, start)
    verification.append(
      h("h2", null, "Do both do the same?"),
      h("p", null, "Runs Gatekeeper's mutators and these policies on generated objects, and compares the results."),
      h("div", {class: "controls"}, start, h("label", null, "seed ", seed), h("label", null, number, " objects for each comparison")), job.bar, stale, comparisons)
    root.append(body, verification)
    asking(pane, body)
  },
  show({state}: Turn) {
    if (shown === state.documents) return
    asking(pane, body)
    latest.put(state.documents)
  },
}

function content(answer: MigrateAnswer): Node[] {
  if (answer.errors?.length) return faults(page, answer.errors)
  const entries = answer.entries ?? []
  if (entries.length === 0) {
    return [empty("None of the documents is a mutator of Gatekeeper. Add one (Assign, AssignMetadata, ModifySet, AssignImage): here is the native policy that “mapd migrate” writes for it.")]
  }
  const files = answer.files ?? []
  return [
    h("ul", {class: "findings"}, bounded(entries, 100, entry, "mutators", b => h("li", null, b))),
    h("div", {class: "notes"}, (answer.notes ?? []).map(n => h("p", null, "note: ", n)), answer.summary && h("p", null, answer.summary)),
    ...(files.length > 0 ? filesOf(files, entries) : []),
  ]
}

function entry(e: Entry): HTMLElement {
  const [kind, name] = e.name.split("/", 2)
  const at = locate(shown ?? page.state().documents, id => id.kind === kind && id.name === name)
  return h("li", null, verdict(e.verdict), " ", place(page, at ?? {}, h("strong", null, e.name)),
    e.with && e.with.length > 0 && ` in one policy with ${e.with.join(", ")}, since their order matters`,
    e.notes && e.notes.length > 0 && h("ul", null, e.notes.map(n => h("li", null, n))))
}

let selected = ""

function filesOf(files: readonly Text[], entries: readonly Entry[]): Node[] {
  const panel = h("div", {role: "tabpanel", id: "migrate-file", tabindex: 0, class: "code"})
  const show = (f: Text, i: number) => {
    selected = f.name
    panel.setAttribute("aria-labelledby", `migrate-file-${i}`)
    panel.replaceChildren(...bounded(lines(f.text), 1000, (l, n) => row(" ", l, n + 1), "lines"))
  }
  const index = (id: string) => Number(id.slice("migrate-file-".length))
  const tabs = new Tabs("Files", id => show(files[index(id)]!, index(id)))
  const at = Math.max(0, files.findIndex(f => f.name === selected))
  tabs.set(files.map((f, i) => ({id: `migrate-file-${i}`, title: f.name, panel: panel.id})), `migrate-file-${at}`)
  show(files[at]!, at)
  return [
    h("div", {class: "controls"},
      copyButton(page, () => "the file", () => files.find(f => f.name === selected)?.text ?? ""),
      h("button", {type: "button", id: "replace-mutators", onclick: () => replace(files, entries)}, "Replace the mutators by these")),
    h("div", {class: "files"}, tabs.element, panel),
  ]
}

function replace(files: readonly Text[], entries: readonly Entry[]) {
  const documents = page.state().documents
  if (documents !== shown) {
    page.say("The documents have changed meanwhile; nothing was replaced.", "error")
    return
  }
  const next = replaceMutators(documents, entries.filter(e => e.file).map(e => e.name), files)
  if (next.left.length > 0) {
    page.say(`Not replaced, since mapd cannot cut them from the documents: ${next.left.join(", ")}. Write one document for each mutator.`, "error")
    return
  }
  page.change({documents: next.documents})
  page.say("The mutators are replaced.", undefined, {title: "Undo", run: () => page.change({documents})})
  pane.focus()
}

async function verify() {
  const documents = page.state().documents
  compared = documents
  stale.hidden = true
  comparisons.replaceChildren()
  comparisons.dataset["done"] = "false"
  const most = Math.max(1, Math.min(100_000, Math.floor(number.valueAsNumber) || 500))
  const counts = [...new Set([Math.min(20, most), most])]
  try {
    await job.run<VerifyAnswer>("verify", counts.map(n => ({
      words: `comparing ${count(n, "object")} for each comparison …`,
      params: {documents, seed: Math.max(0, Math.floor(seed.valueAsNumber) || 0), count: n},
    })), (answer, last) => {
      comparisons.replaceChildren(...outcome(answer, last))
      return !!answer.errors?.length
    })
  } catch (err) {
    comparisons.append(failure(err as Error))
  }
  comparisons.dataset["done"] = "true"
}

function outcome(answer: VerifyAnswer, last: boolean): Node[] {
  if (answer.errors?.length) return faults(page, answer.errors)
  const list = answer.comparisons ?? []
  return [
    h("p", null, `${count(answer.count, "object")} for each comparison, seed ${answer.seed}${last ? "" : "; more are being compared"}:`),
    ...bounded(list, 50, (c, i) => comparison(c, i), "comparisons"),
  ]
}

function comparison(c: Comparison, at: number): HTMLElement {
  const word = c.unexpected ? verdict("denied", "differs") : c.first ? verdict("differs", "differs, as its verdict says") : verdict("exact", "the same")
  return folds.make(`${at} ${c.name}`, c.unexpected, [h("strong", null, c.name), " ", word], () => [
    h("p", null, c.summary),
    c.text && h("pre", {class: "code", tabindex: 0}, c.text),
    c.first && h("button", {type: "button", class: "open-object", onclick: () => open(c.first!)}, "Open this object in the request"),
  ], "object")
}

const namespaceFile = "namespace-of-the-difference.yaml"

// open makes the object of a disagreement that of the request, with its namespace.
function open(d: Disagreement) {
  const next: Partial<State> = {
    objects: d.object ? [{name: "difference.yaml", text: encode(d.object)}] : [],
    old: d.oldObject ? [{name: "difference-old.yaml", text: encode(d.oldObject)}] : undefined,
    operation: d.operation,
    user: d.user ? {username: d.user} : undefined,
    subresource: undefined,
  }
  if (d.namespace) {
    const name = (d.namespace["metadata"] as {name?: string} | undefined)?.name
    const others = page.state().documents.filter(t => t.name !== namespaceFile)
    const known = parts(others).map(identity).some(id => id.kind === "Namespace" && id.name === name)
    next.documents = known ? others : [...others, {name: namespaceFile, text: encode(d.namespace)}]
  }
  page.change(next)
  page.say("The object is in the request; the tab “Result” shows what the mutators make of it.")
}
