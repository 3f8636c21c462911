package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/test/hammer"
)

// docBlock is a code block that shows a command and all that it prints.
var docBlock = regexp.MustCompile("(?s)```\n\\$ (mapd|cat) ([^\n]*)\n(.*?)```\n")

// The commands of docs/move/gatekeeper.md and gatekeeper-policies.md print what the pages say.
func TestGatekeeperDoc(t *testing.T) {
	hammer.Alone(t)
	move, err := filepath.Abs("../../docs/move")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../docs/tour/gatekeeper")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	gatekeeperPage(t, filepath.Join(move, "gatekeeper.md"), 4)
	gatekeeperPage(t, filepath.Join(move, "gatekeeper-policies.md"), 4)
}

// gatekeeperPage runs the commands of a page, of which there are so many.
func gatekeeperPage(t *testing.T, doc string, count int) {
	text := []byte(readFile(t, doc))
	blocks := docBlock.FindAllSubmatch(text, -1)
	if len(blocks) != count {
		t.Fatalf("%s: found %d commands with output, want %d", filepath.Base(doc), len(blocks), count)
	}
	after := text
	for _, m := range blocks {
		command, args, want := string(m[1]), string(m[2]), string(m[3])
		var out bytes.Buffer
		if command == "cat" {
			out.WriteString(readFile(t, args))
		} else {
			run(strings.Fields(args), nil, &out, &out)
		}
		if *update {
			block := bytes.Replace(m[0], []byte("\n"+want+"```"), []byte("\n"+out.String()+"```"), 1)
			after = bytes.Replace(after, m[0], block, 1)
			continue
		}
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Errorf("%s %s (-docs +printed):\n%s", command, args, d)
		}
	}
	if *update {
		if err := os.WriteFile(doc, after, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	trapInCode = regexp.MustCompile(`"(T[0-9]+)"`)
	trapInDoc  = regexp.MustCompile(`(?m)^\| (T[0-9]+) \|`)
)

// Every number that a note can have is explained in docs/move/gatekeeper-policies.md.
func TestTrapsAreExplained(t *testing.T) {
	explained := map[string]bool{}
	for _, m := range trapInDoc.FindAllStringSubmatch(readFile(t, "../../docs/move/gatekeeper-policies.md"), -1) {
		explained[m[1]] = true
	}
	files, err := filepath.Glob("../../internal/gatekeeper/translate/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range trapInCode.FindAllStringSubmatch(readFile(t, file), -1) {
			if found++; !explained[m[1]] {
				t.Errorf("%s: notes say %s, which the document does not explain", filepath.Base(file), m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d numbers: the notes are not written as this test reads them", found)
	}
}
