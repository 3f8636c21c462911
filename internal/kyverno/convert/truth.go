package convert

import (
	"fmt"

	jmespath "github.com/kyverno/go-jmespath"
)

// truth returns the condition that JMESPath takes a value for true: that it is not empty, null or
// false.
func (s *scope) truth(n jmespath.ASTNode) expr {
	switch n.NodeType {
	case jmespath.ASTNotExpression:
		return not(s.truth(n.Children[0]))
	case jmespath.ASTAndExpression:
		return all(s.truth(n.Children[0]), s.truth(n.Children[1]))
	case jmespath.ASTOrExpression:
		return anyOf(s.truth(n.Children[0]), s.truth(n.Children[1]))
	case jmespath.ASTComparator:
		return s.comparison(n)
	}
	v := s.eval(n)
	typ := v.expr.Type
	if v.path != nil {
		typ = s.shape.scalar(v.path.whole())
	}
	switch typ {
	case "bool":
		return s.orElse(v, no)
	case "string":
		return not(equal(s.orElse(v, str("")), str("")))
	case "map":
		if v.path != nil {
			// JMESPath takes an empty object for false.
			if s.notes != nil && !s.shape.neverEmpty(v.path.whole()) {
				s.notes(Differs, finds(show(v.path.whole()), isBlank), fmt.Sprintf("Kyverno takes an empty %s for a missing one", show(v.path.steps)))
			}
			return s.shape.has(*v.path)
		}
	case "list":
		return not(equal(s.orElse(v, list()), list()))
	case "int":
		if v.path != nil {
			return s.shape.has(*v.path) // 0 is not empty
		}
	}
	refuse("a condition of unknown type in JMESPath")
	return no
}

// decides reports whether an expression always returns true or false.
func decides(n jmespath.ASTNode) bool {
	switch n.NodeType {
	case jmespath.ASTNotExpression, jmespath.ASTComparator:
		return true
	case jmespath.ASTAndExpression, jmespath.ASTOrExpression:
		return decides(n.Children[0]) && decides(n.Children[1])
	case jmespath.ASTFunctionExpression:
		switch n.Value {
		case "contains", "starts_with", "ends_with", "regex_match", "pattern_match", "equal_fold":
			return true
		}
	}
	return false
}

// comparison translates a == b and the like, where one side is a literal. A missing value counts
// as null.
func (s *scope) comparison(n jmespath.ASTNode) expr {
	op := fmt.Sprint(n.Value)
	left, right := n.Children[0], n.Children[1]
	if left.NodeType == jmespath.ASTLiteral {
		left, right = right, left
		switch op {
		case "tLT":
			op = "tGT"
		case "tLTE":
			op = "tGTE"
		case "tGT":
			op = "tLT"
		case "tGTE":
			op = "tLTE"
		}
	}
	v := s.eval(left)
	if right.NodeType != jmespath.ASTLiteral {
		other := s.literalText(right)
		if other.Text == "" {
			refuse("a comparison of two values in JMESPath")
		}
		return s.compared(op, v, other)
	}
	if right.Value == nil {
		there := s.exists(v)
		if op == "tEQ" {
			return not(there)
		} else if op == "tNE" {
			return there
		}
		refuse("the order of null in JMESPath")
	}
	return s.compared(op, v, literal(ints(right.Value)))
}

// literalText returns the text of a nested variable, '{{x}}'; the result has no text if n is
// none.
func (s *scope) literalText(n jmespath.ASTNode) expr {
	if name, ok := n.Value.(string); ok && n.NodeType == jmespath.ASTField {
		if _, nested := s.nested[name]; nested {
			outside := *s
			outside.current = nil
			return outside.plain(outside.field(name))
		}
	}
	return expr{}
}

func (s *scope) exists(v value) expr {
	switch {
	case v.path != nil:
		return typedBool(s.shape.has(*v.path))
	case v.optional:
		return call(v.expr, "hasValue", "bool")
	}
	return yes
}

func (s *scope) compared(op string, v value, want expr) expr {
	typ := v.expr.Type
	if v.path != nil {
		typ = s.shape.scalar(v.path.whole())
	}
	sign, ordered := map[string]string{"tLT": "<", "tLTE": "<=", "tGT": ">", "tGTE": ">="}[op]
	if ordered {
		if typ != "int" || want.Type != "int" {
			refuse("the order of what are not known to be integers in JMESPath")
		}
		return all(s.exists(v), relation(s.must(v), sign, want))
	}
	if typ != want.Type || typ != "string" && typ != "int" && typ != "bool" {
		refuse("a comparison of a %s and a %s in JMESPath", typ, want.Type)
	}
	e := s.optionally(v)
	is := equal(e, want)
	switch {
	case s.exists(v).Text == yes.Text:
	case typ == "string" && want.Text != `""`:
		is = equal(s.orElse(v, str("")), want)
	default:
		is = equal(e, fn("optional.of", "", want))
	}
	if op == "tNE" {
		return not(is)
	}
	return is
}

// must returns the value for a place where a condition has made sure that it exists.
func (s *scope) must(v value) expr {
	switch {
	case v.path != nil:
		return s.shape.get(*v.path)
	case v.optional:
		return v.must
	}
	return v.expr
}

func (s *scope) optionally(v value) expr {
	if v.path != nil {
		e, _ := s.shape.read(*v.path)
		return e
	}
	return v.expr
}
