package convert

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/internal/celgen"
)

// libraries are CEL libraries of Kyverno that no API server has, with the closest replacement.
var libraries = []struct{ call, name, instead string }{
	{`\bresource\.(Get|List|Post)\(`, "resource", "a parameter (paramKind, paramRef), if the object has a fixed name"},
	{`\bhttp\.(Get|Post)\(`, "http", "a provider of external data"},
	{`\bglobalContext\.Get\(`, "globalContext", "a parameter (paramKind, paramRef)"},
	{`\bimageData\.|\bimagedata\.|GetMetadata\(`, "imagedata", "a provider of external data"},
	{`\bimage\(|\bisImage\(|parseImageReference`, "image", "string functions: split, replace"},
	{`\buser\.|parseServiceAccount\(`, "user", "request.userInfo and string functions"},
	{`\bjson\.Unmarshal|json\.unmarshal`, "json", ""},
	{`\byaml\.`, "yaml", ""},
	{`\bmd5\(|\bsha1\(|\bsha256\(`, "hash", ""},
	{`\bmath\.`, "math", ""},
	{`\btime\.now\(|\bnow\(`, "time", ""},
	{`\brandom\(`, "random", ""},
	{`\bimages\.`, "images", "object.spec.containers"},
	{`\bexceptions\.`, "exceptions", "matchConditions"},
}

// convertCEL converts a MutatingPolicy: it renames the kind and adds a binding, and notes the
// differences.
func (r *Result) convertCEL() {
	p, s := r.Policy, r.Policy.CEL
	r.Rules = []Rule{{Name: p.Name, Verdict: Exact}}
	rule := &r.Rules[0]
	for _, m := range s.Mutations {
		rule.writes = append(rule.writes, writesInCEL(m)...)
		rule.Uses = append(rule.Uses, string(m.PatchType))
	}
	slices.Sort(rule.Uses)
	rule.Uses = slices.Compact(rule.Uses)
	rule.attempt(func() {
		pods := r.celUnit(rule)
		r.Units = append([]Unit{pods}, r.controllers(rule, pods)...)
	})
	for _, u := range r.Units {
		rule.Policies = append(rule.Policies, u.Name)
	}
}

func (r *Result) celUnit(rule *Rule) Unit {
	p, s := r.Policy, r.Policy.CEL
	on := func(name string, v *bool) bool {
		if v != nil && *v {
			rule.Uses = append(rule.Uses, name)
			return true
		}
		return false
	}
	if e := s.Evaluation; e != nil {
		if e.MutateExisting != nil && on("mutateExisting", e.MutateExisting.Enabled) {
			refuseFor(forExisting, "it mutates objects that exist already, which admission does not see")
		}
		if e.Admission != nil && e.Admission.Enabled != nil && !*e.Admission.Enabled {
			refuse("Kyverno does not run it for requests")
		}
		if e.Mode != "" && e.Mode != "Kubernetes" {
			refuse("evaluation.mode %s: it is about JSON that is no object of Kubernetes", e.Mode)
		}
	}
	if len(s.TargetMatchConstraints) > 0 || len(s.TargetMatchConditions) > 0 {
		refuse("targets, which admission does not see")
	}
	if len(s.AuditAnnotations) > 0 {
		refuse("auditAnnotations, which a MutatingAdmissionPolicy does not have")
	}
	if s.MatchConstraints == nil || len(s.MatchConstraints.ResourceRules) == 0 {
		refuse("a policy without matchConstraints")
	}
	if len(s.Mutations) == 0 {
		refuse("a policy without mutations")
	}
	conditions := slices.Clone(s.MatchConditions)
	for i, c := range conditions {
		conditions[i].Expression = inlined(c.Expression, s.Variables)
	}
	texts := s.Expressions()
	for _, l := range libraries {
		for _, t := range texts {
			if regexp.MustCompile(l.call).MatchString(t) {
				needs(l.instead, "the library %s of Kyverno", l.name)
			}
		}
	}
	name := p.Name
	if p.Namespace != "" {
		name = p.Namespace + "-" + name
	}
	fail := admissionregistrationv1.Fail
	if s.FailurePolicy != nil {
		fail = *s.FailurePolicy
	}
	reinvocation := admissionregistrationv1.NeverReinvocationPolicy
	if s.ReinvocationPolicy != nil && *s.ReinvocationPolicy != "" {
		reinvocation = *s.ReinvocationPolicy
	}
	mutations := joinedPatches(rule, s.Mutations)
	r.celDifferences(rule, texts, mutations)
	conditions, mutations = movedToMutations(nameConditions(conditions), mutations)
	spec := admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: s.MatchConstraints.DeepCopy(), MatchConditions: conditions, Variables: s.Variables, Mutations: mutations,
		FailurePolicy: &fail, ReinvocationPolicy: reinvocation,
	}
	spec = withoutLastLines(spec)
	u := Unit{
		Name: name, Rules: []string{p.Name}, Mutations: slices.Repeat([]string{p.Name}, len(mutations)),
		Policy: &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
		Binding: &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
		},
	}
	if p.Namespace != "" {
		u.Binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": p.Namespace}},
		}
	}
	return u
}

// withoutLastLines returns a spec whose expressions do not end with a line break, as those from a
// YAML block scalar do. A text with a final line break would be written as a quoted string
// instead of a block.
func withoutLastLines(from admissionregistrationv1.MutatingAdmissionPolicySpec) admissionregistrationv1.MutatingAdmissionPolicySpec {
	spec := *from.DeepCopy()
	trim := func(expression *string) { *expression = strings.TrimRight(*expression, " \t\r\n") }
	for i := range spec.MatchConditions {
		trim(&spec.MatchConditions[i].Expression)
	}
	for i := range spec.Variables {
		trim(&spec.Variables[i].Expression)
	}
	for _, m := range spec.Mutations {
		if m.ApplyConfiguration != nil {
			trim(&m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			trim(&m.JSONPatch.Expression)
		}
	}
	return spec
}

var (
	ofNamespace = regexp.MustCompile(`\bnamespaceObject\b`)
	ofOldObject = regexp.MustCompile(`\boldObject\b`)
	// objectsInValue matches a JSON patch whose value is a list or map with objects in it.
	objectsInValue = regexp.MustCompile(`\bvalue\s*:\s*[\[{][^\]}]*\bObject\b`)
)

// nameConditions replaces names of conditions that an API server refuses.
func nameConditions(conditions []admissionregistrationv1.MatchCondition) (named []admissionregistrationv1.MatchCondition) {
	for _, c := range conditions {
		name := c.Name
		if len(validation.IsQualifiedName(name)) > 0 {
			name = strings.Trim(notInNames.ReplaceAllString(name, "-"), "-_.")
			name = cmp.Or(strings.Trim(name[:min(len(name), 50)], "-_."), "condition")
		}
		named = celgen.AddCondition(named, name, c.Expression)
	}
	return named
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

var (
	// empties matches an empty map or list as the value of a JSON patch.
	empties = regexp.MustCompile(`\bvalue\s*:\s*(\{\s*\}|\[\s*\])`)
	// removals matches the path of a removal.
	removals = regexp.MustCompile(`\bop\s*:\s*["']remove["']\s*,\s*path\s*:\s*(?:["']([^"']*)["'])?`)
	// tests matches a test operation: if it fails, the whole patch has no effect.
	tests = regexp.MustCompile(`\bop\s*:\s*["']test["']`)
)

// emptied returns the fields that may be an empty list or map after a JSON patch; "" stands for
// any field.
func emptied(expression string) (names []string) {
	if empties.MatchString(expression) {
		names = append(names, "")
	}
	for _, m := range removals.FindAllStringSubmatch(expression, -1) {
		steps := strings.Split(m[1], "/")
		n := len(steps)
		switch {
		case n < 3:
			names = append(names, "")
		case steps[n-1] == "":
			names = append(names, steps[n-2]) // the last step is computed
		case strings.Trim(steps[n-1], "0123456789") == "" || slices.Contains([]string{"labels", "annotations", "nodeSelector", "matchLabels", "data", "limits", "requests"}, steps[n-2]):
			names = append(names, steps[n-2])
		}
	}
	return names
}

// joinedPatches joins two consecutive JSON patches into one if the first may leave an empty map
// or list and the second depends on it: an API server drops empty values between mutations. Where
// that is not possible, it notes a difference.
func joinedPatches(rule *Rule, mutations []admissionregistrationv1.Mutation) (out []admissionregistrationv1.Mutation) {
	const why = "a server drops an empty map or list between mutations"
	var open []string // fields that may be empty after the mutations so far
	for _, m := range mutations {
		text := ""
		if m.ApplyConfiguration != nil {
			text = m.ApplyConfiguration.Expression
		}
		if m.JSONPatch != nil {
			text = m.JSONPatch.Expression
		}
		uses := slices.ContainsFunc(open, func(name string) bool {
			quoted := regexp.QuoteMeta(name)
			asks := regexp.MustCompile(`\bhas\([^()]*\.` + quoted + `\)|\.\?` + quoted + `\b`) // handles a missing field itself
			return name == "" || regexp.MustCompile(`\b`+quoted+`\b`).MatchString(text) && !asks.MatchString(text)
		})
		var last *admissionregistrationv1.JSONPatch
		if len(out) > 0 {
			last = out[len(out)-1].JSONPatch
		}
		switch {
		case uses && (m.JSONPatch == nil || last == nil || ofObjects.MatchString(text) || tests.MatchString(last.Expression+text)):
			rule.note(Differs, effect{does: writes | refuses | denies}, why)
			out = append(out, m)
		case uses:
			joined := *out[len(out)-1].DeepCopy()
			joined.JSONPatch.Expression = formatted(celgen.Joined("+", celgen.BindSum, atom("("+last.Expression+")", ""), atom("("+text+")", "")))
			out[len(out)-1] = joined
		default:
			out = append(out, m)
		}
		if m.JSONPatch == nil {
			open = nil
		} else {
			open = append(open, emptied(text)...)
		}
	}
	return out
}

// movedToMutations moves the match conditions into the mutations if one of them uses
// namespaceObject, which match conditions of an API server cannot read. All of them move, because
// the error of one does not count if another one is false.
func movedToMutations(conditions []admissionregistrationv1.MatchCondition, mutations []admissionregistrationv1.Mutation) (stay []admissionregistrationv1.MatchCondition, changed []admissionregistrationv1.Mutation) {
	uses := func(pattern *regexp.Regexp) int {
		return slices.IndexFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool { return pattern.MatchString(c.Expression) })
	}
	if uses(ofNamespace) < 0 {
		return conditions, mutations
	}
	if i := uses(ofObjects); i >= 0 && len(mutations) > 1 {
		refuseFor("a policy for each mutation",
			"a match condition uses namespaceObject, so mutations have to ask all conditions, and %s uses the object, which the mutations before change", conditions[i].Name)
	}
	guard := yes
	for _, c := range conditions {
		guard = all(guard, atom("("+c.Expression+")", "bool"))
	}
	for _, m := range mutations {
		m = *m.DeepCopy()
		if m.ApplyConfiguration != nil {
			m.ApplyConfiguration.Expression = formatted(when(guard, atom("("+m.ApplyConfiguration.Expression+")", ""), atom("Object{}", "")))
		}
		if m.JSONPatch != nil {
			m.JSONPatch.Expression = formatted(when(guard, atom("("+m.JSONPatch.Expression+")", ""), list()))
		}
		changed = append(changed, m)
	}
	return nil, changed
}

// celDifferences notes where Kyverno does not do what an API server does with the same policy.
func (r *Result) celDifferences(rule *Rule, texts []string, mutations []admissionregistrationv1.Mutation) {
	s := r.Policy.CEL
	creates, named := false, false
	for _, m := range s.MatchConstraints.ResourceRules {
		creates = creates || slices.Contains(m.Operations, admissionregistrationv1.Create) || slices.Contains(m.Operations, admissionregistrationv1.OperationAll)
		named = named || len(m.ResourceNames) > 0
	}
	if creates && slices.ContainsFunc(texts, ofOldObject.MatchString) {
		rule.note(Differs, effect{does: writes | refuses | denies, of: func(d *difference) bool { return d.operation == "CREATE" }}, "oldObject is null when an object is created; in Kyverno it is {}")
	}
	if named {
		rule.note(Differs, effect{does: idles | refuses, of: hasGenerateName}, "in Kyverno, resourceNames are also beginnings of generateName")
	}
	if len(mutations) > 1 && slices.ContainsFunc(s.Variables, func(v admissionregistrationv1.Variable) bool {
		return slices.ContainsFunc(mutations[:len(mutations)-1], func(m admissionregistrationv1.Mutation) bool { return mayChange(m, v.Expression) })
	}) {
		rule.note(Differs, effect{does: writes | refuses | denies}, "Kyverno evaluates a variable once; a server does so for each mutation, on what the one before made")
	}
	if s.FailurePolicy != nil && *s.FailurePolicy == admissionregistrationv1.Ignore && len(mutations) > 1 {
		rule.note(Differs, kyvernoUndoes, "after an error Kyverno undoes all mutations of the policy, with failurePolicy: Ignore; the policy keeps the others")
	}
	for _, m := range s.Mutations {
		if m.JSONPatch != nil && objectsInValue.MatchString(m.JSONPatch.Expression) {
			rule.note(Better, effect{does: refuses, of: panics}, "Kyverno panics at Object{…} in a list or map that is the value of a JSON patch")
		}
	}
}

var (
	fieldOf = regexp.MustCompile(`[.?]\??([A-Za-z_]\w*)`)
	// everywhere are names that occur in expressions whatever field they read.
	everywhere = []string{"spec", "metadata", "template", "jobTemplate", "orValue", "optMap", "map", "filter", "exists", "all", "size", "hasValue", "value"}
)

// mayChange reports whether a mutation may change a field that an expression reads: whether it
// contains the name of one of the fields.
func mayChange(m admissionregistrationv1.Mutation, expression string) bool {
	if !ofObjects.MatchString(expression) {
		return false
	}
	text := ""
	if m.ApplyConfiguration != nil {
		text = m.ApplyConfiguration.Expression
	}
	if m.JSONPatch != nil {
		text = m.JSONPatch.Expression
	}
	known := false
	for _, f := range fieldOf.FindAllStringSubmatch(expression, -1) {
		if slices.Contains(everywhere, f[1]) {
			continue
		}
		if known = true; regexp.MustCompile(`\b` + f[1] + `\b`).MatchString(text) {
			return true
		}
	}
	return !known
}

var ofVariables = regexp.MustCompile(`\bvariables\.([A-Za-z_][A-Za-z0-9_]*)`)

// inlined returns a match condition in which variables are replaced by their expressions, because
// match conditions of an API server cannot use variables.
func inlined(expression string, variables []admissionregistrationv1.Variable) string {
	if !ofVariables.MatchString(expression) {
		return expression
	}
	// A variable may use those before it, so the last variable is replaced first.
	for _, v := range slices.Backward(variables) {
		expression = ofVariables.ReplaceAllStringFunc(expression, func(use string) string {
			if use == "variables."+v.Name {
				return "(" + v.Expression + ")"
			}
			return use
		})
		if len(expression) > maxCEL {
			refuse("match conditions whose variables make an expression of more than %d bytes", maxCEL)
		}
	}
	if ofVariables.MatchString(expression) {
		refuse("a match condition uses the variable %s, which is not there", ofVariables.FindString(expression))
	}
	return formatted(atom(expression, "bool"))
}
