// YAML with CEL inside: the values of expression, messageExpression and valueExpression
// are coloured and indented as CEL.
import {indentNodeProp, indentService, LanguageSupport, syntaxTree, type TreeIndentContext} from "@codemirror/language"
import {yamlLanguage} from "@codemirror/lang-yaml"
import {
  NodeSet, NodeType, Parser, parseMixed, Tree, type Input, type NestedParse, type PartialParse, type SyntaxNode, type SyntaxNodeRef, type TreeFragment,
} from "@lezer/common"
import {styleTags, tagHighlighter, tags as t} from "@lezer/highlight"
import {tokenize, type Kind} from "./cel"

const kinds: Kind[] = ["keyword", "atom", "number", "string", "comment", "name", "property", "call", "type", "operator", "bracket", "invalid"]

const top = NodeType.define({
  id: 0, name: "CEL", top: true,
  props: [[indentNodeProp, (cx: TreeIndentContext) => {
    // As the line before, deeper behind an opening bracket and less before a closing one.
    const before = cx.lineAt(cx.pos, -1), indent = cx.lineIndent(cx.pos, -1)
    if (/[([{]\s*$/.test(before.text)) return indent + cx.unit
    return /^\s*[)\]}]/.test(cx.textAfter) ? Math.max(0, indent - cx.unit) : indent
  }]],
})

const nodes = new NodeSet([top, ...kinds.map((name, i) => NodeType.define({id: i + 1, name}))]).extend(styleTags({
  keyword: t.operatorKeyword, atom: t.atom, number: t.number, string: t.string, comment: t.lineComment,
  name: t.variableName, property: t.propertyName, call: t.function(t.variableName), type: t.typeName,
  operator: t.operator, bracket: t.bracket, invalid: t.invalid,
}))

// CEL reads an expression at once: they are short.
class CEL extends Parser {
  createParse(input: Input, _: readonly TreeFragment[], ranges: readonly {from: number; to: number}[]): PartialParse {
    const from = ranges[0]!.from, to = ranges.at(-1)!.to
    return {
      parsedPos: to,
      stoppedAt: null,
      stopAt() {},
      advance() {
        const text = ranges.map(r => input.read(r.from, r.to)).join("")
        // Where the parts of text are in the document, for the token at hand and on.
        let part = 0, begin = 0
        const place = (at: number, end: boolean) => {
          for (;;) {
            const r = ranges[part]!, length = r.to - r.from
            if (part === ranges.length - 1 || at < begin + length || end && at === begin + length) return r.from + at - begin - from
            begin += length
            part++
          }
        }
        const buffer: number[] = []
        for (const k of tokenize(text)) buffer.push(kinds.indexOf(k.kind) + 1, place(k.from, false), place(k.to, true), 4)
        return Tree.build({buffer, nodeSet: nodes, topID: 0, length: to - from})
      },
    }
  }
}

const cel = new CEL()
const keys = new Set(["expression", "messageExpression", "valueExpression"])

// expressionAt returns how a scalar is read as CEL, null if it is not.
function expressionAt(ref: SyntaxNodeRef, input: Input): NestedParse | null {
  if (ref.name !== "BlockLiteralContent" && ref.name !== "Literal" && ref.name !== "QuotedLiteral" || ref.from === ref.to) return null
  let node: SyntaxNode | null = ref.node.parent
  while (node && (node.name === "BlockLiteral" || node.name === "Tagged" || node.name === "Anchored")) node = node.parent
  const key = node?.name === "Pair" ? node.getChild("Key") : null
  if (!key || key.to - key.from > 20 || !keys.has(input.read(key.from, key.to).replace(/["']/g, ""))) return null
  if (ref.name !== "QuotedLiteral") return {parser: cel}
  const ranges = unquoted(input.read(ref.from, ref.to), ref.from)
  return ranges.length > 0 ? {parser: cel, overlay: ranges} : null
}

// unquoted returns where the text of a quoted scalar is: between the quotes, without the
// characters that only escape the next one.
export function unquoted(text: string, at: number): {from: number; to: number}[] {
  const quote = text[0], end = text.length > 1 && text.endsWith(quote!) ? text.length - 1 : text.length
  const out: {from: number; to: number}[] = []
  let from = 1
  const cut = (to: number, next: number) => {
    if (to > from) out.push({from: at + from, to: at + to})
    from = next
  }
  for (let i = 1; i < end - 1; i++) {
    const both = text.slice(i, i + 2)
    if (quote === '"' && (both === '\\"' || both === "\\\\" || both === "\\/") || quote === "'" && both === "''") cut(i, i + 1)
    if (both[0] === "\\" && quote === '"' || both === "''" && quote === "'") i++
  }
  cut(end, end)
  return out
}

const yamlWithCEL = yamlLanguage.configure({wrap: parseMixed(expressionAt)})

// below returns the column of what follows a line of YAML in block style, undefined if the
// line does not say: behind a key without a value one level deeper, in an element of a list
// below its first key.
export function below(line: string, unit: number): number | undefined {
  const [, dashes, key] = /^((?:[ ]*-(?=[ ]))*[ ]*)((?:"[^"]*"|'(?:[^']|'')*'|[^\s#"'[{&*!|>%@`,-][^#[{]*?):(?=[ ]|$))?/.exec(line)!
  if (!key) return undefined
  const column = dashes!.length, value = line.slice(column + key.length)
  if (/^[ \t]*(?:#.*)?$/.test(value)) return column + unit
  return dashes!.includes("-") && /^[ ]+[^\s|>&!#]/.test(value) && !/[[{,]\s*$/.test(value) ? column : undefined
}

// indentation is that of lines below a key, which the tree does not have while nothing is there.
const indentation = indentService.of((cx, pos) => {
  const tree = syntaxTree(cx.state), before = cx.lineAt(pos, -1)
  for (let n: SyntaxNode | null = tree.resolveInner(Math.min(before.from + before.text.search(/\S|$/), pos), 1); n; n = n.parent) {
    if (n.type === top || /^(?:BlockLiteral|Flow|QuotedLiteral|Comment)/.test(n.name)) return undefined
  }
  // What is there already, such as the dash of a list, may stay as deep as its key.
  return below(before.text.slice(0, Math.max(0, pos - before.from)), cx.unit)
})

// yaml is YAML as a language for an editor, with CEL inside if the text may be a policy.
export function yaml(withCEL: boolean): LanguageSupport {
  return new LanguageSupport(withCEL ? yamlWithCEL : yamlLanguage, indentation)
}

// isExpression reports whether an offset is in an expression, by the tree as far as it
// has been read.
export function isExpression(tree: Tree, at: number): boolean {
  for (const side of [-1, 1] as const) {
    for (let n: SyntaxNode | null = tree.resolveInner(at, side); n; n = n.parent) if (n.type === top) return true
  }
  return false
}

// isText reports whether an offset is in a string of an expression or in a comment, where
// there is nothing to complete.
export function isText(tree: Tree, at: number): boolean {
  const n = tree.resolveInner(at, -1)
  return n.name === "Comment" || (n.name === "string" || n.name === "comment") && n.parent?.type === top
}

// highlighter gives each token a class, see editor.css.
export const highlighter = tagHighlighter([
  {tag: [t.operatorKeyword, t.keyword], class: "tok-keyword"},
  {tag: [t.atom, t.bool, t.null, t.labelName], class: "tok-atom"},
  {tag: t.number, class: "tok-number"},
  {tag: t.string, class: "tok-string"},
  {tag: t.comment, class: "tok-comment"},
  {tag: t.function(t.variableName), class: "tok-call"},
  {tag: t.typeName, class: "tok-type"},
  {tag: t.definition(t.propertyName), class: "tok-key"},
  {tag: t.propertyName, class: "tok-property"},
  {tag: t.variableName, class: "tok-name"},
  {tag: [t.operator, t.separator, t.punctuation, t.bracket, t.squareBracket, t.brace], class: "tok-sign"},
  {tag: [t.meta, t.special(t.string)], class: "tok-meta"},
  {tag: t.invalid, class: "tok-invalid"},
])

