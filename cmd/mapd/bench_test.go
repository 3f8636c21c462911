package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	benchFigure = regexp.MustCompile(`\b[0-9.]+(ns|µs|ms|s|B|KiB|MiB|%)?( |\n)`)
	benchSpace  = regexp.MustCompile(` +`)
)

// The table of an example, with # for each figure.
func TestBenchTable(t *testing.T) {
	example := filepath.Join(examples, "default-labels")
	got := printed(t, "bench", "-p", filepath.Join(example, "policy.yaml"), "-f", filepath.Join(example, "objects.yaml"), "--iterations", "10")
	got = benchFigure.ReplaceAllString(benchSpace.ReplaceAllString(got, " "), "#$2")
	golden := filepath.Join("testdata", "bench.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(readFile(t, golden), got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}
