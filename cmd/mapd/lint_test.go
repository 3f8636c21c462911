package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

// What migrate writes for mutators gives rise to no finding but that these, like the
// mutators, match updates.
func TestLintOfMigrated(t *testing.T) {
	hammer.Alone(t)
	files, err := filepath.Glob("../../test/gatekeeper/testdata/corpus/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	dir := t.TempDir()
	for i, f := range files {
		var stdout, stderr bytes.Buffer
		if code := run([]string{"migrate", "gatekeeper", "-p", f}, nil, &stdout, &stderr); code != exitOK && code != exitDenied || stdout.Len() == 0 {
			continue // some have no policy
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.yaml", i)), stdout.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadDir(dir)
	if err != nil || len(written) < 20 {
		t.Fatalf("%d policies: %v", len(written), err)
	}
	for _, f := range written {
		var stdout, stderr bytes.Buffer
		if code := run([]string{"lint", "-o", "github", filepath.Join(dir, f.Name())}, nil, &stdout, &stderr); code != exitOK {
			t.Errorf("exit code %d: %s", code, stderr.String())
		}
		for line := range strings.Lines(stdout.String()) {
			if !strings.Contains(line, "title=immutable-field::") {
				t.Error(line)
			}
		}
	}
}
