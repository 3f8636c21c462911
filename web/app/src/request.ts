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

// minors are the Kubernetes versions that the engine knows; the newest is the default.
export const minors = ["1.37", "1.36", "1.35", "1.34", "1.33", "1.32"]

// requestForm returns the fields, and show, which fills them in from a state.
export function requestForm(page: Page): {element: HTMLElement; show(s: State): void} {
  const form = h("form", {
    class: "fields", "aria-label": "Request fields",
    onsubmit: (e: Event) => e.preventDefault(),
    oninput: () => page.change(read()),
  },
    choice("operation", "Operation", [["", "by objects"], ["CREATE", "CREATE"], ["UPDATE", "UPDATE"], ["DELETE", "DELETE"], ["CONNECT", "CONNECT"]]),
    choice("kubernetes", "Kubernetes", minors.map((m, i) => [i ? m : "", m])),
    text("namespace", "Namespace", "default"),
    text("subresource", "Subresource", "none"),
    text("username", "User", "admin"),
    text("groups", "Groups", "a, b"),
    check("dryRun", "Dry run", "The request is a dry run (request.dryRun)"),
    check("unbound", "Without bindings", "Policies without a binding are bound to everything"),
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
      operation: value("operation"), kubernetes: value("kubernetes"), namespace: value("namespace"), subresource: value("subresource"),
      user: Object.values(user).some(v => v !== undefined) ? user : undefined,
      dryRun: field("dryRun").checked || undefined, unbound: field("unbound").checked || undefined,
    }
  }
  return {
    element: form,
    show(s) {
      // A field that says the same is left alone: somebody may be writing in it.
      const now = read()
      for (const name of ["operation", "kubernetes", "namespace", "subresource"] as const) if (now[name] !== s[name]) field(name).value = s[name] ?? ""
      if (now.user?.username !== s.user?.username) field("username").value = s.user?.username ?? ""
      if (String(now.user?.groups) !== String(s.user?.groups)) field("groups").value = (s.user?.groups ?? []).join(", ")
      field("dryRun").checked = s.dryRun ?? false
      field("unbound").checked = s.unbound ?? false
    },
  }
}
