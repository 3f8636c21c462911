// A zip archive whose files are stored as they are.
import type {Text} from "./state"

const table = Uint32Array.from({length: 256}, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1
  return n >>> 0
})

function crc32(bytes: Uint8Array): number {
  let c = ~0
  for (const b of bytes) c = table[(c ^ b) & 0xff]! ^ (c >>> 8)
  return ~c >>> 0
}

// safePath returns name as a path below the folder that an archive is unpacked in.
export function safePath(name: string): string {
  const parts = name.split(/[/\\]/).map(p => p.replace(/[\0-\x1f<>:"|?*]/g, "_")).filter(p => p && p !== "." && p !== "..")
  return parts.join("/") || "file"
}

// zip returns an archive. Its files have one date, so that the same texts make the same
// bytes.
export function zip(files: readonly Text[]): Uint8Array<ArrayBuffer> {
  const encoder = new TextEncoder()
  const parts: Uint8Array[] = [], directory: Uint8Array[] = []
  let offset = 0
  for (const f of files) {
    const name = encoder.encode(safePath(f.name)), data = encoder.encode(f.text)
    // Version 2.0, names in UTF-8, stored, 1980-01-01.
    const common = [[20, 2], [0x800, 2], [0, 2], [0, 2], [0x21, 2], [crc32(data), 4], [data.length, 4], [data.length, 4], [name.length, 2], [0, 2]] as const
    const local = record([[0x04034b50, 4], ...common])
    parts.push(local, name, data)
    directory.push(record([[0x02014b50, 4], [20, 2], ...common, [0, 2], [0, 2], [0, 2], [0, 4], [offset, 4]]), name)
    offset += local.length + name.length + data.length
  }
  const size = directory.reduce((n, p) => n + p.length, 0)
  const end = record([[0x06054b50, 4], [0, 2], [0, 2], [files.length, 2], [files.length, 2], [size, 4], [offset, 4], [0, 2]])
  const all = new Uint8Array(offset + size + end.length)
  let at = 0
  for (const p of [...parts, ...directory, end]) {
    all.set(p, at)
    at += p.length
  }
  return all
}

// record returns numbers in as many bytes as each has, the lowest first.
function record(numbers: readonly (readonly [number, number])[]): Uint8Array {
  return Uint8Array.from(numbers.flatMap(([n, bytes]) => Array.from({length: bytes}, (_, i) => (n >>> (8 * i)) & 0xff)))
}
