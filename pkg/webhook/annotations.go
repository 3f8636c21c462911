package webhook

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mapd-project/mapd/pkg/engine"
)

// Keys of the audit annotations. The server puts the webhook's name and a slash
// before them, so they have none of their own.
const (
	annotationMutatedBy = "mutated-by"
	annotationFailed    = "failed-policies"
	annotationIgnored   = "ignored-failures"
)

const (
	// maxAnnotation bounds the length of an annotation's value in bytes. An
	// audit event is one line of a log or one body of a batch, and all webhooks
	// of a request share it; 4 KiB are some sixty paths.
	maxAnnotation = 4 << 10
	// maxPath bounds one path. Names of fields may be as long as the object.
	maxPath = 256
)

// acts are what the policies of a decision did. They tell the audit log, and the
// client if it is to be warned, which fields were changed, as JSON pointers:
// never a value, and no error text, which may quote one.
type acts struct{ mutated, failed, ignored actors }

// actsOf sorts a decision's steps. A denied request has no mutations: nothing of
// it is stored.
func actsOf(d *engine.Decision) (a acts) {
	for i := range d.Steps {
		switch s := &d.Steps[i]; {
		case s.Outcome == engine.Failed && s.Ignored:
			a.ignored.add(s, nil)
		case s.Outcome == engine.Failed:
			a.failed.add(s, nil)
		case s.Outcome == engine.Changed && d.Status == nil && d.Changed:
			if a.mutated.list == nil {
				a.mutated.list = make([]actor, 0, min(len(d.Steps)-i, manySteps))
			}
			a.mutated.add(s, s.Paths())
		}
	}
	return a
}

// manySteps bounds for how many actors there is room from the start.
const manySteps = 128

// annotations name policies as policy/binding and mutators as kind/name, in the
// order in which they first acted; paths are sorted.
//
//	mutated-by        team-labels/all: /metadata/labels/team; sidecar/mesh: /spec/containers/0, /spec/volumes
//	failed-policies   policies whose errors denied the request
//	ignored-failures  policies whose errors failurePolicy Ignore swallowed
func (a *acts) annotations() annotations {
	return annotations{
		{annotationFailed, a.failed.String()},
		{annotationIgnored, a.ignored.String()},
		{annotationMutatedBy, a.mutated.String()},
	}
}

// annotations are in the order of their keys. Those without a value are not
// there: each value names an actor.
type annotations [3]struct{ key, value string }

type actorName struct{ policy, binding string }

// mutator says that this is one of Gatekeeper's mutators, such as Assign/name: names
// of policies have no slash. What it is bound by is made up, and nothing to people.
func (n actorName) mutator() bool { return strings.Contains(n.policy, "/") }

type actor struct {
	actorName
	paths   []string
	outcome int     // the gravest, for the metrics
	series  *series // where it is counted
}

// actors are the policies of some steps, each once, in the order of their first
// step.
type actors struct {
	list     []actor
	last     int               // index in list of the last one asked for
	unsorted bool              // list is not in the order of names
	at       map[actorName]int // index in list, if there are many and it is not
}

// manyActors is how many names are compared one by one at most.
const manyActors = 16

// find returns the index in list of a step's policy and binding. The steps of
// one follow each other, those of policies come in the order of names, and the
// second round has the order of the first, so the last or the next one is nearly
// always the right one, or a new one is greater than all.
func (a *actors) find(s *engine.Step) int {
	name := actorName{s.Policy, s.Binding}
	for i := a.last; i < len(a.list) && i < a.last+2; i++ {
		if a.list[i].actorName == name {
			a.last = i
			return i
		}
	}
	a.last = a.search(name)
	if a.last == len(a.list) {
		a.list = append(a.list, actor{actorName: name})
	}
	return a.last
}

// search returns the index of a name, which is the list's length if it is new.
func (a *actors) search(name actorName) int {
	if !a.unsorted {
		if n := len(a.list); n == 0 || a.list[n-1].compare(name) < 0 {
			return n
		}
		i, ok := slices.BinarySearchFunc(a.list, name, func(a actor, name actorName) int { return a.compare(name) })
		if ok {
			return i
		}
		a.unsorted = true
	}
	if len(a.list) < manyActors {
		if i := slices.IndexFunc(a.list, func(a actor) bool { return a.actorName == name }); i >= 0 {
			return i
		}
		return len(a.list)
	}
	for i := len(a.at); i < len(a.list); i++ {
		if a.at == nil {
			a.at = make(map[actorName]int, 4*manyActors)
		}
		a.at[a.list[i].actorName] = i
	}
	if i, ok := a.at[name]; ok {
		return i
	}
	return len(a.list)
}

func (n actorName) compare(m actorName) int {
	if c := strings.Compare(n.policy, m.policy); c != 0 {
		return c
	}
	return strings.Compare(n.binding, m.binding)
}

func (a *actors) add(s *engine.Step, paths []string) {
	actor := &a.list[a.find(s)]
	if actor.paths == nil {
		actor.paths = paths // ours: Paths makes them anew
		return
	}
	actor.paths = append(actor.paths, paths...)
}

// String lists the actors as far as the bound allows and then says how many
// are left out.
func (a *actors) String() string {
	if len(a.list) == 0 {
		return ""
	}
	const reserve = len("; and 1000000 more") // of the bound, for the end
	b := make([]byte, 0, a.size())
	for i := range a.list {
		before := len(b)
		if i > 0 {
			b = append(b, "; "...)
		}
		b = a.list[i].append(b)
		if len(b) <= maxAnnotation-reserve {
			continue
		}
		if i == 0 {
			b = []byte(cut(string(b), maxAnnotation-reserve))
			continue
		}
		b = fmt.Appendf(b[:before], "; and %d more", len(a.list)-i)
		break
	}
	return string(b)
}

// size is how long the list is if each acted in one place, as far as the bound
// allows.
func (a *actors) size() int {
	size := 0
	for i := range a.list {
		actor := &a.list[i]
		size += len(actor.policy) + len(actor.binding) + len("; /: ")
		if len(actor.paths) > 0 {
			size += min(len(actor.paths[0]), maxPath)
		}
		if size > maxAnnotation {
			break
		}
	}
	return size
}

// append writes who acted and on what.
func (a *actor) append(b []byte) []byte {
	b = append(b, a.policy...)
	if a.binding != "" && !a.mutator() {
		b = append(append(b, '/'), a.binding...)
	}
	switch {
	case len(a.paths) == 0:
		return b
	case len(a.paths) == 1 && len(a.paths[0]) <= maxPath: // as below
		return append(append(b, ": "...), a.paths[0]...)
	}
	// Half of the bound: one busy policy must not hide the others.
	return append(append(b, ": "...), a.pathList(maxAnnotation/2)...)
}

// pathList lists the paths, sorted, in about limit bytes, and at least one.
func (a *actor) pathList(limit int) string {
	slices.Sort(a.paths)
	a.paths = slices.Compact(a.paths)
	shown := make([]string, 0, len(a.paths))
	size := 0
	for i, p := range a.paths {
		p = cut(p, min(maxPath, limit))
		if size += len(p) + len(", "); size > limit && i > 0 {
			shown = append(shown, fmt.Sprintf("and %d more", len(a.paths)-i))
			break
		}
		shown = append(shown, p)
	}
	return strings.Join(shown, ", ")
}

// cut shortens s to at most limit bytes without breaking a character.
func cut(s string, limit int) string {
	const dots = "…"
	if len(s) <= limit {
		return s
	}
	limit -= len(dots)
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + dots
}
