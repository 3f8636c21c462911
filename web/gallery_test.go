package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/web/gallery"
)

var root = os.DirFS("..")

// question returns the question of an example, as the page reads it.
func question(t *testing.T, s gallery.State) Question {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var q Question
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		t.Fatal(err)
	}
	return q
}

// open answers the question of an example.
func open(t *testing.T, s gallery.State) *Answer {
	t.Helper()
	a, err := unhurried().evaluate(t.Context(), EvaluateQuestion{Question: question(t, s)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Every example of the gallery has the result that it describes.
func TestGallery(t *testing.T) {
	entries, err := gallery.Entries(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < 40 {
		t.Errorf("%d entries", len(entries))
	}
	for _, e := range entries {
		t.Run(e.Name, func(t *testing.T) {
			if e.Title == "" || !strings.HasSuffix(e.Sentence, ".") || len(e.Tags) == 0 || e.Group == "" {
				t.Errorf("title %q, sentence %q, tags %v, group %q", e.Title, e.Sentence, e.Tags, e.Group)
			}
			a := open(t, e.State)
			if len(a.Errors) > 0 {
				t.Fatalf("errors %v", a.Errors)
			}
			for _, r := range a.Results {
				switch {
				case r.Error != nil:
					t.Errorf("%s: %s", r.Name, r.Error.Message)
				case (e.Refused != "") != (r.Verdict == "denied"):
					t.Errorf("%s: verdict %s: %s", r.Name, r.Verdict, r.Refusal)
				case !strings.Contains(r.Refusal, e.Refused):
					t.Errorf("%s: refused: %s\nwant      %s", r.Name, r.Refusal, e.Refused)
				}
			}
			switch {
			case e.Objects != "":
				var got []string
				for _, r := range a.Results {
					got = append(got, r.Text)
				}
				if diff := cmp.Diff(trees(t, e.Objects), trees(t, strings.Join(got, "---\n"))); diff != "" {
					t.Errorf("objects (-want +got):\n%s", diff)
				}
			case e.Refused == "":
				if diff := cmp.Diff(e.Diff, changes(a)); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// trees returns the documents of a YAML stream.
func trees(t *testing.T, text string) []any {
	t.Helper()
	var all []any
	for _, part := range strings.Split("\n"+text, "\n---\n") {
		var v any
		if err := yaml.Unmarshal([]byte(part), &v); err != nil {
			t.Fatal(err)
		}
		if v != nil {
			all = append(all, v)
		}
	}
	return all
}

// changes returns the changes of the only object, in the format of mapd eval -o diff.
func changes(a *Answer) string {
	var b strings.Builder
	for _, r := range a.Results {
		if r.Verdict != "changed" {
			fmt.Fprintln(&b, r.Verdict)
		}
		for _, c := range r.Diff {
			switch {
			case c.Before == nil:
				fmt.Fprintf(&b, "+ %s: %s\n", c.Path, value(c.After))
			case c.After == nil:
				fmt.Fprintf(&b, "- %s: %s\n", c.Path, value(c.Before))
			default:
				fmt.Fprintf(&b, "~ %s: %s → %s\n", c.Path, value(c.Before), value(c.After))
			}
		}
	}
	return b.String()
}

func value(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// The blocks of the tour are equal to the cases that it names, whose results other tests compare
// with Kubernetes. TestGallery checks the last block.
func TestTour(t *testing.T) {
	parts, err := gallery.Parts(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) != 9 {
		t.Errorf("%d parts", len(parts))
	}
	for _, p := range parts {
		archive, err := txtar.ParseFile("../test/cases/" + p.Case + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		var given []string
		refused, changed := "", false
		for _, f := range archive.Files {
			switch f.Name {
			case "want.object.yaml":
				changed = true
			case "want.error":
				refused = string(f.Data)
			case "want.rounds", "want.steps":
			default:
				given = append(given, string(f.Data))
			}
		}
		last := len(p.Blocks) - 1
		if diff := cmp.Diff(given, p.Blocks[:last]); diff != "" {
			t.Errorf("%s: blocks (-case +page):\n%s", p.Case, diff)
		}
		result := p.Blocks[last]
		_, reason, _ := strings.Cut(result, " is invalid: ")
		if refused != "" && (reason == "" || !strings.Contains(refused, strings.TrimSpace(reason))) || refused == "" && changed != strings.ContainsAny(result[:1], "+-~") {
			t.Errorf("%s: result %q, in the case %q", p.Case, result, refused)
		}
	}
}

// Every block of the documentation that opens in the playground can be evaluated, or
// fails as the page says.
func TestBlocks(t *testing.T) {
	blocks, err := gallery.Blocks(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(blocks) < 10 {
		t.Errorf("%d blocks", len(blocks))
	}
	for text, b := range blocks {
		if b.Example != "" {
			continue // TestGallery has it
		}
		s := b.State
		a := open(t, *s)
		faults := a.Errors
		for _, r := range a.Results {
			if r.Error != nil {
				faults = append(faults, *r.Error)
			}
		}
		for _, f := range faults {
			if !strings.Contains(text, f.Message) {
				t.Errorf("%s\nerror %v", text, f)
			}
		}
		if len(faults) == 0 && (len(a.Results) > 0) != (len(s.Objects) > 0) {
			t.Errorf("%s\n%d results", text, len(a.Results))
		}
	}
}
