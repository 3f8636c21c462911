import assert from "node:assert/strict"
import test from "node:test"
import {Text} from "@codemirror/state"
import {offsetOf, positionOf, spanOf} from "../src/editor/position"

const doc = Text.of(["aé😀b", "", "xyz"])

test("places and offsets are each other's inverse", () => {
  for (let at = 0; at <= doc.length; at++) assert.equal(offsetOf(doc, positionOf(doc, at)), at)
  assert.deepEqual(positionOf(doc, 4), {line: 0, character: 4}) // an emoji is two units
  assert.deepEqual(positionOf(doc, 6), {line: 1, character: 0})
})

test("places that the text does not have", () => {
  assert.equal(offsetOf(doc, {line: 0, character: 99}), 5)
  assert.equal(offsetOf(doc, {line: 1, character: 1}), 6)
  assert.equal(offsetOf(doc, {line: 9, character: 0}), doc.length)
  assert.equal(offsetOf(doc, {line: -1, character: 3}), 0)
  assert.deepEqual(positionOf(doc, 99), {line: 2, character: 3})
  assert.deepEqual(positionOf(doc, -1), {line: 0, character: 0})
  assert.deepEqual(spanOf(doc, {start: {line: 2, character: 2}, end: {line: 2, character: 0}}), {from: 9, to: 9})
})
