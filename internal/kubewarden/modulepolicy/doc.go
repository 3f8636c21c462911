// Package modulepolicy answers one question: what does the WebAssembly module of a
// Kubewarden policy make of a request?
//
// A Loader fetches and compiles modules, each once however many policies use it, and
// has them check the policies' settings. What it makes of a policy is a
// policy.Mutator: it asks the module as policy-server would ask it, and its answer
// becomes the next object, a refusal, or the policy's error. Modules read objects of
// the kinds that their policy names, and nothing else.
package modulepolicy
