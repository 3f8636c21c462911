// What the browser keeps for this page. A browser may refuse, then nothing is kept.

export function load(key: string): string | null {
  try {
    return localStorage.getItem(`mapd:${key}`)
  } catch {
    return null
  }
}

// save keeps a text; undefined removes what is kept.
export function save(key: string, text: string | undefined) {
  try {
    if (text === undefined) localStorage.removeItem(`mapd:${key}`)
    else localStorage.setItem(`mapd:${key}`, text)
  } catch { // full or refused
  }
}
