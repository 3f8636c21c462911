package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var edits = flag.Int("edits", 50, "how many random edits TestRandomEdits makes of each seed")

// What a desk reuses of earlier calls changes no answer: after random edits, it answers as a new
// desk does.
func TestRandomEdits(t *testing.T) {
	var questions []EvaluateQuestion
	for _, l := range append(caseLines(t), galleryLines(t)...) {
		var q EvaluateQuestion
		if err := json.Unmarshal([]byte(l.params), &q); err != nil {
			t.Fatal(err)
		}
		questions = append(questions, q)
	}
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			kept := unhurried()
			var q EvaluateQuestion
			seen := map[string]bool{}
			for i := range *edits {
				if i%10 == 0 {
					q = questions[r.IntN(len(questions))]
					q.Trace = false // the order in which the keys of a map are read is random
				}
				params, err := json.Marshal(q)
				if err != nil {
					t.Fatal(err)
				}
				for _, method := range []string{"evaluate", "evaluate", "suite"} {
					fresh := unhurried()
					fresh.envs = kept.envs
					want, wantErr := fresh.call(t.Context(), method, params)
					got, err := kept.call(t.Context(), method, params)
					if fmt.Sprint(err) != fmt.Sprint(wantErr) || sortedReads(string(got)) != sortedReads(string(want)) {
						t.Fatalf("edit %d: %s\n%s\nerrors %v and %v (-fresh +kept)\n%s", i, method, params, wantErr, err, cmp.Diff(string(want), string(got)))
					}
					seen[string(got)] = true
				}
				q = edited(r, q, questions)
			}
			if len(seen) < *edits/3 {
				t.Errorf("%d edits have %d answers: that is too few", *edits, len(seen))
			}
		})
	}
}

var (
	digit = regexp.MustCompile(`[0-9]`)
	word  = regexp.MustCompile(`"[a-z]{2,12}"`)
	kinds = regexp.MustCompile(`"(string|integer|boolean)"|type: (string|integer)`)
)

// edited returns q with one thing changed.
func edited(r *rand.Rand, q EvaluateQuestion, others []EvaluateQuestion) EvaluateQuestion {
	data, _ := json.Marshal(q)
	q = EvaluateQuestion{}
	_ = json.Unmarshal(data, &q)
	other := others[r.IntN(len(others))]
	pick := func(re *regexp.Regexp, text string, with func(string) string) string {
		at := re.FindAllStringIndex(text, -1)
		if len(at) == 0 {
			return text
		}
		m := at[r.IntN(len(at))]
		return text[:m[0]] + with(text[m[0]:m[1]]) + text[m[1]:]
	}
	var doc *Text
	if len(q.Documents) > 0 {
		doc = &q.Documents[r.IntN(len(q.Documents))]
	}
	switch n := r.IntN(16); {
	case n == 0:
		q.Kubernetes = []string{"", "1.37", "1.34", "1.32"}[r.IntN(4)]
	case n == 1:
		q.Namespace = []string{"", "shop", "default"}[r.IntN(3)]
	case n == 2:
		q.Unbound = !q.Unbound
	case n == 3:
		q.WhyNot = !q.WhyNot
	case n == 4:
		q.Trace = !q.Trace
	case n == 5:
		q.Objects, q.Old, q.Operation = other.Objects, other.Old, other.Operation
	case n == 6:
		q.User = other.User
	case n == 7:
		for _, d := range other.Documents {
			d.Name = fmt.Sprint("more", r.IntN(3))
			q.Documents = append(q.Documents, d)
		}
	case doc == nil:
	case n == 8:
		doc.Text = pick(digit, doc.Text, func(string) string { return fmt.Sprint(r.IntN(10)) })
	case n == 9:
		doc.Text = pick(word, doc.Text, func(s string) string { return s[:len(s)-1] + `x"` })
	case n == 10, n == 11:
		doc.Text = pick(kinds, doc.Text, func(s string) string {
			if strings.Contains(s, "integer") {
				return strings.Replace(s, "integer", "string", 1)
			}
			return strings.NewReplacer("string", "integer", "boolean", "string").Replace(s)
		})
	case n == 12:
		doc.Text = "# a line more\n" + doc.Text
	case n == 13:
		q.Documents = append(q.Documents, *doc)
	case n == 14:
		parts := strings.Split(doc.Text, "\n---\n")
		i := r.IntN(len(parts))
		doc.Text = strings.Join(append(parts[:i:i], parts[i+1:]...), "\n---\n")
	default:
		r.Shuffle(len(q.Documents), func(i, j int) { q.Documents[i], q.Documents[j] = q.Documents[j], q.Documents[i] })
	}
	return q
}
