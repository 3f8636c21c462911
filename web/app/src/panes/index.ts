// The panes of the answer, in the order of their tabs.
import type {Pane} from "../page"
import {diff} from "./diff"
import {result} from "./result"

export const panes: Pane[] = [result, diff]
