// The tabs of the answer.
import {h} from "./dom"
import type {Page, Pane, Turn} from "./page"
import {Tabs} from "./tabs"

// Panels shows one pane of several, and gives it the latest Turn.
export class Panels {
  readonly element: HTMLElement
  private tabs: Tabs
  private roots = new Map<string, HTMLElement>()
  private turn?: Turn

  constructor(private panes: readonly Pane[], page: Page) {
    this.tabs = new Tabs("Answer", id => this.choose(id))
    this.tabs.set(panes.map(p => ({id: `tab-${p.id}`, title: p.title, panel: `pane-${p.id}`})), "")
    for (const p of panes) {
      const root = h("div", {role: "tabpanel", id: `pane-${p.id}`, "aria-labelledby": `tab-${p.id}`, class: "pane", tabindex: 0, hidden: true})
      this.roots.set(`tab-${p.id}`, root)
      p.mount(root, page)
    }
    this.element = h("div", {class: "panes"}, h("div", {class: "bar"}, this.tabs.element), ...this.roots.values())
    if (panes[0]) this.select(0)
  }

  // select selects a pane by its number, from 0.
  select(at: number) {
    const p = this.panes[at]
    if (p) this.tabs.choose(`tab-${p.id}`)
  }

  focus() {
    document.getElementById(this.tabs.selected)?.focus()
  }

  show(turn: Turn) {
    this.turn = turn
    this.panes.find(p => `tab-${p.id}` === this.tabs.selected)?.show(turn)
  }

  private choose(id: string) {
    for (const [tab, root] of this.roots) root.hidden = tab !== id
    if (this.turn) this.show(this.turn)
  }
}
