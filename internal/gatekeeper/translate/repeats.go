package translate

import (
	"slices"
	"strconv"
	"strings"
)

// repeats makes variables of values that a program has more than once. The program is
// written twice: first with marks instead of values, which are counted in its text.
type repeats struct {
	marks map[string]expr // by the text of the value, while counting
	count map[string]int  // how often a value is in the program, after it
	vars  *variables
	said  map[string]expr
}

// shortValue is how many columns a value may have that is repeated and not named.
const shortValue = 10

// say returns the value e as the program says it: e itself, or a variable.
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

// sayOften returns what write writes, with variables for values that it repeats.
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
