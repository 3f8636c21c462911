// Package binding answers one question: which policies, with which parameters, match one
// request?
//
// A Binding is one MutatingAdmissionPolicyBinding, parsed once (Compile). An
// Index joins policies and bindings to one immutable snapshot; Index.SelectInto
// answers the question with a list of Invocations, in the order in which they
// run: by policy name, binding name, and parameter namespace and name. No CEL is
// evaluated here, and the only I/O is behind the interfaces of Sources.
//
// The rules are those of the API server (spec §2 and §3;
// k8s.io/apiserver/pkg/admission/plugin/policy/{generic,matching}). The difference is the cost:
// the server matches every request against every policy. An Index evaluates rules once per kind
// of request and caches the answers, evaluates equal selectors once, and looks up by the labels
// of a request which selectors may match at all.
package binding
