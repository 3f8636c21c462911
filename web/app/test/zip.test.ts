import assert from "node:assert/strict"
import {spawnSync} from "node:child_process"
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from "node:fs"
import {tmpdir} from "node:os"
import {join} from "node:path"
import test from "node:test"
import {safePath, zip} from "../src/zip"

test("an archive", () => {
  const files = [{name: "mapd-test.yaml", text: "a: b\n"}, {name: "in/ä.yaml", text: "\u{1f600}\n".repeat(1000)}, {name: "empty", text: ""}]
  const bytes = zip(files)
  assert.deepEqual(bytes, zip(files))
  // A file stands behind its header of 30 bytes and its name.
  assert.equal(Buffer.from(bytes.subarray(0, 4)).toString("latin1"), "PK\x03\x04")
  assert.equal(Buffer.from(bytes.subarray(30, 49)).toString(), "mapd-test.yamla: b\n")
  const crc = new DataView(bytes.buffer).getUint32(14, true)
  assert.equal(crc, 0x72b517fe)
})

test("unzip agrees", (t: {skip(why: string): void}) => {
  if (spawnSync("unzip", ["-v"]).error) return t.skip("unzip is not installed")
  const dir = mkdtempSync(join(tmpdir(), "zip-"))
  try {
    const file = join(dir, "a.zip")
    writeFileSync(file, zip([{name: "a.yaml", text: "a\n"}, {name: "../in/b.yaml", text: "b\n"}]))
    const tested = spawnSync("unzip", ["-t", file], {encoding: "utf8"})
    assert.equal(tested.status, 0, tested.stdout + tested.stderr)
    spawnSync("unzip", ["-q", file, "-d", dir])
    assert.equal(readFileSync(join(dir, "in/b.yaml"), "utf8"), "b\n")
  } finally {
    rmSync(dir, {recursive: true})
  }
})

test("names stay below the folder", () => {
  for (const [name, want] of [["a/b.yaml", "a/b.yaml"], ["../../etc/passwd", "etc/passwd"], ["/a", "a"], ["..", "file"], ["", "file"], ["C:\\x", "C_/x"], ["a\0b", "a_b"], ["./a//b", "a/b"]]) {
    assert.equal(safePath(name!), want)
  }
})
