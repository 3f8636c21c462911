// node run.js DIR: load the program from DIR and call a method for each line of
// standard input, which is its name and its parameters as JSON. It prints each answer, or
// ! and what is wrong.
const fs = require("fs")
const path = require("path")
const readline = require("readline")
const zlib = require("zlib")

const dir = path.resolve(process.argv[2])
require(path.join(dir, "wasm_exec.js"))
const go = new globalThis.Go()
globalThis.mapdPatience = 120_000 // the machine may be busy
globalThis.mapdSchema = async name => fs.readFileSync(path.join(dir, "schemas", name))

async function main() {
  const {instance} = await WebAssembly.instantiate(zlib.gunzipSync(fs.readFileSync(path.join(dir, "mapd.wasm.gz"))), go.importObject)
  void go.run(instance)
  for await (const line of readline.createInterface({input: process.stdin})) {
    const [, method, params] = line.match(/^(\S+) (.*)$/)
    process.stdout.write(await mapd.call(method, params).catch(err => "! " + err.message) + "\n")
  }
  process.exit(0)
}
main().catch(err => {
  console.error(err)
  process.exit(1)
})
