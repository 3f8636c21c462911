package externaldata_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/pkg/engine"
)

func text(a engine.Answer) string {
	if a.Err != nil {
		return "error: " + a.Err.Error()
	}
	return a.Value
}

func resolve(r engine.Resolver, questions ...engine.Question) []string {
	var out []string
	for _, a := range r.Resolve(context.Background(), questions, false) {
		out = append(out, text(a))
	}
	return out
}

func TestAnswers(t *testing.T) {
	a, err := externaldata.ReadAnswers("answers.yaml", []byte(`
digests:
  nginx: nginx@sha256:1
  "": empty key
  redis: {error: unknown}
  "7": "7"
teams: {}
`))
	if err != nil {
		t.Fatal(err)
	}
	got := resolve(a, engine.Question{Source: "digests", Key: "nginx"}, engine.Question{Source: "digests", Key: ""},
		engine.Question{Source: "digests", Key: "redis"}, engine.Question{Source: "digests", Key: "7"},
		engine.Question{Source: "teams", Key: "bob"}, engine.Question{Source: "none", Key: "x"})
	want := []string{
		"nginx@sha256:1", "empty key", "error: provider digests: unknown", "7",
		`error: provider teams: answers.yaml has no answer for the key "bob"`,
		`error: provider none: answers.yaml has no answer for the key "x"`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if got := resolve(externaldata.Offline("give --external"), engine.Question{Source: "p", Key: "k"}); got[0] != `error: provider p: not asked for the key "k": give --external` {
		t.Error(got)
	}
}

func TestReadAnswersRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"- a":                          "f: recorded answers: expected a map of providers to keys to answers",
		"p: nginx":                     "f: recorded answers: provider p: expected a map of keys to answers",
		"p: {k: 7}":                    `f: recorded answers: provider p: key "k": expected a string, or {error: TEXT}`,
		"p: {k: null}":                 `f: recorded answers: provider p: key "k": expected a string, or {error: TEXT}`,
		"p: {k: [a]}":                  `f: recorded answers: provider p: key "k": expected a string, or {error: TEXT}`,
		"p: {k: {error: ''}}":          `f: recorded answers: provider p: key "k": expected a string, or {error: TEXT}`,
		"p: {k: {error: x, value: y}}": `f: recorded answers: provider p: key "k": expected a string, or {error: TEXT}`,
		"p: {k: a, k: b}":              `key "k" already set in map`,
		"p: {k: a":                     "f: recorded answers: yaml: line 1",
	} {
		if _, err := externaldata.ReadAnswers("f", []byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

// someKeys answers with the key in capitals, and counts.
type someKeys struct{ asked []engine.Question }

func (s *someKeys) Resolve(_ context.Context, questions []engine.Question, _ bool) []engine.Answer {
	out := make([]engine.Answer, len(questions))
	for i, q := range questions {
		s.asked = append(s.asked, q)
		switch q.Key {
		case "bad":
			out[i].Err = &externaldata.Error{Provider: q.Source, Reason: externaldata.Key, Text: `key "bad": unknown`}
		case "down":
			out[i].Err = &externaldata.Error{Provider: q.Source, Reason: externaldata.Connection, Text: "no connection"}
		case "odd":
			out[i].Err = errors.New("odd")
		default:
			out[i].Value = strings.ToUpper(q.Key)
		}
	}
	return out
}

// What was recorded is answered again, word for word.
func TestRecorder(t *testing.T) {
	known, err := externaldata.ReadAnswers("old.yaml", []byte("p: {b: known, unused: kept}\n"))
	if err != nil {
		t.Fatal(err)
	}
	from := &someKeys{}
	r := &externaldata.Recorder{From: from, Known: known}
	questions := []engine.Question{
		{Source: "p", Key: "a"}, {Source: "p", Key: "b"}, {Source: "p", Key: "bad"}, {Source: "q", Key: ""},
		{Source: "q", Key: "y"}, {Source: "q", Key: "multi\nline"}, {Source: "q", Key: "error"},
	}
	live := resolve(r, questions...)
	if want := []string{"A", "known", `error: provider p: key "bad": unknown`, "", "Y", "MULTI\nLINE", "ERROR"}; cmp.Diff(want, live) != "" {
		t.Errorf("-want +got\n%s", cmp.Diff(want, live))
	}
	if len(from.asked) != len(questions)-1 {
		t.Errorf("asked %v", from.asked)
	}
	file, err := r.File()
	if err != nil {
		t.Fatal(err)
	}
	replayed, err := externaldata.ReadAnswers("new.yaml", file)
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	if d := cmp.Diff(live, resolve(replayed, questions...)); d != "" {
		t.Errorf("-live +replayed\n%s\n%s", d, file)
	}
	if got := resolve(replayed, engine.Question{Source: "p", Key: "unused"}); got[0] != "kept" {
		t.Error(got)
	}
	if got := resolve(r, engine.Question{Source: "p", Key: "odd"}); got[0] != "error: odd" {
		t.Error(got)
	}
}

// A call that failed is not recorded, and an error that is recorded is asked for again.
func TestRecorderFailures(t *testing.T) {
	known, err := externaldata.ReadAnswers("old.yaml", []byte("p: {back: {error: gone}, down: {error: before}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := &externaldata.Recorder{From: &someKeys{}, Known: known}
	questions := []engine.Question{{Source: "p", Key: "back"}, {Source: "p", Key: "down"}, {Source: "q", Key: "down"}, {Source: "q", Key: "odd"}}
	want := []string{"BACK", "error: provider p: before", "error: provider q: no connection", "error: odd"}
	if d := cmp.Diff(want, resolve(r, questions...)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	file, err := r.File()
	if d := cmp.Diff("p:\n  back: BACK\n  down:\n    error: before\n", string(file)); d != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, d)
	}
}
