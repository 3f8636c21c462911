package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

func stored(generation int64) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": api.OwnPolicies.GroupVersion().String(), "kind": "MutatingAdmissionPolicy"}}
	u.SetName("p")
	u.SetUID("1")
	u.SetGeneration(generation)
	return u
}

// brief formats a status briefly.
func brief(s status) []string {
	var out []string
	for _, c := range s.Conditions {
		out = append(out, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	if s.TypeChecking != nil {
		for _, w := range s.TypeChecking.ExpressionWarnings {
			out = append(out, w.FieldRef+" "+w.Warning)
		}
	}
	return out
}

func TestPolicyStatus(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Limit"}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "limits"}, "", errors.New("no"))
	const (
		compiles  = "Compiled=True Compiled: all expressions compile"
		notNeeded = "ParamKindFound=True NotNeeded: the policy takes no parameters"
		found     = "ParamKindFound=True Found: example.com/v1, kind Limit is served"
	)
	tests := map[string]struct {
		in         store.PolicyState
		unroutable bool
		want       []string
	}{
		"in use":    {in: store.PolicyState{Bound: true}, want: []string{"Ready=True InUse: the policy applies as its bindings say", compiles, notNeeded}},
		"not bound": {in: store.PolicyState{}, want: []string{"Ready=True NotBound: the policy has no effect, because no binding names it", compiles, notNeeded}},
		"not compiled": {in: store.PolicyState{Bound: true, Errs: []error{errors.New("one"), errors.New("two")}},
			want: []string{"Ready=False NotCompiled: the policy does not compile, so requests that it matches fail by its failurePolicy", "Compiled=False NotCompiled: one\ntwo", notNeeded}},
		"params": {in: store.PolicyState{Bound: true, ParamKind: &store.ParamState{GVK: kind, Found: true, Synced: true}},
			want: []string{"Ready=True InUse: the policy applies as its bindings say", compiles, found}},
		"params that are not read yet": {in: store.PolicyState{Bound: true, ParamKind: &store.ParamState{GVK: kind, Found: true}},
			want: []string{"Ready=True InUse: the policy applies as its bindings say", compiles, found}},
		"no such paramKind": {in: store.PolicyState{Bound: true, ParamKind: &store.ParamState{GVK: kind}},
			want: []string{"Ready=False ParamKindNotFound: the API server does not serve example.com/v1, kind Limit", compiles,
				"ParamKindFound=False ParamKindNotFound: the API server does not serve example.com/v1, kind Limit"}},
		"params that may not be read": {in: store.PolicyState{ParamKind: &store.ParamState{GVK: kind, Found: true, Err: forbidden}},
			want: []string{`Ready=False ParamsForbidden: mapd may not read example.com/v1, kind Limit: limits is forbidden: no`, compiles, found}},
		"params that cannot be read": {in: store.PolicyState{ParamKind: &store.ParamState{GVK: kind, Found: true, Err: errors.New("gone fishing")}},
			want: []string{"Ready=False ParamsUnavailable: example.com/v1, kind Limit cannot be read: gone fishing", compiles, found}},
		"rules that match nothing": {in: store.PolicyState{Bound: true}, unroutable: true,
			want: []string{"Ready=False NeverMatches: no rule of the policy can match a request", compiles, notNeeded}},
		"warnings": {in: store.PolicyState{Bound: true, Warnings: []policy.Warning{
			{Field: "spec.mutations[0]", Line: 1, Column: 2, Message: "a"}, {Field: "spec.mutations[1]", Message: "b"}}},
			want: []string{"Ready=True InUse: the policy applies as its bindings say; but spec.mutations[0]: a (and 1 more)", compiles, notNeeded, "spec.mutations[0] 1:2: a", "spec.mutations[1] b"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.in.Object = stored(7)
			s := policyStatus(tt.in, tt.unroutable)
			if diff := cmp.Diff(tt.want, brief(s)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if s.ObservedGeneration != 7 || s.Conditions[0].ObservedGeneration != 7 {
				t.Error("observedGeneration is not that of the object")
			}
		})
	}
}

func TestBindingStatus(t *testing.T) {
	tests := map[string]struct {
		in   store.BindingState
		want []string
	}{
		"in use":    {store.BindingState{PolicyFound: true}, []string{`Ready=True InUse: policy "p" applies as the binding says`, `PolicyFound=True Found: policy "p" exists`}},
		"no policy": {store.BindingState{}, []string{`Ready=False PolicyNotFound: the binding has no effect: there is no policy "p"`, `PolicyFound=False PolicyNotFound: there is no policy "p"`}},
		"invalid":   {store.BindingState{PolicyFound: true, Err: errors.New("bad")}, []string{"Ready=False Invalid: the binding has no effect: bad", `PolicyFound=True Found: policy "p" exists`}},
	}
	nothing := policy.Warning{Rule: "unknown-resource", Field: "spec.matchResources.resourceRules[0].resources[0]", Message: "no Pod"}
	matches := func(resources ...string) *binding.Binding {
		rule := admissionregistrationv1.NamedRuleWithOperations{}
		rule.Resources = resources
		b, err := binding.Compile(&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: "p", MatchResources: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule}}}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, resources := range map[string][]string{"matches nothing": {"Pod"}, "matches something": {"Pod", "services"}} {
		want := []string{"Ready=False NeverMatches: the binding can match no request: " + nothing.Field + ": no Pod", `PolicyFound=True Found: policy "p" exists`}
		if len(resources) > 1 {
			want[0] = `Ready=True InUse: policy "p" applies as the binding says; but ` + nothing.Field + ": no Pod"
		}
		tests[name] = struct {
			in   store.BindingState
			want []string
		}{store.BindingState{PolicyFound: true, Binding: matches(resources...), Warnings: []policy.Warning{nothing}}, want}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.in.Object, tt.in.PolicyName = stored(1), "p"
			if diff := cmp.Diff(tt.want, brief(bindingStatus(tt.in))); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// Bindings with the annotation say what is known of objects that exist, or what is so of all; a stop
// stays, and others say nothing.
func TestExistingCondition(t *testing.T) {
	const stop = "Stopped"
	known, always := NewExisting(), AlwaysExisting(ExistingState{Reason: "Idle", Message: "nobody looks"}, stop)
	known.Publish(map[types.UID]ExistingState{"1": {InLine: true, Reason: "Good", Message: "all"}})
	had := func(reason string) status {
		return status{Conditions: []metav1.Condition{{Type: typeExisting, Status: metav1.ConditionFalse, Reason: reason, Message: "as before"}}}
	}
	for name, tt := range map[string]struct {
		existing   *Existing
		annotation string
		before     status
		want       []string
	}{
		"none":                {always, "", had("Idle"), nil},
		"known":               {known, "fix", had(stop), []string{"ExistingInLine=True Good: all"}},
		"not known":           {NewExisting(), "report", had("Other"), []string{"ExistingInLine=False Other: as before"}},
		"not known before":    {NewExisting(), "report", status{}, nil},
		"always":              {always, "fix", had("Good"), []string{"ExistingInLine=False Idle: nobody looks"}},
		"always, not before":  {always, "report", status{}, []string{"ExistingInLine=False Idle: nobody looks"}},
		"always, but stopped": {always, "fix", had(stop), []string{"ExistingInLine=False Stopped: as before"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := store.BindingState{Object: stored(1), PolicyName: "p"}
			if tt.annotation != "" {
				b.Object.SetAnnotations(map[string]string{api.ExistingAnnotation: tt.annotation})
			}
			now := status{ObservedGeneration: 1}
			if c := tt.existing.condition(b, tt.before, now); c != nil {
				now.Conditions = append(now.Conditions, *c)
			}
			if diff := cmp.Diff(tt.want, brief(now)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// A status is written and read back; it is written again only if it differs, and
// a condition keeps its time for as long as its status stays.
func TestStatusOverTime(t *testing.T) {
	at := func(s int64) metav1.Time { return metav1.NewTime(time.Unix(s, 0)) }
	u := stored(1)
	inUse := policyStatus(store.PolicyState{Object: u, Bound: true}, false)
	if before := statusOf(u); inUse.equal(before) {
		t.Fatal("an object without a status needs none")
	}
	first, err := inUse.withTransitionTimes(statusOf(u), at(100)).object(u)
	if err != nil {
		t.Fatal(err)
	}
	if first.GetUID() != "1" || first.GetName() != "p" || first.GetResourceVersion() != "" {
		t.Errorf("applied to %v", first.Object["metadata"])
	}
	if !inUse.equal(statusOf(first)) {
		t.Error("what was written has to be written again")
	}
	unbound := policyStatus(store.PolicyState{Object: u}, false)
	broken := policyStatus(store.PolicyState{Object: u, Errs: []error{errors.New("x")}}, false)
	for name, tt := range map[string]struct {
		s    status
		want [3]int64
	}{
		"another reason":  {unbound, [3]int64{100, 100, 100}},
		"another status":  {broken, [3]int64{200, 200, 100}},
		"nothing changed": {inUse, [3]int64{100, 100, 100}},
	} {
		got := tt.s.withTransitionTimes(statusOf(first), at(200))
		for i, c := range got.Conditions {
			if c.LastTransitionTime.Unix() != tt.want[i] {
				t.Errorf("%s: %s changed at %d, want %d", name, c.Type, c.LastTransitionTime.Unix(), tt.want[i])
			}
		}
	}
	if unbound.equal(statusOf(first)) {
		t.Error("another reason is not written")
	}
	u.Object["status"] = map[string]any{"conditions": "rubbish"}
	if inUse.equal(statusOf(u)) {
		t.Error("rubbish is left alone")
	}
}

func TestBounded(t *testing.T) {
	if got := bounded("short"); got != "short" {
		t.Errorf("bounded = %q", got)
	}
	for _, text := range []string{strings.Repeat("a", 5000), strings.Repeat("ü", 5000), strings.Repeat("a", maxMessage-5) + strings.Repeat("世", 50), "\xff" + strings.Repeat("€", 900)} {
		got := bounded(text)
		if len(got) > maxMessage || len(got) < maxMessage-8 || !utf8.ValidString(got) || !strings.HasSuffix(got, " …") {
			t.Errorf("bounded: %d bytes, %q", len(got), got[len(got)-10:])
		}
	}
	var errs []error
	for i := range 500 {
		errs = append(errs, fmt.Errorf("error %d", i))
	}
	got := bounded(joined(errs))
	if !strings.HasPrefix(got, "error 0\nerror 1\n") || !strings.HasSuffix(got, " more") || len(got) > maxMessage {
		t.Errorf("joined: %q", got)
	}
}

func TestWarningsAreBounded(t *testing.T) {
	p := store.PolicyState{Object: stored(1)}
	for i := range 10 * maxWarnings {
		p.Warnings = append(p.Warnings, policy.Warning{Field: fmt.Sprint(i), Message: strings.Repeat("x", 2*maxMessage)})
	}
	s := policyStatus(p, false)
	if n := len(s.TypeChecking.ExpressionWarnings); n != maxWarnings {
		t.Errorf("%d warnings", n)
	}
	if n := len(s.TypeChecking.ExpressionWarnings[0].Warning); n > maxMessage {
		t.Errorf("a warning of %d bytes", n)
	}
}

// What the Store has seen counts unless we have written since, to the same object.
func TestBefore(t *testing.T) {
	seen := func(uid, version string) *unstructured.Unstructured {
		u := stored(1)
		u.SetUID(types.UID(uid))
		u.SetResourceVersion(version)
		u.Object["status"] = map[string]any{"observedGeneration": int64(1)}
		return u
	}
	k := key{api.OwnPolicies, "p"}
	r := &reporter{written: map[key]written{k: {"1", "10", status{ObservedGeneration: 2}}}}
	for name, tt := range map[string]struct {
		u    *unstructured.Unstructured
		want int64
	}{
		"older than what we wrote": {seen("1", "9"), 2},
		"what we wrote":            {seen("1", "10"), 1},
		"newer":                    {seen("1", "11"), 1},
		"another object":           {seen("other", "9"), 1},
	} {
		if got := r.before(k, tt.u).ObservedGeneration; got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
