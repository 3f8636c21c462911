package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

func inMode(m api.Mode) option {
	return func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
		p.Annotations = map[string]string{api.ModeAnnotation: m.String()}
	}
}

// sketch writes what shadows would have done as lines.
func sketch(shadows []Shadow) (out []string) {
	for i := range shadows {
		s := &shadows[i]
		line := fmt.Sprintf("%s %s/%s", s.Mode, s.Policy, s.Binding)
		if s.Param != "" {
			line += " " + s.Param
		}
		if s.Changed() {
			line += fmt.Sprintf(" %q to %q", data(s.Before, "log"), data(s.After, "log"))
		}
		if s.Status != nil {
			line += fmt.Sprintf(" refused %d", s.Status.Code)
		}
		if err := s.Err(); err != nil {
			line += ": " + err.Error()
		}
		out = append(out, line)
	}
	return out
}

// What is not enforced sees what the enforced policies before it made, and nobody sees
// what it made.
func TestShadows(t *testing.T) {
	src := binding.Sources{Namespaces: namespaces{"t1"}, Params: params{"one", "two"}}
	tests := map[string]struct {
		policies []*policy.Policy
		src      *binding.Sources
		log      string
		want     []string
		steps    int
	}{
		"between enforced ones": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a"))), newPolicy(t, "b", run1(write("b")), inMode(api.Shadow)), newPolicy(t, "c", run1(write("c"), write("d")), inMode(api.Warn)), newPolicy(t, "e", run1(write("e")))},
			log:      "ae", steps: 2, want: []string{`shadow b/b-b "a" to "ab"`, `warn c/b-c "a" to "acd"`},
		},
		"nothing is enforced": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a")), inMode(api.Shadow)), newPolicy(t, "b", run1(noop), inMode(api.Shadow))},
			want:     []string{`shadow a/b-a "" to "a"`, `shadow b/b-b`},
		},
		"each parameter": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(param), paramKind("ConfigMap"), inMode(api.Shadow)), newPolicy(t, "b", run1(write("b")))},
			log:      "b", steps: 1, want: []string{`shadow a/b-a t1/one "" to "one"`, `shadow a/b-a t1/two "" to "two"`},
		},
		"failures": {
			policies: []*policy.Policy{
				newPolicy(t, "a", run1(write("x"), fails(errors.New("bad luck"))), inMode(api.Shadow)), newPolicy(t, "b", run1(panics), inMode(api.Shadow)),
				newPolicy(t, "c", run1(noop), paramKind("Nope"), inMode(api.Shadow)), newPolicy(t, "d", run1(fails(errors.New("no"))), ignore, inMode(api.Warn)),
				newPolicy(t, "e", run1(write("e"))),
			},
			log: "e", steps: 1,
			want: []string{
				"shadow a/b-a refused 403: bad luck", `shadow b/b-b refused 403: panic in policy "b": a string`,
				`shadow c/ refused 403: failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nope'`, "warn d/b-d: no",
			},
		},
		"the namespace is unknown": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a")), inMode(api.Shadow))}, src: &binding.Sources{Namespaces: namespaces{}},
			want: []string{`shadow a/b-a refused 404: namespaces "t1" not found`},
		},
		"once": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a")), ifNeeded), newPolicy(t, "b", run1(write("b")), ifNeeded, inMode(api.Shadow))},
			log:      "aa", steps: 2, want: []string{`shadow b/b-b "a" to "ab"`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.src == nil {
				tt.src = &src
			}
			if len(tt.policies) == 1 {
				tt.policies = append(tt.policies, newPolicy(t, "z", run1(noop), selecting("no", "where")))
			}
			e := New(Options{})
			e.Publish(Policies(index(t, *tt.src, tt.policies...)))
			req := request()
			given := req.Object.DeepCopy()
			d := e.Admit(t.Context(), req)
			if d.Status != nil || data(d.Object, "log") != tt.log || d.Changed != (tt.log != "") || len(d.Steps) != tt.steps {
				t.Errorf("Admit = %+v, %+v", d, d.Status)
			}
			if diff := cmp.Diff(tt.want, sketch(d.Stage(PolicyStage).Shadows)); diff != "" {
				t.Errorf("shadows (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(given, req.Object); diff != "" {
				t.Errorf("the request's object was modified:\n%s", diff)
			}
		})
	}
}

// A Decision names what shares left out, whether or not a policy ran.
func TestLeftOut(t *testing.T) {
	p, q := newPolicy(t, "p", run1(write("p")), inMode(api.Shadow)), newPolicy(t, "q", run1(write("q")))
	bound := func(name, of, percent string) *binding.Binding {
		obj := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
		obj.Name, obj.Spec.PolicyName = name, of
		obj.Annotations = map[string]string{api.PercentAnnotation: percent}
		b, err := binding.Compile(obj)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tt := range map[string]struct {
		percent string // of q
		stage   api.Mode
		want    []binding.LeftOut
		stages  int
	}{
		"one runs":             {percent: "100", stages: 1, want: []binding.LeftOut{{Stage: PolicyStage, Policy: "p", Binding: "b-p", Mode: api.Shadow}}},
		"none runs":            {percent: "0", want: []binding.LeftOut{{Stage: PolicyStage, Policy: "p", Binding: "b-p", Mode: api.Shadow}, {Stage: PolicyStage, Policy: "q", Binding: "b-q", Mode: api.Enforce}}},
		"the stage is aside":   {percent: "0", stage: api.Shadow, want: []binding.LeftOut{{Stage: PolicyStage, Policy: "p", Binding: "b-p", Mode: api.Shadow}, {Stage: PolicyStage, Policy: "q", Binding: "b-q", Mode: api.Enforce}}},
		"the stage is not run": {percent: "0", stage: api.Off},
	} {
		t.Run(name, func(t *testing.T) {
			ix, err := binding.NewIndex([]*policy.Policy{p, q}, []*binding.Binding{bound("b-p", "p", "0"), bound("b-q", "q", tt.percent)}, binding.Sources{Namespaces: namespaces{"t1"}})
			if err != nil {
				t.Fatal(err)
			}
			stage := Policies(ix)
			stage.Mode = tt.stage
			e := New(Options{})
			e.Publish(stage)
			d := e.Admit(t.Context(), request())
			if diff := cmp.Diff(tt.want, d.LeftOut); diff != "" || len(d.Stages) != tt.stages {
				t.Errorf("%d stages, LeftOut (-want +got):\n%s", len(d.Stages), diff)
			}
			if d := e.Admit(t.Context(), &policy.Request{Operation: "CREATE"}); d.LeftOut != nil {
				t.Errorf("another request has %v", d.LeftOut)
			}
		})
	}
}

// Requests are decided as if the policies that are not enforced did not exist, and each
// of these does what it would do if it were the last that is enforced.
func TestShadowsChangeNothing(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	mutators := []mutator{noop, write("x"), write("y"), label("a"), label("b"), panics, tears, fails(errors.New("no"))}
	options := []option{
		ifNeeded, ignore, selecting("app", "a"), selecting("app", "b"), onVersion("v2"), paramKind("Nope"), paramKind("ConfigMap"),
		condition("has(object.metadata.labels)"), condition("!has(object.metadata.labels)"), condition("object.data.log == 'x'"),
	}
	convert := func(obj *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error) {
		return WithVersion(obj, to), nil
	}
	src := binding.Sources{Namespaces: namespaces{"t1"}, Params: params{"one"}, Equivalents: otherVersions}
	admit := func(policies, all []*policy.Policy) *Decision {
		ix, err := binding.NewIndex(policies, index(t, src, append(all, newPolicy(t, "z", nil))...).Bindings(), src)
		if err != nil {
			t.Fatal(err)
		}
		e := New(Options{Convert: convert})
		e.Publish(Policies(ix))
		return e.Admit(t.Context(), request())
	}
	changed := 0
	for range 500 {
		var all, enforced []*policy.Policy
		var mutates [][]policy.Mutator
		var written [][]option
		for i := range 2 + rnd.Intn(4) {
			var opts []option
			for _, o := range options {
				if rnd.Intn(len(options)) == 0 {
					opts = append(opts, o)
				}
			}
			mode := api.Mode(rnd.Intn(3))
			ms := run1(mutators[rnd.Intn(len(mutators))])
			p := newPolicy(t, fmt.Sprintf("p%d", i), ms, append(opts, inMode(mode))...)
			if all = append(all, p); mode == api.Enforce {
				enforced = append(enforced, p)
			}
			mutates, written = append(mutates, ms), append(written, opts)
		}
		want, got := admit(enforced, all), admit(all, all)
		if diff := cmp.Diff(append(record(want.Steps), describe(want.Status)...), append(record(got.Steps), describe(got.Status)...)); diff != "" {
			t.Fatalf("%+v: (-without +with):\n%s", specs(all), diff)
		}
		if max(1, want.Rounds(PolicyStage)) != max(1, got.Rounds(PolicyStage)) || want.Changed != got.Changed || !tree.Equal(want.Object.Object, got.Object.Object) {
			t.Fatalf("%+v: %d rounds, %v; want %d, %v", specs(all), got.Rounds(PolicyStage), got.Object, want.Rounds(PolicyStage), want.Object)
		}
		r := got.Stage(PolicyStage)
		if r == nil {
			continue
		}
		for i := range r.Shadows {
			s := &r.Shadows[i]
			at := slices.IndexFunc(all, func(p *policy.Policy) bool { return p.Name() == s.Policy })
			// Only what the enforced ones before it made; of their first round only.
			var before []*policy.Policy
			for _, p := range all[:at] {
				if p.Rollout().Mode == api.Enforce && p.Object().Spec.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy {
					before = append(before, p)
				} else if p.Rollout().Mode == api.Enforce {
					before = nil
					break
				}
			}
			if s.Changed() && len(before) == len(slices.DeleteFunc(slices.Clone(all[:at]), func(p *policy.Policy) bool { return p.Rollout().Mode != api.Enforce })) && s.Status == nil {
				last := newPolicy(t, s.Policy, mutates[at], written[at]...)
				if d := admit(append(before, last), all); d.Status == nil && last.Object().Spec.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy && !tree.Equal(d.Object.Object, s.After.Object) {
					t.Fatalf("%+v: shadow %s made %v, enforced %v", specs(all), s.Policy, s.After, d.Object)
				}
				changed++
			}
		}
	}
	if changed < 50 {
		t.Errorf("%d shadows would have changed the object, which says little", changed)
	}
}

// A shadow that needs too much memory or time takes neither from the request.
func TestShadowIsBounded(t *testing.T) {
	budget := memory.New(8 << 20)
	hungry := mutator(func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		return nil, in.Request.Memory.Charge(5 << 20)
	})
	modest := mutator(func(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		if err := in.Request.Memory.Charge(1 << 20); err != nil {
			return nil, err
		}
		return write("m")(ctx, in)
	})
	large := func(bytes int64) policy.Mutator {
		return mutator(func(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
			if err := in.Request.Memory.Charge(bytes); err != nil {
				return nil, err
			}
			return write("e")(ctx, in)
		})
	}
	var deadline time.Time
	var spare time.Duration
	waits := mutator(func(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		deadline, _ = ctx.Deadline()
		spare = time.Until(deadline)
		return in.Object, nil
	})
	e := New(Options{})
	e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}},
		newPolicy(t, "a", run1(hungry), inMode(api.Shadow)), newPolicy(t, "b", run1(modest), inMode(api.Shadow)),
		newPolicy(t, "c", run1(waits), inMode(api.Shadow)), newPolicy(t, "e", run1(large(3<<20))))))
	req := request()
	req.Memory = budget.Open()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	d := e.Admit(ctx, req)
	if d.Status != nil || data(d.Object, "log") != "e" || req.Memory.Refused() != nil {
		t.Errorf("Admit = %+v, %+v", d, d.Status)
	}
	want := []string{
		"shadow a/b-a refused 413: memory: the request needs more than 4 MiB, the most that one request may have",
		`shadow b/b-b "" to "m"`, "shadow c/b-c",
	}
	if diff := cmp.Diff(want, sketch(d.Stage(PolicyStage).Shadows)); diff != "" {
		t.Errorf("shadows (-want +got):\n%s", diff)
	}
	if end, _ := ctx.Deadline(); spare > 31*time.Minute || spare <= 0 || !deadline.Before(end) {
		t.Errorf("a shadow has %v of an hour", spare)
	}
	if got := budget.Used(); got < 4<<20 {
		t.Errorf("%d bytes are used while the request goes on", got)
	}
	req.Memory.Close()
	if tooLarge, busy := budget.Refused(memory.TooLarge), budget.Refused(memory.Busy); tooLarge != 0 || busy != 0 {
		t.Errorf("%d and %d refusals were counted", tooLarge, busy)
	}

	// What is enforced has all memory and all time, even after a shadow in the order.
	var left time.Duration
	rests := mutator(func(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	measures := mutator(func(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		left = time.Until(deadlineOf(ctx))
		return in.Object, nil
	})
	synctest.Test(t, func(t *testing.T) {
		// In the bubble, time passes only while all wait.
		budget := memory.New(8 << 20)
		e := New(Options{})
		e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}},
			newPolicy(t, "a", run1(modest), inMode(api.Shadow)), newPolicy(t, "b", run1(rests), inMode(api.Shadow)), newPolicy(t, "c", run1(modest), inMode(api.Warn)),
			newPolicy(t, "d", run1(measures)), newPolicy(t, "e", run1(large(6<<20))))))
		req := request()
		req.Memory = budget.Open()
		defer req.Memory.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		d := e.Admit(ctx, req)
		if d.Status != nil || data(d.Object, "log") != "e" || left != time.Hour {
			t.Errorf("Admit = %+v, %+v; %v were left", d, d.Status, left)
		}
		want := []string{
			"shadow a/b-a refused 429: memory: other requests hold what requests may have together; try again",
			"shadow b/b-b refused 504: policies that are not enforced have used their half of the time that was left",
			"warn c/b-c refused 504: Timeout: evaluation of mutating admission policies stopped: policies that are not enforced have used their half of the time that was left",
		}
		if diff := cmp.Diff(want, sketch(d.Stage(PolicyStage).Shadows)); diff != "" {
			t.Errorf("shadows (-want +got):\n%s", diff)
		}
		if left := time.Until(deadlineOf(ctx)); left != 30*time.Minute {
			t.Errorf("%v are left to answer", left)
		}
	})
}

func deadlineOf(ctx context.Context) time.Time {
	end, _ := ctx.Deadline()
	return end
}

// A stage that is not enforced takes neither memory, time nor questions from the others,
// and its panic is its own.
func TestShadowStageIsAlone(t *testing.T) {
	budget := memory.New(8 << 20)
	hungry := mutator(func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		return nil, in.Request.Memory.Charge(5 << 20)
	})
	asks := func(prefix string, n int) policy.Mutator {
		return mutator(func(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
			for i := range n {
				if _, err := in.Outside.External(ctx, "p", []string{fmt.Sprint(prefix, i)}); err != nil {
					return nil, err
				}
			}
			return write(prefix)(ctx, in)
		})
	}
	shadow := func(name string, r Runner) Stage { return Stage{Name: name, Mode: api.Shadow, Runner: r} }
	ixOf := func(ms ...policy.Mutator) Stage {
		var ps []*policy.Policy
		for i, m := range ms {
			ps = append(ps, newPolicy(t, fmt.Sprintf("p%d", i), run1(m)))
		}
		return Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}}, append(ps, newPolicy(t, "z", run1(noop), selecting("no", "where")))...))
	}
	inside := ixOf(write("s"))
	inside.Runner = Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}}, newPolicy(t, "a", run1(write("a"))), newPolicy(t, "b", run1(write("b")), inMode(api.Shadow)))).Runner
	e := New(Options{Resolver: echo{}})
	e.Publish(
		shadow("hungry", ixOf(hungry).Runner),
		shadow("curious", ixOf(asks("x", maxCalls)).Runner),
		shadow("panics", runnerFunc(func(context.Context, *Admission) (Result, bool) { panic("secret") })),
		shadow("inside", inside.Runner),
		shadow("missed", ixOf().Runner),
		ixOf(asks("y", maxCalls)),
		shadow("after", ixOf(write("z")).Runner),
	)
	req := request()
	req.Memory = budget.Open()
	defer req.Memory.Close()
	d := e.Admit(t.Context(), req)
	if d.Status != nil || data(d.Object, "log") != "y" || req.Memory.Refused() != nil || len(d.Steps) != 1 {
		t.Errorf("Admit = %+v, %+v", d, d.Status)
	}
	var got []string
	for i := range d.Stages {
		r := &d.Stages[i]
		line := fmt.Sprintf("%s %q %v %v", r.Stage.Name, data(r.Object, "log"), r.Changed, sketch(r.Shadows))
		if r.Status != nil {
			line += ": " + r.Status.Message
		}
		got = append(got, line)
	}
	want := []string{
		`hungry "" false []: Request entity too large: memory: the request needs more than 4 MiB, the most that one request may have`,
		`curious "x" true []`,
		`panics "" false []: Internal error occurred: panic in stage "panics": a string`,
		`inside "a" true [shadow b/b-b "a" to "ab"]`,
		`policies "y" true []`,
		`after "yz" true []`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// runnerFunc is a Runner of one function.
type runnerFunc func(context.Context, *Admission) (Result, bool)

func (f runnerFunc) Run(ctx context.Context, a *Admission) (Result, bool) { return f(ctx, a) }

// echo answers each question with its key.
type echo struct{}

func (echo) Resolve(_ context.Context, questions []Question, _ bool) []Answer {
	out := make([]Answer, len(questions))
	for i, q := range questions {
		out[i].Value = q.Key
	}
	return out
}

// A shadow that waits for a place in the lane does not wait for its own request.
func TestShadowLeavesTheLane(t *testing.T) {
	long := mutator(func(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		for range 3 * (freeYields + laneYields) {
			if err := in.Turn.Yield(ctx); err != nil {
				return nil, err
			}
		}
		return in.Object, nil
	})
	e := New(Options{})
	e.lane = make(lane, 1)
	e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}},
		newPolicy(t, "a", run1(long)), newPolicy(t, "b", run1(long), inMode(api.Shadow)), newPolicy(t, "c", run1(long)))))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if d := e.Admit(ctx, request()); d.Status != nil || d.Stage(PolicyStage).Shadows[0].Err() != nil {
		t.Errorf("Admit = %+v, %v", d, sketch(d.Stage(PolicyStage).Shadows))
	}
	if len(e.lane) != 0 {
		t.Error("a place in the lane is left taken")
	}
}
