// Separators between regions: dragged, or moved with the arrow keys.
import {h} from "./dom"
import {store} from "./store"

const least = 15, most = 85 // per cent

// separator returns a separator inside main that sets a variable of main, in per cent.
export function separator(main: HTMLElement, name: "columns" | "rows", label: string, controls: string): HTMLElement {
  const columns = name === "columns"
  const initial = columns ? 50 : 55
  let at = 0
  const element = h("div", {
    class: "separator", role: "separator", tabindex: 0, "aria-label": label, "aria-controls": controls,
    "aria-orientation": columns ? "vertical" : "horizontal", "aria-valuemin": least, "aria-valuemax": most,
    ondblclick: () => set(initial),
    onkeydown: (e: KeyboardEvent) => {
      const to = {ArrowLeft: at - 2, ArrowUp: at - 2, ArrowRight: at + 2, ArrowDown: at + 2, Home: least, End: most, Enter: initial}[e.key]
      if (to === undefined || (columns ? /Up|Down/ : /Left|Right/).test(e.key)) return
      e.preventDefault()
      set(to)
    },
    onpointerdown: (e: PointerEvent) => {
      element.setPointerCapture(e.pointerId)
      e.preventDefault()
      element.focus()
    },
    onpointermove: (e: PointerEvent) => {
      if (!element.hasPointerCapture(e.pointerId)) return
      const r = main.getBoundingClientRect()
      set(100 * (columns ? (e.clientX - r.left) / r.width : (e.clientY - r.top) / r.height))
    },
  })
  function set(to: number) {
    at = Math.round(Math.min(Math.max(to, least), most))
    main.style.setProperty(`--${name}`, `${at}%`)
    element.setAttribute("aria-valuenow", String(at))
    store.save(`split-${name}`, at === initial ? undefined : String(at))
  }
  const kept = store.load(`split-${name}`)
  set(kept && Number.isFinite(Number(kept)) ? Number(kept) : initial)
  return element
}
