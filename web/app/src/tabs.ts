// Tabs as the ARIA authoring practices have them: one stop of the tab key, arrows, Home
// and End go from tab to tab.
import {h} from "./dom"

export interface Tab {
  id: string // of the button; its panel is aria-controls
  title: string
  panel: string
  help?: string // what it is for, if its title does not say it all
}

// Tabs is a row of tabs. It does not own their panels.
export class Tabs {
  readonly element: HTMLElement
  selected = ""

  constructor(label: string, private select: (id: string) => void) {
    this.element = h("div", {role: "tablist", "aria-label": label, class: "tabs", onkeydown: (e: KeyboardEvent) => this.key(e)})
  }

  private buttons(): HTMLElement[] {
    return [...this.element.querySelectorAll<HTMLElement>("[role=tab]")]
  }

  // set replaces the tabs; the focus stays among them.
  set(tabs: Tab[], selected: string) {
    const focused = this.element.contains(document.activeElement)
    this.element.replaceChildren(...tabs.map(t => h("button", {
      type: "button", role: "tab", id: t.id, "aria-controls": t.panel, title: t.help ?? t.title, onclick: () => this.choose(t.id),
    }, t.title)))
    // A list of tabs must have some.
    this.element.toggleAttribute("hidden", !tabs.length)
    this.mark(selected)
    if (focused) document.getElementById(selected)?.focus()
  }

  // mark shows which tab is selected, without a call of select.
  mark(id: string) {
    this.selected = id
    for (const b of this.buttons()) {
      b.setAttribute("aria-selected", String(b.id === id))
      b.tabIndex = b.id === id ? 0 : -1
      if (b.id === id) this.reveal(b)
    }
  }

  // reveal scrolls the row until a tab is seen, and nothing else. scrollIntoView would
  // also make the tab the place from which the tab key goes on (Chromium 148).
  private reveal(b: HTMLElement) {
    const row = this.element.getBoundingClientRect(), tab = b.getBoundingClientRect()
    if (tab.left < row.left) this.element.scrollLeft -= row.left - tab.left
    else if (tab.right > row.right) this.element.scrollLeft += Math.min(tab.right - row.right, tab.left - row.left)
  }

  choose(id: string) {
    this.mark(id)
    this.select(id)
  }

  private key(e: KeyboardEvent) {
    if (e.ctrlKey || e.altKey || e.metaKey || e.shiftKey) return
    const all = this.buttons()
    const i = all.indexOf(e.target as HTMLElement)
    const to = {ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: all.length - 1}[e.key]
    if (i < 0 || to === undefined) return
    e.preventDefault()
    const b = all[(to + all.length) % all.length]!
    this.choose(b.id)
    document.getElementById(b.id)?.focus()
  }
}
