// Dialogs and menus. Both give the focus back to where it was.
import {h} from "./dom"

// openDialog shows a dialog over the page; Escape and its Close button close it, and it
// is gone then. It returns a function that closes it.
export function openDialog(title: string, content: Node[], options: {buttons?: Node[]; wide?: boolean; closed?(): void} = {}): () => void {
  const close = () => dialog.close()
  const dialog = h("dialog", {
    "aria-labelledby": "dialog-title", class: options.wide && "wide",
    onclose: () => {
      dialog.remove()
      options.closed?.()
    },
    // The backdrop is a part of the dialog that none of its children covers.
    onpointerdown: (e: PointerEvent) => {
      const r = dialog.getBoundingClientRect()
      if (e.target === dialog && (e.clientX < r.left || e.clientX > r.right || e.clientY < r.top || e.clientY > r.bottom)) close()
    },
  },
    h("h2", {id: "dialog-title"}, title), content,
    h("div", {class: "buttons"}, options.buttons ?? [], h("button", {type: "button", onclick: close}, "Close")))
  document.body.append(dialog)
  dialog.showModal()
  return close
}

export interface Entry {
  title: string
  key?: string
  disabled?: boolean
  run(): void
}

// openMenu shows entries below a button, beside it in its bar.
export function openMenu(button: HTMLElement, label: string, entries: Entry[]) {
  const items = entries.map(e => h("button", {
    type: "button", role: "menuitem", tabindex: -1, disabled: e.disabled, onclick: () => {
      close(true)
      e.run()
    },
  }, e.title, e.key && h("kbd", null, e.key)))
  const usable = items.filter(i => !i.disabled)
  const menu = h("div", {
    class: "menu", role: "menu", "aria-label": label,
    onkeydown: (e: KeyboardEvent) => {
      const i = usable.indexOf(e.target as HTMLButtonElement)
      const to = {ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: usable.length - 1}[e.key]
      if (to !== undefined) usable[(to + usable.length) % usable.length]?.focus()
      else if (e.key === "Escape" || e.key === "Tab") close(true)
      else return
      if (e.key === "Tab") return
      e.preventDefault()
      e.stopPropagation()
    },
  }, items)
  const outside = (e: Event) => {
    if (!menu.contains(e.target as Node) && e.target !== button) close(false)
  }
  let closed = false
  function close(back: boolean) {
    if (closed) return
    closed = true
    document.removeEventListener("pointerdown", outside, true)
    button.setAttribute("aria-expanded", "false")
    if (back) button.focus()
    menu.remove()
  }
  if (button.getAttribute("aria-expanded") === "true") return // it closes with the pointer
  button.setAttribute("aria-expanded", "true")
  document.addEventListener("pointerdown", outside, true)
  button.parentElement!.append(menu)
  usable[0]?.focus()
}
