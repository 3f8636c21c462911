package history

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// A replica stores its entries in a ConfigMap with the label StoredLabel: compressed, at the key
// StoredKey of the binary data, with the replica's name in the annotation StoredReplica.
const (
	StoredLabel   = "mapd.dev/records"
	StoredKey     = "blame.json.gz"
	StoredReplica = "mapd.dev/replica"
)

// storedBytes bounds the stored part of the history, before compression.
const storedBytes = 2 << 20

// StoreIn records that entries are stored in ConfigMaps of a namespace. It must be called before
// the Recorder is used.
func (l *Recorder) StoreIn(namespace string) { l.kept = namespace }

// Mark identifies the entries at some time. Marks can be compared with ==.
type Mark [historyParts]uint64

// Stored has entries in the form in which a ConfigMap stores them.
type Stored struct {
	Text []byte
	// Entries is the number of entries. New of them were added since an earlier Mark. Missed is
	// the number of entries that were added since then and are left out.
	Entries     int
	New, Missed uint64
	// Mark is the Mark of the time at which the entries were read.
	Mark Mark
}

// Mark returns the present Mark.
func (l *Recorder) Mark() (m Mark) {
	for i := range l.history.parts {
		p := &l.history.parts[i]
		p.mu.Lock()
		m[i] = p.added
		p.mu.Unlock()
	}
	return m
}

// Store returns the newest entries as compressed JSON of at most most bytes. Namespaces share
// this room as they share the history. earlier is the Mark of the last call, or the zero Mark.
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

// Unstore decodes the text of a Stored.
func Unstore(text []byte) (BlameAnswer, error) { return unpack[BlameAnswer](text) }

// newest returns the newest entries that take at most so many bytes, newest first. Parts that
// need less than their share leave the rest to others.
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
	slices.Reverse(entries) // entries of the same millisecond keep their order
	slices.SortStableFunc(entries, func(a, b Entry) int { return b.Time.Compare(a.Time) })
	return entries
}

// tail returns a copy of the newest entries, of at most so many bytes, the number of all entries
// since the start, and the number of copied ones.
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

// entry reads an entry with its Acts.
func (r *reader) entry() Entry {
	e := r.head()
	e.acts(r)
	return e
}

// delivered counts the entries that a sink has sent and lost.
type delivered struct{ sent, dropped atomic.Uint64 }

// Delivered records that a sink has sent entries, and has lost others for good.
func (l *Recorder) Delivered(sent, dropped uint64) {
	l.delivered.sent.Add(sent)
	l.delivered.dropped.Add(dropped)
}

// DeliveredTotals returns the sums over all calls of Delivered, with the entries that the Feed
// has dropped.
func (l *Recorder) DeliveredTotals() (sent, dropped uint64) {
	dropped = l.delivered.dropped.Load()
	if l.feed != nil {
		dropped += l.feed.dropped.Load()
	}
	return l.delivered.sent.Load(), dropped
}
