// Your work: the pieces that the browser keeps.
import {openDialog} from "./dialog"
import {h} from "./dom"
import type {Command, Page} from "./page"
import {mostPieces, type Piece, work} from "./work"

export const mine: Command = {id: "work", title: "Your work", look: "quiet", help: "Open what you wrote here before", key: "Alt+W", run: choose}

function choose(page: Page) {
  const list = h("ul", {class: "work"})
  const close = openDialog("Your work", [
    h("p", null, `What you write is kept in this browser only, by itself: the last ${mostPieces} pieces of work. A link, an example or another tab never replaces one.`),
    list,
  ])
  fill()

  function fill() {
    const pieces = work.list()
    list.replaceChildren(...pieces.length === 0 ? [h("li", null, "Nothing yet.")] : pieces.map(p => h("li", null,
      h("button", {type: "button", class: "piece", onclick: () => {
        close()
        page.open(p.id)
      }}, h("strong", null, nameOf(p)), " ", h("time", {datetime: new Date(p.at).toISOString()}, new Date(p.at).toLocaleString())),
      h("button", {type: "button", class: "quiet", "aria-label": `Remove ${nameOf(p)}`, title: "Remove it from this browser", onclick: () => {
        work.forget(p.id)
        fill()
      }}, "✕"))))
  }
}

// nameOf names a piece after its policies, or else after its texts.
export function nameOf(p: Piece): string {
  const names = p.state.documents.flatMap(d => [...d.text.matchAll(/^kind: *[A-Za-z]*Policy *$[^]*?^ {1,4}name: *([^\s#{}]+)/gm)].map(m => m[1]!))
  const list = names.length > 0 ? [...new Set(names)] : [...p.state.documents, ...p.state.objects].map(t => t.name)
  const text = list.slice(0, 3).join(", ") || "empty"
  return (text.length > 60 ? text.slice(0, 59) + "…" : text) + (list.length > 3 ? ` and ${list.length - 3} more` : "")
}
