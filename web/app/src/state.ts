// What the page shows and a link carries: the question to the engine.
import type {Question} from "./api"

export type {Text, UserInfo as User} from "./api"

export type State = Question
