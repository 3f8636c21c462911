package binding

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// A difference is what has to be taken out of a sorted list and put into it.
type difference[T any] struct{ gone, fresh []T }

// arrange returns list by name, how it differs from known, which is sorted, and a
// name that is there twice, "" if there is none. It costs little more than looking
// at what is different.
func arrange[T comparable](known, list []T, name func(T) string) (sorted []T, d difference[T], twice string) {
	sorted = slices.Clone(list)
	if d, ok := differ(known, sorted, name); ok {
		return sorted, d, ""
	}
	slices.SortStableFunc(sorted, func(a, b T) int { return cmp.Compare(name(a), name(b)) })
	for i := 1; i < len(sorted); i++ {
		if n := name(sorted[i]); n == name(sorted[i-1]) {
			return nil, d, n
		}
	}
	d, _ = differ(known, sorted, name)
	return sorted, d, ""
}

// differ compares two lists by name; ok is false if the second is not sorted, or
// has a name twice. What is known to be sorted is not looked into.
func differ[T comparable](known, list []T, name func(T) string) (d difference[T], ok bool) {
	was := false // the one before is known
	for i, t := range list {
		if len(known) > 0 && known[0] != t {
			for n := name(t); len(known) > 0 && known[0] != t && name(known[0]) <= n; known = known[1:] {
				d.gone = append(d.gone, known[0])
			}
		}
		is := len(known) > 0 && known[0] == t
		if i > 0 && !(is && was) && name(list[i-1]) >= name(t) {
			return difference[T]{}, false
		}
		if was = is; is {
			known = known[1:]
		} else {
			d.fresh = append(d.fresh, t)
		}
	}
	d.gone = append(d.gone, known...)
	return d, true
}

func (d difference[T]) sort(compare func(a, b T) int) {
	slices.SortFunc(d.gone, compare)
	slices.SortFunc(d.fresh, compare)
}

// edit returns the list with what has changed. All are sorted.
func (d difference[T]) edit(list []T, compare func(a, b T) int) []T {
	gone, fresh := d.gone, d.fresh
	if len(gone) == 0 && len(fresh) == 0 {
		return list
	}
	out := make([]T, 0, len(list)-len(gone)+len(fresh))
	upTo := func(t T) {
		i, _ := slices.BinarySearchFunc(list, t, compare)
		out, list = append(out, list[:i]...), list[i:]
	}
	for len(list) > 0 && (len(gone) > 0 || len(fresh) > 0) {
		if len(gone) > 0 && (len(fresh) == 0 || compare(gone[0], fresh[0]) <= 0) {
			upTo(gone[0])
			list, gone = list[1:], gone[1:]
			continue
		}
		upTo(fresh[0])
		out, fresh = append(out, fresh[0]), fresh[1:]
	}
	return append(append(out, list...), fresh...)
}

// search finds a name in a list that is sorted by it.
func search[T any](list []T, n string, name func(T) string) (int, bool) {
	return slices.BinarySearchFunc(list, n, func(t T, n string) int { return cmp.Compare(name(t), n) })
}

// take cuts from a sorted list what comes before a name, which it drops, and what
// has it, which it returns.
func take[T any](list *[]T, n string, name func(T) string) []T {
	from := 0
	// The next one is the one that is most often asked for.
	if len(*list) > 0 && name((*list)[0]) < n {
		from, _ = search(*list, n, name)
	}
	to := from
	for to < len(*list) && name((*list)[to]) == n {
		to++
	}
	found := (*list)[from:to:to]
	*list = (*list)[to:]
	return found
}

// pinned holds candidates by the namespaces in which they can have an effect, in
// shards of which a changed copy can share most.
type pinned [64]map[string][]*candidate

var seed = maphash.MakeSeed()

func shard(name string) int { return int(maphash.String(seed, name) % uint64(len(pinned{}))) }

// in returns those of a namespace, by name.
func (p *pinned) in(namespace string) []*candidate { return p[shard(namespace)][namespace] }

// add puts one behind all others.
func (p *pinned) add(namespace string, c *candidate) {
	m := &p[shard(namespace)]
	if *m == nil {
		*m = map[string][]*candidate{}
	}
	(*m)[namespace] = append((*m)[namespace], c)
}

// insert puts one into its place in a list of its own.
func (p *pinned) insert(namespace string, c *candidate) {
	m := &p[shard(namespace)]
	if *m == nil {
		*m = map[string][]*candidate{}
	}
	(*m)[namespace] = difference[*candidate]{fresh: []*candidate{c}}.edit((*m)[namespace], byOwnName)
}

// remove takes one out, of a list of its own.
func (p *pinned) remove(namespace string, c *candidate) {
	m := p[shard(namespace)]
	if left := (difference[*candidate]{gone: []*candidate{c}}.edit(m[namespace], byOwnName)); len(left) > 0 {
		m[namespace] = left
	} else {
		delete(m, namespace)
	}
}
