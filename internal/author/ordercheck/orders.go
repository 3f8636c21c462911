package ordercheck

import (
	"cmp"
	"context"
	"encoding/binary"
	"math/big"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Usual is the default limit of orders that Check runs for a request: all orders of seven
// policies.
const Usual = 5040

// maxInvocations bounds the invocations for a request with many policies; leastRuns orders are
// run in any case.
const maxInvocations, leastRuns = 100_000, 100

// A Kind of Difference.
type Kind string

// The kinds.
const (
	// Order: the result depends on the order.
	Order Kind = "order"
	// Again: the result is changed or refused if it is submitted again.
	Again Kind = "update"
	// PingPong: members undo each other's changes each time they run.
	PingPong Kind = "ping-pong"
)

// A Difference is a difference between two results that should be the same. Members are the
// policies that cause it, with their binding and parameter if a policy has several.
type Difference struct {
	Kind    Kind     `json:"kind"`
	Members []string `json:"policies,omitempty"`
	// Other is another order of Members, of an Order.
	Other []string `json:"other,omitempty"`
	// Changes are the differences between the results of Members and Other or, for Again, between
	// the result and the next one; for a PingPong they are the two values of each field.
	Changes []report.Change `json:"-"`
	// Refusals are the reasons why the request is refused in the order of Members and in that of
	// Other or, for Again, as an update; "" if it is not.
	Refusals [2]string `json:"-"`
	// Next says what another update would do, of Again.
	Next string `json:"next,omitempty"`
}

// Result is what Check found.
type Result struct {
	Differences []Difference `json:"findings,omitempty"`
	// Members is the number of invocations for the request, and Touching the number of those that
	// touch others.
	Members  int `json:"policies"`
	Touching int `json:"touching"`
	// Runs is the number of orders that were run, and Orders the number of all orders of
	// invocations that touch each other. Whole: the orders that were not run have the same
	// results.
	Runs   int      `json:"run"`
	Orders *big.Int `json:"of"`
	Whole  bool     `json:"whole"`
}

// checker is one call of Check.
type checker struct {
	ctx     context.Context
	engine  *engine.Engine
	request *mapd.Request
	keys    report.Keys
	limit   int // of runs
	members []*member
	index   map[identity]int
	several map[string]bool           // policies with several members
	reads   map[string][2][]lint.Read // of policies: conditions, mutations

	base  *engine.Decision
	known map[string]*engine.Decision // of orders that were run, by key
	// distinct are the results other than base, as far as they are kept.
	distinct []*engine.Decision
	grown    bool // a run wrote what no run before wrote
}

// Check runs a request in other orders, at most limit of them (0: Usual), and its result
// once more. Its error is that of ctx.
func Check(ctx context.Context, policies *mapd.Policies, request *mapd.Request, limit int) (*Result, error) {
	c := &checker{
		ctx: ctx, request: request, limit: cmp.Or(limit, Usual), index: map[identity]int{}, several: map[string]bool{}, reads: map[string][2][]lint.Read{},
		known: map[string]*engine.Decision{},
	}
	if kind, err := policies.Types().Kind(request.Admission.Kind); err == nil {
		c.keys = report.SchemaKeys(kind)
	}
	c.engine = policies.Engine().With(func(o *engine.Options) { o.Trace = true })
	c.meet()
	if n := len(c.members); n > 0 {
		c.limit = min(c.limit, max(maxInvocations/n, leastRuns))
	}
	out := &Result{Members: len(c.members), Runs: 1, Orders: big.NewInt(1), Whole: true}
	c.permute(out)
	c.converge(out)
	return out, ctx.Err()
}

// meet runs the request as mapd does, and finds the members.
func (c *checker) meet() {
	first := true
	met := c.engine.With(func(o *engine.Options) {
		o.Order = func(list []binding.Invocation) []binding.Invocation {
			if first {
				for i := range list {
					c.add(&list[i])
				}
			}
			first = false
			return list
		}
	})
	c.base = met.Admit(c.ctx, c.request.Admission)
	c.note(c.base)
	for _, m := range c.members {
		if m.shown = m.name.policy; c.several[m.name.policy] {
			m.shown = strings.Join(slices.DeleteFunc([]string{m.name.policy, m.name.binding, m.name.param}, func(s string) bool { return s == "" }), " › ")
		}
	}
}

func (c *checker) add(inv *binding.Invocation) {
	id := identityOf(inv)
	if _, twice := c.index[id]; twice {
		return
	}
	m := &member{name: id, foreign: inv.Kind != c.request.Admission.Kind, writes: map[string]write{}}
	if n := len(c.members); n > 0 && c.members[n-1].name.policy == id.policy {
		c.several[id.policy] = true
	}
	spec := &inv.Policy.Object().Spec
	switch {
	case inv.Err != nil || inv.Policy.Err() != nil:
	case m.foreign:
		m.reads = []lint.Read{{}}
	default:
		known, ok := c.reads[id.policy]
		if !ok {
			known[0], known[1] = lint.Reads(spec)
			if !api.SelectsAll(spec.MatchConstraints.ObjectSelector) {
				known[0] = append(known[0], lint.Read{Path: []string{"metadata", "labels"}})
			}
			c.reads[id.policy] = known
		}
		m.reads, m.later = known[0], known[1]
	}
	c.index[id] = len(c.members)
	c.members = append(c.members, m)
}

// note notes what the members wrote in a run.
func (c *checker) note(d *engine.Decision) {
	for i := range d.Steps {
		s := &d.Steps[i]
		if at, ok := c.index[identity{s.Policy, s.Binding, s.Param}]; ok && s.Stage == engine.PolicyStage {
			c.grown = c.members[at].note(s, c.request.Admission.Object.Object) || c.grown
		}
	}
}

// run runs some members in an order, and no others.
func (c *checker) run(order block) *engine.Decision {
	rank := make([]int, len(c.members))
	for i, m := range order {
		rank[m] = i + 1
	}
	place := func(inv *binding.Invocation) int {
		if at, ok := c.index[identityOf(inv)]; ok {
			return rank[at]
		}
		return len(rank) + 1
	}
	return c.engine.With(func(o *engine.Options) {
		o.Order = func(list []binding.Invocation) []binding.Invocation {
			list = slices.DeleteFunc(list, func(inv binding.Invocation) bool { return place(&inv) == 0 })
			slices.SortStableFunc(list, func(a, b binding.Invocation) int { return place(&a) - place(&b) })
			return list
		}
	}).Admit(c.ctx, c.request.Admission)
}

// among returns the order of all members in which the members of a group exchange their places,
// according to order.
func (c *checker) among(group, order block) block {
	out := make(block, len(c.members))
	for i := range out {
		out[i] = i
	}
	for i, at := range group {
		out[at] = order[i]
	}
	return out
}

func key(order block) string {
	var b []byte
	for _, m := range order {
		b = binary.AppendUvarint(b, uint64(m))
	}
	return string(b)
}

// groups returns the members that touch each other, directly or through others; those
// that touch none are left out.
func (c *checker) groups() (out []block, touching func(a, b int) bool) {
	n := len(c.members)
	table := make([]bool, n*n)
	group := make([]int, n)
	for i := range group {
		group[i] = i
	}
	for i, a := range c.members {
		for j, b := range c.members[:i] {
			if !touch(a, b) {
				continue
			}
			table[i*n+j], table[j*n+i] = true, true
			if from, to := group[i], group[j]; from != to {
				for k := range group {
					if group[k] == from {
						group[k] = to
					}
				}
			}
		}
	}
	for g := range n {
		var list block
		for i := range group {
			if group[i] == g {
				list = append(list, i)
			}
		}
		if len(list) > 1 {
			out = append(out, list)
		}
	}
	slices.SortFunc(out, func(a, b block) int { return a[0] - b[0] })
	return out, func(a, b int) bool { return table[a*n+b] }
}

// permute runs other orders.
func (c *checker) permute(out *Result) {
	for {
		groups, touching := c.groups()
		c.grown = false
		out.Whole, out.Orders, out.Touching = true, big.NewInt(0), 0
		differs := make([][]block, len(groups))
		for i, g := range groups {
			out.Touching += len(g)
			out.Orders.Add(out.Orders, c.orders(g, 0))
			sequences, whole := c.sequences(g, max((c.limit-len(c.known))/(len(groups)-i), 1), touching)
			out.Whole = out.Whole && whole
			for _, s := range sequences[1:] {
				order := c.among(g, s)
				k := key(order)
				d, ok := c.known[k]
				if !ok && (len(c.known) >= c.limit || c.ctx.Err() != nil) {
					out.Whole = false
					break
				}
				if !ok {
					d = c.run(order)
					c.note(d)
					d = c.same(d)
					c.known[k] = d
				}
				if d != c.base {
					differs[i] = append(differs[i], s)
				}
			}
		}
		if c.grown && len(c.known) < c.limit && c.ctx.Err() == nil {
			continue
		}
		out.Whole = out.Whole && !c.grown
		out.Runs = len(c.known) + 1
		for i, g := range groups {
			if len(differs[i]) > 0 {
				out.Differences = append(out.Differences, c.smallest(g, differs[i])...)
			}
		}
		if len(groups) == 0 {
			out.Orders.SetInt64(1)
		}
		return
	}
}

// same returns an equal result that was seen before, if there is one. Up to a number of other
// results are stored, without their steps.
func (c *checker) same(d *engine.Decision) *engine.Decision {
	for _, seen := range append([]*engine.Decision{c.base}, c.distinct...) {
		if !c.differ(seen, d) {
			return seen
		}
	}
	d = &engine.Decision{Object: d.Object, Status: d.Status}
	if len(c.distinct) == maxCompared {
		return c.distinct[0]
	}
	c.distinct = append(c.distinct, d)
	return d
}

// differ reports whether two results differ: one is refused and the other is not, or
// their objects differ.
func (c *checker) differ(a, b *engine.Decision) bool {
	if a.Status != nil || b.Status != nil {
		return (a.Status == nil) != (b.Status == nil)
	}
	if a.Object == nil || b.Object == nil {
		return a.Object != b.Object
	}
	return !tree.Equal(a.Object.Object, b.Object.Object) && !tree.Equal(c.stored(a.Object.Object), c.stored(b.Object.Object))
}

// maxCompared bounds how many results are compared field by field, and maxFound how many
// sets of members are named for a group.
const maxCompared, maxFound = 64, 20

// smallest returns differences of the smallest sets of a group's members that, alone, have
// different results in different orders, in fields that also differ with all of them.
func (c *checker) smallest(g block, differs []block) (out []Difference) {
	denied, fields := false, map[string][]string{}
	for _, other := range c.distinct {
		denied = denied || (other.Status == nil) != (c.base.Status == nil)
		for _, change := range c.changes(c.base, other) {
			fields[change.Path] = fieldsOf(change.Path)
		}
	}
	concerns := func(d Difference) bool {
		return d.Refusals != [2]string{} && denied || slices.ContainsFunc(d.Changes, func(change report.Change) bool {
			for _, field := range fields {
				if within(field, fieldsOf(change.Path)) {
					return true
				}
			}
			return false
		})
	}
	full := func() []Difference {
		return []Difference{c.difference(g, differs[0], c.base, c.known[key(c.among(g, differs[0]))])}
	}
	runs := 0
	any := func(int, int) bool { return true }
	for k := 2; k < len(g); k++ {
		cost := new(big.Int).Binomial(int64(len(g)), int64(k))
		if cost.Mul(cost, new(big.Int).MulRange(1, int64(k))); !cost.IsInt64() || cost.Int64() > int64(c.limit-runs) {
			return c.reduce(g, differs[0])
		}
		for s := range subsetsOf(g, k) {
			sequences, _ := c.sequences(s, c.limit, any)
			runs += len(sequences)
			usual := c.run(s)
			for _, order := range sequences[1:] {
				d := c.run(order)
				if c.ctx.Err() != nil {
					return full()
				}
				if !c.differ(usual, d) {
					continue
				}
				if f := c.difference(s, order, usual, d); concerns(f) {
					out = append(out, f)
					break
				}
			}
			if len(out) == maxFound {
				return out
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return full()
}

// reduce removes members as long as the others still have different results in the usual order
// and in another one.
func (c *checker) reduce(g, other block) []Difference {
	left := slices.Clone(g)
	without := func(order block, m int) block {
		return slices.DeleteFunc(slices.Clone(order), func(x int) bool { return x == m })
	}
	a, b := c.run(left), c.run(other)
	for _, m := range g {
		if len(left) == 2 || c.ctx.Err() != nil {
			break
		}
		x, y := c.run(without(left, m)), c.run(without(other, m))
		if c.differ(x, y) {
			left, other, a, b = without(left, m), without(other, m), x, y
		}
	}
	return []Difference{c.difference(left, other, a, b)}
}

// subsetsOf yields the subsets of k elements.
func subsetsOf(g block, k int) func(yield func(block) bool) {
	return func(yield func(block) bool) {
		var choose func(from int, chosen block) bool
		choose = func(from int, chosen block) bool {
			if len(chosen) == k {
				return yield(slices.Clone(chosen))
			}
			for i := from; i <= len(g)-(k-len(chosen)); i++ {
				if !choose(i+1, append(slices.Clip(chosen), g[i])) {
					return false
				}
			}
			return true
		}
		choose(0, nil)
	}
}

func (c *checker) difference(usual, other block, a, b *engine.Decision) Difference {
	return Difference{Kind: Order, Members: c.shown(usual), Other: c.shown(other), Changes: c.changes(a, b), Refusals: [2]string{refusal(a), refusal(b)}}
}

func (c *checker) shown(list block) (out []string) {
	for _, m := range list {
		out = append(out, c.members[m].shown)
	}
	return out
}

func refusal(d *engine.Decision) string {
	if d.Status == nil {
		return ""
	}
	return d.Status.Message
}

// changes returns the fields in which two results differ.
func (c *checker) changes(a, b *engine.Decision) []report.Change {
	if a.Status != nil || b.Status != nil || a.Object == nil || b.Object == nil {
		return nil
	}
	return c.diff(c.stored(a.Object.Object), c.stored(b.Object.Object))
}

// stored returns an object as a server stores it, because removed fields may get defaults again.
// An object that no server would store is returned unchanged.
func (c *checker) stored(object map[string]any) map[string]any {
	if out, err := c.request.Stored(object); err == nil {
		return out
	}
	return object
}

// diff returns the fields that differ, without the values of Secrets.
func (c *checker) diff(a, b map[string]any) []report.Change {
	kind := c.request.Admission.Kind
	return report.Hide(kind.Group, kind.Kind, report.Diff(a, b, c.keys))
}
