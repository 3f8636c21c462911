package history

import (
	"iter"
	"sync"
	"sync/atomic"
)

// feedBytes bounds the bytes that wait in a Feed. It has two buffers of that size.
const feedBytes = 4 << 20

// Feed is a bounded queue of all entries, for one reader. Entries that do not fit are dropped and
// counted, so that recording never waits for the reader.
type Feed struct {
	most    int
	dropped atomic.Uint64

	mu             sync.Mutex
	waiting, taken packed
}

// Feed returns the queue of the Recorder. The first call must be before the first request is
// recorded.
func (l *Recorder) Feed() *Feed {
	if l.feed == nil {
		l.feed = &Feed{most: feedBytes}
	}
	return l.feed
}

func (f *Feed) add(entry packed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting)+len(entry) > f.most {
		f.dropped.Add(1)
		return
	}
	f.waiting = append(f.waiting, entry...)
}

// Take removes all entries from the queue and returns them, oldest first. The sequence is valid
// until the next call.
func (f *Feed) Take() iter.Seq[Entry] {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting, f.taken = f.taken[:0], f.waiting
	all := f.taken
	return func(yield func(Entry) bool) {
		for text := all; len(text) > 0; {
			var r reader
			r, text = cutEntry(text)
			if !yield(r.entry()) {
				return
			}
		}
	}
}
