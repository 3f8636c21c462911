// Package existing brings objects in line that policies would change if somebody wrote them, for
// bindings with the annotation mapd.dev/existing. It takes what the repeated audit of mapd serve
// finds, and writes with the Fixer of mapd audit --fix: the same patches, preconditions and undo
// records. It writes slowly, and stops for a binding as soon as somebody changes a field back.
package existing
