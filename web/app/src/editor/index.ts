// The editors of the page.
import {acceptCompletion, closeBrackets, closeBracketsKeymap, completionKeymap, completionStatus} from "@codemirror/autocomplete"
import {defaultKeymap, history, historyKeymap, indentLess, indentMore} from "@codemirror/commands"
import {bracketMatching, codeFolding, foldGutter, foldKeymap, indentOnInput, indentUnit, syntaxHighlighting} from "@codemirror/language"
import {lintKeymap} from "@codemirror/lint"
import {highlightSelectionMatches, search, searchKeymap} from "@codemirror/search"
import {Annotation, Compartment, EditorState, StateEffect, StateField, type Extension} from "@codemirror/state"
import {drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers, rectangularSelection, showPanel} from "@codemirror/view"
import {h} from "../dom"
import type {Page} from "../page"
import {assist, reach} from "./assist"
import {largest} from "./language"
import {adoptStyles, theme} from "./styles"
import {highlighter, yaml} from "./yaml"

export interface EditorOptions {
  language: "yaml"
  label: string // the accessible name
  text: string
  page: Page
  // document returns what the engine calls the text now; absent for what it is not asked about.
  document?: () => string
  policies?: boolean // the text may have policies, and so expressions
  onChange(text: string): void // what the user typed; not called for setText
}

export interface Editor {
  // setText replaces the text; undo brings the old one back.
  setText(text: string): void
  // reveal puts the cursor at a place, counted from 1, shows it and takes the focus.
  reveal(line: number, column?: number): void
  focus(): void
  destroy(): void
  // format formats the text, if the editor can.
  format?(): Promise<void>
}

const outside = Annotation.define<boolean>() // a change that the user did not make here

// typing says that somebody writes in the editor. Until then, and again after Escape, the key
// Tab goes on to what is next in the page: whoever passes an editor does not change its text.
const typing = StateEffect.define<boolean>()
const types = StateField.define<boolean>({
  create: () => false,
  update(is, tr) {
    for (const e of tr.effects) if (e.is(typing)) return e.value
    return is || tr.isUserEvent("input.type") || tr.isUserEvent("input.paste") || tr.isUserEvent("delete")
  },
})
const stop = (v: EditorView) => v.dispatch({effects: typing.of(false)})
const tabs: Extension = [
  types,
  EditorView.domEventHandlers({
    focus(_, v) {
      // Not while the editor handles the event.
      if (v.state.field(types)) queueMicrotask(() => stop(v))
    },
  }),
  keymap.of([
    {key: "Tab", run: v => v.state.field(types) && indentMore(v), shift: v => v.state.field(types) && indentLess(v)},
    {key: "Escape", run: v => {
      if (!v.state.field(types)) return false
      v.dispatch({effects: [typing.of(false), EditorView.announce.of("Tab leaves the editor")]})
      return true
    }},
  ]),
]

// common are the parts of every editor.
const common: Extension = [
  highlightActiveLine(), highlightActiveLineGutter(), drawSelection(), rectangularSelection(),
  history(), search({top: true}), EditorState.allowMultipleSelections.of(true), EditorState.tabSize.of(2), indentUnit.of("  "), theme,
  keymap.of([
    {key: "Tab", run: v => acceptCompletion(v) || completionStatus(v.state) === "active"}, ...closeBracketsKeymap, ...completionKeymap, ...lintKeymap, ...searchKeymap, ...foldKeymap,
    ...historyKeymap, ...defaultKeymap,
  ]),
  tabs,
]

// rich are those of texts that are not too large for them.
const rich: Extension = [
  syntaxHighlighting(highlighter), bracketMatching(), closeBrackets(), indentOnInput(), codeFolding(), foldGutter(), highlightSelectionMatches({minSelectionLength: 2}),
]

const note = "This text is over 1 MiB. It is shown without colours, completion and diagnostics."
const plain: Extension = showPanel.of(() => ({dom: h("div", {class: "ed-note", role: "note"}, note)}))

let adopted = false

// createEditor appends an editor to parent, which it fills.
export function createEditor(parent: HTMLElement, options: EditorOptions): Editor {
  if (!adopted) adoptStyles(document)
  adopted = true
  const assistant = options.document && assist(options.page, options.document)
  const full: Extension = [yaml(!!options.policies), rich, assistant?.extension ?? []]
  const size = new Compartment()
  const isLarge = (length: number) => length > largest

  let late = 0
  const tell = () => {
    clearTimeout(late)
    late = 0
    options.onChange(view.state.doc.toString())
  }
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: options.text,
      extensions: [
        lineNumbers(),
        size.of(isLarge(options.text.length) ? plain : full),
        common,
        EditorView.contentAttributes.of({"aria-label": options.label, tabindex: "0", autocapitalize: "off", autocorrect: "off", spellcheck: "false"}),
        EditorState.transactionExtender.of(tr => {
          const now = tr.docChanged && isLarge(tr.newDoc.length)
          return tr.docChanged && now !== isLarge(tr.startState.doc.length) ? {effects: size.reconfigure(now ? plain : full)} : null
        }),
        EditorView.updateListener.of(u => {
          if (!u.docChanged || u.transactions.every(tr => !tr.docChanged || tr.annotation(outside))) return
          // To copy a large text at each key would be felt.
          if (!isLarge(u.state.doc.length)) tell()
          else if (!late) late = window.setTimeout(tell, 500)
        }),
      ],
    }),
  })

  return {
    setText(text) {
      const old = view.state.doc.toString()
      const next = text.replace(/\r\n?/g, "\n")
      if (old === next) return
      // Only what differs is replaced, so that the cursor stays where it is.
      let from = 0, end = 0
      const most = Math.min(old.length, next.length)
      while (from < most && old.charCodeAt(from) === next.charCodeAt(from)) from++
      while (end < most - from && old.charCodeAt(old.length - 1 - end) === next.charCodeAt(next.length - 1 - end)) end++
      view.dispatch({changes: {from, to: old.length - end, insert: next.slice(from, next.length - end)}, annotations: outside.of(true), userEvent: "input.set"})
    },
    reveal(line, column = 1) {
      const at = reach(view.state.doc, line, column)
      view.focus()
      view.dispatch({selection: {anchor: at}, effects: EditorView.scrollIntoView(at, {y: "center"})})
    },
    focus: () => view.focus(),
    destroy() {
      clearTimeout(late)
      view.destroy()
    },
    format: options.policies && assistant ? () => assistant.format(view) : undefined,
  }
}
