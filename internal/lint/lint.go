// Package lint answers one question: what in these policies will not do what its author meant?
//
// It checks policies and bindings against the schemas of the kinds that they match, against each
// other, and against known behaviour of Kubernetes releases. A rule that is not certain reports
// nothing, or reports an [Info]. The package does not evaluate policies on objects. Start reading
// at Run; the rules are listed in rules.go.
package lint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// Severity says how bad a finding is.
type Severity string

// The severities. Error: it fails, or never has its effect. Warning: this happens for some
// objects. Info: it may be intended.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

// Reaches reports whether s is at least as severe as least.
func (s Severity) Reaches(least Severity) bool {
	order := []Severity{Info, Warning, Error}
	return slices.Index(order, s) >= slices.Index(order, least)
}

// Rule is one thing to look for.
type Rule struct {
	Name     string
	Severity Severity // the highest severity of its findings
	// Summary describes the findings in one line.
	Summary string
	// Fixes: Fix can repair some of the findings.
	Fixes bool

	// certain: the rule's warnings, too, depend on nothing but the policy, see Certain.
	certain bool

	// beside: the function policy also looks at objects other than the policy, its bindings and
	// CustomResourceDefinitions.
	beside bool

	policy   func(*pass)                     // called for each policy that compiles
	document func(*pass, *manifest.Document) // called for each of Gatekeeper's mutators and Kyverno's policies
	set      func(*pass)                     // called once, after the others
}

// Rules are all rules, by name.
func Rules() []Rule {
	out := slices.Concat(ruleList(), []Rule{suppressionRule})
	slices.SortFunc(out, func(a, b Rule) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Finding is one mistake that a rule found, with its place.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	Document int      `json:"document"`
	Line     int      `json:"line"`
	Column   int      `json:"column,omitempty"`
	// Object is the kind and name of the policy or binding.
	Object  string `json:"object,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	// Fixable: Fix can repair it. NotFixed is the reason why Fix does not repair it although it
	// repairs other findings of this rule. NotFixed is empty, and Fixable false, if there is no
	// fix.
	Fixable  bool   `json:"fixable"`
	NotFixed string `json:"notFixed,omitempty"`
	// Reason is the reason in the comment that suppresses the finding; empty if it is not
	// suppressed.
	Reason string `json:"reason,omitempty"`
	// Near is a likely correction of the text Written, which is at the place of the finding or
	// before it; both are empty if none is known. Fix does not use Near, because nothing proves
	// that it is right.
	Written, Near string `json:"-"`

	at  *manifest.PositionError
	doc *manifest.Document
	fix func(object map[string]any) bool
	// evident: the fix changes no expression that is evaluated.
	evident bool
	// line and column are the position in the expression, 0 if the finding is not about an
	// expression.
	line, column int
	// unread: the document cannot be read at all.
	unread bool
}

// Render returns the finding on one line, and the line of the file below it.
func (f *Finding) Render() string {
	if f.at == nil {
		return fmt.Sprintf("%s:%d: %s: %s (%s)", f.File, f.Line, f.Severity, f.Message, f.Rule)
	}
	source := strings.TrimPrefix(f.at.Render(), f.at.Error())
	return fmt.Sprintf("%s:%d:%d: %s: %s (%s)%s", f.File, f.Line, max(f.Column, 1), f.Severity, f.Message, f.Rule, source)
}

// Options select rules and Kubernetes releases.
type Options struct {
	// Oldest and Newest are the first and the last minor release of the API servers that run the
	// policies.
	Oldest, Newest int
	// Only are the names of the rules to run; empty: all rules.
	Only []string
	// Prove returns an error if a policy, given as an object of a file, may behave differently
	// after a fix. If it is nil, no fixes are made.
	Prove func(ctx context.Context, before, after map[string]any) error
}

// ErrNotShown is returned by Options.Prove if no generated request shows the effect of a policy.
// The fix is made nevertheless if it cannot change the result of an expression, for example if it
// removes an unused variable.
var ErrNotShown = errors.New("no generated request shows what the fixed policy does")

// Result is the result of Run.
type Result struct {
	// Findings are in the order of their places. Suppressed are the findings with a Reason.
	Findings, Suppressed []Finding
	// The numbers of policies, bindings, mutators of Gatekeeper and policies of Kyverno that were
	// checked.
	Policies, Bindings, Mutators, Kyverno int
	// More: there are more findings than the limits maxFindings and maxOfPolicy allow.
	More bool
	// Unread: a finding is about a document that cannot be read.
	Unread bool
}

// maxFindings bounds the findings of a run, and maxOfPolicy those in one document.
const maxFindings, maxOfPolicy = 10_000, 200

// Source is a file.
type Source struct {
	Name string
	Data []byte
}

// Run lints policies and the objects that belong to them. Its error is about opts, or the cause
// of the end of ctx.
func Run(ctx context.Context, sources []Source, opts Options) (*Result, error) {
	return new(Memory).Run(ctx, sources, opts)
}

// result sorts the findings and separates those that are suppressed.
func (s *set) result(sources []Source) *Result {
	out := &Result{Policies: len(s.policies), Bindings: len(s.bindings), Mutators: len(s.mutators), Kyverno: len(s.kyverno)}
	out.Findings = slices.Concat(s.readErrors, s.findings)
	marks := suppressions(sources)
	var left []Finding
	for _, f := range out.Findings {
		if m := marks.of(&f); m != nil {
			m.used, f.Reason = true, m.reason
			out.Suppressed = append(out.Suppressed, f)
			continue
		}
		out.Unread = out.Unread || f.unread
		left = append(left, f)
	}
	left = append(left, marks.findings(s.opts.Only)...)
	order := func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			strings.Compare(a.Rule, b.Rule), strings.Compare(a.Message, b.Message))
	}
	slices.SortStableFunc(left, order)
	slices.SortStableFunc(out.Suppressed, order)
	left = slices.CompactFunc(left, func(a, b Finding) bool { return order(a, b) == 0 })
	if out.More = s.more || len(left) > maxFindings; len(left) > maxFindings {
		left = left[:maxFindings]
	}
	out.Findings = left
	return out
}

// pass is the run of one rule on one policy, or on the whole set.
type pass struct {
	set     *set
	rule    *Rule
	subject *subject
}

// note records a finding at a place. The caller may change the Finding that it returns.
func (p *pass) note(d *manifest.Document, path string, at *manifest.PositionError, message string) *Finding {
	if !p.set.counted(d) {
		return &Finding{}
	}
	p.set.findings = append(p.set.findings, Finding{
		Rule: p.rule.Name, Severity: p.rule.Severity, File: d.File, Document: d.Index, Line: at.Line, Column: at.Column,
		Object: d.Name(), Field: path, Message: message, at: at, doc: d,
	})
	return &p.set.findings[len(p.set.findings)-1]
}

// counted counts a finding about a document, and reports whether it is one of the first maxOfPolicy.
func (s *set) counted(d *manifest.Document) bool {
	s.count[d]++
	s.more = s.more || s.count[d] > maxOfPolicy
	return s.count[d] <= maxOfPolicy
}

// field records a finding about a field of an object.
func (p *pass) field(d *manifest.Document, path, format string, args ...any) *Finding {
	message := fmt.Sprintf(format, args...)
	return p.note(d, path, d.ErrorAt(path, fmt.Errorf("%s", message)), message)
}

// node records a finding about a part of an expression of the policy.
func (p *pass) node(e *expression, n *syntax.Node, format string, args ...any) *Finding {
	return p.place(e, n.Line, n.Column, fmt.Sprintf(format, args...))
}

func (p *pass) place(e *expression, line, column int, message string) *Finding {
	d := p.subject.doc
	f := p.note(d, e.field, d.ErrorIn(e.field, e.text, max(line, 1), max(column, 1), fmt.Errorf("%s", message)), message)
	f.line, f.column = max(line, 1), max(column, 1)
	return f
}

// faults records findings for the faults that an API server would report.
func (p *pass) faults(d *manifest.Document, faults api.Faults, prefix string) {
	for _, err := range d.Errors(faults) {
		at, ok := err.(*manifest.PositionError)
		if !ok {
			continue
		}
		message := strings.TrimPrefix(at.Err.Error(), d.Name()+": ")
		p.note(d, "", at, prefix+message)
	}
}

// The minor releases that Options may name. CurrentMinor is the release whose behaviour mapd has,
// and the default for Oldest and Newest.
const OldestMinor, CurrentMinor, NewestMinor = 32, 37, 38
