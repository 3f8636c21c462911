package legacy

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Note is a warning about a part of a mutator that is valid and probably a mistake.
type Note struct {
	Field   string // "spec.applyTo[0].kinds"
	Message string
}

// Notes returns warnings for the author of the mutator, in the order of its
// fields.
func Notes(m *Mutator) []Note {
	n := notes{m: m}
	n.name()
	n.applyTo()
	n.match()
	n.location()
	n.tests()
	n.value()
	return n.list
}

type notes struct {
	m    *Mutator
	list []Note
}

func (n *notes) add(field, format string, args ...any) {
	n.list = append(n.list, Note{field, fmt.Sprintf(format, args...)})
}

func (n *notes) name() {
	if msgs := validation.IsDNS1123Subdomain(n.m.Name); len(msgs) > 0 {
		n.add("metadata.name", "an API server does not take this name: %s", msgs[0])
	}
}

func (n *notes) applyTo() {
	for i, a := range n.m.ApplyTo {
		for _, l := range []struct {
			name string
			list []string
		}{{"groups", a.Groups}, {"versions", a.Versions}, {"kinds", a.Kinds}} {
			if slices.Contains(l.list, "*") {
				n.add(fmt.Sprintf("spec.applyTo[%d].%s", i, l.name), `"*" is not a wildcard here and matches nothing`)
			}
		}
	}
	if !n.m.anyKind() {
		n.add("spec.match.kinds", "no kind is in both spec.applyTo and spec.match.kinds: the mutator never does anything")
	}
}

// pattern is the one that Gatekeeper's definitions have for wildcards.
var pattern = regexp.MustCompile(`^\*?[-:a-z0-9]*\*?$`)

func (n *notes) match() {
	match := &n.m.Match
	switch match.Scope {
	case "", "*", "Cluster", "Namespaced":
	default:
		n.add("spec.match.scope", "%q is neither Cluster nor Namespaced, and everything matches it", match.Scope)
	}
	n.patterns("spec.match.namespaces", match.Namespaces...)
	n.patterns("spec.match.excludedNamespaces", match.ExcludedNamespaces...)
	n.patterns("spec.match.name", match.Name)
	if !match.OfRequests() {
		n.add("spec.match.source", "generated resources do not come by admission: the mutator is for expansion only")
	}
}

func (n *notes) patterns(field string, patterns ...string) {
	for _, p := range patterns {
		if !pattern.MatchString(p) {
			n.add(field, "an API server does not take %q: lower-case letters, digits, - and : only, with * in front or at the end", p)
		}
	}
}

func (n *notes) location() {
	m := n.m
	if m.WritesKind() {
		n.add(locationField, "changes what the object is, and with that which mutators are about it")
	}
	if m.Kind != AssignMetadata {
		return
	}
	key := m.Location[2].Name
	if msgs := validation.IsQualifiedName(key); len(msgs) > 0 {
		n.add(locationField, "an API server does not take the key %q: %s", key, msgs[0])
	}
	value, ok := m.From.Value.(string)
	if !ok || m.Location[1].Name != "labels" {
		return
	}
	if msgs := validation.IsValidLabelValue(value); len(msgs) > 0 {
		n.add(assignField+".value", "an API server does not take the label value %q: %s", value, msgs[0])
	}
}

func (n *notes) tests() {
	if n.m.Kind == AssignMetadata {
		return // the test is not written by the author
	}
	mustNot := n.firstMustNot()
	for _, t := range n.m.Tests {
		at := n.m.Location[:t.Depth+1].String()
		glob := n.m.Location[t.Depth].Glob
		switch {
		case t.Condition != MustExist && t.Condition != MustNotExist:
			n.add(parametersField+".pathTests", "the condition %q of %s is none: the mutator never does anything", t.Condition, at)
		case glob && t.Condition == MustNotExist:
			n.add(parametersField+".pathTests", "MustNotExist never holds for all elements, %s: the mutator never does anything", at)
		case glob:
			n.add(parametersField+".pathTests", "MustExist says nothing about all elements, %s", at)
		case t.Condition == MustExist && mustNot < t.Depth:
			n.add(parametersField+".pathTests", "%s must exist in what must not: the mutator never does anything", at)
		}
	}
}

// firstMustNot returns the least depth with a MustNotExist, or the depth of the
// end if there is none.
func (n *notes) firstMustNot() int {
	for _, t := range n.m.Tests {
		if t.Condition == MustNotExist {
			return t.Depth
		}
	}
	return len(n.m.Location)
}

func (n *notes) value() {
	switch {
	case n.m.From != nil && n.m.From.External != nil:
		n.external(n.m.From.External)
	case n.m.From != nil:
		if f, ok := rounded(n.m.From.Value); ok {
			n.add(assignField+".value", "numbers are read as floats; %s is what became of one beyond 2^53", strconv.FormatFloat(f, 'f', -1, 64))
		}
	case n.m.Image != nil && !Idempotent(n.m):
		n.add(parametersField+".assignPath", "without a slash, some malformed images change at each run, which refuses the request")
	case n.m.Set != nil:
		n.set(n.m.Set)
	}
}

func (n *notes) external(e *External) {
	const field = assignField + ".externalData"
	if e.Provider == "" {
		n.add(field+".provider", "an API server does not take an absent provider")
	}
	if e.DataSource != "ValueAtLocation" && e.DataSource != "Username" {
		n.add(field+".dataSource", "%q is neither ValueAtLocation nor Username", e.DataSource)
	}
	if e.FailurePolicy != "Fail" && e.FailurePolicy != "Ignore" && e.FailurePolicy != "UseDefault" {
		n.add(field+".failurePolicy", "%q is none of Fail, Ignore and UseDefault", e.FailurePolicy)
	}
}

func (n *notes) set(s *SetValues) {
	const field = parametersField + ".values.fromList"
	if s.Prune && len(s.Values) == 0 {
		n.add(field, "there is nothing to prune: the mutator never does anything")
	}
	if s.Prune {
		return
	}
	for i, v := range s.Values {
		if slices.ContainsFunc(s.Values[:i], func(other any) bool { return tree.Equal(v, other) }) {
			n.add(field, "a value is given twice, and is there twice if the list was missing")
			return
		}
	}
}

// rounded returns a number in a value that conversion to float64 may have changed: from 2^53
// on, not all integers are floats.
func rounded(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, math.Abs(v) >= 1<<53 && v == math.Trunc(v)
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if f, ok := rounded(v[k]); ok {
				return f, true
			}
		}
	case []any:
		for _, e := range v {
			if f, ok := rounded(e); ok {
				return f, true
			}
		}
	}
	return 0, false
}
