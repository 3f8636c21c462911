// What the parts of the page know of each other.
import type {Answer, EvaluateQuestion, Fault} from "./api"
import type {Engine} from "./engine"
import type {State} from "./state"

// A Turn is one question and its answer. Numbers grow.
export interface Turn {
  number: number
  pane: string // the ID of the one that it was asked for
  state: State
  answer: Answer
  // old is set if state and answer are those of an earlier question, since the texts as they are
  // now have errors. Nobody may take it for the answer: it is not copied, shared or exported.
  old?: {errors: readonly Fault[]}
}

// Needs are what a pane shows of an answer, and all that it is asked for.
export type Needs = Pick<EvaluateQuestion, "only" | "trace" | "whyNot">

// A Pane is a tab beside the result. It does nothing while it is hidden: show is called
// when the pane becomes visible, and with each Turn while it is.
export interface Pane {
  id: string // tab-ID and pane-ID are the elements
  title: string
  help: string // which question it answers
  // needs are not there if the pane asks by itself: then it shows no results, but is told of
  // each Turn, also of one that was asked for another pane.
  needs?: Needs
  mount(root: HTMLElement, page: Page): void
  show(turn: Turn): void
}

// Before is what a page showed before it loaded something else.
export interface Before {
  own: boolean // somebody wrote it here
  restore(): void
}

// A Page is what panes, editors and commands may use.
export interface Page {
  state(): State
  // change sets fields of the state, shows them in the editors and asks the engine
  // again. The latest change wins.
  change(next: Partial<State>): void
  // load replaces the whole state: by what the address names, or by the user's own, which
  // the browser keeps. What was written before stays a piece of work of its own.
  load(state: State, own?: "own"): Before
  // open goes on with a piece of work.
  open(piece: string): void
  // untouched reports whether the state is the example of a first visit.
  untouched(): boolean
  // call asks the engine that evaluates.
  call<T>(method: string, params: unknown): Promise<T>
  // background is an engine for long work, which is started when first used.
  background(): Engine
  // reveal selects the tab of a document, or else of an object, and moves the editor; lines
  // and columns count from 1.
  reveal(document: string, line: number, column?: number): void
  // say shows a short text to the user, with a button if there is something to do.
  say(text: string, error?: "error", action?: {title: string; run(): void}): void
  // region shows a region where there is no room for all, and moves the focus there if it
  // is to.
  region(name: "documents" | "request" | "answer", focus?: boolean): void
}

// A Command is a button of the header.
export interface Command {
  id: string // of the button
  title: string // what it says
  help: string // what it does
  key?: string // such as "Ctrl+S" or "Alt+Shift+F"; Ctrl is Command on a Mac too
  look?: "primary" | "quiet" // how loud the button is among the others
  label?: string // what a screen reader says instead of title
  run(page: Page): void | Promise<void>
}
