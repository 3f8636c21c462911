package tree

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// Pending stands in a tree for a string that somebody outside has yet to say. No tree
// that was decoded has one: only who works on a tree puts them in, and fills them in
// before anybody else gets it.
type Pending struct {
	// Source is who is asked, and Key what for.
	Source, Key string
	// Must says that there has to be an answer. Otherwise Fallback is written where
	// there is none.
	Must     bool
	Fallback string
}

// String describes what is asked.
func (p *Pending) String() string { return "what " + p.Source + " has for " + strconv.Quote(p.Key) }

// MarshalJSON writes a description, for those who look on while somebody works on a tree.
func (p *Pending) MarshalJSON() ([]byte, error) { return json.Marshal("<" + p.String() + ">") }

// Place is where in a tree a Pending is.
type Place struct {
	Path    string // JSON pointer
	Pending *Pending
}

// Places returns where a tree has a Pending, sorted by the names on the way.
func Places(v any) []Place {
	var out []Place
	var walk func(v any, path []byte)
	walk = func(v any, path []byte) {
		switch v := v.(type) {
		case *Pending:
			out = append(out, Place{string(path), v})
		case map[string]any:
			// Most maps have none, and need not be sorted.
			var inside []string
			for k, e := range v {
				if isOpen(e) {
					inside = append(inside, k)
				}
			}
			slices.Sort(inside)
			for _, k := range inside {
				walk(v[k], appendToken(path[:len(path):len(path)], k))
			}
		case []any:
			for i, e := range v {
				if isOpen(e) {
					walk(e, strconv.AppendInt(append(path[:len(path):len(path)], '/'), int64(i), 10))
				}
			}
		}
	}
	walk(v, nil)
	return out
}

// isOpen reports whether a value is, or may have in it, a Pending.
func isOpen(v any) bool {
	switch v.(type) {
	case *Pending, map[string]any, []any:
		return true
	}
	return false
}

// Fill returns a tree with a string in the place of each Pending. It shares what has
// none with v, which it does not modify.
func Fill(v any, value func(*Pending) string) any {
	switch v := v.(type) {
	case *Pending:
		return value(v)
	case map[string]any:
		out, owned := v, false
		for k, e := range v {
			if !isOpen(e) {
				continue
			}
			if next := Fill(e, value); !Same(next, e) {
				if !owned {
					out, owned = maps.Clone(v), true
				}
				out[k] = next
			}
		}
		return out
	case []any:
		out, owned := v, false
		for i, e := range v {
			if !isOpen(e) {
				continue
			}
			if next := Fill(e, value); !Same(next, e) {
				if !owned {
					out, owned = slices.Clone(v), true
				}
				out[i] = next
			}
		}
		return out
	}
	return v
}
