package webhookconfig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/webhook"
)

// An Entry is one webhook entry that policies need. It is immutable.
type Entry struct {
	webhook.ID
	area
}

// Bounds on the entries of a group whose failurePolicy is Fail. A group with
// Ignore has one entry: while mapd is away, it costs time and refuses nothing.
const (
	// maxEntries is how many entries a group has at most. A server looks at each of
	// them for each request.
	maxEntries = 8
	// maxMet is how many entries of a group a request for an object in a Namespace can
	// meet at most. Each one is a call.
	maxMet = 4
	// maxClasses is up to how many different areas Divide looks for the best
	// way to join them.
	maxClasses = 48
)

// Divide divides policies with their bindings over entries. It returns the
// entries in the order in which servers call them: by group, and within a group
// by the name of the first policy. of has the index of the entry of each Reach,
// -1 for a nil Reach. The order of reaches does not matter.
//
// Within a group, areas share an entry if the entry can say their union
// exactly. The other areas of a group with Fail stay apart, so that an outage
// of mapd denies what policies match and nothing else. If there are then more
// entries than a server should look at or a request should meet, Divide joins
// those whose union adds the least.
func Divide(reaches []*Reach) (entries []*Entry, of []int) {
	of = make([]int, len(reaches))
	byName := map[webhook.Group]map[string]*division{}
	parts := make([]*division, len(reaches))
	ordered := map[webhook.Group][]*division{}
	for i, r := range reaches {
		if r == nil {
			of[i] = -1
			continue
		}
		group := byName[r.group]
		if group == nil {
			group = map[string]*division{}
			byName[r.group] = group
		}
		d := group[r.class]
		if d == nil {
			d = &division{area: r.area, classes: []string{r.class}, first: r.policy, free: r.free}
			group[r.class] = d
			ordered[r.group] = append(ordered[r.group], d)
		} else {
			d.first, d.gates = min(d.first, r.policy), bothGates(d.gates, r.gates)
			if q := r.requirement(r.free); q != nil {
				d.more = append(d.more, q.values)
			}
		}
		parts[i] = d
	}
	at := map[*division]int{}
	for _, g := range webhook.Groups() {
		list := ordered[g]
		for _, d := range list {
			d.settle()
		}
		list = joinDivisions(list, g)
		for _, d := range list {
			at[d] = len(entries)
			id := webhook.ID{Group: g}
			if len(list) > 1 {
				// The group's own path is for all of it: see Undivide.
				id.Part = d.part()
			}
			entries = append(entries, &Entry{id, d.area})
		}
	}
	for i, d := range parts {
		if d != nil {
			of[i] = at[d.root()]
		}
	}
	return entries, of
}

// Undivide returns one entry for each group of entries, which have to be in the
// order of Divide. Every release serves the path of such an entry; a replica
// that divides the group runs all of the group's policies there.
func Undivide(entries []*Entry) []*Entry {
	var out []*Entry
	for _, e := range entries {
		whole := &Entry{webhook.ID{Group: e.Group}, e.area}
		if n := len(out); n > 0 && out[n-1].Group == e.Group {
			whole.area = union([]*area{&out[n-1].area, &e.area})
			out[n-1] = whole
		} else {
			out = append(out, whole)
		}
	}
	return out
}

// A division is what becomes an entry.
type division struct {
	area
	classes []string // sorted
	first   string   // the first policy
	free    requirementRef
	more    [][]string // values of the free requirement, of all but the first Reach
	into    *division  // what it was joined to
}

func (d *division) root() *division {
	for d.into != nil {
		d = d.into
	}
	return d
}

// settle adds the values of the free requirement of all Reaches.
func (d *division) settle() {
	if len(d.more) == 0 {
		return
	}
	q := d.requirement(d.free)
	values := q.values
	if q.op == metav1.LabelSelectorOpNotIn {
		for _, more := range d.more {
			values = intersect(values, more)
		}
		if len(values) == 0 {
			d.area = d.without(d.free)
			return
		}
	} else {
		set := make(map[string]bool, len(values))
		all := slices.Clone(values)
		for _, v := range values {
			set[v] = true
		}
		for _, more := range d.more {
			for _, v := range more {
				if !set[v] {
					set[v] = true
					all = append(all, v)
				}
			}
			if len(all) > maxValues {
				d.area = d.without(d.free)
				return
			}
		}
		slices.Sort(all)
		values = all
	}
	if slices.Equal(values, q.values) {
		return
	}
	d.namespaces, d.objects = slices.Clone(d.namespaces), slices.Clone(d.objects)
	d.requirement(d.free).values = values
}

// part returns a name that depends on the classes only.
func (d *division) part() string {
	sum := sha256.Sum256([]byte(strings.Join(d.classes, "\n")))
	return hex.EncodeToString(sum[:])[:webhook.PartLength]
}

// merged returns one division of several.
func merged(list ...*division) *division {
	if len(list) == 1 {
		return list[0]
	}
	d := &division{first: list[0].first}
	areas := make([]*area, len(list))
	for i, m := range list {
		areas[i], m.into = &m.area, d
		d.first, d.classes = min(d.first, m.first), append(d.classes, m.classes...)
	}
	d.area = union(areas)
	slices.Sort(d.classes)
	return d
}

// joinDivisions joins the divisions of one group until there are few enough,
// and returns them in order.
func joinDivisions(list []*division, g webhook.Group) []*division {
	// The result must not depend on the names of the policies.
	slices.SortFunc(list, func(a, b *division) int { return cmp.Compare(a.classes[0], b.classes[0]) })
	most := maxEntries
	if g.FailurePolicy == admissionregistrationv1.Ignore {
		most = 1
	}
	if len(list) > maxClasses {
		list = joinAlike(list)
	}
	var pairs []pair
	for i, a := range list {
		for _, b := range list[i+1:] {
			pairs = append(pairs, newPair(a, b))
		}
	}
	for len(list) > 1 {
		crowded := len(list) > most
		degree := map[*division]int{}
		for _, p := range pairs {
			if p.meet {
				degree[p.a]++
				degree[p.b]++
			}
		}
		best := -1
		for i, p := range pairs {
			allowed := p.lost == 0 || crowded || p.meet && (degree[p.a] >= maxMet || degree[p.b] >= maxMet)
			if allowed && (best < 0 || p.lost < pairs[best].lost) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		p := pairs[best]
		joined := merged(p.a, p.b)
		gone := func(d *division) bool { return d == p.a || d == p.b }
		list = slices.DeleteFunc(list, gone)
		pairs = slices.DeleteFunc(pairs, func(q pair) bool { return gone(q.a) || gone(q.b) })
		for _, d := range list {
			pairs = append(pairs, newPair(d, joined))
		}
		list = append(list, joined)
	}
	slices.SortFunc(list, func(a, b *division) int {
		return cmp.Or(cmp.Compare(a.first, b.first), slices.Compare(a.classes, b.classes))
	})
	return list
}

// pair is two divisions, the loss of joining them, and whether one request can
// meet both.
type pair struct {
	a, b *division
	lost loss
	meet bool
}

func newPair(a, b *division) pair { return pair{a, b, a.loss(&b.area), a.meets(&b.area)} }

// joinAlike reduces the number of divisions until the search for the best way
// to join them is affordable. It joins those that select alike, then those that
// select the same Namespaces, then any.
func joinAlike(list []*division) []*division {
	index := 0
	for _, key := range []func(*division) string{
		func(d *division) string { return keyOf(d.namespaces) + keyOf(d.objects) + strings.Join(d.names, " ") },
		func(d *division) string { return keyOf(d.namespaces) },
		func(*division) string { index++; return strconv.Itoa(index % maxClasses) },
	} {
		if len(list) <= maxClasses {
			break
		}
		at := map[string]int{}
		var alike [][]*division
		for _, d := range list {
			k := key(d)
			i, ok := at[k]
			if !ok {
				i = len(alike)
				at[k] = i
				alike = append(alike, nil)
			}
			alike[i] = append(alike[i], d)
		}
		list = list[:0:0]
		for _, a := range alike {
			list = append(list, merged(a...))
		}
	}
	return list
}

func keyOf(c conjunction) string {
	var b strings.Builder
	for _, r := range c {
		b.WriteString(r.key + " " + string(r.op) + " " + strings.Join(r.values, " ") + "\n")
	}
	return b.String() + "\n"
}
