// The service worker: it keeps the files of one build of the site, so that the page
// works without a network, and serves them until a newer build takes their place.

export {}
declare const VERSION: string
declare const FILES: string[]
declare const LATER: string[] // are kept when they are first used
const sw = self as unknown as ServiceWorkerGlobalScope
// Other folders of the same host may have a playground, of another version.
const mine = `mapd ${sw.registration.scope} `
const name = mine + VERSION
const urls = (names: string[]) => new Set(names.map(f => new URL(f, sw.registration.scope).href))
const files = urls(FILES)
const later = urls(LATER)

// What the page has fetched a moment ago is asked for again only if it has changed.
sw.oninstall = e => e.waitUntil(caches.open(name).then(c => c.addAll([...files].map(f => new Request(f, {cache: "no-cache"})))))

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
