// The styles of CodeMirror, under a Content-Security-Policy without inline styles.
import {EditorView} from "@codemirror/view"

// adoptStyles makes CodeMirror add its rules to the document as a constructed style sheet.
// It does that by itself in a shadow root; in a document it makes a style element, which
// the policy refuses. What it keeps for a root, under a symbol, is good for both.
export function adoptStyles(doc: Document) {
  const root = doc.createElement("div").attachShadow({mode: "open"})
  new EditorView({root, extensions: theme}).destroy()
  for (const key of Object.getOwnPropertySymbols(root)) {
    if (!(key in doc)) Object.defineProperty(doc, key, {value: (root as any)[key]})
  }
}

const mark = (color: string) => ({backgroundImage: "none", textDecoration: `underline wavy ${color}`, textDecorationSkipInk: "none"})
const sign = (text: string, color: string) => ({content: "normal", "&::before": {content: `"${text}"`, color, fontWeight: "bold"}})

// theme has the colours of editor.css, for light and dark. Pictures of CodeMirror that are
// data: URLs are replaced, as the policy refuses them too.
export const theme = EditorView.theme({
  "&": {color: "var(--ed-text)", backgroundColor: "var(--ed-back)", height: "100%", minHeight: "0"},
  "&.cm-focused": {outline: "none"},
  // Above the gutters, which would hide an outline.
  "&.cm-focused::after": {content: '""', position: "absolute", inset: "0", border: "2px solid var(--ed-focus)", pointerEvents: "none", zIndex: "300"},
  ".cm-scroller": {fontFamily: "var(--ed-font)", fontSize: "var(--ed-size)", lineHeight: "1.5", overflow: "auto"},
  ".cm-content": {caretColor: "var(--ed-cursor)", padding: "6px 0", outline: "none"},
  ".cm-cursor, .cm-dropCursor": {borderLeftColor: "var(--ed-cursor)", borderLeftWidth: "2px"},
  "& > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-content ::selection": {
    background: "var(--ed-selection)",
  },
  ".cm-activeLine": {backgroundColor: "var(--ed-line)"},
  ".cm-gutters": {backgroundColor: "var(--ed-back)", color: "var(--ed-faint)", borderRight: "1px solid var(--ed-border)"},
  ".cm-activeLineGutter": {backgroundColor: "var(--ed-line)", color: "var(--ed-text)"},
  ".cm-foldPlaceholder": {backgroundColor: "var(--ed-line)", color: "var(--ed-text)", borderColor: "var(--ed-border)"},
  "&.cm-focused .cm-matchingBracket, &.cm-focused .cm-nonmatchingBracket": {backgroundColor: "var(--ed-selection)", outline: "1px solid var(--ed-faint)"},
  ".cm-selectionMatch": {backgroundColor: "var(--ed-line)", outline: "1px solid var(--ed-border)"},
  ".cm-searchMatch": {backgroundColor: "var(--ed-match)", outline: "1px solid var(--ed-faint)"},
  ".cm-searchMatch-selected": {backgroundColor: "var(--ed-selection)"},
  ".cm-panels": {backgroundColor: "var(--ed-float)", color: "var(--ed-text)", borderColor: "var(--ed-border)"},
  ".cm-panels-top": {borderBottom: "1px solid var(--ed-border)"},
  ".cm-panels-bottom": {borderTop: "1px solid var(--ed-border)"},
  ".cm-textfield": {backgroundColor: "var(--ed-back)", color: "var(--ed-text)", border: "1px solid var(--ed-faint)", fontSize: "var(--ed-size)"},
  ".cm-button": {backgroundImage: "none", backgroundColor: "var(--ed-back)", color: "var(--ed-text)", border: "1px solid var(--ed-faint)", "&:active": {backgroundImage: "none", backgroundColor: "var(--ed-line)"}},
  ".cm-panel.cm-search [name=close], .cm-panel.cm-panel-lint [name=close]": {color: "var(--ed-text)", minWidth: "24px", minHeight: "24px"},
  ".cm-panel.cm-panel-lint ul [aria-selected], .cm-panel.cm-panel-lint ul:focus [aria-selected]": {
    backgroundColor: "var(--ed-line)", color: "inherit", outline: "1px solid var(--ed-focus)", outlineOffset: "-1px",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--ed-float)", color: "var(--ed-text)", border: "1px solid var(--ed-border)", borderRadius: "4px", boxShadow: "0 2px 8px rgb(0 0 0 / .25)",
    maxWidth: "min(36rem, 95vw)",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": {fontFamily: "var(--ed-font)", fontSize: "var(--ed-size)", maxHeight: "14em"},
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": {padding: "2px 6px", lineHeight: "1.5"},
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected], .cm-tooltip.cm-tooltip-autocomplete-disabled > ul > li[aria-selected]": {
    backgroundColor: "var(--ed-selected)", color: "var(--ed-on-selected)",
  },
  ".cm-completionDetail": {fontStyle: "normal", color: "var(--ed-faint)"},
  "li[aria-selected] .cm-completionDetail": {color: "inherit"},
  ".cm-completionIcon": {opacity: "1", color: "inherit"},
  ".cm-completionMatchedText": {fontWeight: "bold"},
  ".cm-tooltip.cm-completionInfo": {padding: "6px 10px", maxWidth: "min(28rem, 95vw)"},
  ".cm-diagnostic": {padding: "6px 8px 6px 10px"},
  ".cm-diagnostic-error": {borderLeftColor: "var(--ed-error)"},
  ".cm-diagnostic-warning": {borderLeftColor: "var(--ed-warning)"},
  ".cm-diagnostic-info": {borderLeftColor: "var(--ed-info)"},
  ".cm-diagnosticAction": {backgroundColor: "var(--ed-selected)", color: "var(--ed-on-selected)", padding: "3px 8px", font: "inherit"},
  ".cm-diagnosticSource": {opacity: "1", fontSize: "12px", color: "var(--ed-faint)"},
  ".cm-lintRange-error": mark("var(--ed-error)"),
  ".cm-lintRange-warning": mark("var(--ed-warning)"),
  ".cm-lintRange-info": mark("var(--ed-info)"),
  ".cm-lintRange-active": {backgroundColor: "var(--ed-line)"},
  ".cm-lintPoint-error::after": {borderBottomColor: "var(--ed-error)"},
  ".cm-lintPoint-warning::after": {borderBottomColor: "var(--ed-warning)"},
  ".cm-gutter-lint": {width: "1.2em"},
  ".cm-lint-marker": {textAlign: "center", lineHeight: "1"},
  ".cm-lint-marker-error": sign("✕", "var(--ed-error)"),
  ".cm-lint-marker-warning": sign("▲", "var(--ed-warning)"),
  ".cm-lint-marker-info": sign("●", "var(--ed-info)"),
})
