// Package interpret answers one question: what does a mutate rule of Kyverno do to an object?
//
// The policies of package convert are checked against it. So it shares no code with that package
// except the reader of policies, and follows what Kyverno 1.19.1 does, not what the converter
// assumes. Kyverno itself is not linked. test/kyverno compares the interpreter with Kyverno's own
// engine.
//
// Where the interpreter does not know what Kyverno does, it returns an Unknown and does not
// guess. It interprets rules of ClusterPolicy and Policy only. A MutatingPolicy has CEL
// expressions, which the converted policy repeats: evaluating the same text again would prove
// nothing.
//
// Start with New. autogen.go has the rules that Kyverno generates for controllers, scope.go the
// names that a rule can use, substitute.go variables in texts, overlay.go and merge.go overlays.
package interpret
