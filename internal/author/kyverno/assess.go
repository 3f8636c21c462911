package kyverno

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/kyverno/convert"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/internal/output/page"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Input has the policies and kinds that Read has found.
type Input struct {
	Policies []*policy.Policy
	// Unreadable are policies that Kyverno would refuse, with the reason.
	Unreadable []Unreadable
	// Sources have other kinds than the documents' definitions.
	Sources []openapi.Source
	crds    []*unstructured.Unstructured
}

// Unreadable is a policy that cannot be read, with all its errors.
type Unreadable struct {
	Policy string  `json:"policy"`
	Errors []error `json:"-"`
	Texts  []string
}

// Read collects the policies of documents, and the definitions of kinds. Its errors are about
// documents that cannot be read at all; policies that Kyverno would refuse are in the result.
func Read(inputs []manifest.Input) (*Input, []error) {
	in := &Input{}
	var errs []error
	for d, err := range manifest.Read(inputs) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if d.Object != nil {
			in.Add(d)
		}
	}
	return in, errs
}

// Add adds a policy or the definition of a kind, and ignores other documents.
func (in *Input) Add(d *manifest.Document) {
	gvk := d.Object.GroupVersionKind()
	switch {
	case gvk.Group == api.DefinitionGroup && gvk.Kind == api.DefinitionKind:
		in.crds = append(in.crds, d.Object)
	case policy.Is(gvk):
		p, wrong := policy.Read(d)
		if len(wrong) > 0 {
			u := Unreadable{Policy: d.Name(), Errors: wrong}
			for _, err := range wrong {
				u.Texts = append(u.Texts, err.Error())
			}
			in.Unreadable = append(in.Unreadable, u)
			return
		}
		in.Policies = append(in.Policies, p)
	}
}

// Assessment has a verdict for each rule that mutates.
type Assessment struct {
	Version string `json:"mapd"`
	Source  string `json:"source"`
	// Totals counts rules by verdict.
	Totals map[convert.Verdict]int `json:"totals"`
	// Policies counts policies with a mutate rule, and Whole those of them whose mutate rules are
	// all converted.
	Policies int `json:"policies"`
	Whole    int `json:"whole"`
	// Others counts rules that do not mutate, by their type.
	Others     map[string]int `json:"otherRules,omitempty"`
	Rules      []Row          `json:"rules"`
	Unreadable []Unreadable   `json:"unreadable,omitempty"`

	Results []*convert.Result `json:"-"`

	types *openapi.Types
}

// Row is one rule.
type Row struct {
	Policy string `json:"policy"`
	convert.Rule
}

// Assess converts all policies.
func Assess(in *Input) (*Assessment, error) {
	types, err := typesOf(in)
	if err != nil {
		return nil, err
	}
	a := &Assessment{Totals: map[convert.Verdict]int{}, Others: map[string]int{}, Unreadable: in.Unreadable, types: types}
	check := func(p *admissionregistrationv1.MutatingAdmissionPolicy) error { return verify.Refused(types, p) }
	for _, p := range in.Policies {
		r := convert.Policy(p, convert.Options{Types: types, Check: check})
		a.Results = append(a.Results, r)
		for what, n := range r.Others {
			a.Others[what] += n
		}
		if len(r.Rules) == 0 {
			continue
		}
		a.Policies++
		whole := true
		for _, rule := range r.Rules {
			a.Totals[rule.Verdict]++
			a.Rules = append(a.Rules, Row{p.ID(), rule})
			whole = whole && rule.Converted()
		}
		if whole {
			a.Whole++
		}
	}
	slices.SortStableFunc(a.Rules, func(x, y Row) int { return cmp.Compare(rank(x.Verdict), rank(y.Verdict)) })
	return a, nil
}

// rank returns the place of a verdict in the table: those that need a decision come first.
func rank(v convert.Verdict) int { return -slices.Index(convert.Verdicts, v) }

// OK reports whether every rule is converted exactly.
func (a *Assessment) OK() bool {
	return len(a.Unreadable) == 0 && len(a.Rules) == a.Totals[convert.Exact]
}

// sentences describe the totals.
func (a *Assessment) sentences() []string {
	var counts []string
	for _, v := range convert.Verdicts {
		if n := a.Totals[v]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, v))
		}
	}
	out := []string{fmt.Sprintf("%d of %s can be native today", a.Whole, words.Count(a.Policies, "policy that mutates", "policies that mutate"))}
	if len(counts) > 0 {
		out = append(out, words.Count(len(a.Rules), "rule", "rules")+": "+strings.Join(counts, ", "))
	}
	if n := len(a.Unreadable); n > 0 {
		out = append(out, words.Count(n, "policy", "policies")+" that Kyverno refuses")
	}
	var others []string
	for _, what := range []string{"validate", "generate", "verifyImages", "nothing"} {
		if n := a.Others[what]; n > 0 {
			others = append(others, fmt.Sprintf("%d %s", n, what))
		}
	}
	if len(others) > 0 {
		out = append(out, "left alone, because they do not mutate: "+strings.Join(others, ", "))
	}
	return out
}

// why joins the reasons and the advice of a rule.
func why(r convert.Rule) string {
	text := strings.Join(r.Reasons, "; ")
	if r.Instead != "" {
		text += "; instead: " + r.Instead
	}
	return text
}

// WriteTable writes the assessment for a terminal.
func (a *Assessment) WriteTable(w io.Writer) error {
	var b bytes.Buffer
	for _, s := range a.sentences() {
		fmt.Fprintf(&b, "%s\n", s)
	}
	wide := 0
	for _, r := range a.Rules {
		wide = max(wide, len(r.Policy)+1+len(r.Name))
	}
	wide = min(wide, 70)
	if len(a.Rules) > 0 {
		b.WriteString("\n")
	}
	for _, r := range a.Rules {
		fmt.Fprintf(&b, "%-8s %-*s  %s\n", r.Verdict, wide, page.OneLine(r.Policy+"/"+r.Name), page.OneLine(strings.Join(r.Uses, ", ")))
		if text := why(r.Rule); text != "" {
			fmt.Fprintf(&b, "         %s\n", page.OneLine(text))
		}
	}
	for _, u := range a.Unreadable {
		for _, t := range u.Texts {
			fmt.Fprintf(&b, "invalid  %s\n", page.OneLine(t))
		}
	}
	_, err := b.WriteTo(w)
	return err
}

// WriteJSON writes the assessment as JSON.
func (a *Assessment) WriteJSON(w io.Writer) error { return report.WriteJSON(w, a, "  ") }

const title = "From Kyverno's policies to native ones"

// WriteMarkdown writes the assessment as Markdown.
func (a *Assessment) WriteMarkdown(w io.Writer) error { return a.write(page.Markdown(title), w) }

// WriteHTML writes the assessment as one page that loads nothing else.
func (a *Assessment) WriteHTML(w io.Writer) error { return a.write(page.HTML(title), w) }

func (a *Assessment) write(p *page.Page, w io.Writer) error {
	p.List(a.sentences())
	t := page.Table{Heads: []string{"Policy", "Rule", "Uses", "Verdict", "Why, and what to do"}}
	for _, r := range a.Rules {
		t.Row(r.Policy, r.Name, strings.Join(r.Uses, ", "), string(r.Verdict), why(r.Rule))
	}
	p.Table(&t)
	for _, u := range a.Unreadable {
		for _, text := range u.Texts {
			p.Paragraph(text)
		}
	}
	_, err := p.WriteTo(w)
	return err
}
