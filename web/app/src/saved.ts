// The last state of this page, which a browser keeps until it is reset.
import type {State} from "./state"
import {load, save} from "./store"
import {readState} from "./validate"

const most = 1 << 20 // characters

export function saved(): State | undefined {
  const text = load("state")
  if (text === null) return undefined
  try {
    return readState(JSON.parse(text))
  } catch {
    save("state", undefined) // of another version
    return undefined
  }
}

// keep keeps a state; undefined forgets it. One that is too large is not kept, and the
// one before neither.
export function keep(state: State | undefined) {
  const text = state && JSON.stringify(state)
  save("state", text && text.length <= most ? text : undefined)
}
