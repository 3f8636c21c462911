// What the browser keeps for this page. A browser may refuse, then nothing is kept.

export interface Store {
  // keys returns the keys that begin with a prefix.
  keys(prefix: string): string[]
  load(key: string): string | null
  // save keeps a text; undefined removes what is kept. It reports whether that was done.
  save(key: string, text: string | undefined): boolean
}

const own = "mapd:"

export const store: Store = {
  keys(prefix) {
    try {
      return Object.keys(localStorage).filter(k => k.startsWith(own + prefix)).map(k => k.slice(own.length))
    } catch {
      return []
    }
  },
  load(key) {
    try {
      return localStorage.getItem(own + key)
    } catch {
      return null
    }
  },
  save(key, text) {
    try {
      if (text === undefined) localStorage.removeItem(own + key)
      else localStorage.setItem(own + key, text)
      return true
    } catch { // full or refused
      return false
    }
  },
}
