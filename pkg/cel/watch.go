package cel

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// watchedList and watchedMap count the work of reading a list or a map, however deeply nested,
// and end the evaluation when a limit is exceeded. Library functions get them in the place of
// lists and maps: the functions cannot be interrupted, but their reads of elements can.
type (
	watchedList struct {
		traits.Lister
		*watcher
	}
	watchedMap struct {
		traits.Mapper
		*watcher
	}
)

// watcher counts the work of one traversal.
type watcher struct {
	a *Activation
	// copies is how many copies of a string are made, slots the memory that an element takes.
	copies, slots int64
}

func isAggregate(v ref.Val) bool {
	switch v := v.(type) {
	case *variablesVal:
		return false // never equal to another
	case traits.Lister, traits.Mapper:
		return true
	case *types.Optional:
		return v.HasValue() && isAggregate(v.GetValue())
	}
	return false
}

// watch returns v wrapped so that reading its parts counts work. Scalars stay as they
// are.
func (a *Activation) watch(v ref.Val) ref.Val { return (&watcher{a: a}).watch(v) }

// watchCopies is like watch, for a function that copies what it reads.
func (a *Activation) watchCopies(v ref.Val, copies, slots int64) ref.Val {
	return (&watcher{a: a, copies: copies, slots: slots}).watch(v)
}

// watch counts v and wraps it.
func (w *watcher) watch(v ref.Val) ref.Val {
	if w.slots != 0 {
		w.a.use(w.slots)
	}
	switch v := v.(type) {
	case *watchedList, *watchedMap, *variablesVal:
	case types.String:
		w.text(len(v))
	case types.Bytes:
		w.text(len(v))
	case traits.Lister:
		w.a.chargeWork(1)
		return &watchedList{v, w}
	case traits.Mapper:
		w.a.chargeWork(1)
		return &watchedMap{v, w}
	case *types.Optional:
		if v.HasValue() {
			return types.OptionalOf(w.watch(v.GetValue()))
		}
	case *mutation.JSONPatchVal:
		if v.Val != nil {
			return &mutation.JSONPatchVal{Op: v.Op, Path: v.Path, From: v.From, Val: w.watch(v.Val)}
		}
	default:
		w.a.chargeWork(1)
	}
	return v
}

func (w *watcher) text(size int) {
	w.a.chargeWork(1 + int64(size/workBytes))
	if w.copies != 0 {
		w.a.use(w.copies * int64(size))
	}
}

// Get implements traits.Indexer.
func (l *watchedList) Get(i ref.Val) ref.Val { return l.watch(l.Lister.Get(i)) }

// Iterator implements traits.Iterable.
func (l *watchedList) Iterator() traits.Iterator {
	return &watchedIterator{l.Lister.Iterator(), l.watcher}
}

// Contains implements traits.Container as lists of cel-go do.
func (l *watchedList) Contains(elem ref.Val) ref.Val {
	elem = l.watch(elem)
	for it := l.Iterator(); it.HasNext() == types.True; {
		if elem.Equal(it.Next()) == types.True {
			return types.True
		}
	}
	return types.False
}

// Equal implements ref.Val as lists of cel-go do.
func (l *watchedList) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok || l.Size() != o.Size() {
		return types.False
	}
	size, _ := l.Size().(types.Int)
	var failed ref.Val
	for i := types.IntZero; i < size; i++ {
		switch equal := types.Equal(l.Get(i), o.Get(i)); {
		case equal == types.False:
			return types.False
		case failed == nil && types.IsUnknownOrError(equal):
			failed = equal
		}
	}
	if failed != nil && reflect.TypeOf(l.Lister) != plainList {
		return failed // an error of two concatenated lists
	}
	return types.True
}

// Find implements traits.Mapper.
func (m *watchedMap) Find(key ref.Val) (ref.Val, bool) {
	v, ok := m.Mapper.Find(key)
	if ok {
		v = m.watch(v)
	}
	return v, ok
}

// Get implements traits.Indexer.
func (m *watchedMap) Get(key ref.Val) ref.Val { return m.watch(m.Mapper.Get(key)) }

// Iterator implements traits.Iterable.
func (m *watchedMap) Iterator() traits.Iterator {
	return &watchedIterator{m.Mapper.Iterator(), m.watcher}
}

// Equal implements ref.Val as maps of cel-go do.
func (m *watchedMap) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Mapper)
	if !ok || m.Size() != o.Size() {
		return types.False
	}
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		mine, _ := m.Find(key)
		theirs, found := o.Find(key)
		if !found || types.Equal(mine, theirs) == types.False {
			return types.False
		}
	}
	return types.True
}

type watchedIterator struct {
	traits.Iterator
	*watcher
}

// Next implements traits.Iterator.
func (it *watchedIterator) Next() ref.Val { return it.watch(it.Iterator.Next()) }

// unwatch returns a list that a function made of watched elements, with the original elements.
func unwatch(v ref.Val) ref.Val {
	switch v := v.(type) {
	case *watchedList:
		return v.Lister
	case *watchedMap:
		return v.Mapper
	case traits.Lister:
		elems, ok := v.Value().([]ref.Val)
		if !ok {
			return v
		}
		for i, e := range elems {
			elems[i] = unwatch(e)
		}
	}
	return v
}
