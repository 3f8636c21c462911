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

// nextTheme goes on to the next of the three and returns it. Behind the theme of the system
// comes the other one, so that something is seen to change.
export function nextTheme(): Theme {
  const system: Theme[] = matchMedia("(prefers-color-scheme: dark)").matches ? ["system", "light", "dark"] : ["system", "dark", "light"]
  const t = system[(system.indexOf(theme()) + 1) % system.length]!
  store.save("theme", t === "system" ? undefined : t)
  applyTheme()
  return t
}

applyTheme()
