package translate

import (
	"strconv"
	"strings"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// pointer is a JSON pointer in a program: constant, except for the indexes of
// the loops around it.
type pointer struct {
	parts []expr
	tail  string // constant text behind the parts
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func (p pointer) key(name string) pointer {
	p.tail += "/" + pointerEscapes.Replace(name)
	return p
}

// index appends an index that is in the variable i.
func (p pointer) index(i string) pointer { return p.at(ident(i)) }

// at appends an index that is an expression.
func (p pointer) at(index expr) pointer {
	parts := append(p.parts[:len(p.parts):len(p.parts)], constant(p.tail+"/"), fn("string", index))
	return pointer{parts: parts}
}

func (p pointer) expr() expr {
	parts := p.parts
	if p.tail != "" || len(parts) == 0 {
		parts = append(parts[:len(parts):len(parts)], constant(p.tail))
	}
	return sum(parts...)
}

// looksLikeIndex reports whether a name would be read as an index if there were
// a list instead of an object.
func looksLikeIndex(name string) bool {
	_, err := strconv.Atoi(name)
	return err == nil || name == "-"
}

// unpointable returns a name of the location that cannot be part of a JSON pointer in a policy:
// API servers quote paths by Go's rules and parse them by JSON's, which differ for some control
// characters.
func unpointable(p legacy.Path) (string, bool) {
	for _, n := range p {
		if n.List {
			continue // selectors are not part of pointers
		}
		q := strings.ReplaceAll(strconv.Quote(n.Name), `\\`, "")
		for _, only := range []string{`\a`, `\v`, `\x`, `\U`} {
			if strings.Contains(q, only) {
				return n.Name, true
			}
		}
	}
	return "", false
}

func operation(op string, p pointer, value ...expr) expr {
	members := []entry{{Name: "op", Value: constant(op)}, {Name: "path", Value: p.expr()}}
	for _, v := range value {
		members = append(members, entry{Name: "value", Value: v})
	}
	return message("JSONPatch", members...)
}

// refusal is an operation that cannot be applied. A policy has no other way to
// refuse an object. The error shows the path, so the path says why.
func refusal(at legacy.Path, expected string) choice {
	return operations(operation("remove", pointer{}.key(at.String()+": expected "+expected)))
}
