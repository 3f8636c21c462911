// The buttons of the header, in their order.
import {example} from "./example"
import {exporting, importing, share} from "./exchange"
import {gallery} from "./gallery"
import type {Command} from "./page"
import {nextTheme, theme} from "./theme"
import {mine} from "./mine"

const themes = {system: "Auto", light: "Light", dark: "Dark"}
const themeLabel = () => `Theme: ${themes[theme()]}`

const reset: Command = {
  id: "reset", title: "Reset", look: "quiet", help: "Begin anew with the example; what is here stays among your work",
  run(page) {
    const before = page.load(example, "own")
    page.say("Began anew", undefined, {title: "Undo", run: before.restore})
  },
}

const changeTheme: Command = {
  id: "theme", title: themes[theme()], label: themeLabel(), look: "quiet", help: "Go on to the next of light, dark and the theme of the system", key: "Alt+T",
  run() {
    const button = document.getElementById("theme")!
    button.textContent = themes[nextTheme()]
    button.setAttribute("aria-label", themeLabel())
  },
}

export const commands: Command[] = [gallery, share, mine, importing, exporting, reset, changeTheme]
