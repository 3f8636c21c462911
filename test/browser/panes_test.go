package browser

import (
	"fmt"
	"strings"
	"testing"
)

// pane shows a pane and waits until it is done with the latest turn.
func (b *tab) pane(name string) string {
	b.t.Helper()
	b.idle()
	b.click("#tab-" + name)
	b.until("the pane "+name, js(`s => { const e = document.querySelector(s); return !e.hidden && !e.querySelector("[aria-busy=true]") && [".notice", ".body"].some(part => e.querySelector(part)?.innerText.trim()) }`, "#pane-"+name))
	b.idle()
	return "#pane-" + name
}

// Each pane says what the same code says without a browser.
func TestPanes(t *testing.T) {
	b := openTab(t, playside+fragment(good()))

	t.Run("result", func(t *testing.T) {
		b := b.in(t)
		for _, name := range []string{"default-labels", "sidecar-apply", "sidecar-params", "image-pull-policy", "namespace-resources"} {
			q := example(t, name)
			want := asked(t, q)
			b.open(playside + fragment(q))
			b.stores(want)
			// The lines that differ are those that are marked: as many as have a cause.
			for _, r := range want.Results {
				if r.Verdict == "changed" && len(r.Lines) == 0 {
					t.Errorf("%s: %s has no changed line", name, r.Name)
				}
			}
			marked := eval[int](b, `document.querySelectorAll("#pane-result .row.added, #pane-result .row.altered").length`)
			if marked == 0 {
				t.Errorf("%s: no line is marked", name)
			}
		}
	})

	labels := example(t, "default-labels")
	b.open(playside + fragment(labels))
	b.stores(asked(t, labels))

	t.Run("diff", func(t *testing.T) {
		b := b.in(t)
		pane := b.pane("diff")
		changes := 0
		for _, r := range asked(t, labels).Results {
			for _, d := range r.Diff {
				b.says(pane, d.Path)
				changes++
			}
		}
		if n := eval[int](b, `document.querySelectorAll("#pane-diff .change").length`); n != changes || n == 0 {
			t.Errorf("%d changes, want %d", n, changes)
		}
		b.click(`#pane-diff input[value=lines]`)
		b.says(pane, "+ example.com/environment: development")
	})

	t.Run("trace", func(t *testing.T) {
		b := b.in(t)
		pane := b.pane("trace")
		traced := ask[struct {
			Limits  struct{ Mutation int64 }
			Results []struct {
				Name  string
				Trace []struct {
					Policy, Outcome   string
					Cost              int64
					Conditions, Trace *struct {
						Evaluations []struct {
							Name string
							Cost int64
						}
					}
				}
			}
		}](t, "evaluate", struct {
			state
			Trace bool `json:"trace"`
		}{labels, true})
		n := 0
		for _, r := range traced.Results {
			b.says(pane, r.Name)
			for _, s := range r.Trace {
				b.says(pane, s.Policy, s.Outcome)
				if s.Trace != nil {
					for _, e := range s.Trace.Evaluations {
						b.says(pane, e.Name+" =", fmt.Sprintf("cost %d", e.Cost))
						n++
					}
				}
			}
		}
		if n == 0 || traced.Limits.Mutation == 0 {
			t.Errorf("%d evaluations, limits %+v", n, traced.Limits)
		}
		b.says(pane, "of "+thousands(traced.Limits.Mutation))
	})

	t.Run("whynot", func(t *testing.T) {
		b := b.in(t)
		q := labels
		q.Namespace, q.Objects = "", []text{{"node.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: worker}\n"}}
		b.open(playside + fragment(q))
		b.stores(asked(t, q))
		pane := b.pane("whynot")
		why := ask[struct {
			Results []struct {
				WhyNot []struct{ Policy, Binding, Field, Text string }
			}
		}](t, "evaluate", struct {
			state
			Trace  bool `json:"trace"`
			WhyNot bool `json:"whyNot"`
		}{q, true, true})
		if len(why.Results[0].WhyNot) == 0 {
			t.Fatal("no reason")
		}
		for _, w := range why.Results[0].WhyNot {
			b.says(pane, w.Policy, w.Field, w.Text)
		}
	})

	t.Run("orders", func(t *testing.T) {
		b := b.in(t)
		q := good()
		q.Documents = append(policyOf("first", labelMutation), text{"second.yaml", policyOf("second", strings.Replace(labelMutation, "'b'", "'c'", 1))[0].Text})
		want := ask[struct {
			Objects []struct {
				Summary     string
				Differences []struct{ Policies, Other []string }
			}
		}](t, "orders", map[string]any{"question": q, "limit": 24})
		if len(want.Objects) != 1 || len(want.Objects[0].Differences) == 0 {
			t.Fatalf("%+v: no difference", want)
		}
		b.open(playside + fragment(q))
		b.stores(asked(t, q))
		pane := b.pane("orders")
		b.click("#run-orders")
		b.says(pane, want.Objects[0].Summary)
		for _, f := range want.Objects[0].Differences {
			b.says(pane, append(f.Policies, f.Other...)...)
		}
	})

	t.Run("lint", func(t *testing.T) {
		b := b.in(t)
		q := good()
		q.Documents = policyOf("wrong", strings.Replace(labelMutation, "metadata: Object.metadata", "metadatum: Object.metadatum", 1))
		want := ask[map[string][]struct{ Message, Rule string }](t, "diagnose", map[string]any{"documents": q.Documents})
		b.open(playside + fragment(q))
		b.idle()
		pane := b.pane("lint")
		if len(want["policy.yaml"]) == 0 {
			t.Fatal("no finding")
		}
		for _, d := range want["policy.yaml"] {
			b.says(pane, d.Message, d.Rule)
		}
		// The place leads to the editor.
		b.click(pane + " .place")
		b.until("the editor", `document.activeElement.closest("#documents .cm-content")`)
	})

	t.Run("migrate", func(t *testing.T) {
		b := b.in(t)
		q := state{Documents: []text{{"assign.yaml", mutator}}, Objects: []text{{"pod.yaml", pod}}}
		want := ask[struct {
			Entries []struct{ Name, Verdict string }
			Summary string
			Files   []text
		}](t, "migrate", map[string]any{"documents": q.Documents})
		b.open(playside + fragment(q))
		b.stores(asked(t, q))
		pane := b.pane("migrate")
		if len(want.Entries) == 0 || len(want.Files) == 0 {
			t.Fatalf("%+v", want)
		}
		for _, e := range want.Entries {
			b.says(pane, e.Name, e.Verdict)
		}
		b.says(pane, want.Summary)
		b.until("the policy", js(`want => [...document.querySelectorAll("#migrate-file .text")].map(e => e.textContent.trimEnd()).join("\n") === want`, strings.TrimRight(want.Files[0].Text, "\n")))

		b.click("#run-verify")
		verified := ask[struct {
			Comparisons []struct{ Summary string }
		}](t, "verify", map[string]any{"documents": q.Documents, "seed": 1, "count": 500})
		if len(verified.Comparisons) == 0 {
			t.Fatal("no comparison")
		}
		b.until("the comparisons", `document.querySelector("#pane-migrate [data-done=true]")`)
		b.says(pane, "500 objects for each comparison, seed 1")
		before := asked(t, q)
		b.click("#replace-mutators")
		b.poll("the policy in place of the mutator", func() (string, bool) {
			text := b.content(documentEditor)
			return text, strings.Contains(text, "kind: MutatingAdmissionPolicy")
		})
		b.click("#tab-result")
		b.idle()
		b.stores(before)
	})
}

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

const mutator = `apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: dns}
spec:
  applyTo:
  - {groups: [""], versions: [v1], kinds: [Pod]}
  location: spec.dnsPolicy
  parameters: {assign: {value: None}}
`
