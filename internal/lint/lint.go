// Package lint answers one question: what in these policies will not do what its author
// meant?
//
// It holds policies and bindings against the schemas of the kinds that they match, against
// each other and against what releases of Kubernetes are known to do. A rule that
// cannot be sure says nothing, or says it as [Info]. Nothing is evaluated on an object.
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

// The severities. An Error fails, or never has the effect that it says; a Warning does so
// for some objects; an Info may be meant.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

// Reaches reports whether s is at least as bad as least.
func (s Severity) Reaches(least Severity) bool {
	order := []Severity{Info, Warning, Error}
	return slices.Index(order, s) >= slices.Index(order, least)
}

// Rule is one thing to look for.
type Rule struct {
	Name     string
	Severity Severity // the worst that it finds
	// Summary says what it finds, in a line.
	Summary string
	// Fixes says that Fix mends some of what it finds.
	Fixes bool

	// certain says that its warnings, too, hold whatever else there is beside the policy.
	certain bool

	// beside says that policy looks at more than the policy, its bindings and the definitions.
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

// Finding is what a rule found, and where.
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
	// Fixable says that Fix mends it, and NotFixed why it does not although there is a fix
	// for some findings of this kind; both are empty if there is none.
	Fixable  bool   `json:"fixable"`
	NotFixed string `json:"notFixed,omitempty"`
	// Reason is why it is suppressed, empty if it is not.
	Reason string `json:"reason,omitempty"`
	// Near is what may be meant by the text Written, which stands at the place or before it; both
	// are empty if that is not known. Nothing shows that it is right, so Fix does not write it.
	Written, Near string `json:"-"`

	at  *manifest.PositionError
	doc *manifest.Document
	fix func(object map[string]any) bool
	// evident says that the fix leaves all expressions as they are that are evaluated.
	evident bool
	// line and column are the place in the expression, 0 if it is about no expression.
	line, column int
	// unread says that the document cannot be read at all.
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

// Options say what is looked for.
type Options struct {
	// Oldest and Newest are the minors of the servers that the policies are for.
	Oldest, Newest int
	// Only are the names of the rules to use; none is all.
	Only []string
	// Prove returns an error if a policy, an object as in a file, may do something else after
	// a fix than it did before. Without it there are no fixes.
	Prove func(ctx context.Context, before, after map[string]any) error
}

// ErrNotShown is returned by Options.Prove if nothing shows what a policy does. A fix is made
// nevertheless if it cannot change what an expression gives, such as that of a variable that
// nothing uses.
var ErrNotShown = errors.New("no generated request shows what the fixed policy does")

// Result is what Run found.
type Result struct {
	// Findings are in the order of their places; Suppressed are those with a Reason.
	Findings, Suppressed []Finding
	// Policies, Bindings, Gatekeeper's Mutators and Kyverno's policies were looked at.
	Policies, Bindings, Mutators, Kyverno int
	// More says that there is more than maxFindings.
	More bool
	// Unread says that a finding is about a document that cannot be read.
	Unread bool
}

// maxFindings bounds the findings of a run, and maxOfPolicy those of a policy.
const maxFindings, maxOfPolicy = 10_000, 200

// Source is a file.
type Source struct {
	Name string
	Data []byte
}

// Run looks at policies and what belongs to them. Its error is about opts, or it is why
// ctx ended.
func Run(ctx context.Context, sources []Source, opts Options) (*Result, error) {
	return new(Memory).Run(ctx, sources, opts)
}

// result sorts findings, and takes away those that are suppressed.
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

// pass is one rule at work on one policy, or on all.
type pass struct {
	set     *set
	rule    *Rule
	subject *subject
}

// note adds a finding.
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

// field is a finding about a field of an object.
func (p *pass) field(d *manifest.Document, path, format string, args ...any) *Finding {
	message := fmt.Sprintf(format, args...)
	return p.note(d, path, d.ErrorAt(path, fmt.Errorf("%s", message)), message)
}

// node is a finding about a part of an expression of the policy.
func (p *pass) node(e *expression, n *syntax.Node, format string, args ...any) *Finding {
	return p.place(e, n.Line, n.Column, fmt.Sprintf(format, args...))
}

func (p *pass) place(e *expression, line, column int, message string) *Finding {
	d := p.subject.doc
	f := p.note(d, e.field, d.ErrorIn(e.field, e.text, max(line, 1), max(column, 1), fmt.Errorf("%s", message)), message)
	f.line, f.column = max(line, 1), max(column, 1)
	return f
}

// faults are findings about what a server refuses.
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

// The minors that Options may name. CurrentMinor is the one whose decisions mapd makes, and
// what is linted for if nobody says anything else.
const OldestMinor, CurrentMinor, NewestMinor = 32, 37, 38
