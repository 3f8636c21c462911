package audit

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestGitOpsOwner(t *testing.T) {
	const tracking = "argocd.argoproj.io/tracking-id"
	for _, tt := range []struct {
		labels, annotations map[string]string
		want                string
	}{
		{nil, nil, ""},
		{nil, map[string]string{tracking: "shop:apps/Deployment:prod/web"}, "Argo CD Application shop"},
		{nil, map[string]string{tracking: "team_shop:apps/Deployment:prod/web"}, "Argo CD Application team_shop"},
		{nil, map[string]string{tracking: "shop:apps/Deployment:prod/other"}, ""}, // copied from another object
		{nil, map[string]string{tracking: "shop:apps/StatefulSet:prod/web"}, ""},
		{nil, map[string]string{tracking: "shop:apps/Deployment:test/web"}, ""},
		{nil, map[string]string{tracking: "shop"}, ""},
		{nil, map[string]string{tracking: ":::"}, ""},
		{map[string]string{"argocd.argoproj.io/instance": "shop"}, nil, "Argo CD Application shop"},
		{map[string]string{"app.kubernetes.io/instance": "shop"}, nil, ""}, // may be Helm's
		{map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}, nil, "Flux Kustomization flux-system/apps"},
		{map[string]string{"helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "prod"}, nil, "Flux HelmRelease prod/web"},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
		u.SetNamespace("prod")
		u.SetName("web")
		u.SetLabels(tt.labels)
		u.SetAnnotations(tt.annotations)
		if got := GitOpsOwner(u); got != tt.want {
			t.Errorf("labels %v, annotations %v: %q, want %q", tt.labels, tt.annotations, got, tt.want)
		}
	}
}

// An object that Argo CD or Flux applies and an enforced policy changes is said, with whose it is; one
// that stays as it is, or that only a policy in shadow would change, is not.
func TestDrift(t *testing.T) {
	s := serve()
	fill(t, s, 0)
	owned := func(name, owner string, data map[string]any) {
		s.Put(configMaps, "a", name, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": data, "metadata": map[string]any{"annotations": map[string]any{
			"argocd.argoproj.io/tracking-id": owner + ":/ConfigMap:a/" + name,
		}}})
	}
	owned("one", "shop", nil)
	owned("two", "shop", nil)
	owned("three", "bank", nil)
	s.Put(configMaps, "a", "free", map[string]any{"apiVersion": "v1", "kind": "ConfigMap"})
	put(t, s, labels("team", "configmaps", `"x"`))
	put(t, s, strings.Replace(labels("quiet", "configmaps", `"x"`), "metadata: {name: quiet}", "metadata: {name: quiet, annotations: {mapd.dev/mode: shadow}}", 1))
	run := func() (string, *Report) {
		r, err := Run(t.Context(), options(t, connect(t, s), Loading{}))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.Write(&b, "table", "v1", false); err != nil {
			t.Fatal(err)
		}
		return b.String(), r
	}
	text, r := run()
	if fmt.Sprint(r.Drift) != "map[Argo CD Application bank:1 Argo CD Application shop:2]" || strings.Count(text, "  would differ from Git: Argo CD Application shop applies it\n") != 2 ||
		!strings.Contains(text, "note: 3 objects that would change would differ from Git: Argo CD Application bank (1), Argo CD Application shop (2); mapd export ignore writes rules") {
		t.Errorf("%v\n%s", r.Drift, text)
	}
	o := options(t, connect(t, s), Loading{})
	o.First = 2 // of each kind, in the order of their names
	if r, err := Run(t.Context(), o); err != nil || r.Objects != 2 || r.Drifting() != "1 object that would change would differ from Git: Argo CD Application shop (1)" {
		t.Errorf("of a sample: %+v, %v", r, err)
	}
	s.Put(configMaps, "a", "three", nil)
	put(t, s, strings.Replace(labels("team", "configmaps", `"x"`), "metadata: {name: team}", "metadata: {name: team, annotations: {mapd.dev/mode: shadow}}", 1))
	if text, r := run(); len(r.Drift) != 0 || strings.Contains(text, "Git") {
		t.Errorf("in shadow: %v\n%s", r.Drift, text)
	}
	totals := &Totals{}
	for i := range maxOwners + 5 {
		totals.addDrift(fmt.Sprint("owner ", i))
	}
	if len(totals.Drift) != maxOwners+1 || totals.Drift["others"] != 5 {
		t.Errorf("%d owners, %d others", len(totals.Drift), totals.Drift["others"])
	}
}
