// Package rewrite answers one question: which policies do to the templates of workloads what a
// policy does to Pods?
//
// The rules match workloads instead of Pods, and every expression is changed in its syntax tree:
// object.spec becomes object.spec.template.spec, and so do the paths of JSON patches and the
// types of apply configurations. CronJobs have their template deeper, so they get a separate
// policy. Expressions that have no meaning for a template, such as the name of a Pod, are refused
// with their place. Verify compares the policies on generated workloads. Start reading at Policy.
package rewrite

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// form is one of the two policies to which a policy for Pods is rewritten.
type form struct {
	suffix string
	path   []string // to the Pod's template
	rules  []any
}

var forms = []form{
	{"-workloads", []string{"spec", "template"}, []any{
		rule("apps", []any{"CREATE", "UPDATE"}, "deployments", "statefulsets", "daemonsets"),
		// The template of a Job cannot be changed later, not even by a policy.
		rule("batch", []any{"CREATE"}, "jobs"),
	}},
	{"-cronjobs", []string{"spec", "jobTemplate", "spec", "template"}, []any{
		rule("batch", []any{"CREATE", "UPDATE"}, "cronjobs"),
	}},
}

func rule(group string, operations []any, resources ...any) any {
	return map[string]any{"apiGroups": []any{group}, "apiVersions": []any{"v1"}, "operations": operations, "resources": resources}
}

// Policy returns policies that do to templates of workloads what p does to Pods. p must be valid,
// and is not modified. Errors are api.Faults. notes describe effects of p that the new policies
// do not have.
func Policy(p *unstructured.Unstructured) (out []*unstructured.Unstructured, notes []string, err error) {
	notes, faults := checkMatch(p, field.NewPath("spec", "matchConstraints"), "spec", "matchConstraints")
	for i, f := range forms {
		u := p.DeepCopy()
		rename(u, f.suffix)
		wrong := f.expressions(u)
		f.selectLabels(u)
		set(u, f.rules, "spec", "matchConstraints")
		if i == 0 { // the other forms have the same
			faults = append(faults, wrong...)
		}
		out = append(out, u)
	}
	if len(faults) > 0 {
		return nil, nil, faults
	}
	return out, notes, nil
}

// Binding returns the bindings of the policies that Policy returns.
func Binding(b *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if _, restricts, _ := unstructured.NestedMap(b.Object, "spec", "matchResources"); restricts {
		if _, faults := checkMatch(b, field.NewPath("spec", "matchResources"), "spec", "matchResources"); len(faults) > 0 {
			return nil, faults
		}
	}
	var out []*unstructured.Unstructured
	for _, f := range forms {
		u := b.DeepCopy()
		rename(u, f.suffix)
		policy, _, _ := unstructured.NestedString(u.Object, "spec", "policyName")
		_ = unstructured.SetNestedField(u.Object, policy+f.suffix, "spec", "policyName")
		// The excluded rules are not about Pods, and might exclude workloads.
		unstructured.RemoveNestedField(u.Object, "spec", "matchResources", "excludeResourceRules")
		if rules, _, _ := unstructured.NestedSlice(u.Object, "spec", "matchResources", "resourceRules"); len(rules) > 0 {
			set(u, f.rules, "spec", "matchResources")
		}
		out = append(out, u)
	}
	return out, nil
}

// rename names a copy, and removes metadata that belongs to the original object.
func rename(u *unstructured.Unstructured, suffix string) {
	name := u.GetName() + suffix
	meta := map[string]any{"name": name}
	for _, kept := range []string{"labels", "annotations"} {
		if v, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", kept); ok {
			meta[kept] = v
		}
	}
	u.Object["metadata"] = meta
	delete(u.Object, "status")
}

// set sets the rules of a match block at a path.
func set(u *unstructured.Unstructured, rules []any, path ...string) {
	match, _, _ := unstructured.NestedMap(u.Object, path...)
	delete(match, "excludeResourceRules")
	delete(match, "objectSelector")
	match["resourceRules"] = rules
	_ = unstructured.SetNestedMap(u.Object, match, path...)
}

// checkMatch reports conditions of a match block about Pods that cannot be expressed for
// workloads.
func checkMatch(u *unstructured.Unstructured, at *field.Path, path ...string) (notes []string, faults api.Faults) {
	match, _, _ := unstructured.NestedMap(u.Object, path...)
	list := func(name string) []any { l, _ := match[name].([]any); return l }
	refuse := func(at *field.Path, text string) { faults = append(faults, fault(at, text)) }
	if selector, _ := match["objectSelector"].(map[string]any); len(selector) > 0 && at.String() != "spec.matchConstraints" {
		refuse(at.Child("objectSelector"), "selects the labels of Pods, and a rule cannot select the labels of a template; move it to the policy")
	}
	creates := len(list("resourceRules")) == 0 && at.String() != "spec.matchConstraints"
	for i, r := range list("resourceRules") {
		r, _ := r.(map[string]any)
		switch pods, created := aboutPods(r); {
		case pods && created:
			creates = true
			if names, _ := r["resourceNames"].([]any); len(names) > 0 {
				refuse(at.Child("resourceRules").Index(i).Child("resourceNames"), "names Pods, and a controller generates the names of the Pods that it creates")
			}
			if said := words(r["operations"]); slices.ContainsFunc(said, func(op string) bool { return op != "CREATE" }) {
				notes = append(notes, fmt.Sprintf("%s: what it does to Pods other than when they are created stays behind", u.GetName()))
			}
			if said := words(r["resources"]); slices.ContainsFunc(said, func(res string) bool { return res != "pods" }) {
				notes = append(notes, fmt.Sprintf("%s: what it does to other resources than pods stays behind", u.GetName()))
			}
		default:
			notes = append(notes, fmt.Sprintf("%s: %s is not about the creation of Pods and stays behind", u.GetName(), at.Child("resourceRules").Index(i)))
		}
	}
	if !creates {
		refuse(at.Child("resourceRules"), "none of the rules is about the creation of Pods, so there is nothing to rewrite")
	}
	for i, r := range list("excludeResourceRules") {
		r, _ := r.(map[string]any)
		if pods, created := aboutPods(r); pods && created {
			refuse(at.Child("excludeResourceRules").Index(i), "excludes Pods")
		}
	}
	return notes, faults
}

// aboutPods reports whether a rule is about Pods, and about their creation.
func aboutPods(r map[string]any) (pods, created bool) {
	has := func(name string, values ...string) bool {
		return slices.ContainsFunc(words(r[name]), func(s string) bool { return slices.Contains(values, s) })
	}
	pods = has("apiGroups", "", "*") && has("apiVersions", "v1", "*") && has("resources", "pods", "*", "*/*") && r["scope"] != "Cluster"
	return pods, has("operations", "CREATE", "*")
}

func words(v any) (out []string) {
	list, _ := v.([]any)
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func fault(at *field.Path, text string) *api.Fault {
	return &api.Fault{Phase: api.Compiling, Path: at.String(), Err: errors.New("cannot be rewritten: " + text)}
}

// expressions rewrites all expressions of a policy in place.
func (f form) expressions(u *unstructured.Unstructured) (faults api.Faults) {
	r := &syntax.Relocation{Path: f.path, Field: moved, Pointer: pointer}
	spec, _ := u.Object["spec"].(map[string]any)
	change := func(part api.Part, index int, at *field.Path, holder map[string]any, configures bool) {
		text, ok := holder["expression"].(string)
		if !ok {
			return
		}
		out, err := r.Relocate(text, configures)
		if err != nil {
			f := api.NewFault(api.Compiling, at.Child("expression"), text, fmt.Errorf("cannot be rewritten: %w", err))
			f.Part, f.Index = part, index
			faults = append(faults, f)
			return
		}
		holder["expression"] = out
	}
	for _, part := range []api.Part{api.MatchConditions, api.Variables, api.Mutations} {
		list, _ := spec[string(part)].([]any)
		for i, e := range list {
			e, _ := e.(map[string]any)
			at := field.NewPath("spec", string(part)).Index(i)
			if part != api.Mutations {
				change(part, i, at, e, false)
				continue
			}
			for _, kind := range []string{"jsonPatch", "applyConfiguration"} {
				if holder, ok := e[kind].(map[string]any); ok {
					change(part, i, at.Child(kind), holder, kind == "applyConfiguration")
				}
			}
		}
	}
	return faults
}

// selectLabels converts the objectSelector of a policy to match conditions, because the selector
// would be applied to the workload's labels.
func (f form) selectLabels(u *unstructured.Unstructured) {
	selector, _, _ := unstructured.NestedMap(u.Object, "spec", "matchConstraints", "objectSelector")
	spec, _ := u.Object["spec"].(map[string]any)
	conditions, _ := spec["matchConditions"].([]any)
	taken := map[any]bool{}
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		taken[c["name"]] = true
	}
	before, number := len(conditions), 0
	add := func(format string, args ...any) {
		name := ""
		for name == "" || taken[name] {
			number++
			name = fmt.Sprintf("pod-labels-%d", number)
		}
		conditions = append(conditions, map[string]any{"name": name, "expression": fmt.Sprintf(format, args...)})
	}
	label := func(key any) string {
		return fmt.Sprintf("object.%s.?metadata.?labels[?%q]", strings.Join(f.path, "."), key)
	}
	labels, _ := selector["matchLabels"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		add("%s == optional.of(%q)", label(key), labels[key])
	}
	requirements, _ := selector["matchExpressions"].([]any)
	for _, r := range requirements {
		r, _ := r.(map[string]any)
		var values []string
		for _, v := range words(r["values"]) {
			values = append(values, fmt.Sprintf("optional.of(%q)", v))
		}
		switch list := "[" + strings.Join(values, ", ") + "]"; r["operator"] {
		case "In":
			add("%s in %s", label(r["key"]), list)
		case "NotIn":
			add("!(%s in %s)", label(r["key"]), list)
		case "Exists":
			add("%s.hasValue()", label(r["key"]))
		case "DoesNotExist":
			add("!%s.hasValue()", label(r["key"]))
		}
	}
	if len(conditions) > before {
		spec["matchConditions"] = conditions
	}
}

// inTemplate are the fields of a Pod's metadata that a template has as well, and that
// mean the same there.
var inTemplate = []string{"labels", "annotations", "finalizers"}

// moved implements syntax.Relocation.Field: it returns where a template has a field of its Pods,
// or the reason why it has none.
func moved(variable string, path []string) (syntax.Moved, error) {
	said := strings.Join(append([]string{variable}, path...), ".")
	refuse := func(format string, args ...any) (syntax.Moved, error) {
		return syntax.Moved{}, fmt.Errorf(format, args...)
	}
	value := func(s string) (syntax.Moved, error) { return syntax.Moved{Value: &s}, nil }
	switch variable {
	case "authorizer":
		return refuse("authorizer asks about the user who creates a Pod; that is a controller, and somebody else writes workloads")
	case "request":
		return movedRequest(said, path)
	}
	if len(path) == 0 {
		return refuse("%s as a whole is a Pod, and a template has only some of its fields", said)
	}
	switch path[0] {
	case "spec":
		return syntax.Moved{}, nil
	case "kind", "apiVersion":
		if variable == "object" && len(path) == 1 {
			return value(map[string]string{"kind": "Pod", "apiVersion": "v1"}[path[0]])
		}
	case "metadata":
		switch {
		case len(path) == 1 && variable == "Object":
			return syntax.Moved{}, nil // called again for its fields
		case len(path) == 1:
			return refuse("%s as a whole has fields that a template lacks", said)
		case slices.Contains(inTemplate, path[1]):
			return syntax.Moved{}, nil
		case path[1] == "namespace" && variable == "object":
			return syntax.Moved{Stays: true}, nil
		case path[1] == "name" || path[1] == "generateName":
			return refuse("%s is not known: a controller generates the names of Pods", said)
		}
		return refuse("%s is not known before a controller creates the Pod", said)
	case "status":
		return refuse("a template has no status")
	}
	return refuse("%s is no field of a Pod's template", said)
}

func movedRequest(said string, path []string) (syntax.Moved, error) {
	value := func(s string) (syntax.Moved, error) { return syntax.Moved{Value: &s}, nil }
	switch strings.Join(path, ".") {
	case "operation":
		return value("CREATE")
	case "namespace", "dryRun":
		return syntax.Moved{Stays: true}, nil
	case "kind.group", "requestKind.group", "resource.group", "requestResource.group":
		return value("")
	case "kind.version", "requestKind.version", "resource.version", "requestResource.version":
		return value("v1")
	case "kind.kind", "requestKind.kind":
		return value("Pod")
	case "resource.resource", "requestResource.resource":
		return value("pods")
	case "name":
		return syntax.Moved{}, fmt.Errorf("%s is not known: a controller generates the names of Pods", said)
	}
	if len(path) > 0 && path[0] == "userInfo" {
		return syntax.Moved{}, fmt.Errorf("%s is the controller that creates a Pod, and somebody else writes workloads", said)
	}
	return syntax.Moved{}, fmt.Errorf("%s is about the request that creates a Pod", said)
}

// pointer implements syntax.Relocation.Pointer.
func pointer(p string, whole bool) error {
	steps := strings.Split(p, "/")[min(1, len(p)):]
	if !whole && len(steps) > 0 {
		steps = steps[:len(steps)-1] // the last step may be incomplete
	}
	switch {
	case p == "":
		return errors.New("the path leads to the whole Pod, and a template has only some of its fields")
	case len(steps) == 0, steps[0] == "spec":
		return nil
	case steps[0] != "metadata":
		return fmt.Errorf("a Pod's template has no %s", steps[0])
	case len(steps) == 1 && !whole:
		return nil // computed, so only Verify shows whether it is right
	case len(steps) == 1:
		return errors.New("the path leads to all metadata, of which a template has labels, annotations and finalizers only")
	case !slices.Contains(inTemplate, steps[1]):
		return fmt.Errorf("a template's metadata.%s has no effect on its Pods", steps[1])
	}
	return nil
}
