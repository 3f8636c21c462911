package breaker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
)

// Trip is status.breaker of a policy.
type Trip struct {
	// Digest is that of the version of the policy that was tripped.
	Digest string
	// Reason says what was counted.
	Reason string
	Time   time.Time
	// Replica names the replica that counted.
	Replica string
}

// Digest identifies what a Trip is about: the policy's spec and its annotations about
// its rollout. Releases must not disagree about it.
func Digest(annotations map[string]any, spec any) string {
	rollout := map[string]any{}
	for _, name := range api.RolloutAnnotations {
		if value, ok := annotations[name]; ok {
			rollout[name] = value
		}
	}
	text, err := json.Marshal(map[string]any{"annotations": rollout, "spec": spec})
	if err != nil {
		return "" // it came as JSON, so this cannot be
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// DigestOf returns the Digest of a policy.
func DigestOf(policy map[string]any) string {
	meta, _ := policy["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	return Digest(annotations, policy["spec"])
}

// TripOf returns the Trip in a policy's status, whatever version it is about; nil if
// there is none.
func TripOf(u *unstructured.Unstructured) *Trip {
	status, _ := u.Object["status"].(map[string]any)
	m, _ := status["breaker"].(map[string]any)
	if m == nil {
		return nil
	}
	text := func(field string) string { s, _ := m[field].(string); return s }
	at, _ := time.Parse(time.RFC3339, text("time"))
	return &Trip{Digest: text("digest"), Reason: text("reason"), Time: at, Replica: text("replica")}
}

// Current returns the Trip in a policy's status if it counts: nil if it is void, because it
// is about another version of the policy, or the policy has no breaker.
func Current(u *unstructured.Unstructured) *Trip {
	t := TripOf(u)
	if t == nil {
		return nil
	}
	if of, _ := api.RolloutFor(api.PolicyKind, u.GetAnnotations()); of.Breaker == nil || t.Digest != DigestOf(u.Object) {
		return nil
	}
	return t
}

// Object returns the Trip as it is stored.
func (t *Trip) Object() map[string]any {
	return map[string]any{
		"digest": t.Digest, "reason": t.Reason, "time": t.Time.UTC().Format(time.RFC3339), "replica": t.Replica,
	}
}
