package gatekeeper

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// gen turns bytes into decisions. When they run out every decision is the first
// choice, so a short input is a small case.
type gen struct {
	data []byte
	// paths are those of the mutators so far.
	paths [][]string
}

func (g *gen) n(max int) int {
	if max <= 1 || len(g.data) == 0 {
		return 0
	}
	b := int(g.data[0])
	g.data = g.data[1:]
	return b % max
}

func (g *gen) chance(percent int) bool {
	if len(g.data) == 0 {
		return false
	}
	return g.n(100) >= 100-percent
}

func one[T any](g *gen, from ...T) T { return from[g.n(len(from))] }

// some returns one to three of from.
func some(g *gen, from ...any) []any {
	out := []any{one(g, from...)}
	for g.chance(25) && len(out) < 3 {
		out = append(out, one(g, from...))
	}
	return out
}

// The names of fields are few, so that paths meet. What a field usually holds
// goes by its name, so that paths are also walked to their end: below "spec" an
// "a" or "b" is an object, an "l" or "m" a list of objects with keys, an "s" a
// list of scalars, an "i" an image and an "x" or "y" a scalar.
var (
	objects = []string{"a", "a", "a", "b"}
	lists   = []string{"l", "l", "l", "m"}
	fields  = []string{"a", "b", "l", "m", "x", "y", "i", "s"}
	scalars = []string{"x", "y", "i", "s"}
	odd     = []string{"in", "namespace", "a.b", "a/b", "~", "a~1b", "é", `q"`, "q'", `b\`, "${x}", "{{", " ", "", "true", "0", "__x__", "𝒳", "line\nbreak", "-", "*"}
	keys    = []string{"name", "name", "name", "name", "k"}
	labels  = []string{"l1", "l2", "l3", "example.com/l-4"}
	words   = []string{"x", "y", "", "1", "true", "null", "é\u2028", `"`, `'\`, "${x}", "a/b~c", "line\nbreak", "*"}
)

// random makes a case of up to five mutators.
func (g *gen) random() Case {
	var c Case
	names := []string{"a", "b", "c", "a-b", "a.b", "d"}
	story := g.story()
	for range max(1+g.n(5), len(story)) {
		var m *unstructured.Unstructured
		if len(story) > 0 {
			m, story = story[0], story[1:]
		} else {
			m = g.mutator()
		}
		name := names[g.n(len(names))]
		id := func(u *unstructured.Unstructured) bool { return u.GetKind() == m.GetKind() && u.GetName() == name }
		if slices.ContainsFunc(c.Mutators, id) {
			continue
		}
		m.SetName(name)
		c.Mutators = append(c.Mutators, m)
	}
	c.Request = g.request()
	return c
}

func (g *gen) mutator() *unstructured.Unstructured {
	kind := one(g, "Assign", "Assign", "Assign", "AssignMetadata", "AssignMetadata", "ModifySet", "AssignImage")
	spec := map[string]any{}
	if kind != "AssignMetadata" {
		spec["applyTo"] = g.applyTo()
	}
	switch {
	case kind == "AssignMetadata" && g.chance(40):
		// By a label that another one may set.
		spec["match"] = map[string]any{"labelSelector": map[string]any{"matchLabels": map[string]any{one(g, labels...): "x"}}}
	case g.chance(35):
		spec["match"] = g.match()
	}
	parameters := map[string]any{}
	var path []string // as written, each a location of one node more
	switch kind {
	case "Assign":
		parameters["assign"], path = g.assign()
	case "AssignMetadata":
		path = []string{"metadata." + one(g, "labels", "labels", "annotations") + "." + quote(one(g, labels...))}
		parameters["assign"] = map[string]any{"value": one(g, "x", "x", "x", "y", one(g, words...))}
		switch {
		case g.chance(15):
			parameters["assign"] = map[string]any{"fromMetadata": map[string]any{"field": one(g, "name", "namespace")}}
		case g.chance(15):
			parameters["assign"] = map[string]any{"externalData": g.external("Username")}
		}
	case "ModifySet":
		path = g.path("s")
		parameters["operation"] = one(g, "merge", "prune")
		if g.chance(10) {
			delete(parameters, "operation")
		}
		if !g.chance(3) {
			parameters["values"] = map[string]any{"fromList": g.set()}
		}
	case "AssignImage":
		path = g.path("i")
		for _, part := range []struct {
			field  string
			values []string
		}{{"assignDomain", []string{"my.reg", "localhost", "reg.io:5000"}}, {"assignPath", []string{"p", "lib/p", "n.w"}},
			{"assignTag", []string{":v2", "@sha256:" + strings.Repeat("a", 64)}}} {
			if g.chance(60) {
				parameters[part.field] = one(g, part.values...)
			}
		}
	}
	if tests := g.pathTests(path); tests != nil && kind != "AssignMetadata" {
		parameters["pathTests"] = tests
	}
	spec["location"], spec["parameters"] = path[len(path)-1], parameters
	return mutator(kind, spec)
}

// story makes mutators, now and then, that have to do with each other in a way
// which chance alone seldom finds.
func (g *gen) story() []*unstructured.Unstructured {
	assign := func(location string, value any, tests ...any) *unstructured.Unstructured {
		parameters := map[string]any{"assign": map[string]any{"value": value}}
		if tests != nil {
			parameters["pathTests"] = tests
		}
		return mutator("Assign", map[string]any{"applyTo": g.applyTo(), "location": location, "parameters": parameters})
	}
	label := func(name, when string) *unstructured.Unstructured {
		return mutator("AssignMetadata", map[string]any{"location": "metadata.labels." + name,
			"parameters": map[string]any{"assign": map[string]any{"value": "x"}},
			"match":      map[string]any{"labelSelector": map[string]any{"matchLabels": map[string]any{when: "x"}}}})
	}
	if !g.chance(20) {
		return nil
	}
	external := func(location string) *unstructured.Unstructured {
		m := assign(location, nil)
		m.Object["spec"].(map[string]any)["parameters"] = map[string]any{"assign": map[string]any{"externalData": g.external("ValueAtLocation")}}
		return m
	}
	switch g.n(6) {
	case 4: // a label that waits beside those that selectors ask for
		waits := mutator("AssignMetadata", map[string]any{"location": "metadata.labels.l1",
			"parameters": map[string]any{"assign": map[string]any{"externalData": g.external("Username")}}})
		return []*unstructured.Unstructured{waits, label("l2", "l3"), label("l4", "l1"), assign("spec.x", "beside")}
	case 5: // external data, and others at the same place
		others := []*unstructured.Unstructured{external("spec.l[name: *].i"), external("spec.l[name: x].i"), assign("spec.l[name: *].i", "plain")}
		if g.chance(40) {
			others = append(others, mutator("AssignImage", map[string]any{"applyTo": g.applyTo(), "location": "spec.l[name: x].i",
				"parameters": map[string]any{"assignTag": ":v2"}}))
		}
		return others
	case 0: // a chain through labels
		return []*unstructured.Unstructured{label("l1", "l2"), label("l2", "l3"), label("l3", "l4"), assign("spec.x", "chained")}
	case 1: // an element that another one visits once it is there
		var tests []any
		if g.chance(60) {
			tests = []any{map[string]any{"subPath": "spec.l[name: x]", "condition": "MustNotExist"}}
		}
		return []*unstructured.Unstructured{assign("spec.l[name: *].y", "everywhere"), assign("spec.l[name: x]", map[string]any{"name": "x", "x": "new"}, tests...)}
	case 2: // one value in several places, and somebody who edits it in one
		return []*unstructured.Unstructured{assign("spec.l[name: *].a", map[string]any{"y": "1", "s": []any{"x"}}), assign("spec.l[name: x].a.x", "only x")}
	}
	// parents that come and go
	return []*unstructured.Unstructured{assign("spec.a.b.x", "deep"), assign("spec.a", map[string]any{"y": "flat"}),
		assign("spec.a.b", map[string]any{}, map[string]any{"subPath": "spec.a", "condition": "MustExist"})}
}

func mutator(kind string, spec map[string]any) *unstructured.Unstructured {
	version := "v1"
	if kind == "AssignImage" {
		version = "v1alpha1"
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "mutations.gatekeeper.sh/" + version, "kind": kind,
		"metadata": map[string]any{}, "spec": spec}}
}

// assign makes the parameter of an Assign and its path.
func (g *gen) assign() (map[string]any, []string) {
	path := g.path(scalars...)
	if g.chance(15) {
		// To a whole element. Its key has to be what the selector says.
		list, key, value := one(g, lists...), one(g, keys...), one(g, words[:3]...)
		parent := "spec." + list
		element, ok := g.element(1).(map[string]any)
		if !ok {
			element = map[string]any{}
		}
		element[key] = value
		return map[string]any{"value": element}, []string{"spec", parent, parent + "[" + quote(key) + ": " + quote(value) + "]"}
	}
	switch {
	case g.chance(10):
		return map[string]any{"externalData": g.external(one(g, "ValueAtLocation", "ValueAtLocation", "Username", "", "Other"))}, path
	case g.chance(8):
		return map[string]any{"fromMetadata": map[string]any{"field": one(g, "name", "namespace")}}, path
	case g.chance(20):
		// What others want to write into.
		return map[string]any{"value": map[string]any{one(g, objects...): map[string]any{"x": g.scalar()}, one(g, lists...): []any{g.element(2)}}},
			g.path(objects...)
	}
	return map[string]any{"value": g.value(1)}, path
}

// external makes the parameter of external data. Most Providers answer.
func (g *gen) external(source string) map[string]any {
	out := map[string]any{"provider": one(g, "p", "p", "ok", "other", "emptystr", "err", "int", "null", "nonidem", "system", "missing", "unknown"),
		"failurePolicy": one(g, "Fail", "Ignore", "UseDefault", "UseDefault", "Ignore", "Other")}
	if source != "" {
		out["dataSource"] = source
	}
	if g.chance(90) {
		out["default"] = one(g, "d", "x", "")
	}
	return out
}

// path makes a location that usually ends in one of the names: all that begin
// it, and it.
func (g *gen) path(last ...string) []string {
	text := "spec"
	all := []string{text}
	add := func(s string) {
		text += s
		all = append(all, text)
	}
	switch {
	case len(g.paths) > 0 && g.chance(40):
		// From a part of the way that another one goes, or from its end.
		all = slices.Clone(one(g, g.paths...))
		if g.chance(30) {
			for i := range all {
				all[i] = strings.ReplaceAll(all[i], ": *]", ": x]")
			}
		}
		if n := 1 + g.n(len(all)); len(all) > 1 && !strings.HasSuffix(all[n-1], "]") && g.chance(60) {
			all = all[:n]
		}
		text = all[len(all)-1]
	case g.chance(3):
		text = one(g, "kind", "apiVersion", "status", "metadata")
		all = []string{text}
	}
	for range g.n(4) {
		if len(all) > 6 {
			break
		}
		if g.chance(50) {
			add("." + g.name(lists))
			add(g.selector())
		} else {
			add("." + g.name(objects))
		}
	}
	if len(all) == 1 || !g.chance(10) || strings.HasSuffix(text, "]") {
		add("." + g.name(last))
	}
	g.paths = append(g.paths, all)
	return all
}

func (g *gen) name(usual []string) string {
	switch {
	case g.chance(4):
		return quote(one(g, odd...))
	case g.chance(6):
		return one(g, fields...)
	}
	return one(g, usual...)
}

func (g *gen) selector() string {
	key := quote(one(g, keys...))
	if g.chance(2) {
		key = quote(one(g, odd...))
	}
	switch g.n(8) {
	case 0, 1, 2:
		return "[" + key + ": *]"
	case 3:
		return "[" + key + ": " + one(g, "1", "0", "9007199254740993") + "]"
	}
	return "[" + key + ": " + quote(one(g, "x", "x", "x", "y", one(g, words...))) + "]"
}

// quote writes a name of a location.
func quote(s string) string {
	if len(s) == 1 && s >= "a" && s <= "z" || s == "name" {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func (g *gen) pathTests(path []string) []any {
	var out []any
	if !g.chance(40) {
		return nil
	}
	for i := range path {
		if g.chance(30) {
			out = append(out, map[string]any{"subPath": path[i], "condition": one(g, "MustExist", "MustNotExist")})
		}
	}
	if g.chance(5) {
		out = append(out, map[string]any{"subPath": one(g, path...), "condition": one(g, "", "Other", "MustExist")})
	}
	if g.chance(5) {
		out = append(out, map[string]any{"subPath": one(g, path...)})
	}
	if g.chance(20) {
		slices.Reverse(out)
	}
	return out
}

func (g *gen) applyTo() []any {
	var out []any
	for {
		entry := map[string]any{"groups": []any{"ex.io"}, "versions": []any{"v1"}, "kinds": []any{"Thing", "World"}}
		if g.chance(10) {
			entry["kinds"] = some(g, "Thing", "World", "Other", "*", "Namespace")
		}
		if g.chance(5) {
			entry["groups"] = some(g, "", "ex.io", "*")
		}
		if g.chance(15) {
			entry["operations"] = one(g, []any{"CREATE"}, []any{"UPDATE"}, []any{"*"}, []any{}, []any{"UPDATE", "CREATE"})
		}
		out = append(out, entry)
		if len(out) == 3 || !g.chance(10) {
			return out
		}
	}
}

func (g *gen) match() map[string]any {
	match := map[string]any{}
	for _, field := range []struct {
		name string
		make func() any
	}{
		{"labelSelector", g.labelSelector},
		{"namespaceSelector", g.labelSelector},
		{"kinds", func() any {
			return []any{map[string]any{"kinds": some(g, "Thing", "World", "*", "Other"), "apiGroups": some(g, "ex.io", "*", "")}}
		}},
		{"scope", func() any { return one(g, "Namespaced", "Cluster", "*", "", "namespaced") }},
		{"namespaces", func() any { return some(g, "shop", "sh*", "*op", "*ho*", "other", "*", "world") }},
		{"excludedNamespaces", func() any { return some(g, "other", "ot*", "*op", "*ho*", "shop", "*") }},
		{"name", func() any { return one(g, "web", "we*", "*eb", "*e*", "other", "*", "web-") }},
		{"source", func() any { return one(g, "Original", "All", "", "Generated") }},
	} {
		if g.chance(25) {
			match[field.name] = field.make()
		}
	}
	return match
}

func (g *gen) labelSelector() any {
	s := map[string]any{}
	if g.chance(60) {
		s["matchLabels"] = map[string]any{one(g, labels...): one(g, "x", "y", "")}
	}
	if g.chance(50) {
		e := map[string]any{"key": one(g, labels...), "operator": one(g, "Exists", "DoesNotExist")}
		if g.chance(50) {
			e["operator"], e["values"] = one(g, "In", "NotIn"), some(g, "x", "y", "")
		}
		if g.chance(3) {
			e["operator"] = "Bad"
		}
		s["matchExpressions"] = []any{e}
	}
	return s
}

// request makes a request about a namespaced or a cluster-scoped object of a
// kind whose schema allows everything, or about a Namespace.
func (g *gen) request() Request {
	meta := map[string]any{"name": "web"}
	if g.chance(10) {
		delete(meta, "name")
		meta["generateName"] = "web-"
	}
	for _, field := range []string{"labels", "annotations"} {
		if g.chance(50) {
			values := map[string]any{}
			for range 1 + g.n(3) {
				values[one(g, labels...)] = one(g, "x", "y", "")
			}
			meta[field] = values
		}
	}
	obj := map[string]any{"apiVersion": "ex.io/v1", "kind": "Thing", "metadata": meta}
	r := Request{Object: obj, Operation: one(g, "CREATE", "UPDATE"), Source: "Original", Username: "alice"}
	switch {
	case g.chance(8):
		obj["kind"] = "World"
	case g.chance(4):
		obj["apiVersion"], obj["kind"] = "v1", "Namespace"
		return r
	default:
		r.Namespace = "shop"
		r.NamespaceObject = map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": "shop", "labels": map[string]any{"l1": "x", "l2": "y"}}}
		if !g.chance(10) {
			meta["namespace"] = "shop"
		}
	}
	if !g.chance(3) {
		obj["spec"] = g.value(0)
	}
	return r
}

// value makes what may be below spec; at depth 0, mostly objects.
func (g *gen) value(depth int) any {
	if depth > 0 && g.chance(40) {
		return g.scalar()
	}
	if g.chance(5) {
		return g.anything(depth)
	}
	m := map[string]any{}
	for _, name := range fields {
		if depth < 5 && g.chance(70-12*depth) {
			m[name] = g.usual(name, depth+1)
		}
	}
	if g.chance(5) {
		m[one(g, odd...)] = g.value(depth + 1)
	}
	return m
}

func (g *gen) usual(name string, depth int) any {
	if g.chance(5) {
		return g.anything(depth)
	}
	switch name {
	case "a", "b":
		return g.value(depth)
	case "l", "m":
		list := []any{}
		for range g.n(4) {
			list = append(list, g.element(depth))
		}
		return list
	case "s":
		return g.set()
	case "i":
		return one(g, "nginx", "nginx:1", "reg.io/nginx:1", "reg.io/lib/nginx@sha256:0", "localhost/x", "localhost:5000", "a.b/", ":1", "", "a:b@c", "x/y:1/z", "foo@bar/baz")
	}
	return g.scalar()
}

// element makes an element of a keyed list.
func (g *gen) element(depth int) any {
	if g.chance(4) {
		return g.anything(depth)
	}
	m, ok := g.value(depth + 1).(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	if !g.chance(6) {
		m[one(g, keys...)] = one(g, "x", "x", "y", one(g, words...))
	}
	if g.chance(10) {
		m[one(g, keys...)] = g.number()
	}
	return m
}

// set makes a list of scalars, of which some may be there twice.
func (g *gen) set() []any {
	list := []any{}
	for range g.n(5) {
		list = append(list, g.scalar())
	}
	if g.chance(10) {
		list = append(list, map[string]any{"x": one(g, words...)}, []any{one(g, words...)})
	}
	return list
}

func (g *gen) scalar() any {
	switch g.n(12) {
	case 0, 1:
		return g.number()
	case 2:
		return true
	case 3:
		return false
	}
	return one(g, words...)
}

func (g *gen) number() any {
	return one[any](g, int64(1), int64(0), int64(-1), 1.0, 1.5, -0.25, 1e21, int64(80), int64(1)<<53, int64(1)<<53+1, int64(-9223372036854775808), 9007199254740993.0)
}

// anything makes what the field is not for.
func (g *gen) anything(depth int) any {
	switch g.n(6) {
	case 0:
		return nil
	case 1:
		return []any{}
	case 2:
		return map[string]any{}
	case 3:
		return []any{g.scalar(), nil, map[string]any{"name": one(g, words...)}}
	case 4:
		if depth < 4 {
			return map[string]any{one(g, odd...): g.value(depth + 1), "name": g.scalar()}
		}
	}
	return g.scalar()
}

// seeded are the bytes of a case: the same each time for a seed.
func seeded(seed uint64) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	r := rand.NewChaCha8(key)
	data := make([]byte, 300+r.Uint64()%1700)
	_, _ = r.Read(data)
	return data
}
func (c Case) String() string {
	return fmt.Sprintf("%d mutators, %s of %s", len(c.Mutators), c.Request.Operation, c.Request.Object["kind"])
}
