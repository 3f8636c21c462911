// Package coverage answers one question: which parts of these policies were exercised by the
// cases of suites?
//
// It collects the counts of programs of pkg/cel, by policy and place in its file: match
// conditions that were true and false, both branches of ?:, && and ||, optionals with and without
// a value, bodies of macros, and mutations that changed an object. For Gatekeeper's mutators and
// Kubewarden's policies it counts decisions. Text, HTML and LCOV write the result. The package
// runs nothing: internal/author/suite does. Start reading at Report.Add.
package coverage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Part is a place in a policy, with the number of times that it had each outcome.
type Part struct {
	Path string // of the field in the policy
	Kind string
	Text string
	// Line and Column are where the part begins in the file, EndLine and EndColumn are just after
	// it; from 1.
	Line, Column, EndLine, EndColumn int
	Outcomes                         []string
	Hits                             []int64
}

// Missed returns the outcomes that the part never had.
func (p *Part) Missed() (missed []string) {
	for i, o := range p.Outcomes {
		if p.Hits[i] == 0 {
			missed = append(missed, o)
		}
	}
	return missed
}

// runs reports whether an outcome means that the part was evaluated. Other outcomes describe the
// result of an evaluation, or that there was none.
func (p *Part) runs(outcome int) bool {
	o := p.Outcomes[outcome]
	return p.Kind == "guest" || o != changed && o != kept && o != unmatched
}

// Policy is a policy with its parts, in the order of the file.
type Policy struct {
	Name, File string
	Parts      []*Part
}

// Counts returns the number of outcomes that the policy had, and the number of all outcomes.
func (p *Policy) Counts() (had, all int) {
	for _, part := range p.Parts {
		all += len(part.Outcomes)
		had += len(part.Outcomes) - len(part.Missed())
	}
	return had, all
}

// Report has policies in the order of their files and names.
type Report struct {
	Policies []*Policy
	programs map[*policy.Policy]bool // that were added
}

// Add adds the counts of policies, which were loaded from docs, and of the decisions that c has
// counted. Counts for the same policy are added up. Calling Add again with the same compiled
// policies does not count them twice.
func (r *Report) Add(policies *mapd.Policies, docs []*mapd.Document, c *Counter) {
	for _, d := range docs {
		if p := c.mutator(d); p != nil {
			r.add(p)
		} else if p := c.rules(d, policies); p != nil {
			r.add(p)
		} else if p := c.module(d, policies.Kubewarden()); p != nil {
			r.add(p)
		}
	}
	for _, p := range policies.Policies() {
		i := slices.IndexFunc(docs, func(d *mapd.Document) bool {
			return d.Object().GetKind() == "MutatingAdmissionPolicy" && d.Object().GetName() == p.Name()
		})
		if i < 0 {
			continue
		}
		all := parts(p, docs[i], c)
		if r.programs[p] {
			for _, part := range all {
				for n, o := range part.Outcomes {
					if o != changed {
						part.Hits[n] = 0
					}
				}
			}
		}
		if r.programs == nil {
			r.programs = map[*policy.Policy]bool{}
		}
		r.programs[p] = true
		r.add(&Policy{Name: p.Name(), File: file(docs[i]), Parts: all})
	}
}

func file(d *mapd.Document) string { return d.Errorf("").File }

func (r *Report) add(p *Policy) {
	at, found := slices.BinarySearchFunc(r.Policies, p, func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Name, b.Name))
	})
	if !found {
		r.Policies = slices.Insert(r.Policies, at, p)
		return
	}
	for i, part := range r.Policies[at].Parts {
		for n := range part.Hits {
			part.Hits[n] += p.Parts[i].Hits[n]
		}
	}
}

func parts(p *policy.Policy, d *mapd.Document, counter *Counter) (all []*Part) {
	index := 0
	for _, c := range p.Covered() {
		of := strings.HasPrefix(c.Path, "spec.mutations[")
		for i, point := range c.Coverage.Points() {
			part := &Part{Path: c.Path, Kind: string(point.Kind), Text: point.Text, Outcomes: slices.Clone(point.Outcomes)}
			part.Line, part.Column = position(d, c, point.Start)
			part.EndLine, part.EndColumn = position(d, c, max(point.End-1, point.Start))
			part.EndColumn++
			for n := range point.Outcomes {
				part.Hits = append(part.Hits, c.Coverage.Hits(i, n))
			}
			if point.Kind == cel.Whole && of {
				part.Outcomes = append(part.Outcomes, changed)
				part.Hits = append(part.Hits, counter.changes(p.Name(), index))
				index++
			}
			all = append(all, part)
		}
	}
	slices.SortStableFunc(all, func(a, b *Part) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return all
}

// position returns where a character of an expression stands in the file.
func position(d *mapd.Document, c policy.Covered, offset int) (line, column int) {
	before := []rune(c.Expression)
	before = before[:min(offset, len(before))]
	line, column = 1, 1
	for _, r := range before {
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
	}
	return d.PosIn(c.Path, c.Expression, line, column)
}

// Text returns a line for each policy with the share of outcomes that occurred, followed by the
// outcomes that did not, and at the end the share over all policies.
func (r *Report) Text() string {
	var b strings.Builder
	had, all := 0, 0
	for _, p := range r.Policies {
		h, n := p.Counts()
		had, all = had+h, all+n
		fmt.Fprintf(&b, "%s: %s: %s\n", p.File, p.Name, share(h, n))
		for _, part := range p.Parts {
			missed := part.Missed()
			for i, outcome := range missed {
				if missed[i] = never[outcome]; missed[i] == "" {
					missed[i] = "was never " + outcome
				}
			}
			if len(missed) > 0 {
				fmt.Fprintf(&b, "  %d:%d: %s %s %s\n", part.Line, part.Column, part.Kind, part.Text, strings.Join(missed, ", "))
			}
		}
	}
	fmt.Fprintf(&b, "coverage: %s\n", share(had, all))
	return b.String()
}

func share(had, all int) string {
	if all == 0 {
		return "there is nothing to cover"
	}
	return fmt.Sprintf("%.1f%% (%d of %d outcomes)", 100*float64(had)/float64(all), had, all)
}

// LCOV returns the report in the format of lcov: each outcome is a branch of its line.
func (r *Report) LCOV() string {
	var b strings.Builder
	for i := 0; i < len(r.Policies); {
		name := r.Policies[i].File
		lines := map[int]int64{}
		var order []int
		branches, taken := 0, 0
		fmt.Fprintf(&b, "TN:\nSF:%s\n", name)
		block := 0
		for ; i < len(r.Policies) && r.Policies[i].File == name; i++ {
			for _, part := range r.Policies[i].Parts {
				var sum int64
				for n, hits := range part.Hits {
					fmt.Fprintf(&b, "BRDA:%d,%d,%d,%d\n", part.Line, block, n, hits)
					branches++
					if hits > 0 {
						taken++
					}
					if part.runs(n) {
						sum += hits
					}
				}
				if _, ok := lines[part.Line]; !ok {
					order = append(order, part.Line)
				}
				lines[part.Line] = max(lines[part.Line], sum)
				block++
			}
		}
		fmt.Fprintf(&b, "BRF:%d\nBRH:%d\n", branches, taken)
		slices.Sort(order)
		hit := 0
		for _, line := range order {
			fmt.Fprintf(&b, "DA:%d,%d\n", line, lines[line])
			if lines[line] > 0 {
				hit++
			}
		}
		fmt.Fprintf(&b, "LF:%d\nLH:%d\nend_of_record\n", len(order), hit)
	}
	return b.String()
}
