// What the index of the documentation has; the build writes it and src/docs.ts reads it.

/** @type {import("minisearch").Options} */
export const searchOptions = {
  fields: ["heading", "page", "text"],
  storeFields: ["heading", "page", "url", "text"],
  tokenize: text => text.split(/[^\p{L}\p{N}_.]+/u).map(w => w.replace(/^\.+|\.+$/g, "")).filter(w => w.length > 1 && w.length < 40),
}
