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

// acts are who did what in some steps. They name the fields that changed as JSON
// pointers, for the audit log and for warnings: never a value, and no error text,
// which may quote one.
type acts struct{ mutated, failed, ignored actors }

// actsOf sorts steps. mutated is false for a request that was denied or stays as it
// was: then no step has changed anything that is stored.
func actsOf(steps []engine.Step, mutated bool) (a acts) {
	for i := range steps {
		switch s := &steps[i]; {
		case s.Outcome == engine.Failed && s.Ignored:
			a.ignored.add(s, nil)
		case s.Outcome == engine.Failed:
			a.failed.add(s, nil)
		case s.Outcome == engine.Changed && mutated:
			if a.mutated.list == nil {
				a.mutated.list = make([]actor, 0, min(len(steps)-i, manySteps))
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

// annotations are in the order of their keys. A key without a value is left out of
// the response: each value names an actor.
type annotations [3]struct{ key, value string }

// actorName names a policy by which binding, or another stage's member, which has no
// binding.
type actorName struct{ policy, binding string }

func (n actorName) name() actorName { return n }

// String is policy/binding, or the one that there is.
func (n actorName) String() string {
	if n.binding == "" {
		return n.policy
	}
	return n.policy + "/" + n.binding
}

// actor is who acted, and the fields that changed.
type actor struct {
	actorName
	paths []string
}

// actors are those of some steps.
type actors struct{ tally[actor] }

func (a *actors) add(s *engine.Step, paths []string) {
	name := actorName{s.Policy, s.Binding}
	i := a.find(name)
	if i == len(a.list) {
		a.list = append(a.list, actor{actorName: name})
	}
	actor := &a.list[i]
	if actor.paths == nil {
		actor.paths = paths // Paths returns a list that nobody else has
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

// append appends who acted and on what.
func (a *actor) append(b []byte) []byte {
	b = append(b, a.policy...)
	if a.binding != "" {
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
