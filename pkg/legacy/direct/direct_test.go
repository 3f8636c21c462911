package direct

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
)

func path(location string) legacy.Path {
	p, err := legacy.ParsePath(location)
	if err != nil {
		panic(err)
	}
	return p
}

var pods = []legacy.ApplyTo{{Groups: []string{""}, Versions: []string{"v1"}, Kinds: []string{"Pod"}}}

// assignTo is an Assign named a that sets a constant on Pods.
func assignTo(location string, value any, tests ...legacy.PathTest) *legacy.Mutator {
	return &legacy.Mutator{
		Kind: legacy.Assign, Name: "a", Location: path(location), ApplyTo: pods,
		Tests: tests, From: &legacy.Source{Value: value},
	}
}

// label is an AssignMetadata of that name that adds a label of that name.
func label(name string, match legacy.Match) *legacy.Mutator {
	return &legacy.Mutator{
		Kind: legacy.AssignMetadata, Name: name, Location: path("metadata.labels." + name),
		Match: match, From: &legacy.Source{Value: "x"},
	}
}

// setOf is a ModifySet named a.
func setOf(location string, values legacy.SetValues) *legacy.Mutator {
	return &legacy.Mutator{
		Kind: legacy.ModifySet, Name: "a", Location: path(location), ApplyTo: pods, Set: &values,
	}
}

// imageAt is an AssignImage named a.
func imageAt(location string, parts legacy.Image) *legacy.Mutator {
	return &legacy.Mutator{
		Kind: legacy.AssignImage, Name: "a", Location: path(location), ApplyTo: pods, Image: &parts,
	}
}

func named(name string, m *legacy.Mutator) *legacy.Mutator {
	m.Name = name
	return m
}

func must(depth int) legacy.PathTest {
	return legacy.PathTest{Depth: depth, Condition: legacy.MustExist}
}

func mustNot(depth int) legacy.PathTest {
	return legacy.PathTest{Depth: depth, Condition: legacy.MustNotExist}
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	obj, err := tree.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func text(t testing.TB, obj map[string]any) string {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// application is a row of the tests of Apply: what one mutator makes of an object
// without a kind. No want means that it is not touched.
type application struct {
	mutator  *legacy.Mutator
	in, want string
	err      string // what comes after the names of the mutator and the object
}

func testApply(t *testing.T, tests map[string]application) {
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := object(t, tt.in)
			got, touched, err := Apply(tt.mutator, in, Context{UID: "u"})
			msg := strings.TrimPrefix(errString(err), "mutation u for mutator "+tt.mutator.String()+" failed for    : ")
			if msg != tt.err {
				t.Fatalf("Apply(%s, %s) error = %q, want %q", tt.mutator.Location, tt.in, msg, tt.err)
			}
			want := tt.want
			if want == "" {
				want = tt.in
			}
			if s := text(t, got); s != want || touched != (tt.want != "") {
				t.Errorf("Apply(%s, %s) = %s, %v, want %s", tt.mutator.Location, tt.in, s, touched, want)
			}
			if !tree.Equal(in, object(t, tt.in)) {
				t.Errorf("Apply(%s, %s) made its input %s", tt.mutator.Location, tt.in, text(t, in))
			}
		})
	}
}

func TestErrorNamesMutatorAndObject(t *testing.T) {
	m := assignTo("spec.a.b", "v")
	for in, want := range map[string]string{
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"a":true}}`: "apps Deployment shop web",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-"},"spec":{"a":true}}`:                       " Pod  web-",
		`{"apiVersion":"a/b/c","kind":"Pod","spec":{"a":true}}`:                                                       "   ",
	} {
		_, _, err := Apply(m, object(t, in), Context{UID: "1-2"})
		want = "mutation 1-2 for mutator Assign.mutations.gatekeeper.sh /a failed for " + want +
			": mismatch between path entry (type: object) and received object (type: bool). Path: b"
		if errString(err) != want {
			t.Errorf("Apply to %s: error = %q, want %q", in, errString(err), want)
		}
	}
}
