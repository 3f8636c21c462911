package promote

import (
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
)

// original returns annotations as they were before a canary replaced a mode by shadow. modes
// has the modes that it replaced: that of the policy under the key "", those of bindings
// under their names.
func original(annotations, modes map[string]string, key string) map[string]string {
	out := maps.Clone(annotations)
	if mode, replaced := modes[key]; replaced && out[modeAnnotation] == shadow {
		delete(out, modeAnnotation)
		if mode != "" {
			out[modeAnnotation] = mode
		}
	}
	return out
}

// limits returns the reasons why mapd does not enforce a policy on all that its bindings match. An
// API server would, because it has no modes, shares and breakers. For modes see original.
func limits(policy *unstructured.Unstructured, bindings []*unstructured.Unstructured, modes map[string]string) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	read := func(u *unstructured.Unstructured, key string) api.Rollout {
		r, faults := api.RolloutFor(u.GetKind(), original(u.GetAnnotations(), modes, key))
		if len(faults) > 0 {
			add("%s is in shadow, because an annotation cannot be read: %v", manifest.Name(u), faults.ToAggregate())
		}
		return r
	}
	of := read(policy, "")
	if trip := breaker.Current(policy); trip != nil {
		of.Tripped = true
		add("the policy is in shadow, because its breaker tripped at %s: %s; a server has no breaker and would enforce it again, so mend the policy first (docs/operate/breakers.md)",
			trip.Time.UTC().Format(time.RFC3339), trip.Reason)
	}
	if len(bindings) == 0 && of.Mode != api.Enforce {
		add("the policy is in mode %s and has no binding; a server only enforces: remove its annotation %s first", of.Mode, api.ModeAnnotation)
	}
	for _, u := range bindings {
		r := read(u, u.GetName())
		switch mode := of.With(r); {
		case of.Tripped || of.Unread || r.Unread: // said above
		case mode != api.Enforce && r.HasMode:
			add("%s is in mode %s, and a server only enforces; set its %s to enforce first", manifest.Name(u), mode, api.ModeAnnotation)
		case mode != api.Enforce:
			add("%s is in mode %s, that of the policy, and a server only enforces; set %s of either to enforce first", manifest.Name(u), mode, api.ModeAnnotation)
		}
		if r.Share != api.Whole && !r.Unread {
			add("%s takes %s %% of the objects, and a server has no shares; set its %s to 100 first", manifest.Name(u), r.Share, api.PercentAnnotation)
		}
	}
	return out
}
