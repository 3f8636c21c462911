// A list of named texts with tabs and an editor for each that was looked at.
import {createEditor, type Editor} from "./editor"
import {h} from "./dom"
import type {Page} from "./page"
import type {Text} from "./state"
import {Tabs} from "./tabs"

export type Key = "documents" | "objects" | "old"

interface Item {
  id: string
  name: string
  text: string
  editor?: Editor
  box?: HTMLElement
}

export class Texts {
  readonly tabs: Tabs
  readonly panel: HTMLElement
  private items: Item[] = []
  private shown?: Item
  private next = 0

  constructor(readonly key: Key, label: string, private page: Page, private changed: (texts: Text[]) => void) {
    this.tabs = new Tabs(label, id => this.show(this.items.find(i => i.id === id)))
    this.panel = h("div", {role: "tabpanel", id: `${key}-panel`, class: "editor", tabindex: -1})
  }

  // set shows texts. Editors of texts that are still there stay, with what undo knows,
  // unless fresh.
  set(texts: readonly Text[], fresh = false) {
    const old = fresh ? [] : [...this.items]
    const selected = fresh ? -1 : this.items.indexOf(this.shown!)
    const items = texts.map((t, at): Item => {
      let i = old.findIndex(o => o.name === t.name)
      // One that was renamed is where it was.
      if (i < 0 && old.length > 0 && texts.length === this.items.length) {
        const same = this.items[at]!
        if (!texts.some(o => o.name === same.name)) i = old.indexOf(same)
      }
      const item = i < 0 ? {id: `${this.key}-tab-${++this.next}`, name: t.name, text: t.text} : old.splice(i, 1)[0]!
      item.name = t.name
      if (item.text !== t.text) {
        item.text = t.text
        item.editor?.setText(t.text)
      }
      return item
    })
    for (const i of this.items) if (!items.includes(i)) i.editor?.destroy()
    const same = items.length === this.items.length && items.every((item, i) => item === this.items[i]) && this.tabs.element.children.length === items.length &&
      items.every((item, i) => this.tabs.element.children[i]!.textContent === item.name)
    this.items = items
    if (same) return
    this.tabs.set(items.map(i => ({id: i.id, title: i.name, panel: this.panel.id})))
    this.show(items.includes(this.shown!) ? this.shown : items[Math.min(Math.max(selected, 0), items.length - 1)])
  }

  get current(): number {
    return this.items.indexOf(this.shown!)
  }

  editor(): Editor | undefined {
    return this.shown?.editor
  }

  // select shows the text at an index, or the one with a name.
  select(which: number | string): boolean {
    const item = typeof which === "number" ? this.items[which] : this.items.find(i => i.name === which)
    if (item) this.show(item)
    return !!item
  }

  private show(item?: Item) {
    this.shown = item
    if (!item) {
      this.panel.replaceChildren()
      return
    }
    this.tabs.mark(item.id)
    this.panel.setAttribute("aria-labelledby", item.id)
    if (!item.box) {
      item.box = h("div", {class: "editor-box"})
      this.panel.replaceChildren(item.box)
      item.editor = createEditor(item.box, {
        language: "yaml", label: item.name, text: item.text, page: this.page,
        document: this.key === "documents" ? () => item.name : undefined,
        onChange: text => {
          item.text = text
          this.changed(this.items.map(({name, text}) => ({name, text})))
        },
      })
    } else if (this.panel.firstChild !== item.box) this.panel.replaceChildren(item.box)
  }
}
