// The page: it lays out the regions and asks the engine at each change.
import type {Answer} from "./api"
import {commands} from "./commands"
import {h} from "./dom"
import {Engine} from "./engine"
import {example} from "./example"
import type {Page, Turn} from "./page"
import {panes} from "./panes"
import {Panels} from "./panels"
import {requestForm} from "./request"
import type {State} from "./state"
import {Texts} from "./texts"
import {scriptURL} from "./trusted"

const deadline = 10_000 // milliseconds, for one call
const debounce = 10

const engine = new Engine(scriptURL("worker.js"), deadline)
let second: Engine | undefined
let state: State = example
let asked = 0 // the number of the latest question
let running = false
let timer = 0

const status = document.getElementById("status")!
const page: Page = {
  state: () => state,
  change(next) {
    state = {...state, ...next}
    show()
    ask()
  },
  load(next) {
    state = next
    show(true)
    ask()
  },
  call: (method, params) => engine.call(method, params),
  background: () => second ??= new Engine(scriptURL("worker.js"), 10 * 60_000),
  reveal(name, line, column) {
    if (documents.select(name)) documents.editor()?.reveal(line, column)
  },
  say(text, error) {
    status.textContent = text
    status.dataset["kind"] = error ?? ""
  },
}

const documents = new Texts("documents", "Documents", page, texts => page.change({documents: texts}))
const objects = new Texts("objects", "Objects", page, texts => page.change({objects: texts}))
const old = new Texts("old", "Objects before the update", page, texts => page.change({old: texts.length ? texts : undefined}))
const form = requestForm(next => page.change(next))
const panels = new Panels(panes, page)

document.getElementById("tools")!.append(...commands.map(c => h("button", {id: c.id, type: "button", title: c.help, onclick: () => void c.run(page)}, c.title)))
document.getElementById("documents")!.append(documents.tabs.element, documents.panel)
document.getElementById("request")!.append(form.element,
  h("div", {class: "texts", id: "objects"}, objects.tabs.element, objects.panel),
  h("div", {class: "texts", id: "old"}, old.tabs.element, old.panel))
document.getElementById("answer")!.append(panels.element)
show()
ask()

function show(fresh = false) {
  documents.set(state.documents, fresh)
  objects.set(state.objects, fresh)
  old.set(state.old ?? [], fresh)
  document.getElementById("old")!.hidden = !state.old?.length
  form.show(state)
}

// ask asks the engine about the state, soon; a question that was not sent yet is
// replaced.
function ask() {
  asked++
  if (document.body.dataset["state"] !== "loading") document.body.dataset["state"] = "working"
  clearTimeout(timer)
  timer = window.setTimeout(() => void send(), debounce)
}

async function send() {
  if (running) return // it asks again when it is done
  running = true
  const number = asked
  try {
    const turn: Turn = {number, state, answer: await engine.call<Answer>("evaluate", state)}
    panels.show(turn)
    document.body.dataset["turn"] = String(number)
    if (number === asked) document.body.dataset["state"] = "idle"
  } catch (err) {
    page.say(String((err as Error).message ?? err), "error")
    if (number === asked) document.body.dataset["state"] = "failed"
  } finally {
    running = false
    if (number !== asked) void send()
  }
}
