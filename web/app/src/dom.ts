// How the page builds its elements: data becomes text or an attribute, never markup.

type Attribute = string | number | boolean | undefined | ((e: any) => void)
type Child = Node | string | number | false | null | undefined | Child[]

// h returns a new element. An attribute that is true is set empty, one that is false or
// undefined is left out, one whose name is "on" and an event is a listener. There is no
// style attribute, which the page's Content-Security-Policy refuses: use a class.
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes?: Record<string, Attribute> | null, ...children: Child[]): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") e.addEventListener(name.slice(2), value)
    else if (value !== undefined && value !== false) e.setAttribute(name, value === true ? "" : String(value))
  }
  add(e, children)
  return e
}

function add(e: HTMLElement, children: Child[]) {
  for (const c of children) {
    if (Array.isArray(c)) add(e, c)
    else if (c || c === 0 || c === "") e.append(c instanceof Node ? c : String(c))
  }
}
