// Package cel answers one question: what does this expression mean, and what
// is its value here?
//
// It is the only package that knows cel-go. An [Env] is the language of one
// Kubernetes minor; a [Scope] is what one policy may name in it (params,
// variables); a [Program] is one compiled expression; an [Activation] holds
// the values of one evaluation. Programs, scopes and environments may be used
// by many goroutines at once after they are built; an Activation belongs to
// one.
//
// Meaning, cost and error texts are those of the in-tree admission plugins (k8s.io/apiserver
// pkg/admission/plugin/cel). The difference is that nothing that depends on a policy is put
// into a CEL environment, so that all policies of a process share one. Values are plain JSON
// data (see package tree). They are converted or copied only when an expression needs that, and
// never modified, whether they were passed in or returned.
package cel
