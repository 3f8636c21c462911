package history

import (
	"iter"
	"sync"
	"sync/atomic"
)

// feedBytes is how much waits in a Feed. It has two buffers of that size.
const feedBytes = 4 << 20

// Feed is a bounded queue of all entries, for one reader. What finds it full is dropped
// and counted, so that recording never waits for the reader.
type Feed struct {
	most    int
	dropped atomic.Uint64

	mu             sync.Mutex
	waiting, taken packed
}

// Feed returns the queue of the Recorder. The first call must come before the Recorder is in
// use.
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

// Take empties the queue, and returns what was in it, oldest first. The sequence must not
// be used after the next call.
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
