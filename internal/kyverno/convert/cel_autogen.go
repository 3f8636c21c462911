package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// celControllers maps the controllers' resources for which Kyverno generates policies from a
// MutatingPolicy for Pods to their groups. In CronJobs the Pod template is deeper than in the
// others.
var celControllers = map[string]string{
	"daemonsets": "apps", "deployments": "apps", "replicasets": "apps", "statefulsets": "apps", "jobs": "batch", "cronjobs": "batch",
}

// celAutogen returns the resources for which Kyverno generates policies from a MutatingPolicy:
// all of celControllers, if the policy is about Pods alone and does not name others itself.
func celAutogen(s *policy.CELSpec) []string {
	m := s.MatchConstraints
	if m == nil || !api.SelectsAll(m.ObjectSelector) ||
		len(m.ExcludeResourceRules) > 0 || len(m.ResourceRules) != 1 {
		return nil
	}
	r := m.ResourceRules[0]
	if len(r.ResourceNames) > 0 || !slices.Equal(r.APIGroups, []string{""}) || !slices.Equal(r.APIVersions, []string{"v1"}) || !slices.Equal(r.Resources, []string{"pods"}) {
		return nil
	}
	named := sortedKeys(celControllers)
	if a := s.Autogen; a != nil && a.PodControllers != nil && a.PodControllers.Controllers != nil {
		named = slices.Sorted(slices.Values(a.PodControllers.Controllers))
	}
	return slices.Compact(named)
}

// controllers returns the policies that Kyverno generates for Pod controllers from a policy for
// Pods.
func (r *Result) controllers(rule *Rule, pods Unit) (out []Unit) {
	names := celAutogen(r.Policy.CEL)
	if len(names) == 0 {
		return nil
	}
	rule.Uses = append(rule.Uses, "autogen")
	r.autogenDefects(rule)
	var others, crons []string
	for _, n := range names {
		if celControllers[n] == "" {
			refuseFor("write a policy for them", "autogen for %s: Kyverno looks for the template of Pods in them", n)
		}
		switch n {
		case "replicasets": // excluded, see filtered
		case "cronjobs":
			crons = append(crons, n)
		default:
			others = append(others, n)
		}
	}
	for _, f := range []struct {
		suffix    string
		resources []string
		path      []string
	}{{"controllers", others, []string{"spec", "template"}}, {"cronjobs", crons, []string{"spec", "jobTemplate", "spec", "template"}}} {
		if len(f.resources) == 0 {
			continue
		}
		u := Unit{Name: pods.Name + "-" + f.suffix, Rules: pods.Rules, Policy: pods.Policy.DeepCopy(), Binding: pods.Binding.DeepCopy()}
		u.Policy.Name, u.Binding.Name, u.Binding.Spec.PolicyName = u.Name, u.Name, u.Name
		spec := &u.Policy.Spec
		operations := spec.MatchConstraints.ResourceRules[0].Operations
		spec.MatchConstraints = &admissionregistrationv1.MatchResources{NamespaceSelector: spec.MatchConstraints.NamespaceSelector}
		for _, resource := range f.resources {
			addRule(spec.MatchConstraints, celControllers[resource], resource, operations)
		}
		move := func(text *string, configures bool) {
			moved, err := (&syntax.Relocation{Path: f.path, Old: true, Field: inTemplate, Pointer: pointsIntoTemplate}).Relocate(*text, configures)
			if err != nil {
				refuseFor("say spec.autogen.podControllers.controllers: [], and write a policy for the controllers", "autogen: %v", err)
			}
			*text = formatted(atom(moved, ""))
		}
		for i := range spec.MatchConditions {
			move(&spec.MatchConditions[i].Expression, false)
		}
		for i := range spec.Variables {
			move(&spec.Variables[i].Expression, false)
		}
		for _, m := range spec.Mutations {
			if m.ApplyConfiguration != nil {
				move(&m.ApplyConfiguration.Expression, true)
			}
			if m.JSONPatch != nil {
				move(&m.JSONPatch.Expression, false)
			}
		}
		out = append(out, u)
	}
	return out
}

// addRule adds a resource of version v1 to the rules, in the rule of its group if there is one.
func addRule(m *admissionregistrationv1.MatchResources, group, resource string, operations []admissionregistrationv1.OperationType) {
	for i := range m.ResourceRules {
		if r := &m.ResourceRules[i].Rule; r.APIGroups[0] == group {
			r.Resources = append(r.Resources, resource)
			return
		}
	}
	m.ResourceRules = append(m.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
	}})
}

// inTemplate implements syntax.Relocation.Field: it decides which fields Kyverno reads in the Pod
// template, and which in the controller itself.
func inTemplate(variable string, path []string) (syntax.Moved, error) {
	if variable == "request" || len(path) == 0 && variable != "Object" {
		return syntax.Moved{Stays: true}, nil
	}
	if variable == "Object" || path[0] == "spec" || path[0] == "metadata" && len(path) > 1 && (path[1] == "labels" || path[1] == "annotations") {
		return syntax.Moved{}, nil
	}
	return syntax.Moved{Stays: true}, nil
}

// pointsIntoTemplate implements syntax.Relocation.Pointer: it accepts a JSON pointer if
// inTemplate would look for the field in the template. It also accepts "/", which occurs in
// operations that the expression filters out afterwards.
func pointsIntoTemplate(pointer string, whole bool) error {
	if pointer == "/" && whole {
		return nil
	}
	for _, field := range []string{"/spec", "/metadata/labels", "/metadata/annotations"} {
		if rest, ok := strings.CutPrefix(pointer, field); ok && (rest == "" || rest[0] == '/') {
			return nil
		}
	}
	return fmt.Errorf("%s is no field that Kyverno looks for in a template", pointer)
}

var (
	ofObjects  = regexp.MustCompile(`\b(object|oldObject)\b`)
	notRead    = regexp.MustCompile(`\b(object|oldObject)(\.metadata)?(\.\?|\[)`)
	metadataOf = regexp.MustCompile(`\bObject\.metadata\s*\{`)
)

// autogenDefects notes where the policies that Kyverno generates for controllers are not what is
// meant: Kyverno replaces text in conditions and apply configurations, and nowhere else.
func (r *Result) autogenDefects(rule *Rule) {
	s := r.Policy.CEL
	for _, v := range s.Variables {
		if ofObjects.MatchString(v.Expression) {
			rule.note(Better, effect{does: writes | refuses | denies, of: forControllers}, "Kyverno's autogen leaves variables as they are: those of the policies for controllers read the Pod's fields, which are not there")
		}
	}
	texts := make([]string, 0, len(s.MatchConditions)+len(s.Mutations))
	for _, c := range s.MatchConditions {
		texts = append(texts, c.Expression)
	}
	for _, m := range s.Mutations {
		if m.ApplyConfiguration != nil {
			texts = append(texts, m.ApplyConfiguration.Expression)
		}
	}
	if slices.ContainsFunc(texts, notRead.MatchString) {
		rule.note(Better, effect{does: writes | refuses | denies, of: forControllers}, "Kyverno's autogen leaves object.?spec, object.metadata.?labels and object[…] as they are: its policies for controllers read the controller's")
	}
	for _, m := range s.Mutations {
		unmoved := effect{does: writes | refuses, at: writesInCEL(m), of: forControllers}
		switch {
		case m.JSONPatch != nil:
			unmoved.does, unmoved.says = unmoved.does|denies, "JSON Patch"
			rule.note(Better, unmoved, "Kyverno's autogen leaves JSON patches as they are: those of the policies for controllers have the Pod's paths")
		case m.ApplyConfiguration == nil:
		case metadataOf.MatchString(m.ApplyConfiguration.Expression):
			rule.note(Better, unmoved, "Kyverno's autogen leaves Object.metadata{…} as it is: its policies for controllers have a type there that does not fit")
		case !strings.HasPrefix(strings.TrimSpace(m.ApplyConfiguration.Expression), "Object"):
			rule.note(Better, unmoved, "Kyverno's autogen only rewrites an expression that begins with Object{…}")
		}
	}
}
