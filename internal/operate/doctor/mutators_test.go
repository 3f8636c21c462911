package doctor

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mapd-project/mapd/internal/cluster/feature"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestGatekeeperLines(t *testing.T) {
	list := func(mode string, states ...string) *feature.Listing {
		l := &feature.Listing{Mode: mode}
		for i, s := range states {
			text := ""
			if s != "running" && s != "native" {
				text = "why"
			}
			l.Lines = append(l.Lines, feature.Line{ID: fmt.Sprint("Assign/m", i), State: s, Text: text})
		}
		return l
	}
	troubled := list("on")
	troubled.Problems = []string{"Assign.mutations.gatekeeper.sh cannot be read: no"}
	tests := map[string]struct {
		in   mutators
		want []string
	}{
		"not a topic":          {mutators{mode: "off", rival: "g"}, nil},
		"Gatekeeper's own":     {mutators{mode: "off", stored: 2, rival: "g"}, []string{"ok Gatekeeper's mutators: 2, which Gatekeeper runs and mapd does not (--legacy=off)"}},
		"nobody's":             {mutators{mode: "off", stored: 2}, []string{"warning Gatekeeper's mutators: nobody runs the 2 there are"}},
		"nothing said":         {mutators{mode: "on"}, []string{"warning Gatekeeper's mutators: mapd has not said yet what has become of them"}},
		"none":                 {mutators{mode: "on", list: list("on")}, []string{"ok Gatekeeper's mutators: none yet"}},
		"all well":             {mutators{mode: "on", entry: true, list: list("on", "running", "running")}, []string{"ok Gatekeeper's mutators: 2 running"}},
		"in shadow":            {mutators{mode: "shadow", entry: true, rival: "g", list: list("shadow", "running")}, []string{"ok Gatekeeper's mutators: 1 looked at and not applied (--legacy=shadow)"}},
		"said in another mode": {mutators{mode: "shadow", entry: true, list: list("on", "running")}, []string{"warning Gatekeeper's mutators: mapd should run them with --legacy=shadow, and what it says is of on"}},
		"no entry":             {mutators{mode: "on", list: list("on", "running")}, []string{"bad Gatekeeper's mutators: no entry legacy.mapd.dev, so without effect: 1"}},
		"not all well":         {mutators{mode: "on", entry: true, list: list("on", "running", "conflict", "refused")}, []string{"bad mutator Assign/m1: conflict: why", "bad mutator Assign/m2: refused: why"}},
		"no rights":            {mutators{mode: "on", list: troubled}, []string{"bad Gatekeeper's mutators: Assign.mutations.gatekeeper.sh cannot be read: no"}},
		"both mutate": {mutators{mode: "on", entry: true, rival: "g", list: list("on", "running")}, []string{
			"ok Gatekeeper's mutators: 1 running",
			"warning Gatekeeper's mutators: Gatekeeper mutates as well, by g: harmless only while both run the same mutators, because then the second finds nothing left to do; what one of them refuses is refused",
		}},
		"by policies only":   {mutators{mode: "native", live: 2, list: list("native", "native", "native")}, []string{"ok Gatekeeper's mutators: 2 by policies, 0 by mapd (--legacy=native)"}},
		"by both":            {mutators{mode: "native", live: 1, entry: true, list: list("native", "native", "running")}, []string{"ok Gatekeeper's mutators: 1 by policies, 1 by mapd (--legacy=native)"}},
		"by mapd, not asked": {mutators{mode: "native", live: 1, list: list("native", "native", "running")}, []string{"bad Gatekeeper's mutators: no entry legacy.mapd.dev, so without effect: 1"}},
		"on the way back":    {mutators{mode: "on", live: 1, entry: true, list: list("on", "running")}, []string{"warning Gatekeeper's mutators: 1 policy of an earlier --legacy=native, which mapd removes once it runs the mutators itself"}},
		"left in shadow":     {mutators{mode: "shadow", live: 2, entry: true, list: list("shadow", "running")}, []string{"warning Gatekeeper's mutators: 2 policies of an earlier --legacy=native still in force, and nobody keeps them true to the mutators (--legacy=shadow)"}},
		"left when off":      {mutators{mode: "off", live: 2, stored: 2}, []string{"warning Gatekeeper's mutators: 2 policies of an earlier --legacy=native still in force, and nobody keeps them true to the mutators (--legacy=off)"}},
		"many": {mutators{mode: "on", list: list("on", "off", "off", "off", "off", "off", "off", "off", "off", "off", "off", "off")}, []string{
			"warning mutator Assign/m0: off: why", "warning mutator Assign/m1: off: why", "warning mutator Assign/m2: off: why", "warning mutator Assign/m3: off: why",
			"warning mutator Assign/m4: off: why", "warning mutator Assign/m5: off: why", "warning mutator Assign/m6: off: why", "warning mutator Assign/m7: off: why",
			"warning mutator Assign/m8: off: why", "warning mutator Assign/m9: off: why", "warning Gatekeeper's mutators: not running either: Assign/m10",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, l := range tt.in.lines() {
				got = append(got, fmt.Sprintf("%s %s: %s", l.Mark, l.Check, l.Fact))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("lines (- want):\n%s", diff)
			}
		})
	}
}

func TestLegacyMode(t *testing.T) {
	deployment := func(args ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"args": args}},
		}}}}}
	}
	for _, tt := range []struct {
		deployment *unstructured.Unstructured
		want       string
	}{
		{nil, ""},
		{deployment("serve"), "off"},
		{deployment("serve", "--legacy=on"), "on"},
		{deployment("serve", "--legacy", "shadow"), "shadow"},
		{deployment("serve", "--legacy=on", "--legacy=off"), "off"},
	} {
		x := &examination{deployment: tt.deployment}
		if got := x.legacyMode(); got != tt.want {
			t.Errorf("legacyMode of %v = %q, want %q", tt.deployment, got, tt.want)
		}
	}
}
