//go:build e2e

package e2e

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// someOf returns the plans of a third of the cases, which the last commit chooses, and of
// those that one of the last hundred commits has changed. All have their turn within a few
// commits, and in `make nightly`. If git does not tell what changed, it returns all.
func someOf(t *testing.T, plans []*plan) []*plan {
	t.Helper()
	commit, changed, err := changedCases()
	if err != nil {
		t.Logf("all cases run: %v", err)
		return plans
	}
	var some []*plan
	for _, p := range plans {
		if third(p.c.Name) == third(commit) || strings.Contains(changed, "test/cases/"+p.c.Name+".txtar") {
			some = append(some, p)
		}
	}
	return some
}

// inTurn reports whether the variant i of n of a test runs. If only some cases do, it is one
// of them, which the last commit chooses; otherwise all run.
func inTurn(t *testing.T, i, n int) bool {
	t.Helper()
	if os.Getenv("MAPD_E2E_CASES") != "some" {
		return true
	}
	commit, _, err := changedCases()
	if err != nil {
		t.Logf("all variants run: %v", err)
		return true
	}
	return i == int(hashed(commit)%uint32(n))
}

// third returns 0, 1 or 2.
func third(name string) uint32 { return hashed(name) % 3 }

func hashed(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()
}

// changedCases returns the last commit, and the files of test/cases that are not what they
// were a hundred commits before.
func changedCases() (commit, changed string, err error) {
	git := func(args ...string) string {
		out, failed := exec.Command("git", args...).Output()
		if failed != nil && err == nil {
			err = fmt.Errorf("git %s: %w", strings.Join(args, " "), failed)
		}
		return strings.TrimSpace(string(out))
	}
	commit = git("rev-parse", "HEAD")
	// A shallow clone has no such commit.
	changed = git("diff", "--name-only", "HEAD~100", "--", "../cases") + "\n" + git("ls-files", "--others", "--full-name", "--", "../cases")
	return commit, changed, err
}

// Each third is about one, and together they are all.
func TestSomeOf(t *testing.T) {
	plans, _ := planAll(t, regexp.MustCompile(""))
	counts := map[uint32]int{}
	for _, p := range plans {
		counts[third(p.c.Name)]++
	}
	for i := range uint32(3) {
		if n := counts[i]; n < len(plans)/4 || n > len(plans)/2 {
			t.Errorf("third %d has %d of %d cases", i, n, len(plans))
		}
	}
	some := someOf(t, plans)
	if len(some) < len(plans)/4 {
		t.Errorf("%d of %d cases run", len(some), len(plans))
	}
	t.Logf("%d of %d cases run", len(some), len(plans))
}
