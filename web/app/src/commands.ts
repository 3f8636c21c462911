// The buttons of the header, in their order.
import type {Command} from "./page"

export const commands: Command[] = []
