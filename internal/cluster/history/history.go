package history

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

const (
	// historyBytes is the memory of a history. An entry of a usual Pod takes 300 bytes.
	historyBytes = 16 << 20
	// historyParts is how many parts it is divided into.
	historyParts = 16
	// maxActs and maxPaths bound an entry.
	maxActs  = 16
	maxPaths = 16
	// maxEntry is the most that an entry can be long. All strings of an entry are at most
	// maxText long.
	maxEntry = (maxActs*(maxPaths+4) + 16) * (maxText + binary.MaxVarintLen64)
	// maxAnswer bounds how many entries are returned.
	maxAnswer = 200
)

// Entry is one review after which an object was stored with changes by policies, unless
// somebody else refused it.
type Entry struct {
	Time time.Time `json:"time"`
	// UID is empty if the object was being created: the server chooses it afterwards.
	UID string `json:"uid,omitempty"`
	// Owner is the UID of the controller that owns the object.
	Owner     string `json:"owner,omitempty"`
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	// Name is empty if the server chose it afterwards, beginning with GenerateName.
	Name         string `json:"name,omitempty"`
	GenerateName string `json:"generateName,omitempty"`
	Operation    string `json:"operation"`
	SubResource  string `json:"subResource,omitempty"`
	Acts         []Act  `json:"acts"`
	// More is how many Acts are left out.
	More int `json:"more,omitempty"`
}

// Act is one mutation that changed the object.
type Act struct {
	Stage   string `json:"stage"`
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
	Param   string `json:"param,omitempty"`
	// Paths are the JSON pointers of what changed; More is how many are left out.
	Paths []string `json:"paths,omitempty"`
	More  int      `json:"more,omitempty"`
}

// history remembers entries of the last reviews. It is divided by namespace into parts;
// each keeps what was added last.
type history struct {
	seed  maphash.Seed
	parts [historyParts]part
}

// part has two buffers. When the new one is full it becomes the old one, so between
// half of the memory and all of it is in use.
type part struct {
	mu       sync.Mutex
	most     int // length from which on a buffer is full
	new, old packed
	added    uint64 // entries, ever
}

func newHistory(bytes int) *history {
	h := &history{seed: maphash.MakeSeed()}
	for i := range h.parts {
		h.parts[i].most = bytes/historyParts/2 - maxEntry
	}
	return h
}

func (h *history) part(namespace string) *part {
	return &h.parts[maphash.String(h.seed, namespace)%historyParts]
}

// add remembers which of the steps changed the request's object, and hands the entry to
// feed unless that is nil. Each entry begins with its length in four bytes.
func (h *history) add(req *policy.Request, steps []engine.Step, feed *Feed) {
	var uid, owner, name, generateName string
	if o := req.Object; o != nil {
		uid, name, generateName = string(o.GetUID()), o.GetName(), o.GetGenerateName()
		if c := controllerOf(o.Object); c != "" {
			owner = c
		}
	}
	if req.Name != "" {
		name = req.Name
	}
	if name != "" {
		generateName = ""
	}
	p := h.part(req.Namespace)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.new) >= p.most {
		p.new, p.old = p.old[:0], p.new
	}
	start := len(p.new)
	b := append(p.new, 0, 0, 0, 0).number(time.Now().UnixMilli()).string(uid).string(owner).string(req.Kind.Group).string(req.Kind.Version).string(req.Kind.Kind).
		string(req.Namespace).string(name).string(generateName).string(string(req.Operation)).string(req.SubResource)
	acts, more := 0, 0
	for i := range steps {
		if steps[i].Outcome == engine.Changed {
			if acts++; acts > maxActs {
				acts, more = maxActs, more+1
			}
		}
	}
	b = binary.AppendUvarint(b, uint64(acts))
	for i := range steps {
		if s := &steps[i]; s.Outcome == engine.Changed && acts > 0 {
			acts--
			b = b.string(s.Stage).string(s.Policy).string(s.Binding).string(s.Param).paths(s.Paths(), maxPaths, maxPaths*maxText)
		}
	}
	b = binary.AppendUvarint(b, uint64(more))
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start))
	p.new = b
	p.added++
	if feed != nil {
		feed.add(b[start:])
	}
}

// controllerOf returns the UID of the controller among the owners of an object.
func controllerOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	owners, _ := metadata["ownerReferences"].([]any)
	for _, o := range owners {
		if owner, _ := o.(map[string]any); owner["controller"] == true {
			uid, _ := owner["uid"].(string)
			return uid
		}
	}
	return ""
}

// Query says of which object entries are wanted. Kind is required.
type Query struct {
	metav1.GroupKind
	Namespace, Name string
	// UID excludes entries of other objects of that name; empty: they are included.
	UID string
	// Owner excludes entries without a name whose object had another controller; empty:
	// they are included.
	Owner string
}

// Entries returns what is remembered of an object, newest first, and how many entries
// are left out. An entry of an object that had no name yet is included if the name
// begins as the entry says: it may be of another object.
func (l *Recorder) Entries(q Query) (found []Entry, more int) {
	p := l.history.part(q.Namespace)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range []packed{p.old, p.new} {
		for len(text) > 0 {
			var r reader
			r, text = cutEntry(text)
			if e := r.head(); q.Wants(&e) {
				e.acts(&r)
				found = append(found, e)
			}
		}
	}
	slices.Reverse(found)
	if len(found) > maxAnswer {
		more = len(found) - maxAnswer
		found = found[:maxAnswer]
	}
	return found, more
}

// cutEntry returns the first entry of a text, and what follows it.
func cutEntry(text packed) (first reader, rest packed) {
	length := binary.BigEndian.Uint32(text)
	return reader{text[4:length]}, text[length:]
}

// head reads an entry without its Acts, which follow.
func (r *reader) head() Entry {
	return Entry{Time: r.time(), UID: r.string(), Owner: r.string(), Group: r.string(), Version: r.string(), Kind: r.string(), Namespace: r.string(),
		Name: r.string(), GenerateName: r.string(), Operation: r.string(), SubResource: r.string()}
}

// Wants reports whether an entry is, or may be, of the object.
func (q *Query) Wants(e *Entry) bool {
	if e.Group != q.Group || e.Kind != q.Kind || e.Namespace != q.Namespace || e.UID != "" && q.UID != "" && e.UID != q.UID {
		return false
	}
	if e.Name != "" {
		return e.Name == q.Name
	}
	return e.GenerateName != "" && strings.HasPrefix(q.Name, e.GenerateName) && (q.Owner == "" || e.Owner == q.Owner)
}

func (e *Entry) acts(r *reader) {
	e.Acts = make([]Act, r.count())
	for i := range e.Acts {
		a := &e.Acts[i]
		a.Stage, a.Policy, a.Binding, a.Param = r.string(), r.string(), r.string(), r.string()
		a.Paths, a.More = r.paths()
	}
	e.More = r.count()
}
