// Files that come and go: which are documents and which objects, and a page as a gist.
import type {State, Text} from "./state"
import {freeName, readState} from "./validate"

// groups are those whose kinds are documents.
const groups = /^(admissionregistration\.k8s\.io|apiextensions\.k8s\.io|rbac\.authorization\.k8s\.io|(\w+\.)*gatekeeper\.sh|policies\.kubewarden\.io)$/

export interface Kind {
  apiVersion: string
  kind: string
}

const scalar = (text: string, key: string) => new RegExp(`^${key}:[ \\t]*["']?([^"'#\\s]+)`, "m").exec(text)?.[1] ?? ""

// kindOf returns what a document says at its top, in YAML or JSON.
export function kindOf(text: string): Kind {
  if (/^\s*\{/.test(text)) {
    try {
      const {apiVersion, kind} = JSON.parse(text) as Record<string, unknown>
      return {apiVersion: String(apiVersion ?? ""), kind: String(kind ?? "")}
    } catch { // YAML in braces
      const inner = text.replace(/[{,]\s*/g, "\n")
      return {apiVersion: scalar(inner, "apiVersion"), kind: scalar(inner, "kind")}
    }
  }
  return {apiVersion: scalar(text, "apiVersion"), kind: scalar(text, "kind")}
}

// paramKinds returns the kinds of parameters that policies in texts name.
export function paramKinds(texts: readonly string[]): Kind[] {
  const out: Kind[] = []
  for (const text of texts) {
    for (const m of text.matchAll(/paramKind["']?:(?:\s{0,9}\{([^{}]{0,999})\}|((?:\s{0,99}\n[ \t]+(?:apiVersion|kind):[^\n]*){1,2}))/g)) {
      const inner = (m[1] ?? m[2])!.replace(/,/g, "\n").replace(/["']/g, "").replace(/^\s+/gm, "")
      out.push({apiVersion: scalar(inner, "apiVersion"), kind: scalar(inner, "kind")})
    }
  }
  return out
}

// sort tells documents from objects, by their kinds. A file with both becomes two of the
// same name. Known are texts that may have policies with parameters, too.
export function sort(files: readonly Text[], known: readonly Text[] = []): {documents: Text[]; objects: Text[]} {
  const params = paramKinds([...files, ...known].map(f => f.text))
  const out = {documents: [] as Text[], objects: [] as Text[]}
  for (const {name, text} of files) {
    const parts = {documents: [] as string[], objects: [] as string[]}
    let nothing = "" // comments before the first document belong to it
    for (const part of text.split(/^---(?=\s|$).*\n?/m)) {
      if (!/^[ \t]*[^#\s]/m.test(part)) {
        nothing += part
        continue
      }
      parts[place(part, params)].push(nothing + part)
      nothing = ""
    }
    const both = parts.documents.length > 0 && parts.objects.length > 0
    for (const key of ["documents", "objects"] as const) {
      // A file of one sort stays as it is.
      if (parts[key].length) out[key].push({name: freeName(name, out[key]), text: both ? parts[key].join("---\n") : text})
    }
    if (!parts.documents.length && !parts.objects.length) out.objects.push({name: freeName(name, out.objects), text})
  }
  return out
}

function place(text: string, params: readonly Kind[]): "documents" | "objects" {
  const {apiVersion, kind} = kindOf(text)
  const group = (v: string) => v.includes("/") ? v.slice(0, v.indexOf("/")) : ""
  if (groups.test(group(apiVersion)) || (apiVersion === "v1" && kind === "Namespace")) return "documents"
  if (params.some(p => p.kind === kind && p.apiVersion === apiVersion)) return "documents"
  // A List is what its items are.
  const inside = kind === "List" && apiVersion === "v1" ? [...text.matchAll(/["']?apiVersion["']?:[ \t]*["']?([^"'#\s,}]+)/g)].some(m => groups.test(group(m[1]!))) : false
  return inside ? "documents" : "objects"
}

// A Gist is what the API of GitHub has for one, in so far as it matters here.
export interface Gist {
  description?: string
  files: Record<string, {content: string}>
}

const settings = "playground.json"

// toGist returns a state as files, and one that says which is what.
export function toGist(state: State): Gist {
  const files: Text[] = [{name: settings, text: ""}]
  const put = (texts: readonly Text[] | undefined, prefix: string) => texts?.map(t => {
    const file = freeName(prefix + (t.name.replace(/[/\\\0-\x1f]/g, "-") || "document.yaml"), files)
    files.push({name: file, text: t.text})
    return file === t.name ? file : {file, name: t.name}
  })
  const {documents, objects, old, ...rest} = state
  const list = {documents: put(documents, ""), objects: put(objects, ""), old: put(old, "old-"), ...rest}
  files[0]!.text = JSON.stringify(list, null, 2) + "\n"
  return {description: "mapd playground", files: Object.fromEntries(files.map(f => [f.name, {content: f.text}]))}
}

// readJSON returns the state that a text has as JSON, or the files of a gist; undefined if
// it is neither.
export function readJSON(text: string): {state: State} | {files: Text[]} | undefined {
  if (!/^\s*\{/.test(text)) return undefined
  let v: Record<string, unknown>
  try {
    v = JSON.parse(text) as Record<string, unknown>
  } catch {
    return undefined
  }
  if (Array.isArray(v["documents"]) && !("apiVersion" in v)) return {state: readState(v)}
  const files = v["files"]
  if (typeof files !== "object" || files === null || "apiVersion" in v) return undefined
  const all = new Map<string, string>()
  for (const [name, f] of Object.entries(files)) {
    const content = (f as {content?: unknown} | null)?.content
    if (typeof content !== "string") throw new Error(`files[${JSON.stringify(name.slice(0, 80))}].content: want a text`)
    all.set(name, content)
  }
  const list = all.get(settings)
  if (list === undefined) return {files: [...all].map(([name, text]) => ({name, text}))}
  const {documents, objects, old, ...rest} = JSON.parse(list) as Record<string, unknown>
  const get = (v: unknown) => v === undefined ? undefined : (Array.isArray(v) ? v : [v]).map(i => {
    const {file, name} = typeof i === "string" ? {file: i, name: i} : i as {file: string; name: string}
    const text = all.get(file)
    if (text === undefined) throw new Error(`${settings}: there is no file ${JSON.stringify(String(file).slice(0, 80))}`)
    return {name, text}
  })
  return {state: readState({...rest, documents: get(documents), objects: get(objects), old: get(old)})}
}
