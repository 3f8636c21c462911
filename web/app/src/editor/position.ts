// Places in a text as the engine counts them, lines and UTF-16 units from 0 on, and as
// CodeMirror does: units from the beginning, a line break is one.
import type {Text} from "@codemirror/state"
import type {Position, Range} from "../api"

// positionOf is the place of an offset.
export function positionOf(doc: Text, offset: number): Position {
  const line = doc.lineAt(Math.max(0, Math.min(offset, doc.length)))
  return {line: line.number - 1, character: Math.max(0, Math.min(offset, doc.length) - line.from)}
}

// offsetOf is the offset of a place. One that the text does not have is the end of its
// line, or of the text.
export function offsetOf(doc: Text, p: Position): number {
  if (p.line >= doc.lines) return doc.length
  if (p.line < 0) return 0
  const line = doc.line(p.line + 1)
  return Math.min(line.from + Math.max(0, p.character), line.to)
}

// spanOf is a range as offsets, never one that ends before it begins.
export function spanOf(doc: Text, r: Range): {from: number; to: number} {
  const from = offsetOf(doc, r.start)
  return {from, to: Math.max(from, offsetOf(doc, r.end))}
}
