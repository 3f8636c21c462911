package api_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/api"
)

func TestRolloutOf(t *testing.T) {
	const (
		mode    = "metadata.annotations[mapd.dev/mode]"
		percent = "metadata.annotations[mapd.dev/percent]"
		breaker = "metadata.annotations[mapd.dev/breaker]"
		number  = "must be a number from 0 to 100 with at most 4 decimals, such as 10 or 0.5"
	)
	tests := []struct {
		mode, percent, breaker string
		want                   api.Rollout
		faults                 []string
	}{
		{want: api.Rollout{Share: api.Whole}},
		{mode: "enforce", percent: "100", want: api.Rollout{HasMode: true, Share: api.Whole}},
		{mode: "warn", percent: "0", want: api.Rollout{HasMode: true, Mode: api.Warn}},
		{mode: "shadow", percent: "0.5", want: api.Rollout{HasMode: true, Mode: api.Shadow, Share: 5000}},
		{percent: "33.3333", want: api.Rollout{Share: 333333}},
		{percent: "007.50", want: api.Rollout{Share: 75000}},
		{breaker: "errors=5%,slow=50ms,window=90s", want: api.Rollout{Share: api.Whole, Breaker: &api.Breaker{Errors: 50000, Slow: 50 * time.Millisecond, Window: 90 * time.Second}}},
		{breaker: "slow=1s", want: api.Rollout{Share: api.Whole, Breaker: &api.Breaker{Errors: 50000, Slow: time.Second, Window: 5 * time.Minute}}},
		{breaker: " errors=0.5% , window=1h", want: api.Rollout{Share: api.Whole, Breaker: &api.Breaker{Errors: 5000, Window: time.Hour}}},

		{mode: "off", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{mode + `: Invalid value: "off": must be enforce, warn or shadow`}},
		{mode: "Shadow", percent: "50%", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{
			mode + `: Invalid value: "Shadow": must be enforce, warn or shadow`, percent + `: Invalid value: "50%": ` + number,
		}},
		{percent: "100.0001", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{percent + `: Invalid value: "100.0001": ` + number}},
		{percent: "0.00001", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{percent + `: Invalid value: "0.00001": ` + number}},
		{percent: "-1", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{percent + `: Invalid value: "-1": ` + number}},
		{percent: "1.", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{percent + `: Invalid value: "1.": ` + number}},
		{percent: ".5", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{percent + `: Invalid value: ".5": ` + number}},
		{percent: "1e1", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{percent + `: Invalid value: "1e1": ` + number}},
		{percent: "1.+1", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{percent + `: Invalid value: "1.+1": ` + number}},
		{breaker: "window=5m", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{breaker + `: Invalid value: "window=5m": needs errors=5% or slow=50ms, or both`}},
		{breaker: "errors=5", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{breaker + `: Invalid value: "errors=5": errors must be a percentage above 0%, such as errors=5%`}},
		{breaker: "errors=5%,errors=6%", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{breaker + `: Invalid value: "errors=5%,errors=6%": errors is given twice`}},
		{breaker: "slow=0s", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{breaker + `: Invalid value: "slow=0s": slow must be a duration above 0, such as slow=50ms`}},
		{breaker: "slow=1s,window=2h", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{breaker + `: Invalid value: "slow=1s,window=2h": window must be a duration from 10s to 1h0m0s, such as window=5m`}},
		{breaker: "cpu=1", want: api.Rollout{Share: api.Whole, Unread: true}, faults: []string{breaker + `: Invalid value: "cpu=1": there is no part "cpu": write errors=5%, slow=50ms and window=5m, separated by commas`}},
	}
	for _, tt := range tests {
		annotations := map[string]string{"mapd.dev/other": "x"}
		for key, value := range map[string]string{api.ModeAnnotation: tt.mode, api.PercentAnnotation: tt.percent, api.BreakerAnnotation: tt.breaker} {
			if value != "" {
				annotations[key] = value
			}
		}
		got, faults := api.RolloutOf(annotations)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("RolloutOf(%v) (-want +got):\n%s", annotations, diff)
		}
		var texts []string
		for _, f := range faults {
			texts = append(texts, f.Error())
		}
		if diff := cmp.Diff(tt.faults, texts); diff != "" {
			t.Errorf("RolloutOf(%v), faults (-want +got):\n%s", annotations, diff)
		}
	}
	for value, want := range map[string]api.Existing{"report": api.Reported, "fix": api.Fixed} {
		if got, faults := api.RolloutFor(api.BindingKind, map[string]string{api.ExistingAnnotation: value}); got.Existing != want || got.Unread || len(faults) > 0 || want.String() != value {
			t.Errorf("%s: %+v, %v", value, got, faults)
		}
		if got, faults := api.RolloutFor(api.PolicyKind, map[string]string{api.ExistingAnnotation: value}); !got.Unread || len(faults) != 1 {
			t.Errorf("%s of a policy: %+v, %v", value, got, faults)
		}
	}
	for _, value := range []string{"", "Fix", "enforce", "fix "} {
		got, faults := api.RolloutFor(api.BindingKind, map[string]string{api.ExistingAnnotation: value})
		if want := "metadata.annotations[mapd.dev/existing]: Invalid value: " + strconv.Quote(value) + ": must be report or fix"; got.Existing != api.Ignored || !got.Unread || len(faults) != 1 || faults[0].Error() != want {
			t.Errorf("%q: %+v, %v; want %s", value, got, faults, want)
		}
	}
	_, faults := api.RolloutOf(map[string]string{api.ModeAnnotation: "", api.PercentAnnotation: "", api.BreakerAnnotation: ""})
	if len(faults) != 3 {
		t.Errorf("empty values: %v", faults)
	}
}

func TestRolloutFor(t *testing.T) {
	all := map[string]string{api.ModeAnnotation: "warn", api.PercentAnnotation: "5", api.BreakerAnnotation: "slow=1s"}
	for kind, want := range map[string]string{
		api.PolicyKind:  "metadata.annotations[mapd.dev/percent]: Forbidden: only a MutatingAdmissionPolicyBinding can have it",
		api.BindingKind: "metadata.annotations[mapd.dev/breaker]: Forbidden: only a MutatingAdmissionPolicy can have it",
	} {
		r, faults := api.RolloutFor(kind, all)
		if got := faults.Error(); got != want || !r.Unread {
			t.Errorf("%s: %s, want %s; %+v", kind, got, want, r)
		}
	}
}

func TestRolloutWith(t *testing.T) {
	none, unread := api.Rollout{}, api.Rollout{Unread: true}
	warn, enforce := api.Rollout{Mode: api.Warn, HasMode: true}, api.Rollout{HasMode: true}
	for _, tt := range []struct {
		policy, binding api.Rollout
		want            api.Mode
	}{
		{none, none, api.Enforce},
		{warn, none, api.Warn},
		{warn, enforce, api.Enforce},
		{enforce, warn, api.Warn},
		{unread, enforce, api.Shadow},
		{warn, unread, api.Shadow},
	} {
		if got := tt.policy.With(tt.binding); got != tt.want {
			t.Errorf("%+v with %+v is %v, want %v", tt.policy, tt.binding, got, tt.want)
		}
	}
}

// A Share includes what smaller ones do, 0 nothing and the Whole everything.
func FuzzShare(f *testing.F) {
	f.Add(uint64(0), "0", "100")
	f.Add(uint64(math.MaxUint64), "99.9999", "100")
	f.Add(uint64(1)<<63, "50", "50.0001")
	f.Fuzz(func(t *testing.T, hash uint64, a, b string) {
		small, err := api.ParseShare(a)
		large, err2 := api.ParseShare(b)
		if err != nil || err2 != nil {
			if small != 0 && err != nil {
				t.Errorf("ParseShare(%q) = %v with %v", a, small, err)
			}
			return
		}
		if small > large {
			small, large = large, small
		}
		if small.Has(hash) && !large.Has(hash) {
			t.Errorf("%d is in %v%% and not in %v%%", hash, small, large)
		}
		if api.Share(0).Has(hash) || !api.Whole.Has(hash) {
			t.Errorf("%d is in 0%%, or not in 100%%", hash)
		}
		if again, err := api.ParseShare(large.String()); err != nil || again != large || strings.ContainsAny(large.String(), "eE") {
			t.Errorf("ParseShare(%q) = %v, %v; want %d", large.String(), again, err, large)
		}
	})
}
