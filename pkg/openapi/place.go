package openapi

import "github.com/mapd-project/mapd/pkg/openapi/smd"

// A Place is a position in the objects of a kind, with the merge schema there. The zero Place
// is an unknown position.
type Place struct {
	schema *smd.Schema
	atom   smd.Atom
}

// Root returns the place of the object itself, false for a Kind without a schema.
func (k *Kind) Root() (Place, bool) {
	s, ref := k.Schema()
	if s == nil {
		return Place{}, false
	}
	return at(s, ref)
}

func at(s *smd.Schema, ref smd.TypeRef) (Place, bool) {
	atom, ok := s.Resolve(ref)
	// An empty reference, to the elements of a struct for one, resolves to nothing.
	ok = ok && (atom.Scalar != nil || atom.List != nil || atom.Map != nil)
	return Place{schema: s, atom: atom}, ok
}

// Field returns the place of the member of that name, false if there cannot be one or if it is
// unknown.
func (p Place) Field(name string) (Place, bool) {
	if p.atom.Map == nil {
		return Place{}, false
	}
	if f, ok := p.atom.Map.FindField(name); ok {
		return at(p.schema, f.Type)
	}
	return at(p.schema, p.atom.Map.ElementType)
}

// Element returns the place of the elements of a list, false if the place is not a list.
func (p Place) Element() (Place, bool) {
	if p.atom.List == nil {
		return Place{}, false
	}
	return at(p.schema, p.atom.List.ElementType)
}

// Declares reports whether the place is a struct that has a field of that name.
// A map with any keys declares none.
func (p Place) Declares(name string) bool {
	if p.atom.Map == nil {
		return false
	}
	_, ok := p.atom.Map.FindField(name)
	return ok
}

// Refuses reports whether the place is a struct without a field of that name.
// A map has an element type and a struct has none, as in structured-merge-diff
// (typed/validate.go).
func (p Place) Refuses(name string) bool {
	return p.atom.Map != nil && p.atom.Map.ElementType == (smd.TypeRef{}) && !p.Declares(name)
}

// Scalar returns the type of a scalar: "string", "numeric", "boolean" or, if several are
// allowed, "untyped". It is empty for other places.
func (p Place) Scalar() string {
	if p.atom.Scalar == nil {
		return ""
	}
	return string(*p.atom.Scalar)
}

// Keys returns the fields that identify the elements of a list in a merge;
// none for a list that is replaced or that is a set.
func (p Place) Keys() []string {
	if p.atom.List == nil {
		return nil
	}
	return p.atom.List.Keys
}

// Type returns the merge schema of the place, which says which forms of values it accepts; it
// is empty for an unknown place.
func (p Place) Type() smd.Atom { return p.atom }

// Atomic reports whether a merge may not go below this place: it replaces the
// whole list, map or struct.
func (p Place) Atomic() bool {
	return p.atom.List != nil && p.atom.List.ElementRelationship == smd.Atomic ||
		p.atom.Map != nil && p.atom.Map.ElementRelationship == smd.Atomic
}

// Fields returns the names of the fields that the place declares, in the order of the
// schema.
func (p Place) Fields() []string {
	if p.atom.Map == nil {
		return nil
	}
	var out []string
	for _, f := range p.atom.Map.Fields {
		out = append(out, f.Name)
	}
	return out
}
