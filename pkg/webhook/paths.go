package webhook

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	// ValidatePath is the path on which policies and bindings are validated.
	ValidatePath = "/validate"
	// LegacyPath is the path for Gatekeeper's mutators.
	LegacyPath = "/mutate/legacy"
	// ExpandPath is the path of Options.Expansion.
	ExpandPath = "/expand"
)

// Prefixes of the paths for Kubewarden's policies, which the failurePolicy of the entry
// follows. Mutating entries have the first, validating ones the second.
const (
	modulesPath    = "/mutate/guests"
	validatorsPath = "/validate/guests"
)

// domain is the suffix of the names of all entries.
const domain = "mapd.dev"

// Group is the set of policies that can share a webhook entry. failurePolicy and
// reinvocationPolicy are fields of an entry, so each combination has entries and paths of its
// own; docs/reference/architecture.md says what that means for policies.
type Group struct {
	FailurePolicy      admissionregistrationv1.FailurePolicyType
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType
}

// Groups returns all groups in the order in which a server calls their entries.
func Groups() []Group {
	return []Group{
		{admissionregistrationv1.Fail, admissionregistrationv1.NeverReinvocationPolicy},
		{admissionregistrationv1.Ignore, admissionregistrationv1.NeverReinvocationPolicy},
		{admissionregistrationv1.Fail, admissionregistrationv1.IfNeededReinvocationPolicy},
		{admissionregistrationv1.Ignore, admissionregistrationv1.IfNeededReinvocationPolicy},
	}
}

// GroupOf returns the group of a policy. A missing or unknown value counts as
// Fail or Never, the stricter ones.
func GroupOf(obj *admissionregistrationv1.MutatingAdmissionPolicy) Group {
	g := Group{admissionregistrationv1.Fail, admissionregistrationv1.NeverReinvocationPolicy}
	if p := obj.Spec.FailurePolicy; p != nil && *p == admissionregistrationv1.Ignore {
		g.FailurePolicy = admissionregistrationv1.Ignore
	}
	if obj.Spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy {
		g.ReinvocationPolicy = admissionregistrationv1.IfNeededReinvocationPolicy
	}
	return g
}

// Path returns the path of the group's only entry, such as /mutate/fail/never.
func (g Group) Path() string {
	return strings.ToLower("/mutate/" + string(g.FailurePolicy) + "/" + string(g.ReinvocationPolicy))
}

// Name returns the name of the group's only entry, such as fail.never.mapd.dev.
func (g Group) Name() string {
	return strings.ToLower(string(g.FailurePolicy) + "." + string(g.ReinvocationPolicy) + "." + domain)
}

// ID identifies one webhook entry: by its group and, if the group has several entries, by its
// part. It stays the same as long as the policies in the entry select by the same label keys
// and have the same rules, whatever values they select.
type ID struct {
	Group
	// Part distinguishes the entry from others of its group; "" if it is the only one.
	Part string
}

// PartLength is the length of a Part, in hexadecimal digits.
const PartLength = 8

// Path returns the path of the entry's reviews, such as
// /mutate/fail/never/1a2b3c4d.
func (id ID) Path() string {
	if id.Part == "" {
		return id.Group.Path()
	}
	return id.Group.Path() + "/" + id.Part
}

// Name returns the name of the entry's webhook, such as
// 1a2b3c4d.fail.never.mapd.dev.
func (id ID) Name() string {
	if id.Part == "" {
		return id.Group.Name()
	}
	return id.Part + "." + id.Group.Name()
}

// ParseName returns the ID with this Name.
func ParseName(name string) (ID, bool) {
	for _, g := range Groups() {
		if name == g.Name() {
			return ID{Group: g}, true
		}
		if part, ok := strings.CutSuffix(name, "."+g.Name()); ok && isPart(part) {
			return ID{g, part}, true
		}
	}
	return ID{}, false
}

// parsePath returns the ID with this Path.
func parsePath(path string) (ID, bool) {
	for _, g := range allGroups {
		if rest, ok := strings.CutPrefix(path, g.path); ok {
			if rest == "" {
				return ID{Group: g.Group}, true
			}
			return ID{g.Group, rest[1:]}, rest[0] == '/' && isPart(rest[1:])
		}
	}
	return ID{}, false
}

// allGroups has all Groups with their paths, which each request is compared with.
var allGroups = func() (all []struct {
	Group
	path string
}) {
	for _, g := range Groups() {
		all = append(all, struct {
			Group
			path string
		}{g, g.Path()})
	}
	return all
}()

func isPart(s string) bool {
	return len(s) == PartLength && strings.Trim(s, "0123456789abcdef") == ""
}

// Compare orders IDs, by group and part.
func (id ID) Compare(o ID) int {
	return cmp.Or(slices.Index(Groups(), id.Group)-slices.Index(Groups(), o.Group), cmp.Compare(id.Part, o.Part))
}

// ModulePath returns the path for Kubewarden's policies with a failurePolicy: for those that
// may change objects, or for the others.
func ModulePath(mutating bool, failurePolicy admissionregistrationv1.FailurePolicyType) string {
	path := validatorsPath
	if mutating {
		path = modulesPath
	}
	return path + "/" + strings.ToLower(string(failurePolicy))
}
