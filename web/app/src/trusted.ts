// The only place that makes URLs of scripts. A browser with Trusted Types refuses all
// others; see the policy in index.html.

interface Policies {
  createPolicy(name: string, rules: {createScriptURL(url: string): string}): {createScriptURL(url: string): TrustedScriptURL}
}

declare global {
  interface TrustedScriptURL {}
}

const own = new Set(["worker.js", "sw.js"])

function check(url: string): string {
  if (!own.has(url)) throw new TypeError(`not a script of this page: ${url}`)
  return url
}

const policies = (globalThis as {trustedTypes?: Policies}).trustedTypes
const policy = policies?.createPolicy("mapd", {createScriptURL: check})

// scriptURL is url for a Worker or a service worker; url must be one of own.
export function scriptURL(url: string): string {
  return (policy?.createScriptURL(url) ?? check(url)) as string
}
