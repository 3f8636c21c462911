// Package verify compares native policies with the mutators that they were translated from.
//
// It runs both on the same requests. The reference is package direct, which implements
// Gatekeeper's rules and does not use the translation. The other side is what an API server would
// run: the policies, decoded, validated and compiled, in mapd's engine. Each result is then
// processed as an API server would: the result of a webhook is decoded leniently, that of a policy
// strictly.
//
// Objects are given, read from a cluster, or generated. Generated objects are the same for the
// same seed, and have or lack the fields on a mutator's location in different ways. Objects that a
// server refuses before admission are not compared. The first object on which the two sides
// disagree is reduced to what the difference needs.
//
// The comparison is a test and not a proof. A Comparison counts the objects without a difference,
// and how many of these were changed or refused at all.
package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Object is one object to compare on, and its request. It is not modified.
type Object struct {
	Object map[string]any
	// Old is the object before an UPDATE.
	Old map[string]any
	// Operation is CREATE or UPDATE. Empty means both, one after the other; Old
	// is the object itself then.
	Operation string
	// Namespace is the Namespace of a namespaced object. Nil means one without
	// labels except for its name.
	Namespace map[string]any
	// User is the name of the user who makes the request; empty means a user that no mutator is
	// about. Groups are the groups of the user.
	User   string
	Groups []string
	// Origin says where the object is from: "generated object 12".
	Origin string
}

// Comparison is the outcome for one set of policies.
type Comparison struct {
	// Name is the ID of the mutator, the IDs of several, or the name of the
	// set.
	Name string `json:"name"`
	// Mutators are the IDs of the mutators that ran.
	Mutators []string `json:"mutators"`
	// Known is true if a mutator is known to differ, so that a disagreement is expected.
	Known bool `json:"known,omitempty"`
	// Objects is the number of compared objects, and Agreements the number of those for which the
	// results were the same. Changed and Refused are how many of the latter were changed or refused.
	Objects    int `json:"objects"`
	Agreements int `json:"agreements"`
	Changed    int `json:"changed"`
	Refused    int `json:"refused"`
	// NotAllowed is the number of objects that were not compared, because they are invalid for their
	// kind, and a server refuses them.
	NotAllowed int `json:"notAllowed"`
	// First is nil if there is no disagreement.
	First *Disagreement `json:"first,omitempty"`
	// Invalid is the reason why the policies cannot run; then nothing was compared.
	Invalid string `json:"invalid,omitempty"`
}

// Disagreements returns the number of objects for which the results differ.
func (c *Comparison) Disagreements() int { return c.Objects - c.Agreements }

// Unexpected reports whether the comparison found a difference that was not known.
func (c *Comparison) Unexpected() bool {
	return c.Invalid != "" || !c.Known && c.Disagreements() > 0
}

// Disagreement is an object about which the two sides disagree, reduced to what
// the difference needs.
type Disagreement struct {
	Origin    string         `json:"origin"`
	Operation string         `json:"operation"`
	Object    map[string]any `json:"object"`
	Old       map[string]any `json:"oldObject,omitempty"`
	Namespace map[string]any `json:"namespace,omitempty"`
	User      string         `json:"user,omitempty"`
	Reference Result         `json:"gatekeeper"`
	Native    Result         `json:"native"`
}

// Result is the outcome on one side.
type Result struct {
	// Refused is the reason of a refusal, or "".
	Refused string         `json:"refused,omitempty"`
	Object  map[string]any `json:"object,omitempty"`
	// Failed: an error was ignored. Only the result of a Reference has it.
	Failed bool `json:"-"`

	unknown string // the reason why there is no result
}

// Options configure New. With the zero value, only the built-in kinds are known.
type Options struct {
	Types *openapi.Types
	// Config is Gatekeeper's, which excludes namespaces; nil means none.
	Config *legacy.Config
	// Answers has the recorded answers of the providers that mutators ask. Keys are the keys for
	// which it has answers, by provider; generated objects use them.
	Answers engine.Resolver
	Keys    map[string][]string
	// Alone translates one mutator by itself. It is called for mutators that
	// share a policy with others; if it is nil, these are compared together
	// only.
	Alone func(*legacy.Mutator) []translate.Unit
}

// Verifier compares mutators with the policies that were written for them: each
// alone, those that share a policy together, and all of them. It is not safe
// for concurrent use.
type Verifier struct {
	types   *openapi.Types
	config  *legacy.Config
	answers engine.Resolver
	keys    map[string][]string
	parts   []*part
}

// side is one of the two sides of a comparison: the reference or the policies.
type side interface {
	run(context.Context, *request) Result
}

// part is one set of policies to compare.
type part struct {
	Outcome
	mutators          []*legacy.Mutator
	reference, native side
	unique, filled    []legacy.Path // see translate.Unit
	// The functions of a Task.
	generate func(seed uint64, i int) Object
	allows   func(object map[string]any) bool
	ordered  func(object map[string]any) map[string]any
	explains func(r Request, reference, native Result) bool
}

// New prepares the comparisons for units. ms are all mutators, also those without a policy: these
// are not compared, but the number of passes that Gatekeeper may make depends on all.
func New(ms []*legacy.Mutator, units []translate.Unit, o Options) *Verifier {
	if o.Types == nil {
		o.Types = openapi.New(openapi.Builtin())
	}
	v := &Verifier{types: o.Types, config: o.Config, answers: o.Answers, keys: o.Keys}
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

// differs reports whether one of the unit's mutators is known to differ.
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

// add prepares one comparison: of units with their mutators, while no other mutator runs.
func (v *Verifier) add(name string, all []*legacy.Mutator, units []translate.Unit, known bool) {
	p := &part{Outcome: Outcome{Comparison: Comparison{Name: name, Known: known}}}
	for _, u := range units {
		if u.Policy != nil {
			p.mutators = append(p.mutators, u.Mutators...)
			p.unique = append(p.unique, u.Unique...)
			p.filled = append(p.filled, u.Filled...)
		}
	}
	slices.SortFunc(p.mutators, legacy.Compare)
	p.Mutators = ids(p.mutators)
	p.reference = newMutatorSide(all, p.mutators, v.config, v.answers)
	p.generate = func(seed uint64, i int) Object { return generateOne(p.mutators, v.types, v.keys, seed, i) }
	native, err := newPolicySide(v.types, written(units))
	if err != nil {
		p.Invalid = err.Error()
	}
	p.native = native
	v.parts = append(v.parts, p)
}

// Check makes every comparison on one object.
func (v *Verifier) Check(ctx context.Context, o Object) {
	rs := requests(v.types, o)
	for _, p := range v.parts {
		p.check(ctx, v.types, rs, o.Origin)
	}
}

// CheckGenerated makes each comparison on n objects that are generated for it.
func (v *Verifier) CheckGenerated(ctx context.Context, seed uint64, n int) {
	for _, p := range v.parts {
		if p.Invalid != "" || p.generate == nil || p.explains == nil && len(p.mutators) == 0 {
			continue
		}
		for i := range n {
			if ctx.Err() != nil {
				return
			}
			o := p.generate(seed, i)
			p.check(ctx, v.types, requests(v.types, o), o.Origin)
		}
	}
}

// Comparisons returns the results so far.
func (v *Verifier) Comparisons() []Comparison {
	out := make([]Comparison, len(v.parts))
	for i, p := range v.parts {
		out[i] = p.Comparison
	}
	return out
}

// run runs both sides.
func (p *part) run(ctx context.Context, r *request) (ref, nat Result) {
	return p.afterValidation(r, p.reference.run(ctx, r)), p.afterValidation(r, p.native.run(ctx, r))
}

// check compares the two sides on the requests for one object, and counts the outcome.
func (p *part) check(ctx context.Context, types *openapi.Types, requests []*request, origin string) {
	if p.Invalid != "" {
		return
	}
	var changed, refused bool
	worst := agree
	for _, r := range requests {
		if r == nil || !p.allowed(r) {
			p.NotAllowed++
			return
		}
		ref, nat := p.run(ctx, r)
		if ref.unknown != "" {
			if p.NotVerified++; p.Why == "" {
				p.Why = ref.unknown
			}
			return
		}
		how := p.compare(r, ref, nat)
		if how == disagree {
			p.Objects++
			if p.First == nil {
				p.First = p.shrink(ctx, types, r, origin)
			}
			return
		}
		worst = max(worst, how)
		changed = changed || ref.Refused == "" && !equalJSON(ref.Object, r.object)
		refused = refused || ref.Refused != ""
	}
	p.Objects++
	p.Agreements++
	switch worst {
	case reordered:
		p.Reordered++
	case explained:
		p.Explained++
	}
	if changed {
		p.Changed++
	}
	if refused {
		p.Refused++
	}
}
