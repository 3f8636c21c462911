package differential

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/hammer"
	"github.com/mapd-project/mapd/test/oracle"
	"github.com/mapd-project/mapd/test/subject"
)

// compare runs one case file through both and says how they differ; skipped is
// why there is nothing to compare: what is wrong with the scenario, or the row
// of docs/reference/compat.md that explains the difference.
func compare(ctx context.Context, file []byte) (difference, skipped string) {
	c, err := cases.Parse("random", file)
	if err != nil {
		return "", "no case: " + err.Error()
	}
	for _, u := range c.Policies {
		obj, err := policy.Decode(u)
		if err != nil {
			return "", "no policy: " + err.Error()
		}
		if errs := policy.Validate(obj, subject.Env); len(errs) > 0 {
			return "", "invalid policy: " + errs.ToAggregate().Error()
		}
	}
	want, err := oracle.Run(ctx, c)
	if err != nil {
		return "", "no oracle: " + err.Error()
	}
	decision, err := subject.Run(ctx, c)
	if err != nil {
		return err.Error(), ""
	}
	got := subject.Outcome(decision)
	switch {
	case want.Panic != nil:
		difference = fmt.Sprintf("kubernetes panics: %v", want.Panic)
	case !agree(want.Status, got.Status):
		difference = "answer (-kubernetes +mapd):\n" + cmp.Diff(lines(settled(want.Status)), lines(settled(got.Status)))
	case want.Status == nil && !cases.Same(want.Object, got.Object):
		difference = "object (-kubernetes +mapd):\n" + cmp.Diff(want.Object, got.Object)
	case want.Rounds != got.Rounds:
		difference = fmt.Sprintf("rounds: kubernetes %d, mapd %d", want.Rounds, got.Rounds)
	}
	if difference == "" {
		return "", ""
	}
	if row := explained(ctx, c, want, decision); row != "" {
		return "", row
	}
	for _, step := range decision.Steps {
		if step.Err != nil {
			difference += fmt.Sprintf("\nmapd, round %d, %s, %s: %v", step.Round, step.Policy, step.Binding, step.Err)
		}
	}
	return difference, ""
}

// random is a crowded scenario one time in three.
func random(seed int) scenario {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), 1})
	data := make([]byte, 200+r.Uint64()%1400)
	_, _ = r.Read(data)
	if seed%3 == 2 {
		return (&gen{data: data}).crowded()
	}
	return (&gen{data: data}).scenario()
}

// The same scenarios every time, so that a failure can be looked at again.
// MAPD_SCENARIOS asks for another number of them than 500, or for a range:
// 100000-200000.
func TestFixedScenarios(t *testing.T) {
	// Environments of expressions come and go; collecting them is a third of it.
	defer debug.SetGCPercent(debug.SetGCPercent(600))
	first, last := 0, hammer.Count(500)
	if testing.Short() {
		last = 30
	}
	if from, to, ok := strings.Cut(os.Getenv("MAPD_SCENARIOS"), "-"); ok {
		first, _ = strconv.Atoi(from)
		last, _ = strconv.Atoi(to)
	} else if n, err := strconv.Atoi(from); err == nil {
		last = n
	}
	seeds := make(chan int)
	var mu sync.Mutex
	skips := map[string]int{}
	failures := 0
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := range seeds {
				s := random(seed)
				difference, skipped := compare(t.Context(), s.txtar("§9: A random scenario."))
				mu.Lock()
				if skipped != "" {
					why, _, _ := strings.Cut(skipped, ":")
					skips[why]++
				}
				if difference != "" {
					if failures++; failures <= 20 {
						t.Errorf("seed %d: %s\n%s", seed, difference, keep(t, s, fmt.Sprintf("seed-%d", seed)))
					}
				}
				mu.Unlock()
			}
		})
	}
	for seed := first; seed < last; seed++ {
		seeds <- seed
	}
	close(seeds)
	workers.Wait()

	if failures > 20 {
		t.Errorf("%d scenarios more", failures-20)
	}
	compared := last - first
	for why, n := range skips {
		t.Logf("%6d of %d not compared: %s", n, last-first, why)
		compared -= n
	}
	if compared < (last-first)*3/4 {
		t.Errorf("only %d of %d scenarios were compared: the generator writes too much that is refused", compared, last-first)
	}
}

// lines is a status for reading differences.
func lines(s *metav1.Status) []string { return strings.Split(cases.FormatStatus(s), "\n") }

// keep writes a finding where a person can pick it up and make it a case.
func keep(t testing.TB, s scenario, name string) string {
	dir := os.Getenv("MAPD_FINDINGS")
	if dir == "" {
		return "(set MAPD_FINDINGS to a directory to get it as a case file)"
	}
	file := filepath.Join(dir, name+".txtar")
	if err := os.WriteFile(file, s.txtar("§9: Found by the differential test, "+name+"."), 0o644); err != nil {
		t.Error(err)
	}
	return file
}

func FuzzDifferential(f *testing.F) {
	hammer.Alone(f)
	for seed := range byte(20) {
		data := make([]byte, 400)
		r := rand.NewChaCha8([32]byte{seed, 7})
		_, _ = r.Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		s := (&gen{data: data}).scenario()
		if len(data)%3 == 2 {
			s = (&gen{data: data}).crowded()
		}
		if difference, _ := compare(t.Context(), s.txtar("§9: A random scenario.")); difference != "" {
			t.Errorf("%s\n%s", difference, keep(t, s, "fuzz-"+strconv.FormatUint(hash(data), 36)))
		}
	})
}

func hash(data []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(data)
	return h.Sum64()
}
