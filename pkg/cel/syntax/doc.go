// Package syntax answers one question: what does an expression say, whatever its value is?
//
// Functions that take a text parse it and leave its macros as they are written: [Format] lays it
// out, [Substitute] and [Relocation] rewrite it. [Of] and [Fields] read what package cel has
// checked, with macros expanded. Package cel, which compiles and evaluates, is above this one.
package syntax
