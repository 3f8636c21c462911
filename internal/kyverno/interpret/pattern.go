package interpret

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// comparison is the operator at the beginning of a text pattern; "" stands for equality.
type comparison string

const (
	equal      comparison = ""
	atLeast    comparison = ">="
	atMost     comparison = "<="
	more       comparison = ">"
	less       comparison = "<"
	notEqual   comparison = "!"
	inRange    comparison = "-"
	notInRange comparison = "!-"
)

const bound = `[-|\+]?\d+(?:\.\d+)?[A-Za-z]*`

var (
	inside  = regexp.MustCompile(`^(` + bound + `)-(` + bound + `)$`)
	outside = regexp.MustCompile(`^(` + bound + `)!-(` + bound + `)$`)
)

// comparisonOf returns the operator of a text pattern.
func comparisonOf(pattern string) comparison {
	if len(pattern) < 2 {
		return equal
	}
	for _, c := range []comparison{atLeast, atMost, more, less, notEqual} {
		if strings.HasPrefix(pattern, string(c)) {
			return c
		}
	}
	switch {
	case outside.MatchString(pattern):
		return notInRange
	case inside.MatchString(pattern):
		return inRange
	}
	return equal
}

// fits reports whether a value matches a pattern that is not a list.
func fits(value, pattern any) bool {
	switch p := pattern.(type) {
	case bool:
		v, ok := value.(bool)
		return ok && v == p
	case int64:
		switch v := value.(type) {
		case int64:
			return v == p
		case float64:
			return v == math.Trunc(v) && int64(v) == p
		case string:
			n, err := strconv.ParseInt(v, 10, 64)
			return err == nil && n == p
		}
		return false
	case float64:
		switch v := value.(type) {
		case int64:
			return p == math.Trunc(p) && int64(p) == v
		case float64:
			return v == p
		case string:
			n, err := strconv.ParseFloat(v, 64)
			return err == nil && n == p
		}
		return false
	case nil:
		switch v := value.(type) {
		case nil:
			return true
		case float64:
			return v == 0
		case int64:
			return v == 0
		case string:
			return v == ""
		case bool:
			return !v
		}
		return false
	case map[string]any:
		_, ok := value.(map[string]any)
		return ok
	case string:
		return fitsText(value, p)
	}
	return false
}

// fitsText reports whether a value matches a text pattern: | separates alternatives, and & joins
// patterns that all have to match.
func fitsText(value any, pattern string) bool {
	if s, ok := value.(string); ok && s == pattern {
		return true
	}
	for alternative := range strings.SplitSeq(pattern, "|") {
		all := true
		for part := range strings.SplitSeq(strings.Trim(alternative, " "), "&") {
			all = all && fitsPart(value, strings.Trim(part, " "))
		}
		if all {
			return true
		}
	}
	return false
}

func fitsPart(value any, pattern string) bool {
	c := comparisonOf(pattern)
	switch c {
	case inRange:
		m := inside.FindStringSubmatch(pattern)
		return fitsPart(value, ">= "+m[1]) && fitsPart(value, "<= "+m[2])
	case notInRange:
		m := outside.FindStringSubmatch(pattern)
		return fitsPart(value, "< "+m[1]) || fitsPart(value, "> "+m[2])
	}
	pattern = strings.TrimSpace(pattern[len(c):])
	if text, ok := numeral(value); ok {
		if p, err := time.ParseDuration(pattern); err == nil {
			if v, err := time.ParseDuration(text); err == nil {
				return compared(c, int(min(1, max(-1, v-p))))
			}
		}
		if p, err := resource.ParseQuantity(pattern); err == nil {
			if v, err := resource.ParseQuantity(text); err == nil {
				return compared(c, v.Cmp(p))
			}
		}
	}
	if c != equal && c != notEqual {
		return false
	}
	var text string
	switch v := value.(type) {
	case float64:
		text = strconv.FormatFloat(v, 'E', -1, 64)
	case int64:
		text = strconv.FormatInt(v, 10)
	case string:
		text = v
	case bool:
		text = strconv.FormatBool(v)
	default:
		return false
	}
	return like(pattern, text) == (c == equal)
}

// numeral returns a value as a text that can be parsed as a duration or quantity.
func numeral(value any) (string, bool) {
	switch v := value.(type) {
	case nil:
		return "0", true
	case string:
		return v, true
	case float64:
		return fmt.Sprintf("%f", v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	}
	return "", false
}

func compared(c comparison, sign int) bool {
	switch c {
	case equal:
		return sign == 0
	case notEqual:
		return sign != 0
	case more:
		return sign > 0
	case less:
		return sign < 0
	case atLeast:
		return sign >= 0
	}
	return sign <= 0
}

// outcome is the result of comparing a value with a pattern. If a condition does not hold, the
// element is skipped; that is a failure only if no other element matches.
type outcome int

const (
	fit outcome = iota
	skipped
	failed
)

// against compares a value with the pattern of a condition, which may contain anchors.
func against(value, pattern any) outcome {
	switch p := pattern.(type) {
	case map[string]any:
		v, ok := value.(map[string]any)
		if !ok {
			return failed
		}
		return againstMap(v, p)
	case []any:
		v, ok := value.([]any)
		if !ok || len(p) == 0 {
			return failed
		}
		return againstList(v, p)
	}
	if l, ok := value.([]any); ok {
		for _, e := range l {
			if !fits(e, pattern) {
				return failed
			}
		}
		return fit
	}
	return fitIf(fits(value, pattern))
}

// fitIf returns fit or failed.
func fitIf(holds bool) outcome {
	if holds {
		return fit
	}
	return failed
}

func againstList(v, p []any) outcome {
	switch first := p[0].(type) {
	case map[string]any:
		applied, skips := 0, 0
		for _, e := range v {
			switch against(e, first) {
			case fit:
				applied++
			case skipped:
				skips++
			default:
				return failed
			}
		}
		if applied == 0 && skips > 0 {
			return skipped
		}
		return fit
	case []any:
		if len(v) < len(p) {
			return failed
		}
		applied, skips := 0, 0
		for i := range p {
			switch against(v[i], p[i]) {
			case fit:
				applied++
			case skipped:
				skips++
			default:
				return failed
			}
		}
		if applied == 0 && skips > 0 {
			return skipped
		}
		return fit
	default:
		return against(v, first)
	}
}

// againstMap evaluates the anchors first, in the order of their names.
func againstMap(v, p map[string]any) outcome {
	if _, ok := p["metadata"]; ok {
		unknown("a condition on metadata as a whole")
	}
	var anchors, rest []string
	for key := range p {
		switch a, ok := anchorOf(key); {
		case ok && strings.Contains("^=X", a.kind): // also the conditional anchor, whose kind is ""
			anchors = append(anchors, key)
		default:
			rest = append(rest, key)
		}
	}
	sort.Strings(anchors)
	slices.Sort(rest)
	applied, skips := 0, 0
	for _, key := range anchors {
		a, _ := anchorOf(key)
		switch anchored(a, v, p[key]) {
		case fit:
			applied++
		case skipped:
			skips++
		default:
			if skips == 0 {
				return failed
			}
		}
	}
	if skips > 0 {
		return skipped
	}
	// Fields with anchors come before the others, in the reverse order of their names.
	slices.SortStableFunc(rest, func(a, b string) int { return precedence(b, p[b]) - precedence(a, p[a]) })
	n := 0
	for n < len(rest) && precedence(rest[n], p[rest[n]]) > 0 {
		n++
	}
	slices.Reverse(rest[:n])
	for _, key := range rest {
		var o outcome
		if a, ok := anchorOf(key); ok && a.kind == "<" {
			o = anchored(a, v, p[key])
		} else if p[key] == "*" {
			o = fitIf(v[key] != nil)
		} else {
			o = against(v[key], p[key])
		}
		if o != fit {
			return o
		}
	}
	return fit
}

func precedence(key string, pattern any) int {
	if a, ok := anchorOf(key); ok && a.kind == "<" || hasConditions(pattern) {
		return 1
	}
	return 0
}

// hasConditions reports whether a pattern contains an anchor that is a condition.
func hasConditions(pattern any) bool {
	switch p := pattern.(type) {
	case map[string]any:
		for key, v := range p {
			if a, ok := anchorOf(key); ok && a.kind != "+" || hasConditions(v) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(p, hasConditions)
	}
	return false
}

// anchored evaluates one anchor of a pattern.
func anchored(a anchor, object map[string]any, pattern any) outcome {
	value, present := object[a.name]
	switch a.kind {
	case "X":
		return fitIf(!present)
	case "=":
		if !present {
			return fit
		}
		return against(value, pattern)
	case "^":
		if !present {
			return fit
		}
		l, isList := value.([]any)
		patterns, isPatterns := pattern.([]any)
		if !isList || !isPatterns {
			return failed
		}
		for _, p := range patterns {
			if _, isMap := p.(map[string]any); !isMap || !slices.ContainsFunc(l, func(e any) bool { return against(e, p) == fit }) {
				return failed
			}
		}
		return fit
	case "<":
		if present && against(value, pattern) != fit {
			return skipped
		}
		return fit
	}
	if !present || against(value, pattern) != fit {
		return skipped
	}
	return fit
}

// anchor is the anchor of a field: kind is +, <, =, X or ^, or "" for a condition.
type anchor struct{ kind, name string }

// anchorOf parses the name of a field with an anchor.
func anchorOf(key string) (anchor, bool) {
	form := strings.TrimSpace(key)
	kind, rest := "", form
	if form != "" && strings.IndexByte("+<=X^", form[0]) >= 0 {
		kind, rest = form[:1], form[1:]
	}
	if len(rest) < 3 || rest[0] != '(' || rest[len(rest)-1] != ')' || strings.Contains(rest, "\n") {
		return anchor{}, false
	}
	if key != form {
		unknown("spaces around an anchor")
	}
	return anchor{kind, rest[1 : len(rest)-1]}, true
}

// condition reports whether an anchor is a condition on an element or on the whole overlay.
func (a anchor) condition() bool { return a.kind == "" || a.kind == "<" }
