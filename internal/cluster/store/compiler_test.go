package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/webhook"
)

const marking = `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME, generation: 1, resourceVersion: "1", labels: {}}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    matchPolicy: Equivalent
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"NAME": "VALUE"}}}'
`

// testPolicy marks ConfigMaps with its name and a value; change is pairs of what
// to replace in its text.
func testPolicy(t testing.TB, name, value string, change ...string) *unstructured.Unstructured {
	t.Helper()
	text := strings.NewReplacer(change...).Replace(marking)
	u := featuretest.Parse(t, strings.NewReplacer("NAME", name, "VALUE", value).Replace(text))
	u.SetUID(types.UID("uid-" + name))
	return u
}

func testBinding(t testing.TB, name, policyName string) *unstructured.Unstructured {
	t.Helper()
	return featuretest.Parse(t, fmt.Sprintf(`
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %s}
spec: {policyName: %s}
`, name, policyName))
}

// byName is a change after which these objects are there, gone one after which
// they are not.
func byName(objects ...*unstructured.Unstructured) map[string]*stored {
	out := map[string]*stored{}
	for _, u := range objects {
		out[u.GetName()] = keepStored(u.DeepCopy(), nil)
	}
	return out
}

func gone(names ...string) map[string]*stored {
	out := map[string]*stored{}
	for _, name := range names {
		out[name] = nil
	}
	return out
}

// Only what changed in its spec is compiled.
func TestCompilerWork(t *testing.T) {
	c := &compiler{deps: featuretest.Deps(t).Policy}
	labelled := testPolicy(t, "b", "1", "labels: {}", "labels: {team: x}")
	labelled.SetResourceVersion("2")
	status := testPolicy(t, "b", "1")
	status.Object["status"] = map[string]any{"observedGeneration": int64(1)}
	status.SetResourceVersion("3")
	again := testPolicy(t, "b", "1")
	again.SetUID("another")
	edited := testPolicy(t, "b", "2", "generation: 1", "generation: 2")
	steps := []struct {
		name               string
		policies, bindings map[string]*stored
		work               compiled
		policyNames        []string
		bindingNames       []string
	}{
		{name: "the first list",
			policies:    byName(testPolicy(t, "c", "1"), testPolicy(t, "a", "1"), testPolicy(t, "b", "1")),
			bindings:    byName(testBinding(t, "by", "b"), testBinding(t, "bx", "a")),
			work:        compiled{policies: 3, bindings: 2},
			policyNames: []string{"a", "b", "c"}, bindingNames: []string{"bx", "by"}},
		{name: "nothing", policyNames: []string{"a", "b", "c"}, bindingNames: []string{"bx", "by"}},
		{name: "a label", policies: byName(labelled),
			policyNames: []string{"a", "b", "c"}, bindingNames: []string{"bx", "by"}},
		{name: "a status", policies: byName(status),
			policyNames: []string{"a", "b", "c"}, bindingNames: []string{"bx", "by"}},
		{name: "deleted and made again alike", policies: byName(again),
			policyNames: []string{"a", "b", "c"}, bindingNames: []string{"bx", "by"}},
		{name: "a spec", policies: byName(edited), work: compiled{policies: 1},
			policyNames: []string{"a", "b", "c"}, bindingNames: []string{"bx", "by"}},
		{name: "a spec that does not compile", policies: byName(testPolicy(t, "b", "1", `"VALUE"`, "nothing"), testPolicy(t, "aa", "1")),
			work:        compiled{policies: 2, broken: []string{"b"}},
			policyNames: []string{"a", "aa", "b", "c"}, bindingNames: []string{"bx", "by"}},
		{name: "its label", policies: byName(testPolicy(t, "b", "1", `"VALUE"`, "nothing", "labels: {}", "labels: {team: x}")),
			policyNames: []string{"a", "aa", "b", "c"}, bindingNames: []string{"bx", "by"}},
		{name: "deleted", policies: gone("a", "c", "never-seen"), bindings: gone("by"),
			policyNames: []string{"aa", "b"}, bindingNames: []string{"bx"}},
		{name: "bindings edited", bindings: byName(testBinding(t, "bx", "b"), testBinding(t, "bz", "b")), work: compiled{bindings: 2},
			policyNames: []string{"aa", "b"}, bindingNames: []string{"bx", "bz"}},
	}
	for _, s := range steps {
		work := c.update(s.policies, s.bindings)
		work.changed = false // so is the list, which is looked at below
		if diff := cmp.Diff(s.work, work, cmp.AllowUnexported(compiled{})); diff != "" {
			t.Errorf("%s: work (-want +got):\n%s", s.name, diff)
		}
		if diff := cmp.Diff(s.policyNames, names(c.policies)); diff != "" {
			t.Errorf("%s: policies (-want +got):\n%s", s.name, diff)
		}
		if diff := cmp.Diff(s.bindingNames, names(c.bindings)); diff != "" {
			t.Errorf("%s: bindings (-want +got):\n%s", s.name, diff)
		}
		for name, now := range s.policies {
			if p, ok := find(c.policies, name); now != nil && (!ok || p.stored != now) {
				t.Errorf("%s: policy %q is not the one that was stored last", s.name, name)
			}
		}
	}
	if got := c.broken(); got != 1 {
		t.Errorf("%d policies cannot run, want 1", got)
	}
}

func names[T listed](list []T) []string {
	var out []string
	for _, t := range list {
		out = append(out, t.key())
	}
	return out
}

// The annotations that say how much of a policy counts are compiled with it, and decide
// in which group it acts by which binding.
func TestCompileRollout(t *testing.T) {
	annotated := func(u *unstructured.Unstructured, annotations map[string]string) *stored {
		annotations["other"] = "x"
		u.SetAnnotations(annotations)
		return keepStored(u, nil)
	}
	none := map[string]string{}
	mode := func(m string) map[string]string { return map[string]string{api.ModeAnnotation: m} }
	for _, tt := range []struct {
		name            string
		policy, binding map[string]string
		mode            api.Mode
		err             string
	}{
		{name: "enforced", policy: none, binding: none},
		{name: "a policy in shadow", policy: mode("shadow"), binding: none, mode: api.Shadow},
		{name: "enforced by its binding", policy: mode("shadow"), binding: mode("enforce")},
		{name: "a binding that warns", policy: none, binding: mode("warn"), mode: api.Warn},
		{name: "a typing error", policy: mode("shdow"), binding: mode("enforce"), mode: api.Shadow,
			err: `metadata.annotations[mapd.dev/mode]: Invalid value: "shdow": must be enforce, warn or shadow`},
		{name: "a share of a policy", policy: map[string]string{api.PercentAnnotation: "5"}, binding: none, mode: api.Shadow,
			err: "metadata.annotations[mapd.dev/percent]: Forbidden: only a MutatingAdmissionPolicyBinding can have it"},
		{name: "a share that is none", policy: none, binding: map[string]string{api.PercentAnnotation: "5%"}, mode: api.Shadow,
			err: `metadata.annotations[mapd.dev/percent]: Invalid value: "5%": must be a number from 0 to 100 with at most 4 decimals, such as 10 or 0.5`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := compiler{deps: featuretest.Deps(t).Policy}
			c.update(map[string]*stored{"p": keepStored(testPolicy(t, "p", "1"), nil)}, map[string]*stored{"b": keepStored(testBinding(t, "b", "p"), nil)})
			if c.ids[0].FailurePolicy != admissionregistrationv1.Fail {
				t.Fatalf("before: %v", c.ids)
			}
			c.update(map[string]*stored{"p": annotated(testPolicy(t, "p", "1"), tt.policy)}, map[string]*stored{"b": annotated(testBinding(t, "b", "p"), tt.binding)})
			p, b := c.policies[0], c.bindings[0]
			if got := p.policy.Rollout().With(b.binding.Rollout()); got != tt.mode {
				t.Errorf("mode %v, want %v", got, tt.mode)
			}
			if ignore := c.ids[0].FailurePolicy == admissionregistrationv1.Ignore; ignore != (tt.mode != api.Enforce) {
				t.Errorf("entry %v in mode %v", c.ids[0], tt.mode)
			}
			if got := errString(errors.Join(errors.Join(p.errs...), b.err)); got != tt.err {
				t.Errorf("error %s, want %s", got, tt.err)
			}
		})
	}
}

// What is stored and cannot run keeps of itself what can be read.
func TestCompilePolicyBroken(t *testing.T) {
	fail := webhook.Group{FailurePolicy: admissionregistrationv1.Fail, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy}
	ignore := webhook.Group{FailurePolicy: admissionregistrationv1.Ignore, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy}
	tests := map[string]struct {
		change    []string
		group     webhook.Group
		errs      []string
		nowhere   bool
		resources []string
	}{
		"an unknown field": {
			change: []string{"failurePolicy: Fail", "failurePolicy: Ignore\n  sinceVersionTwo: true"},
			group:  ignore, resources: []string{"configmaps"},
			errs: []string{`strict decoding error: unknown field "spec.sinceVersionTwo"`},
		},
		"a field of a wrong type before all others": {
			change: []string{"failurePolicy: Fail", "matchConditions: 1\n  failurePolicy: Ignore"},
			group:  ignore, resources: []string{"configmaps"},
			errs: []string{"json: cannot unmarshal number into Go struct field MutatingAdmissionPolicySpec.spec.matchConditions of type []v1.MatchCondition"},
		},
		"an unreadable failurePolicy": {
			change: []string{"failurePolicy: Fail", "failurePolicy: {}"},
			group:  fail, resources: []string{"configmaps"},
			errs: []string{"json: cannot unmarshal object into Go struct field MutatingAdmissionPolicySpec.spec.failurePolicy of type v1.FailurePolicyType"},
		},
		"unreadable rules": {
			change: []string{"resourceRules:", "resourceRules: []\n    excludeResourceRules:", "failurePolicy: Fail", "failurePolicy: Ignore\n  variables: 1"},
			group:  ignore, nowhere: true,
			errs: []string{"json: cannot unmarshal number into Go struct field MutatingAdmissionPolicySpec.spec.variables of type []v1.Variable"},
		},
		"no spec": {
			change: []string{"spec:", "data:"},
			group:  fail, nowhere: true,
			errs: []string{`strict decoding error: unknown field "data"`},
		},
		"an invalid value": {
			change: []string{"CREATE", "DELETE", "reinvocationPolicy: Never", "reinvocationPolicy: Often"},
			group:  fail, resources: []string{"configmaps"},
			errs: []string{
				`spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"`,
				`spec.reinvocationPolicy: Unsupported value: "Often": supported values: "IfNeeded", "Never"`,
			},
		},
		"an expression that does not compile": {
			change: []string{`"VALUE"`, "nothing"},
			group:  fail, resources: []string{"configmaps"},
			errs: []string{"spec.mutations[0].applyConfiguration.expression: …undeclared reference to 'nothing'…"},
		},
	}
	deps := featuretest.Deps(t).Policy
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := compilePolicy(t.Context(), "p", keepStored(testPolicy(t, "p", "1", tt.change...), nil).text, deps)
			if got.group != tt.group || got.nowhere != tt.nowhere {
				t.Errorf("group %v, nowhere %v; want %v, %v", got.group, got.nowhere, tt.group, tt.nowhere)
			}
			if got.policy.Err() == nil || got.policy.Name() != "p" {
				t.Errorf("policy %q, error %v; want a broken one of that name", got.policy.Name(), got.policy.Err())
			}
			var resources []string
			for _, r := range got.policy.Object().Spec.MatchConstraints.ResourceRules {
				resources = append(resources, r.Resources...)
			}
			if diff := cmp.Diff(tt.resources, resources); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
			if !slices.EqualFunc(got.errs, tt.errs, func(err error, want string) bool { return like(err.Error(), want) }) {
				t.Errorf("errors:\n%q\nwant:\n%q", got.errs, tt.errs)
			}
		})
	}
}

// like compares texts of which want leaves out some, at each "…".
func like(got, want string) bool {
	parts := strings.Split(want, "…")
	if len(parts) == 1 {
		return got == want
	}
	if !strings.HasPrefix(got, parts[0]) || !strings.HasSuffix(got, parts[len(parts)-1]) {
		return false
	}
	for _, part := range parts {
		_, after, ok := strings.Cut(got, part)
		if !ok {
			return false
		}
		got = after
	}
	return true
}

func TestCompileBinding(t *testing.T) {
	tests := map[string]struct {
		spec    string
		applies bool
		err     string
	}{
		"in order":            {spec: "{policyName: p}", applies: true},
		"an unknown field":    {spec: "{policyName: p, paramReff: {}}", err: `strict decoding error: unknown field "spec.paramReff"`},
		"no policy":           {spec: "{}", err: `binding "b": spec.policyName is empty`},
		"an invalid selector": {spec: "{policyName: p, matchResources: {objectSelector: {matchLabels: {a: '?'}}}}", applies: true, err: "spec.matchResources.objectSelector.matchLabels: Invalid value: …"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			u := testBinding(t, "b", "p")
			u.Object["spec"] = featuretest.Parse(t, "apiVersion: v1\nkind: x\nspec: "+tt.spec).Object["spec"]
			got := compileBinding(keepStored(u, nil).text)
			if applies := got.binding != nil; applies != tt.applies || !like(errString(got.err), tt.err) {
				t.Errorf("applies %v, error %v; want %v, %s", applies, got.err, tt.applies, tt.err)
			}
		})
	}
}
