package certs

import (
	"slices"
	"sync"
)

// listeners are channels of those who want to hear of changes.
type listeners struct {
	lmu sync.Mutex
	all []listener
}

type listener struct {
	c chan struct{}
	// any says that the listener wants to hear also of what is no change of the
	// certificate or the bundle.
	any bool
}

// Changed returns a channel of the caller's own; see Source.
func (l *listeners) Changed() <-chan struct{} {
	c, _ := l.listen(false)
	return c
}

func (l *listeners) listen(any bool) (c <-chan struct{}, stop func()) {
	l.lmu.Lock()
	defer l.lmu.Unlock()
	own := make(chan struct{}, 1)
	l.all = append(l.all, listener{own, any})
	return own, func() {
		l.lmu.Lock()
		defer l.lmu.Unlock()
		l.all = slices.DeleteFunc(l.all, func(o listener) bool { return o.c == own })
	}
}

func (l *listeners) wake(changed bool) {
	l.lmu.Lock()
	defer l.lmu.Unlock()
	for _, listener := range l.all {
		if changed || listener.any {
			select {
			case listener.c <- struct{}{}:
			default: // it has yet to look
			}
		}
	}
}
