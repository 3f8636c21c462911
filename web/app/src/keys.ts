// Shortcuts of the page, and the dialog that lists them.
import {openDialog} from "./dialog"
import {h} from "./dom"
import {bindings} from "./editor/bindings"
import type {Command, Page} from "./page"

// pressed reports whether an event is a key such as "Ctrl+S", "Alt+Shift+F" or "?".
export function pressed(e: Pick<KeyboardEvent, "key" | "code" | "ctrlKey" | "metaKey" | "altKey" | "shiftKey">, key: string): boolean {
  const parts = key.split("+")
  const last = parts.pop()!
  if ((e.ctrlKey || e.metaKey) !== parts.includes("Ctrl") || e.altKey !== parts.includes("Alt")) return false
  // The key that writes "?" needs Shift on some keyboards only.
  if (/^[A-Z0-9]$/.test(last)) return e.shiftKey === parts.includes("Shift") && (e.code === `Key${last}` || e.code === `Digit${last}`)
  return e.key === last && (e.shiftKey === parts.includes("Shift") || last === "?")
}

const typing = (e: Event) => e.target instanceof Element && e.target.closest("input, textarea, select, [contenteditable]") !== null

// listen answers the keys of commands, Alt and a number for a pane, and F6 for the next
// region.
export function listen(page: Page, commands: readonly Command[], select: (pane: number) => void, regions: (() => void)[], region: () => number) {
  document.addEventListener("keydown", e => {
    if (e.defaultPrevented || document.querySelector("dialog[open]")) return
    const command = commands.find(c => c.key && pressed(e, c.key) && (c.key.includes("+") || !typing(e)))
    const pane = /^Digit([1-9])$/.exec(e.code)
    if (command) void command.run(page)
    else if (pane && e.altKey && !e.ctrlKey && !e.metaKey && !e.shiftKey) select(Number(pane[1]) - 1)
    else if (e.key === "F6" && !e.ctrlKey && !e.altKey && !e.metaKey) {
      const n = regions.length
      regions[(region() + (e.shiftKey ? n - 1 : 1)) % n]!()
    } else return
    e.preventDefault()
  })
}

// openKeys lists the shortcuts.
export function openKeys(commands: readonly Command[], panes: readonly string[]) {
  const rows: [string, string][] = [
    ...commands.filter(c => c.key).map(c => [c.key!, c.help] as [string, string]),
    ["F6", "Go to the next region: tools, documents, request, answer; Shift+F6: to the one before"],
    ...panes.map((title, i) => [`Alt+${i + 1}`, `Show ${title}`] as [string, string]),
    ...bindings.map(b => [b.key, `In an editor: ${b.help[0]!.toLowerCase()}${b.help.slice(1)}`] as [string, string]),
    ["Escape", "In an editor: have Tab leave it and go on to the next control, instead of indenting"],
    ["← →", "At a tab: go to the tab beside it. At a separator: move it"],
    ["F2", "At a tab: rename the text"],
    ["Ctrl+← Ctrl+→", "At a tab: move the text"],
    ["Delete", "At a tab: remove the text"],
  ]
  openDialog("Keyboard shortcuts", [h("dl", null, rows.map(([key, help]) => [h("dt", null, h("kbd", null, key)), h("dd", null, help)]))])
}
