package layout

// Conditional is `test ? yes : no`. chain, if it is not nil, is what ConditionalChain
// returned for no: one conditional behind the colon of another stands below it, and
// not further in. mark and colon are the two signs.
func Conditional(test, mark, yes, colon, no Doc, chain *Doc) Doc {
	return Group(Nest(test, conditionalRest(mark, yes, colon, no, chain)))
}

// ConditionalChain is the layout of the same conditional behind the colon of another.
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

// Joined is operands with operators between them, each from the same column on:
// conditions, and lists with +.
func Joined(operands, operators []Doc) Doc {
	return Group(Concat(interleave(operands, operators)...))
}

// Sum is Joined with all operands but the first further in.
func Sum(operands, operators []Doc) Doc {
	return Group(operands[0], Nest(interleave(operands, operators)[1:]...))
}

// interleave returns all operands, each with the operator and a break behind it.
func interleave(operands, operators []Doc) []Doc {
	parts := []Doc{operands[0]}
	for i, op := range operators {
		parts = append(parts, Text(" "), op, Line, operands[i+1])
	}
	return parts
}

// Parens is an operand in parentheses, Tight is one that keeps them on its own lines.
func Parens(open, operand, end Doc) Doc {
	return Group(open, Nest(Softline, operand), Softline, end)
}

// Tight is an operand between signs that stand on its own lines: [JSONPatch{…}].
func Tight(open, operand, end Doc) Doc { return Concat(open, operand, end) }

// Enclosed is a list between signs: arguments, elements, fields. commas are as many as
// elements but one.
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

// Macro is a call such as list.all(x, …). begin is the call up to and with the comma behind
// the variables, which stay on its line; each body has a line of its own if they do not fit.
func Macro(receiver, begin Doc, bodies, commas []Doc, end Doc) Doc {
	grouped := make([]Doc, len(bodies))
	for i, b := range bodies {
		grouped[i] = Group(b)
	}
	return Concat(receiver, Group(begin, Nest(Line, list(grouped, commas)), Softline, end))
}

// Index is operand[index].
func Index(operand, open, index, end Doc) Doc {
	return Concat(operand, Group(open, Nest(Softline, index), Softline, end))
}

// Chain is calls of members one behind the other, each on a line of its own if they do not
// fit.
func Chain(receiver Doc, calls []Doc) Doc {
	parts := []Doc{receiver}
	for _, c := range calls {
		parts = append(parts, Nest(Softline, c))
	}
	return Group(parts...)
}
