// The texts that a program has: of many texts one changes with a key, and the others are sent
// as a number. See web/known.go. Nothing here knows the page.

// unknownRef is what the program says of a text that it has forgotten.
export const unknownRef = "a text is not known any more"

const short = 200 // UTF-16 units; such a text is sent each time
const most = 8 << 20 // of all texts

const lists = ["documents", "objects", "old"] as const

interface Sendable {
  name: string
  text: string
  ref?: number
}

export class Sent {
  private refs = new Map<string, number>()
  private length = 0
  private next = 0

  // pack returns the parameters of a call as JSON. Texts that were sent are numbers in it.
  pack(params: unknown): string {
    return JSON.stringify(this.without(params))
  }

  // forget is for a program that does not have the texts.
  forget() {
    this.refs.clear()
    this.length = 0
  }

  private without(params: unknown): unknown {
    if (typeof params !== "object" || params === null || Array.isArray(params)) return params
    const out: Record<string, unknown> = {...params}
    if (out["question"]) out["question"] = this.without(out["question"])
    for (const key of lists) if (Array.isArray(out[key])) out[key] = (out[key] as Sendable[]).map(t => this.text(t))
    return out
  }

  private text({name, text}: Sendable): Sendable {
    if (text.length < short) return {name, text}
    const ref = this.refs.get(text)
    if (ref !== undefined) return {name, text: "", ref}
    if (this.length > most) this.forget()
    this.length += text.length
    this.refs.set(text, ++this.next)
    return {name, text, ref: this.next}
  }
}
