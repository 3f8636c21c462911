// Examples: a dialog that lists them, links that open one (#example=NAME), and the tour,
// whose words stand above the page while one of its parts is open. web/gallery makes
// the files that are read here.
import {openDialog} from "./dialog"
import {h} from "./dom"
import {opened} from "./exchange"
import type {Command, Page} from "./page"
import type {State} from "./state"

interface Entry {
  name: string
  group: string
  title: string
  sentence: string
  tags: string[]
  words?: string[]
  from?: string
}

let index: Promise<Entry[]> | undefined

function entries(): Promise<Entry[]> {
  index ??= read<Entry[]>("index")
  index.catch(() => index = undefined)
  return index
}

async function read<T>(name: string): Promise<T> {
  const r = await fetch(`gallery/${name}.json`)
  if (!r.ok) throw new Error(`gallery/${name}.json: ${r.status} ${r.statusText}`)
  return await r.json() as T
}

export const gallery: Command = {id: "gallery", title: "Examples", look: "primary", help: "Open an example, or the tour", key: "Alt+E", run: choose}

// choose shows the examples; typing looks for some, arrows go through them.
async function choose(page: Page) {
  let all: Entry[]
  try {
    all = await entries()
  } catch (err) {
    page.say(`The examples cannot be loaded: ${(err as Error).message}`, "error")
    return
  }
  if (document.querySelector("dialog[open]")) return // somebody was faster
  const list = h("div", {class: "gallery-list"})
  const count = h("p", {role: "status", class: "gallery-count"})
  const search = h("input", {
    type: "search", id: "gallery-search", "aria-label": "Search the examples", placeholder: "Search: Polaris, sidecar, params …", autocomplete: "off",
    spellcheck: "false", autofocus: true, oninput: fill,
  })
  const close = openDialog("Examples", [search, count, list], {wide: true})
  list.parentElement!.classList.add("gallery")
  list.parentElement!.addEventListener("keydown", move)
  fill()
  search.focus()

  function fill() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean)
    const found = all.filter(e => {
      const text = [e.title, e.name, e.sentence, e.group, e.from ?? "", ...e.tags].join("\n").toLowerCase()
      return words.every(w => text.includes(w))
    })
    count.textContent = found.length === all.length ? `${all.length} examples` : `${found.length} of ${all.length} examples`
    const groups = [...new Set(found.map(e => e.group))]
    list.replaceChildren(...groups.map((group, i) => h("section", {"aria-labelledby": `gallery-${i}`},
      h("h3", {id: `gallery-${i}`}, group),
      h("ul", null, found.filter(e => e.group === group).map(e => h("li", null, h("a", {href: link(e.name), onclick: open},
        h("strong", null, e.title), h("span", null, e.sentence), h("small", null, e.tags.join(" · ")), e.from && h("small", null, `from ${e.from}`))))))))
  }

  // open follows a link of the list; another tab is the browser's affair.
  function open(e: MouseEvent) {
    if (e.ctrlKey || e.metaKey || e.shiftKey) return
    e.preventDefault()
    close()
    go(page, (e.currentTarget as HTMLAnchorElement).hash)
  }

  function move(e: KeyboardEvent) {
    const links = [...list.querySelectorAll("a")]
    const at = links.indexOf(document.activeElement as HTMLAnchorElement)
    if (e.key === "ArrowDown") links[Math.min(at + 1, links.length - 1)]?.focus()
    else if (e.key === "ArrowUp") (at > 0 ? links[at - 1]! : search).focus()
    else if (e.key === "Enter" && !e.ctrlKey && !e.metaKey && !e.shiftKey && (at >= 0 || document.activeElement === search)) links[Math.max(at, 0)]?.click()
    else return
    e.preventDefault() // or the rest of Enter goes to the button that has the focus again
  }
}

function link(name: string): string {
  return `#example=${name}`
}

// go opens what a link says, also if the address has it already.
export function go(page: Page, hash: string) {
  if (location.hash === hash) void follow(page)
  else location.hash = hash // followed by the listener of openLinks
}

// openLinks follows links to examples, now and later. It returns when it has opened the
// one that the address has, if any.
export async function openLinks(page: Page) {
  window.addEventListener("hashchange", () => void follow(page))
  await follow(page)
}

let asked = 0 // the latest example

async function follow(page: Page) {
  const name = location.hash.match(/^#example=(.*)$/)?.[1]
  const mine = ++asked
  if (name === undefined) {
    if (location.hash) closeTour() // a link to something else
    return
  }
  try {
    const known = /^[a-z0-9-]+$/.test(name)
    const [all, state] = await Promise.all([entries(), known ? read<State>(name).catch(err => err as Error) : undefined])
    const entry = all.find(e => e.name === name)
    if (!entry || !state) throw new Error("there is none with this name")
    if (state instanceof Error) throw state
    if (mine !== asked) return
    opened(page, `Example: ${entry.title}`, page.load(state))
    tour(page, all, entry)
  } catch (err) {
    if (mine === asked) page.say(`The example “${name.slice(0, 80)}” cannot be opened: ${(err as Error).message}`, "error")
  }
}

// closeTour takes the words of the tour away.
export function closeTour() {
  document.getElementById("tour")?.remove()
}

// tour shows the words of an entry, and the ways to those before and behind it.
function tour(page: Page, all: Entry[], entry: Entry) {
  const before = document.getElementById("tour")
  const pressed = before?.contains(document.activeElement) ? document.activeElement!.textContent : undefined
  before?.remove()
  if (!entry.words) return
  const parts = all.filter(e => e.words)
  const at = parts.indexOf(entry)
  const step = (title: string, to: Entry | undefined) => h("button", {type: "button", disabled: !to, onclick: () => {
    if (to) go(page, link(to.name))
  }}, title)
  const heading = h("h2", {id: "tour-title", tabindex: -1}, `${at + 1}. ${entry.title}`)
  const steps = [step("Previous", parts[at - 1]), step("Next", parts[at + 1])]
  document.querySelector("main")!.before(h("aside", {id: "tour", "aria-labelledby": "tour-title"},
    h("div", {class: "tour-head"}, heading, h("p", null, `${at + 1} of ${parts.length}: ${entry.group.toLowerCase()}`)),
    h("div", {class: "tour-words"}, entry.words.map(w => h("p", null, marked(w)))),
    h("div", {class: "tour-steps"}, steps,
      h("button", {type: "button", onclick: closeTour}, "Close the tour"))))
  if (pressed) (steps.find(s => s.textContent === pressed && !s.disabled) ?? heading).focus()
}

// marked is a paragraph with its `code`.
function marked(text: string): (Node | string)[] {
  return text.split("`").map((part, i) => i % 2 ? h("code", null, part) : part)
}
