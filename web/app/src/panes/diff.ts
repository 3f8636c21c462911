// What policies changed, field by field as mapd eval prints it, or line by line.
import type {Result} from "../api"
import {h} from "../dom"
import type {Pane, Turn} from "../page"
import {asking, bounded, changes, count, empty, Folds, row, verdict} from "./kit"
import {fold, lineDiff, lines} from "./rows"
import {before} from "./texts"

let latest: Turn | undefined
let form: "fields" | "lines" = "fields"
const folds = new Folds()

const body = h("div")

export const diff: Pane = {
  id: "diff",
  title: "Diff",
  help: "Which fields the policies changed, from which value to which.",
  needs: {only: ["diff"]},
  mount(root) {
    const choice = (value: typeof form, text: string) => h("label", null, h("input", {
      type: "radio", name: "diff-form", value, checked: value === form, onchange: () => {
        form = value
        if (latest) body.replaceChildren(...content(latest))
      },
    }), " ", text)
    root.append(h("fieldset", {class: "switch"}, h("legend", null, "Show"), choice("fields", "fields"), choice("lines", "lines of YAML")), body)
    asking(root, body)
  },
  show(turn) {
    latest = turn
    body.replaceChildren(...content(turn))
  },
}

function content({state, answer}: Turn): Node[] {
  const results = answer.results ?? []
  if (results.length === 0) return answer.errors?.length ? [] : [empty("Write an object below “Objects”. Here is what the policies change in it.")]
  const texts = before(state.objects, results)
  const changed = results.map((r, i) => ({r, i})).filter(({r}) => r.verdict === "changed")
  const same = results.length - changed.length
  let room = 4000 // lines
  return [
    ...bounded(changed, 100, ({r, i}) => {
      const open = room > 0
      room -= Math.min((r.text?.length ?? 0) / 30, 1000)
      return folds.make(`${i} ${r.name}`, open, [h("strong", null, r.name ?? ""), " ", verdict("changed", count(r.diff?.length ?? 0, "field"))],
        () => form === "fields" ? changes(r.diff ?? []) : unified(r, texts[i]), "object")
    }, "objects"),
    changed.length === 0
      ? empty(`No policy changed ${results.length === 1 ? "the object" : "any of the objects"}. The tab “Why not” says why.`)
      : same > 0 ? h("p", {class: "notes"}, `${count(same, "other object")} ${same === 1 ? "is" : "are"} unchanged or denied.`) : h("span"),
  ]
}

function unified(r: Result, given: string | undefined): HTMLElement {
  if (given === undefined) return empty("The text before is not known of objects from a List. See the fields.")
  const rows = lineDiff(lines(given), lines(r.text ?? ""))
  const line = (w: (typeof rows)[number]) => row(w.sign, w.text, w.after ?? w.before)
  return h("div", {class: "code", tabindex: 0, role: "group", "aria-label": `${r.name}, line by line`}, fold(rows, w => w.sign !== " ").map(f => {
    const show = () => bounded(f.rows, 500, line, "lines")
    if (!f.folded) return show()
    const more = h("button", {type: "button", class: "more", onclick: () => more.replaceWith(...show())}, `show ${count(f.rows.length, "equal line")}`)
    return more
  }))
}
