// Runs the tests of what needs no browser: node test.mjs.
import {spawnSync} from "node:child_process"
import {mkdtempSync, readdirSync, rmSync} from "node:fs"
import {dirname, join} from "node:path"
import {fileURLToPath} from "node:url"
import {build} from "esbuild"

const here = dirname(fileURLToPath(import.meta.url))
const out = mkdtempSync(join(here, "node_modules/.test-"))
try {
  const names = readdirSync(join(here, "test")).filter(f => f.endsWith(".test.ts"))
  await build({
    entryPoints: names.map(f => join(here, "test", f)), outdir: out, outExtension: {".js": ".mjs"},
    bundle: true, platform: "node", format: "esm", packages: "external", sourcemap: "inline", logLevel: "warning",
  })
  const {status} = spawnSync(process.execPath, ["--enable-source-maps", "--test", "--test-reporter=dot", ...names.map(f => join(out, f.replace(/\.ts$/, ".mjs")))], {stdio: "inherit"})
  process.exitCode = status ?? 1
} finally {
  rmSync(out, {recursive: true})
}
