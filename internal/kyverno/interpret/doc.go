// Package interpret answers one question: what does a mutate rule of Kyverno do to an object?
//
// It is a second opinion about package convert, so it shares nothing with that package but the
// reader of policies, and it is written from what Kyverno 1.19.1 does and not from what the
// converter makes of it. Kyverno itself is not linked. test/kyverno holds the interpreter against
// Kyverno's own engine.
//
// Where the interpreter does not know what Kyverno does, it says so with an Unknown and never
// guesses. It interprets rules of ClusterPolicy and Policy. MutatingPolicies have CEL expressions,
// which the converted policy has, too: another evaluation of the same text proves nothing.
//
// Start with New. Rules that Kyverno makes for controllers are in autogen.go, the names that a rule
// can use in scope.go, variables in text in substitute.go, overlays in overlay.go and merge.go.
package interpret
