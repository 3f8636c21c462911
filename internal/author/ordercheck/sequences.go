package ordercheck

import (
	"math/big"
	"math/rand/v2"
	"slices"
)

// block is a list of members: all those of a policy, of one of its bindings, or of one parameter.
// Members are indices in mapd's order.
type block []int

// levels of blocks: policies, bindings, parameters.
const levels = 3

// split divides members into blocks.
func (c *checker) split(list block, level int) (out []block) {
	same := func(a, b identity) bool {
		switch level {
		case 0:
			return a.policy == b.policy
		case 1:
			return a.policy == b.policy && a.binding == b.binding
		}
		return false
	}
	for i, m := range list {
		if i > 0 && same(c.members[list[i-1]].name, c.members[m].name) {
			out[len(out)-1] = append(out[len(out)-1], m)
			continue
		}
		out = append(out, block{m})
	}
	return out
}

// orders returns how many orders of members a server may run.
func (c *checker) orders(list block, level int) *big.Int {
	n := big.NewInt(1)
	if level == levels {
		return n
	}
	blocks := c.split(list, level)
	n.MulRange(1, int64(len(blocks)))
	for _, b := range blocks {
		n.Mul(n, c.orders(b, level+1))
	}
	return n
}

// sequences returns at most limit orders of members, the usual one first. Of orders that differ
// only in members that do not touch each other, it returns one. whole: these are all orders;
// otherwise they are a sample.
func (c *checker) sequences(list block, limit int, touching func(a, b int) bool) (out []block, whole bool) {
	work := 0
	whole = c.each(list, 0, touching, &work, limit, func(s block) bool {
		out = append(out, slices.Clone(s))
		return len(out) <= limit
	})
	if whole {
		return out, true
	}
	return c.sample(list, limit), false
}

// maxWork bounds the search for orders, for each order that is wanted.
const maxWork = 500

// each yields the orders of members. It returns false if it was ended.
func (c *checker) each(list block, level int, touching func(a, b int) bool, work *int, limit int, yield func(block) bool) bool {
	if level == levels {
		return yield(list)
	}
	blocks := c.split(list, level)
	touch := func(a, b block) bool {
		return slices.ContainsFunc(a, func(x int) bool {
			return slices.ContainsFunc(b, func(y int) bool { return touching(x, y) })
		})
	}
	between := make([][]bool, len(blocks))
	for i := range blocks {
		between[i] = make([]bool, len(blocks))
		for j := range i {
			between[i][j] = touch(blocks[i], blocks[j])
			between[j][i] = between[i][j]
		}
	}
	// inner yields the orders of blocks with those within each block.
	var inner func(rest []int, before block) bool
	inner = func(rest []int, before block) bool {
		if len(rest) == 0 {
			return yield(before)
		}
		return c.each(blocks[rest[0]], level+1, touching, work, limit, func(b block) bool {
			return inner(rest[1:], append(slices.Clip(before), b...))
		})
	}
	perm, used := make([]int, 0, len(blocks)), make([]bool, len(blocks))
	var place func() bool
	place = func() bool {
		if *work++; *work > maxWork*(limit+1) {
			return false
		}
		if len(perm) == len(blocks) {
			return inner(perm, nil)
		}
	next:
		for i := range blocks {
			if used[i] {
				continue
			}
			// The order in which i comes earlier, before members that it does not touch, is
			// equivalent and is yielded instead.
			for j := len(perm) - 1; j >= 0 && !between[i][perm[j]]; j-- {
				if perm[j] > i {
					continue next
				}
			}
			perm, used[i] = append(perm, i), true
			ok := place()
			perm, used[i] = perm[:len(perm)-1], false
			if !ok {
				return false
			}
		}
		return true
	}
	return place()
}

// sample returns some orders: the usual one, its reverse, each block first and last, and
// others that look random and are the same each time.
func (c *checker) sample(list block, limit int) (out []block) {
	seen := map[string]bool{}
	add := func(s block) {
		if k := key(s); !seen[k] && len(out) < limit {
			seen[k] = true
			out = append(out, s)
		}
	}
	add(list)
	reverse := slices.Clone(list)
	slices.Reverse(reverse)
	add(reverse)
	policies := c.split(list, 0)
	for i := range policies {
		others := slices.Delete(slices.Clone(policies), i, i+1)
		add(slices.Concat(append([]block{policies[i]}, others...)...))
		add(slices.Concat(append(others, policies[i])...))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range limit {
		add(c.shuffle(list, 0, random))
	}
	return out
}

func (c *checker) shuffle(list block, level int, random *rand.Rand) block {
	if level == levels {
		return list
	}
	blocks := c.split(list, level)
	for i := range blocks {
		blocks[i] = c.shuffle(blocks[i], level+1, random)
	}
	random.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
	return slices.Concat(blocks...)
}
