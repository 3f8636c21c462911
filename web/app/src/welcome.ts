// What the page says to somebody who sees it first.
import {h} from "./dom"
import {example} from "./example"
import {gallery, go} from "./gallery"
import type {Page} from "./page"
import {store} from "./store"

const starts: readonly [name: string, title: string][] = [
  ["image-pull-policy", "Set a pull policy"],
  ["sidecar-apply", "Add a sidecar"],
  ["tolerations", "Add tolerations"],
]

// welcome returns the words, and show, which shows them as long as the page has the first
// example and nobody has closed them.
export function welcome(page: Page): {element: HTMLElement; show(first: boolean): void} {
  const button = (title: string, run: () => void, kind?: string) => h("button", {type: "button", class: kind, onclick: run}, title)
  const paste = button("Paste a policy", () => {
    page.load({...example, documents: [{name: "policy.yaml", text: ""}]}, "own")
    page.region("documents", true)
    page.say("Paste your policy with Ctrl+V, and its binding. Files can be dropped on the page, too.")
  }, "primary")
  paste.id = "paste-policy"
  const element = h("aside", {id: "welcome", "aria-labelledby": "welcome-title", hidden: true},
    h("p", null,
      h("strong", {id: "welcome-title"}, "See what a mutating admission policy makes of an object, at each key."),
      " Policies and objects are yours to write; the answer is what a Kubernetes API server would store, who wrote each line, and why a policy did nothing. It all runs in this tab: nothing is sent."),
    h("div", {class: "starts"}, paste, h("span", null, "or start with one of these:"),
      starts.map(([name, title]) => button(title, () => go(page, `#example=${name}`))),
      button("All examples", () => void gallery.run(page)),
      h("button", {type: "button", class: "quiet close", id: "close-welcome", "aria-label": "Close these words", title: "Close these words", onclick: () => {
        element.hidden = true
        store.save("welcome", "closed")
      }}, "✕")))
  return {
    element,
    show(first) {
      element.hidden = !first || store.load("welcome") === "closed"
    },
  }
}
