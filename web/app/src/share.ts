// Links: the state in the fragment of the address, which a browser sends to nobody.
import type {State} from "./state"
import {maxState, readState} from "./validate"

const version = "1"
const maxFragment = 8 << 20 // no browser takes an address as long

// isLink reports whether a fragment has a state, of any version.
export function isLink(fragment: string): boolean {
  return /^#?\d+\./.test(fragment)
}

// encode returns the fragment of a link to a state, without the "#".
export async function encode(state: State): Promise<string> {
  const text = new TextEncoder().encode(JSON.stringify(state))
  if (text.length > maxState) throw new Error(`the documents have ${text.length} bytes, and a link takes at most ${maxState}`)
  const packed = await collect(through(text, new CompressionStream("deflate-raw")), Infinity)
  let binary = ""
  for (let i = 0; i < packed.length; i += 0x8000) binary += String.fromCharCode(...packed.subarray(i, i + 0x8000))
  return `${version}.${btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`
}

// decode returns the state of a fragment. It throws an error in words for one that was
// cut, changed or made to do harm.
export async function decode(fragment: string): Promise<State> {
  if (fragment.length > maxFragment) throw new Error("this link is too long")
  const [, of, data] = /^#?(\d+)\.(.*)$/s.exec(fragment) ?? []
  if (of === undefined || data === undefined) throw new Error("this is no link of the playground")
  if (of !== version) throw new Error(`this link has version ${of.slice(0, 20)}, and this playground reads version ${version}: it may be older than the link`)
  if (!/^[-_A-Za-z0-9]+$/.test(data)) throw new Error("this link is damaged: it has characters that no link has")
  let text: string
  try {
    const binary = atob(data.replaceAll("-", "+").replaceAll("_", "/"))
    const bytes = await collect(through(Uint8Array.from(binary, c => c.charCodeAt(0)), new DecompressionStream("deflate-raw")), maxState)
    text = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(bytes)
  } catch (err) {
    if (err instanceof RangeError) throw new Error(`this link unpacks to more than ${maxState} bytes`)
    throw new Error("this link is damaged: a part of it is missing or was changed")
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new Error("this link is damaged: what it has inside is not JSON")
  }
  try {
    return readState(value)
  } catch (err) {
    throw new Error(`this link cannot be opened: ${(err as Error).message}`)
  }
}

function through(bytes: Uint8Array<ArrayBuffer>, stream: CompressionStream | DecompressionStream): ReadableStream<Uint8Array> {
  return new Blob([bytes]).stream().pipeThrough(stream)
}

// collect returns all that a stream has, or throws a RangeError as soon as that is more
// than most.
async function collect(stream: ReadableStream<Uint8Array>, most: number): Promise<Uint8Array> {
  const reader = stream.getReader()
  const chunks: Uint8Array[] = []
  let length = 0
  for (;;) {
    const {done, value} = await reader.read()
    if (done) break
    length += value.length
    if (length > most) {
      await reader.cancel().catch(() => {})
      throw new RangeError("too long")
    }
    chunks.push(value)
  }
  const all = new Uint8Array(length)
  let at = 0
  for (const c of chunks) {
    all.set(c, at)
    at += c.length
  }
  return all
}
