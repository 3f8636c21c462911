package cel

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/mapd-project/mapd/pkg/quantity"
)

// guards has every function whose time or memory its CEL cost does not bound. TestGuards
// compares it with the functions of the environment.
var guards = map[string]guard{
	"_==_": equality,
	"_!=_": equality,
	"@in":  membership,
	"_+_":  adding,
	"_<_":  readingText(1, 0),
	"_<=_": readingText(1, 0),
	"_>_":  readingText(1, 0),
	"_>=_": readingText(1, 0),
	"size": readingText(1, 0),

	externalDataName: askingOutside,

	"matches": matching,
	"find":    matching,
	"findAll": matching,

	"contains":              readingText(4, 0),
	"startsWith":            readingText(1, 0),
	"endsWith":              readingText(1, 0),
	"charAt":                readingText(4, 4), // these functions convert a string to runes
	"substring":             readingText(4, 5),
	"lowerAscii":            readingText(4, 5),
	"upperAscii":            readingText(4, 5),
	"trim":                  readingText(1, 0),
	"strings.quote":         readingText(8, 8),
	"jsonpatch.escapeKey":   readingText(2, 2),
	"replace":               replacing,
	"split":                 splitting,
	"join":                  joining,
	"format":                formatting,
	"indexOf":               searching,
	"lastIndexOf":           searching,
	"includes":              traversing,
	"isSorted":              traversing,
	"sum":                   traversing,
	"min":                   traversing,
	"max":                   traversing,
	"sets.contains":         comparing(1),
	"sets.intersects":       comparing(1),
	"sets.equivalent":       comparing(2),
	"distinct":              sorting,
	"sort":                  sorting,
	"@sortByAssociatedKeys": sorting,
	"flatten":               copying,
	"slice":                 copying,
	"reverse":               copying,
	"lists.range":           ranging,

	"string":         readingText(2, 2),
	"bytes":          readingText(1, 1),
	"bool":           readingText(1, 0),
	"int":            readingText(1, 0),
	"uint":           readingText(1, 0),
	"double":         readingText(2, 0),
	"duration":       readingText(2, 0),
	"timestamp":      readingText(2, 0),
	"ip":             readingText(2, 0),
	"isIP":           readingText(2, 0),
	"ip.isCanonical": readingText(2, 0),
	"cidr":           readingText(2, 0),
	"isCIDR":         readingText(2, 0),
	"containsIP":     readingText(2, 0),
	"containsCIDR":   readingText(2, 0),
	"url":            readingText(4, 2),
	"isURL":          readingText(4, 2),
	"getQuery":       querying,
	"semver":         readingText(8, 4),
	"isSemver":       readingText(8, 4),
	"validate":       readingText(64, 1), // matches regular expressions of its own
	"format.named":   readingText(1, 0),
	"labelSelector":  selecting,
	"fieldSelector":  selecting,

	"quantity":           quantities,
	"isQuantity":         quantities,
	"add":                reckoning,
	"sub":                reckoning,
	"compareTo":          reckoning,
	"isGreaterThan":      reckoning,
	"isLessThan":         reckoning,
	"isInteger":          reckoning,
	"asInteger":          reckoning,
	"asApproximateFloat": reckoning,
}

// readingText guards functions that read their strings a number of times and make a number of
// copies of them.
func readingText(times, copies int) guard {
	return func(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
		if size := textSize(args); size > lightText {
			a := activationOf(frame)
			a.use(int64(copies) * int64(size))
			a.read(times * size)
		}
		return c.plain(args)
	}
}

// textSize is the size of all strings among values.
func textSize(args []ref.Val) (size int) {
	for _, arg := range args {
		switch v := arg.(type) {
		case types.String:
			size += len(v)
		case types.Bytes:
			size += len(v)
		}
	}
	return size
}

// equality executes == and !=, for which cel-go has no functions.
func equality(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	x, y := args[0], args[1]
	switch {
	case isAggregate(x) && isAggregate(y):
		a := activationOf(frame)
		x, y = a.watch(x), a.watch(y)
	case textSize(args) > lightText:
		activationOf(frame).read(textSize(args))
	}
	if _, ok := x.(apiservercel.Quantity); ok {
		activationOf(frame).reckon()
	}
	equal := types.Equal(x, y)
	if c.OverloadID() == overloads.NotEquals {
		return types.Bool(equal != types.True)
	}
	return equal
}

// membership guards `in`.
func membership(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	list, ok := args[1].(traits.Lister)
	switch {
	case !ok:
	case isAggregate(args[0]):
		return activationOf(frame).watch(list).(traits.Lister).Contains(args[0])
	default:
		if work := sizeOfList(list) * int64(1+textSize(args[:1])/workBytes); work > lightText {
			activationOf(frame).chargeWork(work)
		}
	}
	return c.plain(args)
}

func sizeOfList(list traits.Sizer) int64 {
	size, _ := list.Size().(types.Int)
	return int64(size)
}

// maxList bounds the length of concatenated lists. They refer to their operands and take no
// memory, so that their length can double at each step; a loop over more elements exceeds the
// cost limit anyway.
const maxList = 1 << 20

var errList = fmt.Errorf("operation cancelled: a list of more than %d elements was put together", maxList)

// adding guards +. Lists are not copied, strings are.
func adding(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	if size := textSize(args); size > lightText {
		a := activationOf(frame)
		a.use(int64(size))
		a.read(size)
		return c.plain(args)
	}
	x, ok := args[0].(traits.Lister)
	y, also := args[1].(traits.Lister)
	if ok && also && sizeOfList(x)+sizeOfList(y) > maxList {
		activationOf(frame).halt(errList)
	}
	return c.plain(args)
}

// replacing counts the bytes that a replacement makes, which can be the product of two lengths.
func replacing(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	var texts [3]string
	for i := range texts {
		s, ok := args[i].(types.String)
		if !ok {
			return c.plain(args)
		}
		texts[i] = string(s)
	}
	s, old, by := texts[0], texts[1], texts[2]
	if len(s) <= lightText && len(by) <= lightText {
		return c.plain(args)
	}
	n := int64(strings.Count(s, old))
	if len(args) > 3 {
		if most, ok := args[3].(types.Int); ok && most >= 0 {
			n = min(n, int64(most))
		}
	}
	size := int64(len(s)) + n*int64(len(by)-len(old))
	a := activationOf(frame)
	a.use(size)
	a.chargeWork((int64(len(s)) + size) / workBytes)
	return c.plain(args)
}

// splitting counts the elements that a string is split into.
func splitting(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	s, ok := args[0].(types.String)
	by, also := args[1].(types.String)
	if ok && also && len(s) > lightText {
		n := int64(strings.Count(string(s), string(by))) + 1
		if len(args) > 2 {
			if most, ok := args[2].(types.Int); ok && most >= 0 {
				n = min(n, int64(most))
			}
		}
		a := activationOf(frame)
		a.use(n * slotBytes)
		a.chargeWork(n + int64(len(s)/workBytes))
	}
	return c.plain(args)
}

// joining guards join. It returns the error for a list or a map among the elements itself, since
// cel-go would write the whole value into the error.
func joining(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return c.plain(args)
	}
	a := activationOf(frame)
	between := textSize(args[1:])
	for it := a.watchCopies(list, 2, 0).(traits.Lister).Iterator(); it.HasNext() == types.True; {
		e := it.Next()
		if isAggregate(e) {
			return types.NewErr("join: invalid input: %v", e.Type())
		}
		a.use(2 * int64(between))
	}
	return c.plain(args)
}

// formatting counts the text of the values that are formatted, and the digits that a precision
// asks for.
func formatting(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	s, ok := args[0].(types.String)
	list, also := args[1].(traits.Lister)
	if !ok || !also {
		return c.plain(args)
	}
	a := activationOf(frame)
	digits, clauses := precisions(string(s))
	a.use(int64(2*len(s)) + 2*digits)
	a.chargeWork(clauseWork*clauses + int64(len(s)/workBytes) + digits/workBytes)
	// Nested values are copied once for each level, and %x writes two digits for a byte.
	args = []ref.Val{s, a.watchCopies(list, 4, 2*slotBytes)}
	return c.plain(args)
}

// clauseWork is the work to find a locale, which format does for each clause of a number.
const clauseWork = 16

// precisions returns how many digits the clauses of a format ask for, and how many
// clauses there are. Beyond a million digits Go writes an error instead.
func precisions(format string) (digits, clauses int64) {
	for {
		_, rest, ok := strings.Cut(format, "%")
		if !ok {
			return digits, clauses
		}
		clauses++
		format = rest
		if after, ok := strings.CutPrefix(rest, "."); ok {
			end := 0
			for end < len(after) && after[end] >= '0' && after[end] <= '9' {
				end++
			}
			if n, err := strconv.ParseInt(after[:end], 10, 64); err == nil {
				digits += min(n, 1_000_000)
			}
		}
	}
}

// searching executes indexOf and lastIndexOf. cel-go's compare the string at each position,
// which takes the product of both lengths.
func searching(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	s, ok := args[0].(types.String)
	of, also := args[1].(types.String)
	if !ok {
		return traversing(frame, c, args)
	}
	if !also || len(s)+len(of) <= lightText {
		return c.plain(args)
	}
	a := activationOf(frame)
	a.use(4 * int64(len(s)+len(of)))
	a.read(4 * (len(s) + len(of)))
	runes, part := []rune(string(s)), []rune(string(of))
	if len(part) < 2 || len(part) > len(runes) {
		return c.plain(args)
	}
	from := types.Int(0)
	if len(args) > 2 {
		if from, ok = args[2].(types.Int); !ok || from < 0 || int64(from) >= int64(len(runes)) {
			return c.plain(args)
		}
	}
	// lastIndexOf searches the reversed string, so positions count from the right.
	last := c.Function() == "lastIndexOf"
	if last {
		to := len(runes)
		if len(args) > 2 {
			to = min(to, int(from)+len(part))
		}
		runes = runes[:to]
		mirror(runes)
		mirror(part)
		from = 0
	}
	at := a.search(runes[from:], part)
	switch {
	case at < 0:
		return types.Int(-1)
	case last:
		return types.Int(len(runes) - at - len(part))
	}
	return from + types.Int(at)
}

func mirror(runes []rune) {
	for i, j := 0, len(runes)-1; i < j; i, j = i+1, j-1 {
		runes[i], runes[j] = runes[j], runes[i]
	}
}

// search returns the first position of part in runes, or -1. It uses the algorithm of Knuth,
// Morris and Pratt.
func (a *Activation) search(runes, part []rune) int {
	a.use(8 * int64(len(part)))
	// border[i] is how long the longest border of part[:i+1] is.
	border := make([]int, len(part))
	for i, k := 1, 0; i < len(part); i++ {
		for k > 0 && part[i] != part[k] {
			k = border[k-1]
		}
		if part[i] == part[k] {
			k++
		}
		border[i] = k
	}
	k := 0
	for i, r := range runes {
		for k > 0 && r != part[k] {
			k = border[k-1]
		}
		if r == part[k] {
			k++
		}
		if k == len(part) {
			return i - k + 1
		}
	}
	return -1
}

// traversing guards functions of lists whose cost is that of all nested values. cel-go counts
// the cost afterwards, which takes as long as the function, since a list that is shared counts
// each time it occurs.
func traversing(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	t := traversed{}
	if !t.value(args[0]) {
		activationOf(frame).exceed(uint64(t.cost))
	}
	if t.nodes > lightText {
		activationOf(frame).chargeWork(t.nodes)
	}
	return c.plain(args)
}

// traversed follows k8s.io/apiserver …/cel/library/cost.go: traversalCost.
type traversed struct{ cost, nodes int64 }

func (t *traversed) value(v ref.Val) bool {
	t.nodes++
	switch v := v.(type) {
	case types.String:
		t.cost += int64(float64(len(v)) * common.StringTraversalCostFactor)
	case types.Bytes:
		t.cost += int64(float64(len(v)) * common.StringTraversalCostFactor)
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !t.value(it.Next()) {
				return false
			}
		}
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			k := it.Next()
			e, _ := v.Find(k)
			if !t.value(k) || !t.value(e) {
				return false
			}
		}
	default:
		t.cost++
	}
	// Empty aggregates and short strings cost nothing.
	return t.cost <= celconfig.PerCallLimit && t.nodes <= maxTraversed
}

// maxTraversed bounds the nodes of a traversed value, including those without a cost.
const maxTraversed = 4 * celconfig.PerCallLimit

// comparing guards functions that compare each element of a list with each element of another.
func comparing(factor uint64) guard {
	return func(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
		x, ok := args[0].(traits.Lister)
		y, also := args[1].(traits.Lister)
		if !ok || !also {
			return c.plain(args)
		}
		a := activationOf(frame)
		a.limit(1 + factor*uint64(sizeOfList(x))*uint64(sizeOfList(y)))
		return c.plain([]ref.Val{a.watch(x), a.watch(y)})
	}
}

// sorting guards functions whose cost is the square of a list's length and which return the
// elements of their first list.
func sorting(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	keys, ok := args[len(args)-1].(traits.Lister)
	if !ok {
		return c.plain(args)
	}
	a := activationOf(frame)
	factor := 2.0
	n := sizeOfList(keys)
	if n > 0 {
		switch keys.Get(types.IntZero).(type) {
		case types.String, types.Bytes:
			factor += common.StringTraversalCostFactor
		}
	}
	a.limit(1 + common.ListCreateBaseCost + uint64(float64(n)*float64(n)*factor))
	watched := make([]ref.Val, len(args))
	for i, arg := range args {
		watched[i] = a.watch(arg)
	}
	return unwatch(c.plain(watched))
}

// copying guards functions that copy the elements of lists, however deeply nested.
func copying(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return readingText(4, 5)(frame, c, args)
	}
	watched := append([]ref.Val{activationOf(frame).watchCopies(list, 0, 2*slotBytes)}, args[1:]...)
	return unwatch(c.plain(watched))
}

// ranging guards lists.range.
func ranging(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	if n, ok := args[0].(types.Int); ok && n > lightText {
		a := activationOf(frame)
		// Its cost is its length.
		a.limit(1 + common.ListCreateBaseCost + uint64(n))
		a.use(int64(n) * 3 * slotBytes / 2)
		a.chargeWork(int64(n) / 8)
	}
	return c.plain(args)
}

// querying counts the parameters of a URL.
func querying(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	if u, ok := args[0].Value().(*url.URL); ok && len(u.RawQuery) > lightText {
		a := activationOf(frame)
		a.use(int64(len(u.RawQuery)) + 16*slotBytes*int64(1+strings.Count(u.RawQuery, "&")))
		a.read(8 * len(u.RawQuery))
	}
	return c.plain(args)
}

// selecting guards the parsing of selectors, whose cost is 25 for each code point.
func selecting(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	if s, ok := args[len(args)-1].(types.String); ok && len(s) > lightText {
		a := activationOf(frame)
		a.limit(25 * uint64(utf8.RuneCountInString(string(s))))
		a.use(slotBytes * int64(len(s)))
		a.read(64 * len(s))
	}
	return c.plain(args)
}

// quantities guards functions that parse quantities.
func quantities(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	s, ok := args[0].(types.String)
	if !ok {
		return c.plain(args)
	}
	if !quantity.Bounded(string(s)) {
		return types.NewErr("%v", quantity.Err)
	}
	activationOf(frame).reckon()
	return c.plain(args)
}

// reckoning guards functions that calculate with quantities.
func reckoning(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	activationOf(frame).reckon()
	return c.plain(args)
}

// reckon counts the work of parsing quantities within quantity.Max, or of calculating with
// them.
func (a *Activation) reckon() { a.chargeWork(quantity.Max / 64) }
