// The panes of the answer, in the order of their tabs.
import type {Pane} from "../page"
import {diff} from "./diff"
import {lint} from "./lint"
import {migrate} from "./migrate"
import {orders} from "./orders"
import {result} from "./result"
import {trace} from "./trace"
import {whynot} from "./whynot"

export const panes: Pane[] = [result, diff, trace, whynot, orders, lint, migrate]
