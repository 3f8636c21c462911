// What somebody wrote on this page. The browser keeps it as pieces of work, each under a key
// of its own, so that a link, an example, an import, another tab or a reset never replaces
// one: what is written afterwards becomes a piece of its own.
import {store, type Store} from "./store"
import type {State} from "./state"
import {readState} from "./validate"

export const mostPieces = 20
export const largestPiece = 2 << 20 // characters
const largestAll = 4 << 20 // what browsers keep for a site is about 5 million characters

// A Piece is one piece of work.
export interface Piece {
  id: string
  at: number // milliseconds since 1970, of the last change
  state: State
}

// A Problem is why a piece is not kept.
export type Problem = "large" | "refused"

const prefix = "work:"

export class Work {
  // What the browser does not keep lives as long as the page.
  private unkept = new Map<string, Piece>()

  constructor(private store: Store, private now = () => Date.now()) {}

  // list returns the pieces, the latest first. What another version of the page has kept and
  // this one cannot read is left alone and left out.
  list(): Piece[] {
    const out = [...this.unkept.values()]
    for (const key of this.store.keys(prefix)) {
      const piece = this.unkept.has(key.slice(prefix.length)) ? undefined : this.read(key)
      if (piece) out.push(piece)
    }
    return out.sort((a, b) => b.at - a.at || (a.id < b.id ? -1 : 1))
  }

  // get returns the piece of an ID, undefined if there is none.
  get(id: string): Piece | undefined {
    return this.unkept.get(id) ?? this.read(prefix + id)
  }

  // keep stores a state as the piece of an ID. To make room it removes the oldest other
  // pieces. It returns why the browser does not keep the state; what it kept of the piece
  // before stays, and until the page is closed get and list return the state.
  keep(id: string, state: State): Problem | undefined {
    const at = this.now()
    const problem = this.save(id, JSON.stringify({at, state}))
    if (problem) this.unkept.set(id, {id, at, state})
    else this.unkept.delete(id)
    return problem
  }

  private save(id: string, text: string): Problem | undefined {
    if (text.length > largestPiece) return "large"
    const others = this.list().filter(p => p.id !== id && !this.unkept.has(p.id))
    const size = (p: Piece) => this.store.load(prefix + p.id)?.length ?? 0
    let all = text.length + others.reduce((n, p) => n + size(p), 0)
    const drop = () => {
      const oldest = others.pop()
      if (!oldest) return false
      all -= size(oldest)
      this.store.save(prefix + oldest.id, undefined)
      return true
    }
    while (others.length >= mostPieces || all > largestAll) if (!drop()) break
    while (!this.store.save(prefix + id, text)) if (!drop()) return "refused"
    return undefined
  }

  // forget removes a piece.
  forget(id: string) {
    this.unkept.delete(id)
    this.store.save(prefix + id, undefined)
  }

  private read(key: string): Piece | undefined {
    try {
      const {at, state} = JSON.parse(this.store.load(key) ?? "null") as {at: unknown; state: unknown}
      return typeof at === "number" ? {id: key.slice(prefix.length), at, state: readState(state)} : undefined
    } catch {
      return undefined
    }
  }
}

export const work = new Work(store)

// adopt makes a piece of what an earlier version of this page kept, which had one only.
export function adopt(to: Work, from: Store) {
  const text = from.load("state")
  if (text === null) return
  try {
    if (to.keep(freshID(), readState(JSON.parse(text)))) return
  } catch { // no state
  }
  from.save("state", undefined)
}

// freshID returns an ID that no other piece has.
export function freshID(): string {
  return crypto.getRandomValues(new Uint32Array(2)).reduce((id, n) => id + n.toString(36).padStart(7, "0"), "")
}

const held = new Set<string>()

// hold reports whether this tab alone writes the piece from now on. A tab that was duplicated
// has the address and the history of the first one, which holds the piece until it is closed.
// Where a browser has no locks, nobody can know, and the answer is no.
export async function hold(id: string): Promise<boolean> {
  if (held.has(id)) return true
  if (!("locks" in navigator)) return false
  return new Promise(resolve => {
    navigator.locks.request(`mapd:${prefix}${id}`, {ifAvailable: true}, lock => {
      if (lock) held.add(id)
      resolve(lock !== null)
      return lock && new Promise(() => {}) // until the tab is closed
    }).catch(() => resolve(false))
  })
}
