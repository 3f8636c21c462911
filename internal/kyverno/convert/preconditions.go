package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

var operationVariable = regexp.MustCompile(`^\{\{\s*request\.operation\s*(\|\|\s*'[A-Z]*'\s*)?\}\}$`)

// operationsOf returns the operations for which a condition on the request's operation holds,
// false if it is about something else.
func operationsOf(c policy.Condition) ([]string, bool) {
	key, _ := c.Key.(string)
	if !operationVariable.MatchString(strings.TrimSpace(key)) {
		return nil, false
	}
	var values []string
	switch v := c.Value.(type) {
	case string:
		values = []string{v}
	case []any:
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, false
			}
			values = append(values, s)
		}
	default:
		return nil, false
	}
	for _, v := range values {
		if strings.ContainsAny(v, "*?{[-") {
			return nil, false
		}
	}
	negative := false
	switch c.Operator {
	case "Equals", "Equal", "In", "AnyIn", "AllIn":
	case "NotEquals", "NotEqual", "NotIn", "AnyNotIn", "AllNotIn":
		negative = true
	default:
		return nil, false
	}
	var out []string
	for _, op := range []string{"CREATE", "UPDATE"} {
		if slices.Contains(values, op) != negative {
			out = append(out, op)
		}
	}
	return out, true
}

// splitOperations takes the conditions on the operation out of preconditions, where they are
// conditions of their own.
func splitOperations(c *policy.Conditions) (rest *policy.Conditions, ops []string) {
	ops = []string{"CREATE", "UPDATE"}
	if c == nil {
		return nil, ops
	}
	rest = &policy.Conditions{Any: c.Any}
	narrow := func(to []string) {
		ops = slices.DeleteFunc(ops, func(o string) bool { return !slices.Contains(to, o) })
	}
	for _, each := range c.All {
		if to, ok := operationsOf(each); ok {
			narrow(to)
		} else {
			rest.All = append(rest.All, each)
		}
	}
	if len(c.Any) == 1 {
		if to, ok := operationsOf(c.Any[0]); ok {
			narrow(to)
			rest.Any = nil
		}
	}
	return rest, ops
}

// operationLate reports whether a condition on the operation stands behind another one.
func operationLate(c *policy.Conditions) bool {
	if c == nil {
		return false
	}
	others := len(c.Any) > 0
	for _, each := range c.All {
		if _, ok := operationsOf(each); !ok {
			others = true
		} else if others {
			return true
		}
	}
	return false
}

// conditions translates preconditions.
func (s *scope) conditions(c *policy.Conditions) []condition {
	if c == nil {
		return nil
	}
	var out []condition
	if len(c.Any) > 0 {
		parts, fails := s.parts(c.Any)
		out = append(out, condition{"any", inOrder(parts, fails, anyOf, func(first, rest expr) expr { return when(first, yes, rest) })})
		if len(c.All) > 0 && slices.Contains(fails, true) {
			refuse("preconditions with any, in which a variable may be missing, and all")
		}
	}
	parts, fails := s.parts(c.All)
	if len(parts) > 0 && slices.Contains(fails[:len(fails)-1], true) {
		// A server takes a condition that does not hold for more than one that fails.
		e := inOrder(parts, fails, all, func(first, rest expr) expr { return when(first, rest, no) })
		return append(out, condition{"preconditions", e})
	}
	for _, p := range parts {
		out = append(out, condition{"precondition", p})
	}
	return slices.DeleteFunc(out, func(c condition) bool { return c.expr.Text == yes.Text })
}

// parts translates conditions, and says which can fail.
func (s *scope) parts(list []policy.Condition) (parts []expr, fails []bool) {
	for _, each := range list {
		before := 0
		if s.fallible != nil {
			before = *s.fallible
		}
		parts = append(parts, s.condition(each))
		fails = append(fails, s.fallible != nil && *s.fallible > before)
	}
	return parts, fails
}

// inOrder joins conditions as Kyverno evaluates them: one after the other, and an error ends it.
// && and || of CEL would pass over the error of one if another decides.
func inOrder(parts []expr, fails []bool, join func(...expr) expr, chain func(first, rest expr) expr) expr {
	for i := range parts[:len(parts)-1] {
		if fails[i] {
			first := join(parts[:i+1]...)
			return chain(first, inOrder(parts[i+1:], fails[i+1:], join, chain))
		}
	}
	return join(parts...)
}

// keysCall finds {{ element.keys(@) }}, with which policies ask for a field.
var keysCall = regexp.MustCompile(`^\{\{\s*(?:element\.keys\(@\)|keys\(element\))\s*\}\}$`)

func (s *scope) condition(c policy.Condition) expr {
	op := c.Operator
	// Which fields an element has.
	if key, ok := c.Key.(string); ok && keysCall.MatchString(key) && op == "AnyIn" {
		if name, ok := c.Value.(string); ok && isField(name) {
			return s.hasField(name)
		}
	}
	if v, ok := c.Value.(string); ok && keysCall.MatchString(v) && op == "AnyIn" {
		if name, ok := c.Key.(string); ok && isField(name) {
			return s.hasField(name)
		}
	}
	key, constant := s.operand(c.Key)
	val, valueConstant := s.operand(c.Value)
	if constant && valueConstant {
		refuse("a precondition that compares two constants")
	}
	switch op {
	case "Equals", "Equal":
		return s.equals(key, val, c)
	case "NotEquals", "NotEqual":
		return not(s.equals(key, val, c))
	case "In", "AnyIn", "AllIn":
		return s.isIn(key, val, constant, valueConstant, c)
	case "NotIn", "AnyNotIn", "AllNotIn":
		return not(s.isIn(key, val, constant, valueConstant, c))
	case "GreaterThan", "GreaterThanOrEquals", "LessThan", "LessThanOrEquals":
		sign := map[string]string{"GreaterThan": ">", "GreaterThanOrEquals": ">=", "LessThan": "<", "LessThanOrEquals": "<="}[op]
		if key.Type != "int" || val.Type != "int" {
			refuse("%s of what are not known to be integers", op)
		}
		return relation(key, sign, val)
	}
	refuse("the operator %q", op)
	return no
}

func (s *scope) hasField(name string) expr {
	v, ok := s.names["element"]
	if !ok || v.path == nil {
		refuse("element outside of a foreach")
	}
	p := v.path.to(name)
	if bad := s.shape.undeclared(p.whole()); bad != "" {
		refuse("there is no field %s", bad)
	}
	return typedBool(s.shape.has(p))
}

// operand translates a side of a condition.
func (s *scope) operand(v any) (e expr, constant bool) {
	if t, ok := v.(string); ok && hasVariable(t) {
		t = strings.TrimSpace(t)
		if m := variable.FindStringSubmatch(t); m != nil && m[0] == t && !hasVariable(m[1]) {
			if v := s.query(m[1]); v.optional && v.expr.Type == "string" {
				// What is missing equals no text but none.
				return call(v.expr, "orValue", "string", str("")), false
			}
		}
		return s.text(t), false
	}
	if l, ok := v.([]any); ok {
		for _, each := range l {
			if t, ok := each.(string); ok && hasVariable(t) {
				refuse("a variable in a list of a precondition")
			}
		}
		e := literal(v)
		e.Type = "list"
		return e, true
	}
	return literal(v), true
}

// comparesOtherwise says why Kyverno does not compare a text as a text.
func comparesOtherwise(text string) string {
	if _, err := resource.ParseQuantity(text); err == nil {
		return fmt.Sprintf("Kyverno compares %q as a quantity", text)
	}
	if _, err := time.ParseDuration(text); err == nil {
		return fmt.Sprintf("Kyverno compares %q as a duration", text)
	}
	return ""
}

func (s *scope) equals(key, val expr, c policy.Condition) expr {
	switch {
	case key.Type == "list" && val.Text == "[]":
		return equal(key, val)
	case key.Type == "string" && val.Type == "string":
		text, ok := c.Value.(string)
		if !ok || hasVariable(text) {
			refuse("%s of two variables", c.Operator)
		}
		if why := comparesOtherwise(text); why != "" {
			refuse("%s", why)
		}
		if k, _ := c.Key.(string); text == "" && strings.Contains(k, `|| ""`) {
			refuse(`|| "" is a variable without a name and never equal to a text`)
		}
		if !strings.ContainsAny(text, "*?") {
			return equal(key, val)
		}
		if strings.IndexAny(text, "*?") == 0 {
			s.note(Differs, fmt.Sprintf("Kyverno does not match a quantity such as 5 with %q", text))
		}
		return glob(key, text)
	case key.Type == val.Type && (key.Type == "int" || key.Type == "bool"):
		return equal(key, val)
	}
	refuse("%s of %s and %s, whose types are not known to be equal", c.Operator, key.Text, val.Text)
	return no
}

func (s *scope) note(v Verdict, text string) {
	if s.notes != nil {
		s.notes(v, text)
	}
}

func (s *scope) isIn(key, val expr, keyConstant, valueConstant bool, c policy.Condition) expr {
	switch {
	case valueConstant && key.Type == "string":
		values, ok := c.Value.([]any)
		if !ok {
			values = []any{c.Value}
		}
		var texts []string
		for _, v := range values {
			t, ok := v.(string)
			if !ok {
				refuse("%s with %v", c.Operator, v)
			}
			texts = append(texts, t)
		}
		if _, single := c.Value.(string); single && strings.ContainsAny(texts[0], "-[{\"") {
			refuse("%s with the text %q, which Kyverno may read as a range or as JSON", c.Operator, texts[0])
		}
		return oneOf(key, texts)
	case keyConstant && val.Type == "list":
		text, ok := c.Key.(string)
		if !ok || strings.ContainsAny(text, "*?") {
			refuse("%s of %v", c.Operator, c.Key)
		}
		return in(key, val)
	case !keyConstant && !valueConstant && key.Type == "string" && val.Type == "list":
		return in(key, val)
	case !valueConstant && val.Type == "string" && key.Type == "string":
		if text, ok := c.Key.(string); keyConstant && (!ok || strings.ContainsAny(text, "*?")) {
			refuse("%s of %v", c.Operator, c.Key)
		}
		if strings.HasPrefix(val.Text, "params.") {
			// People keep lists as JSON in a ConfigMap.
			s.note(Differs, "Kyverno reads the value as a list in JSON, else as a pattern or a range such as 1-5; the policy looks for the text, or for it in quotes")
			return anyOf(equal(val, key), call(val, "contains", "bool", sum(str("\""), key, str("\""))))
		}
		s.note(Differs, "Kyverno takes a value with * or ? for a pattern, one such as 1-5 for a range, and reads JSON; the policy compares texts")
		return equal(key, val)
	}
	refuse("%s of %s and %s", c.Operator, key.Text, val.Text)
	return no
}
