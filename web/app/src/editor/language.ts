// What the engine knows of documents while they are written: the questions of the
// editors to the same code as that of mapd lsp.
import type {Action, Completion, Diagnostic, Edit, Hover, Location, Position, Range} from "../api"
import type {Page} from "../page"
import type {Text} from "../state"

// largest is the length of a text that editors treat as YAML, in UTF-16 units. The engine
// has the same bound, in bytes.
export const largest = 1 << 20

// The milliseconds without a change before documents are checked. A check that takes long
// waits for a longer pause.
const [shortest, longest] = [400, 1500]

// An engine does one thing at a time. The check of more text than this, in UTF-16 units,
// is for the one in the background, or a key would wait for it.
const much = 40_000

// objectName is what the engine calls an object: a document may have the same name.
export const objectName = (name: string) => `objects/${name}`

// Participant is an editor of a document.
export interface Participant {
  name(): string
  text(): string
  show(found: Diagnostic[]): void
}

// Language asks for all editors of a page.
export class Language {
  private participants = new Set<Participant>()
  private timer = 0
  private checking = false
  private pause = shortest
  private changes = 0 // a number for the texts as they are now

  constructor(private page: Page) {}

  join(p: Participant): () => void {
    this.participants.add(p)
    this.changed()
    return () => void this.participants.delete(p)
  }

  // changed has the documents checked soon. What is being checked is no longer wanted.
  changed() {
    this.changes++
    clearTimeout(this.timer)
    this.timer = window.setTimeout(() => void this.check(), this.pause)
  }

  private async check() {
    if (this.checking || this.participants.size === 0) return
    this.checking = true
    const asked = this.changes, since = performance.now()
    let found = new Map<string, Diagnostic[]>()
    try {
      const question = this.question()
      const length = [...question.documents, ...question.objects].reduce((n, d) => n + d.text.length, 0)
      const engine = length > much ? this.page.background() : this.page
      found = new Map(Object.entries(await engine.call<Record<string, Diagnostic[]>>("diagnose", question)))
    } catch {
      // The page says what is wrong with the documents; without an answer, none are marked.
    } finally {
      this.checking = false
      this.pause = Math.min(Math.max(shortest, 2 * (performance.now() - since)), longest)
    }
    if (asked !== this.changes) return this.changed()
    for (const p of this.participants) p.show(found.get(p.name()) ?? [])
  }

  // question has the documents and objects as they are, without those that are too large.
  private question(): {documents: Text[]; objects: Text[]; kubernetes?: string} {
    const now = new Map([...this.participants].map(p => [p.name(), p]))
    const texts = (list: readonly Text[], called: (name: string) => string) => list
      .map(d => ({name: called(d.name), text: now.get(called(d.name))?.text() ?? d.text}))
      .filter(d => d.text.length <= largest)
    const {documents, objects, kubernetes} = this.page.state()
    return {documents: texts(documents, name => name), objects: texts(objects, objectName), kubernetes}
  }

  complete = (name: string, at: Position) => this.page.call<Completion[] | null>("complete", {...this.question(), name, ...at})
  hover = (name: string, at: Position) => this.page.call<Hover | null>("hover", {...this.question(), name, ...at})
  definition = (name: string, at: Position) => this.page.call<Location | null>("definition", {...this.question(), name, ...at})
  format = (name: string) => this.page.call<Edit[] | null>("format", {...this.question(), name})
  actions = (name: string, range: Range) => this.page.call<Action[] | null>("actions", {...this.question(), name, range})
}

const languages = new WeakMap<Page, Language>()

// languageOf returns the Language of a page, of which there is one.
export function languageOf(page: Page): Language {
  let l = languages.get(page)
  if (!l) languages.set(page, l = new Language(page))
  return l
}
