// The page: it lays out the regions and asks the engine at each change.
import type {Answer} from "./api"
import {commands as others} from "./commands"
import {h} from "./dom"
import {languageOf} from "./editor/language"
import {Engine, EngineError} from "./engine"
import {example} from "./example"
import {acceptFiles, open} from "./exchange"
import {closeTour, openLinks} from "./gallery"
import {listen, openKeys} from "./keys"
import {Last} from "./last"
import {renew, workOffline} from "./offline"
import type {Before, Command, Page, Turn} from "./page"
import {panes} from "./panes/index"
import {Panels} from "./panels"
import {loadProgram} from "./program"
import {operationOf, requestForm, withOperation} from "./request"
import {separator} from "./split"
import type {State} from "./state"
import {store} from "./store"
import {Texts} from "./texts"
import {scriptURL} from "./trusted"
import {welcome} from "./welcome"
import {adopt, freshID, hold, type Problem, work} from "./work"

const deadline = 10_000 // milliseconds for one call

const body = document.body
const element = (id: string) => document.getElementById(id)!
const [main, status, timing] = [document.querySelector("main")!, element("status"), element("timing")]

let module: Promise<WebAssembly.Module> | undefined
const program = () => module ??= loadProgram((loaded, total) => {
  const mb = (n: number) => (n / 1e6).toFixed(1)
  if (body.dataset["state"] === "loading") pass(`Loading the engine: ${mb(loaded)}${total ? ` of ${mb(total)}` : ""} MB`)
}).catch(err => {
  module = undefined // the next question tries again
  throw err
})
program().catch(() => {}) // a question says so
const engine = new Engine({script: scriptURL("worker.js"), module: program, deadline})
let second: Engine | undefined

let state: State = example
let piece: string | undefined // what is shown, if somebody wrote it and this tab alone writes it
let warned: Problem | undefined
let asked = 0 // the number of the latest question
let changed = 0 // when it was asked
let running = false
let asking = false // a question is sent when the event at hand is done
let later = 0
let offlineBegun = false
let passing = "" // what the status says until the next answer
let last = new Last()

const page: Page = {
  state: () => state,
  change(next) {
    state = {...state, ...next}
    own()
    show()
    ask()
    if (next.documents || "kubernetes" in next) languageOf(page).changed()
  },
  load(next, whose) {
    const before = leave()
    state = next
    if (whose) closeTour()
    if (whose && !page.untouched()) own()
    else if (whose) address("")
    show(true)
    ask()
    return before
  },
  open(id) {
    leave()
    address("", id)
    void goOn(id)
  },
  untouched: () => state === example,
  call: (method, params) => engine.call(method, params),
  background: () => second ??= new Engine({script: scriptURL("worker.js"), module: program, deadline: 2 * 60_000, idle: 60_000}),
  reveal(name, line, column) {
    const texts = [documents, objects, old].find(t => t.select(name))
    if (!texts) return
    page.region(texts === documents ? "documents" : "request")
    texts.editor?.reveal(line, column)
  },
  say(text, error, action) {
    status.dataset["kind"] = error ?? ""
    status.replaceChildren(text, ...action ? [h("button", {
      type: "button", onclick: () => {
        page.say("")
        action.run()
      },
    }, action.title)] : [])
  },
  region(name, focus) {
    body.dataset["region"] = name
    for (const b of element("regions").children) b.setAttribute("aria-pressed", String((b as HTMLElement).dataset["name"] === name))
    if (!focus) return
    if (name === "answer") panels.focus()
    else (name === "documents" ? documents : objects).focus()
  },
}

const addOld: HTMLButtonElement = h("button", {
  type: "button", class: "quiet", id: "add-old", title: "Add the object before the update: the request is an UPDATE then",
  onclick: () => {
    page.change(withOperation(state, "UPDATE"))
    old.focus()
  },
}, "+ old object")
const documents = new Texts("documents", "document", "Documents", page)
const objects = new Texts("objects", "object", "Objects", page, [addOld])
const old = new Texts("old", "old object", "Old objects", page)
const form = requestForm(page)
const panels = new Panels(panes, page, ask)
const words = welcome(page)

const commands: Command[] = [
  ...others,
  {id: "format", title: "Format", help: "Format the expressions of this document", key: "Alt+Shift+F", look: "quiet", run: () => documents.editor?.format?.()},
  {id: "keys", title: "?", look: "quiet", help: "Show this list of shortcuts", key: "?", run: () => openKeys(commands, panes.map(p => p.title))},
]
element("tools").append(...commands.map(c => h("button", {
  id: c.id, type: "button", class: c.look, "aria-label": c.label, title: c.key ? `${c.help} (${c.key})` : c.help, "aria-keyshortcuts": c.key?.replace("Ctrl", "Control"), onclick: () => void c.run(page),
}, c.title)))
element("documents").append(documents.element)
element("request").append(form.element, h("div", {class: "pair"}, objects.element, old.element))
element("answer").append(panels.element)
main.before(words.element)
main.append(separator(main, "columns", "Width of the documents", "documents"), separator(main, "rows", "Height of the documents", "documents"))
element("regions").append(...(["documents", "request", "answer"] as const).map(name => h("button", {
  type: "button", "data-name": name, "aria-pressed": String(name === body.dataset["region"]), onclick: () => page.region(name),
}, name[0]!.toUpperCase() + name.slice(1))))
for (const name of ["documents", "request", "answer"] as const) element(name).addEventListener("focusin", () => page.region(name))
document.querySelector(".skip")!.addEventListener("click", e => {
  e.preventDefault() // the fragment is the link
  page.region("documents", true)
})
listen(page, commands, pane => {
  page.region("answer")
  panels.select(pane)
}, [() => element("tools").querySelector("button")?.focus(), ...(["documents", "request", "answer"] as const).map(name => () => page.region(name, true))],
() => ["tools", "documents", "request", "answer"].findIndex(id => element(id).contains(document.activeElement)))

acceptFiles(page)
void renew(page)
const linked = () => location.hash !== "" && !location.hash.startsWith("#example=") // that is of gallery.ts
window.addEventListener("hashchange", () => {
  if (linked()) void open(page, location.hash)
})
// An entry of the browser's history without a link has a piece of work, or the example.
window.addEventListener("popstate", () => {
  if (location.hash) return
  leave()
  closeTour()
  page.say("")
  void goOn(pieceOf(history.state))
})
window.addEventListener("pagehide", keepNow)
document.addEventListener("visibilitychange", () => {
  if (document.hidden) keepNow()
})

adopt(work, store)
const latest = location.hash ? undefined : work.get(pieceOf(history.state) ?? "") ?? work.list()[0]
if (latest) await goOn(latest.id)
else show()
if (linked()) await open(page, location.hash)
await openLinks(page)
if (!asked) ask()

// own has the browser keep the state, soon. The address, which has what was opened, does
// not say it any more.
function own() {
  if (!piece) void hold(piece = freshID()) // nobody else has it
  if (location.hash || pieceOf(history.state) !== piece) history.replaceState({piece}, "", location.pathname + location.search)
  clearTimeout(later)
  later = setTimeout(keepNow, 500)
}

function keepNow() {
  if (!later) return
  clearTimeout(later)
  later = 0
  const problem = piece && work.keep(piece, state)
  if (problem && problem !== warned) {
    page.say(problem === "large" ? "This is too large for the browser to keep. Export it before you close the page." : "The browser does not keep what you write here. Export it before you close the page.", "error")
  }
  warned = problem || undefined
}

// leave ends the work on what is shown. What is written from now on is another piece.
function leave(): Before {
  keepNow()
  last = new Last() // a result of other work says nothing about what comes now
  const [id, shown, url, entry] = [piece, state, location.href, history.state as unknown]
  piece = undefined
  const newest = work.list()[0]?.id
  // A page that was opened by a link or with an example has not shown what was written before.
  if (!id && asked === 0 && newest) return {own: true, restore: () => page.open(newest)}
  return {
    own: id !== undefined,
    restore() {
      if (id) return page.open(id)
      leave()
      history.pushState(entry, "", url)
      state = shown
      show(true)
      ask()
    },
  }
}

// address makes an entry of the browser's history for a fragment, or for a piece of work.
function address(fragment: string, id?: string) {
  history.pushState(id ? {piece: id} : null, "", location.pathname + location.search + fragment)
}

function pieceOf(entry: unknown): string | undefined {
  const id = (entry as {piece?: unknown} | null)?.piece
  return typeof id === "string" ? id : undefined
}

// goOn shows a piece of work, or the example if there is none. If another tab has it open,
// what is written here becomes a piece of its own.
async function goOn(id: string | undefined) {
  const found = id === undefined ? undefined : work.get(id)
  const shown = state = found?.state ?? example
  show(true)
  ask()
  if (found && await hold(found.id) && state === shown && !piece) piece = found.id
}

function show(fresh = false) {
  documents.set(state.documents, fresh)
  objects.set(state.objects, fresh)
  old.set(state.old ?? [], fresh)
  old.element.hidden = operationOf(state) !== "UPDATE"
  addOld.hidden = operationOf(state) !== "CREATE"
  form.show(state)
  words.show(page.untouched())
}

// ask asks the engine about the state, soon; a question that was not sent yet is
// replaced.
function ask() {
  asked++
  changed = performance.now()
  if (body.dataset["state"] !== "loading") body.dataset["state"] = "working"
  if (asking) return
  asking = true
  // The worker computes while the key is painted.
  queueMicrotask(() => {
    asking = false
    void send()
  })
}

async function send() {
  if (running) return // it asks again when it is done
  running = true
  const [number, start, question, pane, kept] = [asked, changed, state, panels.shown, last]
  const about = (of: State) => engine.call<Answer>("evaluate", {...of, ...pane.needs}, true)
  try {
    const answer = await about(question)
    const first = body.dataset["state"] === "loading"
    const plain: Turn = {number, pane: pane.id, state: question, answer}
    let turn = pane.results ? kept.of(plain) : plain
    if (turn.pane !== pane.id) {
      // The last answer without errors was for another pane.
      kept.turn = {...turn, number, pane: pane.id, old: undefined, answer: await about(turn.state)}
      turn = kept.of(plain)
    }
    pass("")
    panels.show(turn)
    settle(number, "idle")
    offline()
    timing.textContent = first ? "" : `${Math.round(performance.now() - start)} ms`
    painted(() => performance.measure(first ? "mapd:first-result" : "mapd:turn", {start: first ? 0 : start}))
  } catch (err) {
    const message = (err as Error).message
    pass(message, "error")
    if (kept.turn?.pane === pane.id) panels.show(kept.old(number, [{message}]))
    settle(number, "failed")
    if (!(err instanceof EngineError)) throw err
  } finally {
    running = false
    if (number !== asked) void send()
  }
}

// pass says what is true until the next answer, unless the status says something else
// that the user has to know.
function pass(text: string, error?: "error") {
  if (!error && status.textContent !== passing) return
  page.say(passing = text, error)
}

function settle(number: number, to: "idle" | "failed") {
  body.dataset["turn"] = String(number)
  if (number === asked) body.dataset["state"] = to
  else body.dataset["state"] = "working"
}

// offline begins when there is time for it, once.
function offline() {
  if (!offlineBegun) void workOffline(page)
  offlineBegun = true
}

// painted calls f when what was changed can be seen.
function painted(f: () => void) {
  if (!document.hidden) requestAnimationFrame(() => setTimeout(f))
}
