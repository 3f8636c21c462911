package coverage

import (
	"sync"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// Outcomes of decisions, besides those of expressions.
const (
	changed   = "changed"
	matched   = "matched"
	unmatched = "not matched"
	kept      = "kept"
	accepted  = "accepted"
	denied    = "denied"
)

// never has the texts for outcomes that did not occur; for other outcomes the text is "was never
// X".
var never = map[string]string{
	changed: "never changed an object", matched: "never matched an object", unmatched: "never left out an object",
	kept: "never kept an object that it matched", accepted: "never accepted an object as it was", denied: "never denied an object",
}

// Counter counts the outcomes in decisions of mutations, Gatekeeper's mutators, Kyverno's rules
// and Kubewarden's policies. The zero value is ready to use; it is safe for concurrent use.
type Counter struct {
	mu       sync.Mutex
	changed  map[mutation]int64
	requests int64
	members  map[member]map[string]int64
}

// mutation identifies a mutation of a policy by its index.
type mutation struct {
	policy string
	index  int
}

// member is a mutator, a rule or a module policy.
type member struct{ stage, name string }

// Count counts a decision.
func (c *Counter) Count(d *engine.Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed, c.members = map[mutation]int64{}, map[member]map[string]int64{}
	}
	c.requests++
	outcomes := map[member]string{}
	for _, s := range d.Steps {
		of := member{s.Stage, s.Policy}
		switch {
		case s.Stage == engine.PolicyStage:
			if s.Outcome == engine.Changed {
				c.changed[mutation{s.Policy, s.Mutation}]++
			}
		case s.Stage != engine.MutatorStage && s.Outcome == engine.Skipped:
			// For a module policy or a rule, a condition was false.
		case s.Outcome == engine.Failed:
			outcomes[of] = denied
		case s.Outcome == engine.Changed:
			outcomes[of] = changed
		case outcomes[of] == "":
			outcomes[of] = kept
		}
	}
	for of, outcome := range outcomes {
		if c.members[of] == nil {
			c.members[of] = map[string]int64{}
		}
		c.members[of][outcome]++
	}
}

// changes returns how often a mutation changed an object.
func (c *Counter) changes(policy string, index int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed[mutation{policy, index}]
}

// hits returns how often a member had each of the outcomes.
func (c *Counter) hits(of member, outcomes []string) (hits []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.members[of]
	met := had[changed] + had[kept] + had[denied]
	for _, o := range outcomes {
		switch o {
		case matched:
			hits = append(hits, met)
		case unmatched:
			hits = append(hits, c.requests-met)
		case accepted:
			hits = append(hits, had[kept])
		default:
			hits = append(hits, had[o])
		}
	}
	return hits
}

// mutator returns the coverage of a mutator, and module that of a module policy; nil if the
// document is something else.
func (c *Counter) mutator(d *mapd.Document) *Policy {
	u := d.Object()
	if !legacy.IsMutator(u.GroupVersionKind()) {
		return nil
	}
	of := member{engine.MutatorStage, u.GetKind() + "/" + u.GetName()}
	return c.covered(d, "mutator", of, matched, unmatched, changed, kept)
}

func (c *Counter) module(d *mapd.Document, policies []*kubewarden.Policy) *Policy {
	u := d.Object()
	for _, p := range policies {
		switch {
		case u.GetKind() != p.Kind() || u.GetName() != p.Name || u.GetNamespace() != "" && p.Namespace != "" && u.GetNamespace() != p.Namespace:
		case p.Mutating:
			return c.covered(d, "guest", member{engine.ModuleStage, p.ID()}, accepted, changed, denied)
		default:
			return c.covered(d, "guest", member{engine.ValidatorStage, p.ID()}, accepted, denied)
		}
	}
	return nil
}

// rules returns the coverage of the converted rules of a Kyverno policy, nil if the document is
// something else.
func (c *Counter) rules(d *mapd.Document, policies *mapd.Policies) *Policy {
	var out *Policy
	for _, r := range policies.KyvernoRules() {
		if r.Document != d.Where() || r.Unconverted != "" {
			continue
		}
		p := c.covered(d, "rule", member{engine.RuleStage, r.Name}, matched, unmatched, changed, kept)
		part := p.Parts[0]
		at := d.ErrorAt(r.Path, nil)
		part.Path, part.Text, part.Line, part.Column, part.EndLine, part.EndColumn = r.Path, r.Rule, at.Line, at.Column, at.Line, at.Column+len([]rune(r.Rule))
		if out == nil {
			out = p
			continue
		}
		out.Parts = append(out.Parts, part)
	}
	return out
}

func (c *Counter) covered(d *mapd.Document, kind string, of member, outcomes ...string) *Policy {
	at := d.ErrorAt("metadata.name", nil)
	name := d.Object().GetKind() + "/" + d.Object().GetName()
	return &Policy{Name: name, File: at.File, Parts: []*Part{{
		Path: "metadata.name", Kind: kind, Text: d.Object().GetName(), Outcomes: outcomes, Hits: c.hits(of, outcomes),
		Line: at.Line, Column: at.Column, EndLine: at.Line, EndColumn: at.Column + len([]rune(d.Object().GetName())),
	}}}
}
