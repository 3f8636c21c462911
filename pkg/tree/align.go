package tree

import "slices"

// identities are the fields that may identify an object in a list, the best
// first. They are the map keys of the lists in
// Kubernetes' own types. A wrong guess is harmless: alignment only decides how
// long a patch is, not whether it is right.
var identities = []string{
	"name", "key", "type", "ip", "mountPath", "devicePath", "containerPort", "port", "topologyKey", "uid",
}

// maxCells bounds the table that lists without an identity are aligned with.
// Beyond it (256 changed elements against 256) their elements are paired by
// position, which makes a longer patch but takes no square time.
const maxCells = 1 << 16

// align decides for each element of b which element of a it comes from, -1 for
// a new one. The indices that are not -1 increase: an element that moved is
// removed and added. It returns the field that identifies the elements as
// well, "" if there is none.
func align(a, b []any) (from []int, id string) {
	from = make([]int, len(b))
	for j := range from {
		from[j] = -1
	}
	if len(a) == 0 || len(b) == 0 {
		return from, ""
	}
	id = identityOf(a, b)
	switch {
	case id != "":
		alignByIdentity(a, b, id, from)
	case len(a) == 1 && len(b) == 1:
	case len(a)*len(b) <= maxCells:
		alignByEquality(a, b, from)
	}
	// Unaligned elements between two aligned ones are paired by position as far as possible:
	// replacing one in place is one operation, remove and add are two.
	i := 0
	for j := 0; j < len(b); {
		if from[j] >= 0 {
			i = from[j] + 1
			j++
			continue
		}
		end, limit := j, len(a)
		for end < len(b) && from[end] < 0 {
			end++
		}
		if end < len(b) {
			limit = from[end]
		}
		for ; j < end && i < limit; i, j = i+1, j+1 {
			from[j] = i
		}
		j = end
	}
	return from, id
}

// identity returns the value of an object's field if it can identify the object, else nil.
func identity(v any, field string) any {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	switch id := m[field].(type) {
	case string, int64:
		return id
	}
	return nil
}

// identityOf returns the first of the identities that every element of both
// lists has and that is unique in each, "" if there is none.
func identityOf(a, b []any) string {
	if _, ok := a[0].(map[string]any); !ok {
		return ""
	}
	seen := make(map[any]bool, max(len(a), len(b)))
	unique := func(list []any, field string) bool {
		clear(seen)
		for _, v := range list {
			id := identity(v, field)
			if id == nil || seen[id] {
				return false
			}
			seen[id] = true
		}
		return true
	}
	for _, field := range identities {
		if unique(a, field) && unique(b, field) {
			return field
		}
	}
	return ""
}

// alignByIdentity keeps the longest run of common elements whose order did not
// change (a longest increasing subsequence, by patience sorting).
func alignByIdentity(a, b []any, id string, from []int) {
	at := make(map[any]int, len(a))
	for i, v := range a {
		at[identity(v, id)] = i
	}
	var tails []int // tails[k]: index in b that ends the best run of length k+1
	where := make([]int, len(b))
	prev := make([]int, len(b))
	for j, v := range b {
		i, ok := at[identity(v, id)]
		if !ok {
			continue
		}
		where[j] = i
		k, _ := slices.BinarySearchFunc(tails, i, func(t, i int) int { return where[t] - i })
		prev[j] = -1
		if k > 0 {
			prev[j] = tails[k-1]
		}
		if k == len(tails) {
			tails = append(tails, j)
		} else {
			tails[k] = j
		}
	}
	if len(tails) == 0 {
		return
	}
	for j := tails[len(tails)-1]; j >= 0; j = prev[j] {
		from[j] = where[j]
	}
}

// alignByEquality keeps a longest common subsequence of equal elements.
func alignByEquality(a, b []any, from []int) {
	width := len(b) + 1
	best := make([]uint32, (len(a)+1)*width) // best[i][j]: length for a[i:], b[j:]
	equal := make([]bool, len(a)*len(b))
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if Equal(a[i], b[j]) {
				equal[i*len(b)+j] = true
				best[i*width+j] = best[(i+1)*width+j+1] + 1
			} else {
				best[i*width+j] = max(best[(i+1)*width+j], best[i*width+j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case equal[i*len(b)+j]:
			from[j] = i
			i, j = i+1, j+1
		case best[(i+1)*width+j] >= best[i*width+j+1]:
			i++
		default:
			j++
		}
	}
}
