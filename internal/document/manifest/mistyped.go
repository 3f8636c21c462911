package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mistyped is the error of a value whose type differs from its field's, in terms of JSON instead
// of Go.
type mistyped struct {
	err  error
	text string
}

func (e *mistyped) Error() string { return e.text }
func (e *mistyped) Unwrap() error { return e.err }

// place is a value and its path.
type place struct {
	*yaml.Node
	path string
}

// mistyped returns a plain text for err if a decoder has found a value of a wrong type, and the
// node of that value. prefix is as in ErrorOf.
func (d *Document) mistyped(prefix string, err error) (*yaml.Node, error) {
	var typed *json.UnmarshalTypeError
	if !errors.As(err, &typed) || typed.Type == nil {
		return nil, err
	}
	kind, text, _ := strings.Cut(typed.Value, " ")
	var at place
	if typed.Field != "" { // without the field's name, any value of the document could be meant
		at = findTyped(d.root(), prefix+typed.Field, kind, text)
	}
	path := typed.Field
	if at.Node != nil {
		path = strings.TrimPrefix(at.path, prefix)
	}
	say := fmt.Sprintf("must be %s, not %s", nounOf(typed.Type), foundNoun(kind, text))
	if !d.mayTell() {
		say += remedy(typed.Type, at.Node)
	}
	if path != "" {
		say = path + ": " + say
	}
	return at.Node, &mistyped{err, strings.Replace(err.Error(), typed.Error(), say, 1)}
}

// Mistyped returns a plain text for an error of decoding JSON, with the field: "textDocument.uri:
// must be a string, not a number".
func Mistyped(err error) string {
	var typed *json.UnmarshalTypeError
	if !errors.As(err, &typed) || typed.Type == nil {
		return err.Error()
	}
	kind, text, _ := strings.Cut(typed.Value, " ")
	say := fmt.Sprintf("must be %s, not %s", nounOf(typed.Type), foundNoun(kind, text))
	if typed.Field != "" {
		say = typed.Field + ": " + say
	}
	return strings.Replace(err.Error(), typed.Error(), say, 1)
}

// nounOf returns the JSON type for a Go type.
func nounOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return nounOf(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string in base64"
		}
		return "a list"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int32:
		return "a 32-bit integer"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer"
	}
	return "an object"
}

// foundNoun returns the plain name of the value that a decoder has found.
func foundNoun(kind, text string) string {
	switch {
	case text != "":
		return text
	case kind == "bool":
		return "a boolean"
	case kind == "array":
		return "a list"
	case kind == "object":
		return "an object"
	}
	return "a " + kind
}

// remedy returns what to write instead of a scalar that YAML takes for another type.
func remedy(want reflect.Type, n *yaml.Node) string {
	for want.Kind() == reflect.Pointer {
		want = want.Elem()
	}
	if n == nil || n.Kind != yaml.ScalarNode || len(n.Value) > 40 {
		return ""
	}
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
	switch want.Kind() {
	case reflect.String:
		if quoted {
			return ""
		}
		if jsonKind(n) == "bool" && n.Value != "true" && n.Value != "false" {
			return fmt.Sprintf("; %s is one in YAML 1.1, write %q", n.Value, n.Value)
		}
		return fmt.Sprintf("; write %q", n.Value)
	case reflect.Bool:
		if quoted && (n.Value == "true" || n.Value == "false") {
			return "; write it without quotes"
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if _, err := strconv.ParseInt(n.Value, 10, 64); err == nil && quoted {
			return "; write it without quotes"
		}
	}
	return ""
}

// findTyped finds the value that a decoder describes by its JSON type ("number", "bool"). The
// decoder's path has no indices and no keys, so the value may be in any element of a list on the
// way, or be an element of the value at the path. For a number the decoder may also return the
// text. The place has no Node if nothing is found.
func findTyped(root *yaml.Node, path, got, text string) place {
	places := []place{{root, ""}}
	for _, step := range Steps(path) {
		var next []place
		for _, p := range elements(places) {
			if p.Kind == yaml.MappingNode {
				if _, v := pair(p.Node, step); v != nil {
					next = append(next, place{v, under(p.path, step)})
				}
			}
		}
		places = next
	}
	var inside []place
	for _, p := range places {
		inside = append(inside, children(p)...)
	}
	for _, p := range append(places, inside...) {
		if kind := jsonKind(p.Node); kind == got && (text == "" || p.Value == text) {
			return p
		}
	}
	return place{}
}

// elements returns places with every list replaced by its elements, also within lists.
func elements(places []place) []place {
	var out []place
	for _, p := range places {
		if p.Node != nil && p.Kind == yaml.AliasNode {
			p.Node = p.Alias
		}
		switch {
		case p.Node == nil:
		case p.Kind == yaml.SequenceNode:
			out = append(out, elements(children(p))...)
		default:
			out = append(out, p)
		}
	}
	return out
}

// children are the values of a mapping or list.
func children(p place) []place {
	switch p.Kind {
	case yaml.AliasNode:
		return children(place{p.Alias, p.path})
	case yaml.SequenceNode:
		out := make([]place, len(p.Content))
		for i, n := range p.Content {
			out[i] = place{n, fmt.Sprintf("%s[%d]", p.path, i)}
		}
		return out
	case yaml.MappingNode:
		var out []place
		for i := 1; i < len(p.Content); i += 2 {
			out = append(out, place{p.Content[i], under(p.path, p.Content[i-1].Value)})
		}
		return out
	}
	return nil
}

var plainKey = regexp.MustCompile(`^[\w-]+$`)

// under returns the path of a key of what is at a path.
func under(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}
