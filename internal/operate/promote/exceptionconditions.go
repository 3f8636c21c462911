package promote

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
)

// Excepted is the replacement for the exceptions from a policy in an API server, which knows no
// exceptions.
type Excepted struct {
	// Conditions are matchConditions that have the effect of the exceptions.
	Conditions []admissionregistrationv1.MatchCondition
	// Unsaid describes exceptions that no condition can express, with the reason. The policy
	// cannot be moved while they are in force.
	Unsaid []string
}

// exceptionCondition begins the names of the conditions that stand for exceptions.
const exceptionCondition = "mapd-exception-"

// exceptionsFrom reads the exceptions that hold for a policy now or later; bindings are the names
// of the policy's bindings.
func (p *Promoter) exceptionsFrom(ctx context.Context, policy string, bindings []string) (out Excepted, err error) {
	list, err := p.Dynamic.Resource(api.Exceptions).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return out, nil // a cluster without the kind
	}
	if err != nil {
		return out, err
	}
	return excepted(list.Items, policy, bindings, api.ExceptionRules{Own: p.Namespace, Endless: true}, time.Now()), nil
}

func excepted(list []unstructured.Unstructured, policy string, bindings []string, rules api.ExceptionRules, now time.Time) (out Excepted) {
	for i := range list {
		text, err := api.JSON(&list[i])
		if err != nil {
			continue
		}
		obj, err := api.DecodeException(text, list[i].GetNamespace())
		if err != nil || !slices.Contains(obj.Spec.Policies, policy) {
			continue // mapd does not apply what it cannot decode
		}
		x, err := binding.CompileException(obj, rules)
		if _, notAllowed := obj.Allowed(); err != nil || notAllowed != nil || x.Ended(now) {
			continue
		}
		said, why := condition(x, bindings, now)
		if why != "" {
			out.Unsaid = append(out.Unsaid, fmt.Sprintf("%s: %s", x, why))
			continue
		}
		out.Conditions = append(out.Conditions, admissionregistrationv1.MatchCondition{Name: exceptionCondition + strconv.Itoa(len(out.Conditions)+1), Expression: said})
	}
	return out
}

// condition returns an expression that is false for the requests of an exception, or the reason
// why there is none. The expression never fails.
func condition(x *binding.Exception, bindings []string, now time.Time) (text, why string) {
	spec := &x.Object().Spec
	request := celgen.Ident("request")
	named := func(field string, values []string) celgen.Expr {
		return celgen.All(celgen.Has(request, field), celgen.Among(celgen.Field(request, field), values))
	}
	var all []celgen.Expr
	if _, until := x.Times(); !until.IsZero() {
		return "", "it ends, and expressions of a server know no time; move the policy when it has ended, or delete it"
	}
	if !x.Begun(now) {
		return "", "it has not begun, and expressions of a server know no time"
	}
	if len(spec.Bindings) > 0 && slices.ContainsFunc(bindings, func(b string) bool { return !slices.Contains(spec.Bindings, b) }) {
		return "", "it is for some bindings of the policy, and conditions are for all"
	}
	resource := celgen.Field(request, "requestResource")
	if !x.Whole() {
		namespaces := celgen.All(celgen.Equal(celgen.Field(resource, "group"), celgen.Constant("")), celgen.Equal(celgen.Field(resource, "resource"), celgen.Constant("namespaces")))
		all = append(all, named("namespace", []string{x.Object().Namespace}), celgen.Not(namespaces))
	} else if len(spec.Namespaces) > 0 {
		all = append(all, named("namespace", spec.Namespaces))
	}
	if len(spec.Names) > 0 {
		all = append(all, named("name", spec.Names))
	}
	if m := spec.Match; m != nil {
		if !api.SelectsAll(m.NamespaceSelector) {
			return "", "it selects namespaces by labels; name them"
		}
		if len(m.ExcludeResourceRules) > 0 {
			return "", "it has excludeResourceRules"
		}
		if s := m.ObjectSelector; !api.SelectsAll(s) {
			var either []celgen.Expr
			for _, name := range []string{"object", "oldObject"} {
				o := celgen.Ident(name)
				either = append(either, celgen.All(append([]celgen.Expr{celgen.Relation("!=", o, celgen.Ident("null")), celgen.Has(o, "metadata")}, requirements(o, s)...)...))
			}
			all = append(all, celgen.AnyOf(either...))
		}
		var rules []celgen.Expr
		for i := range m.ResourceRules {
			r := &m.ResourceRules[i]
			rule, why := ruleCondition(r, m.MatchPolicy, request, resource)
			if why != "" {
				return "", fmt.Sprintf("spec.match.resourceRules[%d]: %s", i, why)
			}
			if len(r.ResourceNames) > 0 {
				rule = append(rule, named("name", r.ResourceNames))
			}
			rules = append(rules, celgen.All(rule...))
		}
		if len(rules) > 0 {
			all = append(all, celgen.AnyOf(rules...))
		}
	}
	return celgen.Not(celgen.All(all...)).Text, ""
}

// requirements returns the expressions of a label selector for the labels of the object o.
func requirements(o celgen.Expr, s *metav1.LabelSelector) (out []celgen.Expr) {
	label := func(key string) celgen.Expr {
		return celgen.OptionalItem(celgen.Optional(celgen.Field(o, "metadata"), "labels"), celgen.Constant(key))
	}
	has := func(key string) celgen.Expr { return celgen.Call(label(key), "hasValue") }
	among := func(key string, values []string) celgen.Expr {
		return celgen.All(has(key), celgen.Among(celgen.Call(label(key), "value"), values))
	}
	for _, r := range api.Requirements(s) {
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			out = append(out, among(r.Key, r.Values))
		case metav1.LabelSelectorOpNotIn:
			out = append(out, celgen.Not(among(r.Key, r.Values)))
		case metav1.LabelSelectorOpExists:
			out = append(out, has(r.Key))
		case metav1.LabelSelectorOpDoesNotExist:
			out = append(out, celgen.Not(has(r.Key)))
		}
	}
	return out
}

// ruleCondition returns the expressions for a rule, apart from its resourceNames.
func ruleCondition(r *admissionregistrationv1.NamedRuleWithOperations, match *admissionregistrationv1.MatchPolicyType, request, resource celgen.Expr) (out []celgen.Expr, why string) {
	among := func(e celgen.Expr, values []string) {
		if !slices.Contains(values, "*") {
			out = append(out, celgen.Among(e, values))
		}
	}
	if r.Scope != nil && *r.Scope != admissionregistrationv1.AllScopes {
		return nil, "it has a scope"
	}
	among(celgen.Field(resource, "group"), r.APIGroups)
	if match != nil && *match == admissionregistrationv1.Exact {
		among(celgen.Field(resource, "version"), r.APIVersions)
	}
	var operations []string
	for _, op := range r.Operations {
		operations = append(operations, string(op))
	}
	among(celgen.Field(request, "operation"), operations)
	var resources []celgen.Expr
	for _, name := range r.Resources {
		name, sub, _ := strings.Cut(name, "/")
		if name == "*" || sub == "*" || name == "events" { // events are of two groups
			return nil, "it names " + strings.Join(r.Resources, ", ") + ", and only resources by name can be said"
		}
		subresource := celgen.Not(celgen.Has(request, "requestSubResource"))
		if sub != "" {
			subresource = celgen.All(celgen.Has(request, "requestSubResource"), celgen.Equal(celgen.Field(request, "requestSubResource"), celgen.Constant(sub)))
		}
		resources = append(resources, celgen.All(celgen.Equal(celgen.Field(resource, "resource"), celgen.Constant(name)), subresource))
	}
	return append(out, celgen.AnyOf(resources...)), ""
}

// withConditions adds matchConditions to a policy.
func withConditions(u *unstructured.Unstructured, more []admissionregistrationv1.MatchCondition) {
	if len(more) == 0 {
		return
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "matchConditions")
	for _, c := range more {
		list = append(list, map[string]any{"name": c.Name, "expression": c.Expression})
	}
	_ = unstructured.SetNestedSlice(u.Object, list, "spec", "matchConditions") // the spec is a map
}

// withoutConditions removes the matchConditions with these names from a policy.
func withoutConditions(u *unstructured.Unstructured, names []string) {
	if len(names) == 0 {
		return
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "matchConditions")
	list = slices.DeleteFunc(list, func(c any) bool {
		m, _ := c.(map[string]any)
		name, _ := m["name"].(string)
		return slices.Contains(names, name)
	})
	if len(list) == 0 {
		unstructured.RemoveNestedField(u.Object, "spec", "matchConditions")
		return
	}
	_ = unstructured.SetNestedSlice(u.Object, list, "spec", "matchConditions")
}
