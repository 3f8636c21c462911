// Package modulepolicy answers one question: what does the WebAssembly module of a Kubewarden
// policy do to a request?
//
// A Loader fetches and compiles modules, each once however many policies use it, and lets them
// check the policies' settings. It turns a policy into a policy.Mutator, which asks the module in
// the same way as policy-server does. The module's answer becomes the next object, a refusal, or
// the policy's error. Modules can read objects of the kinds that their policy lists, and nothing
// else.
//
// How a module is executed is decided in internal/kubewarden/wapc. Start reading at Loader.Load.
package modulepolicy
