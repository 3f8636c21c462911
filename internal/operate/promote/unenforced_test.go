package promote

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/pkg/api"
)

// tripped returns a policy whose breaker has tripped.
func tripped(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	u = u.DeepCopy()
	trip := breaker.Trip{Digest: breaker.DigestOf(u.Object), Reason: "half of all failed", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if err := unstructured.SetNestedMap(u.Object, trip.Object(), "status", "breaker"); err != nil {
		t.Fatal(err)
	}
	return u
}

func annotated(u *unstructured.Unstructured, annotations ...string) *unstructured.Unstructured {
	all := map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		all[annotations[i]] = annotations[i+1]
	}
	u.SetAnnotations(all)
	return u
}

// The mode for each binding is computed as replicas do it.
func TestLimits(t *testing.T) {
	policy := func(annotations ...string) *unstructured.Unstructured {
		return annotated(policyOf(t, api.OwnGroup, "p", "v"), annotations...)
	}
	bound := func(annotations ...string) *unstructured.Unstructured {
		return annotated(bindingOf(t, api.OwnGroup, "b", "p", ""), annotations...)
	}
	const mode, percent, trips = api.ModeAnnotation, api.PercentAnnotation, api.BreakerAnnotation
	edited := tripped(t, policy(trips, "errors=5%"))
	edited.Object["spec"] = policyOf(t, api.OwnGroup, "p", "w").Object["spec"]
	for name, tt := range map[string]struct {
		policy   *unstructured.Unstructured
		bindings []*unstructured.Unstructured
		modes    map[string]string
		want     []string // parts, one for each reason
	}{
		"enforced":                       {policy: policy(), bindings: []*unstructured.Unstructured{bound()}},
		"no binding":                     {policy: policy()},
		"shadow without a binding":       {policy: policy(mode, "shadow"), want: []string{"in mode shadow and has no binding"}},
		"shadow, enforced by a binding":  {policy: policy(mode, "shadow"), bindings: []*unstructured.Unstructured{bound(mode, "enforce")}},
		"shadow, and by a binding":       {policy: policy(mode, "shadow"), bindings: []*unstructured.Unstructured{bound()}, want: []string{"b is in mode shadow, that of the policy"}},
		"enforced, warns by a binding":   {policy: policy(mode, "enforce"), bindings: []*unstructured.Unstructured{bound(mode, "warn")}, want: []string{"b is in mode warn, and a server only enforces"}},
		"one of two":                     {policy: policy(), bindings: []*unstructured.Unstructured{bound(), bound(mode, "shadow")}, want: []string{"b is in mode shadow"}},
		"a share":                        {policy: policy(), bindings: []*unstructured.Unstructured{bound(percent, "99.9999")}, want: []string{"b takes 99.9999 % of the objects"}},
		"nothing":                        {policy: policy(), bindings: []*unstructured.Unstructured{bound(percent, "0")}, want: []string{"b takes 0 % of the objects"}},
		"the whole":                      {policy: policy(), bindings: []*unstructured.Unstructured{bound(percent, "100")}},
		"a share in shadow":              {policy: policy(mode, "shadow"), bindings: []*unstructured.Unstructured{bound(percent, "5")}, want: []string{"that of the policy", "takes 5 %"}},
		"unread":                         {policy: policy(), bindings: []*unstructured.Unstructured{bound(mode, "off")}, want: []string{"b is in shadow, because an annotation cannot be read"}},
		"a share of a policy":            {policy: policy(percent, "5"), bindings: []*unstructured.Unstructured{bound(mode, "enforce")}, want: []string{"p is in shadow, because an annotation cannot be read"}},
		"a breaker":                      {policy: policy(trips, "errors=5%"), bindings: []*unstructured.Unstructured{bound()}},
		"a breaker that has tripped":     {policy: tripped(t, policy(trips, "errors=5%")), bindings: []*unstructured.Unstructured{bound(mode, "enforce")}, want: []string{"breaker tripped at 2026-01-02T03:04:05Z: half of all failed"}},
		"of an earlier version":          {policy: edited, bindings: []*unstructured.Unstructured{bound()}},
		"of a breaker that is not there": {policy: tripped(t, policy()), bindings: []*unstructured.Unstructured{bound()}},
		"a canary": {policy: policy(mode, "shadow"), bindings: []*unstructured.Unstructured{bound(mode, "shadow")},
			modes: map[string]string{"": "", "b": "enforce"}},
		"a canary, and a binding of somebody else": {policy: policy(mode, "shadow"), bindings: []*unstructured.Unstructured{bound(mode, "shadow")},
			modes: map[string]string{"": ""}, want: []string{"b is in mode shadow"}},
		"a canary of what was in shadow": {policy: policy(mode, "shadow"), bindings: []*unstructured.Unstructured{bound()},
			modes: map[string]string{"": "shadow"}, want: []string{"that of the policy"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := limits(tt.policy, tt.bindings, tt.modes)
			if len(got) != len(tt.want) {
				t.Fatalf("%q, want %q", got, tt.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tt.want[i]) {
					t.Errorf("%q, want %q", got[i], tt.want[i])
				}
			}
		})
	}
}

// The compared requests decide; if too few were compared, the promotion goes back.
func TestCanary(t *testing.T) {
	begun, later := time.Unix(1, 0), time.Unix(2, 0)
	first := map[string]Counts{"a": {Since: begun, Seen: 100, Would: 3, Failed: 1}, "b": {Since: begun}}
	for name, tt := range map[string]struct {
		now      map[string]Counts
		requests uint64
		least    uint64
		over     bool
		why      string
		done     bool
		agreed   uint64
	}{
		"not yet":                {now: map[string]Counts{"a": {Since: begun, Seen: 104, Would: 3, Failed: 1}, "b": {Since: begun, Seen: 5}}, requests: 10, least: 1, agreed: 9},
		"enough":                 {now: map[string]Counts{"a": {Since: begun, Seen: 104, Would: 3, Failed: 1}, "b": {Since: begun, Seen: 6}}, requests: 10, least: 10, done: true, agreed: 10},
		"some in time":           {now: map[string]Counts{"a": {Since: begun, Seen: 101, Would: 3, Failed: 1}}, requests: 10, least: 1, over: true, done: true, agreed: 1},
		"none in time":           {now: first, requests: 10, least: 1, over: true, why: "compared on 0 requests within 1m0s, and at least 1 have to agree"},
		"too few in time":        {now: map[string]Counts{"b": {Since: begun, Seen: 4}}, requests: 10, least: 5, over: true, why: "compared on 4 requests", agreed: 4},
		"none, without proof":    {now: first, requests: 10, over: true, done: true},
		"a difference":           {now: map[string]Counts{"b": {Since: begun, Seen: 6, Would: 2, Example: "ConfigMap x/y: [a]"}}, requests: 1, least: 1, why: "mapd would have changed 2 of 6 requests after the API server: ConfigMap x/y: [a]"},
		"a failure":              {now: map[string]Counts{"b": {Since: begun, Seen: 6, Failed: 6}}, requests: 1, least: 1, why: "mapd's policy failed on 6 of 6 requests"},
		"of another process":     {now: map[string]Counts{"a": {Since: later, Seen: 2}, "c": {Since: later, Seen: 3}}, requests: 10, least: 1, agreed: 5},
		"another that differs":   {now: map[string]Counts{"a": {Since: later, Seen: 200, Would: 3}}, requests: 10, least: 1, why: "mapd would have changed 3 of 200 requests"},
		"counts that begin anew": {now: map[string]Counts{"a": {Since: begun, Seen: 2}}, requests: 10, least: 1, agreed: 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := &canary{first: map[string]Counts{"a": first["a"], "b": first["b"]}}
			p := &Promoter{CanaryRequests: tt.requests, CanaryLeast: tt.least, CanaryTime: time.Minute}
			why, done := c.compare(p, tt.now, tt.over)
			if done != tt.done || (why == "") != (tt.why == "") || !strings.Contains(why, tt.why) || tt.why == "" && c.agreed != tt.agreed {
				t.Errorf("%q, %v, %d agreed; want %q, %v, %d", why, done, c.agreed, tt.why, tt.done, tt.agreed)
			}
		})
	}
}
