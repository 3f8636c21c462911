// Completion, documentation, definitions, formatting and quick fixes of a document. All
// of it waits for the engine beside the typing; an answer about a text that has changed
// since is dropped.
import {autocompletion, type CompletionContext, type CompletionResult} from "@codemirror/autocomplete"
import {ensureSyntaxTree, syntaxTree} from "@codemirror/language"
import {lintGutter, setDiagnostics, type Diagnostic as Mark} from "@codemirror/lint"
import {StateEffect, StateField, type ChangeSpec, type Extension, type Text} from "@codemirror/state"
import {EditorView, hoverTooltip, keymap, showPanel, showTooltip, ViewPlugin, type Panel, type Tooltip} from "@codemirror/view"
import type {Action, Diagnostic, Edit} from "../api"
import {h} from "../dom"
import type {Page} from "../page"
import {languageOf} from "./language"
import {markdown} from "./markdown"
import {offsetOf, positionOf, spanOf} from "./position"
import {isExpression, isText} from "./yaml"

// Assistant is what an editor of a document can do besides editing.
export interface Assistant {
  extension: Extension
  format(view: EditorView): Promise<void>
}

const changesOf = (doc: Text, edits: readonly Edit[]): ChangeSpec[] => edits.map(e => ({...spanOf(doc, e.range), insert: e.newText}))

const types: Record<string, string> = {field: "property", variable: "variable", function: "function", type: "type", keyword: "keyword", value: "constant"}

// begun is a line in which a key or a value of the YAML has begun.
const begun = /[\w"'/]$|(?:[:\-,]|\[) ?$/

// key is a line in which the value of an expression begins, which has no tree yet.
const key = /(?:^|[\s{,-])["']?(?:expression|messageExpression|valueExpression)["']?:\s/

// assist returns the Assistant for the document that name returns the name of.
export function assist(page: Page, name: () => string): Assistant {
  const language = languageOf(page)
  const failed = (what: string) => (err: unknown) => page.say(`${what}: ${(err as Error).message ?? err}`, "error")

  async function complete(cx: CompletionContext): Promise<CompletionResult | null> {
    const {state, pos} = cx, doc = state.doc
    if (!cx.explicit) {
      const before = doc.lineAt(pos)
      const typed = before.text.slice(0, pos - before.from)
      // The engine knows best, but need not be asked at each key.
      const tree = ensureSyntaxTree(state, pos, 20)
      const cel = !tree || isExpression(tree, pos) || key.test(typed)
      if (!(cel ? /[\w.?]$|[{,] ?$/ : begun).test(typed) || tree && isText(tree, pos)) return null
    }
    const items = await language.complete(name(), positionOf(doc, pos)).catch(() => null)
    const first = items?.[0]
    if (cx.aborted || !items || !first) return null
    const {from, to} = spanOf(doc, first.edit.range)
    return {
      from, to: Math.max(to, pos),
      validFor: /^["']?\w*$/,
      options: items.map((c, i) => ({
        label: c.label, type: types[c.kind] ?? "text", detail: c.detail, sortText: String(i).padStart(4, "0"),
        apply: c.edit.newText,
        info: c.doc ? () => markdown(c.doc!) : undefined,
      })),
    }
  }

  async function hover(view: EditorView, pos: number): Promise<Tooltip | null> {
    const doc = view.state.doc
    const found = await language.hover(name(), positionOf(doc, pos)).catch(() => null)
    if (!found || view.state.doc !== doc) return null
    const {from, to} = spanOf(doc, found.range)
    return {pos: from, end: to, above: true, create: () => ({dom: markdown(found.text)})}
  }

  function goTo(view: EditorView, pos: number): boolean {
    const doc = view.state.doc
    language.definition(name(), positionOf(doc, pos)).then(l => {
      if (view.state.doc !== doc) return
      if (l) page.reveal(l.name, l.range.start.line + 1, l.range.start.character + 1)
      else page.say("No definition: only variables have one.")
    }).catch(failed("Go to definition"))
    return true
  }

  async function format(view: EditorView): Promise<void> {
    const doc = view.state.doc
    try {
      const edits = await language.format(name())
      if (view.state.doc !== doc) return
      if (edits?.length) view.dispatch({changes: changesOf(doc, edits), userEvent: "format", scrollIntoView: true})
      page.say(edits?.length ? "Formatted." : "The expressions are formatted already.")
    } catch (err) {
      failed("Format")(err)
    }
  }

  // fix applies the action that mends a range, or asks which one.
  function fix(view: EditorView, from: number, to: number, whole = false): boolean {
    const doc = view.state.doc
    language.actions(name(), {start: positionOf(doc, from), end: positionOf(doc, to)}).then(actions => {
      if (view.state.doc !== doc) return
      const all = (actions ?? []).filter(a => a.edits.length > 0)
      const own = all.filter(a => a.diagnostic)
      if (!all.length) page.say("Nothing here that mapd can mend.")
      else if (own.length === 1 && !whole) mend(view, own[0]!)
      else view.dispatch({effects: offer.of(all)})
    }).catch(failed("Quick fix"))
    return true
  }

  // shown turns diagnostics into those of CodeMirror.
  function shown(view: EditorView, found: readonly Diagnostic[]): Mark[] {
    return found.map(d => ({
      ...spanOf(view.state.doc, d.range),
      severity: d.severity === "error" || d.severity === "warning" ? d.severity : "info",
      source: d.rule, message: d.message,
      actions: d.fixable ? [{name: "Quick fix", apply: (v: EditorView, from: number, to: number) => void fix(v, from, to)}] : undefined,
    }))
  }

  const diagnostics = ViewPlugin.define(view => {
    const leave = language.join({
      name,
      text: () => view.state.doc.toString(),
      show: found => view.dispatch(setDiagnostics(view.state, shown(view, found))),
    })
    return {update: u => u.docChanged && language.changed(), destroy: leave}
  })

  return {
    format,
    extension: [
      diagnostics,
      lintGutter(),
      autocompletion({override: [complete], maxRenderedOptions: 60}),
      hoverTooltip(hover, {hideOnChange: true}),
      documentation,
      fixes,
      EditorView.domEventHandlers({
        mousedown(e, view) {
          const pos = (e.ctrlKey || e.metaKey) && e.button === 0 && !e.altKey ? view.posAtCoords({x: e.clientX, y: e.clientY}) : null
          if (pos === null || !isExpression(syntaxTree(view.state), pos)) return false
          e.preventDefault()
          return goTo(view, pos)
        },
      }),
      keymap.of([
        {key: "F12", run: v => goTo(v, v.state.selection.main.head)},
        {key: "Mod-b", run: v => goTo(v, v.state.selection.main.head)},
        {key: "Shift-Alt-f", run: v => (void format(v), true)},
        {key: "Mod-.", run: v => {
          const {from, to} = v.state.selection.main
          return fix(v, v.state.doc.lineAt(from).from, v.state.doc.lineAt(to).to, true)
        }},
        {key: "Mod-k Mod-i", run: v => {
          void hover(v, v.state.selection.main.head).then(tip => {
            if (tip) v.dispatch({effects: [describe.of(tip), EditorView.announce.of(tip.create(v).dom.textContent!)]})
            else page.say("Nothing is known of this word.")
          })
          return true
        }},
        {key: "Escape", run: v => {
          if (!v.state.field(documentation)) return false
          v.dispatch({effects: describe.of(null)})
          return true
        }},
      ]),
    ],
  }
}

// documentation is the tooltip that was asked for by a key.
const describe = StateEffect.define<Tooltip | null>()
const documentation = StateField.define<Tooltip | null>({
  create: () => null,
  update(tip, tr) {
    for (const e of tr.effects) if (e.is(describe)) return e.value
    return tr.docChanged || tr.selection ? null : tip
  },
  provide: f => showTooltip.from(f),
})

// fixes is the list of quick fixes to choose from.
const offer = StateEffect.define<Action[] | null>()
const fixes = StateField.define<Action[] | null>({
  create: () => null,
  update(actions, tr) {
    for (const e of tr.effects) if (e.is(offer)) return e.value
    return tr.docChanged ? null : actions
  },
  provide: f => showPanel.from(f, actions => actions && (view => fixPanel(view, actions))),
})

function mend(view: EditorView, a: Action) {
  view.dispatch({changes: changesOf(view.state.doc, a.edits), effects: offer.of(null), userEvent: "fix", scrollIntoView: true})
  view.focus()
}

function fixPanel(view: EditorView, actions: readonly Action[]): Panel {
  const close = () => {
    view.dispatch({effects: offer.of(null)})
    view.focus()
  }
  const buttons = [
    ...actions.map(a => h("button", {type: "button", onclick: () => mend(view, a)}, a.title)),
    h("button", {type: "button", onclick: close}, "Close"),
  ]
  const dom = h("div", {
    class: "ed-fixes", role: "group", "aria-label": "Quick fixes",
    onkeydown(e: KeyboardEvent) {
      const i = buttons.indexOf(e.target as HTMLButtonElement), step = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[e.key]
      if (e.key === "Escape") close()
      else if (step) buttons[(i + step + buttons.length) % buttons.length]!.focus()
      else return
      e.preventDefault()
    },
  }, buttons)
  return {dom, mount: () => buttons[0]!.focus()}
}

// reach is the offset of a line and column that count from 1.
export function reach(doc: Text, line: number, column: number): number {
  return offsetOf(doc, {line: line - 1, character: column - 1})
}
