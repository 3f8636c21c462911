package translate

import (
	"slices"
	"strconv"
	"strings"
)

// repeats replaces values that a program repeats by variables. The program is written twice. The
// first time has a mark in the place of each value, and counts the marks in the text.
type repeats struct {
	marks map[string]expr // first time: the mark of each value, by its text
	count map[string]int  // second time: how often the program has each value, by its text
	vars  *variables
	said  map[string]expr
}

// shortValue is the largest number of columns of a value that is repeated in full.
const shortValue = 10

// say returns e, a mark or a variable for it, see repeats.
func (r *repeats) say(name string, e expr) expr {
	text := e.String()
	if r == nil || len(text) <= shortValue {
		return e
	}
	if r.count == nil {
		mark, ok := r.marks[text]
		if !ok {
			mark = ident("\x00" + strconv.Itoa(len(r.marks)) + "\x00")
			mark.Type = e.Type
			r.marks[text] = mark
		}
		return mark
	}
	if r.count[text] < 2 {
		return e
	}
	v, ok := r.said[text]
	if !ok {
		v = r.vars.add(name, e)
		v.Type = e.Type
		r.said[text] = v
	}
	return v
}

// sayOften calls write twice and returns its second result, in which repeated values are
// variables.
func sayOften(vars *variables, write func(*repeats, *variables) expr) expr {
	r := &repeats{marks: map[string]expr{}}
	text := write(r, &variables{}).String()
	r.count, r.vars, r.said = map[string]int{}, vars, map[string]expr{}
	for value, mark := range r.marks {
		r.count[value] = strings.Count(text, mark.String())
	}
	return write(r, vars)
}

// reservedNames cannot name a variable (CEL's reserved words).
var reservedNames = []string{"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
	"package", "namespace", "return", "var", "void", "while"}

// valueName returns the name of a variable with the value of the location.
func (w *walk) valueName() string {
	last := w.path[len(w.path)-1]
	name := last.Name
	if last.List {
		name = camel(strings.Join(strings.Fields(singular(w.path[len(w.path)-2].Name)), "-"))
	}
	if !isIdentifier(name) || slices.Contains(reservedNames, name) {
		return "value"
	}
	return name
}
