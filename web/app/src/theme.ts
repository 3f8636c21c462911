// Light, dark or as the system has it. It runs before the first paint.
import {store} from "./store"

export type Theme = "system" | "light" | "dark"
const themes: Theme[] = ["system", "light", "dark"]

export function theme(): Theme {
  return themes.find(t => t === store.load("theme")) ?? "system"
}

// applyTheme shows what theme says.
export function applyTheme() {
  const t = theme()
  if (t === "system") delete document.documentElement.dataset["theme"]
  else document.documentElement.dataset["theme"] = t
}

// nextTheme goes on to the next of the three and returns it.
export function nextTheme(): Theme {
  const t = themes[(themes.indexOf(theme()) + 1) % themes.length]!
  store.save("theme", t === "system" ? undefined : t)
  applyTheme()
  return t
}

applyTheme()
