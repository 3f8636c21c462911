// Package wapc runs Kubewarden's policies: WebAssembly modules that speak the waPC
// protocol, or that are command-line programs (Kubewarden spec §1, Kubewarden spec §4).
//
// A Module is compiled once and called by many. Each call has an instance of its
// own: policies of one module share no state, neither do requests. A guest has no
// files, no network and no environment; it may ask its Host.
//
// Whoever writes the module is not trusted. What is handed to the compiler is
// bounded by counting (see bounds); what runs is bounded in time by the context, in
// memory by Options, and in what it may say by the limits below. Whatever a guest
// does is an *Error of that call, and its instance is thrown away.
package wapc
