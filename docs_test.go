package mapd_test

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/test/cases"
)

var (
	compatRow  = regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\|.*\\| ([^|]*) \\|$")
	compatCase = regexp.MustCompile("`([a-z0-9-]+/[a-z0-9-]+)`")
	compatTest = regexp.MustCompile("`(Test[A-Za-z0-9]+)` in `([a-z0-9/]+)`")
)

// Every difference that a case claims is a row of docs/reference/compat.md that names
// the case, and every case and test that a row names exists.
func TestCompat(t *testing.T) {
	text, err := os.ReadFile("docs/reference/compat.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string][]string{} // row → cases
	for _, m := range compatRow.FindAllStringSubmatch(string(text), -1) {
		row, proof := m[1], m[2]
		if _, twice := shown[row]; twice {
			t.Errorf("row %s appears twice", row)
		}
		shown[row] = nil
		for _, c := range compatCase.FindAllStringSubmatch(compatTest.ReplaceAllString(proof, ""), -1) {
			shown[row] = append(shown[row], c[1])
			if _, err := os.Stat(filepath.Join("test", "cases", c[1]+".txtar")); err != nil {
				t.Errorf("row %s: no case %s", row, c[1])
			}
		}
		for _, c := range compatTest.FindAllStringSubmatch(proof, -1) {
			if !hasTest(t, c[2], c[1]) {
				t.Errorf("row %s: no test %s in %s", row, c[1], c[2])
			}
		}
	}
	if len(shown) < 10 {
		t.Fatalf("found %d rows: the table is not read as it is written", len(shown))
	}
	for _, c := range cases.All(t) {
		if c.Compat != "" && !slices.Contains(shown[c.Compat], c.Name) {
			t.Errorf("case %s claims row %s, which does not name it", c.Name, c.Compat)
		}
	}
}

func hasTest(t *testing.T, pkg, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "func "+name+"(")
	})
}

// docs/reference/versions.md names cases that exist, minors that --kubernetes knows, and a reason
// for each row. That the rows are true is what `make e2e-versions` finds out.
func TestVersionsPage(t *testing.T) {
	text, err := os.ReadFile("docs/reference/versions.md")
	if err != nil {
		t.Fatal(err)
	}
	table, err := cases.ReadVersions(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, minor := range table.Minors {
		if _, err := cel.NewEnv(cel.Options{Version: minor}); err != nil {
			t.Errorf("column %s: %v", minor, err)
		}
	}
	compat, err := os.ReadFile("docs/reference/compat.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range table.Rows {
		if _, err := os.Stat(filepath.Join("test", "cases", name+".txtar")); err != nil {
			t.Errorf("no case %s", name)
		}
		if !slices.ContainsFunc(table.Minors, func(m string) bool { return row.Differs[m] }) {
			t.Errorf("%s differs nowhere", name)
		}
		if len(row.Why) < len("row") {
			t.Errorf("%s: no reason", name)
		}
		for _, m := range versionsRow.FindAllStringSubmatch(row.Why, -1) {
			if !strings.Contains(string(compat), "\n| `"+m[1]+"` |") {
				t.Errorf("%s: docs/reference/compat.md has no row %s", name, m[1])
			}
		}
	}
}

var versionsRow = regexp.MustCompile("row `([a-z0-9-]+)`")

// The first program of docs/reference/library.md is a whole one. It is checked with the types of
// this tree, not run: the examples of pkg/mapd are.
func TestHelloWorldCompiles(t *testing.T) {
	page, err := os.ReadFile("docs/reference/library.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, ok := strings.Cut(string(page), "```go\n")
	program, _, end := strings.Cut(program, "```\n")
	if !ok || !end || !strings.Contains(program, "func main() {") {
		t.Fatal("docs/reference/library.md has no program")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	formatted, err := format.Source([]byte(program))
	if err != nil || string(formatted) != program {
		t.Errorf("gofmt: %v; want\n%s", err, formatted)
	}
}
