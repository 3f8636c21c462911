package convert

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/celgen"
)

// bundle is the list of groups that one policy runs.
type bundle []*compiledGroup

// bundles divides groups into policies. All groups share one policy, except that a group for all
// kinds is always alone, and that groups are separate if they read different parameters or
// contain kinds of the same name. If apart is set, each group has its own policy.
func bundles(groups []*compiledGroup, apart bool) (out []bundle) {
	for _, g := range groups {
		i := slices.IndexFunc(out, func(b bundle) bool {
			return !apart && !slices.ContainsFunc(b, func(other *compiledGroup) bool { return !g.joins(other) })
		})
		if i < 0 {
			out = append(out, nil)
			i = len(out) - 1
		}
		out[i] = append(out[i], g)
	}
	return out
}

func (g *compiledGroup) joins(other *compiledGroup) bool {
	if slices.ContainsFunc(slices.Concat(g.targets, other.targets), target.every) {
		return false
	}
	a, b := g.params(), other.params()
	if (a == nil) != (b == nil) || a != nil && *a != *b {
		return false
	}
	return !slices.ContainsFunc(g.kinds(), func(k string) bool { return slices.Contains(other.kinds(), k) })
}

// params returns the ConfigMap that the rules of the group read, nil if they read none. All rules
// of a group read the same one.
func (g *compiledGroup) params() *configMap {
	for _, r := range g.rules {
		if r.params != nil {
			return r.params
		}
	}
	return nil
}

func (g *compiledGroup) kinds() (out []string) {
	for _, t := range g.targets {
		out = append(out, t.gvk.Kind)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// step is a rule in the order of a policy, with the groups for which this form of the rule runs.
type step struct {
	*compiled
	groups []*compiledGroup
}

// is reports whether r does exactly what the rule of the step does.
func (s *step) is(r *compiled) bool {
	same := func(a, b []mutation) bool {
		return slices.EqualFunc(a, b, func(x, y mutation) bool { return x.apply == y.apply && x.expr.Text == y.expr.Text })
	}
	return s.from == r.from && same(s.mutations, r.mutations) && reflect.DeepEqual(s.selector, r.selector) &&
		slices.EqualFunc(s.conds, r.conds, func(x, y condition) bool { return x.name == y.name && x.expr.Text == y.expr.Text })
}

// steps merges the rules of all groups into one list that keeps the order of each group's rules.
func (b bundle) steps() (out []step) {
	next := make([]int, len(b))
	for {
		var head *step
		for i, g := range b {
			if next[i] == len(g.rules) {
				continue
			}
			s := step{&g.rules[next[i]], nil}
			// A rule that comes later in another group has to wait until the rules before it in
			// that group are placed.
			waits := false
			for j, other := range b {
				at := slices.IndexFunc(other.rules[next[j]:], func(r compiled) bool { return s.is(&r) })
				waits = waits || at > 0
			}
			if head == nil || !waits {
				head = &s
			}
			if !waits {
				break
			}
		}
		if head == nil {
			return out
		}
		for i, g := range b {
			if next[i] < len(g.rules) && head.is(&g.rules[next[i]]) {
				head.groups = append(head.groups, g)
				next[i]++
			}
		}
		out = append(out, *head)
	}
}

// only returns the condition that an object belongs to one of the groups of a step.
func (b bundle) only(s step) expr {
	if len(s.groups) == len(b) {
		return yes
	}
	var kinds, others []string
	for _, g := range b {
		if slices.Contains(s.groups, g) {
			kinds = append(kinds, g.kinds()...)
		} else {
			others = append(others, g.kinds()...)
		}
	}
	slices.Sort(kinds)
	slices.Sort(others)
	kind := atom("object.kind", "string")
	if len(kinds) > 2 && len(others) < len(kinds) {
		return not(celgen.Among(kind, others))
	}
	return celgen.Among(kind, kinds)
}

// conditions returns the match conditions of a policy and, for each step, the conditions that
// have to guard its mutations instead.
func (b bundle) conditions(steps []step) (match []condition, left [][]condition) {
	left = make([][]condition, len(steps))
	for i, s := range steps {
		left[i] = s.conds
	}
	if slices.ContainsFunc(steps, func(s step) bool { return s.copies() }) {
		return nil, left
	}
	alone := b.alone()
	shared := func(c condition) bool {
		return !slices.ContainsFunc(left, func(l []condition) bool {
			return !slices.ContainsFunc(l, func(o condition) bool { return o.name == c.name && o.expr.Text == c.expr.Text })
		})
	}
	hoistable := func(c condition) bool {
		// A match condition sees the object as requested, a rule sees it as the rules before left
		// it. So a condition about the object can only move to the policy if each group has one
		// rule.
		return !strings.Contains(c.expr.Text, "namespaceObject") && (alone || !strings.Contains(c.expr.Text, "object"))
	}
	for _, c := range steps[0].conds {
		if shared(c) && hoistable(c) {
			match = append(match, c)
		}
	}
	for i := range left {
		left[i] = slices.DeleteFunc(slices.Clone(left[i]), func(c condition) bool { return has(match, c) })
	}
	if !alone || len(steps) == 1 {
		return match, left
	}
	names := func(l []condition) (out []string) {
		for _, c := range l {
			out = append(out, c.name)
		}
		return out
	}
	for i := range left {
		if !slices.Equal(names(left[i]), names(left[0])) || slices.ContainsFunc(left[i], func(c condition) bool { return !hoistable(c) }) {
			return match, left
		}
	}
	// The groups have the same conditions, each about its own path in the object. They are joined
	// by group, and the group with the longest conditions comes last.
	order := make([]int, len(steps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return len(b.only(steps[i]).Text) - len(b.only(steps[j]).Text) })
	for n, c := range left[0] {
		e := left[order[len(order)-1]][n].expr
		for _, i := range slices.Backward(order[:len(order)-1]) {
			e = celgen.When(b.only(steps[i]), left[i][n].expr, e)
		}
		match = append(match, condition{c.name, e.As("bool")})
	}
	return match, make([][]condition, len(steps))
}

func has(list []condition, c condition) bool {
	return slices.ContainsFunc(list, func(o condition) bool { return o.name == c.name && o.expr.Text == c.expr.Text })
}

// alone reports whether each group has only one rule.
func (b bundle) alone() bool {
	return !slices.ContainsFunc(b, func(g *compiledGroup) bool { return len(g.rules) > 1 })
}

// assemble writes the policy of a bundle and its binding. all: the bundle has all groups, so the
// policy needs no suffix in its name.
func (c *converter) assemble(b bundle, all bool) *Unit {
	spec := &admissionregistrationv1.MutatingAdmissionPolicySpec{MatchConstraints: &admissionregistrationv1.MatchResources{}}
	for _, g := range b {
		for _, t := range g.targets {
			t.gvk = t.parent
			addResource(spec.MatchConstraints, t, g.operations)
		}
		if slices.ContainsFunc(g.targets, target.every) {
			spec.MatchConstraints.ExcludeResourceRules = spared()
		}
		c.interplay(g.rules)
	}
	fail := admissionregistrationv1.Fail
	if f := c.Policy.Rules.FailurePolicy; f != nil && *f == "Ignore" {
		fail = admissionregistrationv1.Ignore
	}
	if w := c.Policy.Rules.WebhookConfiguration; w != nil {
		if w.FailurePolicy != nil {
			fail = admissionregistrationv1.FailurePolicyType(*w.FailurePolicy)
		}
		spec.MatchConditions = append(spec.MatchConditions, w.MatchConditions...)
	}
	spec.FailurePolicy = &fail
	// Kyverno runs a policy once for each call of its webhook. IfNeeded would always run the
	// policy twice.
	spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	unit := &Unit{}
	for _, g := range b {
		total := 0
		for _, r := range g.rules {
			total += len(r.mutations)
		}
		for _, r := range g.rules {
			if fail == admissionregistrationv1.Ignore && total > 1 {
				c.Rules[c.place[r.from]].note(Differs, kyvernoUndoes, "after an error Kyverno undoes all rules of the policy, with failurePolicy: Ignore; the policy keeps what it did before")
			}
		}
	}
	steps := b.steps()
	for i := range steps {
		selected := steps[i].selector
		if selected == nil {
			continue
		}
		if i == 0 && b.alone() && !slices.ContainsFunc(steps, func(s step) bool { return !reflect.DeepEqual(s.selector, selected) }) {
			spec.MatchConstraints.NamespaceSelector = selected
			break
		}
		labels := func(k string) path {
			return path{root: atom("namespaceObject", ""), steps: []string{"metadata", "labels", k}}
		}
		guarded := *steps[i].compiled
		guarded.conds = append([]condition{{"namespace-labels", selects(selected, labels, nil)}}, guarded.conds...)
		steps[i].compiled = &guarded
	}
	match, left := b.conditions(steps)
	var params *configMap
	failed := false
	for i, s := range steps {
		rule := &c.Rules[c.place[s.from]]
		ok := rule.attempt(func() {
			if s.params != nil {
				if params != nil && *params != *s.params {
					refuseFor("put what is in them into one ConfigMap", "two ConfigMaps in rules for one kind: a policy has one parameter")
				}
				params = s.params
				if !b.alone() {
					rule.note(Differs, withoutParameter, fmt.Sprintf("without the ConfigMap %s, a server refuses all objects of the kind", params.name))
				}
			}
			conds := celgen.All(exprsOf(left[i])...)
			if field := s.rewrites(conds); field != "" {
				refuse("a condition on %s and a patch of it that needs two mutations, beside other rules", field)
			}
			guard := celgen.All(b.only(s), conds)
			for _, m := range s.mutations {
				spec.Mutations = append(spec.Mutations, written(m, guard))
				unit.Mutations = append(unit.Mutations, rule.Name)
			}
			if !slices.Contains(unit.Rules, rule.Name) {
				unit.Rules = append(unit.Rules, rule.Name)
			}
			if i == 0 {
				for _, cond := range match {
					spec.MatchConditions = celgen.AddCondition(spec.MatchConditions, cond.name, formatted(cond.expr))
				}
			}
		})
		failed = failed || !ok
	}
	if failed {
		return nil
	}
	unit.Name = c.unitName(b, all)
	unit.Policy = &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: unit.Name}, Spec: *spec}
	unit.Binding = &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: unit.Name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: unit.Name},
	}
	if params != nil {
		unit.Policy.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		unit.Binding.Spec.ParamRef = params.ref()
	}
	if ns := c.Policy.Namespace; ns != "" {
		unit.Binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}},
		}
	}
	return unit
}

// interplay notes where a rule finds another object than in Kyverno because of a rule before it.
func (c *converter) interplay(rules []compiled) {
	for i, r := range rules {
		rule := &c.Rules[c.place[r.from]]
		if r.images && slices.ContainsFunc(rules[:i], func(before compiled) bool { return before.writesImages() }) {
			rule.note(Differs, effect{does: writes | refuses}, "Kyverno takes the images of the request, and refuses to take that of a container that a rule before added; the policy takes those that the rules before left")
		}
		if r.index && slices.ContainsFunc(rules[:i], func(before compiled) bool { return c.Rules[c.place[before.from]].Reorders }) {
			rule.note(Differs, effect{does: writes | refuses | denies}, "a rule before leaves a list in another order than Kyverno, so that an index means another element")
		}
	}
}

// unitName names the policy of a bundle after Kyverno's policy and, if there are several bundles,
// after what distinguishes this one.
func (c *converter) unitName(b bundle, all bool) string {
	name := c.Policy.Name
	if c.Policy.Namespace != "" {
		name = c.Policy.Namespace + "-" + name
	}
	switch g := b[0]; {
	case all || len(b) > 1:
	case g.suffix != "":
		name += "-" + g.suffix
	case len(g.variants) == 1 && len(c.Rules) > 1:
		name += "-" + label(g.variants[0].rule.Name)
	}
	if len(name) > 200 {
		name = name[:200]
	}
	for unique, n := name, 2; ; n++ {
		if !c.names[unique] {
			c.names[unique] = true
			return unique
		}
		unique = fmt.Sprintf("%s-%d", name, n)
	}
}

// addResource adds a target to the resource rules: to the rule of its group and operations if
// there is one.
func addResource(m *admissionregistrationv1.MatchResources, t target, operations []string) {
	var ops []admissionregistrationv1.OperationType
	for _, op := range operations {
		ops = append(ops, admissionregistrationv1.OperationType(op))
	}
	for i := range m.ResourceRules {
		r := &m.ResourceRules[i].RuleWithOperations
		if r.APIGroups[0] == t.gvk.Group && r.APIVersions[0] == t.gvk.Version && slices.Equal(r.Operations, ops) {
			r.Resources = append(r.Resources, t.resources())
			return
		}
	}
	m.ResourceRules = append(m.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: ops,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{t.gvk.Group}, APIVersions: []string{t.gvk.Version}, Resources: []string{t.resources()}},
	}})
}
