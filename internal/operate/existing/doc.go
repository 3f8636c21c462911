// Package existing changes existing objects as policies would if somebody wrote the objects, for
// bindings with the annotation mapd.dev/existing. It uses the results of the repeated audit of
// mapd serve, and writes with the Fixer of mapd audit --fix: with the same patches, preconditions
// and undo records. It writes slowly, and stops for a binding as soon as somebody changes a field
// back.
//
// It does not decide what a policy changes: internal/operate/audit does. Start reading at
// Keeper.Fix.
package existing
