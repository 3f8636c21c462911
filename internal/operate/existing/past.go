package existing

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/pkg/tree"
)

const (
	// between is the minimum time between two changes of objects with the same owner.
	between = time.Hour
	// maxRemembered bounds the writes that are remembered, and maxFields the fields of each.
	maxRemembered = 50_000
	maxFields     = 64
)

// seed is random, so that nobody can choose values with equal hashes.
var seed = maphash.MakeSeed()

func hash(text string) uint64 { return maphash.String(seed, text) }

// hashValue returns the hash of a value; nil, which is none, has one of its own.
func hashValue(v any) uint64 {
	if v == nil {
		return 0
	}
	text, err := tree.AppendJSON(nil, v)
	if err != nil {
		return 0
	}
	return maphash.Bytes(seed, text)
}

// remembered is the last write of an object.
type remembered struct {
	at     time.Time
	owner  uint64
	fields map[uint64]uint64 // hash of the pointer → hash of the value; nil: it is not certain that it was written
}

// pastWrites has the writes of the last days. It is built from the undo records when a replica
// gets the Lease. If there are more writes than maxRemembered, the oldest are dropped.
type pastWrites struct {
	writes map[types.UID]*remembered
	order  []types.UID // the first write first; may have objects that were written again since
	owners map[uint64]time.Time
}

func newPastWrites() *pastWrites {
	return &pastWrites{writes: map[types.UID]*remembered{}, owners: map[uint64]time.Time{}}
}

// add notes a write.
func (m *pastWrites) add(u *audit.Undo, at time.Time) {
	before := &unstructured.Unstructured{Object: u.Before}
	r := &remembered{at: at, owner: ownerOf(before)}
	if u.Stored {
		r.fields = map[uint64]uint64{}
		changed := u.Changed()
		for _, pointer := range slices.Sorted(maps.Keys(changed)) { // the same ones for every holder of the Lease
			if len(r.fields) == maxFields {
				break
			}
			r.fields[hash(keyed(u.After, pointer))] = hashValue(changed[pointer])
		}
	}
	m.writes[before.GetUID()] = r
	m.order = append(m.order, before.GetUID())
	m.owners[r.owner] = at
	m.prune(at)
}

// prune drops writes that are too old or too many.
func (m *pastWrites) prune(now time.Time) {
	for len(m.order) > 0 {
		r := m.writes[m.order[0]]
		switch {
		case r == nil:
		case len(m.order) <= maxRemembered && now.Sub(r.at) < recordsKept:
			return
		case now.Sub(r.at) < between && len(m.order) <= 2*maxRemembered: // full says to wait
			return
		default:
			delete(m.writes, m.order[0])
			if m.owners[r.owner].Equal(r.at) {
				delete(m.owners, r.owner)
			}
		}
		m.order = m.order[1:]
	}
}

// full reports whether no further write can be remembered, because all remembered ones are of the
// last hour.
func (m *pastWrites) full(now time.Time) bool {
	m.prune(now)
	return len(m.order) >= maxRemembered
}

// recent reports whether an object with the same owner was changed within the last hour.
func (m *pastWrites) recent(u *unstructured.Unstructured, now time.Time) bool {
	at, ok := m.owners[ownerOf(u)]
	return ok && now.Sub(at) < between
}

// forget drops the fields that were written to an object: their fight has been reported, and must
// not be reported again.
func (m *pastWrites) forget(uid types.UID) {
	if r := m.writes[uid]; r != nil {
		r.fields = nil
	}
}

// keyed returns a pointer with the names of elements, or what else identifies them, in the place of
// their indexes: where somebody puts a container before another, the index of that changes.
func keyed(object map[string]any, pointer string) string {
	var out strings.Builder
	at := any(object)
	for _, step := range strings.Split(pointer, "/")[1:] {
		switch v := at.(type) {
		case map[string]any:
			at = v[unescape.Replace(step)]
		case []any:
			at = nil
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v) {
				if at = v[i]; identity(at) != "" {
					step = identity(at)
				}
			}
		}
		out.WriteString("/" + step)
	}
	return out.String()
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// identity returns what identifies an element of a list, "" if nothing does.
func identity(element any) string {
	fields, _ := element.(map[string]any)
	for _, field := range append([]string{"name"}, slices.Sorted(maps.Keys(fields))...) {
		switch v := fields[field].(type) {
		case nil, map[string]any, []any:
		default:
			if tree.Identifies(field) {
				return fmt.Sprintf("[%s=%v]", field, v)
			}
		}
	}
	return ""
}

// changedBack returns the fields that the policies want to change once more and that somebody has
// changed since they were written; nil if there are none.
func (m *pastWrites) changedBack(was, want *unstructured.Unstructured) (pointers []string) {
	r := m.writes[was.GetUID()]
	if r == nil {
		return nil
	}
	for pointer := range audit.Changed(was, want) {
		if wrote, ok := r.fields[hash(keyed(want.Object, pointer))]; ok && wrote != hashValue(audit.ValueAt(was, pointer)) {
			pointers = append(pointers, pointer)
		}
	}
	return pointers
}
