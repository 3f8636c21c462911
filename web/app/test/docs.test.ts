import assert from "node:assert/strict"
import {mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync} from "node:fs"
import {tmpdir} from "node:os"
import {dirname, join} from "node:path"
import test from "node:test"
import MiniSearch from "minisearch"
import {docs} from "../docs.mjs"
import {searchOptions} from "../search.mjs"

// render makes a site of some pages and returns a function that reads its files.
function render(pages: Record<string, string>, blocks = {}): (name: string) => string {
  const dir = mkdtempSync(join(tmpdir(), "docs-"))
  try {
    const all: Record<string, string> = {
      "root/README.md": "# mapd\n", "root/docs/a.md": "# A\n", "root/docs/spec/README.md": "# Spec\n",
      "root/docs/README.md": "# Documentation\n\n[start](start/README.md)\n", "root/docs/start/README.md": "# Start\n\n[two](two.md) [one](one.md) [A](../a.md)\n",
      "root/docs/start/one.md": "# One\n", "root/docs/start/two.md": "# Two\n\n![how](../pictures/how.svg)\n", "root/docs/pictures/how.svg": "<svg/>",
      "root/examples/README.md": "# Examples\n", "root/examples/labels/policy.yaml": "", "out/gallery/labels.json": "{}",
    }
    for (const [name, text] of Object.entries(pages)) all["root/" + name] = text
    for (const [name, text] of Object.entries(all)) {
      mkdirSync(dirname(join(dir, name)), {recursive: true})
      writeFileSync(join(dir, name), text)
    }
    docs({root: join(dir, "root"), out: join(dir, "out/docs"), blocks, csp: "default-src 'none'"})
    const files = new Map(["index.html", "mapd.html", "a.html", "spec/index.html", "start/index.html", "start/two.html", "pictures/how.svg", "examples/index.html", "search.json"].map(f => [f, readFileSync(join(dir, "out/docs", f), "utf8")]))
    return name => files.get(name)!
  } finally {
    rmSync(dir, {recursive: true})
  }
}

test("headings have the anchors that GitHub gives them", () => {
  const page = render({"docs/a.md": "# A `b`: c, *d*\n\n## T1–T3 (x/y)  [ran]\n\n## In a cluster\n\n## In a cluster\n\n### `snake_case` & more\n"})("a.html")
  for (const id of ["a-b-c-d", "t1t3-xy--ran", "in-a-cluster", "in-a-cluster-1", "snake_case--more"]) assert.ok(page.includes(` id="${id}"`), id)
})

test("links lead to pages, and to the repository where there is no page", () => {
  const of = render({
    "docs/a.md": "# A\n\n## Here\n\n[1](spec/README.md) [2](../README.md#mapd) [3](#here) [4](../examples/labels/policy.yaml) [5](https://example.com/x) [6](../examples/)\n",
    "examples/README.md": "# Examples\n\n[labels](labels/)\n",
  })
  const links = [...of("a.html").match(/<p>.*<\/p>/)![0].matchAll(/href="([^"]*)"/g)].map(m => m[1])
  assert.deepEqual(links, ["spec/index.html", "mapd.html#mapd", "#here", "https://github.com/mapd-project/mapd/blob/main/examples/labels/policy.yaml", "https://example.com/x", "examples/index.html"])
  assert.match(of("examples/index.html"), /tree\/main\/examples\/labels">labels<\/a> <a class="open" href="\.\.\/\.\.\/#example=labels"/)
})

test("the left side has the folders of the index, with pages in the order of each folder's own", () => {
  const nav = render({})("a.html").match(/<nav id="pages"[\s\S]*?<\/nav>/)![0]
  assert.deepEqual([...nav.matchAll(/<h2[^>]*>([^<]*)/g)].map(m => m[1]), ["Documentation", "Start"])
  assert.deepEqual([...nav.matchAll(/href="([^"]*)"/g)].map(m => m[1]), ["index.html", "mapd.html", "examples/index.html", "start/index.html", "start/two.html", "start/one.html"])
})

test("pictures go with the pages", () => {
  const files = render({})
  assert.match(files("start/two.html"), /<img src="\.\.\/pictures\/how\.svg" alt="how"/)
  assert.equal(files("pictures/how.svg"), "<svg/>")
  assert.throws(() => render({"docs/a.md": "# A\n\n![x](y.svg) ![z](../examples/labels/policy.yaml)\n"}),
    /docs\/a.md: y.svg: no such picture below docs\ndocs\/a.md: ..\/examples\/labels\/policy.yaml: no such picture below docs$/)
})

test("broken links end the build, all of them named", () => {
  assert.throws(() => render({"docs/a.md": "# A\n\n[1](b.md) [2](#nowhere) [3](spec/README.md#no) [4](../../../etc/passwd)\n"}),
    /docs\/a.md: b.md: no such file\ndocs\/a.md: #nowhere: no such heading\ndocs\/a.md: spec\/README.md#no: no such heading\ndocs\/a.md: ..\/..\/..\/etc\/passwd: no such file$/)
})

test("no page has markup of the text", () => {
  const page = render({"docs/a.md": "# <b>A</b>\n\n<script>x</script> <img src=x onerror=y> [z](javascript:w) <!-- - -->\n\n```yaml\n<i>: \"<u>\"\n```\n\n<!-- gone -->\n"})("a.html")
  assert.doesNotMatch(page, /<script>|<img|<b>|<i>|<u>|href="javascript|gone/)
  assert.equal(page.match(/<script /g)?.length, 2) // its own
})

test("a block opens in the playground", () => {
  const state = {documents: [{name: "policy.yaml", text: "kind: X\n"}], objects: []}
  const page = render({"docs/a.md": "# A\n\n```yaml\nkind: X\n```\n\n```\n$ y\n```\n"}, {"kind: X\n": {state}, "$ y\n": {example: "labels"}})("a.html")
  assert.match(page, /href="\.\.\/#1\.[-_A-Za-z0-9]+">Open in the playground/)
  assert.match(page, /href="\.\.\/#example=labels">Open in the playground/)
})

test("the same pages make the same site, and its index finds sections", () => {
  const pages = {"docs/a.md": "# A\n\n## The second one\n\nA needle, and `spec.containers`.\n"}
  const [one, two] = [render(pages), render(pages)]
  for (const f of ["index.html", "a.html", "search.json"]) assert.equal(one(f), two(f))
  const index = MiniSearch.loadJSON(one("search.json"), searchOptions)
  assert.deepEqual(index.search("needle").map(r => r["url"]), ["a.html#the-second-one"])
  assert.deepEqual(index.search("spec.containers").map(r => r["heading"]), ["The second one"])
})

test("a row about an example is found by searching, and what follows the table belongs to the heading", () => {
  const files = render({"examples/README.md": "# Examples\n\n## Images\n\n| Policy | |\n| --- | --- |\n| [labels](labels/) | a needle |\n| [A](../docs/a.md) | a pin |\n\nThe thread.\n"})
  assert.match(files("examples/index.html"), /<tr id="labels">/)
  const index = MiniSearch.loadJSON(files("search.json"), searchOptions)
  assert.deepEqual(index.search("needle").map(r => r["url"]), ["examples/index.html#labels"])
  assert.deepEqual(index.search("thread").map(r => r["url"]), ["examples/index.html#images"])
})
