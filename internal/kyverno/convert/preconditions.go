package convert

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

var operationVariable = regexp.MustCompile(`^\{\{\s*request\.operation\s*(\|\|\s*'[A-Z]*'\s*)?\}\}$`)

// operationsOf returns the operations for which a condition on the request's operation holds;
// false if the condition is about something else.
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

// splitOperations removes the conditions on the operation from preconditions, and returns the
// operations that they select.
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

// operationLate reports whether a condition on the operation comes after another condition.
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
		// For an API server, a condition that is false counts even if another one fails; Kyverno
		// stops at the first error.
		e := inOrder(parts, fails, all, func(first, rest expr) expr { return when(first, rest, no) })
		return append(out, condition{"preconditions", e})
	}
	for _, p := range parts {
		out = append(out, condition{"precondition", p})
	}
	return slices.DeleteFunc(out, func(c condition) bool { return c.expr.Text == yes.Text })
}

// parts translates conditions, and reports which of them can fail.
func (s *scope) parts(list []policy.Condition) (parts []expr, fails []bool) {
	for _, each := range list {
		before := 0
		if s.fallible != nil {
			before = len(*s.fallible)
		}
		parts = append(parts, s.condition(each))
		fails = append(fails, s.fallible != nil && len(*s.fallible) > before)
	}
	return parts, fails
}

// inOrder joins conditions in the order in which Kyverno evaluates them, where the first error
// ends the evaluation. CEL's && and || would ignore the error of one condition if another
// decides.
func inOrder(parts []expr, fails []bool, join func(...expr) expr, chain func(first, rest expr) expr) expr {
	for i := range parts[:len(parts)-1] {
		if fails[i] {
			first := join(parts[:i+1]...)
			return chain(first, inOrder(parts[i+1:], fails[i+1:], join, chain))
		}
	}
	return join(parts...)
}

// keysCall finds {{ element.keys(@) }}, with which policies test whether a field exists.
var keysCall = regexp.MustCompile(`^\{\{\s*(?:element\.keys\(@\)|keys\(element\))\s*\}\}$`)

func (s *scope) condition(c policy.Condition) expr {
	op := c.Operator
	// A test whether an element has one of some fields.
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
	key, val := s.operand(c.Key), s.operand(c.Value)
	if key.constant && val.constant {
		refuse("a precondition that compares two constants")
	}
	switch op {
	case "Equals", "Equal":
		return s.equals(key, val, c)
	case "NotEquals", "NotEqual":
		return not(s.equals(key, val, c))
	case "In", "NotIn", "AnyIn", "AllIn", "AnyNotIn", "AllNotIn":
		if key.Type == "list" && (!key.constant || val.Type == "list" && !val.constant) {
			return s.setIn(key, val, c)
		}
		e := s.isIn(key, val, c)
		if strings.HasSuffix(op, "NotIn") {
			return not(e)
		}
		return e
	case "GreaterThan", "GreaterThanOrEquals", "LessThan", "LessThanOrEquals":
		return s.ordered(key, val, op)
	case "DurationGreaterThan", "DurationGreaterThanOrEquals", "DurationLessThan", "DurationLessThanOrEquals":
		return s.durations(key, val, strings.TrimPrefix(op, "Duration"))
	}
	refuse("the operator %q", op)
	return no
}

var signs = map[string]string{"GreaterThan": ">", "GreaterThanOrEquals": ">=", "LessThan": "<", "LessThanOrEquals": "<="}

// mirrored maps operators to those that have the same meaning if the sides are exchanged.
var mirrored = map[string]string{"GreaterThan": "LessThan", "GreaterThanOrEquals": "LessThanOrEquals", "LessThan": "GreaterThan", "LessThanOrEquals": "GreaterThanOrEquals"}

// ordered compares two values by size: as durations if one side is a duration, otherwise as
// quantities or numbers.
func (s *scope) ordered(key, val operand, op string) expr {
	if key.constant {
		key, val, op = val, key, mirrored[op]
	}
	sign := signs[op]
	text, _ := val.value.(string)
	number := func(e expr) bool { return e.Type == "int" || e.Type == "number" }
	switch {
	case number(key.expr) && number(val.expr):
		return relation(key.expr, sign, val.expr)
	case !val.constant || val.Type != "string":
	case number(key.expr):
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return relation(key.expr, sign, literal(n))
		}
	case key.Type == "string" || key.Type == "untyped":
		if d, err := time.ParseDuration(text); err == nil && text != "0" && d%time.Second == 0 && !key.quantity {
			return s.durations(key, val, op)
		}
		if _, err := resource.ParseQuantity(text); err == nil {
			if !key.quantity {
				s.note(Differs, decidesBy(key.at, isDuration), "Kyverno compares what it can read as durations, such as 10m, as such; the policy compares quantities")
			}
			k := key.expr
			if key.Type == "untyped" && !key.quantity {
				k = fn("string", "string", k)
			}
			compared := relation(call(fn("quantity", "", k), "compareTo", "int", fn("quantity", "", str(text))), sign, atom("0", "int"))
			if key.quantity && key.sure {
				return compared
			}
			return all(fn("isQuantity", "bool", k), compared)
		}
	}
	if key.Type == "string" && val.constant && val.Type == "int" {
		s.note(Differs, decidesBy(key.at, isSize), "Kyverno also compares durations such as 1h, with seconds, and numbers such as 1e3; the policy whole numbers")
		return all(call(key.expr, "matches", "bool", str(`^-?[0-9]{1,18}$`)), relation(fn("int", "int", key.expr), sign, val.expr))
	}
	refuse("%s of what are not known to be numbers, quantities or durations", op)
	return no
}

// durations compares a text with a duration. The condition is false if the text is no duration.
func (s *scope) durations(key, val operand, op string) expr {
	if key.constant {
		key, val, op = val, key, mirrored[op]
	}
	text, _ := val.value.(string)
	if n, ok := val.value.(int64); ok {
		text = fmt.Sprintf("%ds", n)
	}
	if _, err := time.ParseDuration(text); err != nil || !val.constant || key.Type != "string" {
		refuse("%s of what are not known to be durations", op)
	}
	s.note(Differs, decidesBy(key.at, isNumber), "Kyverno takes a number for seconds; the policy compares only durations such as 90s")
	k := key.expr
	is := call(k, "matches", "bool", str(`^[-+]?([0-9]+(\.[0-9]*)?(ns|us|ms|s|m|h))+$`))
	return all(is, relation(fn("duration", "", k), signs[op], fn("duration", "", str(text))))
}

// operand is a side of a condition.
type operand struct {
	expr
	constant bool
	value    any    // of a constant
	elem     string // the type of the elements of a list
	quantity bool   // a quantity of the schema
	sure     bool   // it has no default, or one that is a quantity
	at       string // the field that it reads, as show prints it; "" if not known
}

// operand translates a side of a condition.
func (s *scope) operand(v any) operand {
	if t, ok := v.(string); ok && hasVariable(t) {
		t = s.unnest(strings.TrimSpace(t))
		if m := variable.FindStringSubmatch(t); m != nil && m[0] == t {
			v := s.query(m[1])
			if v.optional && v.expr.Type == "string" && v.path == nil {
				// A missing value equals only the empty text.
				return operand{expr: call(v.expr, "orValue", "string", str(""))}
			}
			at := ""
			if v.path != nil {
				at = show(v.path.whole())
			}
			return operand{at: at, expr: s.plain(v), elem: s.elemOf(v), quantity: s.quantity(v.path) || v.quantity, sure: v.path != nil || v.sure}
		}
		return operand{expr: s.text(t)}
	}
	if l, ok := v.([]any); ok {
		if slices.ContainsFunc(l, mentionsVariable) {
			texts := make([]expr, len(l))
			for i, each := range l {
				t, _ := each.(string)
				if texts[i] = s.text(t); texts[i].Type != "string" {
					refuse("a list in a precondition of what is not known to be texts")
				}
				texts[i] = texts[i].As(typeInCEL(texts[i]))
			}
			return operand{expr: list(texts...), elem: "string"}
		}
		out := operand{expr: literal(v).As("list"), constant: true, value: v, elem: "string"}
		return out
	}
	return operand{expr: literal(v), constant: true, value: v}
}

// setIn compares a list with values, one element at a time.
func (s *scope) setIn(key, val operand, c policy.Condition) expr {
	x := atom(elementOf(sum(key.expr, val.expr)), key.elem)
	if key.constant {
		x = atom(elementOf(val.expr), "string")
	}
	var is expr
	var only []string // the text to which the elements are compared, if it is only one and has no wildcards
	switch {
	case key.elem != "string" && key.elem != "int":
		refuse("%s of a list of what is not known to be texts", c.Operator)
	case val.constant:
		values, ok := val.value.([]any)
		if text, single := val.value.(string); single {
			if strings.HasSuffix(c.Operator, "In") && (c.Operator == "In" || c.Operator == "NotIn") || looksOtherwise(text) {
				refuse("%s of a list and the text %q, which Kyverno may read as a range or as JSON", c.Operator, text)
			}
			values, ok = []any{text}, true
		}
		if !ok {
			refuse("%s of a list and %v", c.Operator, val.value)
		}
		var texts []string
		for _, v := range values {
			switch v.(type) {
			case string, int64, bool:
				texts = append(texts, fmt.Sprint(v))
			default:
				refuse("%s with %v", c.Operator, v)
			}
		}
		switch each := x; {
		case key.elem == "int":
			is = oneOf(fn("string", "string", each), texts)
		case c.Operator == "In" || c.Operator == "NotIn": // these operators know no patterns
			is = celgen.Among(each, texts)
		default:
			is = oneOf(each, texts)
			if len(texts) == 1 && !strings.ContainsAny(texts[0], "*?") {
				only = texts
			}
		}
	case val.Type == "list" && val.elem == key.elem:
		if key.constant && strings.ContainsAny(fmt.Sprint(key.value), "*?") {
			refuse("%s of a pattern and a list of the object", c.Operator)
		}
		is = in(x, val.expr)
	default:
		refuse("%s of %s and %s", c.Operator, key.Text, val.Text)
	}
	switch c.Operator {
	case "AnyIn":
		if only != nil {
			return in(str(only[0]), key.expr)
		}
		return call(key.expr, "exists", "bool", x, is)
	case "AllNotIn":
		if only != nil {
			return not(in(str(only[0]), key.expr))
		}
		return not(call(key.expr, "exists", "bool", x, is))
	case "AnyNotIn", "NotIn":
		return call(key.expr, "exists", "bool", x, not(is))
	}
	return call(key.expr, "all", "bool", x, is)
}

var rangePattern = regexp.MustCompile(`^[-+]?\d+(\.\d+)?[A-Za-z]*!?-[-+]?\d+(\.\d+)?[A-Za-z]*$`)

// looksOtherwise reports whether Kyverno takes a text for a range or for JSON.
func looksOtherwise(text string) bool {
	return rangePattern.MatchString(text) || json.Valid([]byte(text))
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

// comparesOtherwise returns the reason why Kyverno does not compare a text as plain text.
func comparesOtherwise(text string) string {
	if _, err := resource.ParseQuantity(text); err == nil {
		return fmt.Sprintf("Kyverno compares %q as a quantity", text)
	}
	if _, err := time.ParseDuration(text); err == nil {
		return fmt.Sprintf("Kyverno compares %q as a duration", text)
	}
	return ""
}

func (s *scope) equals(key, val operand, c policy.Condition) expr {
	if key.constant {
		key, val = val, key
		if text, ok := val.value.(string); ok && strings.ContainsAny(text, "*?") {
			refuse("%s of the pattern %q as a key", c.Operator, text)
		}
	}
	text, isText := val.value.(string)
	switch {
	case key.Type == "list" && val.Text == "[]":
		return equal(key.expr, val.expr)
	case key.Type == "list" && val.Type == "list" && val.constant && key.elem == "string":
		return equal(key.expr, literal(val.value))
	case key.Type == "string" && val.Type == "string" && !val.constant:
		s.note(Differs, decidesBy(val.at, isRead), "Kyverno takes a value with * or ? for a pattern, and compares quantities and durations as such; the policy compares texts")
		return equal(key.expr, val.expr)
	case key.quantity && isText && isQuantity(str(text)):
		return all(fn("isQuantity", "bool", key.expr), equal(call(fn("quantity", "", key.expr), "compareTo", "int", fn("quantity", "", str(text))), atom("0", "int")))
	case key.Type == "int" && isText:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return equal(key.expr, literal(n))
		}
	case key.Type == "bool" && isText:
		refuseFor("write the value without quotes", "%s of a boolean and the text %q, which are never equal", c.Operator, text)
	case key.Type == "string" && isText:
		if k, _ := c.Key.(string); text == "" && strings.Contains(k, `|| ""`) {
			refuse(`|| "" is a variable without a name and never equal to a text`)
		}
		if !strings.ContainsAny(text, "*?") {
			if why := comparesOtherwise(text); why != "" {
				s.note(Differs, decidesBy(key.at, isSize), why+", so that another text may be equal; the policy compares texts")
			}
			return equal(key.expr, val.expr)
		}
		if strings.IndexAny(text, "*?") == 0 {
			s.note(Differs, decidesBy(key.at, isSize), fmt.Sprintf("Kyverno does not match a quantity such as 5 with %q", text))
		}
		return glob(key.expr, text)
	case key.Type == val.Type && (key.Type == "int" || key.Type == "bool"):
		return equal(key.expr, val.expr)
	}
	refuse("%s of %s and %s, whose types are not known to be equal", c.Operator, key.Text, val.Text)
	return no
}

func (s *scope) note(v Verdict, e effect, text string) {
	if s.notes != nil {
		s.notes(v, e, text)
	}
}

func (s *scope) isIn(key, val operand, c policy.Condition) expr {
	pattern := func(v any) bool { return strings.ContainsAny(fmt.Sprint(v), "*?") }
	switch {
	case val.constant && (key.Type == "string" || key.Type == "int" || key.Type == "bool"):
		values, ok := val.value.([]any)
		if !ok {
			values = []any{val.value}
		}
		var texts []string
		for _, v := range values {
			switch v.(type) {
			case string, int64, bool:
				texts = append(texts, fmt.Sprint(v))
			default:
				refuse("%s with %v", c.Operator, v)
			}
		}
		if _, single := val.value.(string); single && looksOtherwise(texts[0]) {
			refuse("%s with the text %q, which Kyverno reads as a range or as JSON", c.Operator, texts[0])
		} else if !single && !ok {
			refuse("%s with %v", c.Operator, val.value)
		}
		k := key.expr
		if key.Type != "string" {
			k = fn("string", "string", k)
		}
		return oneOf(k, texts)
	case val.Type == "list" && (key.Type == "string" || key.Type == "int" && key.constant):
		if key.constant && pattern(key.value) {
			text, ok := key.value.(string)
			if !ok || val.elem != "string" {
				refuse("%s of %v", c.Operator, key.value)
			}
			x := atom(elementOf(val.expr), "string")
			return call(val.expr, "exists", "bool", x, glob(x, text))
		}
		if key.Type == "int" && val.elem == "string" {
			return in(str(key.Text), val.expr)
		}
		return in(key.expr, val.expr)
	case !val.constant && val.Type == "string" && key.Type == "string":
		if key.constant && pattern(key.value) {
			refuse("%s of %v", c.Operator, key.value)
		}
		if strings.HasPrefix(val.Text, "params.") {
			// People keep lists as JSON texts in ConfigMaps.
			s.note(Differs, decidesBy("params.", isRead), "Kyverno reads the value as a list in JSON, else as a pattern or a range such as 1-5; the policy looks for the text, or for it in quotes")
			return anyOf(equal(val.expr, key.expr), call(val.expr, "contains", "bool", sum(str("\""), key.expr, str("\""))))
		}
		s.note(Differs, decidesBy(val.at, isRead), "Kyverno takes a value with * or ? for a pattern, one such as 1-5 for a range, and reads JSON; the policy compares texts")
		return equal(key.expr, val.expr)
	}
	refuse("%s of %s and %s", c.Operator, key.Text, val.Text)
	return no
}
