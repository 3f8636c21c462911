package next

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/oracle"
)

// minor is that of the libraries in go.mod.
const minor = 38

var update = flag.Bool("update", false, "record what the next minor's environment has, and the wants of the cases that are only about it")

// Every case about the next minor has the result that its dispatcher gives.
func TestCases(t *testing.T) {
	ran, newer := 0, 0
	for _, c := range cases.Of(t, minor) {
		if c.Skip["oracle"] != "" {
			continue
		}
		ran++
		if c.Oldest > cases.Current {
			newer++
		}
		t.Run(c.Name, func(t *testing.T) {
			got, err := oracle.Run(t.Context(), &c)
			if err != nil {
				t.Fatal(err)
			}
			if got.Panic != nil {
				t.Fatalf("the dispatcher panicked: %v", got.Panic)
			}
			outcome := cases.Outcome{Object: got.Object, Status: got.Status, Rounds: got.Rounds}
			if *update && c.Oldest > cases.Current {
				record(t, &c, outcome)
				return
			}
			if d := c.Diff(outcome); d != "" {
				t.Error(d)
			}
		})
	}
	if t.Logf("%d cases, %d of them about 1.%d and later only", ran, newer, minor); ran == 0 {
		t.Error("there is no case")
	}
}

// The cases that end otherwise on purpose are those that do so on the current minor: what
// mapd refuses or bounds does not depend on the minor.
func TestSkippedCasesDiffer(t *testing.T) {
	same := map[string]bool{}
	for _, c := range cases.Of(t, minor) {
		if c.Skip["oracle"] == "" || len(c.Mutators) > 0 || len(c.Guests) > 0 {
			continue
		}
		got, err := oracle.Run(t.Context(), &c)
		if err != nil {
			t.Fatal(err)
		}
		if got.Panic == nil && c.Diff(cases.Outcome{Object: got.Object, Status: got.Status, Rounds: got.Rounds}) == "" {
			same[c.Name] = true
		}
	}
	if names := slices.Sorted(maps.Keys(same)); len(names) > 0 {
		t.Errorf("1.%d has the wanted result of %s: divide these cases", minor, strings.Join(names, ", "))
	}
}

// pkg/cel is held against this record, because it is not linked with these libraries.
func TestEnvironment(t *testing.T) {
	lines, err := oracle.Environment(minor)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "pkg", "cel", "testdata", fmt.Sprintf("environment-1.%d.txt", minor))
	want := []byte(strings.Join(lines, "\n") + "\n")
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the libraries have (%v); make next ARGS=-update writes it", file, err)
	}
}

func record(t *testing.T, c *cases.Case, got cases.Outcome) {
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
	if err := os.WriteFile(file, after, 0o644); err != nil {
		t.Fatal(err)
	}
}
