package bench

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/pkg/webhook"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/subject"
)

var counts = []int{1, 10, 100}

// run checks the answer of a side and measures it.
func run(b *testing.B, s Side, w *Workload) {
	b.Helper()
	if err := Check(b.Context(), s, w); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// matching runs a benchmark for each object and each number of policies, for the cases for which
// has returns true.
func matching(b *testing.B, side func() Side, has func(*Case) bool) {
	for _, c := range Cases {
		for _, o := range Objects {
			for _, n := range counts {
				if has(c) {
					b.Run(fmt.Sprintf("%s/%s/%d", c.Name, o.Name, n), func(b *testing.B) { run(b, side(), Match(c, o, n)) })
				}
			}
		}
	}
}

// BenchmarkAdmit decides a decoded request with policies that all apply.
func BenchmarkAdmit(b *testing.B) { matching(b, Policies, (*Case).HasPolicy) }

// BenchmarkWithout does what BenchmarkAdmit does, with and without package quick, in turn.
func BenchmarkWithout(b *testing.B) {
	for _, c := range Cases {
		for _, n := range []int{1, 10, 100} {
			for _, side := range []struct {
				name string
				side func() Side
			}{{"with", Policies}, {"without", CELGo}} {
				if c.HasPolicy() {
					b.Run(fmt.Sprintf("%s/%d/%s", c.Name, n, side.name), func(b *testing.B) { run(b, side.side(), Match(c, Objects[0], n)) })
				}
			}
		}
	}
}

// BenchmarkMutators does what BenchmarkAdmit does, with Gatekeeper's mutators.
func BenchmarkMutators(b *testing.B) {
	matching(b, Mutators, func(c *Case) bool { return !c.HasPolicy() })
}

// BenchmarkMiss decides a request that no policy matches.
func BenchmarkMiss(b *testing.B) {
	for _, how := range Misses {
		for _, n := range []int{0, 100, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", how, n), func(b *testing.B) { run(b, Policies(), Miss(how, n)) })
		}
	}
}

// BenchmarkSelect decides a request that lacks the labels by which all policies, or
// mutators, select.
func BenchmarkSelect(b *testing.B) {
	for _, way := range Selectors {
		side := Policies
		if strings.HasPrefix(way, "mutators") {
			side = Mutators
		}
		for _, n := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", way, n), func(b *testing.B) { run(b, side(), Select(way, n)) })
		}
	}
}

// BenchmarkTenants decides a request of one of many tenants, each of which has its own policy or
// binding.
func BenchmarkTenants(b *testing.B) {
	for _, how := range Tenants {
		for _, n := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", how, n), func(b *testing.B) { run(b, Policies(), Tenant(how, n, false)) })
		}
	}
}

// BenchmarkCompile compiles a decoded policy.
func BenchmarkCompile(b *testing.B) {
	for _, c := range Cases {
		if c.HasPolicy() {
			b.Run(c.Name, func(b *testing.B) { run(b, Compiled(), Match(c, Objects[0], 1)) })
		}
	}
}

// BenchmarkLoad reads stored policies, of one shape and of twenty.
func BenchmarkLoad(b *testing.B) {
	for _, c := range []*Case{Label, Shapes} {
		b.Run(c.Name+"/1000", func(b *testing.B) { run(b, Loaded(), Many(c, 1000)) })
	}
}

// BenchmarkRebuild loads a change of one of many policies, and decides the first request after it.
func BenchmarkRebuild(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { run(b, Changed(), Tenant("policies", n, false)) })
	}
}

// BenchmarkReview measures all that the server does between reading a body and writing the
// answer's. Without policies, that is the minimal cost of a webhook.
func BenchmarkReview(b *testing.B) {
	for _, o := range Objects {
		for _, n := range []int{0, 1, 10, 100} {
			b.Run(fmt.Sprintf("%s/%d", o.Name, n), func(b *testing.B) {
				w := Match(Label, o, n)
				w.Mutators = nil
				e, err := subject.New(w)
				if err != nil {
					b.Fatal(err)
				}
				h := webhook.NewHandler(webhook.Options{Admitter: e})
				body := review(b, w)
				code, answer := h.Review(b.Context(), body)
				checkReview(b, w, code, answer)
				b.ReportAllocs()
				for b.Loop() {
					h.Review(b.Context(), body)
				}
			})
		}
	}
}

// review is the request of a workload as a server sends it.
func review(t testing.TB, w *Workload) []byte {
	r := &w.Request
	gvk := map[string]any{"group": r.Kind.Group, "version": r.Kind.Version, "kind": r.Kind.Kind}
	gvr := map[string]any{"group": r.Resource.Group, "version": r.Resource.Version, "resource": r.Resource.Resource}
	data, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": map[string]any{
		"uid": r.UID, "operation": r.Operation, "name": r.Name, "namespace": r.Namespace, "dryRun": false,
		"kind": gvk, "resource": gvr, "requestKind": gvk, "requestResource": gvr,
		"userInfo": r.User, "options": r.Options, "object": r.Object.Object, "oldObject": nil,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// checkReview applies the answer's patch to the object.
func checkReview(t testing.TB, w *Workload, code int, body []byte) {
	t.Helper()
	var answer struct {
		Response struct {
			Allowed bool
			Patch   []byte
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	if code != 200 || !answer.Response.Allowed {
		t.Fatalf("answer %d %s", code, body)
	}
	var ops []tree.Op
	if len(answer.Response.Patch) > 0 {
		if err := json.Unmarshal(answer.Response.Patch, &ops); err != nil {
			t.Fatal(err)
		}
	}
	got, err := tree.Apply(w.Request.Object.Object, ops)
	if err != nil {
		t.Fatal(err)
	}
	object, _ := got.(map[string]any)
	if !cases.Same(w.WantObject, &unstructured.Unstructured{Object: object}) {
		t.Fatalf("the patch gives the wrong object: %s", answer.Response.Patch)
	}
}
