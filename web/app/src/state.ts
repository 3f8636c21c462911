// What the page shows and a link carries: the question to the engine. It is the
// Question of web/evaluate.go.

export interface Text {
  name: string
  text: string
}

export interface User {
  username?: string
  groups?: string[]
}

export interface State {
  documents: Text[]
  objects: Text[]
  old?: Text[]
  kubernetes?: string
  namespace?: string
  unbound?: boolean
  operation?: string
  subresource?: string
  dryRun?: boolean
  user?: User
}
