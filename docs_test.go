package mapd_test

import (
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// The pages of docs are a tree: each is reachable from docs/README.md, and every link of a
// page or a README leads to a file and a heading that exist. No page but a specification has
// more than 300 lines, and README.md has at most 130.
func TestDocsTree(t *testing.T) {
	pages := []string{"README.md", "CONTRIBUTING.md", "examples/README.md", "test/cases/README.md", "editors/vscode/README.md"}
	err := filepath.WalkDir("docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			pages = append(pages, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	links, anchors := map[string][]string{}, map[string][]string{}
	for _, page := range pages {
		text := readText(t, page)
		links[page], anchors[page] = linksOf(text), anchorsOf(text)
		most := 300
		if page == "README.md" {
			most = 130
		}
		if n := strings.Count(text, "\n"); n > most && !strings.HasPrefix(page, "docs/spec/") {
			t.Errorf("%s has %d lines, more than %d: divide it", page, n, most)
		}
	}
	reached := map[string]bool{}
	var reach func(page string)
	reach = func(page string) {
		if reached[page] {
			return
		}
		reached[page] = true
		for _, link := range links[page] {
			file, _, _ := strings.Cut(link, "#")
			file = path.Join(path.Dir(page), file)
			if _, ok := links[file]; !ok {
				file += "/README.md"
			}
			if strings.HasPrefix(file, "docs/") && links[file] != nil {
				reach(file)
			}
		}
	}
	reach("docs/README.md")
	count := 0
	for _, page := range pages {
		if strings.HasPrefix(page, "docs/") && !reached[page] {
			t.Errorf("no page that docs/README.md leads to has a link to %s", page)
		}
		for _, link := range links[page] {
			count++
			file, anchor, _ := strings.Cut(link, "#")
			to := path.Join(path.Dir(page), file)
			if file == "" {
				to = page
			}
			info, err := os.Stat(to)
			if err != nil {
				t.Errorf("%s: %s: no such file", page, link)
				continue
			}
			if info.IsDir() {
				to += "/README.md"
			}
			if known, ok := anchors[to]; ok && anchor != "" && !slices.Contains(known, anchor) {
				t.Errorf("%s: %s: no such heading", page, link)
			}
		}
	}
	if count < 200 {
		t.Errorf("found %d links: pages are not read as they are written", count)
	}
}

var (
	mdFence   = regexp.MustCompile("(?ms)^```.*?^```$")
	mdCode    = regexp.MustCompile("`[^`\n]*`")
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)"`)
	mdHeading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	mdTarget  = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	notInSlug = regexp.MustCompile(`[^\p{L}\p{M}\p{N}\p{Pc}\- ]`)
)

// linksOf returns the links and pictures of a page that are not to other sites.
func linksOf(text string) []string {
	all := []string{}
	for _, m := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(mdFence.ReplaceAllString(text, ""), "x"), -1) {
		if link := m[1] + m[2]; !strings.Contains(link, ":") {
			all = append(all, link)
		}
	}
	return all
}

// anchorsOf returns the anchors that GitHub gives to the headings of a page.
func anchorsOf(text string) []string {
	all := []string{}
	for _, m := range mdHeading.FindAllStringSubmatch(mdFence.ReplaceAllString(text, ""), -1) {
		heading := strings.NewReplacer("`", "", "*", "").Replace(mdTarget.ReplaceAllString(m[1], "$1"))
		base := strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
		anchor := base
		for n := 1; slices.Contains(all, anchor); n++ {
			anchor = base + "-" + strconv.Itoa(n)
		}
		all = append(all, anchor)
	}
	return all
}

// The first pages work without node: an image has no playground, and a page that opens it says
// first how to build it.
func TestFirstPagesNeedNoNode(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(makefile), "\nimage: ## ") {
		t.Error("make image has prerequisites, such as the playground, which needs node")
	}
	for _, page := range []string{"README.md", "docs/start/thirty-minutes.md", "docs/start/playground.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if before, _, opens := strings.Cut(string(text), "$ bin/mapd playground\n"); opens && !strings.Contains(before, "`make web build`") {
			t.Errorf("%s opens the playground before it says how to build it", page)
		}
	}
}
