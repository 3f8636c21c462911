// The buttons of the header, in their order.
import {gallery} from "./gallery"
import type {Command} from "./page"

export const commands: Command[] = [gallery]
