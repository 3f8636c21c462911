package translate

// choice holds the JSONPatch operations of a mutation at one node, by case. The zero value has no
// operations.
type choice struct {
	// test selects yes or no. If test is nil, the operations are ops, each an expression for one
	// JSONPatch, followed by the list many.
	test    *test
	yes, no *choice
	ops     []expr
	many    *expr
}

// test is a condition and its negation, each in its most readable form.
type test struct{ holds, fails expr }

func hasTest(e expr, name string) test {
	h := has(e, name)
	return test{h, not(h)}
}

func typeTest(e expr, typ string) test {
	t := fn("type", e)
	return test{equal(t, ident(typ)), binary("!=", t, ident(typ))}
}

func tested(e expr) test { return test{e, not(e)} }

func (t test) opposite() test { return test{t.fails, t.holds} }

// decide returns a choice between two choices.
func decide(t test, yes, no choice) choice {
	if yes.isNone() && no.isNone() {
		return choice{}
	}
	return choice{test: &t, yes: &yes, no: &no}
}

func operations(ops ...expr) choice { return choice{ops: ops} }

func (c choice) isNone() bool { return c.test == nil && c.many == nil && len(c.ops) == 0 }

// isOne reports whether there is exactly one operation in every case.
func (c choice) isOne() bool {
	if c.test != nil {
		return c.yes.isOne() && c.no.isOne()
	}
	return c.many == nil && len(c.ops) == 1
}

// list returns the operations as a list.
func (c choice) list() expr {
	switch {
	case c.test != nil:
		return c.conditional(choice.list)
	case c.many != nil:
		return *c.many
	}
	return listOf(c.ops...)
}

// one returns the operation of a choice for which isOne holds.
func (c choice) one() expr {
	if c.test != nil {
		return c.conditional(choice.one)
	}
	return c.ops[0]
}

// conditional writes a choice as a chain of conditionals, with the shorter case
// first.
func (c choice) conditional(write func(choice) expr) expr {
	if yes, no := c.yes.weight(), c.no.weight(); yes > no || yes == no && c.yes.test != nil {
		return cond(c.test.fails, write(*c.no), write(*c.yes))
	}
	return cond(c.test.holds, write(*c.yes), write(*c.no))
}

func (c choice) weight() int {
	switch {
	case c.test != nil:
		return 10 + c.yes.weight() + c.no.weight()
	case c.many != nil:
		return 5
	}
	return len(c.ops)
}

// after returns a choice with the operations of lists before those of c.
func (c choice) after(lists ...expr) choice {
	if len(lists) == 0 {
		return c
	}
	if !c.isNone() {
		lists = append(lists, c.list())
	}
	all := chain(lists...)
	return choice{many: &all}
}

// program returns the whole expression of a mutation.
func (c choice) program() expr {
	if c.isNone() {
		// CEL cannot infer the type of an empty list; the unused JSONPatch gives it.
		return cond(ident("false"), listOf(message("JSONPatch")), listOf())
	}
	return c.list()
}

// each returns the operations of c for every element of list for which where holds; a nil where
// holds for all. c refers to the element by x and to its index by i.
func each(list expr, i, x string, where *expr, c choice) choice {
	if c.isNone() {
		return c
	}
	if c.test != nil && where == nil {
		// A list of operations per case is not needed: where leaves out the elements without an
		// operation.
		if c.no.isNone() && c.yes.isOne() {
			where, c = &c.test.holds, *c.yes
		} else if c.yes.isNone() && c.no.isOne() {
			where, c = &c.test.fails, *c.no
		}
	}
	var bodies []expr
	if where != nil {
		bodies = append(bodies, *where)
	}
	if c.isOne() {
		loop := macro(list, "transformList", []string{i, x}, append(bodies, c.one())...)
		return choice{many: &loop}
	}
	loop := call(macro(list, "transformList", []string{i, x}, append(bodies, c.list())...), "flatten")
	return choice{many: &loop}
}
