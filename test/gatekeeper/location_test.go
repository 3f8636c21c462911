package gatekeeper

import (
	"errors"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/path/parser"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// The parser gives what was recorded, and mapd's gives the same.
func TestRecordedLocations(t *testing.T) {
	data, err := files.ReadFile("testdata/recorded/location.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct{ Location, Canonical, Error string }
	if err := yaml.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no location is recorded")
	}
	for _, c := range all {
		got, err := parser.Parse(c.Location)
		if errText(err) != c.Error || err == nil && got.String() != c.Canonical {
			t.Errorf("Gatekeeper: Parse(%q) = %q, %v; recorded: %q, %q", c.Location, got, err, c.Canonical, c.Error)
		}
		compareLocation(t, c.Location)
	}
	t.Logf("%d locations", len(all))
}

// FuzzLocation holds mapd's parser of locations against Gatekeeper's.
func FuzzLocation(f *testing.F) {
	for _, s := range []string{"spec.a", `spec.a[b:c].d`, `spec."a\"b"['k':*]."é"`, "spec.a[b: 0123].c", "spec[a:-1]", " a . b [c : \td]", `a."b\`,
		"a[b:", "a[b:c", "a[", "a[:]", "a..b", "", " ", "\x00", "a\x00", `"\n"`, "a\xff", "'a'[\"b\":'c'].'d'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { compareLocation(t, s) })
}

func compareLocation(t *testing.T, s string) {
	t.Helper()
	theirs, err := parser.Parse(s)
	ours, ourErr := legacy.ParsePath(s)
	if errText(err) != errText(ourErr) {
		var syntax *legacy.SyntaxError
		if err == nil && errors.As(ourErr, &syntax) && overflows.MatchString(s) {
			return // row gk-overflow
		}
		t.Errorf("ParsePath(%q): %q; Gatekeeper: %q", s, errText(ourErr), errText(err))
		return
	}
	if err != nil {
		return
	}
	if d := cmp.Diff(nodes(theirs), ours); d != "" {
		t.Errorf("ParsePath(%q) (-Gatekeeper +mapd):\n%s", s, d)
	}
	if again, err := legacy.ParsePath(ours.String()); err != nil || !cmp.Equal(again, ours) {
		t.Errorf("ParsePath(%q).String() is %q, which reads as %v, %v", s, ours, again, err)
	}
}

// nodes is Gatekeeper's path in mapd's types.
func nodes(p parser.Path) legacy.Path {
	var all legacy.Path
	for _, n := range p.Nodes {
		switch n := n.(type) {
		case *parser.Object:
			all = append(all, legacy.Node{Name: n.Reference})
		case *parser.List:
			all = append(all, legacy.Node{List: true, Name: n.KeyField, Glob: n.Glob, Value: n.KeyValue})
		}
	}
	return all
}

// overflows matches a location with an integer that may not fit into 64 bits.
var overflows = regexp.MustCompile(`[0-9]{19}`)
