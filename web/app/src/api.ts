// The types of web/api.go, written by `go generate ./web`.

// Methods are those of the engine.
export interface Methods {
  actions: {params: RangeQuestion; answer: Action[]}
  complete: {params: PositionQuestion; answer: Completion[]}
  definition: {params: PositionQuestion; answer: Location | null}
  diagnose: {params: LanguageQuestion; answer: Record<string, Diagnostic[]>}
  evaluate: {params: EvaluateQuestion; answer: Answer}
  format: {params: DocumentQuestion; answer: Edit[]}
  hover: {params: PositionQuestion; answer: Hover | null}
  migrate: {params: MigrateQuestion; answer: MigrateAnswer}
  orders: {params: OrdersQuestion; answer: OrdersAnswer}
  suite: {params: Question; answer: SuiteAnswer}
  verify: {params: VerifyQuestion; answer: VerifyAnswer}
}

export interface Action {
  title: string
  diagnostic?: Diagnostic
  edits: Edit[]
}

export interface Answer {
  errors?: Fault[]
  leftOut?: string[]
  notes?: string[]
  unbound?: string[]
  results?: Result[]
  limits?: Limits
}

export interface Change {
  path: string
  before: unknown
  after: unknown
  moved?: boolean
}

export interface Comparison extends VerifyComparison {
  unexpected: boolean
  summary: string
  text?: string
}

export interface Completion {
  label: string
  kind: string
  detail?: string
  doc?: string
  edit: Edit
}

export interface Diagnostic {
  range: Range
  severity: string
  rule: string
  message: string
  fixable?: boolean
}

export interface Disagreement {
  origin: string
  operation: string
  object: Record<string, unknown>
  oldObject?: Record<string, unknown>
  namespace?: Record<string, unknown>
  user?: string
  gatekeeper: VerifyResult
  native: VerifyResult
}

export interface DocumentQuestion extends LanguageQuestion {
  name: string
}

export interface Edit {
  range: Range
  newText: string
}

export interface Entry {
  name: string
  verdict: string
  notes?: string[]
  file?: string
  policy?: string
  with?: string[]
}

export interface EvaluateQuestion extends Question {
  trace?: boolean
  whyNot?: boolean
  only?: string[]
}

export interface Evaluation {
  name: string
  reads?: Read[]
  leftOut?: number
  result: Excerpt
  cost: number
}

export type Excerpt = {value?: unknown; text?: string; error?: string; hidden?: boolean; cut?: boolean}

export interface Fault {
  file?: string
  document?: number
  line?: number
  column?: number
  message: string
}

export interface Hover {
  range: Range
  text: string
}

export interface LanguageQuestion {
  documents: Text[]
  objects?: Text[]
  kubernetes?: string
}

export interface Limits {
  expression: number
  mutation: number
  conditions: number
}

export interface Line {
  line: number
  last: number
  path: string
  stage: string
  policy: string
  binding?: string
  param?: string
  mutation: number
}

export interface Location {
  name: string
  range: Range
}

export interface MigrateAnswer {
  errors?: Fault[]
  entries?: Entry[]
  notes?: string[]
  summary?: string
  files?: Text[]
}

export interface MigrateQuestion {
  documents: Text[]
}

export type Op = {op: string; path: string; from?: string; value?: unknown}

export interface OrderDifference {
  kind: string
  policies?: string[]
  other?: string[]
  changes?: Change[]
  denied?: string[]
  next?: string
  text: string
}

export interface Orders {
  name?: string
  error?: Fault
  policies: number
  touching: number
  run: number
  of: string
  whole: boolean
  summary: string
  differences?: OrderDifference[]
}

export interface OrdersAnswer {
  errors?: Fault[]
  objects?: Orders[]
}

export interface OrdersQuestion {
  question: Question
  limit?: number
}

export interface Position {
  line: number
  character: number
}

export interface PositionQuestion extends DocumentQuestion, Position {
}

export interface Question {
  documents: Text[]
  objects: Text[]
  kubernetes?: string
  namespace?: string
  unbound?: boolean
  old?: Text[]
  operation?: string
  subresource?: string
  dryRun?: boolean
  user?: UserInfo
}

export interface Range {
  start: Position
  end: Position
}

export interface RangeQuestion extends DocumentQuestion {
  range: Range
}

export interface Read {
  text: string
  values: Excerpt[]
  leftOut?: number
}

export interface Reason {
  stage: string
  policy: string
  binding?: string
  field?: string
  text: string
  near: boolean
  excepted?: boolean
  exception?: string
  generated?: boolean
}

export interface Result {
  name?: string
  error?: Fault
  verdict?: string
  refusal?: string
  text?: string
  lines?: Line[]
  removed?: string[]
  patch?: Op[]
  diff?: Change[]
  steps?: Step[]
  summary?: string
  filledIn?: string[]
  defaults?: string[]
  missing?: string[]
  warnings?: string[]
  trace?: Traced[]
  whyNot?: Reason[]
}

export interface Step {
  stage: string
  policy: string
  binding?: string
  param?: string
  mutation: number
  outcome: string
  paths?: string[]
  reason?: string
  error?: string
  cost?: number
}

export interface SuiteAnswer {
  errors?: Fault[]
  files?: Text[]
}

export interface Text {
  name: string
  text: string
  ref?: number
}

export interface Trace {
  evaluations: Evaluation[]
  leftOut?: number
}

export interface Traced {
  mode?: string
  stage: string
  round: number
  policy: string
  binding?: string
  param?: string
  mutation?: number
  type?: string
  outcome: string
  reason?: string
  error?: string
  ignored?: boolean
  changed?: string[]
  cost: number
  conditionCost?: number
  conditions?: Trace
  trace?: Trace
}

export interface UserInfo {
  username?: string
  uid?: string
  groups?: string[]
  extra?: Record<string, string[]>
}

export interface VerifyAnswer {
  errors?: Fault[]
  seed: number
  count: number
  comparisons?: Comparison[]
}

export interface VerifyComparison {
  name: string
  mutators: string[]
  known?: boolean
  objects: number
  agreements: number
  changed: number
  refused: number
  notAllowed: number
  first?: Disagreement
  invalid?: string
}

export interface VerifyQuestion {
  documents: Text[]
  seed?: number
  count?: number
}

export interface VerifyResult {
  refused?: string
  object?: Record<string, unknown>
}
