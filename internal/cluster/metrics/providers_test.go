package metrics

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func externalLines(m *Metrics) []string {
	return slices.DeleteFunc(linesOf(m, "mapd_external_"), func(line string) bool { return strings.Contains(line, "_seconds") })
}

// Each provider has its series until it is gone.
func TestExternalMetrics(t *testing.T) {
	m := New()
	m.ProvidersPublished([]string{"p", "q"}, 1)
	m.ProviderCalled("p", "ok", 3, time.Second)
	m.ProviderCalled("q", "timeout", 1, time.Second)
	m.ProviderAnswered("p", 2, 1, 0)
	want := []string{
		`mapd_external_answers_total{how="cached",provider="p"} 2`,
		`mapd_external_answers_total{how="shared",provider="p"} 1`,
		`mapd_external_calls_total{provider="p",result="ok"} 1`,
		`mapd_external_calls_total{provider="q",result="timeout"} 1`,
		`mapd_external_keys_total{provider="p"} 3`,
		`mapd_external_keys_total{provider="q"} 1`,
		`mapd_external_providers{state="ready"} 2`,
		`mapd_external_providers{state="refused"} 1`,
	}
	if got := externalLines(m); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	m.ProvidersPublished([]string{"q"}, 0)
	for _, line := range externalLines(m) {
		if strings.Contains(line, `"p"`) {
			t.Error(line)
		}
	}
}
