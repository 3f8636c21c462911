package convert

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// target is a kind, or one of its subresources, that a rule mutates.
type target struct {
	gvk         schema.GroupVersionKind
	parent      schema.GroupVersionKind // the kind to which a subresource belongs
	resource    string
	subresource string
	namespaced  bool
	// known: the resource is in the known types; otherwise its name is guessed from the kind.
	known bool
}

// every reports whether the target stands for all kinds of a group, or for all kinds.
func (t target) every() bool { return t.resource == "*" }

func (t target) resources() string {
	if t.subresource != "" {
		return t.resource + "/" + t.subresource
	}
	return t.resource
}

// parseKind reads a kind of a match block as Kyverno does: Pod, v1/Pod, apps/v1/Deployment,
// Pod/status, and with wildcards.
func parseKind(s string) (group, version, kind, subresource string) {
	parts := strings.Split(s, "/")
	parts = append(parts[:len(parts)-1], strings.Split(parts[len(parts)-1], ".")...)
	isVersion := func(s string) bool {
		rest, ok := strings.CutPrefix(s, "v")
		return s == "*" || ok && rest != "" && rest[0] >= '0' && rest[0] <= '9'
	}
	switch len(parts) {
	case 1:
		return "*", "*", parts[0], ""
	case 2:
		switch {
		case parts[0] == "*" && parts[1] == "*":
			return "*", "*", "*", "*"
		case parts[0] == "*" && strings.ToLower(parts[1]) == parts[1]:
			return "*", "*", "*", parts[1]
		case isVersion(parts[0]):
			return "*", parts[0], parts[1], ""
		}
		return "*", "*", parts[0], parts[1]
	case 3:
		if isVersion(parts[0]) {
			return "*", parts[0], parts[1], parts[2]
		}
		return parts[0], parts[1], parts[2], ""
	case 4:
		return parts[0], parts[1], parts[2], parts[3]
	}
	return "", "", "", ""
}

// targetsOf returns the known kinds and subresources that a kind of a match block selects.
func targetsOf(types *openapi.Types, s string) []target {
	group, version, kind, sub := parseKind(s)
	if kind == "" {
		refuse("the kind %q cannot be read", s)
	}
	if kind == "*" && sub == "" && (group == "*" || !strings.ContainsAny(group, "*?")) && (version == "*" || !strings.ContainsAny(version, "*?")) {
		gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: "*"}
		return []target{{gvk: gvk, parent: gvk, resource: "*", known: true}}
	}
	if strings.ContainsAny(kind+sub, "*?") {
		refuseFor("name the kinds", "the kind %s stands for kinds that only a cluster knows", s)
	}
	var out []target
	for _, r := range types.Resources() {
		if r.Kind.Kind != kind || !wildcard(group, r.GVR.Group) || !wildcard(version, r.GVR.Version) || r.Kind.Group != r.GVR.Group {
			continue
		}
		if sub != "" && !slices.Contains(r.Subresources, sub) {
			continue
		}
		gvk := r.Kind
		if k, ok := r.SubresourceKinds[sub]; ok && sub != "" {
			gvk = k
		}
		t := target{gvk: gvk, parent: r.Kind, resource: r.GVR.Resource, subresource: sub, namespaced: r.Namespaced, known: true}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	if len(out) > 0 {
		return out
	}
	if strings.ContainsAny(group+version, "*") {
		refuseFor("give its CustomResourceDefinition, or write group/version/kind", "the kind %s is not known", s)
	}
	gvr, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	return []target{{gvk: gvk, parent: gvk, resource: gvr.Resource, subresource: sub, namespaced: true}}
}

// wildcard reports whether a pattern, which may contain one star, matches s.
func wildcard(pattern, s string) bool {
	before, after, ok := strings.Cut(pattern, "*")
	if !ok {
		return pattern == s
	}
	return len(s) >= len(before)+len(after) && strings.HasPrefix(s, before) && strings.HasSuffix(s, after)
}

// element is the step in a path that stands for all elements of a list.
const element = "[]"

// shape has what is known about the objects that a unit mutates.
type shape struct {
	types   *openapi.Types
	kinds   []*openapi.Kind
	gvks    []schema.GroupVersionKind
	builtin bool
	there   map[string]bool
}

func newShape(types *openapi.Types, targets []target) *shape {
	s := &shape{types: types, builtin: true, there: map[string]bool{}}
	for _, t := range targets {
		k, err := types.Kind(t.gvk)
		s.kinds, s.gvks = append(s.kinds, k), append(s.gvks, t.gvk)
		s.builtin = s.builtin && err == nil && k.Builtin()
	}
	return s
}

// at returns the schemas of a path in all kinds; false if a kind does not have the path.
func (s *shape) at(path []string) ([]openapi.Place, bool) {
	if len(path) > 0 && path[0] == oldRoot {
		path = path[1:]
	}
	var out []openapi.Place
	for _, k := range s.kinds {
		p, ok := k.Root()
		for _, step := range path {
			if !ok {
				break
			}
			if step == element {
				p, ok = p.Element()
			} else {
				p, ok = p.Field(step)
			}
		}
		if !ok {
			return nil, false
		}
		out = append(out, p)
	}
	return out, len(out) > 0
}

// undeclared returns the first step of a path that a built-in kind does not declare.
func (s *shape) undeclared(path []string) string {
	if !s.builtin {
		return ""
	}
	for i := range path {
		if _, ok := s.at(path[:i+1]); !ok {
			return show(path[:i+1])
		}
	}
	return ""
}

// oldRoot is the first step of a path into the object before an update.
const oldRoot = "\x00oldObject"

// below returns the part of a path after oldRoot and the like.
func below(path []string) []string {
	if len(path) > 0 && (path[0] == namespaceRoot || path[0] == paramsRoot || path[0] == oldRoot) {
		return path[1:]
	}
	return path
}

func show(path []string) string {
	switch {
	case len(path) > 0 && path[0] == namespaceRoot:
		return "namespaceObject." + show(path[1:])
	case len(path) > 0 && path[0] == paramsRoot:
		return "params." + show(path[1:])
	case len(path) > 0 && path[0] == oldRoot:
		return "oldObject." + show(path[1:])
	}
	return strings.ReplaceAll(strings.Join(path, "."), "."+element, element)
}

// every reports whether something holds for a path in all kinds.
func (s *shape) every(path []string, holds func(openapi.Place) bool) bool {
	places, ok := s.at(path)
	return ok && !slices.ContainsFunc(places, func(p openapi.Place) bool { return !holds(p) })
}

// sure reports whether every object that a server admits has the field at a path, provided that
// it has the field's parent.
func (s *shape) sure(path []string) bool {
	if path[0] == oldRoot {
		path = path[1:]
	}
	last := path[len(path)-1]
	if path[0] == paramsRoot {
		return last == "metadata" && len(path) == 2
	}
	if path[0] == namespaceRoot {
		return last == "metadata" || last == "labels" && len(path) == 3
	}
	if len(path) == 1 && (last == "metadata" || last == "kind" || last == "apiVersion") {
		return true
	}
	if !s.builtin {
		return false
	}
	if last == "template" || last == "jobTemplate" || last == "spec" && len(path) > 1 || last == "containers" {
		return true // required: a server refuses objects without it
	}
	key := strings.Join(path, "\x00")
	if there, ok := s.there[key]; ok {
		return there
	}
	there := true
	for i, k := range s.kinds {
		there = there && present(k, s.gvks[i], path)
	}
	s.there[key] = there
	return there
}

// present reports whether a server sets a field by default in an object that has only the field's
// parent.
func present(k *openapi.Kind, gvk schema.GroupVersionKind, path []string) bool {
	return normalized(k, gvk, path[:len(path)-1], path) != nil
}

// normalized returns the value at path after a server has decoded an object that has only an
// empty object at given.
func normalized(k *openapi.Kind, gvk schema.GroupVersionKind, given, path []string) any {
	var v any = map[string]any{}
	for i := len(given) - 1; i >= 0; i-- {
		if given[i] == element {
			v = []any{v}
		} else {
			v = map[string]any{given[i]: v}
		}
	}
	obj, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	obj["apiVersion"], obj["kind"] = gvk.GroupVersion().String(), gvk.Kind
	obj, err := k.Normalize(obj)
	if err != nil {
		return nil
	}
	v = obj
	for _, step := range path {
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			if len(at) == 0 {
				return nil
			}
			v = at[0]
		default:
			return nil
		}
	}
	return v
}

// neverEmpty reports whether an object at a path always has members if it exists.
func (s *shape) neverEmpty(path []string) bool {
	if !s.builtin {
		return false
	}
	for i, k := range s.kinds {
		v := normalized(k, s.gvks[i], path, path)
		if m, ok := v.(map[string]any); !ok || len(m) == 0 {
			return false
		}
	}
	return true
}

// scalar returns the type of a field: string, int, bool, list, map, or "" if it is unknown.
func (s *shape) scalar(path []string) string {
	if len(path) > 1 && path[0] == paramsRoot && path[1] == "data" {
		return map[int]string{2: "map", 3: "string"}[len(path)]
	}
	if len(path) > 0 && path[0] == oldRoot {
		return s.scalar(path[1:])
	}
	if inner := below(path); len(inner) < len(path) {
		path = inner
		if len(path) == 2 && path[0] == "metadata" && (path[1] == "labels" || path[1] == "annotations") {
			return "map"
		}
	}
	if len(path) == 3 && path[0] == "metadata" && (path[1] == "labels" || path[1] == "annotations") {
		return "string"
	}
	if len(path) == 2 && path[0] == "metadata" && slices.Contains([]string{"name", "namespace", "generateName", "uid"}, path[1]) {
		return "string"
	}
	places, ok := s.at(path)
	if !ok {
		return ""
	}
	typ := func(p openapi.Place) string {
		switch atom := p.Type(); {
		case atom.List != nil:
			return "list"
		case atom.Map != nil:
			return "map"
		}
		return map[string]string{"string": "string", "numeric": "int", "boolean": "bool", "untyped": "untyped"}[p.Scalar()]
	}
	first := typ(places[0])
	if slices.ContainsFunc(places, func(p openapi.Place) bool { return typ(p) != first }) {
		return ""
	}
	return first
}

// path is the path of a value in an object. The expression root is the value at prefix.
type path struct {
	root   expr
	prefix []string
	steps  []string
	// may is root as an optional if root may be missing; it has no text if root always exists.
	may expr
}

func (p path) whole() []string { return append(slices.Clone(p.prefix), p.steps...) }

func (p path) to(steps ...string) path {
	p.steps = append(slices.Clone(p.steps), steps...)
	return p
}

// parent returns the path of the value that contains p.
func (p path) parent() path {
	p.steps = p.steps[:len(p.steps)-1]
	return p
}

func (s *shape) typed(p path, e expr) expr {
	e.Type = s.scalar(p.whole())
	return e
}

// get returns the expression that reads a value and fails if there is none.
func (s *shape) get(p path) expr {
	e := p.root
	for _, step := range p.steps {
		e = member(e, step, false)
	}
	return s.typed(p, e)
}

// read returns the expression of a value, and whether that expression is an optional.
func (s *shape) read(p path) (expr, bool) {
	e, optional := p.root, false
	if p.may.Text != "" {
		e, optional = p.may, true
	}
	for i, step := range p.steps {
		optional = optional || !s.sure(append(slices.Clone(p.prefix), p.steps[:i+1]...))
		e = member(e, step, optional)
	}
	return s.typed(p, e), optional
}

// has returns the condition that a value exists.
func (s *shape) has(p path) expr {
	e, optional := s.read(p)
	if !optional {
		return yes
	}
	if len(p.steps) > 0 {
		last := p.steps[len(p.steps)-1]
		if parent, within := s.read(p.parent()); !within && isField(last) {
			return fn("has", "bool", member(parent, last, false))
		}
	}
	return call(e, "hasValue", "bool")
}

// or returns the value, or other if it does not exist.
func (s *shape) or(p path, other expr) expr {
	e, optional := s.read(p)
	if !optional {
		return e
	}
	return call(e, "orValue", other.Type, other)
}

// refusal is the reason why a rule is not converted. It is a panic value, because it ends the
// conversion of the whole rule at any depth; Policy recovers it (Rule.attempt).
type refusal struct {
	verdict         Verdict
	reason, instead string
}

func refuse(format string, args ...any) { panic(&refusal{Refused, fmt.Sprintf(format, args...), ""}) }

func refuseFor(instead, format string, args ...any) {
	panic(&refusal{Refused, fmt.Sprintf(format, args...), instead})
}

func needs(instead, format string, args ...any) {
	panic(&refusal{Needs, fmt.Sprintf(format, args...), instead})
}
