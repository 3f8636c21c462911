// The last answer without errors. It stays, marked as old, while somebody is writing what
// is not a policy yet.
import type {Fault} from "./api"
import type {Turn} from "./page"
import type {State} from "./state"

export class Last {
  turn?: Turn

  // of returns what is to be shown of a Turn: itself, or the last one without errors.
  of(turn: Turn): Turn {
    const errors = turn.answer.errors ?? []
    if (errors.length === 0) return this.turn = turn
    return this.covers(turn.state, errors, turn.answer.results !== undefined) ? this.old(turn.number, errors) : turn
  }

  // old is the last Turn without errors, for a later question that has some.
  old(number: number, errors: readonly Fault[]): Turn {
    return {...this.turn!, number, old: {errors}}
  }

  // covers reports whether the last Turn is to be shown for a state with errors. If the policies
  // without errors have results of their own, it is only as long as nothing else has changed.
  covers(state: State, errors: readonly Fault[], results: boolean): boolean {
    const last = this.turn?.state
    if (!last) return false
    if (!results) return true
    const {documents, ...rest} = state
    const {documents: before, ...restBefore} = last
    const wrong = new Set(errors.map(e => e.file))
    return documents.length === before.length && documents.every((d, i) => d.name === before[i]!.name && (d.text === before[i]!.text || wrong.has(d.name)))
      && JSON.stringify(rest) === JSON.stringify(restBefore)
  }
}
