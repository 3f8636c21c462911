package openapi

import (
	"unicode/utf8"

	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// A Spot is a place in a settled object, at which one value is about to be
// written. What Settle would do to the whole object it does to that value alone,
// as long as nothing else of the object depends on it. Whatever is not sure is
// left to Settle: every method then says false.
type Spot struct {
	from     Decoding
	shape    *shape    // nil for a custom kind
	member   *member   // nil for what is no field of a struct
	defaults *defaults // nil for a built-in kind

	// declared is the kind's document, if what it does not declare has to be
	// refused here (see undeclared).
	declared *smdschema.Schema
	ref      smdschema.TypeRef
}

// Spot is the object itself, which has been settled. It is false for one that
// does not say that it is of the kind.
func (k *Kind) Spot(obj map[string]any, from Decoding) (Spot, bool) {
	apiVersion, _ := obj["apiVersion"].(string)
	kind, _ := obj["kind"].(string)
	if !k.is(apiVersion, kind) {
		return Spot{}, false
	}
	s := Spot{from: from}
	if k.goType == nil {
		if k.custom != nil {
			s.defaults = k.custom.defaults
		}
		return s, true
	}
	s.shape = k.goType.shape
	if _, ours := k.model.(*builtinModel); !ours && k.model != nil && from == FromJSONPatch {
		s.declared, s.ref = k.Schema()
	}
	return s, true
}

// is compares the two as an object has them.
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

// Field goes on to the member of a map or struct.
func (s *Spot) Field(name string) bool {
	if !s.declares(name) {
		return false
	}
	if s.shape == nil {
		if d := s.defaults; d != nil {
			if s.defaults = d.fields[name]; s.defaults == nil && !d.known[name] {
				s.defaults = d.others
			}
		}
		return true
	}
	switch sh := s.shape.target(); sh.form {
	case structure:
		f := sh.fields[name]
		if f == nil || f.omit == unsurely {
			return false
		}
		s.shape, s.member = f.shape, f
		return true
	case dict:
		s.shape, s.member = sh.elem, nil
		return utf8.ValidString(name)
	}
	return false
}

// declares goes on to the member in the kind's document.
func (s *Spot) declares(name string) bool {
	if s.declared == nil {
		return true
	}
	atom, ok := s.declared.Resolve(s.ref)
	if !ok || atom.Map == nil {
		s.declared = nil // it does not say more
		return true
	}
	if field, ok := atom.Map.FindField(name); ok {
		s.ref = field.Type
		return true
	}
	s.ref = atom.Map.ElementType
	return s.ref != smdschema.TypeRef{}
}

// Element goes on to any element of a list.
func (s *Spot) Element() bool {
	if s.declared != nil {
		if atom, ok := s.declared.Resolve(s.ref); ok && atom.List != nil {
			s.ref = atom.List.ElementType
		} else {
			s.declared = nil
		}
	}
	s.member = nil
	if s.shape == nil {
		if s.defaults != nil {
			s.defaults = s.defaults.items
		}
		return true
	}
	sh := s.shape.target()
	if sh.form != list {
		return false
	}
	s.shape = sh.elem
	return true
}

// target is the shape behind pointers.
func (sh *shape) target() *shape {
	for sh.form == pointer {
		sh = sh.elem
	}
	return sh
}

// Removable says whether the member of a map or struct can go without anything
// taking its place. That nothing else is in there is not asked.
func (s *Spot) Removable(name string) bool {
	if s.shape == nil {
		return s.defaults == nil || s.defaults.fields[name] == nil || s.defaults.fields[name].value == nil
	}
	switch sh := s.shape.target(); sh.form {
	case structure:
		f := sh.fields[name]
		return f != nil && !f.always && f.omit != unsurely
	case dict:
		return true
	}
	return false
}

// Settle returns what after becomes in this place, where before stands, or nil
// for nothing.
func (s *Spot) Settle(before, after any) (any, bool) {
	if isNull(after) {
		return nil, false
	}
	if s.shape == nil {
		w := customSettler{text: s.from == FromJSONPatch}
		v := w.value(s.defaults, before, after)
		return v, !isNull(v)
	}
	w := settler{from: s.from}
	v := w.value(s.shape, before, after)
	if w.odd || isNull(v) || s.member != nil && s.member.drops(after, v, &w.odd) {
		return nil, false
	}
	if s.declared != nil {
		look := declarations{schema: s.declared}
		if look.visit(s.ref, "", before, v); len(look.unknown) > 0 {
			return nil, false
		}
	}
	return v, true
}
