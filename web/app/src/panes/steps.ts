// The tree of a trace: passes of stages, in them policies with a binding and a parameter, in
// them steps. Nothing here knows the page.
import type {Line, Traced} from "../api"
import {short} from "./kit"

// A Pass is a run through the members of a stage. Passes, members and steps are in the order
// in which they ran.
export interface Pass {
  stage: string
  round: number
  mode: string // empty if it counts
  members: Member[]
  cost: number
}

// A Member is a policy with a binding and a parameter.
export interface Member {
  policy: string
  binding?: string
  param?: string
  steps: Traced[]
  mutations: number // the cost of mutations, in units of CEL
  conditions: number
}

export function passes(trace: readonly Traced[]): Pass[] {
  const out: Pass[] = []
  for (const t of trace) {
    let pass = out.at(-1)
    if (!pass || pass.stage !== t.stage || pass.round !== t.round || pass.mode !== (t.mode ?? "")) {
      out.push(pass = {stage: t.stage, round: t.round, mode: t.mode ?? "", members: [], cost: 0})
    }
    let member = pass.members.at(-1)
    if (!member || member.policy !== t.policy || member.binding !== t.binding || member.param !== t.param) {
      pass.members.push(member = {policy: t.policy, binding: t.binding, param: t.param, steps: [], mutations: 0, conditions: 0})
    }
    member.steps.push(t)
    // A step that a condition skipped has the cost of the conditions.
    const conditions = t.conditionCost ?? (t.conditions && !t.trace ? t.cost : 0)
    const mutations = t.conditions && !t.trace && t.conditionCost === undefined ? 0 : t.cost
    member.conditions += conditions
    member.mutations += mutations
    pass.cost += conditions + mutations
  }
  return out
}

export function total(list: readonly Pass[]): number {
  return list.reduce((sum, p) => sum + p.cost, 0)
}

// writers returns for each line of a text which mutations wrote it, in order: those of the
// smallest range that covers the line. Several paths that begin in one line are named.
export function writers(of: readonly Line[], count: number): string[] {
  const ranges = new Map<string, {first: number; last: number; path: string; by: string[]}>()
  for (const l of of) {
    const key = `${l.line} ${l.last} ${l.path}`
    const range = ranges.get(key) ?? {first: l.line, last: Math.min(l.last, count), path: l.path, by: []}
    range.by.push(who(l))
    ranges.set(key, range)
  }
  const out: string[] = new Array(count).fill("")
  const sorted = [...ranges.values()].sort((a, b) => a.first - b.first || b.last - a.last)
  for (let i = 0; i < sorted.length;) {
    const {first, last} = sorted[i]!
    let end = i
    while (end < sorted.length && sorted[end]!.first === first && sorted[end]!.last === last) end++
    const same = sorted.slice(i, end)
    const text = same.map(r => (same.length > 1 ? `${short(r.path, 300)}: ` : "") + r.by.join(", then ")).join("; ")
    out.fill(text, first - 1, last)
    i = end
  }
  return out
}

// who names a policy with its binding, unless that has the same name or stands in for none, and its parameter.
export function who(of: {policy: string; binding?: string; param?: string; stage?: string; mutation?: number}): string {
  let text = of.policy
  if (of.binding && of.binding !== of.policy && of.binding !== `unbound-${of.policy}`) text += " › " + of.binding
  if (of.binding && of.param) text += " › " + of.param
  if (of.stage === "policies" && of.mutation !== undefined && of.mutation >= 0) text += ` › mutations[${of.mutation}]`
  return text
}
