// Package wapc runs Kubewarden's policies: WebAssembly modules that speak the waPC protocol, or
// that are command-line programs (Kubewarden spec §1, Kubewarden spec §4).
//
// A Module is compiled once and can be called concurrently. Each call has its own instance, so
// neither policies nor requests share state. A guest (waPC's word for the module) has no files,
// no network and no environment; it can only ask its Host.
//
// The author of a module is not trusted. The input of the compiler is bounded (see bounds). The
// time of a call is bounded by its context, its memory by Options, and its output by the limits
// below. Whatever a guest does wrong is an *Error of that call, and its instance is discarded.
// Start reading at Runtime.Compile and Module.Call.
package wapc
