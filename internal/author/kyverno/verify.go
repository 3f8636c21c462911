package kyverno

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/kyverno/convert"
	"github.com/mapd-project/mapd/internal/kyverno/interpret"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/internal/output/page"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Verification compares rules with the policies to which they were converted, on the same
// objects.
type Verification struct {
	Version string `json:"mapd"`
	Source  string `json:"source"`
	Seed    uint64 `json:"seed"`
	// Generated is the number of objects that were generated for each comparison; Given is the
	// number of objects that were used in all of them.
	Generated int          `json:"generated"`
	Given     int          `json:"given"`
	Rules     []Comparison `json:"rules"`
	// Left is the number of rules that are not converted, which cannot be compared.
	Left int `json:"notConverted"`

	verifier *verify.Verifier
	// rows has the index of the comparison for each task of the verifier.
	rows []int
}

// Comparison is the outcome for one rule, or for all rules of a policy together.
type Comparison struct {
	Policy  string          `json:"policy"`
	Rule    string          `json:"rule"` // "" for all together
	Verdict convert.Verdict `json:"verdict"`
	// Objects is the number of compared objects, the sum of Equal, Reordered, Explained and
	// Different.
	Objects int `json:"objects"`
	// Equal is the number of objects with equal results. Changed and Refused are the numbers of
	// those that Kyverno changed or refused.
	Equal   int `json:"equal"`
	Changed int `json:"changed"`
	Refused int `json:"refused"`
	// Reordered is the number of results that differ in the order of a list only, and Explained
	// the number of those that differ as the verdict says.
	Reordered int `json:"equalButForOrder"`
	Explained int `json:"explained"`
	Different int `json:"different"`
	// NotAllowed is the number of invalid objects, and NotVerified the number of those for which
	// Kyverno's result is not known; Why has the first reason.
	NotAllowed  int    `json:"notAllowed,omitempty"`
	NotVerified int    `json:"notVerified,omitempty"`
	Why         string `json:"why,omitempty"`
	// Invalid is the reason why a server would refuse the converted policy.
	Invalid string `json:"invalid,omitempty"`
	First   *First `json:"first,omitempty"`
}

// First is the first object with different results, reduced to the fields that matter.
type First struct {
	Origin    string         `json:"origin"`
	Operation string         `json:"operation"`
	Object    map[string]any `json:"object"`
	Old       map[string]any `json:"oldObject,omitempty"`
	Namespace map[string]any `json:"namespace,omitempty"`
	User      string         `json:"user,omitempty"`
	Kyverno   verify.Result  `json:"kyverno"`
	Native    verify.Result  `json:"native"`

	disagreement *verify.Disagreement
}

// Verifier returns a Verification of the rules of an assessment.
func (a *Assessment) Verifier() *Verification {
	v := &Verification{Version: a.Version, Source: a.Source, Rules: []Comparison{}}
	var tasks []verify.Task
	add := func(r *convert.Result, rule string) {
		c := Comparison{Policy: r.Policy.ID(), Rule: rule, Verdict: worst(r)}
		v.Rules = append(v.Rules, c)
		row := &v.Rules[len(v.Rules)-1]
		kinds := kindsOf(r, a.types)
		objects := NewObjects(r.Policy, a.types, kinds)
		t := verify.Task{Name: c.Policy, Allows: allowed}
		if r.Reorders() {
			t.Ordered = r.Ordered
		}
		if r.Policy.CEL != nil {
			ref, err := celReference(r, a.types)
			if err != nil {
				row.Why = err.Error()
				return
			}
			t.Reference = ref
			t.Explains = func(verify.Request, verify.Result, verify.Result) bool { return false }
		} else {
			engine, err := interpret.New(r.Policy, func(name string) bool { return converted(r, name) })
			if err != nil {
				row.Why = err.Error()
				return
			}
			t.Reference = reference(engine, objects.ConfigMaps)
			t.Explains = func(q verify.Request, ref, nat verify.Result) bool {
				return r.Explains(convert.Case{Object: q.Object, Unchanged: verify.Defaulted(q.Object), Operation: q.Operation, User: q.User}, convert.Outcome{Object: ref.Object, Refused: ref.Refused, Failed: ref.Failed}, convert.Outcome{Object: nat.Object, Refused: nat.Refused}) != ""
			}
		}
		for _, u := range r.Units {
			w := verify.Written{Policy: u.Policy, Binding: u.Binding}
			if u.Policy.Spec.ParamKind != nil {
				w.Params = parameters(objects.ConfigMaps)
			}
			t.Policies = append(t.Policies, w)
		}
		if len(kinds) > 0 {
			t.Generate = objects.Object
		}
		tasks, v.rows = append(tasks, t), append(v.rows, len(v.Rules)-1)
	}
	for _, r := range a.Results {
		names := convertedRules(r)
		v.Left += len(r.Rules) - len(names)
		if len(names) == 0 {
			continue
		}
		if len(names) == 1 {
			add(r, names[0])
			continue
		}
		for _, name := range names {
			if one := a.alone(r.Policy, name); len(one.Units) > 0 {
				add(one, name)
			}
		}
		add(r, "")
	}
	v.verifier = verify.NewTasks(a.types, tasks)
	return v
}

// alone returns the policy with one converted rule. The other rules stay without an effect,
// because their match blocks influence for which controllers Kyverno generates rules.
func (a *Assessment) alone(p *policy.Policy, name string) *convert.Result {
	one, spec := *p, *p.Rules
	spec.Rules = slices.Clone(spec.Rules)
	for i := range spec.Rules {
		if spec.Rules[i].Name != name {
			spec.Rules[i].Mutate = nil
		}
	}
	one.Rules = &spec
	return convert.Policy(&one, convert.Options{Types: a.types})
}

func converted(r *convert.Result, name string) bool {
	return slices.ContainsFunc(r.Rules, func(c convert.Rule) bool { return c.Name == name && c.Converted() })
}

func convertedRules(r *convert.Result) (names []string) {
	for _, rule := range r.Rules {
		if rule.Converted() {
			names = append(names, rule.Name)
		}
	}
	return names
}

// worst returns the worst verdict of the rules that are converted.
func worst(r *convert.Result) convert.Verdict {
	out := convert.Exact
	for _, rule := range r.Rules {
		if rule.Converted() && slices.Index(convert.Verdicts, rule.Verdict) > slices.Index(convert.Verdicts, out) {
			out = rule.Verdict
		}
	}
	return out
}

// reference returns the result of Kyverno, as the interpreter predicts it.
func reference(p *interpret.Policy, configMaps map[string]map[string]string) verify.Reference {
	return func(ctx context.Context, r verify.Request) (verify.Result, error) {
		out, err := p.Mutate(ctx, interpret.Request{
			Operation: r.Operation, Object: r.Object, Old: r.Old, User: r.User, Groups: r.Groups, ConfigMaps: configMaps,
			NamespaceLabels: (&unstructured.Unstructured{Object: r.Namespace}).GetLabels(),
		})
		if err != nil {
			return verify.Result{}, err
		}
		return verify.Result{Object: out.Object, Refused: out.Refused, Failed: out.Failed}, nil
	}
}

// Check runs all comparisons on one object, and CheckGenerated runs each on n objects that are
// generated from its policy.
func (v *Verification) Check(ctx context.Context, o verify.Object) {
	v.Given++
	v.verifier.Check(ctx, o)
}

func (v *Verification) CheckGenerated(ctx context.Context, seed uint64, n int) {
	v.Seed, v.Generated = seed, n
	v.verifier.CheckGenerated(ctx, seed, n)
}

// Finish computes the results.
func (v *Verification) Finish() {
	for i, o := range v.verifier.Outcomes() {
		c := &v.Rules[v.rows[i]]
		c.Objects, c.Changed, c.Refused, c.NotAllowed = o.Objects, o.Changed, o.Refused, o.NotAllowed
		c.Reordered, c.Explained, c.Different = o.Reordered, o.Explained, o.Disagreements()
		c.Equal = o.Agreements - o.Reordered - o.Explained
		c.NotVerified, c.Why, c.Invalid = o.NotVerified, o.Why, o.Invalid
		if d := o.First; d != nil {
			c.First = &First{d.Origin, d.Operation, d.Object, d.Old, d.Namespace, d.User, d.Reference, d.Native, d}
		}
	}
}

// OK reports whether no comparison found a difference that its verdict does not announce.
func (v *Verification) OK() bool {
	return !slices.ContainsFunc(v.Rules, func(c Comparison) bool { return c.Invalid != "" || c.Different > 0 })
}

// Complete reports whether every comparison compared at least one object, and whether there is a
// comparison if there are rules.
func (v *Verification) Complete() bool {
	return (len(v.Rules) > 0 || v.Left == 0) && !slices.ContainsFunc(v.Rules, func(c Comparison) bool { return c.Objects == 0 })
}

// name names a comparison.
func (c *Comparison) name() string {
	if c.Rule == "" {
		return c.Policy + ", all rules"
	}
	return c.Policy + "/" + c.Rule
}

// outcome is a comparison in words.
func (c *Comparison) outcome() string {
	if c.Invalid != "" {
		return "a server refuses what is written: " + c.Invalid
	}
	var parts []string
	for _, p := range []struct {
		n    int
		text string
	}{
		{c.Equal, "equal"},
		{c.Reordered, "equal but for the order of a list"},
		{c.Explained, "different as the verdict says"},
		{c.Different, "DIFFERENT"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.text))
		}
	}
	text := words.Count(c.Objects, "object", "objects")
	switch {
	case c.Objects == 0 && c.Why != "":
		text = "not verified: " + c.Why
	case c.Objects == 0:
		text = "no object to compare on"
	default:
		text += ": " + strings.Join(parts, ", ")
		var of []string
		if c.Changed > 0 {
			of = append(of, fmt.Sprintf("%d changed", c.Changed))
		}
		if c.Refused > 0 {
			of = append(of, fmt.Sprintf("%d refused", c.Refused))
		}
		if len(of) > 0 {
			text += " (" + strings.Join(of, ", ") + ")"
		}
		if c.NotVerified > 0 {
			text += fmt.Sprintf("; %d not verified: %s", c.NotVerified, c.Why)
		}
	}
	if c.NotAllowed > 0 {
		text += fmt.Sprintf("; %d not allowed by their kind", c.NotAllowed)
	}
	return text
}

// sentences are the totals in words.
func (v *Verification) sentences() []string {
	var objects, different, silent int
	for _, c := range v.Rules {
		objects += c.Objects
		different += c.Different
		if c.Objects == 0 {
			silent++
		}
	}
	var from []string
	if v.Given > 0 {
		from = append(from, words.Count(v.Given, "given object", "given objects"))
	}
	if v.Generated > 0 {
		from = append(from, fmt.Sprintf("%s each (seed %d)", words.Count(v.Generated, "generated object", "generated objects"), v.Seed))
	}
	out := []string{fmt.Sprintf("%s on %s", words.Count(len(v.Rules), "comparison", "comparisons"), cmp.Or(strings.Join(from, " and "), "no objects"))}
	if different > 0 {
		out = append(out, fmt.Sprintf("%d of %s come out differently, and no verdict says so", different, words.Count(objects, "object", "objects")))
	} else if objects > 0 {
		out = append(out, "no difference in "+words.Count(objects, "object", "objects")+" that no verdict names")
	}
	if silent > 0 {
		out = append(out, words.Count(silent, "comparison", "comparisons")+" not verified")
	}
	if v.Left > 0 {
		out = append(out, words.Count(v.Left, "rule is", "rules are")+" not converted, so there is nothing to compare")
	}
	return out
}

// WriteTable writes the outcome for a terminal.
func (v *Verification) WriteTable(w io.Writer) error {
	var b bytes.Buffer
	for _, s := range v.sentences() {
		fmt.Fprintf(&b, "%s\n", s)
	}
	wide := 0
	for i := range v.Rules {
		wide = max(wide, len(v.Rules[i].name()))
	}
	wide = min(wide, 70)
	if len(v.Rules) > 0 {
		b.WriteString("\n")
	}
	for i := range v.Rules {
		c := &v.Rules[i]
		fmt.Fprintf(&b, "%-8s %-*s  %s\n", c.Verdict, wide, page.OneLine(c.name()), page.OneLine(c.outcome()))
		if c.First != nil {
			fmt.Fprintf(&b, "\n%s\n", migrate.Indent(report.Printable(migrate.ShowFor("Kyverno", c.First.disagreement)), "    "))
		}
	}
	_, err := b.WriteTo(w)
	return err
}

// WriteJSON writes the outcome as JSON.
func (v *Verification) WriteJSON(w io.Writer) error { return report.WriteJSON(w, v, "  ") }

const verified = "Kyverno's rules and native policies on the same objects"

// WriteMarkdown writes the outcome as Markdown.
func (v *Verification) WriteMarkdown(w io.Writer) error { return v.write(page.Markdown(verified), w) }

// WriteHTML writes the outcome as one page that loads nothing else.
func (v *Verification) WriteHTML(w io.Writer) error { return v.write(page.HTML(verified), w) }

func (v *Verification) write(p *page.Page, w io.Writer) error {
	p.List(v.sentences())
	t := page.Table{Heads: []string{"Policy", "Rule", "Verdict", "Objects", "Equal", "But for order", "Explained", "Different", "Not verified"}}
	for _, c := range v.Rules {
		why := fmt.Sprint(c.NotVerified)
		if text := cmp.Or(c.Invalid, c.Why); text != "" {
			why += ": " + text
		}
		row := []string{c.Policy, cmp.Or(c.Rule, "all together"), string(c.Verdict)}
		for _, n := range []int{c.Objects, c.Equal, c.Reordered, c.Explained, c.Different} {
			row = append(row, fmt.Sprint(n))
		}
		t.Row(append(row, why)...)
	}
	p.Table(&t)
	for _, c := range v.Rules {
		if c.First != nil {
			p.Heading(2, c.name())
			p.Code("", migrate.ShowFor("Kyverno", c.First.disagreement))
		}
	}
	_, err := p.WriteTo(w)
	return err
}

// typesOf returns the kinds that policies and objects may have.
func typesOf(in *Input) (*openapi.Types, error) {
	custom, err := openapi.CRDs(in.crds...)
	if err != nil {
		return nil, err
	}
	return openapi.New(slices.Concat([]openapi.Source{openapi.Builtin(), custom}, in.Sources)...), nil
}
