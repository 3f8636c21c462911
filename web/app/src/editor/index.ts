// The editors of the page.
import {h} from "../dom"
import type {Page} from "../page"

export interface EditorOptions {
  language: "yaml"
  label: string // the accessible name
  text: string
  page: Page
  // document returns the name that the text has in State.documents now; absent for
  // objects.
  document?: () => string
  onChange(text: string): void // what the user typed; not called for setText
}

export interface Editor {
  // setText replaces the text; undo brings the old one back.
  setText(text: string): void
  // reveal puts the cursor at a place, counted from 1, shows it and takes the focus.
  reveal(line: number, column?: number): void
  focus(): void
  destroy(): void
  // format formats the text, if the editor can.
  format?(): Promise<void>
}

// createEditor appends an editor to parent, which it fills.
export function createEditor(parent: HTMLElement, options: EditorOptions): Editor {
  const area = h("textarea", {
    "aria-label": options.label, class: "cm-content", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off",
    oninput: () => options.onChange(area.value),
  })
  area.value = options.text
  parent.append(area)
  return {
    setText(text) {
      if (area.value !== text) area.value = text
    },
    reveal(line, column = 1) {
      const before = area.value.split("\n").slice(0, line - 1)
      const at = before.reduce((n, l) => n + l.length + 1, 0) + column - 1
      area.focus()
      area.setSelectionRange(at, at)
    },
    focus: () => area.focus(),
    destroy: () => area.remove(),
  }
}
