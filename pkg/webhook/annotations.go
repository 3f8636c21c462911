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
			a.mutated.add(s, s.Paths())
		}
	}
	return a
}

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
	outcome int // the gravest, for the metrics
}

// actors are the policies of some steps, each once, in the order of their first
// step.
type actors struct {
	list []actor
	last int               // index in list of the last one asked for
	at   map[actorName]int // index in list, if there are many
}

// manyActors is how many names are compared one by one at most.
const manyActors = 16

// find returns the index in list of a step's policy and binding. The steps of
// one follow each other, and the second round has the order of the first, so
// the last or the next one is nearly always the right one.
func (a *actors) find(s *engine.Step) int {
	name := actorName{s.Policy, s.Binding}
	for n := range min(len(a.list), manyActors) {
		if i := (a.last + n) % len(a.list); a.list[i].actorName == name {
			a.last = i
			return i
		}
	}
	i, known := len(a.list), false
	if i >= manyActors {
		if a.at == nil {
			a.at = make(map[actorName]int, 4*manyActors)
			for i := range a.list {
				a.at[a.list[i].actorName] = i
			}
		}
		i, known = a.at[name]
		if !known {
			i = len(a.list)
			a.at[name] = i
		}
	}
	if !known {
		a.list = append(a.list, actor{actorName: name})
	}
	a.last = i
	return i
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
	var b strings.Builder
	for i := range a.list {
		actor := &a.list[i]
		s := actor.text()
		if i > 0 {
			s = "; " + s
		}
		if b.Len()+len(s) > maxAnnotation-reserve {
			if i > 0 {
				fmt.Fprintf(&b, "; and %d more", len(a.list)-i)
				break
			}
			s = cut(s, maxAnnotation-reserve)
		}
		b.WriteString(s)
	}
	return b.String()
}

func (a *actor) text() string {
	if a.binding != "" && !a.mutator() && len(a.paths) == 1 && len(a.paths[0]) <= maxPath {
		return a.policy + "/" + a.binding + ": " + a.paths[0] // as below
	}
	s := a.policy
	if a.binding != "" && !a.mutator() {
		s += "/" + a.binding
	}
	if len(a.paths) == 0 {
		return s
	}
	// Half of the bound: one busy policy must not hide the others.
	return s + ": " + a.pathList(maxAnnotation/2)
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
