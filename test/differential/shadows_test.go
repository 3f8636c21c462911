package differential

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/hammer"
	"github.com/mapd-project/mapd/test/subject"
)

// A request is answered, byte for byte, as if the pairs of policies and bindings that are
// not enforced did not exist: but for what says what they would have done. These see the
// object as the enforced ones before them left it.
func TestShadowScenarios(t *testing.T) {
	hammer.Alone(t)
	last := hammer.Count(150)
	shadows, changes, failures := 0, 0, 0
	for seed := range last {
		text := random(seed).txtar("§9: A random scenario.")
		with, err := cases.Parse("random", text)
		if err != nil {
			t.Fatal(err)
		}
		without, err := cases.Parse("random", text)
		if err != nil {
			t.Fatal(err)
		}
		aside := setAside(with, without, rand.New(rand.NewPCG(uint64(seed), 1)))
		if aside == 0 {
			continue
		}
		given := []any{with.Request.Object.DeepCopy(), with.Request.OldObject.DeepCopy(), copies(with.Params), copies(with.Namespaces)}
		got, gotAnswer := answerOf(t, with, subject.New)
		want, wantAnswer := answerOf(t, without, subject.Traced)
		if diff := cmp.Diff(untimed(want.Steps), untimed(got.Steps)); diff != "" {
			t.Errorf("seed %d: steps (-without +with):\n%s", seed, diff)
		}
		if w, g := max(1, want.Rounds(engine.PolicyStage)), max(1, got.Rounds(engine.PolicyStage)); w != g {
			t.Errorf("seed %d: %d rounds, %d without", seed, g, w)
		}
		if agree(wantAnswer.Result, gotAnswer.Result) {
			gotAnswer.Result = wantAnswer.Result
		}
		if diff := cmp.Diff(wantAnswer, gotAnswer); diff != "" {
			t.Errorf("seed %d: answer (-without +with):\n%s", seed, diff)
		}
		if diff := cmp.Diff(given, []any{with.Request.Object, with.Request.OldObject, with.Params, with.Namespaces}); diff != "" {
			t.Errorf("seed %d: what was given is modified:\n%s", seed, diff)
		}
		r := got.Stage(engine.PolicyStage)
		if r == nil {
			continue
		}
		for i := range r.Shadows {
			s := &r.Shadows[i]
			shadows++
			if s.Changed() {
				changes++
			}
			if s.Err() != nil {
				failures++
			}
			if with.Request.Kind.Version == "v2" { // in which steps may be in another version
				continue
			}
			if diff := cmp.Diff(leftBefore(with.Request.Object, want.Steps, s), s.Before); diff != "" {
				t.Errorf("seed %d: %s, %s begins with (-left by the ones before +begun with):\n%s", seed, s.Policy, s.Binding, diff)
			}
		}
	}
	t.Logf("%d shadows, of which %d would have changed the object and %d failed", shadows, changes, failures)
	if shadows < last/2 || changes < last/8 || failures < last/8 {
		t.Error("the scenarios say little")
	}
}

// setAside takes some of the policies and bindings out of enforcement in one case, by the
// annotations of either, and deletes the same pairs from the other one. It returns how
// many pairs these are.
func setAside(with, without *cases.Case, r *rand.Rand) (aside int) {
	annotate := func(u *unstructured.Unstructured) string {
		mode := [...]string{"", "", "enforce", "warn", "shadow", "sometimes"}[r.IntN(6)]
		if mode != "" {
			u.SetAnnotations(map[string]string{api.ModeAnnotation: mode})
		}
		return mode
	}
	modes := map[string]string{}
	for _, p := range with.Policies {
		modes[p.GetName()] = annotate(p)
	}
	without.Bindings = slices.DeleteFunc(without.Bindings, func(b *unstructured.Unstructured) bool {
		i := slices.IndexFunc(with.Bindings, func(o *unstructured.Unstructured) bool { return o.GetName() == b.GetName() })
		own := annotate(with.Bindings[i])
		name, _, _ := unstructured.NestedString(b.Object, "spec", "policyName")
		mode := modes[name]
		if own != "" && mode != "sometimes" { // which nobody can read
			mode = own
		}
		if mode == "" || mode == "enforce" {
			return false
		}
		aside++
		return true
	})
	return aside
}

// answerOf decides a case and returns what the client and the audit log get.
func answerOf(t *testing.T, c *cases.Case, build func(*cases.Case) (*engine.Engine, error)) (*engine.Decision, *admissionv1.AdmissionResponse) {
	t.Helper()
	e, err := build(c)
	if err != nil {
		t.Fatal(err)
	}
	req := subject.Request(&c.Request)
	d := e.Admit(t.Context(), req)
	return d, responseOf(t, req, d)
}

// responseOf returns the response to a request without what says what shadows would do.
func responseOf(t *testing.T, req *policy.Request, d *engine.Decision) *admissionv1.AdmissionResponse {
	t.Helper()
	body, err := webhook.EncodeResponse(req, d)
	if err != nil {
		return &admissionv1.AdmissionResponse{Patch: []byte(err.Error())}
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatal(err)
	}
	out := review.Response
	for key := range out.AuditAnnotations {
		if strings.HasPrefix(key, "would-") {
			delete(out.AuditAnnotations, key)
		}
	}
	if len(out.AuditAnnotations) == 0 {
		out.AuditAnnotations = nil
	}
	out.Warnings = slices.DeleteFunc(out.Warnings, func(w string) bool {
		return strings.HasPrefix(w, "mapd: policy ") && strings.Contains(w, " would ")
	})
	if len(out.Warnings) == 0 {
		out.Warnings = nil
	}
	return out
}

// leftBefore returns the object as those before a shadow left it in the first round.
func leftBefore(object *unstructured.Unstructured, steps []engine.Step, s *engine.Shadow) *unstructured.Unstructured {
	for i := range steps {
		step := &steps[i]
		if step.Round > 1 || step.Policy > s.Policy || step.Policy == s.Policy && step.Binding > s.Binding {
			break
		}
		if step.After != nil {
			object = step.After
		}
	}
	return object
}
