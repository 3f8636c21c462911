// Renders the documentation as a site: docs({root, out, blocks}) reads the Markdown
// pages of the repository at root and writes them to out, with an index for searching.
// A broken link between pages, to an anchor or to a file ends the build.
//
// blocks is what hack/gallery wrote: which blocks open in the playground, and as what.
import {copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync} from "node:fs"
import {dirname, join, posix} from "node:path"
import {deflateRawSync} from "node:zlib"
import MarkdownIt from "markdown-it"
import MiniSearch from "minisearch"
import {searchOptions} from "./search.mjs"

const repository = "https://github.com/mapd-project/mapd"

export function docs({root, out, blocks, csp}) {
  const pages = read(root)
  const problems = []
  for (const page of pages.values()) parse(page)
  const places = {root, out, pages, blocks, problems, examples: new Set(readdirSync(join(out, "../gallery")).map(f => f.replace(/\.json$/, "")))}
  for (const page of pages.values()) link(page, places)
  const listed = navigation(pages)
  const sections = []
  let size = 0
  for (const page of pages.values()) {
    const file = join(out, page.target)
    mkdirSync(dirname(file), {recursive: true})
    const text = html(page, listed, csp)
    size += Buffer.byteLength(text)
    writeFileSync(file, text)
    sections.push(...page.sections.map(s => ({...s, url: page.target + (s.anchor && "#" + s.anchor), page: page.title})))
  }
  if (problems.length) throw new Error("documentation:\n" + problems.join("\n"))
  const index = new MiniSearch(searchOptions)
  index.addAll(sections.map((s, id) => ({id, ...s})))
  const text = JSON.stringify(index)
  writeFileSync(join(out, "search.json"), text)
  console.log(`docs: ${pages.size} pages, ${size} bytes, and ${Buffer.byteLength(text)} bytes to search them`)
}

// read finds the pages: README.md, that of the examples, and every page below docs, as
// gallery.Blocks does.
function read(root) {
  const pages = new Map()
  const below = readdirSync(join(root, "docs"), {recursive: true}).filter(f => f.endsWith(".md")).sort()
  for (const source of ["README.md", "examples/README.md", ...below.map(f => posix.join("docs", f))]) {
    const target = source.replace(/^README\.md$/, "mapd.md").replace(/^docs\//, "").replace(/README\.md$/, "index.md").replace(/\.md$/, ".html")
    pages.set(source, {source, target, up: "../".repeat(target.split("/").length - 1), text: readFileSync(join(root, source), "utf8")})
  }
  return pages
}

const md = new MarkdownIt({html: false, linkify: false})

// parse finds headings, their anchors, and the texts of sections. A row of a table that
// begins with a link to an example is a section, too, so that searching finds the row.
function parse(page) {
  page.tokens = md.parse(page.text.replace(/^<!--[\s\S]*?-->$/gm, ""), {})
  page.anchors = new Set()
  page.headings = []
  page.sections = [{anchor: "", heading: "", text: ""}]
  let section = page.sections[0], around
  const begin = (anchor, heading) => page.sections.push(section = {anchor, heading, text: ""})
  for (const [i, t] of page.tokens.entries()) {
    if (t.type === "table_open") {
      around = section
    } else if (t.type === "tr_open") {
      const link = page.tokens[i + 2].children.find(c => c.type === "link_open")
      const name = link && exampleOf(page, link.attrGet("href"))
      if (!name) continue
      t.attrSet("id", slug(name, page.anchors))
      begin(t.attrGet("id"), name)
    } else if (t.type === "table_close") {
      section = around
    } else if (t.type === "heading_open") {
      const text = plain(page.tokens[i + 1])
      const level = Number(t.tag[1])
      if (level === 1 && page.title) throw new Error(`${page.source}: two titles`)
      if (level === 1) page.title = text
      const anchor = slug(text, page.anchors)
      t.attrSet("id", anchor)
      page.headings.push({level, text, anchor})
      begin(level === 1 ? "" : anchor, text)
    } else if (t.type === "inline" && page.tokens[i - 1].type !== "heading_open" || t.type === "fence" || t.type === "code_block") {
      section.text += (t.type === "inline" ? plain(t) : t.content.trim()) + "\n"
    }
  }
  if (!page.title) throw new Error(`${page.source}: no title`)
  page.sections = page.sections.filter(s => s.heading || s.text)
}

function plain(inline) {
  return inline.children.map(t => t.type === "softbreak" ? " " : t.type === "text" || t.type === "code_inline" ? t.content : "").join("")
}

// slug makes the anchor that GitHub makes of a heading.
function slug(text, taken) {
  const base = text.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, "").replaceAll(" ", "-")
  let anchor = base
  for (let n = 1; taken.has(anchor); n++) anchor = `${base}-${n}`
  taken.add(anchor)
  return anchor
}

// link rewrites the links of a page, and adds those into the playground.
function link(page, places) {
  for (const t of page.tokens) {
    if (t.type === "fence" || t.type === "code_block") t.meta = {open: open(page, places.blocks[t.content])}
    if (t.type !== "inline") continue
    const children = []
    let example
    for (const c of t.children) {
      children.push(c)
      if (c.type === "image") {
        c.attrSet("src", picture(page, c.attrGet("src"), places))
      } else if (c.type === "link_open") {
        const href = c.attrGet("href")
        c.attrSet("href", resolve(page, href, places))
        c.meta = {page: target(page, href, places)}
        example = exampleOf(page, href)
        if (!places.examples.has(example)) example = undefined
      } else if (c.type === "link_close" && example) {
        children.push(Object.assign(new c.constructor("open", "", 0), {meta: {open: {href: `${page.up}../#example=${example}`, name: example}}}))
      }
    }
    t.children = children
  }
}

// exampleOf returns the name of the directory of examples/ that a link leads to, if to one.
function exampleOf(page, href) {
  return posix.join(posix.dirname(page.source), href).match(/^examples\/([a-z-]+)\/?$/)?.[1]
}

// picture copies a picture of docs into the site, and returns the way to it.
function picture(page, src, {root, out, problems}) {
  const source = posix.join(posix.dirname(page.source), src)
  if (!source.startsWith("docs/") || !existsSync(join(root, source))) {
    problems.push(`${page.source}: ${src}: no such picture below docs`)
    return src
  }
  const target = source.slice("docs/".length)
  mkdirSync(dirname(join(out, target)), {recursive: true})
  copyFileSync(join(root, source), join(out, target))
  return page.up + target
}

function open(page, block) {
  if (!block) return undefined
  const fragment = block.example ? `example=${block.example}` : "1." + deflateRawSync(JSON.stringify(block.state), {level: 9}).toString("base64url")
  return {href: `${page.up}../#${fragment}`}
}

// target is the page that a link leads to, if it is one.
function target(page, href, {pages}) {
  if (/^https?:/.test(href)) return undefined
  const source = sourceOf(page, href)
  return pages.get(source) ?? pages.get(source + "/README.md")
}

function sourceOf(page, href) {
  const path = href.split("#")[0]
  return path ? posix.join(posix.dirname(page.source), decodeURI(path)).replace(/\/$/, "") : page.source
}

function resolve(page, href, places) {
  if (/^https?:/.test(href)) return href
  const {root, problems} = places
  const anchor = href.split("#")[1]
  const source = sourceOf(page, href)
  const to = target(page, href, places)
  if (to) {
    if (anchor && !to.anchors.has(anchor)) problems.push(`${page.source}: ${href}: no such heading`)
    return (to === page && anchor ? "" : posix.relative(posix.dirname(page.target), to.target)) + (anchor ? "#" + anchor : "")
  }
  const file = join(root, source)
  if (source.startsWith("..") || !existsSync(file)) {
    problems.push(`${page.source}: ${href}: no such file`)
    return href
  }
  return `${repository}/${statSync(file).isDirectory() ? "tree" : "blob"}/main/${source}` + (anchor ? "#" + anchor : "")
}

const escape = md.utils.escapeHtml

md.renderer.rules.open = (tokens, i) => button(tokens[i].meta.open)
md.renderer.rules.heading_close = (tokens, i) => {
  const anchor = tokens[i - 2].attrGet("id"), text = plain(tokens[i - 1])
  return ` <a class="anchor" href="#${escape(anchor)}" aria-label="Link to ${escape(text)}">#</a></${tokens[i].tag}>\n`
}
md.renderer.rules.table_open = () => `<div class="table" tabindex="0"><table>\n`
md.renderer.rules.table_close = () => `</table></div>\n`
md.renderer.rules.code_block = md.renderer.rules.fence = (tokens, i) => {
  const {content, info, meta} = tokens[i]
  const code = info.startsWith("yaml") ? content.split("\n").map(yaml).join("\n") : escape(content)
  return `<div class="code"><pre tabindex="0"><code>${code}</code></pre>${meta.open ? button(meta.open) : ""}</div>\n`
}

function button({href, name}) {
  return ` <a class="open" href="${escape(href)}"${name ? ` aria-label="Open in the playground: ${escape(name)}"` : ""}>Open in the playground</a>`
}

// yaml marks the key, or the comment, that a line begins with.
function yaml(line) {
  const m = line.match(/^(\s*(?:- )*)(?:(#.*)|("[^"]*"|[\w./-]+):(?=\s|$)(.*))$/)
  if (!m) return escape(line)
  if (m[2]) return `${m[1]}<span class="comment">${escape(m[2])}</span>`
  return `${m[1]}<span class="key">${escape(m[3])}</span>:${escape(m[4])}`
}

// navigation is the left side of each page: the folders in the order in which
// docs/README.md has links to them, and the pages of each in the order of its README.md.
// Pages of folders below those, such as the commands, are reached from the README there.
function navigation(pages) {
  const linked = page => [...new Set(page.tokens.filter(t => t.type === "inline").flatMap(t => t.children)
    .filter(t => t.type === "link_open").map(t => t.meta?.page).filter(Boolean))]
  const top = pages.get("docs/README.md")
  const folders = linked(top).filter(p => /^docs\/[^/]+\/README\.md$/.test(p.source))
  return [[top.title, [top, pages.get("README.md"), pages.get("examples/README.md")]],
    ...folders.map(f => [f.title, [f, ...linked(f).filter(p => p.source.startsWith(posix.dirname(f.source) + "/"))]])]
}

function html(page, listed, csp) {
  const {up} = page
  const nav = listed.map(([title, list], i) => `<h2 id="pages-${i}">${escape(title)}</h2>
<ul aria-labelledby="pages-${i}">
${list.map(p => `<li><a href="${posix.relative(posix.dirname(page.target), p.target)}"${p === page ? ` aria-current="page"` : ""}>${escape(p.title)}</a></li>`).join("\n")}
</ul>`).join("\n")
  const deep = page.headings.filter(h => h.level === 2).length < 25 ? 3 : 2
  const toc = page.headings.filter(h => h.level >= 2 && h.level <= deep)
    .map(h => `<li class="level-${h.level}"><a href="#${escape(h.anchor)}">${escape(h.text)}</a></li>`).join("\n")
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${csp}">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>${page.title === "mapd" ? "mapd" : escape(page.title) + " · mapd"}</title>
<link rel="icon" href="${up}../icon.svg" type="image/svg+xml">
<script src="${up}../theme.js"></script>
<link rel="stylesheet" href="${up}../style.css">
<link rel="stylesheet" href="${up}docs.css">
<script type="module" src="${up}docs.js"></script>
</head>
<body class="docs" data-up="${up}">
<a class="skip" href="#text">Skip to the text</a>
<header>
<a class="home" href="${up}index.html">mapd</a>
<a href="#pages" class="to-pages">Pages</a>
<a href="${up}../index.html">Playground</a>
<a href="${repository}" class="source">Source</a>
<search hidden><label for="search">Search</label> <input id="search" type="search" autocomplete="off" spellcheck="false" aria-controls="results" aria-keyshortcuts="/" placeholder="Press / to search">
<div id="results" hidden></div></search>
<button id="theme" type="button" title="Go on to the next of light, dark and the theme of the system" hidden></button>
</header>
<div class="columns">
<main id="text" tabindex="-1">
${md.renderer.render(page.tokens, md.options, {})}<footer><a href="${repository}/blob/main/${page.source}">Source of this page</a></footer>
</main>
${toc ? `<nav class="toc" aria-labelledby="toc"><h2 id="toc">On this page</h2>\n<ul>\n${toc}\n</ul></nav>\n` : ""}<nav id="pages" aria-label="Pages" tabindex="-1">
${nav}
</nav>
</div>
</body>
</html>
`
}
