package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/words"
)

// maxOwners bounds the owners that Totals count separately: anybody who may label an object can
// name a new one.
const maxOwners = 1000

// GitOpsOwner returns who applies an object from Git, such as "Argo CD Application shop",
// according to its labels and annotations; "" if they name nobody. It cannot recognise an Argo CD
// that tracks by the label app.kubernetes.io/instance alone, because Helm sets that label as
// well.
func GitOpsOwner(u *unstructured.Unstructured) string {
	annotations, labels := u.GetAnnotations(), u.GetLabels()
	// application:group/kind:namespace/name. Controllers copy annotations to what they create, so
	// only an ID of this very object counts, as for Argo CD.
	if app, of, ok := strings.Cut(annotations["argocd.argoproj.io/tracking-id"], ":"); ok {
		gvk := u.GroupVersionKind()
		kind, name, _ := strings.Cut(of, ":")
		namespace, base, _ := strings.Cut(name, "/")
		if kind == gvk.Group+"/"+gvk.Kind && base == u.GetName() && (namespace == u.GetNamespace() || u.GetNamespace() == "") {
			return "Argo CD Application " + short(app, maxValue)
		}
	}
	if app := labels["argocd.argoproj.io/instance"]; app != "" {
		return "Argo CD Application " + short(app, maxValue)
	}
	for _, flux := range []struct{ prefix, kind string }{{"kustomize.toolkit.fluxcd.io/", "Kustomization"}, {"helm.toolkit.fluxcd.io/", "HelmRelease"}} {
		if name := labels[flux.prefix+"name"]; name != "" {
			return "Flux " + flux.kind + " " + short(labels[flux.prefix+"namespace"]+"/"+name, maxValue)
		}
	}
	return ""
}

// drifts reports whether an enforced policy changes an object that is applied from Git: after its
// next write it differs from Git.
func (r *Result) drifts() bool {
	return r.Owner != "" && len(r.Changes) > 0 && r.Denied == "" && slices.ContainsFunc(r.By, func(a Actor) bool { return a.Mode == "" && len(a.Fields) > 0 })
}

// addDrift counts an object that drifts.
func (t *Totals) addDrift(owner string) {
	if t.Drift == nil {
		t.Drift = map[string]int{}
	}
	if _, known := t.Drift[owner]; !known && len(t.Drift) >= maxOwners {
		owner = "others"
	}
	t.Drift[owner]++
}

// Drifting describes how many objects drift, and who applies them; "" if none drifts.
func (t *Totals) Drifting() string {
	n := 0
	var owners []string
	for _, owner := range slices.Sorted(maps.Keys(t.Drift)) {
		n += t.Drift[owner]
		owners = append(owners, fmt.Sprintf("%s (%d)", owner, t.Drift[owner]))
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s that would change would differ from Git: %s", words.Count(n, "object", "objects"), words.Some(owners, 10))
}

// DriftAdvice is the advice about objects that drift.
const DriftAdvice = "mapd export ignore writes rules for that, and mapd post-render or krm changes what is applied"

// drift is Drifting with the advice.
func (t *Totals) drift() string {
	if text := t.Drifting(); text != "" {
		return text + "; " + DriftAdvice
	}
	return ""
}

// ReadDrift returns, from Finished.Data, the summary of an audit and the text of Drifting.
func ReadDrift(data map[string]string) (summary, drifting string) {
	return data["summary"], strings.TrimSuffix(strings.TrimSpace(data["drift"]), "; "+DriftAdvice)
}
