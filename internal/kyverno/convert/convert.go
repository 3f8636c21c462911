package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/pkg/cel/layout"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Verdict says how exactly the converted policy has the effect of a rule.
type Verdict string

// Verdicts, from the best to the worst.
const (
	Exact   Verdict = "exact"
	Order   Verdict = "order"   // exact except for the order of a list with a key
	Better  Verdict = "better"  // Kyverno is wrong in a case in which the policy does what is meant
	Differs Verdict = "differs" // the policy differs in a case that a reason names
	Needs   Verdict = "needs"   // the rule needs something that no policy has
	Refused Verdict = "refused"
)

// Verdicts are all verdicts, from the best to the worst.
var Verdicts = []Verdict{Exact, Order, Better, Differs, Needs, Refused}

// Rule is the result of converting one mutate rule.
type Rule struct {
	Name    string   `json:"rule"`
	Verdict Verdict  `json:"verdict"`
	Reasons []string `json:"reasons,omitempty"`
	Instead string   `json:"instead,omitempty"`
	Uses    []string `json:"uses"`
	// Policies are the names of the policies that run the rule.
	Policies []string `json:"policies,omitempty"`
	// Reorders: the order of a list with a key may differ, whatever the Verdict is.
	Reorders bool `json:"-"`

	effects []effect // what the Reasons announce, one or several for each
	writes  []string // the fields that the rule writes
}

// Converted reports whether a policy does what the rule does.
func (r *Rule) Converted() bool { return r.Verdict != Needs && r.Verdict != Refused }

// Unit is one policy and its binding.
type Unit struct {
	Name    string
	Policy  *admissionregistrationv1.MutatingAdmissionPolicy
	Binding *admissionregistrationv1.MutatingAdmissionPolicyBinding
	// Rules are the rules that the policy runs, in their order, and Mutations has the rule of
	// each of its mutations.
	Rules, Mutations []string
}

// Result is the result of converting a policy of Kyverno.
type Result struct {
	Policy *policy.Policy
	Rules  []Rule
	Units  []Unit
	// Others counts the rules that do not mutate, by their type.
	Others map[string]int
}

// Options configure Policy.
type Options struct {
	// Types are the known kinds; nil means the built-in ones.
	Types *openapi.Types
	// Apart writes a separate policy for each group of kinds for which the same rules run,
	// instead of one policy for all. Then each policy has only the rules for its kinds.
	Apart bool
	// Check returns an error if an API server would refuse the policy; nil accepts all. The rules
	// of a policy that is refused count as not converted.
	Check func(*admissionregistrationv1.MutatingAdmissionPolicy) error
}

// Policy converts the mutate rules of a policy.
func Policy(p *policy.Policy, o Options) *Result {
	if o.Types == nil {
		o.Types = openapi.New(openapi.Builtin())
	}
	r := &Result{Policy: p, Others: map[string]int{}}
	if p.CEL != nil {
		r.convertCEL()
		r.check(o.Check)
		return r
	}
	place := map[int]int{} // from the index of a rule in the policy to its index in r.Rules
	for i := range p.Rules.Rules {
		rule := &p.Rules.Rules[i]
		if rule.Mutate == nil {
			r.Others[rule.Does()]++
			continue
		}
		place[i] = len(r.Rules)
		r.Rules = append(r.Rules, Rule{Name: rule.Name, Verdict: Exact, Uses: uses(rule), writes: writesOf(rule.Mutate)})
	}
	c := &converter{Result: r, types: o.Types, place: place, apart: o.Apart}
	c.run()
	r.check(o.Check)
	return r
}

// severalTypes matches the CEL compiler's error for a list or a map with elements of several
// types.
var severalTypes = regexp.MustCompile(`: expected type '.*' but found '`)

// check drops the policies that an API server refuses, and all policies that share a rule with
// them. The rules of both kinds of policies are refused.
func (r *Result) check(refused func(*admissionregistrationv1.MutatingAdmissionPolicy) error) {
	if refused == nil {
		return
	}
	for _, u := range r.Units {
		err := refused(u.Policy)
		if err == nil {
			continue
		}
		first, _, _ := strings.Cut(err.Error(), "\n")
		for i := range r.Rules {
			if rule := &r.Rules[i]; slices.Contains(u.Rules, rule.Name) && rule.Converted() {
				rule.note(Refused, notConverted, "a server refuses what would be written: "+first)
				rule.Policies = nil
				if r.Policy.CEL != nil && severalTypes.MatchString(first) {
					rule.Instead = "put dyn() around the elements of the list or the map; Kyverno refuses the policy, too"
				}
			}
		}
	}
	r.Units = slices.DeleteFunc(r.Units, func(u Unit) bool {
		return slices.ContainsFunc(r.Rules, func(rule Rule) bool { return !rule.Converted() && slices.Contains(u.Rules, rule.Name) })
	})
	// A rule is in several policies, or in none.
	for i := range r.Rules {
		rule := &r.Rules[i]
		kept := func(name string) bool {
			return slices.ContainsFunc(r.Units, func(u Unit) bool { return u.Name == name })
		}
		if rule.Converted() && slices.ContainsFunc(rule.Policies, func(name string) bool { return !kept(name) }) {
			rule.note(Refused, notConverted, "it is in a policy with a rule that is not converted")
			rule.Policies = nil
		}
	}
}

// converter converts one policy.
type converter struct {
	*Result
	types *openapi.Types
	place map[int]int
	apart bool
	names map[string]bool
}

// note adds a reason, and lowers the verdict of the rule to v if v is worse.
func (r *Rule) note(v Verdict, e effect, reason string) {
	if slices.Index(Verdicts, v) > slices.Index(Verdicts, r.Verdict) {
		r.Verdict = v
	}
	r.Reorders = r.Reorders || v == Order
	if reason == "" {
		return
	}
	if !slices.Contains(r.Reasons, reason) {
		r.Reasons = append(r.Reasons, reason)
	}
	e.reason = reason
	r.effects = append(r.effects, e)
}

// attempt runs f, and records a refusal (see type refusal) as the verdict of the rule. ok is
// false after a refusal.
func (r *Rule) attempt(f func()) (ok bool) {
	defer func() {
		switch x := recover().(type) {
		case nil:
		case *refusal:
			r.note(x.verdict, notConverted, x.reason)
			if r.Instead == "" {
				r.Instead = x.instead
			}
			ok = false
		default:
			panic(x)
		}
	}()
	f()
	return true
}

// group is a set of targets for which the same rules run in the same way.
type group struct {
	key      string
	targets  []target
	variants []variant
	suffix   string
}

func (c *converter) run() {
	if a := c.Policy.Rules.ApplyRules; a != nil && *a == "One" && len(c.Rules) > 1 {
		for i := range c.Rules {
			c.Rules[i].note(Refused, notConverted, "applyRules: One ends the policy after the first rule that changes something")
		}
		return
	}
	if a := c.Policy.Rules.Admission; a != nil && !*a {
		for i := range c.Rules {
			c.Rules[i].note(Refused, notConverted, "admission: false: Kyverno does not run the policy for requests")
		}
		return
	}
	groups := c.groups()
	// A rule that cannot be converted for one kind is converted for none.
	for {
		before := c.refusals()
		var done []*compiledGroup
		for _, g := range groups {
			if of := c.group(g); of != nil {
				done = append(done, of)
			}
		}
		c.names = map[string]bool{}
		c.Units = nil
		for _, b := range bundles(done, c.apart) {
			if u := c.assemble(b, len(b) == len(done)); u != nil {
				c.Units = append(c.Units, *u)
			}
		}
		if c.refusals() == before {
			break
		}
	}
	for _, u := range c.Units {
		for i := range c.Rules {
			if slices.Contains(u.Rules, c.Rules[i].Name) && c.Rules[i].Converted() {
				c.Rules[i].Policies = append(c.Rules[i].Policies, u.Name)
			}
		}
	}
	for i := range c.Rules {
		if c.Rules[i].Converted() && len(c.Rules[i].Policies) == 0 {
			c.Rules[i].note(Refused, notConverted, "the rule matches nothing")
		}
	}
}

// forExisting is the recommended replacement for a rule that mutates existing objects.
const forExisting = "a policy for the targets' own kind, and for those that exist mapd.dev/existing: fix on its binding, or mapd audit --fix"

func (c *converter) refusals() (n int) {
	for i := range c.Rules {
		if !c.Rules[i].Converted() {
			n++
		}
	}
	return n
}

// groups puts targets into groups by the rules that run for them.
func (c *converter) groups() []*group {
	type run struct {
		variant
		targets []target
	}
	var runs []run
	for _, v := range variants(c.Policy) {
		i, ok := c.place[v.from]
		if !ok {
			continue
		}
		rule := &c.Rules[i]
		if v.suits == "" && nestedForEach(v.rule) && canAutogen(c.Policy.Rules) && forPods(v.rule) && c.Policy.Annotations[controllersAnnotation] != "none" {
			rule.note(Better, effect{does: refuses | spoils | writes | idles, at: []string{""}, of: forControllers}, "Kyverno's autogen makes a rule for controllers that removes their template, which a server refuses; the policy is for Pods alone")
		}
		if len(v.rule.Mutate.Targets) > 0 {
			rule.note(Refused, notConverted, "it mutates objects that exist already, which admission does not see")
			rule.Instead = forExisting
			continue
		}
		rule.attempt(func() {
			var targets []target
			kinds := kindsIn(&v.rule.Match)
			if len(kinds) == 0 {
				refuse("a match without kinds")
			}
			for _, k := range kinds {
				for _, t := range targetsOf(c.types, k) {
					if !slices.Contains(targets, t) {
						targets = append(targets, t)
					}
				}
			}
			if slices.ContainsFunc(targets, target.every) {
				others := kinds
				if v.rule.Exclude != nil {
					others = append(others, kindsIn(v.rule.Exclude)...)
				}
				if len(targets) > 1 || len(slices.Compact(slices.Sorted(slices.Values(others)))) > 1 {
					refuse("kind * and other kinds")
				}
			}
			runs = append(runs, run{v, targets})
		})
	}
	if len(runs) > 1 {
		runs = slices.DeleteFunc(runs, func(r run) bool {
			if !r.targets[0].every() || !slices.ContainsFunc(runs, func(other run) bool { return !slices.Equal(other.targets, r.targets) }) {
				return false
			}
			c.Rules[c.place[r.from]].note(Refused, notConverted, "kind * beside rules for other kinds: their order would be lost")
			return true
		})
	}
	var out []*group
	for _, r := range runs {
		for _, t := range r.targets {
			key, suffix := "", ""
			var vs []variant
			for i, other := range runs {
				if !slices.Contains(other.targets, t) {
					continue
				}
				key += fmt.Sprintf("%d[", i)
				for _, m := range []*policy.Match{&other.rule.Match, other.rule.Exclude} {
					if m == nil {
						continue
					}
					fs, _ := filters(m)
					for j, f := range fs {
						if appliesTo(f, t) {
							key += fmt.Sprintf("%d,", j)
						}
					}
					key += ";"
				}
				key += "]"
				if t.gvk.Kind == "Namespace" || !t.known {
					key += t.gvk.String()
				}
				key += fmt.Sprint(t.namespaced)
				vs = append(vs, other.variant)
				suffix = other.suits
			}
			i := slices.IndexFunc(out, func(g *group) bool { return g.key == key })
			if i < 0 {
				out = append(out, &group{key: key, variants: vs, suffix: suffix})
				i = len(out) - 1
			}
			if !slices.Contains(out[i].targets, t) {
				out[i].targets = append(out[i].targets, t)
			}
		}
	}
	return out
}

// compiled is one rule, converted for one group.
type compiled struct {
	variant
	conds     []condition
	selector  *metav1.LabelSelector
	mutations []mutation
	params    *configMap // that the rule reads; nil if none
	images    bool       // it reads the variable images
	index     bool       // it depends on the order of a list's elements
}

// writesImages reports whether a mutation writes the image of a container.
func (c *compiled) writesImages() bool {
	return slices.ContainsFunc(c.mutations, func(m mutation) bool { return imageField.MatchString(m.expr.Text) })
}

var imageField = regexp.MustCompile(`\bimage"?: |/image"|ontainers", value|ontainers/(-|\d+)"`)

// writtenField finds the names of the fields that a mutation writes: members of messages and
// maps.
var writtenField = regexp.MustCompile(`"?([A-Za-z][\w./-]*)"?: `)

// rewrites returns a field that cond reads and that a mutation other than the last may write; ""
// if there is none.
func (c *compiled) rewrites(cond expr) string {
	for i, m := range c.mutations {
		if i == len(c.mutations)-1 {
			break
		}
		if !m.apply {
			if strings.Contains(cond.Text, "object.") {
				return "the object"
			}
			continue
		}
		for _, f := range writtenField.FindAllStringSubmatchIndex(m.expr.Text, -1) {
			name, value := m.expr.Text[f[2]:f[3]], m.expr.Text[f[1]:]
			if strings.HasPrefix(value, `{"`) && readsKeys(cond.Text, name) {
				continue // the loop compares the keys in the map one by one
			}
			if name != "name" && !strings.HasPrefix(value, "Object") && regexp.MustCompile(`(\.\??|")`+regexp.QuoteMeta(name)+`\b`).MatchString(cond.Text) {
				return name
			}
		}
	}
	return ""
}

// readsKeys reports whether an expression reads the map name only by constant keys.
func readsKeys(expression, name string) bool {
	for _, at := range regexp.MustCompile(`\.\??`+regexp.QuoteMeta(name)+`\b`).FindAllStringIndex(expression, -1) {
		if rest := expression[at[1]:]; !keyRead.MatchString(rest) {
			return false
		}
	}
	return true
}

var keyRead = regexp.MustCompile(`^(\.\?[A-Za-z_]\w*|\[\??"[^"]*"\])`)

// copies reports whether a mutation copies a list of the object. Kubernetes 1.37 cannot do that
// in a policy with match conditions, so such a policy has none.
func (c *compiled) copies() bool {
	return slices.ContainsFunc(c.mutations, func(m mutation) bool { return copiedList.MatchString(m.expr.Text) })
}

var copiedList = regexp.MustCompile(`value: [a-z][\w.?]*\.filter\(`)

// compiledGroup is a group with its converted rules.
type compiledGroup struct {
	*group
	rules      []compiled
	operations []string
}

// group converts the rules of a group; it returns nil if none of them can be converted.
func (c *converter) group(g *group) *compiledGroup {
	operations := c.operations(g)
	if len(operations) == 0 {
		return nil
	}
	out := &compiledGroup{group: g, operations: operations}
	for _, v := range g.variants {
		rule := &c.Rules[c.place[v.from]]
		if !rule.Converted() {
			continue
		}
		rule.attempt(func() { out.rules = append(out.rules, c.compile(v, g, operations, rule)) })
	}
	if len(out.rules) == 0 {
		return nil
	}
	return out
}

// operations are the operations for which a rule of a group runs.
func (c *converter) operations(g *group) []string {
	var out []string
	for _, v := range g.variants {
		if c.Rules[c.place[v.from]].Converted() {
			out = append(out, operationsOfRule(v.rule, g.targets[0])...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// operationsOfRule are the operations for which a rule runs on a target.
func operationsOfRule(r *policy.Rule, t target) (out []string) {
	_, ops := splitOperations(r.Preconditions)
	fs, every := filters(&r.Match)
	var matched []string
	for _, f := range fs {
		if !appliesTo(f, t) {
			continue
		}
		own := f.Resources.Operations
		if len(own) == 0 || every && len(fs) > 1 {
			own = []string{"CREATE", "UPDATE"}
		}
		matched = append(matched, own...)
	}
	for _, op := range []string{"CREATE", "UPDATE"} {
		if slices.Contains(ops, op) && slices.Contains(matched, op) {
			out = append(out, op)
		}
	}
	return out
}

// compiler converts one rule for one group.
type compiler struct {
	*scope
	notes           func(Verdict, effect, string)
	namespaced      bool
	policyNamespace string
}

func (c *converter) compile(v variant, g *group, operations []string, rule *Rule) compiled {
	out := compiled{variant: v}
	r := v.rule
	sh := newShape(c.types, g.targets)
	namespaced := !slices.ContainsFunc(g.targets, func(t target) bool { return !t.namespaced })
	m := &matcher{shape: sh, targets: g.targets, namespaced: namespaced, operations: operations}
	out.conds, out.selector = m.rule(r)
	if len(r.CELPreconditions) > 0 {
		refuse("celPreconditions in a rule that mutates")
	}
	if len(r.ImageExtractors) > 0 {
		refuse("imageExtractors")
	}
	if c.Policy.Namespace != "" && !namespaced {
		refuse("a kind without namespaces in a namespaced policy")
	}
	generated := v.suits != ""
	note := func(v Verdict, e effect, reason string) {
		// Differences that concern all generated rules are noted once.
		if generated {
			reason = inPod.Replace(reason)
		}
		rule.note(v, e, reason)
	}
	k := &compiler{scope: &scope{shape: sh, names: map[string]value{}, nested: map[string]string{}, fallible: new([]string), refused: map[string]string{}, notes: note, params: &out.params, usesImages: &out.images, usesIndex: &out.index, updates: slices.Equal(operationsOfRule(r, g.targets[0]), []string{"UPDATE"})}, notes: note, namespaced: namespaced, policyNamespace: c.Policy.Namespace}
	k.scope = k.context(k.scope, r.Context)
	preconditions, ops := splitOperations(r.Preconditions)
	if c := m.operation(ops); c.Text != yes.Text {
		out.conds = append(out.conds, condition{"operation", c})
	}
	out.conds = append(out.conds, k.conditions(preconditions)...)
	fails := slices.Clone(*k.fallible)
	mayFail := len(fails) > 0
	if mayFail && operationLate(r.Preconditions) {
		note(Better, refusesWithout(fails...), "Kyverno refuses an object in which a variable of a precondition is missing, even if a later one is about the operation and does not hold")
	}
	p := r.Mutate
	if mayFail && len(preconditions.Any) > 1 && p.ForEach == nil {
		note(Better, refusesWithout(fails...), "Kyverno refuses an object in which a variable of the preconditions is missing, even if another of any holds")
	}
	switch {
	case p.PatchStrategicMerge != nil:
		o := &overlay{scope: k.scope, notes: note}
		before := len(*k.fallible)
		nodes := o.fields(p.PatchStrategicMerge.(map[string]any), path{root: object})
		missing := (*k.fallible)[before:]
		if len(o.conds) == 0 && !chooses(nodes) {
			missing = o.unneeded
		}
		if len(missing) > 0 {
			note(Better, refusesWithout(missing...), unneeded)
		}
		if mayFail && len(o.conds) > 0 {
			note(Better, refusesWithout(fails...), "Kyverno refuses an object in which a variable of a precondition is missing, even if an anchor does not hold")
		}
		out.conds = append(out.conds, o.conds...)
		out.mutations = k.mutations(nodes)
	case p.PatchesJSON6902 != "":
		out.mutations = []mutation{{false, k.patches(p.PatchesJSON6902)}}
	default:
		var json []expr
		for _, f := range p.ForEach {
			if f.PatchStrategicMerge != nil {
				out.mutations = append(out.mutations, k.foreachMerge(f)...)
				continue
			}
			json = append(json, k.foreach(f))
		}
		switch {
		case len(json) > 1 && len(r.Context) > 0:
			if len(out.mutations) > 0 {
				refuse("foreach with JSON patches and with merges that share a context")
			}
			for i, f := range p.ForEach {
				for _, other := range p.ForEach[:i] {
					if strings.TrimSuffix(f.List, "[]") == strings.TrimSuffix(other.List, "[]") {
						refuse("two foreach over one list that share a context")
					}
				}
			}
			for i := range json {
				if json[i].Bind < celgen.BindSum {
					json[i] = atom("("+json[i].Text+")", "list")
				}
			}
			out.mutations = []mutation{{false, celgen.Joined("+", celgen.BindSum, json...)}}
		default:
			for _, e := range json {
				out.mutations = append(out.mutations, mutation{false, e})
			}
		}
	}
	if len(out.mutations) == 0 {
		refuse("a patch in which nothing is left to write")
	}
	if out.params != nil && (len(out.conds) > 0 || out.selector != nil) {
		note(Differs, withoutParameter, fmt.Sprintf("without the ConfigMap %s, a server refuses all objects of the kind, Kyverno only those that the rule is for", out.params.name))
	}
	if slices.ContainsFunc(g.targets, target.every) {
		note(Differs, notShown, "Kyverno's own ConfigMap leaves out kinds such as Event and Node (resourceFilters); the policy is for all kinds")
	}
	if slices.ContainsFunc(g.targets, func(t target) bool { return t.gvk.Kind == filtered }) {
		note(Differs, notShown, "Kyverno's own ConfigMap leaves out ReplicaSets (resourceFilters); the policy is for them")
	}
	for _, t := range g.targets {
		if !t.known {
			rule.note(Differs, policyIdles, fmt.Sprintf("the resource %s, with namespaces, is guessed from the kind %s of %s: if it is another, the policy does nothing; pass the CustomResourceDefinition", t.resource, t.gvk.Kind, t.gvk.GroupVersion()))
		}
	}
	return out
}

// mutations writes a patch: as much of it as can be in an apply configuration, and the rest as a
// JSON patch.
func (k *compiler) mutations(nodes []*node) []mutation {
	if len(nodes) == 0 {
		return nil
	}
	apply, rest := k.shape.configured(nodes, nil)
	var out []mutation
	if len(apply) > 0 {
		if merges(apply) {
			k.notes(Order, reorders, "Kyverno puts new elements of a list before the others, the policy behind them")
		}
		out = append(out, mutation{true, k.shape.configuration(apply, "Object", path{root: object})})
	}
	if len(rest) > 0 {
		if merges(rest) {
			k.notes(Order, reorders, "Kyverno moves an element that a list has already to its front, the policy leaves it where it is")
		}
		o := &ops{shape: k.shape}
		o.fields(rest, path{root: object}, nil)
		out = append(out, mutation{false, o.expr()})
	}
	return out
}

// unneeded is the reason for a difference: Kyverno's behaviour when a variable is missing.
const unneeded = "Kyverno refuses an object in which a variable of the patch is missing, even where the patch does not need it"

// chooses reports whether a patch selects elements of a list, and so may write nothing.
func chooses(nodes []*node) bool {
	return slices.ContainsFunc(nodes, func(n *node) bool {
		return n.action == forEach && n.where.Text != yes.Text || chooses(n.fields)
	})
}

func merges(nodes []*node) bool {
	return slices.ContainsFunc(nodes, func(n *node) bool { return n.action == merge || merges(n.fields) })
}

// patches writes patchesJson6902.
func (k *compiler) patches(text string) expr {
	o := &ops{shape: k.shape}
	for _, op := range k.operations(text) {
		o.patch(k.scope, op, path{root: object}, nil, tokens(op.Path))
	}
	seen := map[string]bool{}
	o.parts = slices.DeleteFunc(o.parts, func(p part) bool {
		key := p.cond.Text + "\x00" + p.op.Text
		duplicate := seen[key] && strings.HasSuffix(p.op.Text, "value: {}}")
		seen[key] = true
		return duplicate
	})
	return o.expr()
}

// foreachMerge writes a foreach whose patch selects the current element by its name.
func (k *compiler) foreachMerge(f policy.ForEach) []mutation {
	lists, optional := k.listOf(f.List)
	if len(f.ForEach) > 0 {
		refuse("patchStrategicMerge beside foreach")
	}
	if f.Order != nil && *f.Order == "Ascending" {
		k.notes(Order, reorders, "Kyverno turns the list around, with order: Ascending; the policy leaves it as it is")
	}
	// If the foreach goes through several lists, the patch shows which one it changes.
	var target path
	found := 0
	for _, l := range lists {
		if v, ok := dig(f.PatchStrategicMerge, l.whole()); ok {
			if _, isList := v.([]any); isList {
				target, found = l, found+1
			}
		}
	}
	if found == 0 {
		return []mutation{{false, k.named(f, lists, optional)}}
	}
	if found != 1 {
		refuse("a foreach whose patch is about several of its lists")
	}
	name, at := k.loop(target)
	s := k.with("element", value{path: &at})
	s = k.context(s, f.Context)
	each := &eachElement{list: target, loop: name, at: at, optional: optional, where: all(exprsOf(s.conditions(f.Preconditions))...)}
	for _, l := range lists {
		each.lists = append(each.lists, l.whole())
	}
	o := &overlay{scope: s, notes: k.notes, each: each}
	before := len(*k.fallible)
	nodes := o.fields(f.PatchStrategicMerge.(map[string]any), path{root: object})
	if fails := (*k.fallible)[before:]; len(fails) > 0 && (hasAdd(nodes) || chooses(nodes)) {
		k.notes(Better, refusesWithout(fails...), unneeded)
	}
	if len(o.conds) > 0 {
		refuse("a condition of the whole object in a foreach")
	}
	others := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return onlyElements(n) })
	if len(others) > 0 && (k.shape.has(target).Text != yes.Text || each.where.Text != yes.Text) {
		refuse("a foreach that also patches what is not its element")
	}
	if mentions(nodes, name) {
		refuse("a foreach that writes something of its element elsewhere")
	}
	return k.mutations(nodes)
}

// named writes a foreach whose patch writes, for each element, one annotation or label with a
// name made from the element.
func (k *compiler) named(f policy.ForEach, lists []path, optional bool) expr {
	o := &ops{shape: k.shape}
	at, ptr := path{root: object}, pointer(nil)
	patch := f.PatchStrategicMerge
	for {
		m, ok := patch.(map[string]any)
		if !ok || len(m) != 1 && len(at.steps) == 0 {
			refuse("a foreach whose patch is not about one of its lists")
		}
		if k.shape.inMap(at.whole()) {
			break
		}
		if len(m) != 1 {
			refuse("a foreach whose patch is not about one of its lists")
		}
		for name, inner := range m {
			if kind, _ := anchor(name); kind != "" || hasVariable(name) {
				refuse("a foreach whose patch is not about one of its lists")
			}
			at, ptr, patch = at.to(name), ptr.to(name), inner
		}
		o.ensure(at, ptr, "{}")
	}
	fields := patch.(map[string]any)
	sure := false
	for _, l := range lists {
		sure = sure || k.shape.has(l).Text == yes.Text
		loopName, elem := k.loop(l)
		s := k.context(k.with("element", value{path: &elem}), f.Context)
		where := all(exprsOf(s.conditions(f.Preconditions))...)
		sure = sure && where.Text == yes.Text
		items, may := k.shape.read(l)
		if may && !optional {
			items, may = k.shape.get(l), false
		}
		o.loops = []loop{{items, "i", loopName, where, may}}
		for _, key := range sortedKeys(fields) {
			text, ok := fields[key].(string)
			if kind, _ := anchor(key); kind != "" || !ok {
				refuse("a foreach whose patch is not about one of its lists")
			}
			name := fn("jsonpatch.escapeKey", "string", s.text(key))
			v := s.fits(s.text(text), at.to("x"))
			o.add(yes, patchOp("add", append(slices.Clone(ptr), str("/"), name), &v))
		}
		o.loops = nil
	}
	if !sure {
		refuse("a foreach whose list may be empty, and whose patch is not about it")
	}
	return o.expr()
}

func dig(v any, steps []string) (any, bool) {
	for _, s := range steps {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[s]; !ok {
			return nil, false
		}
	}
	return v, true
}

// onlyElements reports whether a node changes nothing but elements of a list.
func onlyElements(n *node) bool {
	if n.action == inside {
		return !slices.ContainsFunc(n.fields, func(f *node) bool { return !onlyElements(f) })
	}
	return n.action == forEach
}

// mentions reports whether a value outside of loops uses the variable of a loop.
func mentions(nodes []*node, name string) bool {
	var in func(v any) bool
	in = func(v any) bool {
		switch v := v.(type) {
		case either:
			return in(v.expr)
		case expr:
			return regexp.MustCompile(`\b` + name + `\.`).MatchString(v.Text)
		case map[string]any:
			for _, e := range v {
				if in(e) {
					return true
				}
			}
		case []any:
			return slices.ContainsFunc(v, in)
		}
		return false
	}
	return slices.ContainsFunc(nodes, func(n *node) bool {
		if n.action == forEach {
			return false
		}
		return in(n.value) || mentions(n.fields, name) || slices.ContainsFunc(n.elements, func(f []*node) bool { return mentions(f, name) })
	})
}

var ownNamespace = regexp.MustCompile(`^/api/v1/namespaces/\{\{\s*request\.(object\.metadata\.)?namespace\s*\}\}$`)

// context adds the entries of a context to the scope. An entry that cannot be converted is
// refused only when an expression uses it.
func (k *compiler) context(s *scope, entries []policy.Context) *scope {
	for _, e := range entries {
		v, why := value{}, ""
		if e.ConfigMap != nil {
			var c configMap
			if c, why = k.parameter(e.Name, e.ConfigMap); why == "" {
				v = value{path: &path{root: atom("params", ""), prefix: []string{paramsRoot}}, config: &c}
			}
		} else {
			v, why = s.entry(e)
		}
		if why == "" {
			s = s.with(e.Name, v)
		} else {
			refused := map[string]string{e.Name: why}
			for n, w := range s.refused {
				if n != e.Name {
					refused[n] = w
				}
			}
			next := *s
			next.refused = refused
			s = &next
		}
	}
	return s
}

// entry translates an entry of a context, or returns the reason why it cannot.
func (s *scope) entry(e policy.Context) (v value, why string) {
	switch {
	case e.Variable != nil:
		x := e.Variable
		switch {
		case x.Value == nil:
			v = s.query(s.named(x.JMESPath))
		case mentionsVariable(x.Value):
			if t, ok := x.Value.(string); ok {
				v = s.variableText(t)
			} else {
				v = value{expr: literal(s.fill(x.Value))}
			}
		default:
			v = constantValue(normal(x.Value))
		}
		if x.Value != nil && x.JMESPath != "" {
			v = s.at(v).query(s.named(x.JMESPath))
		}
		if x.Default != nil {
			d := literal(normal(x.Default))
			if v.object != nil || v.images != nil || v.members != nil {
				refuse("a default of an object that an expression makes")
			}
			if v.path == nil && !v.optional {
				return v, ""
			}
			return value{expr: s.orElse(v, d)}, ""
		}
		return v, ""
	case e.APICall != nil:
		if !ownNamespace.MatchString(e.APICall.URLPath) || e.APICall.Service != nil || e.APICall.Method == "POST" {
			return v, fmt.Sprintf("the context %s asks an API server or a service (%s)", e.Name, e.APICall.URLPath)
		}
		inner := s.at(value{path: &path{root: atom("namespaceObject", ""), prefix: []string{namespaceRoot}}})
		if e.APICall.JMESPath == "" {
			return *inner.current, ""
		}
		return inner.query(e.APICall.JMESPath), ""
	case e.ConfigMap != nil:
		return v, fmt.Sprintf("the context %s reads the ConfigMap %s", e.Name, e.ConfigMap.Name)
	case e.ImageRegistry != nil:
		return v, fmt.Sprintf("the context %s asks a registry", e.Name)
	}
	return v, fmt.Sprintf("the context %s asks a GlobalContextEntry", e.Name)
}

// namespaceRoot is the first step of a path into the Namespace.
const namespaceRoot = "\x00namespace"

func written(m mutation, guard expr) admissionregistrationv1.Mutation {
	if m.apply {
		return admissionregistrationv1.Mutation{
			PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: formatted(when(guard, m.expr, atom("Object{}", "")))},
		}
	}
	return admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: formatted(when(guard, m.expr, list()))},
	}
}

// maxCEL bounds a generated CEL expression, in bytes.
const maxCEL = 16 << 10

func formatted(e expr) string {
	if len(e.Text) > maxCEL {
		refuse("an expression of %d bytes", len(e.Text))
	}
	text, err := layout.Format(e.Text)
	if err != nil {
		refuse("no expression could be written (%v): %s", err, e.Text)
	}
	return text
}

// spared returns exclude rules for objects that a rule for all kinds must not match: webhook
// configurations, and requests such as TokenReviews that are not stored.
func spared() []admissionregistrationv1.NamedRuleWithOperations {
	return []admissionregistrationv1.NamedRuleWithOperations{
		celgen.Every([]string{"authentication.k8s.io", "authorization.k8s.io"}, "*"), celgen.WebhookConfigurations(),
	}
}
