package blame

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mapd-project/mapd/internal/cluster/history"
)

// near is how far the clocks of a replica and of the API server may differ, and how long a
// creation may take.
const near = 5 * time.Second

// Recorded returns the lines of records that replicas kept of the target. Of a policy that
// wrote a field several times there is one line, with the last time. An entry of an object
// that had no name yet counts if it is from when the target was created.
func Recorded(t *Target, entries []history.Entry) []Line {
	nameless := 0
	entries = slices.DeleteFunc(slices.Clone(entries), func(e history.Entry) bool {
		if e.Name != "" {
			return e.UID != "" && t.UID != "" && e.UID != string(t.UID) || e.UID == "" && !t.Created.IsZero() && e.Time.Before(t.Created.Add(-near))
		}
		if !t.Created.IsZero() && (e.Time.Before(t.Created.Add(-near)) || e.Time.After(t.Created.Add(near))) {
			return true
		}
		nameless++
		return false
	})
	slices.SortStableFunc(entries, func(a, b history.Entry) int { return b.Time.Compare(a.Time) })
	type claim struct {
		field, by string
		nameless  bool
	}
	var out []Line
	at, count := map[claim]int{}, map[claim]int{}
	for _, e := range entries {
		operation := strings.ToLower(e.Operation)
		if e.SubResource != "" {
			operation += " " + e.SubResource
		}
		seen := map[claim]bool{}
		add := func(a *history.Act, field, note string) {
			by := a.Policy
			if a.Binding != "" {
				by += "/" + a.Binding
			}
			if a.Param != "" {
				note = joinNotes("with the parameter "+a.Param, note)
			}
			key := claim{field, by, e.Name == ""}
			if !seen[key] {
				seen[key] = true
				count[key]++
			}
			if _, ok := at[key]; ok {
				return
			}
			at[key] = len(out)
			out = append(out, Line{Object: t.String(), Field: field, By: by, Kind: ByPolicy, Operation: operation, Time: Time{e.Time}, Source: FromRecord, Note: note})
		}
		for i := range e.Acts {
			a := &e.Acts[i]
			for _, path := range a.Paths {
				add(a, path, "")
			}
			if a.More > 0 || len(a.Paths) == 0 {
				add(a, "", fmt.Sprintf("%d fields more", a.More))
			}
		}
		if e.More > 0 {
			add(&history.Act{Policy: "others"}, "", fmt.Sprintf("%d mutations more", e.More))
		}
	}
	for key, i := range at {
		switch n := count[key]; {
		case key.nameless && nameless > 1:
			out[i].Note = joinNotes(out[i].Note, fmt.Sprintf("so say %d of %d creations at this time, of which one is this object", n, nameless))
		case !key.nameless && n > 1:
			out[i].Note = joinNotes(out[i].Note, fmt.Sprintf("%d times", n))
		}
	}
	return out
}

// Join puts the lines about one object together, sorted by field. A field that a policy
// wrote in the request that its manager made, or later, is the policy's.
func Join(recorded, managed, again []Line) []Line {
	out := slices.Clone(recorded)
	known := func(m *Line) bool {
		return slices.ContainsFunc(recorded, func(r Line) bool {
			return r.Field != "" && within(m.Field, r.Field) && !r.Time.Before(m.Time.Time.Truncate(time.Second))
		})
	}
	for _, m := range managed {
		if !known(&m) {
			out = append(out, m)
		}
	}
	for _, a := range again {
		if !slices.ContainsFunc(recorded, func(r Line) bool {
			return r.Field != "" && (within(a.Field, r.Field) || within(r.Field, a.Field)) && r.By == a.By
		}) {
			out = append(out, a)
		}
	}
	slices.SortStableFunc(out, func(a, b Line) int {
		if c := comparePointers(a.Field, b.Field); c != 0 {
			return c
		}
		return a.Time.Compare(b.Time.Time)
	})
	return out
}
