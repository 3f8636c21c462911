package tree

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// Pending stands in a tree for a string that an external data provider still has to supply.
// Decoded trees have none: the code that puts them in fills them in before it passes the tree
// on.
type Pending struct {
	// Source is the provider, and Key the key to ask it for.
	Source, Key string
	// Must says that a missing answer is an error. Otherwise Fallback is used.
	Must     bool
	Fallback string
}

// String describes the question.
func (p *Pending) String() string { return "what " + p.Source + " has for " + strconv.Quote(p.Key) }

// MarshalJSON writes a description, for traces of a tree that is not finished.
func (p *Pending) MarshalJSON() ([]byte, error) { return json.Marshal("<" + p.String() + ">") }

// Place is the position of a Pending in a tree.
type Place struct {
	Path    string // JSON pointer
	Pending *Pending
}

// Places returns the position of each Pending in a tree, sorted by the names in the path.
func Places(v any) []Place {
	var out []Place
	var walk func(v any, path []byte)
	walk = func(v any, path []byte) {
		switch v := v.(type) {
		case *Pending:
			out = append(out, Place{string(path), v})
		case map[string]any:
			// Most maps have no Pending, and need no sorting.
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

// isOpen reports whether a value is a Pending or a container, which may have one in it.
func isOpen(v any) bool {
	switch v.(type) {
	case *Pending, map[string]any, []any:
		return true
	}
	return false
}

// Fill returns v with each Pending replaced by the string that value returns for it. v is not
// modified; parts without a Pending are shared with the result.
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
