// The tokens of CEL. It knows enough to colour an expression that somebody is writing,
// which need not be one: it never fails, and its tokens cover all but the white space.

export type Kind =
  "keyword" | "atom" | "number" | "string" | "comment" | "name" | "property" | "call" | "type" | "operator" | "bracket" | "invalid"

export interface Token {
  kind: Kind
  from: number
  to: number
}

const atoms = new Set(["true", "false", "null"])
const types = new Set([
  "bool", "bytes", "double", "dyn", "duration", "int", "list", "map", "null_type", "optional_type", "string", "timestamp", "type", "uint",
])
const structs = new Set(["Object", "JSONPatch"])

const quote = /(?:[rR][bB]?|[bB][rR]?)?("""|'''|"|')/y
const number = /0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\.\d+|\d+(?=[eE][+-]?\d))(?:[eE][+-]?\d+)?|\d+[uU]?/y
const word = /[A-Za-z_][A-Za-z_0-9]*/y
const quotedName = /`[^`\n]*`?/y
const operator = /&&|\|\||[=!<>]=|[-+*/%<>!?:.,]/y
const space = /(?:\s|\\[nrt\n])+/y

// match returns the end of what r matches at an offset, -1 if it does not.
function match(r: RegExp, text: string, at: number): number {
  r.lastIndex = at
  return r.test(text) ? r.lastIndex : -1
}

// endOfString returns the end of a string whose opening quote ends at an offset. One
// that is not closed ends with its line, or with the text if it may have several lines.
function endOfString(text: string, at: number, close: string, raw: boolean): number {
  for (; at < text.length; at++) {
    if (text.startsWith(close, at)) return at + close.length
    if (text[at] === "\\" && !raw) at++
    if (text[at] === "\n" && close.length === 1) return at
  }
  return text.length
}

// tokenize returns the tokens of an expression in their order. White space is that of
// CEL, and the escapes of line breaks in a double-quoted YAML scalar.
export function tokenize(text: string): Token[] {
  const out: Token[] = []
  let at = 0
  // What the last token was: the text of an operator or bracket, and whether names
  // behind a dot still belong to a type such as Object.spec.containers.
  let before = "", struct = false
  const push = (kind: Kind, to: number) => {
    before = kind === "operator" || kind === "bracket" ? text.slice(at, to) : kind
    out.push({kind, from: at, to})
    at = to
  }
  while (at < text.length) {
    let end = match(space, text, at)
    if (end > at) {
      at = end
      continue
    }
    const c = text[at]!
    if (c === "/" && text[at + 1] === "/") {
      end = text.indexOf("\n", at)
      out.push({kind: "comment", from: at, to: at = end < 0 ? text.length : end})
      continue
    }
    end = match(quote, text, at)
    if (end > at) {
      const opening = text.slice(at, end), close = opening.replace(/^[a-zA-Z]+/, "")
      push("string", endOfString(text, end, close, /^[bB]?[rR]/.test(opening)))
      continue
    }
    end = match(number, text, at)
    if (end > at) {
      push("number", end)
      continue
    }
    end = match(word, text, at)
    if (end > at) {
      push(kindOf(text, at, end), end)
      continue
    }
    end = match(quotedName, text, at)
    if (end > at) {
      push("property", end)
      continue
    }
    if ("()[]{}".includes(c)) {
      struct = false
      push("bracket", at + 1)
      continue
    }
    end = match(operator, text, at)
    if (end > at) {
      if (c !== ".") struct = false
      push("operator", end)
      continue
    }
    push("invalid", at + (text.codePointAt(at)! > 0xffff ? 2 : 1))
  }
  return out

  // kindOf is the kind of a word, by what is around it.
  function kindOf(text: string, from: number, to: number): Kind {
    const name = text.slice(from, to), next = /\s*(.?)/y
    next.lastIndex = to
    const behind = next.exec(text)?.[1]
    if (before === "." || before === "?" && out.at(-2)?.kind === "operator" && out.at(-2)!.to === from - 1 && text[from - 2] === ".") {
      if (struct) return "type"
      return behind === "(" ? "call" : "property"
    }
    struct = false
    if (atoms.has(name)) return "atom"
    if (name === "in") return "keyword"
    if (structs.has(name) && (behind === "{" || behind === "." || behind === "")) {
      struct = true
      return "type"
    }
    if (types.has(name)) return "type"
    if (behind === "(") return "call"
    if (behind === ":" && (before === "{" || before === "," || before === "?" && out.at(-2)?.kind !== "name")) {
      const two = out.at(-2)
      if (before !== "?" || two && "{,".includes(text.slice(two.from, two.to))) return "property"
    }
    return "name"
  }
}
