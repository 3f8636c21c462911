// The buttons of the header, in their order.
import {example} from "./example"
import {exporting, importing, share} from "./exchange"
import {gallery} from "./gallery"
import type {Command} from "./page"
import {nextTheme, theme} from "./theme"

const themes = {system: "Theme: system", light: "Theme: light", dark: "Theme: dark"}

const reset: Command = {
  id: "reset", title: "Reset", help: "Forget what is here, and begin with the example",
  run(page) {
    const before = page.state()
    page.load(example, "own")
    page.say("Began anew", undefined, {title: "Undo", run: () => page.load(before, "own")})
  },
}

const changeTheme: Command = {
  id: "theme", title: themes[theme()], help: "Go on to the next of light, dark and the theme of the system", key: "Alt+T",
  run() {
    document.getElementById("theme")!.textContent = themes[nextTheme()]
  },
}

export const commands: Command[] = [gallery, importing, exporting, share, reset, changeTheme]
