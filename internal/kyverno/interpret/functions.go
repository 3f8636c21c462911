package interpret

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	jmespath "github.com/kyverno/go-jmespath"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/api/resource"
)

// undecided are functions whose result depends on chance, a clock or a network, or that this
// package does not implement.
var undecided = map[string]bool{
	"random": true, "time_now": true, "time_now_utc": true, "time_since": true, "x509_decode": true, "is_external_url": true,
	"semver_compare": true,
}

// arguments are the arguments of a call.
type arguments []any

// badCall is panicked with to end a call with an error. Kyverno would see the same error.
type badCall struct{ error }

func (a arguments) text(i int) string {
	s, ok := a[i].(string)
	if !ok {
		panic(badCall{fmt.Errorf("argument %d is no text", i+1)})
	}
	return s
}

func (a arguments) number(i int) float64 {
	n, ok := a[i].(float64)
	if !ok {
		panic(badCall{fmt.Errorf("argument %d is no number", i+1)})
	}
	return n
}

func (a arguments) whole(i int) int {
	n := a.number(i)
	if n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		panic(badCall{fmt.Errorf("argument %d is no whole number", i+1)})
	}
	return int(n)
}

func (a arguments) time(i int) time.Time {
	t, err := time.Parse(time.RFC3339, a.text(i))
	must(err)
	return t
}

func (a arguments) duration(i int) time.Duration {
	d, err := time.ParseDuration(a.text(i))
	must(err)
	return d
}

// spelled returns an argument that may be a text or a number, as text.
func (a arguments) spelled(i int) string {
	switch v := a[i].(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 32)
	case int:
		return strconv.Itoa(v)
	case bool:
		return strconv.FormatBool(v)
	}
	panic(badCall{fmt.Errorf("argument %d is neither text nor number", i+1)})
}

func (a arguments) regexp(i int) *regexp.Regexp {
	r, err := regexp.Compile(a.text(i))
	must(err)
	return r
}

// bounded returns the text and the replacement of a call that replaces by a regular expression,
// and ends the interpretation if a match at every character would make the result too long.
func (a arguments) bounded() (text, replacement string) {
	text, replacement = a.spelled(1), a.spelled(2)
	if (len(text)+1)*(len(replacement)+1) > 8*maxText {
		unknown("a replacement that can be longer than %d bytes", 8*maxText)
	}
	return text, replacement
}

// must ends a call with err, unless it is nil.
func must(err error) {
	if err != nil {
		panic(badCall{err})
	}
}

const (
	str      = jmespath.JpString
	num      = jmespath.JpNumber
	anything = jmespath.JpAny
)

// function is one of Kyverno's functions: the types of its arguments, and its implementation.
type function struct {
	types [][]jmespath.JpType
	call  func(a arguments) any
}

func texts(n int) [][]jmespath.JpType {
	out := make([][]jmespath.JpType, n)
	for i := range out {
		out[i] = []jmespath.JpType{str}
	}
	return out
}

func of(types ...[]jmespath.JpType) [][]jmespath.JpType { return types }

var (
	textOrNumber = []jmespath.JpType{str, num}
	justText     = []jmespath.JpType{str}
	justNumber   = []jmespath.JpType{num}
	justAny      = []jmespath.JpType{anything}
	object       = []jmespath.JpType{jmespath.JpObject}
	list         = []jmespath.JpType{jmespath.JpArray}
	collection   = []jmespath.JpType{jmespath.JpObject, jmespath.JpArray}
)

// functions are the functions that Kyverno adds to JMESPath, and those of JMESPath whose result
// has a random order.
var functions = map[string]function{
	"keys":        {of(object), func(a arguments) any { return anyList(keysOf(a[0].(map[string]any))) }},
	"values":      {of(object), values},
	"compare":     {texts(2), func(a arguments) any { return strings.Compare(a.text(0), a.text(1)) }},
	"equal_fold":  {texts(2), func(a arguments) any { return strings.EqualFold(a.text(0), a.text(1)) }},
	"replace":     {of(justText, justText, justText, justNumber), func(a arguments) any { return replaced(a, int(a.number(3))) }},
	"replace_all": {texts(3), func(a arguments) any { return replaced(a, -1) }},
	"to_upper":    {texts(1), func(a arguments) any { return strings.ToUpper(a.text(0)) }},
	"to_lower":    {texts(1), func(a arguments) any { return strings.ToLower(a.text(0)) }},
	"trim":        {texts(2), func(a arguments) any { return strings.Trim(a.text(0), a.text(1)) }},
	"trim_prefix": {texts(2), func(a arguments) any { return strings.TrimPrefix(a.text(0), a.text(1)) }},
	"join": {of(justText, []jmespath.JpType{jmespath.JpArrayString}), func(a arguments) any {
		var parts []string
		size := 0
		for i, e := range a[1].([]any) {
			parts = append(parts, arguments(a[1].([]any)).text(i))
			size += len(text(e)) + len(a.text(0))
		}
		if size > maxText {
			unknown("a text of more than %d bytes", maxText)
		}
		return strings.Join(parts, a.text(0))
	}},
	"split": {texts(2), func(a arguments) any { return anyList(strings.Split(a.text(0), a.text(1))) }},
	"regex_replace_all": {of(justText, textOrNumber, textOrNumber), func(a arguments) any {
		return a.regexp(0).ReplaceAllString(a.bounded())
	}},
	"regex_replace_all_literal": {of(justText, textOrNumber, textOrNumber), func(a arguments) any {
		return a.regexp(0).ReplaceAllLiteralString(a.bounded())
	}},
	"regex_match":   {of(justText, textOrNumber), func(a arguments) any { return a.regexp(0).MatchString(a.spelled(1)) }},
	"pattern_match": {of(justText, textOrNumber), func(a arguments) any { return like(a.text(0), a.spelled(1)) }},
	"label_match": {of(object, object), func(a arguments) any {
		have := a[1].(map[string]any)
		for k, v := range a[0].(map[string]any) {
			if other, ok := have[k]; !ok || !reflect.DeepEqual(other, v) {
				return false
			}
		}
		return true
	}},
	"to_boolean": {texts(1), func(a arguments) any {
		switch strings.ToLower(a.text(0)) {
		case "true":
			return true
		case "false":
			return false
		}
		panic(badCall{fmt.Errorf("%q is neither true nor false", a.text(0))})
	}},
	"add":      {of(justAny, justAny), func(a arguments) any { return sum(a[0], a[1], 1) }},
	"subtract": {of(justAny, justAny), func(a arguments) any { return sum(a[0], a[1], -1) }},
	"sum": {of(list), func(a arguments) any {
		l := a[0].([]any)
		if len(l) == 0 {
			panic(badCall{fmt.Errorf("a sum of nothing")})
		}
		out := l[0]
		for _, e := range l[1:] {
			out = sum(out, e, 1)
		}
		return out
	}},
	"multiply":        {of(justAny, justAny), func(a arguments) any { return multiplied(a[0], a[1]) }},
	"divide":          {of(justAny, justAny), func(a arguments) any { return divided(a[0], a[1]) }},
	"modulo":          {of(justAny, justAny), func(a arguments) any { return remainder(a[0], a[1]) }},
	"image_normalize": {texts(1), func(a arguments) any { return imageOf(a.text(0))["reference"] }},
	"round": {of(justNumber, justNumber), func(a arguments) any {
		if a.whole(1) < 0 {
			panic(badCall{fmt.Errorf("less than no digits")})
		}
		shift := math.Pow(10, float64(a.whole(1)))
		return math.Round(a.number(0)*shift) / shift
	}},
	"base64_decode": {texts(1), func(a arguments) any {
		out, err := base64.StdEncoding.DecodeString(a.text(0))
		must(err)
		return string(out)
	}},
	"base64_encode":     {texts(1), func(a arguments) any { return base64.StdEncoding.EncodeToString([]byte(a.text(0))) }},
	"path_canonicalize": {texts(1), func(a arguments) any { return filepath.Join(a.text(0)) }},
	"truncate": {of(justText, justNumber), func(a arguments) any {
		s, n := a.text(0), int(max(0, a.number(1)))
		if utf8.RuneCountInString(s) <= n {
			return s
		}
		return string([]rune(s)[:n])
	}},
	"parse_json": {texts(1), func(a arguments) any { return parsed([]byte(a.text(0))) }},
	"parse_yaml": {texts(1), func(a arguments) any {
		data, err := yaml.YAMLToJSON([]byte(a.text(0)))
		must(err)
		return parsed(data)
	}},
	"lookup": {of(collection, textOrNumber), func(a arguments) any {
		switch c := a[0].(type) {
		case map[string]any:
			return c[a.text(1)]
		case []any:
			if i := a.whole(1); i >= 0 && i < len(c) {
				return c[i]
			}
			return nil
		}
		panic(badCall{fmt.Errorf("neither object nor list")})
	}},
	"items": {of(collection, justText, justText), func(a arguments) any {
		var out []map[string]any
		switch c := a[0].(type) {
		case map[string]any:
			for _, k := range keysOf(c) {
				out = append(out, map[string]any{a.text(1): k, a.text(2): c[k]})
			}
		case []any:
			for i, e := range c {
				out = append(out, map[string]any{a.text(1): float64(i), a.text(2): e})
			}
		}
		return out
	}},
	"object_from_lists": {of(list, list), func(a arguments) any {
		values, out := a[1].([]any), map[string]any{}
		for i, k := range a[0].([]any) {
			var v any
			if i < len(values) {
				v = values[i]
			}
			out[arguments{k}.spelled(0)] = v
		}
		return out
	}},
	"sha256": {texts(1), func(a arguments) any { h := sha256.Sum256([]byte(a.text(0))); return hex.EncodeToString(h[:]) }},
	"sha1":   {texts(1), func(a arguments) any { h := sha1.Sum([]byte(a.text(0))); return hex.EncodeToString(h[:]) }},
	"md5":    {texts(1), func(a arguments) any { h := md5.Sum([]byte(a.text(0))); return hex.EncodeToString(h[:]) }},
	"time_to_cron": {texts(1), func(a arguments) any {
		t := a.time(0)
		return fmt.Sprintf("%d %d %d %d %d", t.Minute(), t.Hour(), t.Day(), t.Month(), t.Weekday())
	}},
	"time_add":      {texts(2), func(a arguments) any { return a.time(0).Add(a.duration(1)).Format(time.RFC3339) }},
	"time_utc":      {texts(1), func(a arguments) any { return a.time(0).UTC().Format(time.RFC3339) }},
	"time_diff":     {texts(2), func(a arguments) any { return a.time(1).Sub(a.time(0)).String() }},
	"time_before":   {texts(2), func(a arguments) any { return a.time(0).Before(a.time(1)) }},
	"time_after":    {texts(2), func(a arguments) any { return a.time(0).After(a.time(1)) }},
	"time_between":  {texts(3), func(a arguments) any { return a.time(0).After(a.time(1)) && a.time(0).Before(a.time(2)) }},
	"time_truncate": {texts(2), func(a arguments) any { return a.time(0).Truncate(a.duration(1)).Format(time.RFC3339) }},
	"time_parse": {texts(2), func(a arguments) any {
		if _, err := strconv.ParseInt(a.text(0), 10, 64); err == nil {
			seconds, err := strconv.ParseInt(a.text(1), 10, 64)
			must(err)
			return time.Unix(seconds, 0).UTC().Format(time.RFC3339)
		}
		t, err := time.Parse(a.text(0), a.text(1))
		must(err)
		return t.Format(time.RFC3339)
	}},
}

func anyList(l []string) []any {
	out := make([]any, len(l))
	for i, s := range l {
		out[i] = s
	}
	return out
}

func values(a arguments) any {
	m, out := a[0].(map[string]any), []any{}
	if len(m) > 1 {
		unknown("the values of an object, which Kyverno puts in any order")
	}
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// replaced is strings.Replace with a bound on the length of the result.
func replaced(a arguments, n int) string {
	s, from, to := a.text(0), a.text(1), a.text(2)
	count := strings.Count(s, from)
	if n >= 0 {
		count = min(count, n)
	}
	if len(s)+count*max(0, len(to)-len(from)) > maxText {
		unknown("a text of more than %d bytes", maxText)
	}
	return strings.Replace(s, from, to, n)
}

func parsed(data []byte) any {
	var out any
	must(json.Unmarshal(data, &out))
	return out
}

// operand returns an operand of an arithmetic function: a float64, a quantity or a duration.
func operand(v any) any {
	switch v := v.(type) {
	case float64:
		return v
	case string:
		if q, err := resource.ParseQuantity(v); err == nil {
			return q
		}
		d, err := time.ParseDuration(v)
		must(err)
		return d
	}
	panic(badCall{errRule})
}

// sum adds or subtracts two numbers, quantities or durations.
func sum(a, b any, sign int) any {
	switch x := operand(a).(type) {
	case float64:
		if y, ok := operand(b).(float64); ok {
			return x + float64(sign)*y
		}
	case resource.Quantity:
		if y, ok := operand(b).(resource.Quantity); ok {
			if sign < 0 {
				x.Sub(y)
			} else {
				x.Add(y)
			}
			return x.String()
		}
	case time.Duration:
		if y, ok := operand(b).(time.Duration); ok {
			return (x + time.Duration(sign)*y).String()
		}
	}
	panic(badCall{errRule})
}

// multiplied multiplies a number, a quantity or a duration with a number.
func multiplied(a, b any) any {
	x, y := operand(a), operand(b)
	if _, ok := x.(float64); ok {
		x, y = y, x
	}
	factor, ok := y.(float64)
	if !ok {
		panic(badCall{errRule})
	}
	switch x := x.(type) {
	case float64:
		return x * factor
	case resource.Quantity:
		q, err := resource.ParseQuantity(fmt.Sprint(factor))
		must(err)
		product := x.AsDec()
		product.Mul(product, q.AsDec())
		return resource.NewDecimalQuantity(*product, x.Format).String()
	}
	return inSeconds(x.(time.Duration).Seconds() * factor)
}

func inSeconds(n float64) string { return time.Duration(n * float64(time.Second)).String() }

// divided divides two values of one kind, or a duration by a number.
func divided(a, b any) any {
	x, y := operand(a), operand(b)
	by := func(n float64) float64 {
		if n == 0 {
			panic(badCall{errRule})
		}
		return n
	}
	switch x := x.(type) {
	case float64:
		if y, ok := y.(float64); ok {
			return x / by(y)
		}
	case resource.Quantity:
		if y, ok := y.(resource.Quantity); ok {
			return x.AsApproximateFloat64() / by(y.AsApproximateFloat64())
		}
		if y, ok := y.(float64); ok {
			by(y)
			unknown("the quotient of a quantity and a number")
		}
	case time.Duration:
		switch y := y.(type) {
		case time.Duration:
			return x.Seconds() / by(y.Seconds())
		case float64:
			return inSeconds(x.Seconds() / by(y))
		}
	}
	panic(badCall{errRule})
}

// remainder returns the remainder of whole numbers, of quantities that are whole numbers, or of
// durations.
func remainder(a, b any) any {
	whole := func(n float64) int64 {
		if n != float64(int64(n)) {
			panic(badCall{errRule})
		}
		return int64(n)
	}
	of := func(x, y float64) int64 {
		m, n := whole(x), whole(y)
		if n == 0 {
			panic(badCall{errRule})
		}
		return m % n
	}
	y := operand(b)
	switch x := operand(a).(type) {
	case float64:
		if y, ok := y.(float64); ok {
			return float64(of(x, y))
		}
	case resource.Quantity:
		if y, ok := y.(resource.Quantity); ok {
			return resource.NewQuantity(of(x.AsApproximateFloat64(), y.AsApproximateFloat64()), x.Format).String()
		}
	case time.Duration:
		if y, ok := y.(time.Duration); ok && y != 0 {
			return (x % y).String()
		}
	}
	panic(badCall{errRule})
}

// caller calls the functions that expressions name.
var caller = sync.OnceValue(func() *jmespath.FunctionCaller {
	c := jmespath.NewFunctionCaller()
	for name := range undecided { // check refuses them before they are called
		c.Register(jmespath.FunctionEntry{Name: name, Handler: func([]any) (any, error) { return nil, errRule }})
	}
	for name, f := range functions {
		specs := make([]jmespath.ArgSpec, len(f.types))
		for i, types := range f.types {
			specs[i] = jmespath.ArgSpec{Types: types}
		}
		c.Register(jmespath.FunctionEntry{Name: name, Arguments: specs, Handler: func(a []any) (out any, err error) {
			defer func() {
				switch x := recover().(type) {
				case nil:
				case badCall:
					out, err = nil, x.error
				default:
					panic(x)
				}
			}()
			out = f.call(a)
			if s, ok := out.(string); ok && len(s) > maxText {
				unknown("a text of more than %d bytes", maxText)
			}
			return out, nil
		}})
	}
	return c
})
