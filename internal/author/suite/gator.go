package suite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// gatorSuite is a suite of gator, Gatekeeper's command. It tests constraints only: gator verify
// runs no mutators, and its cases cannot describe a changed object.
type gatorSuite struct {
	APIVersion string      `json:"apiVersion" need:"y"`
	Kind       string      `json:"kind" need:"y"`
	Metadata   value       `json:"metadata"`
	Tests      []gatorTest `json:"tests"`
	Skip       bool        `json:"skip"`
}

type gatorTest struct {
	Name       string      `json:"name"`
	Template   string      `json:"template"`
	Constraint string      `json:"constraint"`
	Cases      []gatorCase `json:"cases"`
	Invalid    bool        `json:"invalid"`
	Skip       bool        `json:"skip"`
}

type gatorCase struct {
	Name       string   `json:"name"`
	Object     string   `json:"object"`
	Inventory  []string `json:"inventory"`
	Assertions []struct {
		Violations value  `json:"violations"`
		Message    string `json:"message"`
	} `json:"assertions"`
	Skip bool `json:"skip"`
}

const gatorVersion = "test.gatekeeper.sh/v1alpha1"

// gatorHead is how a suite of gator begins, which may be in a file of any name.
var gatorHead = regexp.MustCompile(`(?m)^apiVersion:[ \t]*["']?` + regexp.QuoteMeta(gatorVersion) + `["']?[ \t\r]*(#.*)?$`)

// maxSuite bounds the files in which suites of gator are looked for.
const maxSuite = 1 << 20

// isGator reports whether a file has a suite of gator.
func isGator(path string) bool {
	if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" {
		return false
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSuite {
		return false
	}
	text, err := manifest.ReadFile(path, maxSuite)
	return err == nil && bytes.Contains(text, []byte(gatorVersion)) && gatorHead.Match(text)
}

// readGator reads a suite of gator. All its cases are skipped. A test whose template or constraint
// is a mutator or a policy that mapd runs is an error, because gator would refuse it and its
// author should know.
func readGator(file string, d *mapd.Document) (*Suite, []error) {
	var g gatorSuite
	dec := &decoder{doc: d}
	dec.decode("", d.Object().Object, reflect.ValueOf(&g).Elem())
	s := &Suite{File: file, doc: d}
	for i, test := range g.Tests {
		path := fmt.Sprintf("tests[%d]", i)
		refuseMutators(dec, path+".template", s, test.Template)
		refuseMutators(dec, path+".constraint", s, test.Constraint)
		if len(test.Cases) == 0 {
			s.leaveOut(d, path, test.Name, constraints)
		}
		for n, c := range test.Cases {
			s.leaveOut(d, fmt.Sprintf("%s.cases[%d]", path, n), test.Name+"/"+c.Name, constraints)
		}
	}
	if len(g.Tests) == 0 {
		dec.fail("tests", "tests: there is no test")
	}
	return s, dec.errs
}

const constraints = "tests a ConstraintTemplate, which mapd does not run"

// refuseMutators returns an error if a file has a mutator or a policy of a kind that mapd runs.
// It ignores other errors in the file, which gator reports.
func refuseMutators(dec *decoder, path string, s *Suite, name string) {
	if name == "" {
		return
	}
	file := s.near(name)
	docs, _ := documents(file)
	for _, d := range docs {
		if gvk := d.Object().GroupVersionKind(); legacy.IsMutator(gvk) || gvk.Kind == policyKind {
			dec.fail(path, "%s: %s has %s; suites of %s test constraints only, so write a case of %s", path, file, d.Name(), gatorVersion, APIVersion)
		}
	}
}

// leaveOut adds a case that does not run.
func (s *Suite) leaveOut(d *mapd.Document, path, name, why string) {
	s.units = append(s.units, &unit{suite: s, name: name, path: path, row: -1, line: d.ErrorAt(path, nil).Line, skip: why})
}
