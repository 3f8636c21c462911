// Package export answers one question: which manifest files have an API server do by itself
// what these policies do?
//
// Manifest policies (KEP-5793, spec §1.5) have no parameters. Export resolves the paramRef of
// every binding as the engine does (spec §3.1), and writes a policy and a binding for each
// parameter that is found, in which a literal stands for params: a variable of the policy holds
// it, and matchConditions, which cannot read variables, repeat it. The literal has only the
// fields that the expressions read. What cannot be said without parameters, or is mapd's alone,
// is a Problem of the policy.
//
// Compare runs the policies as they were and as they were written on the same requests.
package export
