// A list of named texts: a tab and an editor for each.
import {openDialog, openMenu} from "./dialog"
import {h} from "./dom"
import {createEditor, type Editor} from "./editor"
import {objectName} from "./editor/language"
import type {Page} from "./page"
import type {State, Text} from "./state"
import {Tabs} from "./tabs"
import {freeName} from "./validate"

export type Key = "documents" | "objects" | "old"

interface Item {
  id: string // of the tab
  name: string
  text: string
  editor?: Editor // since it was first looked at
  box?: HTMLElement
}

export class Texts {
  readonly element: HTMLElement
  private tabs: Tabs
  private panel: HTMLElement
  private items: Item[] = []
  private shown?: Item
  private next = 0

  // Actions stand at the end of the bar.
  constructor(readonly key: Key, private noun: string, label: string, private page: Page, actions: Node[] = []) {
    this.tabs = new Tabs(label, id => this.show(this.items.find(i => i.id === id)))
    this.tabs.element.addEventListener("keydown", e => this.shortcut(e))
    this.tabs.element.addEventListener("dblclick", () => this.rename())
    this.panel = h("div", {role: "tabpanel", id: `${key}-panel`, class: "editor"})
    const more = h("button", {
      type: "button", class: "quiet", "aria-label": `Change this ${noun}`, title: `Rename, move or remove this ${noun}`, "aria-haspopup": "menu", "aria-expanded": "false",
      onclick: () => openMenu(more, `This ${noun}`, this.entries()),
    }, "⋯")
    this.element = h("div", {class: "texts", id: `${key}-texts`},
      h("div", {class: "bar"}, h("h2", null, label), this.tabs.element,
        h("button", {type: "button", class: "quiet", id: `add-${noun.replace(" ", "-")}`, "aria-label": `Add a ${noun}`, title: `Add a ${noun}`, onclick: () => this.add()}, "+"),
        more, h("div", {class: "end"}, actions)),
      this.panel)
  }

  // set shows texts. Editors of texts that are still there stay, with what undo knows,
  // unless fresh.
  set(texts: Text[], fresh = false) {
    const left = fresh ? [] : [...this.items]
    const selected = fresh ? 0 : Math.max(this.current, 0)
    const items = texts.map((t, at): Item => {
      // One that was renamed is where it was.
      const here = this.items[at]
      const renamed = here && texts.length === this.items.length && !texts.some(o => o.name === here.name)
      const i = left.findIndex(o => o.name === t.name || (renamed && o === here))
      const item = i < 0 ? {id: `${this.key}-tab-${++this.next}`, name: t.name, text: t.text} : left.splice(i, 1)[0]!
      item.name = t.name
      if (item.text !== t.text) {
        item.text = t.text
        item.editor?.setText(t.text)
      }
      return item
    })
    const gone = this.items.filter(i => !items.includes(i))
    this.items = items
    for (const i of gone) i.editor?.destroy()
    const tabs = [...this.tabs.element.children]
    if (tabs.length === items.length && items.every((item, i) => tabs[i]!.id === item.id && tabs[i]!.textContent === item.name) && items.includes(this.shown!)) return
    const show = items.includes(this.shown!) ? this.shown : items[Math.min(selected, items.length - 1)]
    const focused = this.element.contains(document.activeElement)
    this.tabs.set(items.map(i => ({id: i.id, title: i.name, panel: this.panel.id})), show?.id ?? "")
    this.show(show)
    if (focused && !show) this.focus()
  }

  get current(): number {
    return this.items.indexOf(this.shown!)
  }

  get editor(): Editor | undefined {
    return this.shown?.editor
  }

  // select shows the text with a name.
  select(name: string): boolean {
    const item = this.items.find(i => i.name === name)
    if (item) this.show(item)
    return !!item
  }

  focus() {
    if (this.shown?.editor) this.shown.editor.focus()
    else this.element.querySelector<HTMLElement>("button")!.focus()
  }

  // add adds a text at the end and shows it.
  add(text = "", name = `${this.key === "documents" ? "document" : this.key === "old" ? "old" : "object"}.yaml`) {
    const texts = this.texts()
    const free = freeName(name, texts)
    this.change([...texts, {name: free, text}])
    this.select(free)
    this.focus()
  }

  private texts(): Text[] {
    return this.page.state()[this.key] ?? []
  }

  private change(texts: Text[], more: Partial<State> = {}) {
    this.page.change({...more, [this.key]: this.key === "old" && !texts.length ? undefined : texts})
  }

  private show(item?: Item) {
    this.shown = item
    if (!item) {
      this.panel.removeAttribute("aria-labelledby")
      this.panel.replaceChildren(h("p", {class: "empty"}, `No ${this.noun}. Add one with +, or drop files here.`))
      return
    }
    this.tabs.mark(item.id)
    this.panel.setAttribute("aria-labelledby", item.id)
    if (item.box) {
      if (this.panel.firstChild !== item.box) this.panel.replaceChildren(item.box)
      return
    }
    item.box = h("div", {class: "editor-box"})
    this.panel.replaceChildren(item.box)
    item.editor = createEditor(item.box, {
      language: "yaml", label: `${this.noun} ${item.name}`, text: item.text, page: this.page,
      document: this.key === "documents" ? () => item.name : this.key === "objects" ? () => objectName(item.name) : undefined,
      policies: this.key === "documents",
      onChange: text => {
        if (!this.items.includes(item)) return
        item.text = text
        this.change(this.items.map(({name, text}) => ({name, text})))
      },
    })
  }

  private entries() {
    const n = this.items.length, at = this.current
    const other: Key = this.key === "documents" ? "objects" : "documents"
    return [
      {title: "Rename…", key: "F2", disabled: !n, run: () => this.rename()},
      {title: "Move left", key: "Ctrl+←", disabled: at <= 0, run: () => this.move(-1)},
      {title: "Move right", key: "Ctrl+→", disabled: at < 0 || at === n - 1, run: () => this.move(1)},
      {title: `Move to the ${other}`, disabled: !n, run: () => this.moveTo(other)},
      {title: "Remove", key: "Delete", disabled: !n, run: () => this.remove()},
    ]
  }

  private shortcut(e: KeyboardEvent) {
    const ctrl = e.ctrlKey || e.metaKey
    if (e.key === "F2") this.rename()
    else if (e.key === "Delete") this.remove()
    else if (ctrl && e.key === "ArrowLeft") this.move(-1)
    else if (ctrl && e.key === "ArrowRight") this.move(1)
    else return
    e.preventDefault()
  }

  private rename() {
    const item = this.shown
    if (!item) return
    const name = h("input", {type: "text", "aria-label": "Name", maxlength: 200})
    name.value = item.name
    const form = h("form", {
      onsubmit: (e: Event) => {
        e.preventDefault()
        close()
        const to = name.value.trim()
        if (!to || to === item.name) return
        const texts = this.texts()
        const free = freeName(to, texts)
        this.change(texts.map(t => t.name === item.name ? {...t, name: free} : t))
        document.getElementById(item.id)?.focus()
      },
    }, name)
    const close = openDialog(`Rename ${item.name}`, [form], {buttons: [h("button", {type: "button", class: "primary", onclick: () => form.requestSubmit()}, "Rename")]})
    name.focus()
    name.select()
  }

  private move(by: number) {
    const at = this.current, texts = [...this.texts()]
    if (at < 0 || at + by < 0 || at + by >= texts.length) return
    texts.splice(at + by, 0, ...texts.splice(at, 1))
    this.change(texts)
    this.page.say(`${this.shown!.name} is number ${at + by + 1} of ${texts.length}`)
  }

  private moveTo(key: Key) {
    const at = this.current
    const text = this.texts()[at]
    if (!text) return
    const there = this.page.state()[key] ?? []
    this.change(this.texts().filter((_, i) => i !== at), {[key]: [...there, {...text, name: freeName(text.name, there)}]})
    this.page.say(`Moved ${text.name} to the ${key}`)
  }

  private remove() {
    const at = this.current
    const text = this.texts()[at]
    if (!text) return
    this.change(this.texts().filter((_, i) => i !== at))
    this.page.say(`Removed ${text.name}`, undefined, {
      title: "Undo",
      run: () => {
        const texts = [...this.texts()]
        const back = {...text, name: freeName(text.name, texts)}
        texts.splice(at, 0, back)
        this.change(texts)
        this.select(back.name)
      },
    })
  }
}
