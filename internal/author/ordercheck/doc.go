// Package ordercheck answers two questions: does the order of policies change their result for an
// object, and do they leave their own result unchanged?
//
// An API server runs policies, the bindings of a policy and the parameters of a binding in any
// order (spec §9.1), and mapd in one of these. Check runs the others. It need not run all:
// invocations that do not touch each other give the same result in every order. Two invocations
// touch each other if one writes what the other reads or writes. The writes of an invocation are
// observed in the runs; its reads follow from its expressions. If a run shows new writes, the
// orders are computed again, so that in the end no order that was left out can give another
// result. Start reading at Check.
package ordercheck
