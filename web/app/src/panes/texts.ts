// What panes read from the texts of the page and change in them. Nothing here knows the page.
import type {Edit, Position, Text} from "../api"

// A Part is one document of a text.
export interface Part {
  name: string // of the text
  line: number // its first line, from 1
  start: number
  end: number
  text: string
}

// parts returns the documents of texts, without those that are empty.
export function parts(texts: readonly Text[]): Part[] {
  const out: Part[] = []
  for (const {name, text} of texts) {
    let start = 0
    let line = 1
    for (const m of [...text.matchAll(/^---(?=[ \t\r\n]|$)[^\n]*\n?/gm), undefined]) {
      const end = m?.index ?? text.length
      const body = text.slice(start, end)
      if (/^[ \t]*[^\s#]/m.test(body.replace(/^(?:%.*|\.\.\.[ \t]*\r?)$/gm, ""))) out.push({name, line, start, end, text: body})
      if (!m) break
      for (let i = start; i < end + m[0].length; i++) if (text.charCodeAt(i) === 10) line++
      start = end + m[0].length
    }
  }
  return out
}


const scalar = String.raw`[ \t]*:[ \t]+("[^"]*"|'[^']*'|[^\s,}#]+)`

function unquoted(m: RegExpExecArray | null): string {
  const v = m?.[1] ?? ""
  return /^(["']).*\1$/.test(v) ? v.slice(1, -1) : v
}

// field returns a field of an object in block style whose keys begin in a column, or else of
// one in braces.
function field(text: string, name: string, column: number): string {
  const block = new RegExp(`^ {${column}}["']?${name}["']?${scalar}`, "m").exec(text)
  return unquoted(block ?? new RegExp(`[{,]\\s*["']?${name}["']?${scalar}`).exec(text))
}

function metadataName(text: string): string {
  const at = /^["']?metadata["']?[ \t]*:/m.exec(text) ?? /[{,]\s*["']?metadata["']?[ \t]*:/.exec(text)
  if (!at) return ""
  let rest = text.slice(at.index + at[0].length, at.index + 10_000)
  if (/^\s*\{/.test(rest)) {
    // Without the braces within the braces.
    for (let last = ""; last !== rest;) {
      last = rest
      rest = rest.replace(/([{,][^{},]*)\{[^{}]*\}/, "$1x")
    }
    return unquoted(new RegExp(`[{,]\\s*["']?name["']?${scalar}`).exec(rest.split("}", 1)[0]! + "}"))
  }
  // The block ends at the next line that begins with a key.
  const block = rest.split(/^[^\s#]/m, 1)[0]!
  const first = /^( +)[^\s#]/m.exec(block)
  return first ? field(block, "name", first[1]!.length) : ""
}

export interface Identity {
  apiVersion: string
  kind: string
  name: string
}

export function identity(part: Part): Identity {
  return {apiVersion: field(part.text, "apiVersion", 0), kind: field(part.text, "kind", 0), name: metadataName(part.text)}
}

// before returns the documents from which results were made, undefined for a result of
// which it is not known, such as one from a List.
export function before(texts: readonly Text[], results: readonly {name?: string; text?: string; verdict?: string}[]): (string | undefined)[] {
  const all = parts(texts)
  return results.map((r, i) => {
    const part = all[i]
    if (!part || r.verdict !== "changed") return undefined
    const {kind, name} = identity(part)
    return r.name?.startsWith(kind + " ") && (!name || r.name.endsWith("/" + name) || r.name.endsWith(" " + name)) ? part.text : undefined
  })
}

// locate returns the line of a field of an object, or that of the object, from 1. path is
// such as spec.matchConstraints.resourceRules[0].resources; what is written in braces has
// the line of the brace.
export function locate(texts: readonly Text[], is: (id: Identity) => boolean, path = ""): {name: string; line: number} | undefined {
  const part = parts(texts).find(p => is(identity(p)))
  if (!part) return undefined
  const all = part.text.split("\n")
  const used = (l: string) => /^\s*[^\s#]/.test(l)
  let at = all.findIndex(used)
  let from = 0
  let to = all.length
  let indent = -1
  for (const step of path.match(/[^.[\]]+|\[[^\]]*\]/g) ?? []) {
    const index = /^\[(\d+)\]$/.exec(step)
    let found = -1
    if (index) {
      const first = all.findIndex((l, i) => i >= from && i < to && /^\s*-(\s|$)/.test(l))
      if (first < 0) break
      const column = all[first]!.search(/-/)
      let n = -1
      for (let i = first; i < to; i++) if (all[i]!.search(/\S/) === column && all[i]![column] === "-" && ++n === Number(index[1])) found = i
      if (found < 0) break
      to = end(all, found, to, column, true)
      // What follows the dash is as deep as what is below it.
      all[found] = all[found]!.replace("-", " ")
      from = found
      indent = column
    } else {
      const key = new RegExp(`^(\\s*)["']?${step.replace(/[\\^$*+?.()|[\]{}]/g, "\\$&")}["']?\\s*:`)
      let depth = Infinity
      for (let i = from; i < to; i++) {
        if (!used(all[i]!)) continue
        const column = all[i]!.search(/\S/)
        if (column <= indent) continue
        depth = Math.min(depth, column)
        if (column === depth && key.test(all[i]!)) {
          found = i
          indent = column
          break
        }
      }
      if (found < 0) break
      to = end(all, found, to, indent, false)
      from = found + 1
    }
    at = found
  }
  return {name: part.name, line: part.line + Math.max(at, 0)}
}

// end returns where the block that begins in a line ends.
function end(all: readonly string[], start: number, limit: number, column: number, item: boolean): number {
  for (let i = start + 1; i < limit; i++) {
    const at = all[i]!.search(/[^\s]/)
    if (at < 0 || all[i]![at] === "#") continue
    if (at < column || at === column && (item || all[i]![at] !== "-")) return i
  }
  return limit
}

// offset returns where a position of the language server protocol is in a text.
export function offset(text: string, p: Position): number {
  let at = 0
  for (let i = 0; i < p.line; i++) {
    const next = text.indexOf("\n", at)
    if (next < 0) return text.length
    at = next + 1
  }
  const end = text.indexOf("\n", at)
  return Math.min(at + p.character, end < 0 ? text.length : end)
}

// apply returns a text with edits, which are about the text as it was and do not overlap.
export function apply(text: string, edits: readonly Edit[]): string {
  const list = edits.map(e => ({start: offset(text, e.range.start), end: offset(text, e.range.end), text: e.newText}))
  list.sort((a, b) => b.start - a.start || b.end - a.end)
  for (const e of list) text = text.slice(0, e.start) + e.text + text.slice(e.end)
  return text
}

// replaceMutators returns documents without some of Gatekeeper's mutators, by their IDs such
// as Assign/dns, and with files; left are those that it did not find.
export function replaceMutators(documents: readonly Text[], ids: readonly string[], files: readonly Text[]): {documents: Text[]; left: string[]} {
  const wanted = new Set(ids)
  const drop = new Map<string, Part[]>()
  for (const p of parts(documents)) {
    const id = identity(p)
    if (!id.apiVersion.startsWith("mutations.gatekeeper.sh/") || !wanted.delete(`${id.kind}/${id.name}`)) continue
    drop.set(p.name, [...drop.get(p.name) ?? [], p])
  }
  const out: Text[] = []
  for (const d of documents) {
    const gone = drop.get(d.name)
    if (!gone) {
      out.push(d)
      continue
    }
    const rest = parts([d]).filter(p => !gone.some(g => g.start === p.start))
    if (rest.length > 0) out.push({name: d.name, text: rest.map(p => p.text.endsWith("\n") ? p.text : p.text + "\n").join("---\n")})
  }
  const taken = new Set(out.map(d => d.name))
  for (const f of files) {
    let name = f.name
    for (let i = 2; taken.has(name); i++) name = f.name.replace(/(\.[^.]*)?$/, `-${i}$1`)
    taken.add(name)
    out.push({name, text: f.text})
  }
  return {documents: out, left: [...wanted]}
}
