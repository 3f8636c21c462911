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
	// historyBytes is the memory of the history. The entry of a typical Pod takes 300 bytes.
	historyBytes = 16 << 20
	// historyParts is the number of parts of the history.
	historyParts = 16
	// maxActs and maxPaths bound an entry.
	maxActs  = 16
	maxPaths = 16
	// maxEntry bounds the bytes of an entry. Each string in it has at most maxText bytes.
	maxEntry = (maxActs*(maxPaths+4) + 16) * (maxText + binary.MaxVarintLen64)
	// maxAnswer bounds the entries in one answer.
	maxAnswer = 200
)

// Entry is one review whose object was stored with changes by policies, unless the request was
// refused later.
type Entry struct {
	Time time.Time `json:"time"`
	// UID is empty for a creation, because the server sets it after admission.
	UID string `json:"uid,omitempty"`
	// Owner is the UID of the object's controller.
	Owner     string `json:"owner,omitempty"`
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	// Name is empty if the server generates it from GenerateName after admission.
	Name         string `json:"name,omitempty"`
	GenerateName string `json:"generateName,omitempty"`
	Operation    string `json:"operation"`
	SubResource  string `json:"subResource,omitempty"`
	Acts         []Act  `json:"acts"`
	// More is the number of Acts left out.
	More int `json:"more,omitempty"`
}

// Act is one mutation that changed the object.
type Act struct {
	Stage   string `json:"stage"`
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
	Param   string `json:"param,omitempty"`
	// Paths are the JSON pointers of the changed fields; More is the number of those left out.
	Paths []string `json:"paths,omitempty"`
	More  int      `json:"more,omitempty"`
}

// history has the entries of the last reviews. It is divided into parts by namespace; each keeps
// its newest entries.
type history struct {
	seed  maphash.Seed
	parts [historyParts]part
}

// part has two buffers. When the new one is full it becomes the old one, whose content is
// dropped. So between half of the memory and all of it is in use.
type part struct {
	mu       sync.Mutex
	most     int // a buffer of this length is full
	new, old packed
	added    uint64 // number of entries since the start
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

// add records which steps changed the object, and passes the entry to feed unless that is nil.
// Each entry begins with its length in four bytes.
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

// controllerOf returns the UID of the controller in the ownerReferences of an object.
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

// Query selects the entries of an object. Kind is required.
type Query struct {
	metav1.GroupKind
	Namespace, Name string
	// UID excludes entries of other objects with the same name; empty: they are included.
	UID string
	// Owner excludes entries without a name whose object has another controller; empty: they are
	// included.
	Owner string
}

// Entries returns the entries for an object, newest first, and the number of entries left out. An
// entry of an object that had no name yet is included if the name begins with its GenerateName.
// It may belong to another object.
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

// cutEntry returns the first entry of a text, and the rest of the text.
func cutEntry(text packed) (first reader, rest packed) {
	length := binary.BigEndian.Uint32(text)
	return reader{text[4:length]}, text[length:]
}

// head reads an entry except its Acts, which follow.
func (r *reader) head() Entry {
	return Entry{Time: r.time(), UID: r.string(), Owner: r.string(), Group: r.string(), Version: r.string(), Kind: r.string(), Namespace: r.string(),
		Name: r.string(), GenerateName: r.string(), Operation: r.string(), SubResource: r.string()}
}

// Wants reports whether an entry belongs, or may belong, to the object.
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
