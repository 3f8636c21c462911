package interpret

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

// holds reports whether preconditions hold. It evaluates the conditions of any up to the first
// that holds, and those of all up to the first that does not.
func (s *scope) holds(c *policy.Conditions) (bool, error) {
	if c == nil {
		return true, nil
	}
	anyHolds := c.Any == nil
	for _, one := range c.Any {
		ok, err := s.condition(one)
		if err != nil {
			return false, err
		}
		if ok {
			anyHolds = true
			break
		}
	}
	for _, one := range c.All {
		ok, err := s.condition(one)
		if err != nil || !ok {
			return false, err
		}
	}
	return anyHolds, nil
}

func (s *scope) condition(c policy.Condition) (bool, error) {
	key, err := s.substitute(loose(c.Key))
	if err != nil {
		return false, err
	}
	value, err := s.substitute(loose(c.Value))
	if err != nil {
		return false, err
	}
	switch op := strings.ToLower(c.Operator); op {
	case "equal", "equals":
		return equals(key, value), nil
	case "notequal", "notequals":
		return differ(key, value), nil
	case "in", "notin":
		return memberOnce(op, key, value), nil
	case "anyin", "allin", "anynotin", "allnotin":
		return member(op, key, value), nil
	case "greaterthan", "greaterthanorequals", "lessthan", "lessthanorequals":
		if c.Operator != canonical[op] {
			return false, nil // Kyverno does not apply it in another spelling
		}
		return order(op, key, value), nil
	case "durationgreaterthan", "durationgreaterthanorequals", "durationlessthan", "durationlessthanorequals":
		if c.Operator != canonical[op] {
			return false, nil
		}
		a, ok := seconds(key)
		b, ok2 := seconds(value)
		return ok && ok2 && ordered(strings.TrimPrefix(op, "duration"), float64(a), float64(b)), nil
	}
	return false, fmt.Errorf("the operator %q", c.Operator)
}

// canonical maps operators in lower case to their right spelling: Kyverno accepts operators in
// any case, but applies them only in this one.
var canonical = map[string]string{
	"greaterthan": "GreaterThan", "greaterthanorequals": "GreaterThanOrEquals", "lessthan": "LessThan", "lessthanorequals": "LessThanOrEquals",
	"durationgreaterthan": "DurationGreaterThan", "durationgreaterthanorequals": "DurationGreaterThanOrEquals",
	"durationlessthan": "DurationLessThan", "durationlessthanorequals": "DurationLessThanOrEquals",
}

// number returns v as a float64 if it is a number, as JSON or an expression returns it.
func number(v any) (n float64, ok bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	}
	return 0, false
}

// durations returns both values as durations. ok is false unless one is a text with a duration,
// and the other one too or a number of seconds.
func durations(key, value any) (a, b time.Duration, ok bool) {
	inText := func(v any) (time.Duration, bool) {
		s, ok := v.(string)
		d, err := time.ParseDuration(s)
		return d, ok && err == nil && s != "0"
	}
	a, okA := inText(key)
	b, okB := inText(value)
	if !okA && !okB {
		return 0, 0, false
	}
	if !okA {
		n, ok := number(key)
		if !ok {
			return 0, 0, false
		}
		a = time.Duration(n) * time.Second
	}
	if !okB {
		n, ok := number(value)
		if !ok {
			return 0, 0, false
		}
		b = time.Duration(n) * time.Second
	}
	return a, b, true
}

func seconds(v any) (time.Duration, bool) {
	if s, ok := v.(string); ok {
		d, err := time.ParseDuration(s)
		return d, err == nil
	}
	n, ok := number(v)
	return time.Duration(n) * time.Second, ok
}

func equals(key, value any) bool {
	switch k := key.(type) {
	case bool:
		return value == k
	case string:
		if a, b, ok := durations(k, value); ok {
			return a.Seconds() == b.Seconds()
		}
		v, ok := value.(string)
		if !ok {
			return false
		}
		if q, err := resource.ParseQuantity(k); err == nil {
			other, err := resource.ParseQuantity(v)
			return err == nil && q.Equal(other)
		}
		return like(v, k)
	case map[string]any, []any:
		return reflect.TypeOf(key) == reflect.TypeOf(value) && reflect.DeepEqual(key, value)
	}
	return numbersEqual(key, value)
}

// numbersEqual compares a number with another one, or with a text that contains a number.
func numbersEqual(key, value any) bool {
	k, ok := number(key)
	if !ok {
		return false
	}
	_, floating := key.(float64)
	if s, ok := value.(string); ok {
		if floating {
			n, err := strconv.ParseFloat(s, 64)
			return err == nil && n == k
		}
		n, err := strconv.ParseInt(s, 10, 64)
		return err == nil && float64(n) == k
	}
	v, ok := number(value)
	return ok && v == k
}

// differ returns the opposite of equals, except for a key of an unknown type and for an empty
// value.
func differ(key, value any) bool {
	switch k := key.(type) {
	case nil:
		return false
	case string:
		if _, _, ok := durations(k, value); !ok && value == "" {
			if _, err := resource.ParseQuantity(k); err == nil {
				return !like("", k)
			}
		}
	}
	return !equals(key, value)
}

// member evaluates the operators about lists, such as AnyIn. op is in lower case.
func member(op string, key, value any) bool {
	not := strings.Contains(op, "not")
	switch k := key.(type) {
	case string:
		in, ok := within(k, value)
		return ok && in != not
	case bool, float64, int64, int:
		in, ok := within(fmt.Sprint(k), value)
		return ok && in != not
	case []any:
		keys := make([]string, len(k))
		for i, e := range k {
			keys[i] = fmt.Sprint(e)
		}
		return members(op, keys, value)
	}
	return false
}

// memberOnce evaluates the older operators In and NotIn. op is in lower case.
func memberOnce(op string, key, value any) bool {
	not := op == "notin"
	switch k := key.(type) {
	case string:
		in, ok := withinOnce(k, value)
		return ok && in != not
	case bool, float64, int64, int:
		in, ok := withinOnce(fmt.Sprint(k), value)
		return ok && in != not
	case []any:
		var l []string
		switch v := value.(type) {
		case []any:
			for _, e := range v {
				s, ok := e.(string)
				if !ok {
					return false
				}
				l = append(l, s)
			}
		case string:
			if len(k) == 1 && k[0] == v {
				return true // for In and NotIn alike
			}
			if json.Unmarshal([]byte(v), &l) != nil {
				return false
			}
		default:
			return false
		}
		missing := slices.ContainsFunc(k, func(e any) bool {
			s, ok := e.(string)
			if !ok {
				unknown("the operator %s with a list of what is no text", op)
			}
			return !slices.Contains(l, s)
		})
		return missing == not
	}
	return false
}

// withinOnce is within for the operators In and NotIn.
func withinOnce(key string, value any) (in, ok bool) {
	s, isText := value.(string)
	if !isText || like(s, key) {
		return within(key, value)
	}
	var l []string
	if json.Unmarshal([]byte(s), &l) != nil {
		return false, false
	}
	return slices.Contains(l, key), true
}

// within reports whether key is in value, which may be a list, a text with a list in JSON, a
// range or a pattern. ok is false if value is none of these.
func within(key string, value any) (in, ok bool) {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return likeEither(fmt.Sprint(e), key) }), true
	case string:
		switch {
		case like(v, key):
			return true, true
		case comparisonOf(v) == inRange:
			return fits(key, v), true
		}
		l, ok := listed(v)
		return slices.Contains(l, key), ok
	}
	return false, false
}

// listed returns the list of texts that s contains in JSON, or s itself as the only element.
func listed(s string) (l []string, ok bool) {
	if !json.Valid([]byte(s)) {
		return []string{s}, true
	}
	return l, json.Unmarshal([]byte(s), &l) == nil
}

func members(op string, keys []string, value any) bool {
	decide := func(l []string) bool {
		in := func(k string) bool { return slices.ContainsFunc(l, func(v string) bool { return likeEither(k, v) }) }
		switch op {
		case "anyin":
			return slices.ContainsFunc(keys, in)
		case "allin":
			return !slices.ContainsFunc(keys, func(k string) bool { return !in(k) })
		case "anynotin":
			return slices.ContainsFunc(keys, func(k string) bool { return !in(k) })
		}
		return !slices.ContainsFunc(keys, in)
	}
	switch v := value.(type) {
	case []any:
		l := make([]string, len(v))
		for i, e := range v {
			l[i] = fmt.Sprint(e)
		}
		return decide(l)
	case bool, float64, int64, int:
		if strings.HasPrefix(op, "any") {
			return decide([]string{fmt.Sprint(v)})
		}
		return false
	case string:
		if len(keys) == 1 && keys[0] == v {
			return !strings.Contains(op, "not")
		}
		if comparisonOf(v) == inRange {
			in := func(k string) bool { return fits(k, v) }
			switch op {
			case "anyin":
				return slices.ContainsFunc(keys, in)
			case "allin":
				return !slices.ContainsFunc(keys, func(k string) bool { return !in(k) })
			case "allnotin":
				return !slices.ContainsFunc(keys, in)
			}
			outside := strings.Replace(v, "-", "!-", 1)
			return slices.ContainsFunc(keys, func(k string) bool { return fits(k, outside) })
		}
		l, ok := listed(v)
		return ok && decide(l)
	}
	return false
}

// order evaluates the operators that compare sizes.
func order(op string, key, value any) bool {
	if k, ok := key.(string); ok {
		if a, b, ok := durations(k, value); ok {
			return ordered(op, a.Seconds(), b.Seconds())
		}
		if v, ok := value.(string); ok {
			a, errA := resource.ParseQuantity(k)
			b, errB := resource.ParseQuantity(v)
			if errA == nil && errB == nil {
				return ordered(op, float64(a.Cmp(b)), 0)
			}
		}
		n, err := strconv.ParseFloat(k, 64)
		if err != nil {
			if strings.Count(k, ".") == 2 {
				unknown("the order of versions")
			}
			return false
		}
		key = n
	}
	a, ok := number(key)
	if !ok {
		return false
	}
	if v, ok := value.(string); ok {
		if a, b, ok := durations(key, v); ok {
			return ordered(op, a.Seconds(), b.Seconds())
		}
		n, err := strconv.ParseFloat(v, 64)
		return err == nil && ordered(op, a, n)
	}
	b, ok := number(value)
	return ok && ordered(op, a, b)
}

func ordered(op string, a, b float64) bool {
	if math.IsNaN(a) || math.IsNaN(b) {
		return false
	}
	switch op {
	case "greaterthan":
		return a > b
	case "greaterthanorequals":
		return a >= b
	case "lessthan":
		return a < b
	}
	return a <= b
}
