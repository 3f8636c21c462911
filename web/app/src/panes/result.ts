// The objects as they are stored.
import {h} from "../dom"
import type {Pane} from "../page"

let root: HTMLElement

export const result: Pane = {
  id: "result",
  title: "Result",
  mount(element) {
    root = element
  },
  show({answer}) {
    root.replaceChildren(
      ...(answer.errors ?? []).map(f => h("p", {role: "alert"}, f.file ? `${f.file}:${f.line ?? 0}: ` : "", f.message)),
      ...(answer.results ?? []).map(r => h("section", null,
        h("h3", null, r.name ?? "", " ", r.verdict ?? ""),
        r.error && h("p", {role: "alert"}, r.error.message),
        r.refusal && h("p", {role: "alert"}, r.refusal),
        h("pre", null, r.text ?? ""))),
    )
  },
}
