// Package manifest answers one question: which objects are in these files, and
// where?
//
// Read goes through YAML and JSON files, directories and standard input one
// document at a time, so that a stream of any length needs the memory of its
// largest document. Values are what an API server would get from kubectl for
// the same text (YAML 1.1 booleans, integers kept). Every Document remembers
// its bytes and its position: an untouched one is printed as it came, a changed
// one keeps its comments and the order of its keys (Rewrite), and an error says
// which line to look at.
package manifest
