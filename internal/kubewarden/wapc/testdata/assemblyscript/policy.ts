// A policy that makes privileged containers unprivileged, on the waPC SDK for AssemblyScript.
import { register, handleCall, handleAbort, hostCall, consoleLog, Result } from "@wapc/as-guest"

const before = '"privileged":true'
const after = '"privileged":false'

// objectOf returns the JSON text of request.object, or an empty one.
function objectOf(text: string): string {
  const start = text.indexOf('"object":{')
  if (start < 0) return ""
  let depth = 0, quoted = false
  for (let i = start + 9; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (quoted) {
      if (c == 0x5c) i++ // a backslash
      else if (c == 0x22) quoted = false
    } else if (c == 0x22) quoted = true
    else if (c == 0x7b) depth++
    else if (c == 0x7d && --depth == 0) return text.substring(start + 9, i + 1)
  }
  return ""
}

function answer(text: string): Result<ArrayBuffer> {
  return Result.ok<ArrayBuffer>(String.UTF8.encode(text))
}

function validate(payload: ArrayBuffer): Result<ArrayBuffer> {
  const object = objectOf(String.UTF8.decode(payload))
  if (object.includes('"abort":true')) throw new Error("asked for")
  hostCall("kubewarden", "tracing", "log", String.UTF8.encode('{"level":"info","message":"looks at an object"}'))
  if (object.includes('"owner":')) {
    const found = hostCall("kubewarden", "kubernetes", "get_resource",
      String.UTF8.encode('{"api_version":"v1","kind":"Namespace","name":"shop","disable_cache":false}'))
    if (!found.isOk) return Result.error<ArrayBuffer>(found.error()!)
  }
  if (!object.includes(before)) return answer('{"accepted":true}')
  consoleLog("makes it unprivileged")
  return answer('{"accepted":true,"mutated_object":' + object.replaceAll(before, after) + '}')
}

register("validate", validate)
register("validate_settings", (_: ArrayBuffer): Result<ArrayBuffer> => answer('{"valid":true}'))
register("protocol_version", (_: ArrayBuffer): Result<ArrayBuffer> => answer('"v1"'))

export function __guest_call(operation: usize, payload: usize): bool {
  return handleCall(operation, payload)
}

export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  handleAbort(message, file, line, column)
}
