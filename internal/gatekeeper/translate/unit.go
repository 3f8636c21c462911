package translate

import (
	"cmp"
	"encoding/json"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Options say how Native writes policies. With the zero value, policies contain the values, have
// the patch type that reads best, are of Kubernetes' own API group, and are written for built-in
// kinds.
type Options struct {
	// Patch is "auto" (or empty), "json" or "apply".
	Patch string
	// Readable uses an ApplyConfiguration wherever one is possible, even if its effect differs
	// from the mutator's. It applies to Patch "auto".
	Readable bool
	// Params keeps the values in the mutators: the policies read them from there as parameters.
	Params bool
	// Recorded has recorded values of external data. The policies read them from a ConfigMap.
	// Without it, mutators with external data get no policy. It needs Params.
	Recorded Recorded
	// ParamsNamespace is where these ConfigMaps are, kube-system if empty.
	ParamsNamespace string
	// Group is the API group of policies and bindings,
	// admissionregistration.k8s.io if empty.
	Group string
	// ByMatch joins mutators that match the same requests into one policy.
	ByMatch bool
	// NamePrefix begins the names of policies and bindings.
	NamePrefix string
	// Types know the kinds; nil is the built-in ones.
	Types *openapi.Types
}

// Verdict says how exactly a native policy does what its mutator does.
type Verdict string

// The verdicts. Only Exact and Differs come with a policy.
const (
	Exact      Verdict = "exact"
	Differs    Verdict = "differs"
	EngineOnly Verdict = "engine-only"
	Refused    Verdict = "refused"
)

// Note is one line about a verdict. Trap is the number of the behaviour in
// Gatekeeper spec §13, such as "T21", or empty.
type Note struct {
	Trap string `json:"trap,omitempty"`
	Text string `json:"text"`
}

func (n Note) String() string {
	if n.Trap == "" {
		return n.Text
	}
	return n.Trap + ": " + n.Text
}

// MutatorVerdict is the outcome for one mutator, by its ID.
type MutatorVerdict struct {
	ID      string
	Verdict Verdict
	Notes   []Note
}

// Unit is the content of one file: one mutator, or several whose order matters, with their
// policy.
type Unit struct {
	Name     string
	Mutators []*legacy.Mutator
	// Policy and Binding are nil if no policy does what the mutators do.
	Policy  *admissionregistrationv1.MutatingAdmissionPolicy
	Binding *admissionregistrationv1.MutatingAdmissionPolicyBinding
	// Params is the ConfigMap with the recorded values; nil if there are none.
	Params *unstructured.Unstructured
	// Comment describes the policy in words, in lines of at most 100 characters
	// without a comment sign.
	Comment string
	// Verdicts are for Mutators, in the same order.
	Verdicts []MutatorVerdict
	// Rounds is how often the policy has to run because of dependencies between
	// its mutators: 1, 2, or 3 for more than a server allows.
	Rounds int
	// Unique are list locations, each of which ends in a glob. The policy assumes that no two
	// elements of them have the same key, because an API server would refuse such an object after
	// admission.
	Unique []legacy.Path
	// Filled are lists of built-in kinds. The policy assumes that they are not empty: an API
	// server refuses an object in which one is, and none of the mutators adds an element.
	Filled []legacy.Path
}

// Native translates mutators into policies, either exactly or with a note for each difference.
// Mutators that influence each other share one policy; every other mutator gets its own. Units
// are sorted by name. A mutator that gets no policy has a Unit, too.
func Native(ms []*legacy.Mutator, o Options) []Unit {
	n := newTranslation(ms, o)
	movable := n.movable()
	components := legacy.Components(movable)
	for _, c := range components {
		if c.Rounds > 2 {
			for _, m := range c.Members {
				n.fates[m.ID()] = engineOnly("", "takes more than the two rounds that a server gives: "+c.Why)
			}
		}
	}
	if o.ByMatch {
		components = n.byMatch(components)
	}
	for _, m := range n.all {
		if !slices.Contains(movable, m) {
			components = append(components, legacy.Component{Members: []*legacy.Mutator{m}, Rounds: 1})
		}
	}
	groups := make([][]*legacy.Mutator, len(components))
	for i, c := range components {
		groups[i] = c.Members
	}
	names := uniqueNames(groups, o.NamePrefix)
	units := make([]Unit, len(components))
	for i, c := range components {
		units[i] = n.unit(names[i], c.Members, c.Rounds)
	}
	slices.SortFunc(units, func(a, b Unit) int { return cmp.Compare(a.Name, b.Name) })
	return units
}

// byMatch joins components whose members all match the same requests. Members of different
// components commute, so one policy has the same effect as several in any order.
func (n *translation) byMatch(components []legacy.Component) []legacy.Component {
	var out []legacy.Component
	at := map[string]int{}
	for _, c := range components {
		key := n.matchKey(c.Members[0])
		for _, m := range c.Members {
			if m.Asks() || n.matchKey(m) != key || c.Rounds > 2 {
				key = c.Members[0].ID() // joined with no other component
			}
		}
		i, ok := at[key]
		if !ok {
			at[key] = len(out)
			out = append(out, c)
			continue
		}
		o := &out[i]
		o.Members = slices.SortedFunc(slices.Values(slices.Concat(o.Members, c.Members)), legacy.Compare)
		o.Rounds = max(o.Rounds, c.Rounds)
	}
	return out
}

// matchKey returns a text that two mutators share if they match the same requests.
func (n *translation) matchKey(m *legacy.Mutator) string {
	rules, _ := Rules(m, n.types)
	sorted := func(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
	key, _ := json.Marshal([]any{rules, n.scope(m), sorted(m.Match.Namespaces), sorted(m.Match.ExcludedNamespaces),
		m.Match.LabelSelector, m.Match.NamespaceSelector, m.Match.Name})
	return string(key)
}

// unit makes the policy of a group, if there can be one.
func (n *translation) unit(name string, ms []*legacy.Mutator, rounds int) Unit {
	u := Unit{Name: name, Mutators: ms, Rounds: rounds}
	if n.fates[ms[0].ID()].movable() {
		n.mindEmpties(ms)
		n.write(&u)
	}
	for _, m := range ms {
		f := n.fates[m.ID()]
		u.Verdicts = append(u.Verdicts, MutatorVerdict{ID: m.ID(), Verdict: f.verdict, Notes: f.notes})
	}
	u.Comment = n.comment(u)
	return u
}
