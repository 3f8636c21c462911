package layout

// Conditional returns `test ? yes : no`. mark and colon are the two signs. If no is another
// conditional, chain is what ConditionalChain returned for it, which is put below this one
// without more indentation; else chain is nil.
func Conditional(test, mark, yes, colon, no Doc, chain *Doc) Doc {
	return Group(Nest(test, conditionalRest(mark, yes, colon, no, chain)))
}

// ConditionalChain returns the layout of a conditional after the colon of another one.
func ConditionalChain(test, mark, yes, colon, no Doc, chain *Doc) Doc {
	return Concat(Nest(test), conditionalRest(mark, yes, colon, no, chain))
}

func conditionalRest(mark, yes, colon, no Doc, chain *Doc) Doc {
	rest := Concat(Line, mark, Text(" "), Nest(yes), Line, colon, Text(" "))
	if chain != nil {
		return Concat(rest, *chain)
	}
	return Concat(rest, Nest(no))
}

// Joined returns operands with operators between them, all starting at the same column:
// conditions, and lists with +.
func Joined(operands, operators []Doc) Doc {
	return Group(Concat(interleave(operands, operators)...))
}

// Sum returns Joined with all operands but the first indented.
func Sum(operands, operators []Doc) Doc {
	return Group(operands[0], Nest(interleave(operands, operators)[1:]...))
}

// interleave returns all operands, each followed by its operator and a break.
func interleave(operands, operators []Doc) []Doc {
	parts := []Doc{operands[0]}
	for i, op := range operators {
		parts = append(parts, Text(" "), op, Line, operands[i+1])
	}
	return parts
}

// Parens returns an operand in parentheses.
func Parens(open, operand, end Doc) Doc {
	return Group(open, Nest(Softline, operand), Softline, end)
}

// Tight returns an operand between signs without breaks next to them: [JSONPatch{…}].
func Tight(open, operand, end Doc) Doc { return Concat(open, operand, end) }

// Enclosed returns a list between signs: arguments, elements, fields. There must be one comma
// less than elements.
func Enclosed(open Doc, elements, commas []Doc, end Doc) Doc {
	if len(elements) == 0 {
		return Concat(open, end)
	}
	return Group(open, Nest(Softline, list(elements, commas)), Softline, end)
}

func list(elements, commas []Doc) Doc {
	parts := []Doc{elements[0]}
	for i, c := range commas {
		parts = append(parts, c, Line, elements[i+1])
	}
	return Concat(parts...)
}

// Macro returns a call such as list.all(x, …). begin is the call up to the comma after the
// variables, which stay on its line; each body has a line of its own if they do not fit.
func Macro(receiver, begin Doc, bodies, commas []Doc, end Doc) Doc {
	grouped := make([]Doc, len(bodies))
	for i, b := range bodies {
		grouped[i] = Group(b)
	}
	return Concat(receiver, Group(begin, Nest(Line, list(grouped, commas)), Softline, end))
}

// Index returns operand[index].
func Index(operand, open, index, end Doc) Doc {
	return Concat(operand, Group(open, Nest(Softline, index), Softline, end))
}

// Chain returns a chain of member calls, each on a line of its own if they do not fit.
func Chain(receiver Doc, calls []Doc) Doc {
	parts := []Doc{receiver}
	for _, c := range calls {
		parts = append(parts, Nest(Softline, c))
	}
	return Group(parts...)
}
