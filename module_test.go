package mapd_test

import (
	"regexp"
	"testing"

	"golang.org/x/mod/zip"
)

// `go install …/cmd/mapd@VERSION` gets the module as an archive, in which names and
// sizes have rules, and ignores replacements.
func TestModule(t *testing.T) {
	files, err := zip.CheckDir(".")
	if err != nil {
		t.Fatal(err)
	}
	if err := files.Err(); err != nil {
		t.Error(err)
	}
	if len(files.Valid) < 500 {
		t.Errorf("the module has %d files", len(files.Valid))
	}
	if m := regexp.MustCompile(`(?m)^\s*(replace|exclude)\b.*`).FindString(readText(t, "go.mod")); m != "" {
		t.Errorf("go.mod: go install refuses a module with %q", m)
	}
}
