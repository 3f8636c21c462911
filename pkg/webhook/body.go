package webhook

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/mapd-project/mapd/pkg/memory"
)

// bodyPart is how much of a body is read at a time. Nearly every review fits
// one part.
const bodyPart = 64 << 10

// errCrowded is the error for a body that was dropped to free memory for others.
var errCrowded = errors.New("other bodies need the room that this one took for too long; try again")

// bodies are the request bodies that are being read. They have a memory limit of their own, so
// that incomplete bodies cannot block complete reviews. When the limit is reached, the body
// with the largest product of bytes and seconds is dropped: a client that sends slowly loses
// its memory to clients that send fast.
type bodies struct {
	limit int64 // bytes

	mu      sync.Mutex
	freed   sync.Cond
	held    int64
	reading map[*body]struct{}
	dropped int64 // how many were dropped since the start
	parts   sync.Pool
}

// body is one body that is being read.
type body struct {
	all   *bodies
	began time.Time
	stop  func() // ends a Read that waits
	// all.mu guards the fields below.
	held   int64
	victim bool
}

func newBodies(limit int64) *bodies {
	b := &bodies{limit: limit, reading: map[*body]struct{}{}}
	b.freed.L = &b.mu
	b.parts.New = func() any { return new([bodyPart]byte) }
	return b
}

// read reads a body of at most MaxBody bytes and charges account for it when it is complete.
// stop must make a waiting Read return at once; read may call it at any time until it returns.
func (bs *bodies) read(from io.Reader, announced int64, stop func(), account *memory.Account) ([]byte, error) {
	if announced > MaxBody {
		return nil, &http.MaxBytesError{Limit: MaxBody}
	}
	b := &body{all: bs, began: time.Now(), stop: stop}
	var first [1]*[bodyPart]byte
	parts := first[:0]
	defer func() {
		bs.mu.Lock()
		defer bs.mu.Unlock()
		delete(bs.reading, b)
		bs.held -= b.held
		bs.freed.Broadcast()
		for _, p := range parts {
			bs.parts.Put(p)
		}
	}()
	size := 0
	for end := false; !end; {
		if err := bs.waitForRoom(b); err != nil {
			return nil, err
		}
		part := bs.parts.Get().(*[bodyPart]byte)
		parts = append(parts, part)
		n, err := fill(from, part[:])
		size += n
		switch {
		case size > MaxBody:
			return nil, &http.MaxBytesError{Limit: MaxBody}
		case errors.Is(err, io.EOF):
			if !bs.complete(b) {
				return nil, errCrowded
			}
			end = true
		case err != nil && b.dropped():
			return nil, errCrowded
		case err != nil:
			return nil, err
		}
	}
	if err := account.Charge(int64(size)); err != nil {
		return nil, err
	}
	data := make([]byte, 0, size)
	for _, p := range parts {
		data = append(data, p[:min(bodyPart, size-len(data))]...)
	}
	return data, nil
}

// complete reports whether b was read without being dropped, and keeps it from being dropped
// later. stop has ended the connection of a dropped body, so that its review cannot be
// answered.
func (bs *bodies) complete(b *body) bool {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	delete(bs.reading, b)
	return !b.victim
}

// fill is io.ReadFull, except that it returns all errors unchanged.
func fill(from io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = from.Read(p[n:])
		n += m
	}
	return n, err
}

// waitForRoom waits until there is room for one more part of b.
func (bs *bodies) waitForRoom(b *body) error {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	limit := bs.limit
	if b.held > 0 {
		limit -= limit / 4 // a quarter is reserved for first parts, since most bodies need only one
	}
	for bs.held+bodyPart > limit {
		if b.victim {
			return errCrowded
		}
		if v := bs.largest(time.Now()); v != nil && !v.victim {
			v.victim = true
			bs.dropped++
			if v == b {
				return errCrowded
			}
			v.stop()
			bs.freed.Broadcast() // v may be waiting here
		}
		bs.freed.Wait()
	}
	bs.held += bodyPart
	b.held += bodyPart
	bs.reading[b] = struct{}{}
	return nil
}

// largest returns the body to drop. While a body is being dropped it returns that one, so that
// no more are dropped than necessary.
func (bs *bodies) largest(now time.Time) *body {
	var largest *body
	most := -1.0
	for b := range bs.reading {
		if b.victim {
			return b
		}
		if cost := float64(b.held) * now.Sub(b.began).Seconds(); cost > most {
			largest, most = b, cost
		}
	}
	return largest
}

func (b *body) dropped() bool {
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	return b.victim
}

// state returns how many bytes incomplete bodies hold, and how many bodies were dropped since
// the start.
func (bs *bodies) state() (held, dropped int64) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return bs.held, bs.dropped
}
