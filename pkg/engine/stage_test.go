package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Each stage has its mode and its record, whichever stage it is.
func TestStageModes(t *testing.T) {
	fails := mutator(func(context.Context, policy.Input) (*unstructured.Unstructured, error) { return nil, errors.New("no") })
	for _, tt := range []struct {
		name              string
		policies          []*policy.Policy
		mutates           string // the value of the mutator
		policy, mutator   api.Mode
		log, x            string // of the object
		records, steps    []string
		denied, unchanged bool
	}{
		{name: "both on", log: "1", x: "1", records: []string{"policies on changed", "mutators on changed"}, steps: []string{"policies", "mutators", "mutators"}},
		{name: "policies in shadow", policy: api.Shadow, x: "none", records: []string{"policies shadow changed", "mutators on changed"}, steps: []string{"mutators", "mutators"}},
		{name: "mutators in shadow", mutator: api.Shadow, log: "1", records: []string{"policies on changed", "mutators shadow changed"}, steps: []string{"policies"}},
		{name: "both in shadow", policy: api.Shadow, mutator: api.Shadow, unchanged: true, records: []string{"policies shadow changed", "mutators shadow changed"}},
		{name: "policies off", policy: api.Off, x: "none", records: []string{"mutators on changed"}, steps: []string{"mutators", "mutators"}},
		{name: "both off", policy: api.Off, mutator: api.Off, unchanged: true},
		{
			name: "refused", policies: []*policy.Policy{newPolicy(t, "p", run1(fails))}, denied: true, unchanged: true,
			records: []string{"policies on refused"}, steps: []string{"policies"},
		},
		{
			name: "refused in shadow", policies: []*policy.Policy{newPolicy(t, "p", run1(fails))}, policy: api.Shadow, x: "none",
			records: []string{"policies shadow refused", "mutators on changed"}, steps: []string{"mutators", "mutators"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.policies == nil {
				tt.policies = []*policy.Policy{newPolicy(t, "p", run1(write("1")))}
			}
			policies := Policies(index(t, binding.Sources{Namespaces: namespaces{"shop"}}, tt.policies...))
			policies.Mode = tt.policy
			e := New(Options{})
			e.Publish(policies, Mutators(NewSet(SetOptions{Members: []Member{{Name: "Assign/x", Wakes: []int{0}, Policy: lenient(t, "x",
				`[JSONPatch{op: "add", path: "/data/x", value: has(object.data.log) ? object.data.log : "none"}]`)}}}), tt.mutator))
			req := creates(widgetWith(map[string]any{}))
			d := e.Admit(t.Context(), req)
			var records []string
			for _, r := range d.Stages {
				outcome := "unchanged"
				switch {
				case r.Status != nil:
					outcome = "refused"
				case r.Changed:
					outcome = "changed"
				}
				records = append(records, fmt.Sprintf("%s %s %s", r.Stage.Name, ModeWord(r.Stage.Mode), outcome))
				if len(r.Steps) == 0 || r.Rounds == 0 || r.Changed != (r.Object != req.Object && !tree.Equal(r.Object.Object, req.Object.Object)) {
					t.Errorf("record %+v", r)
				}
			}
			if diff := cmp.Diff(tt.records, records); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			var steps []string
			for _, s := range d.Steps {
				steps = append(steps, s.Stage)
			}
			if diff := cmp.Diff(tt.steps, steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if log, x := data(d.Object, "log"), data(d.Object, "x"); log != tt.log || x != tt.x {
				t.Errorf("log %q, x %q, want %q, %q", log, x, tt.log, tt.x)
			}
			if d.Changed == tt.unchanged || (d.Object == req.Object) != tt.unchanged || (d.Status != nil) != tt.denied {
				t.Errorf("Admit = %+v", d)
			}
		})
	}
}

// A mutator that is not CEL works on the draft as others do: nothing is copied for it,
// its paths are recorded, and what is equal is no change.
func TestForeignMutatorInDraft(t *testing.T) {
	var drafts int
	foreign := mutator(func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		if in.Draft != nil && in.Draft.Object() == in.Object {
			drafts++
		}
		return in.Object, nil
	})
	equal := mutator(func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		return in.Object.DeepCopy(), nil
	})
	twice := mutator(func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		// One container in two places, which the next mutation must not take for its own.
		u := &unstructured.Unstructured{Object: map[string]any{}}
		for k, v := range in.Object.Object {
			u.Object[k] = v
		}
		u.Object["spec"] = in.Object.Object["data"]
		return u, nil
	})
	p := lenient(t, "x", `[JSONPatch{op: "add", path: "/data/a", value: 1}]`)
	q := lenient(t, "y", `[JSONPatch{op: "add", path: "/data/b", value: 2}]`)
	member := func(name string, m policy.Mutator) Member {
		return Member{Name: name, Policy: newPolicy(t, strings.ToLower(name), run1(m))}
	}
	d := admits(t, SetOptions{Members: []Member{
		{Name: "A", Policy: p}, member("B", foreign), member("C", equal), member("D", twice), {Name: "E", Policy: q},
	}}, creates(widgetWith(map[string]any{})))
	want := "1 A changed /data/a\n1 B unchanged \n1 C unchanged \n1 D changed /spec\n1 E changed /data/b\n"
	if got := story(d); got != want || drafts != 1 {
		t.Errorf("%d times with the draft, steps\n%swant\n%s", drafts, got, want)
	}
	if diff := cmp.Diff(map[string]any{"a": int64(1)}, d.Object.Object["spec"]); diff != "" {
		t.Errorf("a later mutation wrote to what a foreign one made (-want +got):\n%s", diff)
	}
}

// Mutators of a Set take turns in the lane and have their growth counted, as policies.
func TestSetHasTurnAndGrowth(t *testing.T) {
	seen := false
	m := mutator(func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		seen = in.Turn != nil && in.Grown != nil && in.Cost != nil
		return in.Object, nil
	})
	admits(t, SetOptions{Members: []Member{{Name: "A", Policy: newPolicy(t, "a", run1(m))}}}, creates(widgetWith(nil)))
	if !seen {
		t.Error("a mutator has no turn or no growth")
	}
}

// lookups is a stage whose members each want a value from outside. It asks for all of
// them at once and writes what it gets.
type lookups struct {
	keys []string
}

func (l lookups) Run(_ context.Context, a *Admission) (result Result, met bool) {
	var questions []Question
	for _, k := range l.keys {
		source, key, _ := strings.Cut(k, ":")
		questions = append(questions, Question{source, key})
	}
	data := map[string]any{}
	for i, answer := range a.Ask(questions) {
		step := Step{Stage: "lookups", Round: 1, Policy: l.keys[i], Outcome: Changed}
		if answer.Err != nil {
			result.Status = &metav1.Status{Message: answer.Err.Error()}
			step.Outcome, step.Err = Failed, answer.Err
		}
		data[l.keys[i]] = answer.Value
		result.Steps = append(result.Steps, step)
	}
	result.Rounds = 1
	result.Object = map[string]any{"apiVersion": "ex.io/v1", "kind": "Widget", "data": data}
	return result, true
}

// catalog answers from memory, and records what it was asked.
type catalog struct {
	values map[Question]string
	asked  [][]Question
	dryRun bool
	answer func(context.Context, []Question) []Answer
}

func (c *catalog) Resolve(ctx context.Context, questions []Question, dryRun bool) []Answer {
	c.asked, c.dryRun = append(c.asked, slices.Clone(questions)), dryRun
	if c.answer != nil {
		return c.answer(ctx, questions)
	}
	answers := make([]Answer, len(questions))
	for i, q := range questions {
		value, ok := c.values[q]
		if !ok {
			answers[i].Err = fmt.Errorf("%s knows no %q", q.Source, q.Key)
		}
		answers[i].Value = value
	}
	return answers
}

func asks(t *testing.T, o Options, req *policy.Request, keys ...string) *Decision {
	e := New(o)
	e.Publish(Stage{Name: "lookups", Member: "lookup", Round: "round", Rounds: "rounds", Runner: lookups{keys: keys}})
	return e.Admit(t.Context(), req)
}

// A stage asks once for all its members.
func TestAsk(t *testing.T) {
	c := &catalog{values: map[Question]string{{"a", "x"}: "1", {"a", "y"}: "2", {"b", "x"}: "3"}}
	req := creates(widgetWith(nil))
	req.DryRun = true
	budget := memory.New(8 << 20)
	req.Memory = budget.Open()
	defer req.Memory.Close()
	d := asks(t, Options{Resolver: c}, req, "a:x", "b:x", "a:x", "a:y")
	if diff := cmp.Diff(map[string]any{"a:x": "1", "b:x": "3", "a:y": "2"}, d.Object.Object["data"]); diff != "" || d.Status != nil {
		t.Errorf("status %v, data (-want +got):\n%s", d.Status, diff)
	}
	if diff := cmp.Diff([][]Question{{{"a", "x"}, {"b", "x"}, {"a", "y"}}}, c.asked); diff != "" || !c.dryRun {
		t.Errorf("dry run %v, asked (-want +got):\n%s", c.dryRun, diff)
	}

	d = asks(t, Options{Resolver: c}, creates(widgetWith(nil)), "a:x", "a:z")
	if d.Status == nil || d.Status.Message != `a knows no "z"` || c.dryRun {
		t.Errorf("status %+v, dry run %v", d.Status, c.dryRun)
	}
}

// Without a usable answer there is an error.
func TestAskFails(t *testing.T) {
	value := func(size int) func(context.Context, []Question) []Answer {
		return func(context.Context, []Question) []Answer { return []Answer{{Value: strings.Repeat("v", size)}, {}} }
	}
	for want, answer := range map[string]func(context.Context, []Question) []Answer{
		"0 answers to 2 questions":                            func(context.Context, []Question) []Answer { return nil },
		"panic while asking outside: a string":                func(context.Context, []Question) []Answer { panic("oops") },
		"the answers have 1048577 bytes, more than 1048576":   value(maxAnswers + 1),
		"memory: the request needs more than 0 MiB, the most": value(maxAnswers),
	} {
		budget := memory.New(64 << 10)
		req := creates(widgetWith(nil))
		req.Memory = budget.Open()
		d := asks(t, Options{Resolver: &catalog{answer: answer}}, req, "a:x", "a:y")
		if d.Status == nil || !strings.HasPrefix(d.Status.Message, want) {
			t.Errorf("status %+v, want %s", d.Status, want)
		}
		req.Memory.Close()
	}
	if d := asks(t, Options{}, creates(widgetWith(nil)), "a:x"); d.Status == nil || d.Status.Message != "nothing outside can be asked" {
		t.Errorf("status %+v", d.Status)
	}
	if d := asks(t, Options{}, creates(widgetWith(nil))); d.Status != nil {
		t.Errorf("status %+v of a stage that asks nothing", d.Status)
	}
}

func TestAskEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &catalog{answer: func(ctx context.Context, questions []Question) []Answer {
			<-ctx.Done()
			return make([]Answer, len(questions))
		}}
		start := time.Now()
		d := asks(t, Options{Resolver: slow}, creates(widgetWith(nil)), "a:x")
		if d.Status == nil || !strings.HasPrefix(d.Status.Message, "asking outside took too long: ") || time.Since(start) != maxAsking {
			t.Errorf("after %v: %+v", time.Since(start), d.Status)
		}
	})
}
