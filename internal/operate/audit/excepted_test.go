package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
)

// A cluster's exceptions hold in an audit if mapd has noted that their writers may except the
// policies, also from policies of files; with Asking.Exceptions it is said what changes when.
func TestExceptions(t *testing.T) {
	s := serve()
	fill(t, s, 4)
	put(t, s, labels("team", "configmaps", `"a"`)+"\n---\n"+labels("tier", "configmaps", `"b"`))
	exception := func(name, uid, policies, names string, until time.Time) {
		text := fmt.Sprintf(`{"apiVersion": "mapd.dev/v1alpha1", "kind": "PolicyException", "metadata": {"name": %q, "namespace": "a", "uid": %q}, "spec": {"policies": [%s], "names": [%s], "reason": "r", "owner": "payments", "until": %q}`,
			name, uid, policies, names, until.Format(time.RFC3339))
		e, err := api.DecodeException([]byte(text+"}"), "a")
		if err != nil {
			t.Fatal(err)
		}
		digest := e.Spec.Digest()
		if uid == "unchecked" {
			digest = "another"
		}
		put(t, s, fmt.Sprintf(`%s, "status": {"allowed": {"digest": %q}}}`, text, digest))
	}
	soon, later := time.Now().Add(time.Hour), time.Now().Add(48*time.Hour)
	exception("one", "1", `"team"`, `"m0000"`, soon)
	exception("two", "2", `"team", "tier"`, `"m0000"`, later)
	exception("unchecked", "unchecked", `"team", "tier"`, `"m0002"`, later)
	exception("ended", "3", `"team"`, `"m0002"`, time.Now().Add(-time.Hour))
	c := connect(t, s)
	o := options(t, c, Loading{})
	r, err := Run(t.Context(), o)
	if err != nil || r.Objects != 4 || r.Changed != 3 {
		t.Fatalf("%v, got %+v", err, r)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "exception a/unchecked does not hold: nobody has checked") || !strings.Contains(notes, "exception a/ended has ended") {
		t.Errorf("notes %s", notes)
	}
	o.Exceptions = true
	if r, err = Run(t.Context(), o); err != nil || len(r.Kept.Results) != 1 {
		t.Fatalf("%v, got %+v", err, r)
	}
	got := r.Kept.Results[0]
	if len(got.Excepted) != 1 || got.Excepted[0].Exception != "a/two" || fmt.Sprint(got.Excepted[0].Policies) != "[team › team tier › tier]" || len(got.Excepted[0].Changes) == 0 || got.Excepted[0].Owner != "payments" {
		t.Errorf("got %+v", got)
	}
	// When the first of two ends, only the rest of what the second is about stays.
	exception("two", "2", `"tier"`, `"m0000"`, later)
	o = options(t, c, Loading{})
	o.Exceptions = true
	if r, err = Run(t.Context(), o); err != nil || len(r.Kept.Results) != 1 {
		t.Fatalf("%v, got %+v", err, r)
	}
	ends := map[string]string{}
	for _, e := range r.Kept.Results[0].Excepted {
		for _, change := range e.Changes {
			ends[e.Exception] += change.Path + " "
		}
	}
	if !strings.Contains(ends["a/one"], "labels") || strings.Contains(ends["a/one"], "tier") || !strings.Contains(ends["a/two"], "tier") || strings.Contains(ends["a/two"], "team") {
		t.Errorf("changes at the ends: %v", ends)
	}
	files := []manifest.Input{{Name: "p.yaml", Open: opener(labels("team", "configmaps", `"c"`))}}
	if r, err = Run(t.Context(), options(t, c, Loading{Files: files})); err != nil || r.Changed != 3 {
		t.Errorf("policies of files: %v, got %+v", err, r)
	}
}

// An exception in the namespace that mapd is installed in is for all namespaces, whatever that
// namespace is called.
func TestExceptionsOfInstallation(t *testing.T) {
	s := serve()
	fill(t, s, 4)
	put(t, s, labels("team", "configmaps", `"a"`))
	until := time.Now().Add(time.Hour).Format(time.RFC3339)
	text := fmt.Sprintf(`{"apiVersion": "mapd.dev/v1alpha1", "kind": "PolicyException", "metadata": {"name": "all", "namespace": "policies", "uid": "1"}, "spec": {"policies": ["team"], "namespaces": ["a"], "reason": "r", "owner": "o", "until": %q}`, until)
	e, err := api.DecodeException([]byte(text+"}"), "policies")
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, fmt.Sprintf(`%s, "status": {"allowed": {"digest": %q}}}`, text, e.Spec.Digest()))
	for namespace, changed := range map[string]int{"policies/mapd": 2, "mapd-system/mapd": 4} {
		s.Put(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}, "", "mapd.dev", map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
			"metadata": map[string]any{"name": "mapd.dev", "annotations": map[string]any{"mapd.dev/installation": namespace}},
		})
		if r, err := Run(t.Context(), options(t, connect(t, s), Loading{})); err != nil || r.Changed != changed {
			t.Errorf("installed as %s: %v, %+v; want %d changed", namespace, err, r, changed)
		}
	}
}
