package lint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/document/manifest"
	kyverno "github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/quantity"
)

const (
	invalidRule  = "invalid"
	selectorRule = "selector"
)

// ruleList are the rules that can be suppressed.
func ruleList() []Rule {
	static := func(p *pass) { p.static() }
	return []Rule{
		{Name: invalidRule, Severity: Error, Summary: "a server refuses the policy or the binding", set: invalid},
		{Name: "library", Severity: Error, Summary: "a function or macro that the oldest server of `--kubernetes` does not know", policy: library},
		{Name: policy.UnknownField, Severity: Error, Summary: "a field that no matched kind has: set, patched or read", policy: func(p *pass) { p.static(); unknownFields(p) }, document: mutatorFields},
		{Name: policy.AtomicField, Severity: Error, Summary: "an ApplyConfiguration that sets an atomic field, which is refused", policy: static},
		{Name: policy.WrongType, Severity: Error, Summary: "a literal that does not fit its field", policy: func(p *pass) { p.static(); hugeQuantities(p) }},
		{Name: policy.TypeName, Severity: Error, Summary: "an object literal whose type is not named after its fields", policy: static},
		{Name: policy.UnchangeableKind, Severity: Error, Summary: "a kind that no ApplyConfiguration can change", policy: static},
		{Name: "unguarded-access", Severity: Warning, Fixes: true, Summary: "an optional field that is read without a look whether it is there", policy: unguarded},
		{Name: "unguarded-key", Severity: Warning, Fixes: true, Summary: "a key of a map that is read without a look whether it is there", policy: unguarded},
		{Name: "unused-variable", Severity: Warning, Fixes: true, Summary: "a variable that no mutation uses", policy: unusedVariables},
		{Name: "api-version", Severity: Error, Summary: "a version of the API that not all servers of `--kubernetes` have", set: apiVersion},
		{Name: "binding", Severity: Warning, Summary: "a binding without its policy, or a policy without a binding (info)", set: bindings},
		{Name: "constant-condition", Severity: Warning, certain: true, Summary: "a condition that is always true or always false", policy: constantCondition},
		{Name: "cost", Severity: Error, Summary: "an expression that ends at a limit of cost", policy: cost},
		{Name: "duplicate", Severity: Warning, Summary: "two policies or two bindings of a directory with one name, of which a server keeps one", set: duplicates},
		{Name: "escape-key", Severity: Error, Fixes: true, Summary: "a key with `/` or `~` in the path of a JSONPatch, not escaped", policy: escapeKey},
		{Name: "exception", Severity: Warning, Summary: "a PolicyException that is not valid (error), has ended, never ends, names what is not there, is wide, or is nobody's (info)", set: exceptions},
		{Name: "immutable-field", Severity: Warning, Summary: "an update of a field that a server does not let change", policy: immutableFields},
		{Name: "integer-overflow", Severity: Error, Summary: "an integer that an ApplyConfiguration writes with fewer bits", policy: integerOverflow},
		{Name: "kyverno", Severity: Error, Summary: "a policy that Kyverno refuses, a mutate rule that mapd cannot run (warning), or one that it runs otherwise (info)", document: kyvernoRules},
		{Name: "missing-parent", Severity: Warning, Summary: "a JSONPatch on a place that may not be there", policy: missingParent},
		{Name: "native-rollout", Severity: Warning, Summary: "a mode, a share or a breaker where nobody reads it", set: nativeRollout},
		{Name: "not-idempotent", Severity: Warning, Summary: "a mutation that changes the object each time it runs", policy: notIdempotent},
		{Name: "order-dependent", Severity: Warning, Summary: "two policies that set one field to different values", policy: settings, set: orderDependent},
		{Name: "params", Severity: Warning, Summary: "parameters that are read and not bound, or bound and not read", beside: true, policy: params},
		{Name: "reflection-value", Severity: Error, Summary: "a value that Kubernetes 1.37 cannot put into a JSONPatch", policy: reflectionValue},
		{Name: "replaced-map", Severity: Warning, Summary: "a JSONPatch that puts a map in the place of all labels, or of another such map", policy: replacedMap},
		{Name: "replicaset-template", Severity: Error, Summary: "a change of the template of ReplicaSets, which makes new ones without end", policy: replicaSets},
		{Name: selectorRule, Severity: Warning, certain: true, Summary: "a selector that selects nothing", beside: true, policy: selectors},
		{Name: "server-panic", Severity: Error, Summary: "a JSONPatch that makes a server drop the connection", policy: serverPanic},
		{Name: "system-namespaces", Severity: Warning, Summary: "`failurePolicy: Fail` on Pods of kube-system", policy: systemNamespaces},
		{Name: "test-operation", Severity: Error, Summary: "a test of a JSONPatch that always or never passes", policy: testOperations},
		{Name: unknownResourceRule, Severity: Error, Fixes: true, Summary: "a resource that no server has", policy: unknownResource},
		{Name: unreviewedResource, Severity: Warning, certain: true, Summary: "a resource whose requests no policy sees", policy: unreviewedResources},
	}
}

// static reports the warnings of package policy that belong to the rule.
func (p *pass) static() {
	for _, w := range p.warnings() {
		if w.Rule != p.rule.Name {
			continue
		}
		for _, e := range p.subject.exprs {
			if e.field == w.Field {
				f := p.place(e, w.Line, w.Column, w.Message)
				f.Written, f.Near = w.Written, w.Near
			}
		}
	}
}

func (p *pass) warnings() []policy.Warning {
	if !p.subject.warned {
		p.subject.warned, p.subject.warnings = true, policy.Warnings(p.subject.program, p.set.types)
	}
	return p.subject.warnings
}

// hugeQuantities finds literals that have too many digits, or too large an exponent, for a
// quantity. It does not check whether the literal is used as a quantity, because a text of that
// form is hardly anything else.
func hugeQuantities(p *pass) {
	for _, e := range p.subject.exprs {
		if e.root == nil {
			continue
		}
		e.root.Walk(func(n *syntax.Node) bool {
			if text, ok := n.Value.(string); ok && n.Kind == syntax.Literal && quantity.Beyond(text) {
				p.node(e, n, "as a quantity, %.40q would take a server more time than there is; mapd reads no more than %d characters, and exponents up to ±%[2]d", text, quantity.Max)
			}
			return true
		})
	}
}

// invalid finds what an API server would refuse.
func invalid(p *pass) {
	for _, s := range p.set.policies {
		p.faults(s.doc, s.faults, "")
	}
	for _, b := range p.set.bindings {
		p.faults(b.doc, b.faults, "")
	}
	for _, d := range p.set.misspelt {
		if what := policyset.Misspelt(d.Object.GroupVersionKind()); what != "" {
			p.field(d, "apiVersion", "%s", what)
		}
	}
}

// library compiles the policy for the oldest release. If that fails, it finds the first release
// for which the policy compiles.
func library(p *pass) {
	oldest, newest := p.set.opts.Oldest, p.set.opts.Newest
	if oldest == newest {
		return
	}
	refused := func(minor int) api.Faults {
		env, err := language(minor)
		if err != nil {
			return nil
		}
		if group(p.subject.doc) == api.OwnGroup {
			env = env.Asking()
		}
		return policy.Validate(p.subject.object, env.Within(p.set.ctx))
	}
	faults := refused(oldest)
	if len(faults) == 0 {
		return
	}
	since := oldest + 1
	for since < newest && len(refused(since)) > 0 {
		since++
	}
	p.faults(p.subject.doc, faults, fmt.Sprintf("Kubernetes 1.%d is the first that takes this, 1.%d does not: ", since, oldest))
}

// unknownFields finds reads and writes of fields that no matched kind has.
func unknownFields(p *pass) {
	reported := map[string]bool{}
	for _, e := range p.subject.exprs {
		p.eachPath(e, func(n *syntax.Node, at path, _ facts) {
			if at[0] != "object" && at[0] != "oldObject" || reported[at[1:].key()] || !p.set.lacks(p.subject, at) {
				return
			}
			reported[at[1:].key()] = true
			p.node(e, n, "%s: %s has no such field", at, kindNames(p.subject.kinds)).Severity = Warning
		})
		for _, o := range e.ops {
			steps, whole := o.path()
			if o.op != "add" && o.op != "replace" {
				continue // a test for a missing field may be intended
			}
			for i := range steps {
				at := inObject(steps[:i+1])
				if !p.set.lacks(p.subject, at) {
					continue
				}
				if whole || i < len(steps) {
					p.node(e, o.pieces[0], "/%s: %s has no such field", strings.Join(steps[:i+1], "/"), kindNames(p.subject.kinds))
				}
				break
			}
		}
	}
}

// mutatorFields finds fields of Gatekeeper's mutators that a server drops silently.
func mutatorFields(p *pass, d *manifest.Document) {
	if !legacy.IsMutator(d.Object.GroupVersionKind()) {
		return
	}
	for _, n := range legacy.Unknown(d.Object) {
		p.note(d, n.Field, d.ErrorAtKey(n.Field, errors.New(n.Message)), n.Field+": "+n.Message).Severity = Warning
	}
}

// kyvernoRules finds mutate rules of Kyverno's policies that no MutatingAdmissionPolicy can
// replace exactly.
func kyvernoRules(p *pass, d *manifest.Document) {
	if !kyverno.Is(d.Object.GroupVersionKind()) {
		return
	}
	env, err := language(p.set.opts.Newest)
	if err != nil {
		return // the options are wrong, which Run reports
	}
	rules, errs := policyset.KyvernoRules(d, policy.Deps{Env: env, Types: p.set.types})
	for _, err := range errs {
		if at := (*manifest.PositionError)(nil); errors.As(err, &at) {
			p.note(d, "", at, at.Err.Error())
		}
	}
	for i := range rules {
		r := &rules[i]
		text := r.Says
		if text == "" {
			continue
		}
		f := p.field(d, r.Path, "%s", text)
		f.Severity = Info
		if r.Unconverted != "" {
			f.Severity = Warning
		}
	}
}

// eachPath calls visit for each selection from the input that is evaluated, with the parts that
// are known to exist at that point. It visits the shorter parts of a selection before the longer
// ones.
func (p *pass) eachPath(e *expression, visit func(n *syntax.Node, at path, known facts)) {
	r := resolver{policy: p.subject}
	var walk func(n *syntax.Node, in *names, known facts)
	// walk visits the shorter parts of a selection first.
	walk = func(n *syntax.Node, in *names, known facts) {
		if !p.subject.spend(1) {
			return
		}
		switch {
		case n.Kind == syntax.Select && n.Test:
			if r.variable(n, in) == nil {
				walk(n.Args[0], in, known)
				if at := r.path(n.Args[0], in); len(at) > 0 && !optional(n.Args[0]) {
					visit(n.Args[0], at.with(n.Name), known.with(facts{at.with(n.Name).key(): true}))
				}
			}
			return
		case n.Kind == syntax.Select || n.Kind == syntax.Call && n.Name == "_[_]":
			for _, a := range n.Args {
				walk(a, in, known)
			}
			if r.variable(n, in) == nil && !optional(n) {
				if at := r.path(n, in); len(at) > 1 {
					visit(n, at, known)
				}
			}
			return
		case n.Kind == syntax.Call && (n.Name == "_&&_" || n.Name == "_||_"):
			// The other operand may decide the result, on either side.
			for i, a := range n.Args {
				more := known
				for j, other := range n.Args {
					if i != j {
						more = more.with(r.looks(other, in, true))
					}
				}
				if !p.subject.spend(len(more)) {
					return
				}
				walk(a, in, more)
			}
			return
		case n.Kind == syntax.Call && n.Name == "_?_:_":
			walk(n.Args[0], in, known)
			more := known.with(r.looks(n.Args[0], in, true))
			if !p.subject.spend(len(more)) {
				return
			}
			walk(n.Args[1], in, more)
			walk(n.Args[2], in, more)
			return
		case n.Kind == syntax.Loop:
			walk(n.Args[0], in, known)
			walk(n.Args[1], in, known)
			more := known.with(r.looks(n.Args[0], in, true))
			if !p.subject.spend(len(more)) {
				return
			}
			below := r.inside(n, in)
			for _, a := range n.Args[2:] {
				walk(a, below, more)
			}
			return
		}
		for _, a := range n.Args {
			walk(a, in, known)
		}
	}
	if given := p.given(e); p.subject.spend(len(given)) {
		walk(e.root, nil, given)
	}
}

// given returns the parts that an expression can rely on, because of other expressions of the
// policy.
func (p *pass) given(e *expression) facts {
	r := resolver{policy: p.subject}
	out := facts{}
	for _, other := range p.subject.exprs {
		switch {
		case other == e:
		case other.part == api.MatchConditions:
			// If one of the conditions is false, errors of the others do not count.
			r.look(other.root, nil, true, out)
		case e.part == api.Variables && other.part != api.MatchConditions:
			// A variable is evaluated only where it is used, and that may be behind a condition.
			r.look(other.root, nil, false, out)
		case e.part == api.Mutations && other.part == api.Mutations && other.index < e.index:
			for _, at := range p.subject.writes(other) {
				out.add(at.path)
			}
		}
	}
	if !p.subject.operations["CREATE"] {
		out[oldFact] = true
	}
	return out
}

// write is a part of the object that an expression sets.
type write struct {
	path        path
	conditional bool
	value       *syntax.Node // nil unless it is one expression
	node        *syntax.Node
}

// writes returns the parts that a mutation sets, as far as their paths are constant.
func (s *subject) writes(e *expression) []write {
	if !e.setsOf {
		e.sets, e.setsOf = s.findWrites(e), true
	}
	if !s.spend(len(e.sets)) {
		return nil
	}
	return e.sets
}

func (s *subject) findWrites(e *expression) (out []write) {
	if e.patch {
		for _, o := range e.ops {
			if steps, whole := o.path(); whole && (o.op == "add" || o.op == "replace") {
				out = append(out, write{inObject(steps), o.conditional, o.value, o.node})
			}
		}
		return out
	}
	var walk func(n *syntax.Node, at path, conditional bool)
	walk = func(n *syntax.Node, at path, conditional bool) {
		switch {
		case n.Kind == syntax.Struct:
			for i, name := range n.Names {
				next := at.with(name)
				out = append(out, write{next, conditional, n.Args[i], n})
				walk(n.Args[i], next, conditional)
			}
		case n.Kind == syntax.Map:
			for i := 0; i+1 < len(n.Args); i += 2 {
				if key, ok := n.Args[i].Value.(string); ok && n.Args[i].Kind == syntax.Literal {
					out = append(out, write{at.with(key), conditional, n.Args[i+1], n.Args[i]})
				}
			}
		case n.Kind == syntax.List:
			for _, a := range n.Args {
				walk(a, at.with(anyElement), conditional)
			}
		case n.Kind == syntax.Call && n.Name == "_?_:_":
			walk(n.Args[1], at, true)
			walk(n.Args[2], at, true)
		case n.Kind == syntax.Loop:
			// map and filter: the appended value is an element of the list.
			if sum := n.Args[3]; sum.Kind == syntax.Call && sum.Name == "_+_" {
				walk(sum.Args[1], at, true)
			}
		}
	}
	walk(e.root, path{"object"}, false)
	return out
}

// unguarded finds reads of parts that may be missing. By failurePolicy, the error denies the
// request, or leaves out the mutation or, in a match condition, the policy (spec T20).
func unguarded(p *pass) {
	reported := map[string]bool{}
	for _, e := range p.subject.exprs {
		var seen []path
		p.eachPath(e, func(n *syntax.Node, at path, known facts) {
			if at[0] != "object" && at[0] != "oldObject" || known.knows(at) || reported[at.key()] {
				return
			}
			if at[0] == "oldObject" && !known[oldFact] {
				if p.rule.Name == "unguarded-access" && !reported[oldFact] {
					reported[oldFact] = true
					p.node(e, n, "oldObject is null when an object is created; ask for oldObject != null or for request.operation before, or read it with .?")
				}
				return
			}
			for _, shorter := range seen {
				if len(shorter) < len(at) && shorter.key() == at[:len(shorter)].key() {
					return // one finding is enough for a selection
				}
			}
			missing := p.set.presentIn(p.subject, at)
			what := "may be missing"
			switch {
			case missing == mayBeMissing && p.rule.Name == "unguarded-access":
			case missing == mapKey && p.rule.Name == "unguarded-key":
				if m := at[:len(at)-1]; !known.knows(m) && p.set.presentIn(p.subject, m) == mayBeMissing {
					return // the rule unguarded-access reports that the map may be missing
				}
				what = "may be no key of the map"
			default:
				return
			}
			reported[at.key()] = true
			seen = append(seen, at)
			guard := p.guard(e, at, known)
			if strings.Contains(guard, "[]") {
				p.node(e, n, "%s %s; ask with has() or in before, or read it with .? or [?]", at, what)
				return
			}
			fix, reads := optionals(e, at)
			if fix == nil {
				p.node(e, n, "%s %s; say what holds then, with .? or with %s", at, what, guard)
				return
			}
			p.node(e, n, "%s %s; read it as %s", at, what, reads).fix = fix
		})
	}
}

// guard returns the condition under which the longest selection of the expression that begins
// with the path at can be evaluated.
func (p *pass) guard(e *expression, at path, known facts) string {
	whole := at
	p.eachPath(e, func(_ *syntax.Node, other path, _ facts) {
		if len(other) > len(whole) && other[:len(whole)].key() == whole.key() {
			whole = other
		}
	})
	var parts []string
	for i := 2; i <= len(whole); i++ {
		part := whole[:i]
		if known.knows(part) {
			continue
		}
		switch p.set.presentIn(p.subject, part) {
		case mayBeMissing:
			parts = append(parts, fmt.Sprintf("has(%s)", part))
		case mapKey:
			parts = append(parts, fmt.Sprintf("%s in %s", quote(part[i-1]), part[:i-1]))
		}
	}
	return strings.Join(parts, " && ")
}

// unusedVariables finds variables that no mutation uses, itself or through others.
func unusedVariables(p *pass) {
	used := map[string]bool{}
	all := false
	var use func(n *syntax.Node)
	use = func(n *syntax.Node) {
		n.Walk(func(n *syntax.Node) bool {
			switch {
			case n.Kind == syntax.Select && n.Args[0].Kind == syntax.Ident && n.Args[0].Name == "variables":
				if e := p.subject.variable(n.Name); e != nil && !used[n.Name] {
					used[n.Name] = true
					use(e.root)
				}
				return false
			case n.Kind == syntax.Ident && n.Name == "variables":
				all = true
			}
			return true
		})
	}
	for _, e := range p.subject.ofPart(api.Mutations) {
		use(e.root)
	}
	if all {
		return
	}
	for _, e := range p.subject.ofPart(api.Variables) {
		if used[e.name] {
			continue
		}
		f := p.field(p.subject.doc, fmt.Sprintf("spec.variables[%d].name", e.index), "no mutation uses variables.%s", e.name)
		f.evident = true
		f.fix = func(object map[string]any) bool {
			return editSpec(object, "variables", e.index, func(list []any) []any {
				return slices.Delete(slices.Clone(list), e.index, e.index+1)
			})
		}
	}
}
