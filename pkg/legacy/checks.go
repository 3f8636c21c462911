package legacy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	maxName = 63

	// maxNodes bounds a location, since the expression for it grows with the square
	// of its length and more. The deepest field of a built-in kind is a third of it.
	maxNodes = 64

	locationField   = "spec.location"
	parametersField = "spec.parameters"
	assignField     = "spec.parameters.assign"
)

// validate does Gatekeeper's checks in Gatekeeper's order, which differs between kinds
// (Gatekeeper spec §1.3–1.6).
func (m *Mutator) validate(raw *raw) *Error {
	if len(m.Name) > maxName {
		return refusef("metadata.name", "maximum name length is %d characters", maxName)
	}
	if err := m.checkCombinations(); err != nil {
		return err
	}
	if err := m.parseLocation(raw); err != nil {
		return err
	}
	switch m.Kind {
	case Assign:
		return first(m.checkNotMetadata, m.checkKeyKept, raw.checkSource(m), m.checkElement, raw.checkTests(m), m.checkApplyTo)
	case AssignMetadata:
		m.Tests = []PathTest{{Depth: 2, Condition: MustNotExist}}
		return first(raw.checkIsMetadata(m), raw.checkSource(m), m.checkLabelValue)
	case AssignImage:
		return first(m.checkNotMetadata, m.checkEndsInField, m.checkKeyKept, m.checkImage, raw.checkTests(m), m.checkApplyTo)
	default:
		return first(m.checkNotMetadata, m.checkEndsInField, raw.checkTests(m), m.checkApplyTo)
	}
}

// maxKinds bounds how many kinds applyTo and match.kinds name: their lists multiply, and each
// kind of applyTo is checked for conflicts.
const maxKinds = 10_000

// checkCombinations rejects a mutator with more than maxKinds kinds.
func (m *Mutator) checkCombinations() *Error {
	kinds := 0
	for _, a := range m.ApplyTo {
		// The product cannot overflow: each list of a stored object has at most 2^20 elements.
		if kinds += len(a.Groups) * len(a.Versions) * len(a.Kinds); kinds > maxKinds {
			return refusef("spec.applyTo", "applyTo names more than %d kinds", maxKinds)
		}
	}
	kinds = 0
	for _, k := range m.Match.Kinds {
		if kinds += len(k.APIGroups) * len(k.Kinds); kinds > maxKinds {
			return refusef("spec.match.kinds", "match.kinds names more than %d kinds", maxKinds)
		}
	}
	return nil
}

func first(checks ...func() *Error) *Error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mutator) parseLocation(raw *raw) *Error {
	path, err := ParsePath(raw.location)
	if err != nil {
		return refuseLocation(locationField, m.locationText(raw.location), err)
	}
	m.Location = path
	return nil
}

// locationText returns the text that Gatekeeper puts before its parser's error.
func (m *Mutator) locationText(location string) string {
	switch m.Kind {
	case AssignMetadata:
		return fmt.Sprintf("invalid location format for AssignMetadata %s: %s", m.Name, location)
	case AssignImage:
		return fmt.Sprintf("invalid location format `%s` for assignImage %s", location, m.Name)
	default:
		return fmt.Sprintf("invalid location format `%s` for %s %s", location, m.Kind, m.Name)
	}
}

func (m *Mutator) checkNotMetadata() *Error {
	if len(m.Location) == 0 || m.Location[0].Name != "metadata" {
		return nil
	}
	kind := strings.ToLower(string(m.Kind))
	if m.Kind == AssignImage {
		kind = "assignImage"
	}
	return refusef(locationField, "%s %s can't change metadata", kind, m.Name)
}

func (raw *raw) checkIsMetadata(m *Mutator) func() *Error {
	return func() *Error {
		p := m.Location
		if len(p) == 3 && !p[1].List && !p[2].List &&
			p[0].Name == "metadata" && (p[1].Name == "labels" || p[1].Name == "annotations") {
			return nil
		}
		return refusef(locationField, "invalid location for assignmetadata %s: %s", m.Name, raw.location)
	}
}

func (m *Mutator) checkEndsInField() *Error {
	if len(m.Location) == 0 || !m.Location[len(m.Location)-1].List {
		return nil
	}
	if m.Kind == AssignImage {
		return refusef(locationField, "assignImage %s cannot mutate list-type fields", m.Name)
	}
	return refusef(locationField, "final node in a modifyset location cannot be a keyed list")
}

func (m *Mutator) checkKeyKept() *Error {
	n := len(m.Location)
	if n == 0 {
		return refusef(locationField, "empty path")
	}
	last := m.Location[n-1]
	if n > 1 && !last.List && m.Location[n-2].List && m.Location[n-2].Name == last.Name {
		return refusef(locationField, "invalid path format: changing the item key is not allowed")
	}
	return nil
}

func (raw *raw) checkSource(m *Mutator) func() *Error {
	return func() *Error {
		sources := 0
		for _, set := range []bool{raw.value, raw.metadata, m.From.External != nil} {
			if set {
				sources++
			}
		}
		switch {
		case sources == 0:
			return refusef(assignField, "assign must set one of `externalData`, `value` or `fromMetadata`: invalid assign field")
		case sources > 1:
			return refusef(assignField, "assign must only set one of `externalData`, `value` or `fromMetadata`: invalid assign field")
		case raw.metadata && m.From.Metadata != "name" && m.From.Metadata != "namespace":
			return refusef(assignField+".fromMetadata.field", "field %s is not recognized: invalid fromMetadata field", m.From.Metadata)
		case m.From.External != nil && m.From.External.FailurePolicy == "UseDefault" && m.From.External.Default == "":
			return refusef(assignField+".externalData.default", "`default` must not be empty when `failurePolicy` is set to `UseDefault`")
		}
		return nil
	}
}

// checkElement checks an Assign whose location ends in a list selector.
func (m *Mutator) checkElement() *Error {
	last := m.Location[len(m.Location)-1]
	switch {
	case !last.List:
		return nil
	case m.From.Metadata != "":
		return refusef(locationField, "cannot assign a metadata field to a list")
	case m.From.External != nil:
		return refusef(locationField, "cannot assign external data response to a list")
	case last.Glob:
		return refusef(locationField, "can't append to a globbed list")
	}
	element, ok := m.From.Value.(map[string]any)
	if !ok {
		return refusef(assignField+".value", "invalid value: `%+v`, only objects can be added to keyed lists", m.From.Value)
	}
	// The comparison includes the types: an integer of a location never equals a number of a
	// value, which is a float.
	if element[last.Name] != last.Value {
		return refusef(assignField+".value", "adding object to list with different key %s: list key %v, object key %v",
			last.Name, last.Value, element[last.Name])
	}
	return nil
}

func (m *Mutator) checkLabelValue() *Error {
	if e := m.From.External; e != nil && e.DataSource != "Username" {
		return refusef(assignField+".externalData.dataSource", "only username data source is supported for assignmetadata %s", m.Name)
	}
	if m.From.Value == nil {
		return nil
	}
	if _, ok := m.From.Value.(string); !ok {
		return refusef(assignField+".value", "spec.parameters.assign.value field must be a string for AssignMetadata %q", m.Name)
	}
	return nil
}

// checkTests reads the path tests. Gatekeeper's last rule compares positions in the list, not
// depths: the same two tests can be valid in one order and invalid in the other (Gatekeeper
// spec §3.6). mapd does the same, so that both accept the same mutators.
func (raw *raw) checkTests(m *Mutator) func() *Error {
	return func() *Error {
		paths := make([]Path, len(raw.tests))
		for i, t := range raw.tests {
			field := testField(i)
			path, err := ParsePath(t.subPath)
			if err != nil {
				return refuseLocation(field, fmt.Sprintf("problem parsing sub path `%s` for %s %s", t.subPath, m.Kind, m.Name), err)
			}
			paths[i] = path
		}
		for i, p := range paths {
			if !m.Location.hasPrefix(p) {
				return refusef(testField(i), "all subpaths must be a prefix of the `location` value of the mutation: subpath %q is not a prefix of location %q",
					p.Canonical(), m.Location.Canonical())
			}
		}
		return raw.placeTests(m, paths)
	}
}

func testField(i int) string {
	return parametersField + ".pathTests[" + strconv.Itoa(i) + "].subPath"
}

func (raw *raw) placeTests(m *Mutator, paths []Path) *Error {
	at := map[int]Condition{}
	lastMust, firstMustNot := 0, len(paths)
	for i, p := range paths {
		c := Condition(raw.tests[i].condition)
		at[len(p)-1] = c
		if c == MustExist {
			lastMust = i
		}
		if c == MustNotExist {
			firstMustNot = min(firstMustNot, i)
		}
	}
	for i, p := range paths {
		if at[len(p)-1] != Condition(raw.tests[i].condition) {
			return refusef(testField(i), "conflicting path test conditions: path %q is marked both MustExist and MustNotExist", p.Canonical())
		}
	}
	if lastMust > firstMustNot {
		return refusef(testField(lastMust), "conflicting path test conditions: path %q is marked MustExist but parent %q MustNotExist",
			paths[lastMust].Canonical(), paths[firstMustNot].Canonical())
	}
	// An empty subPath has no depth, and its test has no effect.
	delete(at, -1)
	for _, depth := range slices.Sorted(maps.Keys(at)) {
		m.Tests = append(m.Tests, PathTest{Depth: depth, Condition: at[depth]})
	}
	return nil
}

func (p Path) hasPrefix(prefix Path) bool {
	return len(prefix) <= len(p) && slices.Equal(p[:len(prefix)], prefix)
}

func (m *Mutator) checkApplyTo() *Error {
	for i, a := range m.ApplyTo {
		if len(a.Groups) == 0 || len(a.Versions) == 0 || len(a.Kinds) == 0 {
			return refusef(fmt.Sprintf("spec.applyTo[%d]", i),
				"invalid applyTo for %s mutator %s, all of group, version and kind must be specified", m.Kind, m.Name)
		}
	}
	var wrong []string
	field := ""
	for i, a := range m.ApplyTo {
		faults := operationFaults(i, a.Operations)
		if len(faults) > 0 && field == "" {
			field = fmt.Sprintf("spec.applyTo[%d].operations", i)
		}
		wrong = append(wrong, faults...)
	}
	if len(wrong) > 0 {
		return refusef(field, "invalid applyTo for %s mutator %s: %s", m.Kind, m.Name, strings.Join(wrong, "; "))
	}
	if len(m.ApplyTo) == 0 {
		return refusef("spec.applyTo", "applyTo required for %s mutator %s", m.Kind, m.Name)
	}
	return nil
}

func operationFaults(entry int, operations []string) []string {
	var faults []string
	for i, op := range operations {
		if slices.Contains(operations[:i], op) {
			faults = append(faults, fmt.Sprintf("duplicate operation %q in applyTo[%d].operations", op, entry))
		}
		if op != "CREATE" && op != "UPDATE" && op != "*" {
			faults = append(faults, fmt.Sprintf("invalid operation %q in applyTo[%d].operations: must be one of CREATE, UPDATE, *", op, entry))
		}
	}
	if len(operations) > 1 && slices.Contains(operations, "*") {
		faults = append(faults, fmt.Sprintf("wildcard \"*\" in applyTo[%d].operations must not be combined with other operations", entry))
	}
	return faults
}

// Patterns for the parts of an image reference (Gatekeeper spec §6.2).
var (
	imageDomain = regexp.MustCompile(`^(?:\w[\w-]*\.[\w.-]*\w|localhost)(?::\d+)?$`)
	imagePath   = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._/]|__|-*)[a-z0-9]+)*$`)
	imageTag    = regexp.MustCompile(`^(?::\w[\w.-]{0,127}|@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,})$`)
)

func (m *Mutator) checkImage() *Error {
	refuse := func(field, format string, args ...any) *Error {
		return refusef(field, "assignImage %s has invalid parameters: "+format, append([]any{m.Name}, args...)...)
	}
	i := m.Image
	switch {
	case *i == Image{}:
		return refuse(parametersField, "at least one of [assignDomain, assignPath, assignTag] must be set")
	case i.Domain != "" && !imageDomain.MatchString(i.Domain):
		return refuse(parametersField+".assignDomain", "assignDomain %q must be a fully-qualified domain name or localhost", i.Domain)
	case i.Path != "" && !imagePath.MatchString(i.Path):
		return refuse(parametersField+".assignPath", "assignPath %q must be a valid docker image path", i.Path)
	case i.Tag != "" && !imageTag.MatchString(i.Tag):
		return refuse(parametersField+".assignTag", "assignTag %q must be a valid docker image tag or digest starting with ':' or '@'", i.Tag)
	case i.Domain == "" && startsWithDomain(i.Path):
		// The spelling is Gatekeeper's.
		return refuse(parametersField+".assignPath", "assignDomain must be set if the first part of assignPath %q can be interpretted as part of a domain", i.Path)
	}
	return nil
}

// startsWithDomain reports whether the first segment of an image path would be parsed as a
// domain. The path must match imagePath, so it has no colon.
func startsWithDomain(path string) bool {
	head, _, more := strings.Cut(path, "/")
	return more && (strings.Contains(head, ".") || head == "localhost")
}

// refuseEarly rejects mutators that Gatekeeper accepts and that then make it refuse every
// request or, for a merge without values, write null (Gatekeeper spec §1.5, §7.2, §15). It also
// rejects mutators that no CEL expression can implement.
func (m *Mutator) refuseEarly(raw *raw) *Error {
	if n := len(m.Location); n > maxNodes {
		return refusef(locationField, "a location of %d steps, more than the %d that mapd takes", n, maxNodes)
	}
	if m.Kind == ModifySet {
		switch {
		case len(m.Location) == 0:
			return refusef(locationField, "attempting to mutate an empty target location")
		case raw.operation != "merge" && raw.operation != "prune":
			return refusef(parametersField+".operation", "unrecognized operation for modifyset: %s", raw.operation)
		case raw.operation == "merge" && raw.noValues:
			return refusef(parametersField+".values", "merge needs spec.parameters.values.fromList; without it a missing list would become null")
		}
	}
	if err := checkSelector("spec.match.labelSelector", m.Match.LabelSelector); err != nil {
		return err
	}
	if err := checkSelector("spec.match.namespaceSelector", m.Match.NamespaceSelector); err != nil {
		return err
	}
	switch m.Match.Source {
	case "", "All", "Original", "Generated":
		return nil
	}
	return refusef("spec.match.source", "invalid source field %q", m.Match.Source)
}

func checkSelector(field string, s *metav1.LabelSelector) *Error {
	if s == nil {
		return nil
	}
	// Label by label in the order of their names: LabelSelectorAsSelector uses the
	// random order of the map.
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		one := &metav1.LabelSelector{MatchLabels: map[string]string{k: s.MatchLabels[k]}}
		if _, err := metav1.LabelSelectorAsSelector(one); err != nil {
			return refusef(field, "%w", err)
		}
	}
	if _, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: s.MatchExpressions}); err != nil {
		return refusef(field, "%w", err)
	}
	return nil
}
