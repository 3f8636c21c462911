// The request: its fields beside the objects.
import {h} from "./dom"
import type {Page} from "./page"
import type {State} from "./state"

const text = (name: string, label: string, hint: string) =>
  h("label", null, label, h("input", {name, type: "text", placeholder: hint, autocomplete: "off", spellcheck: "false", autocapitalize: "off"}))
const choice = (name: string, label: string, options: [string, string][]) =>
  h("label", null, label, h("select", {name}, options.map(([value, title]) => h("option", {value}, title))))
const check = (name: string, label: string, help: string) =>
  h("label", {class: "check", title: help}, h("input", {name, type: "checkbox"}), label)

// minors are the released Kubernetes versions that the engine knows; the newest is the default.
export const minors = ["1.37", "1.36", "1.35", "1.34", "1.33", "1.32"]

// operationOf is the operation of a request: if a state names none, it is an update with an
// old object and a creation without.
export function operationOf(s: State): string {
  return s.operation || (s.old?.length ? "UPDATE" : "CREATE")
}

// withOperation is what changes in a state for it to have an operation. An update begins
// with the objects as they are for old ones.
export function withOperation(s: State, operation: string): Pick<State, "operation" | "old"> {
  const old = operation === "UPDATE" && !s.old?.length ? s.objects.map(o => ({...o})) : s.old
  return {operation: operation === operationOf({...s, old, operation: undefined}) ? undefined : operation, old}
}

// requestForm returns the fields, and show, which fills them in from a state.
export function requestForm(page: Page): {element: HTMLElement; show(s: State): void} {
  const hint = h("p", {class: "hint", role: "note", hidden: true}, "The objects are those that are deleted: object is null in expressions, and oldObject is the one here.")
  const form = h("form", {
    class: "fields", "aria-label": "Request fields",
    onsubmit: (e: Event) => e.preventDefault(),
    oninput: () => page.change(read()),
  },
    choice("operation", "Operation", ["CREATE", "UPDATE", "DELETE", "CONNECT"].map(o => [o, o])),
    choice("kubernetes", "Kubernetes", minors.map((m, i) => [i ? m : "", m])),
    text("namespace", "Namespace", "default"),
    text("subresource", "Subresource", "none"),
    text("username", "User", "admin"),
    text("groups", "Groups", "a, b"),
    check("dryRun", "Dry run", "The request is a dry run (request.dryRun)"),
    check("unbound", "Without bindings", "Policies without a binding are bound to everything"),
    hint,
  )
  const field = (name: string) => form.elements.namedItem(name) as HTMLInputElement
  const value = (name: string) => field(name).value.trim() || undefined

  function read(): Partial<State> {
    const groups = field("groups").value.split(",").map(g => g.trim()).filter(g => g)
    const username = value("username")
    // A link may have a uid or extra, which have no field.
    const {uid, extra} = page.state().user ?? {}
    const user = {username, uid, groups: groups.length ? groups : undefined, extra}
    return {
      ...withOperation(page.state(), value("operation") ?? "CREATE"), kubernetes: value("kubernetes"), namespace: value("namespace"), subresource: value("subresource"),
      user: Object.values(user).some(v => v !== undefined) ? user : undefined,
      dryRun: field("dryRun").checked || undefined, unbound: field("unbound").checked || undefined,
    }
  }
  return {
    element: form,
    show(s) {
      // A field that says the same is left alone: somebody may be writing in it.
      const now = read()
      field("operation").value = operationOf(s)
      hint.hidden = operationOf(s) !== "DELETE"
      const minor = s.kubernetes ?? ""
      if (minor && !form.querySelector(`[name=kubernetes] [value="${CSS.escape(minor)}"]`)) field("kubernetes").append(h("option", {value: minor}, minor))
      field("kubernetes").value = minor
      for (const name of ["namespace", "subresource"] as const) if (now[name] !== s[name]) field(name).value = s[name] ?? ""
      if (now.user?.username !== s.user?.username) field("username").value = s.user?.username ?? ""
      if (String(now.user?.groups) !== String(s.user?.groups)) field("groups").value = (s.user?.groups ?? []).join(", ")
      field("dryRun").checked = s.dryRun ?? false
      field("unbound").checked = s.unbound ?? false
    },
  }
}
