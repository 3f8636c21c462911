declare module "node:assert/strict"
declare module "node:child_process"
declare module "node:fs"
declare module "node:os"
declare module "node:path"
declare module "node:test"
declare module "node:zlib"
declare const Buffer: any
