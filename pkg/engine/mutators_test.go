package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// lenient compiles a policy with one JSON patch.
func lenient(t testing.TB, name, patch string, opts ...option) *policy.Policy {
	t.Helper()
	environment, err := env()
	if err != nil {
		t.Fatal(err)
	}
	obj := policyObject(name, opts...)
	obj.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: patch},
	}}
	p, err := policy.CompileLenient(obj, policy.Deps{Env: environment})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// noPatch is a patch that does nothing.
const noPatch = `1 == 2 ? [JSONPatch{op: "remove", path: "/x"}] : []`

// sets is a member that sets data.key, on the condition that data.needs is there.
func sets(t testing.TB, key, value, needs string, wakes ...int) Member {
	patch := fmt.Sprintf(`[JSONPatch{op: "add", path: "/data/%s", value: %s}]`, key, value)
	if needs != "" {
		patch = fmt.Sprintf(`has(object.data.%s) ? %s : []`, needs, patch)
	}
	return Member{Name: "Assign/" + key, Policy: lenient(t, key, patch), Wakes: wakes}
}

func widgetWith(data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ex.io/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "w", "namespace": "shop"},
		"data":     data,
	}}
}

func creates(obj *unstructured.Unstructured) *policy.Request {
	return &policy.Request{UID: "u1", Kind: widget, Resource: widgets, Operation: admissionv1.Create, Name: "w", Namespace: "shop", Object: obj}
}

// admits runs one request through a Set and checks what holds for all of them.
func admits(t *testing.T, o SetOptions, req *policy.Request) *Decision {
	t.Helper()
	return admitsAs(t, Options{}, Mutators(NewSet(o), api.Enforce), req)
}

func admitsAs(t *testing.T, o Options, s Stage, req *policy.Request) *Decision {
	t.Helper()
	given := req.Object.DeepCopy()
	e := New(o)
	e.Publish(s)
	d := e.Admit(t.Context(), req)
	if diff := cmp.Diff(given, req.Object); diff != "" {
		t.Fatalf("the request's object was modified:\n%s", diff)
	}
	if d.Status != nil && d.Object != req.Object {
		t.Errorf("a refused request has another object")
	}
	return d
}

// story is the steps of a decision in one line each.
func story(d *Decision) string {
	var b strings.Builder
	for _, s := range d.Steps {
		fmt.Fprintf(&b, "%d %s %s %s\n", s.Round, s.Policy, s.Outcome, strings.Join(s.Paths(), " "))
	}
	return b.String()
}

// A chain in the wrong order takes N+1 passes, of which each runs only who has
// been woken.
func TestSetRunsToAFixedPoint(t *testing.T) {
	o := SetOptions{Members: []Member{
		sets(t, "a", `1`, "b"),
		sets(t, "b", `1`, "c", 0),
		sets(t, "c", `1`, "", 1),
	}}
	d := admits(t, o, creates(widgetWith(map[string]any{})))
	if d.Status != nil || d.Rounds(MutatorStage) != 4 || !d.Changed {
		t.Fatalf("status %v, %d passes, changed %v", d.Status, d.Rounds(MutatorStage), d.Changed)
	}
	if diff := cmp.Diff(map[string]any{"a": int64(1), "b": int64(1), "c": int64(1)}, d.Object.Object["data"]); diff != "" {
		t.Error(diff)
	}
	want := `1 Assign/a unchanged 
1 Assign/b unchanged 
1 Assign/c changed /data/c
2 Assign/b changed /data/b
3 Assign/a changed /data/a
`
	if diff := cmp.Diff(want, story(d)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestSetPasses(t *testing.T) {
	toggle := Member{Name: "Assign/t", Policy: lenient(t, "t", `[JSONPatch{op: "replace", path: "/data/x", value: !object.data.x}]`), Wakes: []int{0}}
	tests := map[string]struct {
		members []Member
		bound   int
		data    map[string]any
		passes  int
		changed bool
		status  string
	}{
		"nothing to do is no pass": {
			members: []Member{sets(t, "a", `1`, "")}, data: map[string]any{"a": int64(1)},
		},
		"one change is two passes": {
			members: []Member{sets(t, "a", `1`, "")}, data: map[string]any{}, passes: 2, changed: true,
		},
		"two that cancel out are no pass": {
			members: []Member{sets(t, "a", `1`, "", 1), sets(t, "a", `2`, "", 0)}, data: map[string]any{"a": int64(2)},
		},
		"another type of number is a pass and no change": {
			members: []Member{sets(t, "a", `5.0`, "")}, data: map[string]any{"a": int64(5)}, passes: 2,
		},
		"a large integer is the double that it is nearest to": {
			members: []Member{sets(t, "a", `9007199254740992.0`, "")}, data: map[string]any{"a": int64(9007199254740993)}, passes: 2,
		},
		"what never settles is refused": {
			members: []Member{toggle}, data: map[string]any{"x": true}, passes: 2,
			status: "mutation not converging: mutation u1 not converging for ex.io Widget shop w",
		},
		"the bound counts those that are off": {
			members: []Member{toggle}, bound: 6, data: map[string]any{"x": true}, passes: 7,
			status: "mutation not converging: mutation u1 not converging for ex.io Widget shop w",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := admits(t, SetOptions{Members: tt.members, Bound: tt.bound}, creates(widgetWith(tt.data)))
			status := ""
			if d.Status != nil {
				status = d.Status.Message
				if d.Status.Code != 500 {
					t.Errorf("code %d, want 500", d.Status.Code)
				}
			}
			if d.Rounds(MutatorStage) != tt.passes || d.Changed != tt.changed || status != tt.status {
				t.Errorf("%d passes, changed %v, status %q; want %d, %v, %q", d.Rounds(MutatorStage), d.Changed, status, tt.passes, tt.changed, tt.status)
			}
		})
	}
}

// Numbers that a server reads alike are not sent back, and new ones without a
// fraction are integers.
func TestSetLeavesNumbersAlone(t *testing.T) {
	o := SetOptions{Members: []Member{
		sets(t, "a", `[dyn(5.0), dyn({"n": 1.0}), dyn(2.5)]`, ""), sets(t, "b", `7.0`, ""),
	}}
	list := []any{int64(5), map[string]any{"n": int64(1)}, 2.5}
	d := admits(t, o, creates(widgetWith(map[string]any{"a": list})))
	if diff := cmp.Diff(map[string]any{"a": list, "b": int64(7)}, d.Object.Object["data"]); diff != "" {
		t.Error(diff)
	}
}

func TestSetLeavesAlone(t *testing.T) {
	change := func(f func(*policy.Request)) *policy.Request {
		r := creates(widgetWith(map[string]any{}))
		f(r)
		return r
	}
	namespaceObject := func(name string, set map[string]any) *policy.Request {
		return change(func(r *policy.Request) {
			r.Kind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
			r.Namespace, r.Name = name, name
			r.Object = &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": set}, "data": map[string]any{},
			}}
		})
	}
	tests := map[string]struct {
		req     *policy.Request
		changed bool
		status  string
	}{
		"a CREATE":              {req: change(func(*policy.Request) {}), changed: true},
		"an UPDATE":             {req: change(func(r *policy.Request) { r.Operation = admissionv1.Update }), changed: true},
		"not a DELETE":          {req: change(func(r *policy.Request) { r.Operation = admissionv1.Delete })},
		"not a CONNECT":         {req: change(func(r *policy.Request) { r.Operation = admissionv1.Connect })},
		"not a mutator":         {req: change(func(r *policy.Request) { r.Kind.Group = "mutations.gatekeeper.sh" })},
		"not a constraint":      {req: change(func(r *policy.Request) { r.Kind.Group = "constraints.gatekeeper.sh" })},
		"a syncset":             {req: change(func(r *policy.Request) { r.Kind.Group = "syncset.gatekeeper.sh" }), changed: true},
		"not what is excluded":  {req: change(func(r *policy.Request) { r.Namespace = "excluded" })},
		"not what is ignored":   {req: change(func(r *policy.Request) { r.Namespace = "ignored" })},
		"no unknown namespace":  {req: change(func(r *policy.Request) { r.Namespace = "gone" }), status: `namespaces "gone" not found`},
		"a cluster-scoped one":  {req: change(func(r *policy.Request) { r.Namespace = "" }), changed: true},
		"a Namespace":           {req: namespaceObject("gone", map[string]any{}), changed: true},
		"no excluded Namespace": {req: namespaceObject("excluded", map[string]any{})},
		"no ignored Namespace":  {req: namespaceObject("gone", map[string]any{api.IgnoreLabel: ""})},
	}
	o := SetOptions{
		Members:  []Member{sets(t, "a", `1`, "")},
		Excludes: func(ns string) bool { return ns == "excluded" },
		Namespace: func(_ context.Context, name string) (*unstructured.Unstructured, error) {
			ns := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
			switch name {
			case "gone":
				return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
			case "ignored":
				ns.SetLabels(map[string]string{api.IgnoreLabel: "no"})
			}
			return ns, nil
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := admits(t, o, tt.req)
			status := ""
			if d.Status != nil {
				status = d.Status.Message
			}
			if d.Changed != tt.changed || status != tt.status {
				t.Errorf("changed %v, status %q; want %v, %q", d.Changed, status, tt.changed, tt.status)
			}
		})
	}
}

// The payload carries the request's namespace meanwhile and gets its own back.
func TestSetNamespaceOfThePayload(t *testing.T) {
	reads := Member{Name: "Assign/n", Policy: lenient(t, "n",
		`[JSONPatch{op: "add", path: "/data/n", value: object.metadata.?namespace.orValue("none")}]`)}
	idle := Member{Name: "Assign/i", Policy: lenient(t, "i", noPatch)}
	tests := map[string]struct {
		member    Member
		namespace any // nil: absent
		request   string
		cluster   bool
		want, saw any
	}{
		"an absent one stays absent":      {member: reads, request: "shop", saw: "shop"},
		"an empty one becomes absent":     {member: reads, namespace: "", request: "shop", saw: "shop"},
		"an empty one that nobody needed": {member: idle, namespace: "", request: "shop", want: ""},
		"one that is there stays":         {member: reads, namespace: "shop", request: "shop", want: "shop", saw: "shop"},
		"another one comes back":          {member: reads, namespace: "home", request: "shop", want: "home", saw: "shop"},
		"a Namespace has none":            {member: reads, request: "w", cluster: true, saw: "none"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := widgetWith(map[string]any{})
			meta := obj.Object["metadata"].(map[string]any)
			delete(meta, "namespace")
			if tt.namespace != nil {
				meta["namespace"] = tt.namespace
			}
			req := creates(obj)
			req.Namespace = tt.request
			if tt.cluster {
				obj.Object["apiVersion"], obj.Object["kind"] = "v1", "Namespace"
			}
			d := admits(t, SetOptions{Members: []Member{tt.member}}, req)
			if got := d.Object.Object["metadata"].(map[string]any)["namespace"]; got != tt.want {
				t.Errorf("metadata.namespace is %v, want %v", got, tt.want)
			}
			if got := d.Object.Object["data"].(map[string]any)["n"]; got != tt.saw {
				t.Errorf("the member saw %v, want %v", got, tt.saw)
			}
		})
	}
}

func TestSetNamespaceSelector(t *testing.T) {
	m := sets(t, "a", `1`, "")
	m.Match = &Match{NamespaceSelector: labels.SelectorFromSet(labels.Set{"team": "red"})}
	labelled := Member{Name: "AssignMetadata/l", Wakes: []int{0},
		Policy: lenient(t, "l", `has(object.metadata.labels) ? [] : [JSONPatch{op: "add", path: "/metadata/labels", value: {"team": "red"}}]`)}
	namespaces := func(_ context.Context, name string) (*unstructured.Unstructured, error) {
		ns := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
		ns.SetLabels(map[string]string{"team": name})
		return ns, nil
	}
	for name, want := range map[string]bool{"red": true, "blue": false, "": true} {
		req := creates(widgetWith(map[string]any{}))
		req.Namespace = name
		if d := admits(t, SetOptions{Members: []Member{m}, Namespace: namespaces}, req); d.Changed != want {
			t.Errorf("in namespace %q: changed %v, want %v", name, d.Changed, want)
		}
	}
	// A Namespace is asked for its own labels, as they are by then.
	req := creates(widgetWith(map[string]any{}))
	req.Object.Object["apiVersion"], req.Object.Object["kind"] = "v1", "Namespace"
	d := admits(t, SetOptions{Members: []Member{m, labelled}, Namespace: namespaces}, req)
	if want := "1 AssignMetadata/l changed /metadata/labels\n2 Assign/a changed /data/a\n"; story(d) != want || d.Rounds(MutatorStage) != 3 {
		t.Errorf("%d passes:\n%s", d.Rounds(MutatorStage), story(d))
	}
}

// Who applies is decided by what the object says of itself, in every pass and
// within it.
func TestSetFollowsTheKind(t *testing.T) {
	only := func(kind string, m Member) Member {
		m.Applies = func(gvk schema.GroupVersionKind, op admissionv1.Operation, _ policy.Source) bool {
			return gvk.Kind == kind && op == admissionv1.Create
		}
		return m
	}
	becomes := Member{Name: "Assign/kind", Policy: lenient(t, "k", `[JSONPatch{op: "replace", path: "/kind", value: "Gadget"}]`)}
	o := SetOptions{Members: []Member{
		only("Gadget", sets(t, "a", `1`, "")), only("Widget", sets(t, "b", `1`, "")), only("Widget", becomes),
		only("Widget", sets(t, "c", `1`, "")), only("Gadget", sets(t, "d", `1`, "")),
	}}
	d := admits(t, o, creates(widgetWith(map[string]any{})))
	want := "1 Assign/b changed /data/b\n1 Assign/kind changed /kind\n1 Assign/d changed /data/d\n2 Assign/a changed /data/a\n"
	if diff := cmp.Diff(want, story(d)); diff != "" {
		t.Error(diff)
	}
}

func TestSetRefuses(t *testing.T) {
	wrong := `[JSONPatch{op: "remove", path: "/spec: expected an object"}]`
	ok := sets(t, "a", `1`, "")
	tests := map[string]struct {
		bad     Member
		explain error
		want    string
	}{
		"a patch that does not apply": {
			bad: Member{Name: "Assign/b", Policy: lenient(t, "b", wrong)},
			want: "mutation u1 for mutator Assign/b failed for ex.io Widget shop w: JSON Patch: error in remove for path: " +
				"'/spec: expected an object': Unable to remove nonexistent key: spec: expected an object: missing value",
		},
		"in Gatekeeper's words": {
			bad: Member{Name: "Assign/b", Policy: lenient(t, "b", wrong)}, explain: errors.New("as Gatekeeper says"), want: "as Gatekeeper says",
		},
		"a condition that cannot be evaluated": {
			bad:  Member{Name: "Assign/b", Policy: lenient(t, "b", noPatch, condition(`object.nope == 1`))},
			want: "mutation u1 for mutator Assign/b failed for ex.io Widget shop w: expression 'object.nope == 1' resulted in error: no such key: nope",
		},
		"a panic": {
			bad:  Member{Name: "Assign/b", Policy: newPolicy(t, "b", run1(panics))},
			want: `mutation u1 for mutator Assign/b failed for ex.io Widget shop w: panic in policy "Assign/b": a string`,
		},
		"a policy that does not compile": {
			bad:  Member{Name: "Assign/b", Policy: policy.Broken(policyObject("b"), errors.New("broken"))},
			want: `mutation u1 for mutator Assign/b failed for ex.io Widget shop w: broken`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := SetOptions{Members: []Member{ok, tt.bad}}
			o.Explain = func(m int, obj, _ *unstructured.Unstructured, _ *policy.Request, _ *unstructured.Unstructured) error {
				if m != 1 || obj.Object["data"].(map[string]any)["a"] != int64(1) {
					t.Errorf("asked about member %d and %v", m, obj.Object)
				}
				return tt.explain
			}
			d := admits(t, o, creates(widgetWith(map[string]any{})))
			if d.Status == nil || d.Status.Message != tt.want || d.Status.Code != 500 || d.Changed || d.Rounds(MutatorStage) != 1 {
				t.Errorf("Admit = %+v, %+v\nwant %s", d, d.Status, tt.want)
			}
			if last := d.Steps[len(d.Steps)-1]; last.Outcome != Failed || last.Err == nil {
				t.Errorf("last step is %+v", last)
			}
		})
	}
}

// An explanation that panics is none.
func TestSetExplainPanics(t *testing.T) {
	o := SetOptions{Members: []Member{{Name: "Assign/b", Policy: lenient(t, "b", `[JSONPatch{op: "remove", path: "/x"}]`)}}}
	o.Explain = func(int, *unstructured.Unstructured, *unstructured.Unstructured, *policy.Request, *unstructured.Unstructured) error {
		panic("oops")
	}
	if d := admits(t, o, creates(widgetWith(nil))); d.Status == nil || !strings.Contains(d.Status.Message, "nonexistent key: x") {
		t.Errorf("status %+v", d.Status)
	}
}

func TestSetInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone home"))
	e := New(Options{})
	e.Publish(Mutators(NewSet(SetOptions{Members: []Member{sets(t, "a", `1`, "")}}), api.Enforce))
	d := e.Admit(ctx, creates(widgetWith(map[string]any{})))
	if d.Status == nil || d.Status.Reason != "Timeout" || !strings.Contains(d.Status.Message, "gone home") {
		t.Errorf("status %+v", d.Status)
	}
}

// In the shadow everything is as without the Set, which tells what it would do.
func TestSetShadow(t *testing.T) {
	for name, tt := range map[string]struct {
		member  Member
		changed bool
		refused bool
	}{
		"a change":  {member: sets(t, "a", `1`, ""), changed: true},
		"a refusal": {member: Member{Name: "Assign/b", Policy: lenient(t, "b", `[JSONPatch{op: "remove", path: "/x"}]`)}, refused: true},
		"nothing":   {member: Member{Name: "Assign/b", Policy: lenient(t, "b", noPatch)}},
	} {
		t.Run(name, func(t *testing.T) {
			req := creates(widgetWith(map[string]any{}))
			d := admitsAs(t, Options{}, Mutators(NewSet(SetOptions{Members: []Member{tt.member}}), api.Shadow), req)
			if d.Changed || d.Status != nil || d.Object != req.Object || d.Steps != nil {
				t.Errorf("Admit = %+v", d)
			}
			if s := d.Stage(MutatorStage); s == nil || s.Stage.Mode != api.Shadow || s.Changed != tt.changed || s.Status != nil != tt.refused || len(s.Steps) != 1 {
				t.Errorf("Shadow = %+v", s)
			}
		})
	}
}

// With a trace, steps hold the objects around each change, which later changes
// leave alone.
func TestSetTrace(t *testing.T) {
	o := SetOptions{Members: []Member{sets(t, "a", `1`, ""), sets(t, "b", `2`, "")}}
	d := admitsAs(t, Options{Trace: true}, Mutators(NewSet(o), api.Enforce), creates(widgetWith(map[string]any{})))
	var got []any
	for _, s := range d.Steps {
		got = append(got, s.Before.Object["data"], s.After.Object["data"])
	}
	one := map[string]any{"a": int64(1)}
	if diff := cmp.Diff([]any{map[string]any{}, one, one, map[string]any{"a": int64(1), "b": int64(2)}}, got); diff != "" {
		t.Error(diff)
	}
}

// The Set comes after the policies and sees what they made.
func TestSetAfterPolicies(t *testing.T) {
	e := New(Options{})
	policies := Policies(index(t, binding.Sources{Namespaces: namespaces{"shop"}}, newPolicy(t, "p", run1(write("1")))))
	e.Publish(policies, Mutators(NewSet(SetOptions{Members: []Member{
		{Name: "Assign/x", Policy: lenient(t, "x", `[JSONPatch{op: "add", path: "/data/x", value: object.data.log}]`)},
	}}), api.Enforce))
	d := e.Admit(t.Context(), creates(widgetWith(map[string]any{})))
	if got := data(d.Object, "x"); got == "" || got != data(d.Object, "log") || d.Rounds(MutatorStage) != 2 {
		t.Errorf("Admit = %+v", d)
	}
}

// Running only who was woken is the same as running everybody.
func TestSetWakesRandomly(t *testing.T) {
	hammer.Alone(t)
	fields := strings.Split("abcdef", "")
	for seed := range uint64(hammer.Count(300)) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		n := 1 + rnd.IntN(6)
		var some, everybody []Member
		type rule struct{ writes, reads string }
		rules := make([]rule, n)
		for i := range rules {
			rules[i] = rule{fields[rnd.IntN(len(fields))], fields[rnd.IntN(len(fields))]}
		}
		for i, r := range rules {
			// Writes a value that depends on what it reads, so that it may be
			// overwritten, and may never settle.
			expr := fmt.Sprintf(`has(object.data.%[2]s) ? [JSONPatch{op: "add", path: "/data/%[1]s", value: (object.data.%[2]s + %[3]d) %% %[4]d}] : []`,
				r.writes, r.reads, rnd.IntN(2), 1+rnd.IntN(3))
			m := Member{Name: fmt.Sprintf("Assign/%d", i), Policy: lenient(t, r.writes, expr)}
			all := m
			for j, o := range rules {
				all.Wakes = append(all.Wakes, j)
				if o.reads == r.writes || o.writes == r.writes {
					m.Wakes = append(m.Wakes, j)
				}
			}
			some, everybody = append(some, m), append(everybody, all)
		}
		given := map[string]any{}
		for _, f := range fields {
			if rnd.IntN(2) == 0 {
				given[f] = int64(rnd.IntN(3))
			}
		}
		want := admits(t, SetOptions{Members: everybody}, creates(widgetWith(given)))
		got := admits(t, SetOptions{Members: some}, creates(widgetWith(given)))
		if diff := cmp.Diff(want.Object, got.Object); diff != "" || want.Rounds(MutatorStage) != got.Rounds(MutatorStage) || (want.Status == nil) != (got.Status == nil) {
			t.Fatalf("seed %d, %v on %v: %d passes, want %d\n%s", seed, rules, given, got.Rounds(MutatorStage), want.Rounds(MutatorStage), diff)
		}
	}
}

// What a kind of request needs is found out once.
func TestSetRemembersKinds(t *testing.T) {
	asked := 0
	m := sets(t, "a", `1`, "")
	m.Applies = func(schema.GroupVersionKind, admissionv1.Operation, policy.Source) bool { asked++; return true }
	s := NewSet(SetOptions{Members: []Member{m, m}})
	e := New(Options{})
	e.Publish(Mutators(s, api.Enforce))
	for range 3 {
		e.Admit(t.Context(), creates(widgetWith(map[string]any{})))
	}
	if asked != 2 {
		t.Errorf("asked %d times, want 2", asked)
	}
	if got := s.candidates(kindKey{"ex.io/v1", "Widget", admissionv1.Create, policy.Original, true}).members; !slices.Equal(got, []int{0, 1}) {
		t.Errorf("candidates = %v", got)
	}
}

// An exception keeps a member from the object in all passes, and is noted once, if the member
// would have run; nobody fails or is woken by it.
func TestSetExceptions(t *testing.T) {
	var list []*binding.Exception
	for name, policies := range map[string][]string{"b": {"Assign/b"}, "others": {"Assign/fails", "Assign/unmatched", "a", "ModifySet/a"}} {
		x, err := binding.CompileException(&api.PolicyException{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: api.ExceptionSpec{Policies: policies, Reason: "r", Until: "2999-01-31T00:00:00Z"},
		}, api.ExceptionRules{})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
	xs, _ := binding.NewExceptions(list, time.Now)
	fails := Member{Name: "Assign/fails", Policy: lenient(t, "fails", `[JSONPatch{op: "remove", path: "/none"}]`)}
	o := SetOptions{
		Members: []Member{sets(t, "a", `1`, "b"), sets(t, "b", `1`, "", 0), sets(t, "c", `1`, "", 0, 1, 2, 3, 4), fails, sets(t, "unmatched", `1`, "")},
		Sources: &binding.Sources{Exceptions: func() *binding.Exceptions { return xs }},
		WhyNot: func(m int, _ *unstructured.Unstructured, _ *policy.Request, _ *unstructured.Unstructured) string {
			if m == 4 {
				return "another name"
			}
			return ""
		},
	}
	set := NewSet(o)
	e := New(Options{})
	e.Publish(Mutators(set, api.Enforce))
	req := creates(widgetWith(map[string]any{}))
	d := e.Admit(t.Context(), req)
	if d.Status != nil || !cmp.Equal(d.Object.Object["data"], any(map[string]any{"c": int64(1)})) {
		t.Fatalf("status %v, object %v", d.Status, d.Object.Object["data"])
	}
	var got []string
	for _, out := range d.LeftOut {
		got = append(got, out.Stage+" "+out.Policy+" "+out.Exception.Name())
	}
	if want := []string{"mutators Assign/b shop/b", "mutators Assign/fails shop/others"}; !slices.Equal(got, want) {
		t.Errorf("left out %v, want %v", got, want)
	}
	got = nil
	for m := range e.Misses(t.Context(), req, d) {
		if m.Exception != nil {
			got = append(got, m.Member+" "+m.Exception.Name()+m.Reason)
		}
	}
	if want := []string{"Assign/b shop/b", "Assign/fails shop/others"}; !slices.Equal(got, want) {
		t.Errorf("missed %v, want %v", got, want)
	}
	elsewhere := creates(widgetWith(map[string]any{}))
	elsewhere.Namespace = "other"
	if d := e.Admit(t.Context(), elsewhere); d.Status == nil || len(d.LeftOut) > 0 {
		t.Errorf("in another namespace: status %v, left out %v", d.Status, d.LeftOut)
	}
}
