// The page's side of the service worker.
import type {Page} from "./page"
import {programFile, takeFetched} from "./program"
import {scriptURL} from "./trusted"

const container: ServiceWorkerContainer | undefined = /^https?:$/.test(location.protocol) ? navigator.serviceWorker : undefined
let replacing = false

// handedOver is the cache in which the service worker finds the program; see sw.ts.
const handedOver = "mapd handed over"

// replace has a newer build take over, and loads the page again.
function replace(worker: ServiceWorker) {
  replacing = true
  worker.postMessage("replace")
}

// renew takes a newer build that came during the last visit. It is for a page that has
// just begun, in which nobody has written yet.
export async function renew(page: Page) {
  if (!container?.controller) return
  container.addEventListener("controllerchange", () => {
    if (replacing) location.reload()
    else page.say("A new version of the playground is in use.", undefined, {title: "Reload", run: () => location.reload()})
  })
  const waiting = (await container.getRegistration())?.waiting
  if (waiting) replace(waiting)
}

// workOffline has the browser keep the site, and offers a newer build once it is here.
export async function workOffline(page: Page) {
  const offer = (worker: ServiceWorker) => {
    // The first one replaces nothing.
    if (worker.state !== "installed" || !container?.controller || replacing) return
    page.say("A new version of the playground is ready.", undefined, {title: "Reload", run: () => replace(worker)})
  }
  const program = takeFetched()
  try {
    if (container && program) await (await caches.open(handedOver)).put(programFile, program).catch(() => {})
    const registration = await container?.register(scriptURL("sw.js"))
    if (!registration) return
    if (!registration.installing) void caches.delete(handedOver) // nobody takes it
    const watch = () => {
      const worker = registration.installing
      worker?.addEventListener("statechange", () => offer(worker))
    }
    registration.addEventListener("updatefound", watch)
    watch()
    if (registration.waiting) offer(registration.waiting)
  } catch { // the browser does not want to, or there is no such file: the page works online
  }
}
