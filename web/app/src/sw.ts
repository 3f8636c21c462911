// The service worker: it keeps the files of one build of the site, so that the page
// works without a network, and serves them until a newer build takes their place.

export {}
declare const VERSION: string
declare const FILES: string[]
declare const LATER: string[] // are kept when they are first used
declare const PROGRAM: {name: string; sum: string} // the largest of FILES, and its SHA-256
const sw = self as unknown as ServiceWorkerGlobalScope
// Other folders of the same host may have a playground, of another version.
const mine = `mapd ${sw.registration.scope} `
const name = mine + VERSION
const urls = (names: string[]) => new Set(names.map(f => new URL(f, sw.registration.scope).href))
const files = urls(FILES)
const later = urls(LATER)

// What the page has fetched a moment ago is asked for again only if it has changed. The page
// hands the program over, since a private window does not keep it.
sw.oninstall = e => e.waitUntil((async () => {
  const cache = await caches.open(name)
  const program = new URL(PROGRAM.name, sw.registration.scope).href
  const given = await handed(program)
  if (given) await cache.put(program, given)
  await cache.addAll([...files].filter(f => !given || f !== program).map(f => new Request(f, {cache: "no-cache"})))
})())

// handed returns the program that the page has handed over, if it is that of this build.
async function handed(program: string): Promise<Response | undefined> {
  const found = await (await caches.open("mapd handed over")).match(program)
  await caches.delete("mapd handed over")
  const bytes = await found?.arrayBuffer()
  if (!bytes) return undefined
  const sum = [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))].map(b => b.toString(16).padStart(2, "0")).join("")
  return sum === PROGRAM.sum ? new Response(bytes, {headers: found!.headers}) : undefined
}

sw.onactivate = e => e.waitUntil((async () => {
  for (const key of await caches.keys()) if (key.startsWith(mine) && key !== name) await caches.delete(key)
  await sw.clients.claim()
})())

// The page says when it gives way to this build.
sw.onmessage = e => {
  if (e.data === "replace") void sw.skipWaiting()
}

sw.onfetch = e => {
  const url = new URL(e.request.url)
  if (e.request.method !== "GET" || url.origin !== sw.location.origin) return
  url.search = url.hash = ""
  if (url.pathname.endsWith("/")) url.pathname += "index.html"
  if (!files.has(url.href) && !later.has(url.href)) return
  e.respondWith((async () => {
    const cache = await caches.open(name)
    const kept = await cache.match(url.href)
    if (kept) return kept
    const got = await fetch(e.request)
    if (got.ok && later.has(url.href)) e.waitUntil(cache.put(url.href, got.clone()))
    return got
  })())
}
