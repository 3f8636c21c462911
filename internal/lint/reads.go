package lint

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// AnyElement is the step of a Read into the elements of a list.
const AnyElement = anyElement

// A Read is a part of the object on which the effect of a policy depends.
type Read struct {
	// Path are the steps from the object; empty: the whole object.
	Path []string
	How  How
}

// How says which property of the part matters.
type How uint8

// The ways to read a part.
const (
	// Value: the part with everything below it.
	Value How = iota
	// Presence: whether the part exists.
	Presence
	// Elements: which elements a list has, but not what is in them.
	Elements
	// Place: the value, and whether its parent exists.
	Place
)

// Reads returns the parts of the object on which a policy's conditions depend, and the other
// parts on which its mutations depend: what their expressions read, and the places that they
// write to. The result may have more parts than necessary. It has the whole object if an
// expression does not show what it reads.
func Reads(spec *admissionregistrationv1.MutatingAdmissionPolicySpec) (conditions, mutations []Read) {
	all := []Read{{}}
	env, err := language(NewestMinor)
	if err != nil {
		return all, all
	}
	p := &subject{object: &admissionregistrationv1.MutatingAdmissionPolicy{Spec: *spec}}
	if p.parse(env.Asking()); !p.sound {
		return all, all
	}
	r := reader{resolver: resolver{policy: p}, walked: map[*expression]bool{}}
	for _, e := range p.ofPart(api.MatchConditions) {
		r.walk(e.root, nil)
	}
	conditions, r.reads = r.reads, nil
	for _, e := range p.ofPart(api.Mutations) {
		r.walk(e.root, nil)
		if e.patch {
			r.patches(e)
		} else {
			r.configures(e.root, nil, nil)
		}
	}
	if !p.spend(1) {
		return all, all
	}
	return conditions, r.reads
}

type reader struct {
	resolver
	walked map[*expression]bool // variables that were walked already
	reads  []Read
}

// add records a read of a path that begins with a variable.
func (r *reader) add(p path, how How) {
	if p[0] == "object" {
		r.reads = append(r.reads, Read{p[1:], how})
	}
}

// configures records the places that an ApplyConfiguration writes to.
func (r *reader) configures(n *syntax.Node, at path, in *names) {
	switch {
	case n.Kind == syntax.Struct && len(n.Names) > 0:
		for i, name := range n.Names {
			r.configures(n.Args[i], at.with(name), in)
		}
		return
	case n.Kind == syntax.Map && len(n.Args) > 0:
		for i := 0; i+1 < len(n.Args); i += 2 {
			key, ok := n.Args[i].Value.(string)
			if !ok || n.Args[i].Kind != syntax.Literal {
				r.reads = append(r.reads, Read{at, Value})
				return
			}
			r.configures(n.Args[i+1], at.with(key), in)
		}
		return
	case n.Kind == syntax.List && len(n.Args) > 0:
		r.reads = append(r.reads, Read{at, Elements})
		for _, a := range n.Args {
			r.configures(a, at.with(anyElement), in)
		}
		return
	case n.Kind == syntax.Call && n.Name == "_?_:_":
		r.configures(n.Args[1], at, in)
		r.configures(n.Args[2], at, in)
		return
	case n.Kind == syntax.Loop && len(n.Args[1].Args) == 0 && n.Args[1].Kind == syntax.List:
		// map and filter append a list of one element to the accumulator.
		if sum := n.Args[3]; sum.Kind == syntax.Call && sum.Name == "_+_" && len(sum.Args) == 2 && sum.Args[0].Kind == syntax.Ident &&
			sum.Args[0].Name == n.Names[0] && n.Args[4].Kind == syntax.Ident && n.Args[4].Name == n.Names[0] {
			r.configures(sum.Args[1], at, in)
			return
		}
	}
	r.reads = append(r.reads, Read{at, Value})
}

// patches records the places that the operations of a JSON patch write to.
func (r *reader) patches(e *expression) {
	for _, o := range operations(r.policy, e.root) {
		steps, _ := o.path()
		r.reads = append(r.reads, Read{inObject(steps)[1:], Place})
		for i, name := range o.node.Names {
			if name == "from" {
				steps, _ := (&operation{pieces: added(o.node.Args[i])}).path()
				r.reads = append(r.reads, Read{inObject(steps)[1:], Place})
			}
		}
	}
}

// walk records what an expression reads.
func (r *reader) walk(n *syntax.Node, in *names) {
	if !r.policy.spend(1) {
		return
	}
	switch n.Kind {
	case syntax.Ident:
		if p := r.path(n, in); p != nil {
			r.add(p, Value)
		} else if _, ok := in.find(n.Name); !ok && n.Name == "variables" {
			r.reads = append(r.reads, Read{})
		}
		return
	case syntax.Select:
		if n.Test {
			if p := r.path(n.Args[0], in); p != nil {
				r.add(p.with(n.Name), Presence)
				r.beside(n.Args[0], in)
				return
			}
			break
		}
		if p := r.path(n, in); p != nil {
			r.add(p, Value)
			r.beside(n, in)
			return
		}
		if r.define(n, in) {
			return
		}
	case syntax.Call:
		if p := r.path(n, in); p != nil {
			r.add(p, Value)
			r.beside(n, in)
			return
		}
		if n.Name == "@in" && n.Args[0].Kind == syntax.Literal {
			if key, ok := n.Args[0].Value.(string); ok {
				if p := r.path(n.Args[1], in); p != nil && r.isMap(p) {
					r.add(p.with(key), Presence)
					r.beside(n.Args[1], in)
					return
				}
			}
		}
	case syntax.Loop:
		if p := r.path(n, in); p != nil {
			r.add(p, Value)
		}
		r.loop(n, in)
		return
	}
	for _, a := range n.Args {
		r.walk(a, in)
	}
}

// define records what a variable reads, if n is a variable.
func (r *reader) define(n *syntax.Node, in *names) bool {
	e := r.variable(n, in)
	if e != nil && !r.walked[e] {
		r.walked[e] = true
		r.walk(e.root, nil)
	}
	return e != nil
}

// beside records what an expression with a path reads besides that path, such as indices.
func (r *reader) beside(n *syntax.Node, in *names) {
	switch n.Kind {
	case syntax.Select:
		if e := r.variable(n, in); e != nil {
			if !r.walked[e] {
				r.walked[e] = true
				r.beside(e.root, nil)
			}
			return
		}
		r.beside(n.Args[0], in)
	case syntax.Call:
		r.beside(n.Args[0], in)
		for _, a := range n.Args[1:] {
			r.walk(a, in)
		}
	case syntax.Loop:
		r.loop(n, in)
	}
}

func (r *reader) loop(n *syntax.Node, in *names) {
	below := r.inside(n, in)
	bound := len(n.Names) > 1 && n.Names[1] == "#unused"
	switch p := r.path(n.Args[0], in); {
	case bound || p == nil || below.path == nil:
		r.walk(n.Args[0], in)
	default:
		r.add(p, Elements)
		r.beside(n.Args[0], in)
	}
	if bound && r.path(n.Args[1], in) != nil {
		r.beside(n.Args[1], in)
	} else {
		r.walk(n.Args[1], in)
	}
	for _, a := range n.Args[2:] {
		r.walk(a, below)
	}
}

// Literals returns the texts and numbers in the expressions of a policy, in their order and
// without duplicates. It leaves out names of fields after .? and the like.
func Literals(spec *admissionregistrationv1.MutatingAdmissionPolicySpec) (out []any) {
	env, err := language(NewestMinor)
	if err != nil {
		return nil
	}
	p := &subject{object: &admissionregistrationv1.MutatingAdmissionPolicy{Spec: *spec}}
	p.parse(env.Asking())
	for _, e := range p.exprs {
		e.root.Walk(func(n *syntax.Node) bool {
			if n.Kind == syntax.Call && n.Name == "_?._" {
				n.Args = n.Args[:1]
			}
			switch n.Value.(type) {
			case string, int64:
				if n.Kind == syntax.Literal && !slices.Contains(out, n.Value) {
					out = append(out, n.Value)
				}
			}
			return true
		})
	}
	return out
}
