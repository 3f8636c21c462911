// Share, import and export.
import type {SuiteAnswer} from "./api"
import {openDialog} from "./dialog"
import {h} from "./dom"
import {readJSON, sort, toGist} from "./files"
import type {Before, Command, Page} from "./page"
import {decode, encode, isLink} from "./share"
import type {State, Text} from "./state"
import {maxTexts, readState} from "./validate"
import {zip} from "./zip"

const long = 32 << 10 // characters of an address that programs may cut
const largest = 8 << 20 // bytes of a file
const largestAll = 32 << 20 // bytes of all files
const mostFiles = 500

export const share: Command = {
  id: "share", title: "Share", help: "Copy a link with everything on this page; nothing is sent anywhere", key: "Ctrl+S",
  async run(page) {
    let link: string
    try {
      const fragment = await encode(page.state())
      history.replaceState(null, "", "#" + fragment)
      link = location.href
    } catch (err) {
      return page.say(`There is no link: ${(err as Error).message}. Export it instead.`, "error")
    }
    const warning = link.length > long && `This link has ${Math.ceil(link.length / 1024)} KB. It works in a browser, but a chat or mail may cut it; then export instead.`
    let copied = true
    try {
      await navigator.clipboard.writeText(link)
    } catch {
      copied = false
    }
    page.say(copied ? "The link is in the clipboard" : "The link is in the address of this page")
    if (copied && !warning) return
    const field = h("input", {type: "text", id: "link", readonly: true, "aria-label": "Link", onfocus: () => field.select()})
    field.value = link
    openDialog("Link to this page", [
      h("p", null, copied ? "The link is in the clipboard, and here:" : "Copy this link:"), field, ...warning ? [h("p", {class: "error"}, warning)] : [],
    ])
    field.select()
  },
}

export const importing: Command = {
  id: "import", title: "Import", look: "quiet", help: "Open files, a gist or a link", key: "Ctrl+O",
  run(page) {
    const files = h("input", {
      type: "file", id: "import-files", multiple: true, "aria-label": "Files", onchange: () => {
        close()
        void importFiles(page, [...files.files ?? []])
      },
    })
    const text = h("textarea", {id: "import-text", "aria-label": "Text to import", spellcheck: "false", placeholder: "YAML, JSON with files such as that of a gist, or a link"})
    const close = openDialog("Import", [
      h("p", null, "Policies, bindings, Namespaces, CustomResourceDefinitions, mutators and parameters become documents, all else becomes objects. Files can be dropped on the page, too."),
      h("p", null, files), h("p", null, text),
    ], {buttons: [h("button", {type: "button", class: "primary", onclick: () => {
      close()
      if (text.value.trim()) void importText(page, text.value)
    }}, "Import the text")]})
  },
}

// open reads a link and loads its state.
export async function open(page: Page, fragment: string) {
  try {
    opened(page, "Opened the link", page.load(await decode(fragment)))
  } catch (err) {
    page.say((err as Error).message, "error")
  }
}

// opened says what was opened, and how to get back to what somebody wrote here before.
export function opened(page: Page, text: string, before: Before) {
  page.say(before.own ? `${text}. Your own work is kept.` : text, undefined, before.own ? {title: "Back to your work", run: before.restore} : undefined)
}

async function importText(page: Page, text: string) {
  const fragment = /^\s*(?:https?:[^\s#]*)?(#\d+\.\S*)\s*$/.exec(text)?.[1]
  if (fragment && isLink(fragment)) {
    if (location.hash === fragment) await open(page, fragment)
    else location.hash = fragment // the page follows it
  }
  else put(page, [{name: "pasted.yaml", text}])
}

async function importFiles(page: Page, files: File[]) {
  try {
    if (files.length > mostFiles) throw new Error(`${files.length} files are too many, at most ${mostFiles}`)
    const size = files.reduce((n, f) => n + f.size, 0)
    if (size > largestAll) throw new Error(`the files have ${(size / 2 ** 20).toFixed(1)} MiB, and together they can have ${largestAll >> 20} MiB`)
    put(page, await Promise.all(files.map(async f => {
      if (f.size > largest) throw new Error(`${f.name} has ${(f.size / 2 ** 20).toFixed(1)} MiB, and a file can have ${largest >> 20} MiB`)
      let bytes: ArrayBuffer
      try {
        bytes = await f.arrayBuffer()
      } catch {
        throw new Error(`${f.name} cannot be read; folders cannot be imported, only files`)
      }
      try {
        return {name: f.name, text: new TextDecoder("utf-8", {fatal: true}).decode(bytes)}
      } catch {
        throw new Error(`${f.name} is no text in UTF-8`)
      }
    })))
  } catch (err) {
    page.say(`Nothing was imported: ${(err as Error).message}`, "error")
  }
}

// put puts files into the page: a file replaces the text of its name.
function put(page: Page, files: Text[]) {
  const state = page.state()
  const load = (next: State) => ({title: "Undo", run: page.load(next, "own").restore})
  try {
    const texts: Text[] = []
    for (const f of files) {
      const json = readJSON(f.text)
      if (json && "state" in json) {
        return page.say(`Imported all of ${f.name}`, undefined, load(json.state))
      }
      texts.push(...json ? json.files : [f])
    }
    if (texts.length > maxTexts) throw new Error(`${texts.length} texts are too many, at most ${maxTexts}`)
    const base = page.untouched() ? {...state, documents: [], objects: []} : state
    const {documents, objects} = sort(texts, base.documents)
    // As a link or the browser's store would be read again.
    const undo = load(readState({...base, documents: merge(base.documents, documents), objects: merge(base.objects, objects)}))
    const count = (n: number, noun: string) => `${n} ${noun}${n === 1 ? "" : "s"}`
    page.say(`Imported ${count(documents.length, "document")} and ${count(objects.length, "object")}`, undefined, undo)
    if (documents[0]) page.reveal(documents[0].name, 1)
  } catch (err) {
    page.say(`Nothing was imported: ${(err as Error).message}`, "error")
  }
}

function merge(old: readonly Text[], added: readonly Text[]): Text[] {
  return [...old.map(t => added.find(a => a.name === t.name) ?? t), ...added.filter(a => !old.some(t => t.name === a.name))]
}

// acceptFiles imports files that are dropped anywhere on the page.
export function acceptFiles(page: Page) {
  const files = (e: DragEvent) => e.dataTransfer?.types.includes("Files") ?? false
  const show = (on: boolean) => document.body.classList.toggle("dropping", on)
  // Before the editors, which would take the files as text.
  document.addEventListener("dragover", e => {
    if (!files(e)) return
    e.preventDefault()
    e.stopPropagation()
    show(true)
  }, true)
  document.addEventListener("dragleave", e => {
    if (!e.relatedTarget) show(false)
  }, true)
  document.addEventListener("drop", e => {
    show(false)
    if (!files(e)) return
    e.preventDefault()
    e.stopPropagation()
    void importFiles(page, [...e.dataTransfer!.files])
  }, true)
}

export const exporting: Command = {
  id: "export", title: "Export", look: "quiet", help: "Download a suite for mapd test, or the whole page as JSON", key: "Ctrl+Shift+E",
  run(page) {
    const close = openDialog("Export", [
      h("p", null, "A suite for ", h("code", null, "mapd test"), " expects what the page shows now. Unpack it in a folder and run ", h("code", null, "mapd test"), " there."),
      h("p", null, "The page as JSON has the form of a gist, and can be imported here again."),
    ], {buttons: [
      h("button", {type: "button", id: "export-suite", class: "primary", onclick: () => {
        close()
        void suite(page)
      }}, "Suite (.zip)"),
      h("button", {type: "button", id: "export-json", onclick: () => {
        close()
        download("playground.json", "application/json", JSON.stringify(toGist(page.state()), null, 2) + "\n")
      }}, "Page (.json)"),
    ]})
  },
}

async function suite(page: Page) {
  try {
    const {errors, files} = await page.call<SuiteAnswer>("suite", page.state())
    if (errors?.[0]) throw new Error(errors[0].message)
    if (files?.length === 1) download(files[0]!.name, "application/yaml", files[0]!.text)
    else download("mapd-test.zip", "application/zip", zip(files ?? []))
  } catch (err) {
    page.say(`There is no suite: ${(err as Error).message}`, "error")
  }
}

function download(name: string, type: string, content: string | Uint8Array<ArrayBuffer>) {
  const url = URL.createObjectURL(new Blob([content], {type}))
  const a = h("a", {href: url, download: name})
  document.body.append(a)
  a.click()
  a.remove()
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}
