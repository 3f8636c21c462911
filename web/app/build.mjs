// Builds the site into SITE, beside the engine that is there already, with the support
// file of the Go toolchain: node build.mjs SITE WASM_EXEC_JS. See hack/web.sh.
import {createHash} from "node:crypto"
import {copyFileSync, mkdirSync, readFileSync, readdirSync, writeFileSync} from "node:fs"
import {dirname, join, relative, resolve} from "node:path"
import {fileURLToPath} from "node:url"
import {build} from "esbuild"
import {docs} from "./docs.mjs"

const here = dirname(fileURLToPath(import.meta.url))
const [out, wasmExec] = process.argv.slice(2)
if (!out || !wasmExec) {
  console.error("usage: node build.mjs SITE WASM_EXEC_JS")
  process.exit(2)
}

mkdirSync(out, {recursive: true})
const options = {bundle: true, minify: true, format: "esm", target: "es2022", legalComments: "linked", outdir: out, logLevel: "warning"}
await build({...options, entryPoints: [join(here, "src/main.ts"), join(here, "src/style.css")]})
await build({...options, entryPoints: [join(here, "src/worker.ts")], format: "iife", alias: {"wasm-exec": resolve(wasmExec)}})
await build({...options, entryPoints: [join(here, "src/theme.ts")], format: "iife"})
for (const f of ["index.html", "icon.svg"]) copyFileSync(join(here, "src", f), join(out, f))

await build({...options, entryPoints: [join(here, "src/docs.ts"), join(here, "src/docs.css")], outdir: join(out, "docs")})
docs({
  root: resolve(here, "../.."), out: join(out, "docs"),
  blocks: JSON.parse(readFileSync(join(dirname(wasmExec), "blocks.json"), "utf8")),
  csp: readFileSync(join(out, "index.html"), "utf8").match(/http-equiv="Content-Security-Policy" content="([^"]*)"/)[1],
})

// Licences ask for their texts to go with what is bundled.
const lock = JSON.parse(readFileSync(join(here, "package-lock.json"), "utf8"))
const licences = Object.entries(lock.packages).filter(([path, p]) => path && !p.dev).map(([path, p]) => {
  const file = readdirSync(join(here, path)).find(f => /^licen[cs]e/i.test(f))
  if (!file) throw new Error(`${path} has no licence`)
  return `${path.replace(/.*node_modules\//, "")} ${p.version}\n\n${readFileSync(join(here, path, file), "utf8").trim()}\n`
})
writeFileSync(join(out, "packages.LEGAL.txt"), licences.join("\n\n"))

// The service worker keeps all of these, and fetches them anew when one has changed; the
// descriptions of fields only when they are first used.
const files = readdirSync(out, {recursive: true, withFileTypes: true})
  .filter(f => f.isFile() && !["sw.js", "version.txt", ".keep"].includes(f.name) && !f.name.endsWith(".LEGAL.txt"))
  .map(f => relative(out, join(f.parentPath, f.name)))
  .sort()
const program = "mapd.wasm.gz"
const hash = createHash("sha256")
for (const f of files) hash.update(f).update(readFileSync(join(out, f)))
const version = hash.digest("hex").slice(0, 16)
await build({
  ...options, entryPoints: [join(here, "src/sw.ts")], format: "iife",
  define: {
    VERSION: JSON.stringify(version),
    PROGRAM: JSON.stringify({name: program, sum: createHash("sha256").update(readFileSync(join(out, program))).digest("hex")}),
    FILES: JSON.stringify(files.filter(f => !f.endsWith(".descriptions"))),
    LATER: JSON.stringify(files.filter(f => f.endsWith(".descriptions"))),
  },
})
writeFileSync(join(out, "version.txt"), version + "\n")
