// Package ignore writes the rules by which a GitOps controller ignores what policies write,
// which it would otherwise revert as drift.
//
// A rule names fields of a kind, as narrowly as the controller's rules allow. It names an
// element of a list by its keys where they allow that: the element at an index may be another
// one tomorrow.
package ignore

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Controllers that rules are written for.
const (
	ArgoCD = "argocd"
	Flux   = "flux"
)

// Manager is the field manager of what mapd writes into a cluster itself, without a request
// of somebody else.
const Manager = "mapd-audit"

// Rules are the fields that policies write. The zero value is usable.
type Rules struct {
	fields   map[target]map[string]*field
	warnings map[string]bool
}

// target is what a rule is about.
type target struct{ group, kind string }

// field is one place in objects of a kind.
type field struct {
	steps []step
	// pointers are where it was in the objects that were looked at.
	pointers map[string]bool
	exact    bool // of objects that were given
}

// step is a part of a place.
type step struct {
	name string
	// element is an element of a list: the one with keys, or else each one, or else the one
	// that has the index name.
	element bool
	keys    []key
	each    bool
}

type key struct{ name, value string }

// Add adds the fields that differ between an object and what policies made of it. exact says
// that the object is one of the controller's, and not a made-up one of its kind.
func (r *Rules) Add(gvk schema.GroupVersionKind, exact bool, before, after map[string]any, changes []mapd.Change) {
	t := target{gvk.Group, gvk.Kind}
	for _, c := range changes {
		if c.Moved {
			r.warn("%s: %s: the order of the elements changes, which no rule can say; left out", gvk.Kind, c.Path)
			continue
		}
		if empty(c.Before) && empty(c.After) {
			continue // no policy means that; a rule would be about all that is ever there
		}
		parts, err := tree.SplitField(c.Path)
		if err != nil {
			r.warn("%s: %s: %v; left out", gvk.Kind, c.Path, err)
			continue
		}
		steps := make([]step, len(parts))
		for i, p := range parts {
			last := i == len(parts)-1
			steps[i] = step{name: p.Name}
			switch {
			case p.Keys && (exact || last):
				steps[i].element, steps[i].keys = true, keysOf(p.Name)
			case p.Keys:
				steps[i].element, steps[i].each = true, true
			case i > 0 && isIndex(p.Name) && isList(before, after, parts[:i]):
				steps[i].element = true
			}
		}
		if objects(c.Before) || objects(c.After) {
			if !exact {
				r.warn("%s: %s: left out: a rule would be about the whole list; objects of -f say what changes in it", gvk.Kind, c.Path)
				continue
			}
			r.warn("%s: %s: is about the whole list, whose elements have no keys", gvk.Kind, c.Path)
		}
		in := after
		if c.After == nil {
			in = before
		}
		below := [][]step{nil}
		if !steps[len(steps)-1].element { // which is there or not as a whole
			below = leaves(nil, c.Before, c.After)
		}
		for _, leaf := range below {
			r.add(t, exact, in, slices.Concat(steps, leaf))
		}
	}
}

// empty reports whether a value is nothing, or a list of nothing.
func empty(v any) bool {
	list, ok := v.([]any)
	return v == nil || ok && len(list) == 0
}

// objects reports whether a value is a list of objects.
func objects(v any) bool {
	list, _ := v.([]any)
	return slices.ContainsFunc(list, func(e any) bool { _, ok := e.(map[string]any); return ok })
}

// leaves returns the paths below a place at which a value was added or removed: objects are
// opened, so that a rule is not about what somebody else adds to them.
func leaves(at []step, before, after any) (out [][]step) {
	open, ok := after.(map[string]any)
	if before != nil {
		if open, ok = before.(map[string]any); after != nil {
			ok = false
		}
	}
	if !ok || len(open) == 0 {
		return [][]step{at}
	}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		next := append(slices.Clone(at), step{name: name})
		if before == nil {
			out = append(out, leaves(next, nil, open[name])...)
		} else {
			out = append(out, leaves(next, open[name], nil)...)
		}
	}
	return out
}

var number = regexp.MustCompile(`^[0-9]+$`)

func isIndex(name string) bool { return number.MatchString(name) }

// isList reports whether a path leads to a list in one of two objects.
func isList(before, after map[string]any, path []tree.FieldStep) bool {
	for _, object := range []map[string]any{after, before} {
		var v any = object
		for _, p := range path {
			switch x := v.(type) {
			case map[string]any:
				v = x[p.Name]
			case []any:
				v = nil
				if i := find(x, step{name: p.Name, element: true, keys: keysOf(p.Name)}); i >= 0 {
					v = x[i]
				}
			default:
				v = nil
			}
		}
		if _, ok := v.([]any); ok {
			return true
		}
	}
	return false
}

// keysOf reads the keys of an element: containerPort=80,protocol=TCP.
func keysOf(text string) (keys []key) {
	for _, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			if n := len(keys); n > 0 { // a comma of the value
				keys[n-1].value += "," + part
			}
			continue
		}
		keys = append(keys, key{name, value})
	}
	return keys
}

// find returns the index of an element, -1 if there is none.
func find(list []any, s step) int {
	if len(s.keys) == 0 {
		if i, err := strconv.Atoi(s.name); err == nil && i < len(list) {
			return i
		}
		return -1
	}
	return slices.IndexFunc(list, func(v any) bool {
		m, _ := v.(map[string]any)
		for _, k := range s.keys {
			if fmt.Sprint(m[k.name]) != k.value {
				return false
			}
		}
		return m != nil
	})
}

func (r *Rules) add(t target, exact bool, in map[string]any, steps []step) {
	if r.fields == nil {
		r.fields = map[target]map[string]*field{}
	}
	if r.fields[t] == nil {
		r.fields[t] = map[string]*field{}
	}
	id := jq(steps)
	f := r.fields[t][id]
	if f == nil {
		f = &field{steps: steps, pointers: map[string]bool{}, exact: exact}
		r.fields[t][id] = f
	}
	if p := pointer(in, steps); p != "" {
		f.pointers[p] = true
	}
}

func (r *Rules) warn(format string, args ...any) {
	if r.warnings == nil {
		r.warnings = map[string]bool{}
	}
	r.warnings[fmt.Sprintf(format, args...)] = true
}

// pointer returns the JSON pointer of a place in an object, "" if it is not there.
func pointer(object map[string]any, steps []step) string {
	var v any = object
	out := ""
	for _, s := range steps {
		name := s.name
		switch x := v.(type) {
		case map[string]any:
			v = x[s.name]
		case []any:
			i := -1
			if !s.each {
				i = find(x, s)
			}
			if i < 0 {
				return ""
			}
			name, v = strconv.Itoa(i), x[i]
		default:
			v = nil
		}
		out += tree.Pointer(name)
	}
	return out
}

// inList reports whether a place is in a list.
func inList(steps []step) bool {
	return slices.ContainsFunc(steps, func(s step) bool { return s.element })
}

// plain is the JSON pointer of a place in no list.
func plain(steps []step) string {
	out := ""
	for _, s := range steps {
		out += tree.Pointer(s.name)
	}
	return out
}

// jq returns the path expression of a place.
func jq(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		switch {
		case s.element && s.each:
			b.WriteString("[]?")
		case s.element && len(s.keys) > 0:
			var all []string
			for _, k := range s.keys {
				access := "." + k.name
				if _, err := strconv.ParseFloat(k.value, 64); err == nil || k.value == "true" || k.value == "false" {
					access = "(" + access + " | tostring)" // a number, or a text of digits
				}
				all = append(all, access+" == "+quoted(k.value))
			}
			b.WriteString("[]? | select(" + strings.Join(all, " and ") + ")")
		case s.element:
			b.WriteString("[" + s.name + "]")
		case simple.MatchString(s.name):
			if strings.HasSuffix(b.String(), ")") {
				b.WriteString(" | ")
			}
			b.WriteString("." + s.name)
		default:
			if strings.HasSuffix(b.String(), ")") || b.Len() == 0 {
				b.WriteString(map[bool]string{true: ".", false: " | ."}[b.Len() == 0])
			}
			b.WriteString("[" + quoted(s.name) + "]")
		}
	}
	return b.String()
}

var simple = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// quoted is a string of jq, which has the escapes of JSON and \( beside them. Encoders of
// JSON escape each backslash, so that none of a text begins an escape.
func quoted(s string) string {
	var b bytes.Buffer
	_ = report.WriteJSON(&b, s, "") // a string always has a text
	return strings.TrimSuffix(b.String(), "\n")
}

// Len returns how many fields there are.
func (r *Rules) Len() (n int) {
	for _, fields := range r.fields {
		n += len(fields)
	}
	return n
}

// sorted returns the fields of a target by their names.
func (r *Rules) sorted(t target) (out []*field) {
	for _, id := range slices.Sorted(maps.Keys(r.fields[t])) {
		out = append(out, r.fields[t][id])
	}
	return out
}

func (r *Rules) targets() []target {
	return slices.SortedFunc(maps.Keys(r.fields), func(a, b target) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.kind, b.kind))
	})
}

// Argo returns ignoreDifferences of an Application. With fixes, what mapd audit --fix wrote
// is trusted, too.
func (r *Rules) Argo(fixes bool) []any {
	var out []any
	for _, t := range r.targets() {
		var pointers, expressions []any
		for _, f := range r.sorted(t) {
			if !inList(f.steps) {
				pointers = append(pointers, plain(f.steps))
				continue
			}
			text := jq(f.steps)
			expressions = append(expressions, text)
			for _, s := range f.steps {
				switch {
				case s.each:
					r.warn("%s: %s: is about every element; objects of -f say which ones", t.kind, text)
				case s.element && len(s.keys) == 0:
					r.warn("%s: %s: is about the element at this place, whichever it is; it has no key", t.kind, text)
				}
			}
		}
		rule := map[string]any{"kind": t.kind}
		if t.group != "" {
			rule["group"] = t.group
		}
		if len(pointers) > 0 {
			rule["jsonPointers"] = pointers
		}
		if len(expressions) > 0 {
			rule["jqPathExpressions"] = expressions
		}
		if fixes {
			rule["managedFieldsManagers"] = []any{Manager}
		}
		out = append(out, rule)
	}
	return out
}

// Flux returns the rules of spec.ignore of a Kustomization and of spec.driftDetection.ignore
// of a HelmRelease. They have JSON pointers only, so an element of a list is one at a place.
func (r *Rules) Flux() []any {
	var out []any
	for _, t := range r.targets() {
		paths := map[string]bool{}
		for _, f := range r.sorted(t) {
			if !inList(f.steps) {
				paths[plain(f.steps)] = true
				continue
			}
			text := jq(f.steps)
			if !f.exact || len(f.pointers) == 0 {
				r.warn("%s: %s: left out: Flux knows elements of a list by their place only, which objects of -f say", t.kind, text)
				continue
			}
			for p := range f.pointers {
				paths[p] = true
			}
			r.warn("%s: %s: is about the element at %s, whichever it is there", t.kind, text, strings.Join(slices.Sorted(maps.Keys(f.pointers)), ", "))
		}
		if len(paths) == 0 {
			continue
		}
		var list []any
		for _, p := range slices.Sorted(maps.Keys(paths)) {
			list = append(list, p)
		}
		to := map[string]any{"kind": t.kind}
		if t.group != "" {
			to["group"] = t.group
		}
		out = append(out, map[string]any{"paths": list, "target": to})
	}
	return out
}

// Warnings returns where the rules that were written say more, or less, than is meant.
func (r *Rules) Warnings() []string { return slices.Sorted(maps.Keys(r.warnings)) }

// form is how rules are laid out.
var form = manifest.Form{Order: []string{"apiVersion", "kind", "metadata", "name", "spec", "group", "target", "paths"}, List: 0}

// Text returns rules for a controller as YAML: of an object that is called app, as KIND/NAME
// or NAME, or else the list alone.
func (r *Rules) Text(controller, app string, fixes bool) ([]byte, error) {
	kind, name, ok := strings.Cut(app, "/")
	if !ok {
		kind, name = "", app
	}
	object := func(version, kind string, spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}
	}
	kind = strings.ToLower(kind)
	var out map[string]any
	switch {
	case controller == ArgoCD && (kind == "" || kind == "application"):
		if out = map[string]any{"ignoreDifferences": r.Argo(fixes)}; name != "" {
			out = object("argoproj.io/v1alpha1", "Application", out)
		}
	case controller == Flux && fixes:
		return nil, fmt.Errorf("rules of Flux name no field manager")
	case controller == Flux && (kind == "" || kind == "kustomization"):
		if out = map[string]any{"ignore": r.Flux()}; name != "" {
			out = object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", out)
		}
	case controller == Flux && kind == "helmrelease":
		out = object("helm.toolkit.fluxcd.io/v2", "HelmRelease", map[string]any{"driftDetection": map[string]any{"mode": "enabled", "ignore": r.Flux()}})
	default:
		return nil, fmt.Errorf("%s: expected NAME, or for %s Application/NAME, for %s Kustomization/NAME or HelmRelease/NAME", app, ArgoCD, Flux)
	}
	return form.Encode(out), nil
}
