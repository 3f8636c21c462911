package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// pends is a member that has something pending in fields of the data.
func pends(t *testing.T, name string, pending tree.Pending, fields ...string) Member {
	return Member{Name: "Assign/" + name, Asks: true, Policy: lenient(t, name, noPatch).With(mutator(
		func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
			data := map[string]any{}
			for k, v := range in.Object.Object["data"].(map[string]any) {
				data[k] = v
			}
			for _, f := range fields {
				data[f] = new(pending)
			}
			out := map[string]any{}
			for k, v := range in.Object.Object {
				out[k] = v
			}
			out["data"] = data
			return &unstructured.Unstructured{Object: out}, nil
		}))}
}

// All that members ask for is asked in one call after the last pass, each question
// once, and a trace has the answers.
func TestSetAsks(t *testing.T) {
	a := &catalog{values: map[Question]string{{"p", "k"}: "v", {"q", "k"}: "w"}}
	o := SetOptions{Members: []Member{
		pends(t, "a", tree.Pending{Source: "nobody", Key: "k", Must: true}, "x"),
		pends(t, "b", tree.Pending{Source: "p", Key: "k", Must: true}, "x", "y"),
		pends(t, "c", tree.Pending{Source: "p", Key: "gone", Fallback: "f"}, "z"),
		pends(t, "d", tree.Pending{Source: "q", Key: "k"}, "u"),
		sets(t, "s", `"plain"`, ""),
	}}
	d := admitsAs(t, Options{Resolver: a, Trace: true}, Mutators(NewSet(o), api.Enforce), creates(widgetWith(map[string]any{})))
	want := map[string]any{"x": "v", "y": "v", "z": "f", "u": "w", "s": "plain"}
	if diff := cmp.Diff(want, d.Object.Object["data"]); diff != "" || d.Status != nil {
		t.Errorf("status %v, (-want +got):\n%s", d.Status, diff)
	}
	if len(a.asked) != 1 || len(a.asked[0]) != 3 || slices.Contains(a.asked[0], Question{"nobody", "k"}) {
		t.Errorf("asked %v", a.asked)
	}
	last := d.Steps[len(d.Steps)-1]
	if diff := cmp.Diff(want, last.After.Object["data"]); diff != "" {
		t.Errorf("the trace ends otherwise:\n%s", diff)
	}
	if got := d.Steps[0].After.Object["data"].(map[string]any)["x"]; got != `<what nobody has for "k">` {
		t.Errorf("what was written over is %v", got)
	}
}

// Without answers, each message is there once, and the step that asked has failed.
func TestSetAsksInVain(t *testing.T) {
	a := &catalog{answer: func(_ context.Context, questions []Question) []Answer {
		out := make([]Answer, len(questions))
		for i, q := range questions {
			out[i].Err = errors.New(map[string]string{"p": "no", "q": "never"}[q.Source])
		}
		return out
	}}
	o := SetOptions{Members: []Member{
		pends(t, "a", tree.Pending{Source: "p", Key: "k", Must: true}, "x", "y"),
		pends(t, "b", tree.Pending{Source: "p", Key: "l", Must: true}, "z"),
		pends(t, "c", tree.Pending{Source: "q", Key: "k", Must: true}, "b"),
	}}
	d := admitsAs(t, Options{Resolver: a}, Mutators(NewSet(o), api.Enforce), creates(widgetWith(map[string]any{})))
	if d.Status == nil || d.Status.Message != "failed to resolve external data placeholders: [never, no]" || d.Changed {
		t.Fatalf("Admit = %+v, %+v", d, d.Status)
	}
	want := "1 Assign/a changed /data/x /data/y\n1 Assign/b changed /data/z\n1 Assign/c changed /data/b\n2 Assign/c failed \n2 Assign/a failed \n"
	if diff := cmp.Diff(want, story(d)); diff != "" {
		t.Error(diff)
	}
	d = admitsAs(t, Options{}, Mutators(NewSet(o), api.Enforce), creates(widgetWith(map[string]any{})))
	if d.Status == nil || !strings.Contains(d.Status.Message, errNoResolver.Error()) {
		t.Errorf("without a Resolver: %+v", d.Status)
	}
}

// A label that is pending hides no other, and is not there itself.
func TestSetLabelsWhileAsking(t *testing.T) {
	req := creates(widgetWith(map[string]any{}))
	req.Object.SetLabels(map[string]string{"app": "web"})
	labels := func(in policy.Input) map[string]any {
		return in.Object.Object["metadata"].(map[string]any)["labels"].(map[string]any)
	}
	waits := Member{Name: "AssignMetadata/a", Asks: true, Wakes: []int{1}, Policy: lenient(t, "a", noPatch).With(mutator(
		func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
			if _, there := labels(in)["owner"]; there {
				return in.Object, nil
			}
			out := in.Object.DeepCopy()
			labels(policy.Input{Object: out})["owner"] = &tree.Pending{Source: "p", Key: "alice"}
			return out, nil
		}))}
	o := SetOptions{Members: []Member{waits, {Name: "Assign/b", Policy: lenient(t, "b", `[JSONPatch{op: "add", path: "/data/b", value: "x"}]`,
		condition(`object.metadata.labels == {"app": "web"}`))}}}
	a := &catalog{values: map[Question]string{{"p", "alice"}: "team-a"}}
	d := admitsAs(t, Options{Resolver: a}, Mutators(NewSet(o), api.Enforce), req)
	if got := d.Object.GetLabels(); d.Status != nil || got["owner"] != "team-a" || data(d.Object, "b") == "" {
		t.Errorf("%v, labels %v, data %v", d.Status, got, d.Object.Object["data"])
	}
}

// An answer may be long, and may be written to many places, but not both.
func TestSetAnswersAreBounded(t *testing.T) {
	fields := make([]string, 100)
	for i := range fields {
		fields[i] = fmt.Sprint("f", i)
	}
	o := SetOptions{Members: []Member{pends(t, "a", tree.Pending{Source: "p", Key: "k"}, fields...)}}
	a := &catalog{values: map[Question]string{{"p", "k"}: strings.Repeat("x", 100<<10)}}
	d := admitsAs(t, Options{Resolver: a}, Mutators(NewSet(o), api.Enforce), creates(widgetWith(map[string]any{})))
	if d.Status == nil || !strings.Contains(d.Status.Message, errFilled.Error()) {
		t.Errorf("status %+v", d.Status)
	}
	req := creates(widgetWith(map[string]any{}))
	budget := memory.New(32 << 10)
	req.Memory = budget.Open()
	defer req.Memory.Close()
	if d := admitsAs(t, Options{Resolver: a}, Mutators(NewSet(o), api.Enforce), req); d.Status == nil {
		t.Error("answers need no memory")
	}
}
