package blame

import (
	"slices"
	"strings"
	"time"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Source is where a Line is from.
type Source string

const (
	FromRecord  Source = "record"        // what a replica of mapd remembers of its answers
	FromManaged Source = "managedFields" // what the API server keeps in the object
	FromAgain   Source = "again"         // what the present policies write into the object
	FromLog     Source = "audit log"     // what the API server wrote into its audit log
)

// Kind is what sort of writer a Line names.
type Kind string

const (
	ByPolicy  Kind = "policy"  // policy/binding, or a mutator or program, of mapd
	ByWebhook Kind = "webhook" // another webhook
	ByUser    Kind = "user"    // the user of a request
	ByManager Kind = "manager" // a field manager
	// ByException is a PolicyException, which wrote nothing: Note says which policy it keeps
	// from the object.
	ByException Kind = "exception"
)

// Line is one answer: who wrote a field, and when.
type Line struct {
	Object string `json:"object"`
	// Field is a JSON pointer, empty for the object as far as no other line speaks of it.
	Field string `json:"field"`
	// Cut means that Field is only the beginning of the pointer.
	Cut  bool   `json:"cut,omitempty"`
	By   string `json:"by"`
	Kind Kind   `json:"kind"`
	// User made the request in which a policy or a webhook wrote the field.
	User      string `json:"user,omitempty"`
	Operation string `json:"operation,omitempty"`
	Time      Time   `json:"time,omitzero"`
	Source    Source `json:"source"`
	// Failed means that By wrote nothing, because it failed: Note says what followed.
	Failed bool `json:"failed,omitempty"`
	// Note restricts what the line says.
	Note string `json:"note,omitempty"`
}

// Time is a time that is written in UTC to the second, or a microsecond if it is known.
type Time struct{ time.Time }

func (t Time) String() string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.999999Z07:00")
}

func (t Time) MarshalJSON() ([]byte, error) { return []byte(`"` + t.String() + `"`), nil }

// About reports whether a line says something of the field at pointer or of what is in it
// or around it. The empty pointer is the whole object.
func (l *Line) About(pointer string) bool {
	if l.Failed && pointer != "" {
		return false
	}
	return within(l.Field, pointer) || within(pointer, l.Field) || l.Cut && strings.HasPrefix(pointer, l.Field)
}

// within reports whether the field at pointer is, or is in, the one at outer.
func within(pointer, outer string) bool {
	rest, ok := strings.CutPrefix(pointer, outer)
	return ok && (rest == "" || rest[0] == '/')
}

// leaves returns the pointers to the values of m that are no objects, sorted. Lists are
// values, since an element has no name in a patch.
func leaves(m map[string]any, limit int) []string {
	out := appendLeaves(nil, nil, m, limit)
	slices.Sort(out)
	return out
}

func appendLeaves(out []string, at []byte, m map[string]any, limit int) []string {
	for name, v := range m {
		if len(out) > limit {
			return out
		}
		path := tree.AppendToken(at[:len(at):len(at)], name)
		if inner, ok := v.(map[string]any); ok && len(inner) > 0 {
			out = appendLeaves(out, path, inner, limit)
			continue
		}
		out = append(out, string(path))
	}
	return out
}
