// What comes from outside as a State is checked field by field before it is used.
import type {State, Text, User} from "./state"

export const maxState = 4 << 20 // bytes of a State as JSON in a link
export const maxTexts = 1000
const maxName = 300
const maxList = 1000

class Invalid extends Error {}

type Fields = Record<string, unknown>

function fields(v: unknown, at: string, known: readonly string[]): Fields {
  if (typeof v !== "object" || v === null || Array.isArray(v)) throw new Invalid(`${at}: want an object`)
  for (const k of Object.keys(v)) if (!known.includes(k)) throw new Invalid(`${at}: unknown field ${JSON.stringify(k.slice(0, 40))}`)
  return v as Fields
}

function list<T>(v: unknown, at: string, most: number, item: (v: unknown, at: string) => T): T[] {
  if (!Array.isArray(v)) throw new Invalid(`${at}: want a list`)
  if (v.length > most) throw new Invalid(`${at}: ${v.length} are too many, at most ${most}`)
  return v.map((i, n) => item(i, `${at}[${n}]`))
}

function string(v: unknown, at: string, most = maxName): string {
  if (typeof v !== "string") throw new Invalid(`${at}: want a text`)
  if (v.length > most) throw new Invalid(`${at}: longer than ${most} characters`)
  return v
}

const strings = (v: unknown, at: string) => list(v, at, maxList, (s, at) => string(s, at))

// texts returns texts with names that differ.
function texts(v: unknown, at: string): Text[] {
  const out: Text[] = []
  for (const t of list(v, at, maxTexts, (t, at) => {
    const {name, text} = fields(t, at, ["name", "text"])
    return {name: string(name, `${at}.name`), text: string(text, `${at}.text`, 16 << 20)}
  })) out.push({...t, name: freeName(t.name || "document.yaml", out)})
  return out
}

function user(v: unknown): User {
  const {username, uid, groups, extra} = fields(v, "user", ["username", "uid", "groups", "extra"])
  const out: User = {}
  if (username !== undefined) out.username = string(username, "user.username")
  if (uid !== undefined) out.uid = string(uid, "user.uid")
  if (groups !== undefined) out.groups = strings(groups, "user.groups")
  if (extra !== undefined) {
    const pairs = Object.entries(fields(extra, "user.extra", Object.keys(extra ?? {}).slice(0, maxList)))
    out.extra = Object.fromEntries(pairs.map(([k, v]) => [string(k, "user.extra"), strings(v, "user.extra")]))
  }
  return out
}

const words = ["kubernetes", "namespace", "operation", "subresource"] as const
const flags = ["unbound", "dryRun"] as const

// readState returns v as a State, or throws an error that says what is wrong.
export function readState(v: unknown): State {
  const f = fields(v, "the state", ["documents", "objects", "old", "user", ...words, ...flags])
  const state: State = {documents: texts(f["documents"] ?? [], "documents"), objects: texts(f["objects"] ?? [], "objects")}
  if (f["old"] !== undefined) {
    const old = texts(f["old"], "old")
    if (old.length) state.old = old
  }
  for (const w of words) {
    const v = f[w]
    if (v !== undefined && v !== "") state[w] = string(v, w)
  }
  for (const name of flags) {
    const v = f[name]
    if (v !== undefined && typeof v !== "boolean") throw new Invalid(`${name}: want true or false`)
    if (v) state[name] = v
  }
  if (f["user"] !== undefined) state.user = user(f["user"])
  return state
}

// freeName returns name, or the first of name with a number that no text has.
export function freeName(name: string, taken: readonly Text[]): string {
  const [, stem, suffix] = /^(.*?)(\.[^./]*)?$/s.exec(name)!
  const names = new Set(taken.map(t => t.name))
  let free = name
  for (let n = 2; names.has(free); n++) free = `${stem}-${n}${suffix ?? ""}`
  return free
}
