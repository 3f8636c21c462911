package validating_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
)

// policyWith returns a policy on Pods with the given rest of its spec, and a binding
// that warns.
func policyWith(name, spec string) string {
	return fmt.Sprintf(`---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
%[2]s
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Warn]}
`, name, spec)
}

const pod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  containers: [{name: app, image: nginx:1.27}]
`

func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct{ policies, want string }{
		"expression":    {policyWith("a", "  validations: [{expression: 'object.spec.(', message: m}]"), "spec.validations[0].expression"},
		"message":       {policyWith("a", "  validations: [{expression: 'true', messageExpression: '1'}]"), "must evaluate to string"},
		"authorizer":    {policyWith("a", "  validations: [{expression: 'true', messageExpression: 'string(authorizer == null)'}]"), "undeclared reference to 'authorizer'"},
		"variable":      {policyWith("a", "  variables: [{name: v, expression: 'nothing'}]\n  validations: [{expression: 'true'}]"), "spec.variables[0].expression"},
		"condition":     {policyWith("a", "  matchConditions: [{name: c, expression: '1'}]\n  validations: [{expression: 'true'}]"), "spec.matchConditions[0].expression"},
		"annotation":    {policyWith("a", "  auditAnnotations: [{key: k, valueExpression: '1'}]"), "spec.auditAnnotations[0].valueExpression"},
		"nothing to do": {policyWith("a", "  failurePolicy: Fail"), "validations or auditAnnotations must contain at least one item"},
		"reason":        {policyWith("a", "  validations: [{expression: 'true', reason: Because}]"), `Unsupported value: "Because"`},
		"unknown field": {policyWith("a", "  mutations: []\n  validations: [{expression: 'true'}]"), `unknown field "spec.mutations"`},
		"twice":         {policyWith("a", "  validations: [{expression: 'true'}]") + policyWith("a", "  validations: [{expression: 'true'}]"), "is given twice"},
		"actions":       {strings.Replace(policyWith("a", "  validations: [{expression: 'true'}]"), "[Warn]", "[Warn, Deny]", 1), "must not contain both Deny and Warn"},
		"no action":     {strings.Replace(policyWith("a", "  validations: [{expression: 'true'}]"), "[Warn]", "[]", 1), "at least one validation action is required"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := validating.Read(t.Context(), documents(t, tc.policies))
			if len(errs) == 0 || !strings.Contains(errors.Join(errs...).Error(), tc.want) {
				t.Errorf("errors %v, want %q", errs, tc.want)
			}
		})
	}
}

// What is stored in a server runs as there, even if a server would refuse it today.
func TestStored(t *testing.T) {
	p, err := validating.StoredPolicy(t.Context(), []byte(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
		"metadata": {"name": "a"}, "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]},
		"validations": [{"expression": "nothing"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	b, err := validating.StoredBinding([]byte(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
		"metadata": {"name": "a"}, "spec": {"policyName": "a", "validationActions": ["Deny"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	set, req := loadWith(t, validating.Documents{Policies: []*validating.Program{p}, Bindings: []*validating.Bound{b}}, "", pod)
	v, err := set.Judge(t.Context(), req, req.Object)
	if err != nil || len(v.Violations) != 1 || !strings.Contains(v.Violations[0].Message, "undeclared reference to 'nothing'") {
		t.Errorf("Judge = %+v, %v", v, err)
	}
}

// A policy has the budgets of a server, and a validation ends with its context.
func TestBounds(t *testing.T) {
	// A regular expression costs by the length of the text.
	spec := fmt.Sprintf("  variables: [{name: s, expression: \"'%s'\"}]\n  validations: [{expression: \"[%s1].all(x, !variables.s.matches('b+c+d+e+f+g+h'))\"}]",
		strings.Repeat("a", 5000), strings.Repeat("1,", 2000))
	set, req := load(t, "", "", pod)
	if v, err := set.Judge(t.Context(), req, req.Object); err != nil || len(v.Violations) > 0 {
		t.Fatalf("without policies: %+v, %v", v, err)
	}
	set, req = load(t, policyWith("greedy", spec), "", pod)
	v, err := set.Judge(t.Context(), req, req.Object)
	if err != nil || len(v.Violations) != 1 || !strings.Contains(v.Violations[0].Message, "cost limit exceeded") {
		t.Errorf("Judge = %+v, %v", v, err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if v, err := set.Judge(ended, req, req.Object); err == nil || !strings.Contains(err.Error(), "enough") || len(v.Violations) > 0 {
		t.Errorf("after the end of its context: %+v, %v", v, err)
	}
}

// However many validations fail, what is kept of them is bounded.
func TestManyViolations(t *testing.T) {
	spec := "  validations:\n" + strings.Repeat("    - {expression: 'false', message: never}\n", 300)
	set, req := load(t, policyWith("many", spec), "", pod)
	v, err := set.Judge(t.Context(), req, req.Object)
	if err != nil || len(v.Violations) != 200 {
		t.Errorf("%d violations, %v", len(v.Violations), err)
	}
}

// A Pod that mutation left without what its kind requires has no Result, and nothing
// panics.
func TestMalformed(t *testing.T) {
	set, req := load(t, policyWith("a", "  validations: [{expression: 'object.spec.containers.size() > 0'}]"), `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: restricted}}
`, pod)
	for _, spec := range []any{nil, "x", int64(1), map[string]any{"containers": "x"}, map[string]any{"containers": []any{nil}}, []any{}} {
		object := req.Object.DeepCopy()
		object.Object["spec"] = spec
		v, err := set.Judge(t.Context(), req, object)
		if err == nil && len(v.Violations) == 0 {
			t.Errorf("spec %v: no violation and no error", spec)
		}
	}
}
