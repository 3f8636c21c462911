package webhook

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Keys of the audit annotations. The server prepends the webhook's name and a slash, so the
// keys have no prefix of their own.
const (
	annotationMutatedBy = "mutated-by"
	annotationFailed    = "failed-policies"
	annotationIgnored   = "ignored-failures"
	annotationWouldFail = "would-fail"
	annotationWould     = "would-mutate"
)

const (
	// maxAnnotation bounds the length of an annotation's value in bytes. An
	// audit event is one line of a log or one body of a batch, and all webhooks
	// of a request share it; 4 KiB are some sixty paths.
	maxAnnotation = 4 << 10
	// maxPath bounds one path. Names of fields may be as long as the object.
	maxPath = 256
	// maxName bounds the name of an actor. Those that a server accepts are shorter: two
	// names of 253 bytes and a slash.
	maxName = 512

	ellipsis = "…"
)

// acts are who did what in some steps. They name the fields that changed: as JSON pointers in
// the audit log and in mapd's own log, and in the notation of tree.Field in warnings. They
// never contain a value, nor an error text, which may quote one.
type acts struct{ mutated, failed, ignored actors }

// actsOf returns the acts of steps. mutated is false for a request that was denied or is
// unchanged: then no step has changed anything that is stored.
func actsOf(steps []engine.Step, mutated bool) (a acts) {
	a.add(steps, mutated)
	return a
}

// shadowActs returns what would have been done by the members of a stage that is not enforced,
// or by the policies of an enforced stage that are not.
func shadowActs(r *engine.Record) (a acts) {
	if r.Stage.Mode != api.Enforce {
		a.add(r.Steps, r.Changed)
	}
	for i := range r.Shadows {
		a.addShadow(&r.Shadows[i])
	}
	return a
}

// join adds the acts of others to a.
func (a *acts) join(others acts) {
	for _, pair := range [...]struct{ to, from *actors }{{&a.mutated, &others.mutated}, {&a.failed, &others.failed}, {&a.ignored, &others.ignored}} {
		for i := range pair.from.list {
			actor := &pair.from.list[i]
			pair.to.add(&engine.Step{Policy: actor.policy, Binding: actor.binding}, actor.paths)
		}
	}
}

func (a *acts) addShadow(s *engine.Shadow) {
	a.add(s.Steps, s.Changed())
	if s.Status != nil { // there may be no step with the error if the time was up
		a.failed.add(&engine.Step{Policy: s.Policy, Binding: s.Binding}, nil)
	}
}

func (a *acts) add(steps []engine.Step, mutated bool) {
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
}

// manySteps bounds the initial capacity for actors.
const manySteps = 128

// annotations returns the audit annotations of the acts, and of would, those of what is not
// enforced. They name policies as policy/binding and mutators as kind/name, in the order in
// which they first acted; paths are sorted. docs/operate/blame.md has the grammar, which other
// programs read: changing it requires other keys.
//
//	mutated-by        team-labels/all: /metadata/labels/team; sidecar/mesh: /spec/containers/0, /spec/volumes
//	failed-policies   policies whose errors denied the request
//	ignored-failures  policies whose errors failurePolicy Ignore swallowed
//	would-fail        policies that are not enforced whose errors would have denied the request
//	would-mutate      what policies that are not enforced would have changed
func (a *acts) annotations(would *acts) annotations {
	return annotations{
		{annotationFailed, a.failed.String()},
		{annotationIgnored, a.ignored.String()},
		{annotationMutatedBy, a.mutated.String()},
		{annotationWouldFail, would.failed.String()},
		{annotationWould, would.mutated.String()},
	}
}

// annotations are sorted by key. A key without a value is left out of the response, since each
// value names an actor.
type annotations [5]struct{ key, value string }

// actorName names a policy and the binding by which it acted, or another stage's member, which
// has no binding.
type actorName struct{ policy, binding string }

func (n actorName) name() actorName { return n }

// String returns policy/binding, or only the one that is not empty.
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

// actors lists the actors of some steps.
type actors struct{ tally[actor] }

func (a *actors) add(s *engine.Step, paths []string) {
	name := actorName{s.Policy, s.Binding}
	i := a.find(name)
	if i == len(a.list) {
		a.list = append(a.list, actor{actorName: name})
	}
	actor := &a.list[i]
	if actor.paths == nil {
		actor.paths = paths // the caller owns the list that Paths returned
		return
	}
	actor.paths = append(actor.paths, paths...)
}

// String lists the actors up to maxAnnotation bytes, followed by the number of those that are
// left out. ParseAnnotation parses the result.
func (a *actors) String() string {
	if len(a.list) == 0 {
		return ""
	}
	const reserve = len("; and 1000000 more") // reserved for the end of the list
	b := make([]byte, 0, a.size())
	for i := range a.list {
		before := len(b)
		if i > 0 {
			b = append(b, "; "...)
		}
		b = a.list[i].append(b) // the first one always fits
		if len(b) <= maxAnnotation-reserve || i == 0 {
			continue
		}
		b = fmt.Appendf(b[:before], "; and %d more", len(a.list)-i)
		break
	}
	return string(b)
}

// size returns the length of the list with one path for each actor, up to maxAnnotation.
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

// append appends the actor's name and its paths.
func (a *actor) append(b []byte) []byte {
	switch {
	case len(a.policy)+len(a.binding) >= maxName || !isPlain(a.policy) || a.binding != "" && !isPlain(a.binding):
		b = appendWord(b, a.actorName.String(), maxName)
	case a.binding == "":
		b = append(b, a.policy...)
	default:
		b = append(append(append(b, a.policy...), '/'), a.binding...)
	}
	switch {
	case len(a.paths) == 0:
		return b
	case len(a.paths) == 1: // as below
		return appendWord(append(b, ": "...), a.paths[0], maxPath)
	}
	// The paths take at most half of maxAnnotation: one busy policy must not hide the others.
	return append(append(b, ": "...), a.pathList(maxAnnotation/2, asPointer)...)
}

// asPointer returns a path as it is, for annotations and logs; warnings use tree.Field.
func asPointer(path string) string { return path }

// pathList lists the sorted paths in about limit bytes, and at least one. written returns the
// form of a path.
func (a *actor) pathList(limit int, written func(path string) string) string {
	slices.Sort(a.paths)
	a.paths = slices.Compact(a.paths)
	b := make([]byte, 0, min(limit, 64*len(a.paths)))
	for i, p := range a.paths {
		before := len(b)
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendWord(b, written(p), min(maxPath, limit))
		if len(b) > limit && i > 0 {
			b = fmt.Appendf(b[:before], ", and %d more", len(a.paths)-i)
			break
		}
	}
	return string(b)
}

// appendWord appends a name or a path in at most limit bytes: as it is, or as a JSON string if
// it has a character that separates words or is not printable. A word that is cut ends with an
// ellipsis, after the closing quote of a JSON string.
func appendWord(b []byte, s string, limit int) []byte {
	if isPlain(s) {
		return append(b, cut(s, limit)...)
	}
	before := len(b)
	if b = tree.AppendString(b, s); len(b)-before <= limit {
		return b
	}
	const longest = len(`\u0000`) // the longest form of one byte
	whole := cut(s, max(len(ellipsis), limit/longest))
	return append(tree.AppendString(b[:before], strings.TrimSuffix(whole, ellipsis)), ellipsis...)
}

// isPlain reports whether a word can stand in an annotation without quotes.
func isPlain(s string) bool {
	ascii := true
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c <= ' ', c == 0x7f, c == ',', c == ';', c == ':', c == '"', c == '\\':
			return false
		case c > 0x7f:
			ascii = false
		}
	}
	return s != "" && (ascii || utf8.ValidString(s) && !strings.Contains(s, ellipsis))
}

// cut shortens s to at most limit bytes without breaking a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	limit -= len(ellipsis)
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + ellipsis
}
