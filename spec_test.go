package mapd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// specs are the specifications in docs/spec, by the name that citations use.
var specs = map[string]string{
	"Kubernetes": "docs/spec/kubernetes.md",
	"Gatekeeper": "docs/spec/gatekeeper.md",
	"Kubewarden": "docs/spec/kubewarden.md",
}

// gatekeeperFolders are the folders in which a citation has to name its
// specification, because both Kubernetes' and Gatekeeper's could be meant.
var gatekeeperFolders = []string{"pkg/legacy", "internal/author/migrate", "internal/gatekeeper/mutators", "internal/gatekeeper/nativepolicies", "internal/author/verify", "test/gatekeeper"}

var (
	// anchors of a specification: numbered headings, traps, gaps and vectors.
	specHeading = regexp.MustCompile(`(?m)^#+ (\d+(?:\.\d+)?[a-z]?)[. ]`)
	specRow     = regexp.MustCompile(`(?m)^(?:\| |- \*\*)([TAG]\d+)\b`)

	// citation is the name of a specification and what follows "spec".
	citation = regexp.MustCompile(`\b(?:(Kubernetes|Gatekeeper|Kubewarden) )?[sS]pec (` + cited + `(?:[,;]?(?: and)?(?: trap)? ` + cited + `)*)`)
	caseLine = regexp.MustCompile(`^(?:(Gatekeeper|Kubewarden) )?(§\d+(?:\.\d+)?)((?: [TA]\d+,?)*): `)
	item     = regexp.MustCompile(`§(\d+(?:\.\d+)?[a-z]?)(?:–(\d+\.\d+))?|\b([TAG]\d+)\b`)
	bare     = regexp.MustCompile(`§\d`)

	// joint is a line break within a comment.
	joint = regexp.MustCompile(`\n[ \t]*(?://|#)?[ \t]*`)
)

const cited = `(?:§\d+(?:\.\d+)?[a-z]?(?:–\d+\.\d+)?|[TAG]\d+\b|Appendix A)`

// Every citation of a specification, in comments, documents and first lines of
// cases, leads to a section, a trap, a gap or a vector that exists.
func TestCitations(t *testing.T) {
	anchors := map[string][]string{}
	for name, file := range specs {
		text := readText(t, file)
		for _, m := range slices.Concat(specHeading.FindAllStringSubmatch(text, -1), specRow.FindAllStringSubmatch(text, -1)) {
			anchors[name] = append(anchors[name], m[1])
		}
		if len(anchors[name]) < 40 {
			t.Fatalf("%s: found %d anchors: it is not read as it is written", file, len(anchors[name]))
		}
	}
	count := 0
	check := func(file, name, list string) {
		t.Helper()
		if name == "" {
			name = "Kubernetes"
		}
		for _, m := range item.FindAllStringSubmatch(list, -1) {
			for _, anchor := range sections(m[1]+m[3], m[2]) {
				count++
				if !slices.Contains(anchors[name], anchor) {
					t.Errorf("%s: %q: %s has no %s", file, list, specs[name], anchor)
				}
			}
		}
	}

	for file, text := range texts(t) {
		if strings.HasPrefix(file, "docs/spec/") || file == "spec_test.go" {
			continue
		}
		// There is no specification of Kyverno: its engine is asked.
		if strings.HasPrefix(file, "test/cases/") && !strings.HasPrefix(file, "test/cases/kyverno/") && filepath.Ext(file) == ".txtar" {
			m := caseLine.FindStringSubmatch(text)
			if m == nil {
				t.Errorf("%s: the first line names no section", file)
				continue
			}
			check(file, m[1], m[2]+m[3])
			text = text[len(m[0]):]
		}
		text = joint.ReplaceAllString(text, " ")
		inFolder := slices.ContainsFunc(gatekeeperFolders, func(folder string) bool { return strings.HasPrefix(file, folder+"/") })
		for _, m := range citation.FindAllStringSubmatch(text, -1) {
			if m[1] == "" && inFolder {
				t.Errorf("%s: %q: say which specification", file, m[0])
			}
			check(file, m[1], m[2])
		}
		// Names of tests and examples of first lines have no name before the sign.
		if rest := citation.ReplaceAllString(text, ""); bare.MatchString(rest) && filepath.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "test/") {
			t.Errorf("%s: %q: write \"spec §\", or \"Gatekeeper spec §\"", file, around(rest, bare.FindStringIndex(rest)[0]))
		}
	}
	if count < 700 {
		t.Errorf("found %d citations: they are not read as they are written", count)
	}

	// Traps in notes about mutators are Gatekeeper's.
	compat := readText(t, "docs/reference/compat.md")
	_, compat, _ = strings.Cut(compat, "\n## Gatekeeper's mutators\n")
	for _, m := range regexp.MustCompile(`\bT\d+\b`).FindAllString(compat+readText(t, "docs/move/gatekeeper.md")+readText(t, "docs/move/gatekeeper-policies.md"), -1) {
		check("docs", "Gatekeeper", m)
	}
}

// sections lists first, or first to last of a range within one chapter.
func sections(first, last string) []string {
	chapter, from, ok := strings.Cut(first, ".")
	_, to, isRange := strings.Cut(last, ".")
	if !ok || !isRange {
		return []string{first}
	}
	low, err1 := strconv.Atoi(from)
	high, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || low > high {
		return []string{first + "–" + last} // no section has this name
	}
	var all []string
	for n := low; n <= high; n++ {
		all = append(all, chapter+"."+strconv.Itoa(n))
	}
	return all
}

// texts reads all files of the repository that people write: code, documents,
// cases, manifests and scripts, by their paths.
func texts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" || d.Name() == "node_modules" || path == "bin" || path == "dist" {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".md", ".txtar", ".yaml", ".sh":
			all[filepath.ToSlash(path)] = readText(t, path)
		}
		if path == "Makefile" || path == "Dockerfile" || strings.HasPrefix(filepath.ToSlash(path), ".ci/") {
			all[filepath.ToSlash(path)] = readText(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// around is the text about a place, for a message.
func around(text string, at int) string {
	return strings.ToValidUTF8(text[max(0, at-30):min(len(text), at+30)], "")
}
