package lint

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/apiserver/defaulting"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
	"github.com/mapd-project/mapd/pkg/tree"
)

// path is the path from a variable to a part of its value, with the variable as its first step:
// object, spec, containers, anyElement.
type path []string

// anyElement is the step into an element of a list.
const anyElement = "\x00[]"

func (p path) key() string { return strings.Join(p, "\x00.") }

// with returns p and one step more.
func (p path) with(step string) path { return append(slices.Clone(p), step) }

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// String is p as an expression.
func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case i == 0:
			b.WriteString(s)
		case s != "" && s[0] == 0: // an element
			b.WriteString(s[1:])
		case identifier.MatchString(s):
			b.WriteString("." + s)
		default:
			b.WriteString("[" + quote(s) + "]")
		}
	}
	return b.String()
}

func quote(s string) string { return string(tree.AppendString(nil, s)) }

// names are the variables of the loops around an expression, the innermost first.
type names struct {
	outer *names
	name  string
	path  path         // nil if it is not known
	loop  *syntax.Node // of an element
}

// over returns the range of the loop whose variable is name, nil if there is no such loop.
func (n *names) over(name string) *syntax.Node {
	for ; n != nil; n = n.outer {
		if n.name == name {
			return n.loop
		}
	}
	return nil
}

func (n *names) find(name string) (path, bool) {
	for ; n != nil; n = n.outer {
		if n.name == name {
			return n.path, true
		}
	}
	return nil, false
}

// resolver finds the part of the input that an expression reads.
type resolver struct {
	policy *subject
	depth  int
}

// maxDepth bounds how many variables that use each other are followed.
const maxDepth = 20

// path returns the part of object, oldObject, params, request or namespaceObject that n
// is, through optionals and variables; nil if it is none or not known.
func (r resolver) path(n *syntax.Node, in *names) path {
	switch n.Kind {
	case syntax.Ident:
		if p, ok := in.find(n.Name); ok {
			return p
		}
		switch n.Name {
		case "object", "oldObject", "params", "request", "namespaceObject":
			return path{n.Name}
		}
	case syntax.Select:
		if n.Test {
			return nil
		}
		if e := r.variable(n, in); e != nil {
			return resolver{r.policy, r.depth + 1}.path(e.root, nil)
		}
		if p := r.path(n.Args[0], in); p != nil {
			return p.with(n.Name)
		}
	case syntax.Call:
		switch n.Name {
		case "_[_]", "_[?_]", "_?._":
			p := r.path(n.Args[0], in)
			if p == nil || n.Args[1].Kind != syntax.Literal {
				return nil
			}
			switch v := n.Args[1].Value.(type) {
			case string:
				return p.with(v)
			case int64:
				return p.with(anyElement)
			}
		case "dyn", "value", "orValue":
			return r.path(n.Args[0], in)
		}
	case syntax.Loop:
		// The elements of a filter are those of its range.
		if step := n.Args[3]; step.Kind == syntax.Call && step.Name == "_?_:_" && step.Args[2].Kind == syntax.Ident && step.Args[2].Name == n.Names[0] {
			if sum := step.Args[1]; sum.Kind == syntax.Call && sum.Name == "_+_" && sum.Args[1].Kind == syntax.List && len(sum.Args[1].Args) == 1 {
				if e := sum.Args[1].Args[0]; e.Kind == syntax.Ident && e.Name == n.Names[len(n.Names)-1] {
					return r.path(n.Args[0], in)
				}
			}
		}
	}
	return nil
}

// variable returns the definition if n is variables.x.
func (r resolver) variable(n *syntax.Node, in *names) *expression {
	if r.depth > maxDepth || n.Kind != syntax.Select || n.Args[0].Kind != syntax.Ident || n.Args[0].Name != "variables" {
		return nil
	}
	if _, shadowed := in.find("variables"); shadowed {
		return nil
	}
	return r.policy.variable(n.Name)
}

// inside returns the names in the condition, the step and the result of a loop.
func (r resolver) inside(n *syntax.Node, in *names) *names {
	if len(n.Names) > 1 && n.Names[1] == "#unused" {
		// optMap and cel.bind: the accumulator is a name for a value.
		return &names{in, n.Names[0], r.path(n.Args[1], in), nil}
	}
	over := r.path(n.Args[0], in)
	in = &names{in, n.Names[0], nil, nil}
	var element path
	if over != nil {
		element = over.with(anyElement)
	}
	if len(n.Names) == 3 {
		in = &names{in, n.Names[1], nil, n.Args[0]}
		return &names{in, n.Names[2], element, nil}
	}
	if over != nil && r.isMap(over) {
		element = nil // the loop visits keys
	}
	return &names{in, n.Names[1], element, n.Args[0]}
}

// isMap reports whether the value at a path is a map with arbitrary keys.
func (r resolver) isMap(p path) bool {
	if len(p) < 3 {
		return false
	}
	last := p[len(p)-1]
	return last == "labels" || last == "annotations" || last == "matchLabels" || last == "nodeSelector" || p[1] == "data" && len(p) == 2
}

// optional reports whether the value of n is an optional, so that a selection from it cannot
// fail.
func optional(n *syntax.Node) bool {
	switch n.Kind {
	case syntax.Select:
		return !n.Test && optional(n.Args[0])
	case syntax.Call:
		switch n.Name {
		case "_?._", "_[?_]", "optional.of", "optional.none", "optional.ofNonZeroValue", "or":
			return true
		case "_[_]":
			return optional(n.Args[0])
		case "_?_:_":
			return optional(n.Args[1]) || optional(n.Args[2])
		}
	}
	return false
}

// facts are the parts of the input that are known to exist, as keys.
type facts map[string]bool

func (f facts) add(p path) {
	for i := 2; i <= len(p); i++ {
		f[p[:i].key()] = true
	}
}

func (f facts) with(others ...facts) facts {
	out := maps.Clone(f)
	for _, m := range others {
		maps.Copy(out, m)
	}
	return out
}

// knows reports whether the facts imply that the part at p exists.
func (f facts) knows(p path) bool {
	return f[p.key()] || f[p[:len(p)-1].with("*").key()]
}

// oldFact is the fact that there is an oldObject.
const oldFact = "oldObject"

// looks returns the parts that n tests or reads: by has(), in, optionals and plain access. If n
// is a condition of another expression, that expression may rely on their existence. Without
// strict, plain access does not count.
func (r resolver) looks(n *syntax.Node, in *names, strict bool) facts {
	out := facts{}
	r.look(n, in, strict, out)
	return out
}

func (r resolver) look(n *syntax.Node, in *names, strict bool, out facts) {
	if !r.policy.spend(1) {
		return
	}
	switch n.Kind {
	case syntax.Ident:
		if _, ok := in.find(n.Name); !ok && n.Name == "oldObject" {
			out[oldFact] = true
		}
	case syntax.Select:
		if e := r.variable(n, in); e != nil {
			known := e.looked[strict]
			if known == nil {
				known = facts{}
				resolver{r.policy, r.depth + 1}.look(e.root, nil, strict, known)
				if e.looked == nil {
					e.looked = map[bool]facts{}
				}
				e.looked[strict] = known
			}
			r.policy.spend(len(known))
			maps.Copy(out, known)
			return
		}
		if n.Test {
			if p := r.path(n.Args[0], in); p != nil {
				out.add(p.with(n.Name))
			}
		} else if p := r.path(n, in); p != nil {
			if strict || optional(n) {
				out.add(p)
			}
			if p.key() == (path{"request", "operation"}).key() {
				out[oldFact] = true
			}
		}
	case syntax.Call:
		switch n.Name {
		case "@in":
			if p := r.path(n.Args[1], in); p != nil {
				out.add(p)
				if key, ok := n.Args[0].Value.(string); ok && n.Args[0].Kind == syntax.Literal {
					out.add(p.with(key))
				} else {
					out.add(p.with("*"))
				}
			}
		case "_[_]", "_?._", "_[?_]":
			if p := r.path(n, in); p != nil && (strict || optional(n)) {
				out.add(p)
			}
		}
	case syntax.Loop:
		if p := r.path(n.Args[0], in); p != nil {
			out.add(p.with("*"))
		}
		r.look(n.Args[0], in, strict, out)
		r.look(n.Args[1], in, strict, out)
		below := r.inside(n, in)
		for _, a := range n.Args[2:] {
			r.look(a, below, strict, out)
		}
		return
	}
	for _, a := range n.Args {
		r.look(a, in, strict, out)
	}
}

// presence says whether a part of an object always exists.
type presence int

const (
	unknown presence = iota
	always
	mayBeMissing
	mapKey  // the key of a map with arbitrary keys
	refused // the schema has no such field
)

// presentIn returns the presence of the part of object at a path, for all kinds that a policy
// matches: unknown unless they agree.
func (s *set) presentIn(p *subject, at path) presence {
	if len(at) < 2 || at[0] != "object" && at[0] != "oldObject" {
		return unknown
	}
	steps := at[1:]
	if p.more || len(p.kinds) == 0 {
		if len(steps) <= 3 && steps[0] == "metadata" && len(steps) > 1 && !unsure(steps) && (steps[1] == "labels" || steps[1] == "annotations") {
			return []presence{mayBeMissing, mapKey}[len(steps)-2]
		}
		return unknown
	}
	all := unknown
	for i, kind := range p.kinds {
		one := s.present(p, kind, steps)
		if i > 0 && one != all {
			return unknown
		}
		all = one
	}
	return all
}

// maxPresence bounds the lookups for one policy, and the results that are kept.
const maxPresence = 20_000

// present finds out whether a part always exists: it applies to an object without the part what a
// server does before admission. The limit counts per policy, so the result for one policy does
// not depend on lookups for others.
func (s *set) present(p *subject, gvk schema.GroupVersionKind, steps path) presence {
	key := kindName(gvk) + " " + steps.key()
	if known, ok := p.presence[key]; ok {
		return known
	}
	if len(p.presence) >= maxPresence {
		return unknown
	}
	out, ok := s.presence[key]
	if !ok {
		if len(s.presence) >= maxPresence {
			clear(s.presence)
		}
		out = s.findPresence(gvk, steps)
		s.presence[key] = out
	}
	if p.presence == nil {
		p.presence = map[string]presence{}
	}
	p.presence[key] = out
	return out
}

func (s *set) findPresence(gvk schema.GroupVersionKind, steps path) presence {
	kind, err := s.types.Kind(gvk)
	if err != nil {
		return unknown
	}
	at, ok := kind.Root()
	if !ok {
		return unknown
	}
	for i, step := range steps {
		last := i == len(steps)-1
		switch {
		case step == anyElement:
			at, ok = at.Element()
		case at.Refuses(step):
			if last {
				return refused
			}
			return unknown
		case !at.Declares(step):
			if m := at.Type().Map; m == nil || len(m.Fields) > 0 {
				return unknown
			}
			if at, ok = at.Field(step); last && ok {
				return mapKey
			}
		default:
			at, ok = at.Field(step)
		}
		if !ok {
			return unknown
		}
	}
	if steps[len(steps)-1] == anyElement || unsure(steps) {
		return unknown
	}
	if !kind.Builtin() && steps[0] != "metadata" {
		return unknown // a definition may require it, which is not checked here
	}
	apiVersion, name := gvk.ToAPIVersionAndKind()
	obj := map[string]any{}
	if built, ok := buildWith(steps[:len(steps)-1], map[string]any{}).(map[string]any); ok {
		obj = built
	}
	obj["apiVersion"], obj["kind"] = apiVersion, name
	obj, _ = defaulting.Apply(obj)
	settled, err := kind.Normalize(obj)
	if err != nil {
		return unknown
	}
	switch there, parent := find(settled, steps); {
	case !parent:
		return unknown
	case there:
		return always
	}
	return mayBeMissing
}

// find reports whether the value at the end of a path exists, and whether its parent does.
func find(v any, steps path) (there, parent bool) {
	for i, step := range steps {
		var ok bool
		switch c := v.(type) {
		case map[string]any:
			v, ok = c[step]
		case []any:
			if ok = step == anyElement && len(c) > 0; ok {
				v = c[0]
			}
		}
		if !ok {
			return false, i == len(steps)-1
		}
	}
	return true, true
}

// unsure reports whether a server or another admission plugin sets a part, or validation requires
// it, so that it exists although there is no default.
func unsure(steps path) bool {
	switch {
	case steps[0] == "status":
		return true
	case steps[0] == "metadata" && len(steps) > 1:
		switch steps[1] {
		case "labels", "annotations", "ownerReferences", "finalizers", "generateName":
			return false
		}
		return true
	}
	switch steps[len(steps)-1] {
	// In Pods: fields that the plugins ServiceAccount, Priority and DefaultTolerationSeconds set,
	// or that validation requires.
	case "serviceAccountName", "serviceAccount", "priority", "preemptionPolicy", "tolerations", "volumes", "volumeMounts", "image":
		return true
	// In other kinds: fields that validation requires.
	case "ports", "accessModes", "requests", "resources", "selector", "matchLabels", "rules", "subjects", "template", "http", "spec":
		return true
	// Fields that are used together with others, or that are part of a union.
	case "name", "key", "kind", "apiGroup", "namespace", "value", "path", "number", "port":
		return true
	}
	return false
}

// lacks reports whether no kind that the policy matches has the field.
func (s *set) lacks(p *subject, at path) bool {
	return !p.more && len(p.kinds) > 0 && s.presentIn(p, at) == refused
}
