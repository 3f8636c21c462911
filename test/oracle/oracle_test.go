package oracle

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/hammer"
)

var update = flag.Bool("update", false, "rewrite the want sections of the cases that the oracle runs")

// Every case that does not say otherwise has the result that Kubernetes gives.
// With -update the want sections are rewritten from it.
func TestCases(t *testing.T) {
	hammer.Alone(t)
	for _, c := range cases.All(t) {
		t.Run(c.Name, func(t *testing.T) {
			if reason := c.Skip["oracle"]; reason != "" {
				t.Skip(reason)
			}
			got, err := Run(t.Context(), &c)
			if err != nil {
				t.Fatal(err)
			}
			if got.Panic != nil {
				t.Fatalf("the dispatcher panicked: %v", got.Panic)
			}
			outcome := cases.Outcome{Object: got.Object, Status: got.Status, Rounds: got.Rounds}
			if *update {
				rewrite(t, &c, outcome)
				return
			}
			if d := c.Diff(outcome); d != "" {
				t.Error(d)
			}
		})
	}
}

// A case keeps the oracle away because Kubernetes does something else. When that
// is no longer so, the case can do without.
func TestSkippedCasesDiffer(t *testing.T) {
	hammer.Alone(t)
	for _, c := range cases.All(t) {
		if c.Skip["oracle"] == "" || len(c.Mutators) > 0 || len(c.Guests) > 0 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if c.Compat == "" {
				t.Error("it skips the oracle without a compat row")
			}
			got, err := Run(t.Context(), &c)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("Kubernetes: panic %v, %s", got.Panic, cases.FormatStatus(got.Status))
			if got.Panic == nil && c.Diff(cases.Outcome{Object: got.Object, Status: got.Status, Rounds: got.Rounds}) == "" {
				t.Error("Kubernetes has the wanted result: the case need not skip the oracle")
			}
		})
	}
}

func rewrite(t *testing.T, c *cases.Case, got cases.Outcome) {
	t.Helper()
	file := filepath.Join("..", "cases", filepath.FromSlash(c.Name)+".txtar")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	after, err := c.Rewrite(before, got)
	if err != nil {
		t.Fatal(err)
	}
	if string(after) == string(before) {
		return
	}
	if err := os.WriteFile(file, after, 0o644); err != nil {
		t.Fatal(err)
	}
}
