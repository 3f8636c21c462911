package kyverno

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/kyverno/convert"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// matches is the name of the variable for the match conditions of a MutatingPolicy.
const matches = "kyverno_matches"

// celReference returns the reference for a MutatingPolicy: the policy as it was written. Its
// variables stay, and its conditions, which may use them, are evaluated in each mutation. For a
// Pod controller, the reference is what the policy does to the Pod of the template, because that
// is the purpose of Kyverno's autogen.
func celReference(r *convert.Result, types *openapi.Types) (verify.Reference, error) {
	s := r.Policy.CEL
	original, binding := r.Units[0].Policy.DeepCopy(), r.Units[0].Binding
	conditions := []string{"true"}
	for _, c := range s.MatchConditions {
		conditions = append(conditions, "("+c.Expression+")")
	}
	original.Spec.MatchConditions = nil
	original.Spec.Variables = append(slices.Clone(s.Variables), admissionregistrationv1.Variable{Name: matches, Expression: strings.Join(conditions, " && ")})
	for i := range original.Spec.Mutations {
		if m := &original.Spec.Mutations[i]; m.JSONPatch != nil {
			m.JSONPatch.Expression = fmt.Sprintf("variables.%s ? (%s) : []", matches, m.JSONPatch.Expression)
		} else if m.ApplyConfiguration != nil {
			m.ApplyConfiguration.Expression = fmt.Sprintf("variables.%s ? (%s) : Object{}", matches, m.ApplyConfiguration.Expression)
		}
	}
	run, err := verify.PolicyReference(types, []verify.Written{{Policy: original, Binding: binding}})
	if err != nil {
		return nil, err
	}
	own := kindsOf(&convert.Result{Units: r.Units[:1]}, types)
	controllers := kindsOf(&convert.Result{Units: r.Units[1:]}, types)
	return func(ctx context.Context, q verify.Request) (verify.Result, error) {
		u := &unstructured.Unstructured{Object: q.Object}
		at := templateOf(u.GroupVersionKind())
		if slices.Contains(own, u.GroupVersionKind()) || !slices.Contains(controllers, u.GroupVersionKind()) || at == nil {
			return run(ctx, q)
		}
		pod, ok := podOf(q.Object, at)
		if !ok {
			return verify.Result{Object: q.Object}, nil
		}
		inner := q
		inner.Object = pod
		if q.Old != nil {
			if inner.Old, ok = podOf(q.Old, at); !ok {
				inner.Old = pod
			}
		}
		out, err := run(ctx, inner)
		if err != nil || out.Refused != "" {
			return out, err
		}
		return verify.Result{Object: withPod(q.Object, out.Object, at)}, nil
	}, nil
}

// templateOf returns the path of a kind's Pod template; nil if it has none.
func templateOf(gvk schema.GroupVersionKind) []string {
	switch {
	case gvk.Kind == "CronJob":
		return []string{"spec", "jobTemplate", "spec", "template"}
	case runsPods[gvk.Kind]:
		return []string{"spec", "template"}
	}
	return nil
}

// inTemplate are the parts of metadata that a template has for its Pods.
var inTemplate = []string{"labels", "annotations"}

// podOf returns the Pod of a template. Metadata that the template lacks is the controller's.
func podOf(object map[string]any, at []string) (map[string]any, bool) {
	template, ok, _ := unstructured.NestedMap(object, at...)
	if !ok {
		return nil, false
	}
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
	meta, _, _ := unstructured.NestedMap(object, "metadata")
	own, _ := template["metadata"].(map[string]any)
	for _, field := range inTemplate {
		delete(meta, field)
		if v, ok := own[field]; ok {
			meta[field] = v
		}
	}
	pod["metadata"] = meta
	return pod, true
}

// withPod returns a controller with the fields of a Pod in its template.
func withPod(object, pod map[string]any, at []string) map[string]any {
	out := runtime.DeepCopyJSON(object)
	template, _, _ := unstructured.NestedMap(out, at...)
	meta, _ := template["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	from, _ := pod["metadata"].(map[string]any)
	for _, field := range inTemplate {
		delete(meta, field)
		if v, ok := from[field]; ok {
			meta[field] = v
		}
	}
	template["metadata"], template["spec"] = meta, pod["spec"]
	_ = unstructured.SetNestedMap(out, runtime.DeepCopyJSON(template), at...)
	return out
}

var (
	celPath = regexp.MustCompile(`\bobject((?:\.\??[A-Za-z]\w*|\[\??(?:"[^"]*"|'[^']*')\])+)`)
	celStep = regexp.MustCompile(`\.\??([A-Za-z]\w*)|\[\??["']([^"']*)["']\]`)
	celText = regexp.MustCompile(`"([^"\\\n]{0,200})"|'([^'\\\n]{0,200})'`)
)

// collectCEL collects the literals and fields in the expressions of a MutatingPolicy.
func (l *literals) collectCEL(p *policy.Policy) {
	s := p.CEL
	for _, t := range s.Expressions() {
		for _, m := range celPath.FindAllStringSubmatch(t, -1) {
			var path []string
			for _, step := range celStep.FindAllStringSubmatch(m[1], -1) {
				path = append(path, step[1]+step[2])
			}
			l.mentions(path)
		}
		for _, m := range celText.FindAllStringSubmatch(t, -1) {
			if text := m[1] + m[2]; !strings.HasPrefix(text, "/") {
				l.values = append(l.values, text)
				if plainName.MatchString(text) {
					l.names = append(l.names, text)
				}
			}
		}
	}
	if m := s.MatchConstraints; m != nil && m.NamespaceSelector != nil {
		for k, v := range m.NamespaceSelector.MatchLabels {
			l.labels[k] = append(l.labels[k], v)
		}
	}
}

var plainName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,40}[a-z0-9])?$`)
