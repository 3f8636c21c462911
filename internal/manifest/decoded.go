package manifest

import (
	"regexp"
	"strings"
)

// The decoder's words for a field that it does not know, and for one that has
// another type (sigs.k8s.io/json, encoding/json).
var (
	unknownField = regexp.MustCompile(`(?:unknown|duplicate) field "([^"]+)"`)
	mistyped     = regexp.MustCompile(`cannot unmarshal (\w+)(?: (\S+))? into Go struct field \w+\.([\w.]+) of type`)
)

// ErrorOf is err, from decoding the document's object, at the field that the
// decoder's text names; prefix is the path of that object in the document.
func (d *Document) ErrorOf(prefix string, err error) *PositionError {
	text := err.Error()
	if m := unknownField.FindStringSubmatch(text); m != nil {
		return d.ErrorAtKey(prefix+m[1], err)
	}
	if m := mistyped.FindStringSubmatch(text); m != nil {
		if n := findTyped(d.root(), prefix+m[3], m[1], m[2]); n != nil {
			return d.errorAt(Pos{d.first + n.Line - 1, n.Column}, err)
		}
		return d.ErrorAt(prefix+m[3], err)
	}
	return d.ErrorAt(strings.TrimSuffix(prefix, "."), err)
}
