package migrate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/mapd-project/mapd/internal/author/format"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/internal/output/page"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// Report says what became of mutators. The fields of its JSON keep their names
// and meaning; later versions may add fields.
type Report struct {
	// Format is the version of the JSON form: 1.
	Format int `json:"format"`
	// Version is that of mapd, Source where the mutators are from. There is no date: the
	// same mutators give the same report.
	Version  string  `json:"version"`
	Source   string  `json:"source"`
	Mutators []Entry `json:"mutators"`
	// Notes are about other objects than mutators.
	Notes []string `json:"notes"`
	// Verification is nil without --verify.
	Verification *Verification `json:"verification,omitempty"`
	// Undecided says that a note is about an exception that the policies do not have.
	Undecided bool `json:"undecided,omitempty"`
	// Files are the policies, for the page.
	Files []File `json:"-"`
}

// Entry says what became of one mutator.
type Entry struct {
	Mutator string            `json:"mutator"`
	Verdict translate.Verdict `json:"verdict"`
	Notes   []translate.Note  `json:"notes"`
	// Policy and File are "" without a policy.
	Policy string `json:"policy,omitempty"`
	File   string `json:"file,omitempty"`
	// With has the other mutators of the policy, which share it because their
	// order matters.
	With []string `json:"with,omitempty"`
}

// Verification is the outcome of the comparisons.
type Verification struct {
	Seed uint64 `json:"seed"`
	// Generated is how many objects were generated for each comparison; Given
	// and Live are how many took part in all of them.
	Generated   int                 `json:"generated"`
	Given       int                 `json:"given"`
	Live        int                 `json:"live"`
	Comparisons []verify.Comparison `json:"comparisons"`
}

// newReport returns the report on units, without verification.
func newReport(units []translate.Unit) *Report {
	r := &Report{Format: 1, Mutators: []Entry{}, Notes: []string{}}
	for _, u := range units {
		for i, v := range u.Verdicts {
			e := Entry{Mutator: v.ID, Verdict: v.Verdict, Notes: append([]translate.Note{}, v.Notes...), File: fileName(u)}
			if u.Policy != nil {
				e.Policy = u.Policy.Name
			}
			for j, other := range u.Verdicts {
				if j != i && u.Policy != nil {
					e.With = append(e.With, other.ID)
				}
			}
			r.Mutators = append(r.Mutators, e)
		}
	}
	r.sort()
	return r
}

// Refuse adds a mutator that could not be read.
func (r *Report) Refuse(id string, err error) {
	r.Mutators = append(r.Mutators, Entry{Mutator: id, Verdict: translate.Refused, Notes: []translate.Note{{Text: legacy.Reason(err) + "; correct or delete it"}}})
	r.sort()
}

// sort sorts mutators in the order in which they run.
func (r *Report) sort() {
	slices.SortStableFunc(r.Mutators, func(a, b Entry) int {
		ak, an, _ := strings.Cut(a.Mutator, "/")
		bk, bn, _ := strings.Cut(b.Mutator, "/")
		return cmp.Or(cmp.Compare(slices.Index(legacy.Kinds(), legacy.Kind(ak)), slices.Index(legacy.Kinds(), legacy.Kind(bk))), cmp.Compare(an, bn))
	})
}

// OK reports whether every mutator has an exact policy, with the exceptions from it, and no
// comparison found a difference.
func (r *Report) OK() bool {
	if r.Undecided || slices.ContainsFunc(r.Mutators, func(e Entry) bool { return e.Verdict != translate.Exact }) {
		return false
	}
	return r.Verification == nil || !slices.ContainsFunc(r.Verification.Comparisons, func(c verify.Comparison) bool {
		return c.Invalid != "" || c.First != nil
	})
}

// Count returns how many mutators have a verdict.
func (r *Report) Count(v translate.Verdict) int {
	n := 0
	for _, e := range r.Mutators {
		if e.Verdict == v {
			n++
		}
	}
	return n
}

// verdicts are all, in the order in which they are counted.
var verdicts = []translate.Verdict{translate.Exact, translate.Differs, translate.EngineOnly, translate.Refused}

// Totals returns the report in one line.
func (r *Report) Totals() string {
	var parts []string
	for _, v := range verdicts {
		if n := r.Count(v); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	return fmt.Sprintf("%s: %s", words.Count(len(r.Mutators), "mutator", "mutators"), strings.Join(parts, ", "))
}

// WriteTable writes the report for a terminal: a line for each mutator, and what
// was compared.
func (r *Report) WriteTable(w io.Writer) error {
	t := page.Table{Heads: []string{"MUTATOR", "VERDICT", "FILE", "NOTE"}}
	for _, e := range r.Mutators {
		t.RowWith(e.lines(), e.Mutator, string(e.Verdict), cmp.Or(e.File, "-"))
	}
	if err := t.WriteText(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, r.Totals()); err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", page.OneLine(n))
	}
	if r.Verification == nil {
		return nil
	}
	return r.Verification.writeText(w)
}

// Sources names the sources of the compared objects.
func (v *Verification) Sources() string {
	var parts []string
	if v.Given > 0 {
		parts = append(parts, words.Count(v.Given, "given object", "given objects"))
	}
	if v.Live > 0 {
		parts = append(parts, words.Count(v.Live, "live object", "live objects"))
	}
	if v.Generated > 0 {
		parts = append(parts, fmt.Sprintf("%s each (seed %d)", words.Count(v.Generated, "generated object", "generated objects"), v.Seed))
	}
	if len(parts) == 0 {
		return "no objects"
	}
	return strings.Join(parts, ", ")
}

// Result returns a comparison in one line.
func Result(c verify.Comparison) string {
	var details []string
	for _, d := range []struct {
		n    int
		what string
	}{{c.Changed, "changed"}, {c.Refused, "refused by both"}} {
		if d.n > 0 {
			details = append(details, fmt.Sprintf("%d %s", d.n, d.what))
		}
	}
	text := ""
	switch n := c.Disagreements(); {
	case c.Invalid != "":
		return "not compared: a server would refuse the policy: " + c.Invalid
	case c.Objects == 0:
		text = "nothing to compare"
	case n == 0:
		text = "no difference in " + words.Count(c.Objects, "object", "objects")
		if len(details) > 0 {
			text += " (" + strings.Join(details, ", ") + ")"
		}
	default:
		text = fmt.Sprintf("%d of %s come out differently", n, words.Count(c.Objects, "object", "objects"))
		if c.Known {
			text += ", as its verdict says"
		}
	}
	if c.NotAllowed > 0 {
		text += fmt.Sprintf("; %d not allowed by their kind and not compared", c.NotAllowed)
	}
	return text
}

func (v *Verification) writeText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "\nboth sides ran on %s:\n", v.Sources()); err != nil {
		return err
	}
	for _, c := range v.Comparisons {
		fmt.Fprintf(w, "  %s: %s\n", report.Line(c.Name), page.OneLine(Result(c)))
		if c.First != nil {
			fmt.Fprintf(w, "\n%s\n", Indent(report.Printable(Show(c.First)), "    "))
		}
	}
	return nil
}

// Indent returns a text with each of its lines behind by.
func Indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by) + "\n"
}

// Show formats a disagreement: the object, and the result on each side.
func Show(d *verify.Disagreement) string { return ShowFor("Gatekeeper", d) }

// ShowFor is Show for policies that stand for another engine.
func ShowFor(engine string, d *verify.Disagreement) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of the first of them, %s, reduced to what matters:\n", d.Operation, d.Origin)
	b.WriteString(Indent(string(format.Form.Encode(d.Object)), "  "))
	if d.Old != nil {
		fmt.Fprintf(&b, "before the update:\n%s", Indent(string(format.Form.Encode(d.Old)), "  "))
	}
	if labels := d.NamespaceLabels(); labels != "" {
		fmt.Fprintf(&b, "in a Namespace with the labels %s\n", labels)
	}
	if d.User != "" {
		fmt.Fprintf(&b, "by the user %s\n", strconv.Quote(d.User))
	}
	outcome(&b, engine, d.Object, d.Reference)
	outcome(&b, "native", d.Object, d.Native)
	return b.String()
}

func outcome(b *strings.Builder, side string, object map[string]any, r verify.Result) {
	if r.Refused != "" {
		fmt.Fprintf(b, "%s refuses it: %s\n", side, r.Refused)
		return
	}
	changes := report.Diff(object, r.Object, nil)
	if len(changes) == 0 {
		fmt.Fprintf(b, "%s leaves it alone\n", side)
		return
	}
	_ = report.WriteDiff(b, side+" makes of it", changes, false) // a Builder takes everything
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r, "  ") }
