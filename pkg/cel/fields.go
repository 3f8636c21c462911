package cel

// Field is one field that an expression of type Object sets in a literal such
// as Object.spec{replicas: 1}.
type Field struct {
	// Path are the names that lead to the field, by the name of the literal's
	// type: ["spec", "replicas"]. Items of lists and values of maps do not
	// appear, as they do not in names of types (spec §6.3).
	Path []string
	// Line and Column are those of the field's name in the expression, 1-based;
	// columns count code points.
	Line, Column int
}

// Fields lists the fields that the literals of an Object expression set.
func (p *Program) Fields() []Field { return nil }
