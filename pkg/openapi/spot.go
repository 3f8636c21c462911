package openapi

import (
	"unicode/utf8"

	"github.com/mapd-project/mapd/pkg/tree"
)

// A Spot is a position in a settled object at which one value is about to be written. It
// settles that value alone with the result that Kind.Settle would have for the whole object, if
// no other part of the object depends on the value. A method returns false if that is not
// certain; the caller then uses Kind.Settle.
type Spot struct {
	from     Decoding
	at       *member
	declared Place // the kind's document, if undeclared fields are rejected here (see Kind.declares)
}

// Spot returns the spot of a whole settled object, false if its apiVersion or kind
// is another.
func (k *Kind) Spot(obj map[string]any, from Decoding) (Spot, bool) {
	apiVersion, _ := obj["apiVersion"].(string)
	kind, _ := obj["kind"].(string)
	if !k.is(apiVersion, kind) {
		return Spot{}, false
	}
	declared, _ := k.declares(from)
	return Spot{from: from, at: k.root(), declared: declared}, true
}

// is reports whether k has this apiVersion and kind, in the form of an object's fields.
func (k *Kind) is(apiVersion, kind string) bool {
	if k.goType != nil {
		return apiVersion == k.goType.apiVersion && kind == k.goType.kind
	}
	if kind != k.gvk.Kind {
		return false
	}
	if g := len(k.gvk.Group); g > 0 {
		return len(apiVersion) == g+1+len(k.gvk.Version) && apiVersion[:g] == k.gvk.Group && apiVersion[g] == '/' && apiVersion[g+1:] == k.gvk.Version
	}
	return apiVersion == k.gvk.Version
}

// Field moves the spot to a member of a map or struct.
func (s *Spot) Field(name string) bool {
	sh := s.at.shape.target()
	m := sh.member(name)
	if m == nil || m.omit == unsurely || sh.form == dict && !utf8.ValidString(name) || s.declared.Refuses(name) {
		return false
	}
	s.at = m
	s.declared, _ = s.declared.Field(name)
	return true
}

// Element moves the spot to any element of a list.
func (s *Spot) Element() bool {
	items := s.at.shape.target().items
	if items == nil {
		return false
	}
	s.at = items
	s.declared, _ = s.declared.Element()
	return true
}

// Removable reports whether settling leaves a removed member of a map or struct removed,
// provided that other members remain.
func (s *Spot) Removable(name string) bool {
	m := s.at.shape.target().member(name)
	return m != nil && !m.always && m.omit != unsurely
}

// Settle returns the settled value of after, which replaces before at the spot.
func (s *Spot) Settle(before, after any) (any, bool) {
	if isNull(after) {
		return nil, false
	}
	if before != nil && tree.Same(before, after) {
		return before, true
	}
	w := settler{from: s.from}
	v := w.value(s.at.shape, before, after)
	if w.odd || isNull(v) || s.at.drops(after, v, &w.odd) {
		return nil, false
	}
	if len(s.declared.appendUndeclared(nil, "", before, v)) > 0 {
		return nil, false
	}
	return v, true
}
