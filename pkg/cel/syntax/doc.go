// Package syntax answers one question: what does an expression say, independent of its value?
//
// Functions with a text as argument parse it without expanding macros: [Format] lays it out,
// [Substitute] and [Relocation] rewrite it. [Of] and [Fields] read expressions that package cel
// has checked, with expanded macros. Package cel, which compiles and evaluates, imports this
// package.
package syntax
