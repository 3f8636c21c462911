package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// MutatorsName is the ConfigMap in mapd's namespace that says what has become of
// Gatekeeper's mutators. Their own status is Gatekeeper's, which may be running.
const MutatorsName = "mapd-gatekeeper"

// Keys of the ConfigMap.
const (
	keyMode     = "mode"
	keySummary  = "summary"
	keyMutators = "mutators"
	keyProblems = "problems"
	keyReport   = "report.json" // the rest, for programs
)

// What can be said of a mutator.
const (
	MutatorRunning  = "running"
	MutatorNative   = "native"   // policies run it
	MutatorOutdated = "outdated" // what is stored is not valid, and the version before runs
	MutatorRefused  = "refused"  // what is stored is not valid
	MutatorConflict = "conflict"
	MutatorOff      = "off" // valid, and cannot run here
)

// Reasons of events about mutators.
var mutatorReasons = map[string]string{
	MutatorOutdated: "MutatorInvalid",
	MutatorRefused:  "MutatorInvalid",
	MutatorConflict: "MutatorConflict",
	MutatorOff:      "MutatorNotRun",
}

const (
	// listPause is the least time between two writes of the list, and listEvery how
	// often to see whether it is still there.
	listPause = 250 * time.Millisecond
	listEvery = 30 * time.Second
	// maxListLine and maxList bound what it says of one mutator and of all, in bytes:
	// an object cannot be larger than about 1 MiB.
	maxListLine = 300
	maxList     = 700 << 10
)

// MutatorLine is what the ConfigMap says of one mutator.
type MutatorLine struct {
	ID    string `json:"id"`             // Assign/name
	State string `json:"state"`          // one of the above
	Text  string `json:"text,omitempty"` // why, and what else there is to know
}

// Bad says that the mutator does not do what it says.
func (l MutatorLine) Bad() bool { return l.State != MutatorRunning && l.State != MutatorNative }

// MutatorList is what the ConfigMap says.
type MutatorList struct {
	Mode     string        `json:"mode"` // on, shadow or native
	Mutators []MutatorLine `json:"mutators,omitempty"`
	Problems []string      `json:"problems,omitempty"` // of more than one mutator
}

// ReadMutators returns the MutatorList in the data of the ConfigMap. One that a release
// without that list has written says the mode only.
func ReadMutators(data map[string]string) MutatorList {
	l := MutatorList{Mode: data[keyMode]}
	_ = json.Unmarshal([]byte(data[keyReport]), &l)
	return l
}

// ListMutators says it of a Store's state and of the policies that are written;
// native may be nil.
func ListMutators(s *store.MutatorsState, native *NativeReport) MutatorList {
	l := MutatorList{Mode: engine.ModeWord(s.Mode)}
	if s.Native {
		l.Mode = "native"
	}
	if native == nil {
		native = &NativeReport{}
	}
	for _, p := range slices.Concat(s.Problems, native.Problems) {
		l.Problems = append(l.Problems, line(p))
	}
	for i := range s.Mutators {
		l.Mutators = append(l.Mutators, lineOf(&s.Mutators[i], native))
	}
	return l
}

// movedText says where a mutator that runs does so, and why.
func movedText(m *store.Moved, r *NativeReport) string {
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

func lineOf(m *store.MutatorState, r *NativeReport) MutatorLine {
	l := MutatorLine{ID: m.ID(), State: MutatorRunning}
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
	l.Text = line(l.Text)
	return l
}

// line is a text on one line.
func line(text string) string {
	text = report.Printable(strings.Join(strings.Fields(text), " "))
	if len(text) <= maxListLine {
		return text
	}
	return strings.ToValidUTF8(text[:maxListLine], "") + " …"
}

// data is the list as the ConfigMap holds it: for people, in columns.
func (l MutatorList) data() map[string]string {
	out := map[string]string{keyMode: l.Mode, keySummary: l.summary()}
	if len(l.Problems) > 0 {
		out[keyProblems] = strings.Join(l.Problems, "\n") + "\n"
	}
	width := 0
	for _, m := range l.Mutators {
		width = max(width, len(m.ID))
	}
	var b strings.Builder
	shown := l
	size := 0 // of both forms
	for i, m := range l.Mutators {
		text, err := json.Marshal(m)
		if size > maxList || err != nil {
			fmt.Fprintf(&b, "and %d more\n", len(l.Mutators)-i)
			shown.Mutators = l.Mutators[:i]
			break
		}
		row := strings.TrimRight(fmt.Sprintf("%-*s  %-8s  %s", width, m.ID, m.State, m.Text), " ") + "\n"
		b.WriteString(row)
		size += len(row) + len(text)
	}
	if b.Len() > 0 {
		out[keyMutators] = b.String()
	}
	text, _ := json.Marshal(shown) // strings, which JSON has a form for
	out[keyReport] = string(text)
	return out
}

// summary is "5 mutators: 3 running, 2 conflict".
func (l MutatorList) summary() string {
	count := map[string]int{}
	for _, m := range l.Mutators {
		count[m.State]++
	}
	var parts []string
	for _, state := range []string{MutatorRunning, MutatorNative, MutatorOutdated, MutatorConflict, MutatorOff, MutatorRefused} {
		if count[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[state], state))
		}
	}
	noun := "mutators"
	if len(l.Mutators) == 1 {
		noun = "mutator"
	}
	text := fmt.Sprintf("%d %s", len(l.Mutators), noun)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// keepList keeps the ConfigMap what it should be until ctx is done.
func (w *Writer) keepList(ctx context.Context, out *events) {
	var known map[string]string // what is there
	var tries attempts
	looked := time.Time{}
	for {
		pause := listEvery
		if s := w.o.Store.Snapshot(); s != nil && s.Mutators != nil {
			if time.Since(looked) >= listEvery {
				known = nil
				looked = time.Now()
			}
			now, err := w.writeList(ctx, s.Mutators, known, out)
			if ctx.Err() != nil {
				return
			}
			wait, news := tries.ended(err, retryMost)
			if news {
				w.log.Error("what has become of the mutators is not written", "configmap", MutatorsName, "error", err)
			}
			if err == nil {
				known = now
			} else {
				pause = wait
			}
		}
		if !watch.Sleep(ctx, listPause, nil, nil) || !watch.Sleep(ctx, pause, w.listed, w.nativeReported) {
			return
		}
	}
}

// writeList writes the ConfigMap if it is not what it should be, and returns what it
// is then. known is what it is, nil if that is not known. What is worse than the
// ConfigMap has said so far becomes an event.
func (w *Writer) writeList(ctx context.Context, s *store.MutatorsState, known map[string]string, out *events) (map[string]string, error) {
	list := ListMutators(s, w.native.Report())
	want := list.data()
	if known != nil && sameData(known, want) {
		return known, nil
	}
	client := w.o.Kubernetes.CoreV1().ConfigMaps(w.o.Namespace)
	live, err := client.Get(ctx, MutatorsName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil && sameData(live.Data, want) {
		return want, nil
	}
	before := ReadMutators(nil)
	if err == nil {
		before = ReadMutators(live.Data)
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": MutatorsName, "labels": labels()}, "data": want,
	})
	if err != nil {
		return nil, err
	}
	if _, err := client.Patch(ctx, MutatorsName, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: fieldManager, Force: new(true)}); err != nil {
		return nil, err
	}
	announce(s, list, before, out)
	return want, nil
}

// sameData says that nothing of want has to be written over live; what others have
// put there besides is theirs.
func sameData(live, want map[string]string) bool {
	for _, key := range []string{keyMode, keySummary, keyMutators, keyProblems, keyReport} {
		if live[key] != want[key] {
			return false
		}
	}
	return true
}

// announce makes events of the mutators about which there is bad news.
func announce(s *store.MutatorsState, now, before MutatorList, out *events) {
	said := map[MutatorLine]bool{}
	for _, m := range before.Mutators {
		said[m] = true
	}
	for i, m := range now.Mutators {
		if !m.Bad() || said[m] {
			continue
		}
		about := s.Mutators[i].Object
		out.warn(corev1.ObjectReference{APIVersion: about.GetAPIVersion(), Kind: about.GetKind(), Name: about.GetName(), UID: about.GetUID()},
			mutatorReasons[m.State], "Check", m.Text)
	}
}
