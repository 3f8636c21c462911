// The service worker: it keeps the files of one build of the site, so that the page
// works without a network, and serves them until it is replaced by a newer build.

export {}
declare const VERSION: string
declare const FILES: string[]
const sw = self as unknown as ServiceWorkerGlobalScope
const name = "mapd-" + VERSION

sw.oninstall = e => e.waitUntil(caches.open(name).then(c => c.addAll(FILES.map(f => new Request(f, {cache: "reload"})))))

sw.onactivate = e => e.waitUntil((async () => {
  for (const key of await caches.keys()) if (key.startsWith("mapd-") && key !== name) await caches.delete(key)
  await sw.clients.claim()
})())

sw.onfetch = e => {
  const url = new URL(e.request.url)
  if (e.request.method !== "GET" || url.origin !== sw.location.origin) return
  if (url.pathname.endsWith("/")) url.pathname += "index.html"
  e.respondWith(caches.open(name).then(c => c.match(url.href, {ignoreSearch: true})).then(r => r ?? fetch(e.request)))
}
