package translate

// expr is a piece of CEL: how it is laid out, and how tightly it binds.
type expr struct {
	doc  doc
	prec int
}

type doc any

// String returns the expression as a person would write it, over lines of at
// most 100 columns where that is possible.
func (e expr) String() string { return "" }

// when guards a patch, or an Object, with a condition: what is returned
// otherwise is none.
func when(cond, then, none expr) expr { return expr{} }

// all and anyOf join conditions; of one it is that one.
func all(conds ...expr) expr   { return expr{} }
func anyOf(conds ...expr) expr { return expr{} }

// literal returns a constant: nil, bool, string, int64, float64 and lists and
// maps of them. Numbers keep their type: 1.0 is a double.
func literal(v any) expr { return expr{} }

// jsonLiteral is literal for a value that becomes JSON: 1.0 is written 1.
func jsonLiteral(v any) expr { return expr{} }

// field returns member name of an object e: e.name, or e["name"] where name is
// not an identifier.
func field(e expr, name string) expr { return expr{} }

// has returns whether the object e has the member: has(e.name), or "name" in e.
func has(e expr, name string) expr { return expr{} }

// member is one field of a literal of a type.
type member struct {
	name  string
	value expr
}

// message returns a literal such as Object.spec{replicas: 1} or JSONPatch{…}.
func message(typ string, members ...member) expr { return expr{} }

// listOf and mapOf return literals of expressions.
func listOf(elems ...expr) expr        { return expr{} }
func mapOf(entries ...member) expr     { return expr{} }
func ident(name string) expr           { return expr{} }
func not(e expr) expr                  { return expr{} }
func binary(op string, a, b expr) expr { return expr{} }

// call returns recv.name(args…), fn returns name(args…).
func call(recv expr, name string, args ...expr) expr { return expr{} }
func fn(name string, args ...expr) expr              { return expr{} }
