// Package ignore writes rules that make a GitOps controller ignore fields that policies write.
// Without such rules it reverts them as drift.
//
// A rule names fields of a kind, as narrowly as the controller's rules allow. It names an element
// of a list by its keys if the controller supports that, because the element at an index may be
// another one tomorrow. If only the index identifies the element, the rule is restricted to one
// object.
//
// Controllers remove the fields of the rules, one after the other, from the object in Git and from
// that in the cluster, and compare the rest. So an index must be that of the same element in both,
// and of two indices the higher one comes first. Start reading at Rules.Add.
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

// Manager is the field manager of mapd's own writes, which no user's request has caused.
const Manager = "mapd-audit"

// Rules are the rules for one controller. They need no initialisation besides the name of the
// controller.
type Rules struct {
	// For is ArgoCD or Flux.
	For string

	fields   map[target]map[string][]step // by the text of the field
	warnings map[string]bool
}

// target says to which objects a rule applies: all objects of a kind, or the one with a name.
type target struct{ group, kind, namespace, name string }

// step is a step of a path.
type step struct {
	name string
	// element: the step is an element of a list: the one with keys or, without keys, the one at
	// the index name. each: all elements.
	element bool
	keys    []key
	each    bool
}

type key struct{ name, value string }

// placed reports whether a step is an element that only its index identifies.
func placed(s step) bool { return s.element && len(s.keys) == 0 }

func isElement(s step) bool { return s.element }

// Add adds the fields that differ between an object and the result of policies. exact: the object
// belongs to the controller, and is not an example of its kind.
func (r *Rules) Add(gvk schema.GroupVersionKind, exact bool, before, after map[string]any, changes []mapd.Change) {
	t := target{group: gvk.Group, kind: gvk.Kind}
	if exact {
		t.namespace, t.name = inMetadata(before, "namespace"), inMetadata(before, "name")
	}
	for _, c := range changes {
		if c.Moved {
			r.warn("%s: %s: the order of the elements changes, which no rule can say; left out", t.kind, c.Path)
			continue
		}
		if empty(c.Before) && empty(c.After) {
			continue // no policy intends that, and a rule would ignore everything that is ever there
		}
		parts, err := tree.SplitField(c.Path)
		if err != nil {
			r.warn("%s: %s: %v; left out", t.kind, c.Path, err)
			continue
		}
		var steps []step
		for i, p := range parts {
			last := i == len(parts)-1
			s := step{name: p.Name}
			switch {
			case p.Keys && (exact || last):
				s.element, s.keys = true, keysOf(p.Name)
				if one := oneKey(p.Name); !has(before, steps, s) && !has(after, steps, s) && (has(before, steps, one) || has(after, steps, one)) {
					s = one
				}
				if several(before, steps, s) || several(after, steps, s) {
					s.keys = append(s.keys, key{protocol, defaultProtocol})
				}
			case p.Keys:
				s.element, s.each, s.keys = true, true, keysOf(p.Name)
			case isIndex(p.Name) && (isList(at(before, steps)) || isList(at(after, steps))):
				s.element = true
			}
			steps = append(steps, s)
		}
		r.addChange(t, exact, before, after, steps, c)
	}
}

func inMetadata(object map[string]any, field string) string {
	m, _ := object["metadata"].(map[string]any)
	text, _ := m[field].(string)
	return text
}

// addChange adds the fields that differ at one path.
func (r *Rules) addChange(t target, exact bool, before, after map[string]any, steps []step, c mapd.Change) {
	byIndex := placed
	if r.For == Flux {
		byIndex = isElement
		if !exact && slices.ContainsFunc(steps, isElement) {
			r.warn("%s: %s: left out: Flux knows elements of a list by their place only, which objects of -f say", t.kind, jq(steps))
			return
		}
	}
	// whole is the reason why the rule is for a whole list.
	whole := ""
	if i := shifted(before, after, steps, c, byIndex); i >= 0 {
		steps, c = steps[:i], mapd.Change{Before: at(before, steps[:i]), After: at(after, steps[:i])}
		whole = "in which elements get other places"
	} else if isList(c.Before) || isList(c.After) {
		whole = "whose elements have no keys"
	}
	text := jq(steps)
	switch {
	case whole == "":
	case !exact && (objects(c.Before) || objects(c.After)):
		r.warn("%s: %s: left out: a rule would be about the whole list; objects of -f say what changes in it", t.kind, text)
		return
	default:
		r.warn("%s: %s: is about the whole list, %s", t.kind, text, whole)
	}
	if r.For == Flux {
		r.addPointer(t, before, after, steps, c)
		return
	}
	below := [][]step{nil}
	if !steps[len(steps)-1].element { // an element exists or is missing as a whole
		below = leaves(nil, c.Before, c.After)
	}
	for _, leaf := range below {
		field := slices.Concat(steps, leaf)
		id := jq(field)
		for _, s := range field {
			switch {
			case s.each:
				r.warn("%s: %s: is about every element; objects of -f say which ones", t.kind, id)
			case placed(s):
				r.warn("%s: %s: is about the element at this place, whichever it is; it has no key", t.kind, id)
			}
		}
		r.add(t, id, field)
	}
}

// addPointer adds what differs at one path for Flux. Flux compares objects exactly: an object
// that is empty after its fields were removed differs from a missing one. So the pointer leads to
// everything that only one side has. Flux ignores metadata that only the cluster has.
func (r *Rules) addPointer(t target, before, after map[string]any, steps []step, c mapd.Change) {
	text := jq(steps)
	numbered := slices.Clone(steps)
	for i, s := range steps {
		if s.element {
			list, _ := at(after, steps[:i]).([]any)
			n := find(list, s)
			if n < 0 {
				list, _ = at(before, steps[:i]).([]any)
				n = find(list, s)
			}
			numbered[i] = step{name: strconv.Itoa(n), element: true}
		}
	}
	if slices.ContainsFunc(steps, isElement) {
		r.warn("%s: %s: is about the element at %s, whichever it is there", t.kind, text, plain(numbered))
	}
	if steps[0].name == "metadata" {
		for _, leaf := range leaves(nil, c.Before, c.After) {
			r.add(t, plain(slices.Concat(numbered, leaf)), slices.Concat(numbered, leaf))
		}
		return
	}
	for i := range numbered {
		top := numbered[:i+1]
		b, a := at(before, top), at(after, top)
		if (b == nil) == (a == nil) {
			continue
		}
		if isObject(a) || isObject(b) {
			if !top[i].element {
				r.warn("%s: %s: is about all of this object, because Flux takes an empty one for drift", t.kind, plain(top))
			}
		}
		numbered = top
		break
	}
	r.add(t, plain(numbered), numbered)
}

// add adds a field. If an index identifies it, the rule is for the object in which it was found,
// because other objects of the kind may have another element at that index.
func (r *Rules) add(t target, id string, steps []step) {
	if !slices.ContainsFunc(steps, placed) || t.name == "" {
		t.namespace, t.name = "", ""
	}
	if r.fields == nil {
		r.fields = map[target]map[string][]step{}
	}
	if r.fields[t] == nil {
		r.fields[t] = map[string][]step{}
	}
	r.fields[t][id] = steps
}

func isObject(v any) bool { _, ok := v.(map[string]any); return ok }
func isList(v any) bool   { _, ok := v.([]any); return ok }

// empty reports whether a value is nil or an empty list.
func empty(v any) bool {
	list, ok := v.([]any)
	return v == nil || ok && len(list) == 0
}

// objects reports whether a value is a list of objects.
func objects(v any) bool {
	list, _ := v.([]any)
	return slices.ContainsFunc(list, isObject)
}

// leaves returns the paths, below a path, at which a value was added or removed. It descends into
// objects, so that a rule does not cover fields that others add to them.
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

// at returns the value at a place of an object, nil if there is none.
func at(v any, path []step) any {
	for _, s := range path {
		switch x := v.(type) {
		case map[string]any:
			v = x[s.name]
		case []any:
			i := find(x, s)
			if i < 0 {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// shifted returns the number of steps to the first list in which the element at an index is not
// the same before and after; -1 if there is none.
func shifted(before, after any, steps []step, c mapd.Change, byIndex func(step) bool) int {
	for i, s := range steps {
		b, _ := at(before, steps[:i]).([]any)
		a, _ := at(after, steps[:i]).([]any)
		if !byIndex(s) {
			continue
		}
		was, is := find(b, s), find(a, s)
		if i == len(steps)-1 && placed(s) {
			if c.Before == nil {
				was = -1 // another element is at the index now
			} else if c.After == nil {
				is = -1
			}
		}
		switch {
		case was < 0 && is < 0: // below an element that exists on one side only
		case was >= 0 && is >= 0 && was != is, was < 0 && is < len(b), is < 0 && was < len(a):
			return i
		}
	}
	return -1
}

// Ports have the key protocol, which a manifest may leave out.
const protocol, defaultProtocol = "protocol", "TCP"

// several reports whether the keys of a step match more than one element of the list at a path.
func several(object any, path []step, s step) bool {
	list, _ := at(object, path).([]any)
	i := find(list, s)
	return i >= 0 && find(list[i+1:], s) >= 0
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

// oneKey is the step of an element with one key, whose value may look like several: a mountPath
// may be /a,b=c.
func oneKey(text string) step {
	name, value, _ := strings.Cut(text, "=")
	return step{name: text, element: true, keys: []key{{name, value}}}
}

// has reports whether a list of an object has an element.
func has(object any, path []step, s step) bool {
	list, _ := at(object, path).([]any)
	return find(list, s) >= 0
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
			have := m[k.name]
			if have == nil && k.name == protocol {
				have = defaultProtocol
			}
			if fmt.Sprint(have) != k.value {
				return false
			}
		}
		return m != nil
	})
}

func (r *Rules) warn(format string, args ...any) {
	if r.warnings == nil {
		r.warnings = map[string]bool{}
	}
	r.warnings[fmt.Sprintf(format, args...)] = true
}

// inList reports whether a place is in a list.
func inList(steps []step) bool { return slices.ContainsFunc(steps, isElement) }

// plain returns the JSON pointer of a path, with indices for elements.
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
				if k.name == protocol {
					access = "(" + access + ` // "` + defaultProtocol + `")`
				}
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

// quoted returns a string literal of jq, which has the escapes of JSON and also \(. JSON encoders
// escape every backslash, so the text cannot begin such an escape.
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

// sorted returns the fields of a target in the order in which they are to be removed: what is
// below a place before the place, and the elements of a list from its end.
func (r *Rules) sorted(t target) (out [][]step) {
	return slices.SortedFunc(maps.Values(r.fields[t]), func(a, b []step) int {
		for i := range min(len(a), len(b)) {
			x, y := a[i], b[i]
			if placed(x) && placed(y) {
				m, _ := strconv.Atoi(x.name)
				n, _ := strconv.Atoi(y.name)
				if m != n {
					return cmp.Compare(n, m)
				}
				continue
			}
			if order := strings.Compare(jq(a[:i+1]), jq(b[:i+1])); order != 0 {
				return order
			}
		}
		return cmp.Compare(len(b), len(a))
	})
}

func (r *Rules) targets() []target {
	return slices.SortedFunc(maps.Keys(r.fields), func(a, b target) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.namespace, b.namespace))
	})
}

// Argo returns ignoreDifferences of an Application. With fixes, what mapd audit --fix wrote
// is trusted, too.
func (r *Rules) Argo(fixes bool) []any {
	var out []any
	for _, t := range r.targets() {
		var pointers, expressions []any
		for _, steps := range r.sorted(t) {
			if inList(steps) {
				expressions = append(expressions, jq(steps))
			} else {
				pointers = append(pointers, plain(steps))
			}
		}
		rule := t.selector()
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

// selector returns the fields that say what a rule is about, those that are not empty.
func (t target) selector() map[string]any {
	out := map[string]any{}
	for name, value := range map[string]string{"group": t.group, "kind": t.kind, "namespace": t.namespace, "name": t.name} {
		if value != "" {
			out[name] = value
		}
	}
	return out
}

// Flux returns the rules of spec.ignore of a Kustomization and of spec.driftDetection.ignore
// of a HelmRelease. They have JSON pointers only, so an element of a list is one at a place.
func (r *Rules) Flux() []any {
	var out []any
	for _, t := range r.targets() {
		var paths []any
		for _, steps := range r.sorted(t) {
			paths = append(paths, plain(steps))
		}
		// Flux takes regular expressions, and no group for any.
		t.name, t.namespace = regexp.QuoteMeta(t.name), regexp.QuoteMeta(t.namespace)
		if t.group == "" {
			t.group = "^$"
		}
		out = append(out, map[string]any{"paths": paths, "target": t.selector()})
	}
	return out
}

// Warnings returns where the rules say more, or less, than is meant.
func (r *Rules) Warnings() []string { return slices.Sorted(maps.Keys(r.warnings)) }

// form is how rules are laid out.
var form = manifest.Form{Order: []string{"apiVersion", "kind", "metadata", "name", "spec", "group", "namespace", "target", "paths"}, List: 0}

// Text returns the rules as YAML: of an object that is called app, as KIND/NAME or NAME, or
// else the list alone.
func (r *Rules) Text(app string, fixes bool) ([]byte, error) {
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
	case r.For == ArgoCD && (kind == "" || kind == "application"):
		if out = map[string]any{"ignoreDifferences": r.Argo(fixes)}; name != "" {
			out = object("argoproj.io/v1alpha1", "Application", out)
		}
	case r.For == Flux && fixes:
		return nil, fmt.Errorf("rules of Flux name no field manager")
	case r.For == Flux && (kind == "" || kind == "kustomization"):
		if out = map[string]any{"ignore": r.Flux()}; name != "" {
			out = object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", out)
		}
	case r.For == Flux && kind == "helmrelease":
		out = object("helm.toolkit.fluxcd.io/v2", "HelmRelease", map[string]any{"driftDetection": map[string]any{"mode": "enabled", "ignore": r.Flux()}})
	default:
		return nil, fmt.Errorf("%s: expected NAME, or for %s Application/NAME, for %s Kustomization/NAME or HelmRelease/NAME", app, ArgoCD, Flux)
	}
	return form.Encode(out), nil
}
