package translate

import (
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/pkg/cel/layout"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// write writes the policy and the binding of a unit, or records in the fates of its mutators the
// reason why it cannot.
func (n *translation) write(u *Unit) {
	if n.Params && len(u.Mutators) > 1 {
		n.refuse(u, "its order with others matters, and a policy reads the values of one mutator only; use inlined values")
		return
	}
	d := &policyDraft{translation: n, unit: u}
	switch {
	case u.Mutators[0].Asks():
		d.fromRecorded(u.Mutators[0])
	case n.Params:
		d.fromParams(u.Mutators[0])
	default:
		d.inline()
	}
	if d.refusal != "" {
		n.refuse(u, d.refusal)
		return
	}
	if u.Rounds > 1 {
		d.spec.ReinvocationPolicy = admissionregistrationv1.IfNeededReinvocationPolicy
	}
	layOut(&d.spec)
	group := n.Group
	if group == "" {
		group = admissionregistrationv1.GroupName
	}
	labels, annotations := origin(u.Mutators)
	meta := metav1.ObjectMeta{Name: u.Name, Labels: labels, Annotations: annotations}
	u.Policy = &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: group + "/v1", Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: meta,
		Spec:       d.spec,
	}
	u.Binding = &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: group + "/v1", Kind: "MutatingAdmissionPolicyBinding"},
		ObjectMeta: *meta.DeepCopy(),
		Spec:       d.binding,
	}
	u.Binding.Spec.PolicyName = u.Name
}

// layOut formats expressions as "mapd fmt" does. Runtime does not call it, because nobody reads
// its policies. So programs without Native, such as the one for the browser, lack the formatter.
func layOut(spec *admissionregistrationv1.MutatingAdmissionPolicySpec) {
	format := func(expression *string) {
		if text, err := layout.Format(*expression); err == nil {
			*expression = text
		}
	}
	for i := range spec.MatchConditions {
		format(&spec.MatchConditions[i].Expression)
	}
	for i := range spec.Variables {
		format(&spec.Variables[i].Expression)
	}
	for _, m := range spec.Mutations {
		if m.ApplyConfiguration != nil {
			format(&m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			format(&m.JSONPatch.Expression)
		}
	}
}

func (n *translation) refuse(u *Unit, text string) {
	for _, m := range u.Mutators {
		n.fates[m.ID()] = refused("", text)
	}
}

// policyDraft is a policy that is being written.
type policyDraft struct {
	*translation
	unit    *Unit
	spec    admissionregistrationv1.MutatingAdmissionPolicySpec
	binding admissionregistrationv1.MutatingAdmissionPolicyBindingSpec
	refusal string
}

// inline writes a policy that contains all values.
func (d *policyDraft) inline() {
	ms := d.unit.Mutators
	d.match(ms)
	guards := make([][]condition, len(ms))
	for i, m := range ms {
		guards[i] = d.guards(m)
		if len(ms) > 1 {
			guards[i] = append(d.unshared(m, ms), guards[i]...)
		}
	}
	shared := d.shared(ms, guards)
	vars := &variables{}
	for i := range guards {
		guards[i] = slices.DeleteFunc(guards[i], func(c condition) bool { return holds(shared, c) })
	}
	shared = d.selectNames(shared)
	sayOnce(guards, vars)
	for i, m := range ms {
		own := guards[i]
		mutation, conds := d.mutation(m, vars)
		if d.refusal != "" {
			return
		}
		if len(ms) == 1 {
			shared = append(shared, conds...)
			conds = nil
		}
		d.spec.Mutations = append(d.spec.Mutations, mutation.as(append(own, conds...)))
	}
	for i, name := range vars.names {
		d.spec.Variables = append(d.spec.Variables, admissionregistrationv1.Variable{Name: name, Expression: vars.exprs[i]})
	}
	d.conditions(shared)
}

// match writes rules and selectors.
func (d *policyDraft) match(ms []*legacy.Mutator) {
	fail, exactly := admissionregistrationv1.Fail, admissionregistrationv1.Exact
	d.spec.FailurePolicy = &fail
	d.spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	d.spec.MatchConstraints = &admissionregistrationv1.MatchResources{MatchPolicy: &exactly, ResourceRules: d.rules(ms)}
	if isWild(d.spec.MatchConstraints.ResourceRules) {
		d.spec.MatchConstraints.ExcludeResourceRules = spared()
	}
	var selector *metav1.LabelSelector
	if sameSelectors(ms) {
		selector = ms[0].Match.NamespaceSelector
	}
	d.binding.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: namespaces(selector)}
}

// conditions writes match conditions with unique names.
func (d *policyDraft) conditions(conds []condition) {
	for _, c := range conds {
		name := strings.TrimRight(c.Name, "-") // empty for a key without a letter
		d.spec.MatchConditions = celgen.AddCondition(d.spec.MatchConditions, name, c.Expr.String())
	}
}

// mutation is one patch, and the expression of the patch's type that changes nothing.
type mutation struct {
	patchType admissionregistrationv1.PatchType
	patch     expr
	none      expr
}

// as returns the mutation guarded by conditions: it applies if all of them hold.
func (m mutation) as(conds []condition) admissionregistrationv1.Mutation {
	e := m.patch
	if len(conds) > 0 {
		e = when(exprs(conds), e, m.none)
	}
	out := admissionregistrationv1.Mutation{PatchType: m.patchType}
	if m.patchType == admissionregistrationv1.PatchTypeApplyConfiguration {
		out.ApplyConfiguration = &admissionregistrationv1.ApplyConfiguration{Expression: e.String()}
	} else {
		out.JSONPatch = &admissionregistrationv1.JSONPatch{Expression: e.String()}
	}
	return out
}

// mutation returns the mutation of a mutator and its conditions.
func (d *policyDraft) mutation(m *legacy.Mutator, vars *variables) (mutation, []condition) {
	w := d.walk(m, d.known(m), vars)
	reason := w.unmergeable()
	exactly := reason == "" && w.mergesExactly()
	switch {
	case d.Patch == "apply" && reason != "":
		d.refusal = reason
		return mutation{}, nil
	case d.Patch == "apply", d.Patch != "json" && (exactly || d.Readable && reason == ""):
		c := w.apply()
		if !exactly {
			d.mergeNotes(m, w)
		}
		d.unit.assume(w)
		return mutation{admissionregistrationv1.PatchTypeApplyConfiguration, c.value, message("Object")}, c.conds
	}
	if !w.trusted {
		patch := sayOften(vars, func(r *repeats, _ *variables) expr {
			f := d.formOf(m)
			f.repeats = r
			return f.patch(m)
		})
		return mutation{admissionregistrationv1.PatchTypeJSONPatch, patch, listOf()}, nil
	}
	var conds []condition
	patch := sayOften(vars, func(r *repeats, vars *variables) expr {
		w := d.walk(m, d.known(m), vars)
		w.repeats = r
		deed := w.from(0, ident("object"), pointer{}, true)
		conds = deed.conds
		return deed.do.program()
	})
	return mutation{admissionregistrationv1.PatchTypeJSONPatch, patch, listOf()}, conds
}

// mergeNotes adds notes on how an apply configuration, which Options asked for, differs from the
// mutator.
func (d *policyDraft) mergeNotes(m *legacy.Mutator, w *plainWalk) {
	f := d.fates[m.ID()]
	if !w.known.builtin {
		f.differs("T9", "a merge takes null for missing; Gatekeeper refuses an object that has null on the way to the location")
	}
	last := len(m.Location) - 1
	switch {
	case !w.mergesObject() || !w.mayFind(last):
	case m.Location[last].List:
		f.differs("", "an element of "+m.Location[:last].String()+" that is there keeps the fields that the value lacks; Gatekeeper replaces it")
	default:
		f.differs("", m.Location.String()+" keeps the fields that the value lacks; Gatekeeper replaces it")
	}
	for i, node := range m.Location {
		if !node.List {
			continue
		}
		list := m.Location[:i].String()
		if !w.known.nodes[i].unique {
			f.differs("T12", "elements of "+list+" with the same "+node.Name+" are merged into one, or refused; Gatekeeper changes each")
		} else if !node.Glob && w.creates(i) || len(m.Tests) > 0 {
			f.differs("T12", "elements of "+list+" with the same "+node.Name+", which a server refuses, can become one")
		}
		if w.known.builtin && w.known.nodes[i-1].always && !node.Glob && w.creates(i) {
			f.differs("T9", "an object without "+list+" gets the first element; Gatekeeper refuses it")
		}
	}
	d.fates[m.ID()] = f
}

// assume records what the apply configuration of a mutator assumes of lists.
func (u *Unit) assume(w *plainWalk) {
	for i, node := range w.path {
		if !node.List {
			continue
		}
		list := append(slices.Clone(w.path[:i]), legacy.Node{List: true, Name: node.Name, Glob: true})
		if w.known.nodes[i].unique {
			u.Unique = withPath(u.Unique, list)
		}
		if w.known.nodes[i-1].filled && !w.canBeEmpty(i-1) {
			u.Filled = withPath(u.Filled, list[:i])
		}
	}
}

// withPath returns paths with p added, unless p is in paths.
func withPath(paths []legacy.Path, p legacy.Path) []legacy.Path {
	if slices.ContainsFunc(paths, func(o legacy.Path) bool { return o.String() == p.String() }) {
		return paths
	}
	return append(paths, p)
}

// fromParams writes the policy that mapd runs, with the conditions that mapd's
// engine checks itself.
func (d *policyDraft) fromParams(m *legacy.Mutator) {
	if d.Patch == "apply" {
		d.refusal = "a policy that reads its values from the mutator is a JSON patch"
		return
	}
	d.spec = form{params: true}.policy(m).Spec
	d.binding.ParamRef = &admissionregistrationv1.ParamRef{Name: m.Name, ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
	rules := d.rules([]*legacy.Mutator{m})
	d.spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		MatchPolicy: d.spec.MatchConstraints.MatchPolicy, ResourceRules: rules,
	}
	if isWild(rules) {
		d.spec.MatchConstraints.ExcludeResourceRules = spared()
	}
	d.binding.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: namespaces(m.Match.NamespaceSelector)}
	kinds := form{params: true, served: true}.kinds(m)
	own := d.spec.MatchConditions
	d.spec.MatchConditions = nil
	d.conditions(kinds)
	d.spec.MatchConditions = append(d.spec.MatchConditions, own...)
}

// commentWidth leaves room for a comment sign and a space.
const commentWidth = layout.Width - 2

// comment describes a unit in words.
func (n *translation) comment(u Unit) string {
	var lines []string
	if len(u.Mutators) == 1 {
		lines = append(lines, wrap(describe(u.Mutators[0]), commentWidth, ""))
	} else {
		lines = append(lines, "Does one after the other:")
		for i, m := range u.Mutators {
			lines = append(lines, wrap(strconv.Itoa(i+1)+". "+describe(m), commentWidth, "   "))
		}
	}
	switch {
	case u.Params != nil:
		text := "The provider is not asked: its values are those of the ConfigMap " + u.Params.GetName() + " in the namespace " + u.Params.GetNamespace() +
			", where characters that its keys cannot have are written as _ and their code: nginx:1.25 as nginx_3a1.25."
		lines = append(lines, wrap(text, commentWidth, ""))
	case u.Policy != nil && n.Params:
		lines = append(lines, wrap("The values are those of the mutator, which has to stay: the policy reads them there.", commentWidth, ""))
	}
	if u.Policy != nil && slices.ContainsFunc(u.Policy.Spec.Mutations, refuses) {
		lines = append(lines, wrap("An object of which a part on the way there is null or of another type is refused, as Gatekeeper does it.", commentWidth, ""))
	}
	return strings.Join(lines, "\n")
}

// refuses reports whether a mutation has an operation that cannot be applied, see
// refusal.
func refuses(m admissionregistrationv1.Mutation) bool {
	return m.JSONPatch != nil && strings.Contains(m.JSONPatch.Expression, ": expected a")
}
