// The little Markdown that documentation has: paragraphs, lists, code.
import {h} from "../dom"

// inline returns a line with code in backquotes.
function inline(text: string): Node[] {
  return text.split(/`([^`]+)`/).map((part, i) => i % 2 ? h("code", null, part) : document.createTextNode(part))
}

// most is how much of a text is shown; a CustomResourceDefinition may describe a field at any length.
const most = 10_000

// markdown returns an element with a text.
export function markdown(text: string): HTMLElement {
  if (text.length > most) text = text.slice(0, most) + "…"
  const root = h("div", {class: "ed-doc"})
  for (const [i, part] of text.split(/^```[^\n]*\n?/m).entries()) {
    if (i % 2) {
      root.append(h("pre", null, h("code", null, part.trimEnd())))
      continue
    }
    for (const block of part.split(/\n\s*\n/)) {
      const lines = block.trim().split("\n")
      if (lines.every(l => /^[-*] /.test(l))) root.append(h("ul", null, lines.map(l => h("li", null, inline(l.slice(2))))))
      else if (block.trim()) root.append(h("p", null, inline(lines.join(" "))))
    }
  }
  return root
}
