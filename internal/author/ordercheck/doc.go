// Package ordercheck finds out whether the order of policies decides what they make of an
// object, and whether they leave alone what they have made.
//
// A server runs policies, the bindings of a policy and the parameters of a binding in any
// order (spec §9.1), and mapd in one of these. Check runs the others. It need not run all
// of them: invocations that do not touch each other give the same in every order. Two
// touch each other if one writes what the other reads or writes. What an invocation
// writes is seen in the runs; what it reads is read off its expressions. If a run shows
// more writes than those before, the orders are found anew, so that in the end an
// order that was left out cannot give another result than one that was run.
package ordercheck
