// Package manifest answers one question: which objects are in these files, and where?
//
// Read reads YAML and JSON files, directories and standard input one document at a time, so that
// a stream of any length needs the memory of its largest document. Values are those that kubectl
// sends to an API server for the same text (YAML 1.1 booleans, integers kept). Every Document
// keeps its text and its position: unchanged documents are printed as they are, changed ones keep
// their comments and the order of their keys (Rewrite), and errors name the line. The package
// does not know what objects mean. Start reading at Read.
package manifest
