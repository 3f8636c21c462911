package feature

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A listing says the same for people and for programs.
func TestListing(t *testing.T) {
	l := &Listing{
		Key: "toys", One: "toy", Many: "toys", Mode: "shadow", States: []string{"running", "broken"},
		Lines:    []Line{{ID: "a", State: "broken", Text: "is\n wrong", Reason: "ToyBroken"}, {ID: "long-name", State: "running"}},
		Problems: []string{"cannot\tbe read"},
	}
	want := map[string]string{
		"mode":        "shadow",
		"summary":     "2 toys: 1 running, 1 broken",
		"toys":        "a          broken   is wrong\nlong-name  running\n",
		"problems":    "cannot be read\n",
		"report.json": `{"mode":"shadow","problems":["cannot be read"],"toys":[{"id":"a","state":"broken","text":"is wrong"},{"id":"long-name","state":"running"}]}`,
	}
	data := l.Data()
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("data (- want):\n%s", diff)
	}
	read := ReadListing(data, "toys")
	if diff := cmp.Diff(Listing{
		Key: "toys", Mode: "shadow", Problems: []string{"cannot be read"},
		Lines: []Line{{ID: "a", State: "broken", Text: "is wrong"}, {ID: "long-name", State: "running"}},
	}, read); diff != "" {
		t.Errorf("read (- want):\n%s", diff)
	}
	if got := ReadListing(map[string]string{"mode": "shadow"}, "toys"); got.Mode != "shadow" {
		t.Errorf("of an older release: mode %q", got.Mode)
	}
	one := &Listing{Key: "toys", One: "toy", Many: "toys", Lines: []Line{{ID: "a", State: "running"}}, States: []string{"running"}}
	if got := one.Data()["summary"]; got != "1 toy: 1 running" {
		t.Errorf("one: %s", got)
	}
}

// A ConfigMap has room for about 1 MiB; one that is too large would be refused, and nobody
// would know anything.
func TestListingIsBounded(t *testing.T) {
	l := &Listing{Key: "toys", Many: "toys"}
	for i := range 20_000 {
		l.Lines = append(l.Lines, Line{ID: fmt.Sprint(i), State: "broken", Text: strings.Repeat("ü", 1000)})
		l.Problems = append(l.Problems, strings.Repeat("é", 1000))
	}
	data := l.Data()
	size := 0
	for _, text := range data {
		size += len(text)
	}
	if size > 1_000_000 || !strings.Contains(data["toys"], "\nand ") || !strings.HasPrefix(data["problems"], "and 20000 more") {
		t.Errorf("%d bytes, ending in %q and %q", size, data["toys"][len(data["toys"])-50:], data["problems"])
	}
	if n := len(ReadListing(data, "toys").Lines); n != strings.Count(data["toys"], "\n")-1 {
		t.Errorf("%d lines for programs, other than for people", n)
	}
}
