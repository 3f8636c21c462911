// The tabs of the answer.
import {h} from "./dom"
import type {Needs, Page, Pane, Turn} from "./page"
import {faults} from "./panes/kit"
import {Tabs} from "./tabs"

// A Panel is a pane, and above it what is wrong with the texts.
class Panel {
  readonly tab: string
  readonly element: HTMLElement
  private readonly notice = h("div", {class: "notice", hidden: true})
  private readonly body = h("div", {class: "body"})
  private said = ""

  constructor(readonly pane: Pane, private page: Page) {
    this.tab = `tab-${pane.id}`
    this.element = h("div", {role: "tabpanel", id: `pane-${pane.id}`, "aria-labelledby": this.tab, class: "pane", tabindex: 0, hidden: true},
      h("p", {class: "help"}, pane.help), this.notice, this.body)
    pane.mount(this.body, page)
  }

  // shows reports whether a Turn has what the pane shows.
  shows(turn: Turn): boolean {
    return this.pane.needs ? turn.pane === this.pane.id : !turn.old
  }

  // wait says that a Turn for this pane is on its way.
  wait() {
    this.body.setAttribute("aria-busy", "true")
  }

  show(turn: Turn) {
    if (this.pane.needs) this.say(turn)
    this.body.removeAttribute("aria-busy")
    this.pane.show(turn)
    this.element.dataset["turn"] = String(turn.number)
  }

  // say says what is wrong with the texts, and what is shown all the same. What is said
  // already is left alone, since a screen reader reads an alert again.
  private say({old, answer}: Turn) {
    const errors = old?.errors ?? answer.errors ?? []
    const left = old ? [] : answer.leftOut ?? []
    const now = JSON.stringify([errors, left, !!old])
    this.body.classList.toggle("old", !!old)
    if (old) {
      this.body.setAttribute("role", "group")
      this.body.setAttribute("aria-label", "Old result, of the texts before the error")
    } else {
      this.body.removeAttribute("role")
      this.body.removeAttribute("aria-label")
    }
    if (now === this.said) return
    this.said = now
    this.notice.hidden = errors.length === 0
    this.notice.replaceChildren(...faults(this.page, errors),
      ...old ? [h("p", {class: "kept"}, h("strong", null, "Old result:"), " what is below was there before the error. It is not the answer to the texts as they are now.")] : [],
      ...left.length > 0 ? [h("p", {class: "kept"}, h("strong", null, "Without "), left.slice(0, 20).join(", "), left.length > 20 && ` and ${left.length - 20} more`, ": what is below is what the other policies do.")] : [])
  }
}

// Panels shows one pane of several, and gives it the latest Turn. ask asks for a Turn that has
// what the pane needs.
export class Panels {
  readonly element: HTMLElement
  private tabs: Tabs
  private panels: Panel[]
  private turn?: Turn

  constructor(panes: readonly Pane[], page: Page, private ask: () => void) {
    this.tabs = new Tabs("Answer", id => this.choose(id))
    this.tabs.set(panes.map(p => ({id: `tab-${p.id}`, title: p.title, panel: `pane-${p.id}`, help: p.help})), "")
    this.panels = panes.map(p => new Panel(p, page))
    this.element = h("div", {class: "panes"}, h("div", {class: "bar"}, this.tabs.element), ...this.panels.map(p => p.element))
    if (panes[0]) this.select(0)
  }

  // select selects a pane by its number, from 0.
  select(at: number) {
    const p = this.panels[at]
    if (p) this.tabs.choose(p.tab)
  }

  focus() {
    document.getElementById(this.tabs.selected)?.focus()
  }

  // shown is the pane that is seen.
  get shown(): {id: string; needs: Needs; results: boolean} {
    const {id, needs} = this.panel.pane
    return {id, needs: needs ?? {only: []}, results: needs !== undefined}
  }

  show(turn: Turn) {
    this.turn = turn
    if (this.panel.shows(turn)) this.panel.show(turn)
  }

  private get panel(): Panel {
    return this.panels.find(p => p.tab === this.tabs.selected)!
  }

  private choose(id: string) {
    for (const p of this.panels) p.element.hidden = p.tab !== id
    const turn = this.turn
    if (!turn) return
    if (this.panel.shows(turn)) return this.panel.show(turn)
    this.panel.wait()
    this.ask()
  }
}
