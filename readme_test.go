package mapd_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite what the README's commands print")

// tourBlock is a code block of the README that shows a command and all that it
// prints, both streams as a terminal shows them.
var tourBlock = regexp.MustCompile("(?s)```\n\\$ bin/mapd (eval [^\n]*)\n(.*?)```\n")

// The commands of the README print what it says they print.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := tourBlock.FindAllSubmatch(text, -1)
	if len(blocks) < 3 {
		t.Fatalf("found %d commands with output: the README is not read as it is written", len(blocks))
	}
	mapd := filepath.Join(t.TempDir(), "mapd")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", mapd, "./cmd/mapd").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	after := text
	for _, m := range blocks {
		args, want := strings.Fields(string(m[1])), string(m[2])
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), mapd, args...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		if *update {
			block := bytes.Replace(m[0], []byte("\n"+want+"```"), []byte("\n"+out.String()+"```"), 1)
			after = bytes.Replace(after, m[0], block, 1)
			continue
		}
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Errorf("mapd %s (-README +printed):\n%s", m[1], d)
		}
	}
	if *update && !bytes.Equal(text, after) {
		if err := os.WriteFile("README.md", after, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
