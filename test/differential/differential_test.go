package differential

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/oracle"
	"github.com/mapd-project/mapd/test/subject"
)

// compare runs one scenario through both and says how they differ; skipped is
// why there is nothing to compare.
func compare(ctx context.Context, s scenario) (difference, skipped string) {
	file := s.txtar("§9: A random scenario.")
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
	if want.Panic != nil {
		return "", "upstream panics"
	}
	decision, err := subject.Run(ctx, c)
	if err != nil {
		return err.Error(), ""
	}
	got := subject.Outcome(decision)
	if reason := explained(want.Status, got.Status); reason != "" {
		return "", reason
	}
	if d := cmp.Diff(class(want.Status), class(got.Status)); d != "" {
		return fmt.Sprintf("class of error (-kubernetes +mapd):\n%s\nkubernetes: %s\nmapd: %s", d,
			cases.FormatStatus(want.Status), cases.FormatStatus(got.Status)), ""
	}
	if want.Status == nil && !cases.Same(want.Object, got.Object) {
		return "object (-kubernetes +mapd):\n" + cmp.Diff(want.Object, got.Object), ""
	}
	if want.Rounds != got.Rounds {
		return fmt.Sprintf("rounds: kubernetes %d, mapd %d", want.Rounds, got.Rounds), ""
	}
	return "", ""
}

// The same scenarios every time, so that a failure can be looked at again;
// MAPD_SCENARIOS asks for another number of them than 3000.
func TestFixedScenarios(t *testing.T) {
	count := 3000
	if n, err := strconv.Atoi(os.Getenv("MAPD_SCENARIOS")); err == nil {
		count = n
	}
	skips := map[string]int{}
	failures := 0
	for seed := range count {
		data := make([]byte, 600)
		r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), 1})
		_, _ = r.Read(data)
		s := (&gen{data: data}).scenario()
		difference, skipped := compare(t.Context(), s)
		if skipped != "" {
			skips[firstWords(skipped)]++
			continue
		}
		if difference != "" {
			failures++
			t.Errorf("seed %d: %s\n%s", seed, difference, keep(t, s, fmt.Sprintf("seed-%d", seed)))
			if failures == 5 {
				t.Fatal("that is enough")
			}
		}
	}
	compared := count
	for why, n := range skips {
		t.Logf("%5d skipped: %s", n, why)
		compared -= n
	}
	if compared < count*3/4 {
		t.Errorf("only %d of %d scenarios were compared: the generator writes too much that is refused", compared, count)
	}
}

func firstWords(s string) string {
	if i := bytes.IndexByte([]byte(s), ':'); i > 0 {
		return s[:i]
	}
	return s
}

// keep writes a finding where a person can pick it up and make it a case.
func keep(t testing.TB, s scenario, name string) string {
	dir := os.Getenv("MAPD_FINDINGS")
	if dir == "" {
		return "(set MAPD_FINDINGS to a directory to get it as a case file)"
	}
	file := filepath.Join(dir, name+".txtar")
	if err := os.WriteFile(file, s.txtar("§9: Found by the differential test, "+name+"."), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func FuzzDifferential(f *testing.F) {
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
		if difference, _ := compare(t.Context(), s); difference != "" {
			t.Errorf("%s\n%s", difference, s.txtar("§9: Found by fuzzing."))
		}
	})
}
