package history

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// A replica stores its entries in a ConfigMap with the label StoredLabel, at the key
// StoredKey of its binary data, and its name in the annotation StoredReplica.
const (
	StoredLabel   = "mapd.dev/records"
	StoredKey     = "blame.json.gz"
	StoredReplica = "mapd.dev/replica"
)

// storedBytes is how much of the history is stored at most, before it is compressed.
const storedBytes = 2 << 20

// StoreIn says that entries are stored in ConfigMaps of a namespace. It must not be called
// once the Recorder is in use.
func (l *Recorder) StoreIn(namespace string) { l.kept = namespace }

// Mark says which entries there were at some time. Marks can be compared.
type Mark [historyParts]uint64

// Stored are entries as a ConfigMap has them.
type Stored struct {
	Text []byte
	// Entries is how many there are. New of them were added since an earlier Mark, and
	// Missed ones, which were added since then as well, are left out.
	Entries     int
	New, Missed uint64
	// Mark is that of the time at which they were taken.
	Mark Mark
}

// Mark returns the present one.
func (l *Recorder) Mark() (m Mark) {
	for i := range l.history.parts {
		p := &l.history.parts[i]
		p.mu.Lock()
		m[i] = p.added
		p.mu.Unlock()
	}
	return m
}

// Store returns the newest entries as compressed JSON of at most so many bytes.
// Namespaces share the room as they share the history. earlier is the Mark of the last
// time, or the zero Mark.
func (l *Recorder) Store(most int, earlier Mark) (*Stored, error) {
	for bytes := storedBytes; ; bytes = bytes * 3 / 4 {
		s := &Stored{}
		entries := l.history.newest(bytes, earlier, s)
		var err error
		s.Text, err = pack(BlameAnswer{Header: Header{l.replica, l.since.UTC()}, Entries: entries})
		if err != nil || len(s.Text) <= most || len(entries) == 0 {
			return s, err
		}
	}
}

// Unstore reads the text of a Stored.
func Unstore(text []byte) (BlameAnswer, error) { return unpack[BlameAnswer](text) }

// newest returns the newest entries, newest first, that take at most so many bytes. A
// part that needs less than its share leaves the rest to the others.
func (h *history) newest(bytes int, earlier Mark, s *Stored) []Entry {
	sizes, order := [historyParts]int{}, [historyParts]int{}
	for i := range h.parts {
		p := &h.parts[i]
		p.mu.Lock()
		sizes[i], order[i] = len(p.old)+len(p.new), i
		p.mu.Unlock()
	}
	slices.SortFunc(order[:], func(a, b int) int { return cmp.Compare(sizes[a], sizes[b]) })
	entries := []Entry{}
	for k, i := range order {
		text, added, n := h.parts[i].tail(bytes / (historyParts - k))
		bytes -= len(text)
		for len(text) > 0 {
			var r reader
			r, text = cutEntry(text)
			entries = append(entries, r.entry())
		}
		s.Mark[i] = added
		since := added - earlier[i]
		s.New += min(since, n)
		s.Missed += since - min(since, n)
	}
	s.Entries = len(entries)
	slices.Reverse(entries) // those of one millisecond are in order, too
	slices.SortStableFunc(entries, func(a, b Entry) int { return b.Time.Compare(a.Time) })
	return entries
}

// tail returns a copy of the newest entries, of at most so many bytes, how many there are
// and how many were ever added.
func (p *part) tail(bytes int) (text packed, added, entries uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	skip := len(p.old) + len(p.new) - bytes
	for _, from := range []packed{p.old, p.new} {
		for len(from) > 0 {
			_, rest := cutEntry(from)
			if skip > 0 {
				skip -= len(from) - len(rest)
			} else {
				text = append(text, from[:len(from)-len(rest)]...)
				entries++
			}
			from = rest
		}
	}
	return text, p.added, entries
}

// entry reads a whole entry.
func (r *reader) entry() Entry {
	e := r.head()
	e.acts(r)
	return e
}

// delivered counts entries that a sink has taken and lost.
type delivered struct{ sent, dropped atomic.Uint64 }

// Delivered records that a sink has delivered entries, and has lost others for good.
func (l *Recorder) Delivered(sent, dropped uint64) {
	l.delivered.sent.Add(sent)
	l.delivered.dropped.Add(dropped)
}

// DeliveredTotals returns the sums of all calls of Delivered, with what did not fit into the Feed.
func (l *Recorder) DeliveredTotals() (sent, dropped uint64) {
	dropped = l.delivered.dropped.Load()
	if l.feed != nil {
		dropped += l.feed.dropped.Load()
	}
	return l.delivered.sent.Load(), dropped
}
