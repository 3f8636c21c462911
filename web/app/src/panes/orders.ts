// What other orders of the policies make of the objects.
import type {OrderDifference, Orders, OrdersAnswer} from "../api"
import {h} from "../dom"
import type {Page, Pane, Turn} from "../page"
import type {State} from "../state"
import {bounded, changes, count, empty, failure, fault, faults, Folds, verdict} from "./kit"
import {Job} from "./job"

let page: Page
let job: Job
let asked: State | undefined // what the differences are about
const folds = new Folds()
const body = h("div")
const stale = h("p", {class: "warning", hidden: true}, "The documents or the objects have changed since. Run the orders again.")
const limit = h("input", {type: "number", name: "limit", min: 1, max: 100000, value: 5040, class: "number"})
const start = h("button", {type: "button", id: "run-orders", class: "primary", onclick: () => void run()}, "Run the orders")

export const orders: Pane = {
  id: "orders",
  title: "Orders",
  help: "Whether another order of the policies, or an update, would give another result.",
  mount(root, p) {
    page = p
    job = new Job(page, start)
    body.append(idle())
    root.append(h("div", {class: "controls"}, start, h("label", null, "at most ", limit, " orders for each object")), job.bar, stale, body)
  },
  show({state, answer}: Turn) {
    stale.hidden = !asked || asked === state
    start.disabled = job.running || !answer.results?.length
  },
}

function idle(): HTMLElement {
  return empty("A server runs policies in the order of their names, and this may change. mapd runs the policies that an object meets in other orders, and puts the result in once more: nothing should change then. Press “Run the orders”.")
}

async function run() {
  const state = asked = page.state()
  const most = Math.max(1, Math.min(100_000, Math.floor(limit.valueAsNumber) || 5040))
  stale.hidden = true
  body.replaceChildren()
  body.dataset["done"] = "false"
  // A small number first, so that there is something to see soon.
  const limits = [...new Set([24, 720, most])].filter(n => n <= most)
  try {
    await job.run<OrdersAnswer>("orders", limits.map(n => ({words: `running up to ${count(n, "order")} of each object …`, params: {question: state, limit: n}})), (answer, last) => {
      body.replaceChildren(...content(answer))
      body.dataset["done"] = String(last)
      return (answer.objects ?? []).every(o => o.error || o.whole)
    })
  } catch (err) {
    body.append(failure(err as Error))
  }
  body.dataset["done"] = "true"
}

function content(answer: OrdersAnswer): Node[] {
  const [objects, wrong] = [answer.objects ?? [], faults(page, answer.errors)]
  if (objects.length === 0) return wrong.length > 0 ? wrong : [empty("Write an object below “Objects” first.")]
  return [...wrong, ...bounded(objects, 100, (o, i) => object(o, i), "objects")]
}

function object(o: Orders, at: number): HTMLElement {
  const n = o.differences?.length ?? 0
  const word = o.error ? verdict("error", "cannot be evaluated") : n > 0 ? verdict("denied", count(n, "difference")) : verdict("exact", "every order that was run gives the same")
  return folds.make(`${at} ${o.name}`, n > 0 || !!o.error || at < 10, [h("strong", null, o.name ?? `object ${at + 1}`), " ", word], () => o.error ? fault(page, o.error) : [
    h("p", null, o.summary, o.touching > 0 && [" ", h("progress", {max: 100, value: part(o), "aria-label": "orders that were run"})]),
    bounded(o.differences ?? [], 20, difference, "differences"),
  ], "object")
}

// part is how much of the orders those that were run stand for, in percent.
function part(o: Orders): number {
  return o.whole ? 100 : Math.min(100, o.run / Number(o.of) * 100)
}

const titles: Record<string, string> = {
  order: "The result depends on the order",
  update: "The result does not stay as it is",
  "ping-pong": "Policies undo each other in each pass",
}

function difference(f: OrderDifference): HTMLElement {
  const order = (list: readonly string[]) => h("ol", {class: "order"}, list.map(p => h("li", null, h("code", null, p))))
  const denied = (i: number) => f.denied?.[i] ? h("p", {class: "refusal"}, f.denied[i]) : undefined
  return h("section", {class: "difference"}, h("h2", null, titles[f.kind] ?? f.kind),
    f.kind === "order" && f.other
      ? [
          h("p", null, "The smallest set of policies that shows it, in two orders:"),
          h("div", {class: "pair"},
            h("div", null, h("p", null, "in this order (−)"), order(f.policies ?? []), denied(0)),
            h("div", null, h("p", null, "in this order (+)"), order(f.other), denied(1))),
          f.changes?.length ? h("p", null, "Between the first result and the second:") : "",
        ]
      : f.kind === "update"
        ? [
            h("p", null, f.denied?.some(Boolean) ? "It is denied as an update." : ["An update with the result changes it, by ", (f.policies ?? []).join(", "), f.next && `; ${f.next}`, "."]),
            f.denied?.map((_, i) => denied(i)),
          ]
        : h("p", null, (f.policies ?? []).join(", ")),
    f.changes?.length ? changes(f.changes) : "")
}
