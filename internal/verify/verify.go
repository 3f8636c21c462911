// Package verify answers one question: do native policies make of objects what
// the mutators did from which they were written?
//
// Both are run on the same requests. The reference is package direct, which walks
// objects by Gatekeeper's rules and knows nothing of the translation; the other
// side is what a server would run, the policies decoded, validated and compiled,
// in mapd's engine. Between them stands what an API server does with either
// answer: a webhook's is decoded leniently, a policy's strictly.
//
// Objects are given, read from a cluster, or generated: Generate makes objects
// that go every way a mutator's location can go, and the same ones for the same
// seed. What a server would not have let come as far as admission is not
// compared. Of the objects on which the two sides disagree the first is shrunk to
// what matters.
//
// Nothing is proven by that. A Comparison tells in how many objects there was no
// difference, and how many of these were changed or refused at all.
package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/translate"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Object is one object to compare on, and the request it comes with. It is not
// modified.
type Object struct {
	Object map[string]any
	// Old is the object before an UPDATE.
	Old map[string]any
	// Operation is CREATE or UPDATE. Empty is both, the one after the other; Old
	// is the object itself then.
	Operation string
	// Namespace is the Namespace that a namespaced object is in. Nil is one
	// without labels but its name.
	Namespace map[string]any
	// Origin says where the object is from: "generated object 12".
	Origin string
}

// Comparison is what came of one set of policies.
type Comparison struct {
	// Name is the mutator's ID, those of several, or what else was compared.
	Name string `json:"name"`
	// Mutators are the IDs of those that ran.
	Mutators []string `json:"mutators"`
	// Known says that a mutator is known to differ, so that a disagreement is no
	// news.
	Known bool `json:"known,omitempty"`
	// Objects is how many were compared; Agreements of how many the results were
	// the same, Changed and Refused how many of these were not just left alone.
	Objects    int `json:"objects"`
	Agreements int `json:"agreements"`
	Changed    int `json:"changed"`
	Refused    int `json:"refused"`
	// NotAllowed is how many were not compared, because their kind does not allow
	// them, so that a server refuses them before admission.
	NotAllowed int `json:"notAllowed"`
	// First is nil if there is no disagreement.
	First *Disagreement `json:"first,omitempty"`
	// Invalid is why the policies could not be run at all; nothing was compared
	// then.
	Invalid string `json:"invalid,omitempty"`
}

// Disagreements is how many objects came out differently.
func (c *Comparison) Disagreements() int { return c.Objects - c.Agreements }

// Finding reports whether the comparison says that something is wrong that was
// not known to be.
func (c *Comparison) Finding() bool {
	return c.Invalid != "" || !c.Known && c.Disagreements() > 0
}

// Disagreement is an object of which the two sides make different things, reduced
// to what the difference needs.
type Disagreement struct {
	Origin    string         `json:"origin"`
	Operation string         `json:"operation"`
	Object    map[string]any `json:"object"`
	Old       map[string]any `json:"oldObject,omitempty"`
	Namespace map[string]any `json:"namespace,omitempty"`
	Reference Result         `json:"gatekeeper"`
	Native    Result         `json:"native"`
}

// Result is what one side makes of an object.
type Result struct {
	// Refused is why, or empty.
	Refused string         `json:"refused,omitempty"`
	Object  map[string]any `json:"object,omitempty"`
}

// Options configure New. The zero value knows the built-in kinds.
type Options struct {
	Types *openapi.Types
	// Config is Gatekeeper's, which keeps namespaces from the reference; nil: none.
	Config *legacy.Config
	// Alone translates one mutator by itself. It is asked for those that share a
	// policy with others; nil: they are compared together only.
	Alone func(*legacy.Mutator) []translate.Unit
}

// Verifier compares mutators with what was written for them: each alone, those
// that share a policy together, and all of them. One goroutine at a time may use
// it.
type Verifier struct {
	types  *openapi.Types
	config *legacy.Config
	parts  []*part
}

// side is one of the two that are compared.
type side interface {
	run(context.Context, *request) Result
}

// part is one thing that is compared.
type part struct {
	Comparison
	mutators          []*legacy.Mutator
	reference, native side
	unique            []legacy.Path // see translate.Unit
}

// New prepares all comparisons. Mutators without a policy are in none, except
// that ms, all of them, set the bound of Gatekeeper's passes.
func New(ms []*legacy.Mutator, units []translate.Unit, o Options) *Verifier {
	if o.Types == nil {
		o.Types = openapi.New(openapi.Builtin())
	}
	v := &Verifier{types: o.Types, config: o.Config}
	var moved, exact []translate.Unit
	for _, u := range units {
		if u.Policy == nil {
			continue
		}
		moved = append(moved, u)
		if !differs(u) {
			exact = append(exact, u)
		}
		if len(u.Mutators) > 1 && o.Alone != nil {
			for i, m := range u.Mutators {
				alone := o.Alone(m)
				known := u.Verdicts[i].Verdict == translate.Differs || slices.ContainsFunc(alone, differs)
				v.add(m.ID(), ms, alone, known)
			}
		}
		name := u.Mutators[0].ID()
		if len(u.Mutators) > 1 {
			name = fmt.Sprintf("%s with its %d mutators", u.Name, len(u.Mutators))
		}
		v.add(name, ms, []translate.Unit{u}, differs(u))
	}
	if len(moved) > 1 {
		v.add(fmt.Sprintf("all %d policies together", len(moved)), ms, moved, len(exact) < len(moved))
	}
	if len(exact) > 1 && len(exact) < len(moved) {
		v.add(fmt.Sprintf("the %d policies that are exact together", len(exact)), ms, exact, false)
	}
	return v
}

// differs reports whether one of the unit's mutators is known to.
func differs(u translate.Unit) bool {
	return slices.ContainsFunc(u.Verdicts, func(v translate.MutatorVerdict) bool { return v.Verdict == translate.Differs })
}

func ids(ms []*legacy.Mutator) []string {
	out := make([]string, len(ms))
	for i, m := range ms {
		out[i] = m.ID()
	}
	return out
}

// add prepares one comparison: units against their mutators, all others off.
func (v *Verifier) add(name string, all []*legacy.Mutator, units []translate.Unit, known bool) {
	p := &part{Comparison: Comparison{Name: name, Known: known}}
	for _, u := range units {
		if u.Policy != nil {
			p.mutators = append(p.mutators, u.Mutators...)
			p.unique = append(p.unique, u.Unique...)
		}
	}
	slices.SortFunc(p.mutators, legacy.Compare)
	p.Mutators = ids(p.mutators)
	p.reference = newReference(all, p.mutators, v.config)
	native, err := newNative(v.types, units)
	if err != nil {
		p.Invalid = err.Error()
	}
	p.native = native
	v.parts = append(v.parts, p)
}

// Check compares everything on one object.
func (v *Verifier) Check(ctx context.Context, o Object) {
	rs := requests(v.types, o)
	for _, p := range v.parts {
		p.check(ctx, v.types, rs, o.Origin)
	}
}

// CheckGenerated compares everything on n generated objects each, made for what is
// compared.
func (v *Verifier) CheckGenerated(ctx context.Context, seed uint64, n int) {
	for _, p := range v.parts {
		if p.Invalid != "" {
			continue
		}
		for _, o := range Generate(p.mutators, v.types, seed, n) {
			if ctx.Err() != nil {
				return
			}
			p.check(ctx, v.types, requests(v.types, o), o.Origin)
		}
	}
}

// Comparisons returns the result so far.
func (v *Verifier) Comparisons() []Comparison {
	out := make([]Comparison, len(v.parts))
	for i, p := range v.parts {
		out[i] = p.Comparison
	}
	return out
}

// run runs both sides.
func (p *part) run(ctx context.Context, r *request) (ref, nat Result) {
	return p.stored(p.reference.run(ctx, r)), p.stored(p.native.run(ctx, r))
}

// check compares on one object, which is these requests, and counts.
func (p *part) check(ctx context.Context, types *openapi.Types, requests []*request, origin string) {
	if p.Invalid != "" {
		return
	}
	var changed, refused bool
	for _, r := range requests {
		if r == nil {
			p.NotAllowed++
			return
		}
		ref, nat := p.run(ctx, r)
		if !r.same(ref, nat) {
			p.Objects++
			if p.First == nil {
				p.First = p.shrink(ctx, types, r, origin)
			}
			return
		}
		changed = changed || ref.Refused == "" && !equalJSON(ref.Object, r.object)
		refused = refused || ref.Refused != ""
	}
	p.Objects++
	p.Agreements++
	if changed {
		p.Changed++
	}
	if refused {
		p.Refused++
	}
}
