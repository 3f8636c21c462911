// How two texts differ, line by line. Nothing here knows the page.

export interface Row {
  sign: " " | "+" | "-"
  text: string
  before?: number // the number of the line in the text before, from 1
  after?: number
}

// maxEdits bounds the work: of texts that differ in more lines, all that is between their
// common beginning and end counts as replaced.
const maxEdits = 1000

export function lines(text: string): string[] {
  const out = text.split("\n")
  if (out.at(-1) === "") out.pop()
  return out.map(l => l.endsWith("\r") ? l.slice(0, -1) : l)
}

// lineDiff returns all lines of both texts: a shortest way from one to the other (Myers), with
// removed lines before added ones.
export function lineDiff(before: readonly string[], after: readonly string[]): Row[] {
  let head = 0
  while (head < before.length && head < after.length && before[head] === after[head]) head++
  let tail = 0
  while (tail < before.length - head && tail < after.length - head && before.at(-1 - tail) === after.at(-1 - tail)) tail++
  const rows: Row[] = []
  const same = (b: number, a: number) => rows.push({sign: " ", text: after[a]!, before: b + 1, after: a + 1})
  for (let i = 0; i < head; i++) same(i, i)
  const kept = common(before.slice(head, before.length - tail), after.slice(head, after.length - tail))
  let b = head
  let a = head
  for (const [x, y] of [...kept, [before.length - tail - head, after.length - tail - head] as const]) {
    for (; b < head + x; b++) rows.push({sign: "-", text: before[b]!, before: b + 1})
    for (; a < head + y; a++) rows.push({sign: "+", text: after[a]!, after: a + 1})
    if (b < before.length - tail && a < after.length - tail) same(b++, a++)
  }
  for (let i = tail; i > 0; i--) same(before.length - i, after.length - i)
  return rows
}

// common returns the pairs of lines that a shortest edit keeps.
function common(a: readonly string[], b: readonly string[]): (readonly [number, number])[] {
  const max = Math.min(a.length + b.length, maxEdits)
  const v = new Int32Array(2 * max + 3)
  const trace: Int32Array[] = []
  for (let d = 0; d <= max; d++) {
    trace.push(v.slice(max + 1 - d - 1, max + 1 + d + 2))
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || k !== d && v[max + k]! < v[max + 2 + k]!
      let x = down ? v[max + 2 + k]! : v[max + k]! + 1
      let y = x - k
      while (x < a.length && y < b.length && a[x] === b[y]) x++, y++
      v[max + 1 + k] = x
      if (x >= a.length && y >= b.length) return back(trace, a.length, b.length)
    }
  }
  return []
}

// back walks from the end to the beginning; trace[d] has the furthest x of the diagonals
// -d-1 to d+1 before step d.
function back(trace: Int32Array[], x: number, y: number): (readonly [number, number])[] {
  const out: (readonly [number, number])[] = []
  for (let d = trace.length - 1; d >= 0; d--) {
    const v = trace[d]!
    const at = (k: number) => v[k + d + 1]!
    const k = x - y
    const down = k === -d || k !== d && at(k - 1) < at(k + 1)
    const from = down ? at(k + 1) : at(k - 1)
    const fromY = from - (down ? k + 1 : k - 1)
    while (d > 0 ? x > (down ? from : from + 1) && y > (down ? fromY + 1 : fromY) : x > 0 && y > 0) out.push([--x, --y])
    x = from
    y = fromY
  }
  return out.reverse()
}

// A Fold is a run of rows; one that is folded has nothing to show but their number.
export interface Fold<T> {
  folded: boolean
  rows: T[]
}

// fold folds rows that are further than context from one that matters.
export function fold<T>(rows: readonly T[], matters: (row: T) => boolean, context = 3): Fold<T>[] {
  const near = new Uint8Array(rows.length)
  let next = -Infinity // the end of what the last row that matters shows
  for (let i = 0; i < rows.length; i++) {
    if (matters(rows[i]!)) {
      near.fill(1, Math.max(0, i - context), i + 1)
      next = i + context
    } else if (i <= next) near[i] = 1
  }
  const out: Fold<T>[] = []
  for (let i = 0; i < rows.length; i++) {
    let end = i
    while (end < rows.length && near[end] === near[i]) end++
    // A single row is no longer than the words about it.
    const folded = !near[i] && end - i > 1
    const last = out.at(-1)
    if (last && last.folded === folded) for (let j = i; j < end; j++) last.rows.push(rows[j]!)
    else out.push({folded, rows: rows.slice(i, end)})
    i = end - 1
  }
  return out
}

// signs says of the lines of the text after, by number, whether they are new (+) or in the
// place of another value of the same key (~).
export function signs(rows: readonly Row[]): Map<number, "+" | "~"> {
  const out = new Map<number, "+" | "~">()
  let removed = new Set<string>()
  for (const r of rows) {
    if (r.sign === " ") removed = new Set()
    else if (r.sign === "-") removed.add(key(r.text))
    else out.set(r.after!, removed.has(key(r.text)) ? "~" : "+")
  }
  return out
}

function key(line: string): string {
  return /^[^:#]*:/.exec(line)?.[0] ?? line
}
