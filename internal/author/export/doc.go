// Package export answers one question: which manifest files let an API server do what these
// policies do, without mapd?
//
// Manifest policies (KEP-5793, spec §1.5) have no parameters. Export resolves the paramRef of
// every binding as the engine does (spec §3.1), and writes a policy and a binding for each
// parameter that it finds. In these, a literal replaces params: a variable of the policy holds
// it, and matchConditions, which cannot read variables, repeat it. The literal has only the
// fields that the expressions read. What needs parameters, or exists only in mapd, is a Problem
// of the policy.
//
// Compare runs the original and the exported policies on the same requests. Start reading at
// Export.
package export
