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

// sync gives an element other children. Those that it has already stay where they are, so
// that nothing is laid out and painted again, and no selection and no focus is lost.
export function sync(e: Node, children: readonly Node[]) {
  const wanted = new Set(children)
  let at = e.firstChild
  const drop = () => {
    while (at && !wanted.has(at)) {
      const next = at.nextSibling
      at.remove()
      at = next
    }
  }
  for (const c of children) {
    drop()
    if (c === at) at = at.nextSibling
    else e.insertBefore(c, at)
  }
  drop()
}

// A Cache makes elements, and returns those of the last time for what is the same.
export class Cache<E extends Node> {
  private last = new Map<string, E[]>()
  private now = new Map<string, E[]>()

  // next begins another time.
  next() {
    this.last = this.now
    this.now = new Map()
  }

  // make returns an element for a key, which says all that the element depends on.
  make(key: string, build: () => E): E {
    const e = this.last.get(key)?.pop() ?? build()
    const list = this.now.get(key)
    if (list) list.unshift(e) // so that pop returns them in their order
    else this.now.set(key, [e])
    return e
  }
}

function add(e: HTMLElement, children: Child[]) {
  for (const c of children) {
    if (Array.isArray(c)) add(e, c)
    else if (c || c === 0 || c === "") e.append(c instanceof Node ? c : String(c))
  }
}
