package mapd_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	roomRow   = regexp.MustCompile("(?m)^\\| `((?:cmd|internal|manifests|pkg|web)[a-z/]*)` \\| ([0-9,]+) \\| [0-9,–]+ \\|$")
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
)

// Every package belongs to a room of the table in docs/rationale.md, and the
// rooms have the sizes that the table says.
func TestRooms(t *testing.T) {
	want, have := map[string]int{}, map[string]int{}
	for _, m := range roomRow.FindAllStringSubmatch(readText(t, "docs/rationale.md"), -1) {
		lines, err := strconv.Atoi(strings.ReplaceAll(m[2], ",", ""))
		if err != nil {
			t.Fatal(err)
		}
		want[m[1]] = lines
	}
	if len(want) < 20 {
		t.Fatalf("found %d rooms: the table is not read as it is written", len(want))
	}
	for _, top := range []string{"cmd", "internal", "manifests", "pkg", "web"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules"):
				return filepath.SkipDir
			case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			text := readText(t, path)
			if generated.MatchString(text) {
				return nil
			}
			room := filepath.ToSlash(filepath.Dir(path))
			for want[room] == 0 && strings.Contains(room, "/") {
				room = filepath.ToSlash(filepath.Dir(room))
			}
			if want[room] == 0 {
				t.Errorf("%s is in no room of docs/rationale.md", path)
			}
			have[room] += strings.Count(text, "\n")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for room, lines := range want {
		switch n := have[room]; {
		case n > lines+lines/10+30:
			t.Errorf("%s has %d lines, and docs/rationale.md says %d: change the number, and say what the lines are for", room, n, lines)
		case n < lines-lines/4-30:
			t.Errorf("%s has %d lines, and docs/rationale.md says %d: change the number", room, n, lines)
		}
	}
}
