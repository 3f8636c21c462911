package interpret

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// fields is an object of an overlay. It is a list, because removing the mark of an anchor changes
// the name of a field, but must not change its position.
type fields struct{ list []field }

type field struct {
	name  string
	value any // *fields, *elements or a scalar
}

// elements is a list of an overlay.
type elements struct{ list []any }

// overlayOf converts JSON values to fields and elements.
func overlayOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := &fields{}
		for _, k := range keysOf(v) {
			out.list = append(out.list, field{k, overlayOf(v[k])})
		}
		return out
	case []any:
		out := &elements{}
		for _, e := range v {
			out.list = append(out.list, overlayOf(e))
		}
		return out
	}
	return v
}

// plainOf converts fields and elements to JSON values.
func plainOf(v any) any {
	switch v := v.(type) {
	case *fields:
		out := map[string]any{}
		for _, f := range v.list {
			if _, twice := out[f.name]; twice {
				unknown("an overlay with the field %s with and without an anchor", f.name)
			}
			out[f.name] = plainOf(f.value)
		}
		return out
	case *elements:
		out := make([]any, len(v.list))
		for i, e := range v.list {
			out[i] = plainOf(e)
		}
		return out
	}
	return v
}

func (f *fields) at(name string) int {
	return slices.IndexFunc(f.list, func(f field) bool { return f.name == name })
}

func (f *fields) drop(name string) {
	f.list = slices.DeleteFunc(f.list, func(f field) bool { return f.name == name })
}

func (f *fields) names() []string {
	out := make([]string, len(f.list))
	for i := range f.list {
		out[i] = f.list[i].name
	}
	return out
}

// anchors returns the fields whose anchor satisfies is.
func (f *fields) anchors(is func(anchor) bool) (names []string, out []anchor) {
	for _, name := range f.names() {
		if a, ok := anchorOf(name); ok && is(a) {
			names, out = append(names, name), append(out, a)
		}
	}
	return names, out
}

// unmet is the error of a condition that does not hold. A global one concerns the whole overlay.
type unmet struct{ global bool }

func (u *unmet) Error() string { return "a condition of the overlay does not hold" }

// overlay applies patchStrategicMerge.
func (r *run) overlay(object map[string]any, patch any) (map[string]any, error) {
	root, ok := overlayOf(patch).(*fields)
	if !ok {
		return nil, errRule
	}
	if err := (decider{r.scope}).decide(root, object, true); err != nil {
		if _, ok := err.(*unmet); ok {
			return merged(object, map[string]any{}) // a merge with nothing still joins elements of lists with keys
		}
		return nil, err
	}
	for _, name := range root.names() {
		a, isAnchor := anchorOf(name)
		i := root.at(name)
		if emptied(root.list[i].value, isAnchor && a.condition()) {
			root.drop(name)
		}
	}
	return merged(object, plainOf(root).(map[string]any))
}

// decider evaluates anchors.
type decider struct{ *scope }

// clone returns a copy of an overlay.
func (d decider) clone(v any) any {
	switch v := v.(type) {
	case *fields:
		d.spend(len(v.list))
		out := &fields{slices.Clone(v.list)}
		for i := range out.list {
			out.list[i].value = d.clone(out.list[i].value)
		}
		return out
	case *elements:
		d.spend(len(v.list))
		out := &elements{slices.Clone(v.list)}
		for i := range out.list {
			out.list[i] = d.clone(out.list[i])
		}
		return out
	}
	return v
}

// decide evaluates the anchors of an overlay against the object's value. there is false if the
// object has no value here.
func (d decider) decide(pattern, value any, there bool) error {
	switch p := pattern.(type) {
	case *fields:
		return d.decideFields(p, value, there)
	case *elements:
		if len(p.list) > 0 {
			if _, ok := p.list[0].(*fields); ok {
				return d.decideElements(p, value, there)
			}
		}
	}
	return nil
}

// fieldOf returns a field of an object.
func fieldOf(value any, name string) (v any, there bool) {
	m, _ := value.(map[string]any)
	v, there = m[name]
	return v, there
}

// addAbsent removes the +() fields that the object has, and turns the others into plain fields.
// It returns how many +() fields there were.
func addAbsent(pattern, value any) int {
	p, ok := pattern.(*fields)
	if !ok {
		return 0
	}
	names, anchors := p.anchors(func(a anchor) bool { return a.kind == "+" })
	for i, name := range names {
		if _, there := fieldOf(value, anchors[i].name); there {
			p.drop(name)
		} else {
			p.list[p.at(name)].name = anchors[i].name
		}
	}
	return len(names)
}

func (d decider) decideFields(p *fields, value any, there bool) error {
	addAbsent(p, value)
	for _, global := range []bool{true, false} {
		kind := ""
		if global {
			kind = "<"
		}
		names, anchors := p.anchors(func(a anchor) bool { return a.kind == kind })
		for i, name := range names {
			have, ok := fieldOf(value, anchors[i].name)
			if !there || !ok {
				return &unmet{global}
			}
			want := p.list[p.at(name)].value
			if addAbsent(want, have) == 0 && !meets(want, have) {
				return &unmet{global}
			}
		}
	}
	for _, name := range p.names() {
		if a, ok := anchorOf(name); ok && (a.condition() || a.kind == "+") {
			continue
		}
		below, ok := fieldOf(value, name)
		if err := d.decide(p.list[p.at(name)].value, below, ok); err != nil {
			return err
		}
	}
	return nil
}

// meets reports whether a value satisfies the condition of an anchor. Scalars are compared as
// texts.
func meets(want, have any) bool {
	w := plainOf(want)
	if !container(w) {
		w = scalarText(w)
	}
	if !container(have) {
		have = scalarText(have)
	} else {
		have = floats(have)
	}
	return against(have, floats(w)) == fit
}

func container(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// scalarText returns a scalar as it stands in JSON, without quotes.
func scalarText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case nil:
		return "null"
	case int64:
		return strconv.FormatInt(v, 10)
	}
	data, err := json.Marshal(v)
	if err != nil {
		unknown("a value that is no JSON")
	}
	return string(data)
}

func (d decider) decideElements(p *elements, value any, there bool) error {
	have, ok := value.([]any)
	if there && value != nil && !ok {
		return errRule
	}
	for _, element := range slices.Clone(p.list) {
		if !hasAnchor(element, anyAnchor) {
			continue
		}
		global, passed := hasAnchor(element, func(a anchor) bool { return a.kind == "<" }), false
		var last error
		// As in Kyverno, all elements share one copy: what the first element decides about +()
		// holds for the others.
		pattern := d.clone(element)
		for _, e := range have {
			if err := d.decide(pattern, e, true); err != nil {
				u, ok := err.(*unmet)
				if !ok {
					return err
				}
				if u.global {
					last = err
				}
				continue
			}
			if global {
				passed = true
			} else {
				d.apply(p, pattern, e)
			}
		}
		if !there {
			if err := d.decide(pattern, nil, false); err != nil {
				if u, ok := err.(*unmet); ok && !u.global {
					continue
				}
				return err
			}
			passed = passed || global
		}
		if !passed && last != nil {
			return last
		}
	}
	return nil
}

// apply adds the changes for one element of an object, which the element's name selects, to the
// list of an overlay.
func (d decider) apply(p *elements, pattern, element any) {
	name, ok := fieldOf(element, "name")
	if !ok || name == nil {
		return
	}
	fresh, ok := d.clone(pattern).(*fields)
	if !ok {
		unknown("an overlay with an anchor in a text")
	}
	if emptied(fresh, true) {
		return
	}
	if i := fresh.at("name"); i >= 0 {
		fresh.list[i].value = name
	} else {
		fresh.list = append(fresh.list, field{"name", name})
	}
	p.list = append(p.list, fresh)
}

func anyAnchor(a anchor) bool { return a.condition() || a.kind == "+" }

// hasAnchor reports whether an overlay has an anchor for which is returns true. A text in
// parentheses counts as an anchor of any kind.
func hasAnchor(pattern any, is func(anchor) bool) bool {
	switch p := pattern.(type) {
	case *fields:
		for _, f := range p.list {
			if a, ok := anchorOf(f.name); ok && is(a) {
				return true
			}
			if f.value != nil && hasAnchor(f.value, is) {
				return true
			}
		}
	case *elements:
		return slices.ContainsFunc(p.list, func(e any) bool { return hasAnchor(e, is) })
	case string:
		a, ok := anchorOf(strings.TrimSpace(p))
		return ok && a.condition()
	}
	return false
}

// emptied removes evaluated anchors from an overlay, and the objects and lists that are empty
// then. It returns true if the overlay itself is empty; a scalar counts as empty if scalars is
// set.
func emptied(pattern any, scalars bool) bool {
	switch p := pattern.(type) {
	case *fields:
		return emptiedFields(p)
	case *elements:
		return emptiedElements(p)
	}
	return scalars
}

func emptiedFields(p *fields) bool {
	names, anchors := p.anchors(anchor.condition)
	stay := false
	for _, name := range names {
		if emptied(p.list[p.at(name)].value, true) {
			p.drop(name)
		} else {
			stay = true
		}
	}
	if stay {
		for i, name := range names {
			if at := p.at(name); at >= 0 {
				p.list[at].name = anchors[i].name
			}
		}
	}
	empty := true
	for _, name := range p.names() {
		if emptied(p.list[p.at(name)].value, false) {
			p.drop(name)
		} else {
			empty = false
		}
	}
	return empty
}

// emptiedElements removes elements that have anchors. Like Kyverno, it determines all indices
// before it removes the first element, so that the second removal hits the wrong element.
func emptiedElements(p *elements) bool {
	before := slices.Clone(p.list)
	for i, e := range before {
		if !hasAnchor(e, anyAnchor) && !emptied(e, false) {
			continue
		}
		if i >= len(p.list) {
			unknown("an overlay that removes more elements than a list has")
		}
		p.list = slices.Delete(p.list, i, i+1)
	}
	return len(p.list) == 0 && len(before) > 0
}
