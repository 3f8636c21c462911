package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/cluster/metrics"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// TestHammerReload edits the policies while requests run: each request sees one
// edition or the other, a broken, emptied or cut off one is never seen, and none is lost.
func TestHammerReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	editions := []string{
		streamPolicy,
		strings.Replace(streamPolicy, `"x"`, `"other"`, 1),
		strings.Replace(streamPolicy, `"x"`, `broken`, 1),
		"", "# comments\n", streamPolicy[:1], streamPolicy[:len(streamPolicy)/2], streamPolicy[:len(streamPolicy)-20],
		streamPolicy[:strings.Index(streamPolicy, "---")], // without the binding nothing has an effect
	}
	write(editions[0])
	env, err := environment("")
	if err != nil {
		t.Fatal(err)
	}
	s := &source{flags: &serveFlags{policies: []string{file}}, log: slog.New(slog.DiscardHandler), metrics: metrics.New(), providers: externaldata.New(externaldata.Options{}),
		files: &manifest.Steady{Paths: []string{file}}} // no waits: a load sees whatever was written
	s.options.Env = env
	if errs, _ := s.load(t.Context(), true); len(errs) > 0 {
		t.Fatal(errs)
	}

	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	admit := func() {
		d := s.Admit(t.Context(), &policy.Request{
			Kind: gvk, RequestKind: gvk, Resource: gvr, RequestResource: gvr,
			Name: "a", Namespace: "default", Operation: admissionv1.Create,
			Object: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"},
			}},
		})
		if d.Status != nil {
			t.Errorf("denied: %s", d.Status.Message)
			return
		}
		if team := d.Object.GetLabels()["team"]; team != "x" && team != "other" {
			t.Errorf("team is %q", team)
		}
	}
	for i := range 2 * len(editions) {
		write(editions[i%len(editions)])
		var reloaded atomic.Bool
		hammer.Run(3, 1, func(p, _ int) {
			if p == 0 {
				s.reload(t.Context(), true)
				reloaded.Store(true)
			}
			for !reloaded.Load() {
				admit()
			}
			admit()
		})
		if broken := i%len(editions) >= 2; (s.lastError() != nil) != broken {
			t.Errorf("edition %d: last error is %v", i, s.lastError())
		}
	}
}
