// Values as YAML, as mapd writes them. Nothing here knows the page.

const plain = /^[A-Za-z_/][A-Za-z0-9_./@+-]*(?:[ :][A-Za-z0-9_./@+-]+)*$/
const word = /^(?:true|false|null|yes|no|on|off|y|n)$/i
const numeric = /^[-+.]?[0-9]/
const unseen = /[\u007f-\u009f\u2028\u2029\ufeff]/g

// scalar returns a value on one line.
export function scalar(v: unknown): string {
  if (typeof v === "string") {
    if (plain.test(v) && !word.test(v) && !numeric.test(v)) return v
    return JSON.stringify(v).replace(unseen, c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"))
  }
  return JSON.stringify(v) ?? "null"
}

// inline returns a value on one line, lists and objects as JSON.
export function inline(v: unknown): string {
  return scalar(v)
}

function empty(v: unknown): boolean {
  return typeof v !== "object" || v === null || Object.keys(v).length === 0
}

// nested reports whether a value needs more than one line.
export function nested(v: unknown): boolean {
  return !empty(v) && (!Array.isArray(v) || v.some(e => typeof e === "object" && e !== null))
}

// encode returns a value as YAML, its keys in their order.
export function encode(v: unknown): string {
  const out: string[] = []
  write(out, "", "", v)
  return out.join("\n") + "\n"
}

// write adds the lines of a value. first is what the first line begins with, such as "- ",
// and rest the others.
function write(out: string[], first: string, rest: string, v: unknown) {
  if (empty(v)) {
    out.push(first + scalar(v))
    return
  }
  if (Array.isArray(v)) {
    for (const e of v) {
      write(out, first + "- ", rest + "  ", e)
      first = rest
    }
    return
  }
  for (const [key, e] of Object.entries(v as object)) {
    const head = first + scalar(key) + ":"
    if (empty(e)) out.push(head + " " + scalar(e))
    else {
      out.push(head)
      const indent = Array.isArray(e) ? rest : rest + "  "
      write(out, indent, indent, e)
    }
    first = rest
  }
}
