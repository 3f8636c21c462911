// The types of web/evaluate.go.

export interface Answer {
  errors?: Fault[]
  notes?: string[]
  results?: Result[]
}

export interface Fault {
  file?: string
  document?: number
  line?: number
  column?: number
  message: string
}

export interface Result {
  name?: string
  error?: Fault
  verdict?: string
  refusal?: string
  text?: string
  patch?: unknown[]
  diff?: unknown[]
  steps?: Step[]
  summary?: string
  filledIn?: string[]
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
