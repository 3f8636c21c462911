// The pages of the documentation: searching them, and their theme. Everything else of
// them is made at build time, by docs.mjs.
import MiniSearch, {type SearchResult} from "minisearch"
import {searchOptions} from "../search.mjs"
import {h} from "./dom"
import {nextTheme, theme} from "./theme"

const up = document.body.dataset["up"] ?? ""
const input = document.getElementById("search") as HTMLInputElement
const results = document.getElementById("results")!
const shown = 12

let index: Promise<MiniSearch> | undefined

// load fetches the index once somebody wants to search.
function load(): Promise<MiniSearch> {
  index ??= fetch(up + "search.json").then(async r => {
    if (!r.ok) throw new Error(`${r.status} ${r.statusText}`)
    return MiniSearch.loadJSON(await r.text(), searchOptions)
  })
  index.catch(() => index = undefined)
  return index
}

async function search() {
  const text = input.value.trim()
  if (!text) return hide()
  let found: SearchResult[]
  try {
    found = (await load()).search(text, {prefix: true, fuzzy: term => term.length > 4 ? 0.2 : false, combineWith: "AND", boost: {heading: 4, page: 2}})
  } catch (err) {
    results.replaceChildren(h("p", {role: "alert"}, `The index of the documentation cannot be loaded: ${(err as Error).message}`))
    results.hidden = false
    return
  }
  if (input.value.trim() !== text) return // a later search is on its way
  const count = found.length > shown ? `The best ${shown} of ${found.length} sections` : `${found.length} ${found.length === 1 ? "section" : "sections"}`
  results.replaceChildren(h("p", {role: "status"}, found.length ? count : `Nothing about “${text}”`),
    h("ul", null, found.slice(0, shown).map(r => h("li", null, h("a", {href: up + r["url"], onclick: hide},
      h("strong", null, marked(r["heading"] || r["page"], r.terms)), r["heading"] && r["heading"] !== r["page"] && h("small", null, r["page"]),
      h("span", null, excerpt(r["text"], r.terms)))))))
  results.hidden = false
}

function hide() {
  results.hidden = true
}

// excerpt is the part of a text around the first term that is found in it.
function excerpt(text: string, terms: string[]): (Node | string)[] {
  const around = 90
  const lower = text.toLowerCase()
  const at = Math.max(0, Math.min(...terms.map(t => lower.indexOf(t)).filter(i => i >= 0), text.length))
  const from = at === text.length ? 0 : Math.max(0, text.lastIndexOf(" ", at - around) + 1)
  const part = text.slice(from, from + 2 * around).replace(/\s+/g, " ")
  return [from > 0 ? "… " : "", ...marked(part, terms), from + 2 * around < text.length ? " …" : ""]
}

// marked is a text with its terms marked.
function marked(text: string, terms: string[]): (Node | string)[] {
  const out: (Node | string)[] = []
  const lower = text.toLowerCase()
  for (let i = 0; i < text.length;) {
    const next = terms.map(t => ({t, at: lower.indexOf(t, i)})).filter(n => n.at >= 0).sort((a, b) => a.at - b.at || b.t.length - a.t.length)[0]
    if (!next) {
      out.push(text.slice(i))
      break
    }
    out.push(text.slice(i, next.at), h("mark", null, text.slice(next.at, next.at + next.t.length)))
    i = next.at + next.t.length
  }
  return out
}

input.closest<HTMLElement>("search")!.hidden = false
input.addEventListener("focus", () => void load().catch(() => {}))
input.addEventListener("input", () => void search())

document.addEventListener("keydown", e => {
  const typing = e.target instanceof HTMLInputElement
  if (e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
    e.preventDefault()
    input.focus()
    input.select()
  } else if (e.key === "Escape" && !results.hidden) {
    hide()
    input.focus()
  } else if (["ArrowDown", "ArrowUp"].includes(e.key) && !results.hidden && (e.target === input || results.contains(e.target as Node))) {
    const stops: HTMLElement[] = [input, ...results.querySelectorAll("a")]
    const to = stops.indexOf(e.target as HTMLElement) + (e.key === "ArrowDown" ? 1 : -1)
    e.preventDefault()
    stops[(to + stops.length) % stops.length]?.focus()
  } else if (e.key === "Enter" && e.target === input) {
    results.querySelector("a")?.click()
  }
})
document.addEventListener("pointerdown", e => {
  if (!input.closest("search")!.contains(e.target as Node)) hide()
})

const themes = {system: "Theme: system", light: "Theme: light", dark: "Theme: dark"}
const button = document.getElementById("theme")!
button.textContent = themes[theme()]
button.hidden = false
button.addEventListener("click", () => button.textContent = themes[nextTheme()])
