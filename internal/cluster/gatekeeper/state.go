package gatekeeper

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/gatekeeper/mutators"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// State is the state of all of Gatekeeper's mutators.
type State struct {
	Mode api.Mode
	// Native: mutators move into policies.
	Native bool
	// Mutators are in Gatekeeper's order.
	Mutators []MutatorState
	// Problems concern more than one mutator: a kind that cannot be read, a Config that is not
	// valid.
	Problems []string
	// Rules match all requests that the running mutators may change.
	Rules []admissionregistrationv1.RuleWithOperations

	report *NativeReport // nil if mutators do not move, or there is no report yet
}

// MutatorState is one mutator and its state.
type MutatorState struct {
	// Object has the mutator's apiVersion, kind, name, uid and generation. It must
	// not be modified.
	Object *unstructured.Unstructured
	// Err is the reason why the stored mutator is not valid. If Running is set too, its last
	// valid version still runs.
	Err     error
	Running bool
	// Conflict is set if the mutator does not run because it and others disagree about the schema
	// of objects.
	Conflict *legacy.Conflict
	// Reason is why a valid mutator does not run.
	Reason string
	Notes  []legacy.Note
	// Moved is nil if mutators do not move into policies.
	Moved *Moved

	mutator *legacy.Mutator
}

// ID names the mutator for people: "Assign/name".
func (m *MutatorState) ID() string { return m.Object.GetKind() + "/" + m.Object.GetName() }

// Out reports whether policies run the mutator, and mapd does not.
func (m *MutatorState) Out() bool { return m.Moved != nil && m.Moved.Out }

// Running returns the number of running mutators.
func (s *State) Running() int {
	n := 0
	for i := range s.Mutators {
		if s.Mutators[i].Running {
			n++
		}
	}
	return n
}

// addMoved sets Moved of each valid mutator.
func (s *State) addMoved(n *NativeState) {
	s.Native = true
	for i := range s.Mutators {
		if m := &s.Mutators[i]; m.mutator != nil {
			m.Moved = n.Of(m.ID())
		}
	}
}

func stateOf(list []*storedMutator, result *mutators.Result, mode api.Mode, problems []string) *State {
	of := make(map[*legacy.Mutator]*mutators.State, len(result.States))
	for i := range result.States {
		of[result.States[i].Mutator] = &result.States[i]
	}
	out := &State{Mode: mode, Problems: problems, Rules: result.Rules}
	for _, m := range list {
		state := MutatorState{Object: m.Object, Err: m.Err, mutator: m.Value}
		if s := of[m.Value]; s != nil {
			state.Running, state.Conflict, state.Reason, state.Notes = s.Running, s.Conflict, s.Reason, s.Notes
		}
		out.Mutators = append(out.Mutators, state)
	}
	return out
}

// Entries implements feature.State.
func (s *State) Entries(validating bool, base admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
	if entry := newEntry(s.Rules, base); entry != nil && !validating {
		return []admissionregistrationv1.MutatingWebhook{*entry}
	}
	return nil
}

// EntryName is the name of the webhook's entry for mutators.
const EntryName = "legacy.mapd.dev"

// newEntry returns the webhook entry for mutators, for the requests that rules match, or nil
// without rules. The entry comes after those of all groups of policies, so that mutators see the
// changes of policies.
//
// The entry behaves like Gatekeeper's own (Gatekeeper spec §9.1): it is skipped if mapd cannot be
// reached, called once, and called only for the versions that a rule names. It excludes
// namespaces with api.IgnoreLabel, Gatekeeper's own objects, and Gatekeeper's default
// ServiceAccount (Gatekeeper spec §9.2).
func newEntry(rules []admissionregistrationv1.RuleWithOperations, base admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhook {
	w := webhookconfig.RulesEntry(base, EntryName, webhook.LegacyPath, rules)
	if w == nil {
		return nil
	}
	w.FailurePolicy = new(admissionregistrationv1.Ignore)
	w.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
	w.MatchPolicy = new(admissionregistrationv1.Exact)
	if w.NamespaceSelector == nil {
		w.NamespaceSelector = &metav1.LabelSelector{}
	}
	w.NamespaceSelector.MatchExpressions = append(w.NamespaceSelector.MatchExpressions,
		metav1.LabelSelectorRequirement{Key: api.IgnoreLabel, Operator: metav1.LabelSelectorOpDoesNotExist})
	// The engine excludes these requests as well, but calls for them would delay all of
	// Gatekeeper's own writes.
	w.MatchConditions = append(w.MatchConditions,
		admissionregistrationv1.MatchCondition{Name: "not-gatekeeper-objects", Expression: "!(request.kind.group in ['" + strings.Join(api.GatekeeperGroups, "', '") + "'])"},
		admissionregistrationv1.MatchCondition{Name: "not-gatekeeper-itself", Expression: "request.userInfo.username != 'system:serviceaccount:" + api.GatekeeperNamespace + ":gatekeeper-admin'"})
	return w
}

// MutatorsName is the ConfigMap in mapd's namespace with the states of Gatekeeper's mutators.
// mapd does not write their status, because Gatekeeper may be running and writes it.
const MutatorsName = "mapd-gatekeeper"

const keyMutators = "mutators"

// States of a mutator in the ConfigMap.
const (
	MutatorRunning  = "running"
	MutatorNative   = "native"   // policies run it
	MutatorOutdated = "outdated" // the stored version is not valid, and the last valid one runs
	MutatorRefused  = "refused"  // the stored version is not valid
	MutatorConflict = "conflict"
	MutatorOff      = "off" // valid, but cannot run here
)

// Reasons of events about mutators.
var mutatorReasons = map[string]string{
	MutatorOutdated: "MutatorInvalid",
	MutatorRefused:  "MutatorInvalid",
	MutatorConflict: "MutatorConflict",
	MutatorOff:      "MutatorNotRun",
}

// Bad reports whether the mutator of a line does not do what it says.
func Bad(l feature.Line) bool { return mutatorReasons[l.State] != "" }

// ReadMutators decodes the data of the ConfigMap.
func ReadMutators(data map[string]string) feature.Listing {
	return feature.ReadListing(data, keyMutators)
}

// Listing implements feature.State.
func (s *State) Listing() *feature.Listing {
	l := &feature.Listing{
		Name: MutatorsName, Key: keyMutators, About: "the mutators", One: "mutator", Many: "mutators", Mode: engine.ModeWord(s.Mode), Action: "Check",
		States: []string{MutatorRunning, MutatorNative, MutatorOutdated, MutatorConflict, MutatorOff, MutatorRefused},
	}
	if s.Native {
		l.Mode = "native"
	}
	report := s.report
	if report == nil {
		report = &NativeReport{}
	}
	l.Problems = slices.Concat(s.Problems, report.Problems)
	for i := range s.Mutators {
		l.Lines = append(l.Lines, lineOf(&s.Mutators[i], report))
	}
	return l
}

// movedText describes where a running mutator runs, and why.
func movedText(m *Moved, r *NativeReport) string {
	switch why := r.Units[m.Policy]; {
	case m.Policy == "":
		return "by mapd: " + m.Stays
	case why != "" && m.Out:
		return "by an earlier policy " + m.Policy + ", which cannot be changed: " + why
	case why != "":
		return "by mapd, because there cannot be a policy " + m.Policy + ": " + why
	case m.Out && len(m.Groups) > 0:
		return "by the policy " + m.Policy + " of " + strings.Join(m.Groups, " and ")
	case m.Out:
		return "by a policy that is about to change"
	default:
		return "by mapd, until servers know the policy " + m.Policy
	}
}

func lineOf(m *MutatorState, r *NativeReport) feature.Line {
	l := feature.Line{ID: m.ID(), State: MutatorRunning, Object: m.Object}
	switch {
	case m.Err != nil && (m.Running || m.Out()):
		l.State, l.Text = MutatorOutdated, "the version before goes on to run: "+legacy.Reason(m.Err)
	case m.Err != nil:
		l.State, l.Text = MutatorRefused, legacy.Reason(m.Err)
	case m.Conflict != nil && !m.Running && !m.Out():
		l.State, l.Text = MutatorConflict, m.Conflict.Error()
	case !m.Running && !m.Out():
		l.State, l.Text = MutatorOff, m.Reason
	default:
		var notes []string
		if m.Moved != nil {
			notes = append(notes, movedText(m.Moved, r))
		}
		for _, n := range m.Notes {
			notes = append(notes, n.Field+": "+n.Message)
		}
		l.Text = strings.Join(notes, "; ")
		if m.Out() {
			l.State = MutatorNative
		}
	}
	l.Reason = mutatorReasons[l.State]
	return l
}
