package cel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/test/hammer"
)

// deadline is a Turn whose time is up after so many calls.
type deadline struct{ left int }

var errTimeUp = errors.New("time is up")

func (d *deadline) Yield(context.Context) error {
	if d.left--; d.left < 0 {
		return errTimeUp
	}
	return nil
}

// unfolding are variables v0 to v7, each a list of ten times the one before, w0 to w7,
// the same made apart, and t0 to t7, texts that double.
func unfolding(t *testing.T, vars Vars) *Scope {
	vars.Variables = true
	s := testScope(t, vars, nil)
	define := func(name, expr string) {
		if err := s.Define(name, expr); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []string{"v", "w"} {
		define(v+"0", "[object.n, object.n]")
		for i := range 7 {
			of := fmt.Sprintf("variables.%s%d", v, i)
			define(fmt.Sprint(v, i+1), "["+strings.Repeat(of+", ", 9)+of+"]")
		}
	}
	define("t0", "object.text")
	for i := range 12 {
		of := fmt.Sprintf("variables.t%d", i)
		define(fmt.Sprint("t", i+1), of+" + "+of)
	}
	define("d0", "dyn(object.text)")
	for i := range 12 {
		of := fmt.Sprintf("variables.d%d", i)
		define(fmt.Sprint("d", i+1), of+" + "+of)
	}
	define("l0", "[object.n, object.n]")
	for i := range 40 {
		of := fmt.Sprintf("variables.l%d", i)
		define(fmt.Sprint("l", i+1), of+" + "+of)
	}
	define("formats", `object.list.map(x, "%.999999f").join()`)
	return s
}

// attacked is an object with what the worst inputs are made from.
var attacked = &Input{Object: map[string]any{
	"n":       int64(1),
	"text":    strings.Repeat("a", 1<<20),
	"other":   strings.Repeat("a", 1<<19) + "b",
	"pattern": "(a+a+){20}b",
	"large":   strings.Repeat("(a|b){900}", 200),
	"classes": strings.Repeat(`\pL`, 1<<14),
	"query":   "http://a/?" + strings.Repeat("a&", 1<<18),
	"list":    slices.Repeat([]any{strings.Repeat("a", 64)}, 1<<12),
	"mixed":   slices.Repeat([]any{map[string]any{"a": []any{int64(1)}}}, 1<<10),
	"digits":  strings.Repeat("9", 1<<20),
	"zeros":   "1" + strings.Repeat("0", 1<<16),
}}

// attacks are the worst inputs that were found for each function whose time or memory
// is more than its cost tells. The outcome is a part of the error: bound stands for
// those of time, memory and cost, and "" for none.
var attacks = []struct{ function, expr, outcome string }{
	// Values that unfold.
	{"_==_", "variables.v7 == variables.w7", bound},
	{"_!=_", "variables.v7 != variables.w7", bound},
	{"_==_", "optional.of(variables.v7) == optional.of(variables.w7)", bound},
	{"_==_", "{'a': variables.v7} == {'a': variables.w7}", bound},
	{"@in", "variables.v6 in variables.w7", bound},
	{"sets.contains", "sets.contains(variables.v7, variables.w7)", bound},
	{"sets.intersects", "sets.intersects([variables.v7], [variables.v7 + variables.v7, variables.w7])", bound},
	{"sets.equivalent", "sets.equivalent(variables.v7, variables.w7)", bound},
	{"distinct", "(variables.v7 + variables.w7).distinct().size() == 1", bound},
	{"includes", "variables.v7.includes(variables.w6)", bound},
	{"indexOf", "variables.v7.indexOf(variables.w6) == 0", bound},
	{"lastIndexOf", "variables.v7.lastIndexOf(variables.w6) == 0", bound},
	{"flatten", "variables.v7.flatten(8).size() == 0", bound},
	{"format", "'%s'.format([variables.v7]) == ''", bound},
	{"join", "dyn(variables.v7).join() == ''", "invalid input: list"},
	{"sum", "variables.l19.sum() == 1048576", bound},
	{"_+_", "variables.l40.size() > 0", "1048576 elements"},

	// Texts.
	{"_+_", "variables.t12.size() > 0", bound},
	{"_+_", "variables.d12.size() > 0", bound},
	{"replace", "object.text.replace('', object.text) == ''", "memory"},
	{"replace", "object.text.replace('a', object.text, 100) == ''", "memory"},
	{"split", "object.other.split('').size() == 524289", ""},
	{"join", "variables.l12.map(x, object.text).join() == ''", bound},
	{"join", "variables.l12.map(x, '').join(object.text) == ''", bound},
	{"format", "variables.formats.format([1.0]) == ''", "memory"},
	{"indexOf", "object.text.indexOf(object.other) == -1", ""},
	{"lastIndexOf", "object.text.lastIndexOf('b' + object.other) == -1", ""},
	{"indexOf", "object.text.indexOf(object.other, 7) == -1", ""},
	{"contains", "object.text.contains(object.other)", bound},
	{"size", "object.list.all(x, size(object.text) > 0)", bound},
	{"charAt", "object.list.all(x, object.text.charAt(5) == 'a')", bound},
	{"string", "object.list.all(x, string(object.text) != '')", bound},
	{"isSorted", "object.list.map(x, object.text).isSorted()", bound},
	{"sort", "object.list.sort().size() == 0", bound},
	{"lists.range", "lists.range(1000000000).size() == 0", bound},
	{"lists.range", "lists.range(900000).size() == 900000", ""},
	{"getQuery", "url(object.query).getQuery().size() == 1", "memory"},

	// Regular expressions.
	{"matches", "object.text.matches(object.pattern)", bound},
	{"matches", "object.text.matches('(a+a+){20}b')", bound},
	{"find", "object.text.find(object.pattern) == ''", bound},
	{"findAll", "object.text.findAll('(a.*b)|a').size() == 0", bound},
	// 2^14 instructions on 2^25 characters: the product of both with the characters is 2^64.
	{"findAll", "object.text.replace('a', '" + strings.Repeat("a", 32) + "').findAll('.{1000}.{1000}.{1000}.{1000}.{89}cccc').size() == 0", bound},
	{"matches", "'a'.matches(object.large)", "100000 instructions"},
	{"matches", "'a'.matches(object.classes)", "100000 instructions"},
	{"matches", "'a'.matches(object.text)", "too long"},

	// Numbers.
	{"quantity", "quantity('1e1000000000').isGreaterThan(quantity('1'))", "are not evaluated"},
	{"quantity", "quantity(object.digits).isGreaterThan(quantity('1'))", "are not evaluated"},
	{"isQuantity", "isQuantity('12345678901234567890e1000000000')", "are not evaluated"},
	{"isGreaterThan", "object.list.all(x, quantity('1e1001').isGreaterThan(quantity('1')))", "are not evaluated"},
	{"semver", "semver(object.digits + '.1.2').major() == 1", "bytes in all"},
	{"int", "int(object.digits) == 1", "conversion error"},
	{"double", "double(object.digits) == 1.0", "conversion error"},
	{"timestamp", "timestamp(object.digits).getHours() == 1", "conversion error"},
	{"duration", "duration(object.digits).getHours() == 1", "conversion error"},
	{"isIP", "isIP(object.digits)", ""},
	{"isCIDR", "isCIDR(object.digits)", ""},
	{"validate", "!format.dns1123Label().validate(object.text).hasValue()", bound},

	// Loops and literals.
	{"", "variables.l18.all(x, variables.l18.all(y, x == y))", bound},
	{"", "lists.range(30000).map(x, [x, " + strings.Repeat("1, ", 5000) + "1]).size() == 0", bound},
}

// bound stands for any of the bounds of an evaluation.
const bound = "a bound"

func isBound(err error) bool {
	text := errText(err)
	return errors.Is(err, ErrBudget) || slices.ContainsFunc([]string{errTimeUp.Error(), errMemory.Error(), "cost limit exceeded"},
		func(s string) bool { return strings.Contains(text, s) })
}

func attack(t *testing.T, s *Scope, expr string, want Want) error {
	t.Helper()
	p, err := s.Compile(expr, want)
	if err != nil {
		t.Fatal(err)
	}
	in := *attacked
	in.Turn = &deadline{1000}
	a := s.Bind(&in, &Budget{Remaining: MutationBudget})
	switch want {
	case Bool:
		_, err = p.Bool(t.Context(), a)
	case Object:
		_, err = p.Object(t.Context(), a)
	default:
		_, err = p.JSONPatch(t.Context(), a)
	}
	if a.made > MaxMemory+chargeStep && a.stop == nil {
		t.Errorf("%d bytes were made", a.made)
	}
	return err
}

func TestAttacks(t *testing.T) {
	hammer.Alone(t)
	s := unfolding(t, Vars{})
	for _, tt := range attacks {
		t.Run(tt.function+"/"+tt.expr[:min(40, len(tt.expr))], func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := attack(t, s, tt.expr, Bool)
			runtime.ReadMemStats(&after)
			t.Logf("%.2000v; %d MiB", err, (after.TotalAlloc-before.TotalAlloc)>>20)
			switch {
			case tt.outcome == bound && isBound(err):
			case tt.outcome == "" != (err == nil) || !strings.Contains(errText(err), tt.outcome):
				t.Errorf("error = %.2000v, want %q", err, tt.outcome)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 5*MaxMemory {
				t.Errorf("%d MiB were allocated", got>>20)
			}
		})
	}
}

// Results that unfold end at the weight of what they unfold to, also where they are
// only looked at.
func TestResultsThatUnfold(t *testing.T) {
	hammer.Alone(t)
	s := unfolding(t, Vars{})
	for _, tt := range []struct {
		want Want
		expr string
	}{
		{Object, "Object{spec: Object.spec{a: variables.v7}}"},
		{Object, "Object{spec: Object.spec{a: [dyn(variables.v7), dyn(timestamp(0))]}}"},
		{Object, "Object{spec: Object.spec{a: {'a': object, 'b': object, 'c': object}}}"},
		{Object, "Object{spec: Object.spec{a: object.list.map(x, object.mixed)}}"},
		{JSONPatch, "[JSONPatch{op: 'add', path: '/a', value: variables.v7}]"},
		{JSONPatch, "[JSONPatch{op: 'add', path: '/a', value: [dyn(variables.v7), dyn(timestamp(0))]}]"},
		{JSONPatch, "[JSONPatch{op: 'add', path: '/a', value: Object.a{b: variables.v7}}]"},
		{JSONPatch, "object.list.map(x, JSONPatch{op: 'add', path: '/a', value: object.list})"},
		{JSONPatch, "object.list.map(x, JSONPatch{op: 'add', path: object.text})"},
		{TypedPatch, "[JSONPatch{op: 'add', path: '/a', value: variables.v7}]"},
		{TypedPatch, "object.list.map(x, JSONPatch{op: 'add', path: '/a', value: object.list})"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := attack(t, s, tt.expr, tt.want)
		runtime.ReadMemStats(&after)
		if text := errText(err); !strings.Contains(text, tt.expr) || !strings.Contains(text, "3 MiB of JSON") {
			t.Errorf("%s: %.2000v", tt.expr, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > MaxMemory {
			t.Errorf("%s: %d MiB were allocated", tt.expr, got>>20)
		}
	}
	// What an evaluation of unfolding values compares ends with it.
	const equal = "[JSONPatch{op: 'add', path: '/a', value: variables.v7}] == [JSONPatch{op: 'add', path: '/a', value: variables.w7}] ? [JSONPatch{op: 'remove', path: '/a'}] : []"
	if err := attack(t, s, equal, JSONPatch); !isBound(err) {
		t.Errorf("%s: %v", equal, err)
	}
}

// What reads nothing is evaluated once for all, but on the account and in the turn of
// whoever comes first, and again if that one's time was up.
func TestConstantsAreBounded(t *testing.T) {
	hammer.Alone(t)
	s := unfolding(t, Vars{})
	const loops = "lists.range(500).all(x, lists.range(500).all(y, x + y >= 0))"
	p, err := s.Compile(loops, Bool)
	if err != nil {
		t.Fatal(err)
	}
	run := func(turns int) (took int, err error) {
		turn := &deadline{turns}
		_, err = p.Bool(t.Context(), s.Bind(&Input{Turn: turn}, &Budget{Remaining: MutationBudget}))
		return turns - turn.left, err
	}
	for range 2 {
		if _, err := run(3); !errors.Is(err, errTimeUp) {
			t.Errorf("error = %v, want %v", err, errTimeUp)
		}
	}
	if turns, err := run(1 << 30); !strings.Contains(errText(err), "cost limit exceeded") || turns < 100 {
		t.Errorf("error = %v after %d turns, want the cost limit and at least 100", err, turns)
	}
	if turns, err := run(0); !strings.Contains(errText(err), "cost limit exceeded") || turns != 0 {
		t.Errorf("error = %v after %d turns, want what is known", err, turns)
	}

	budget := memory.New(1 << 20)
	p, err = s.Compile("lists.range(900000).size() > 0", Bool)
	if err != nil {
		t.Fatal(err)
	}
	account := budget.Open()
	var refused *memory.Error
	if _, err := p.Bool(t.Context(), s.Bind(&Input{Memory: account}, nil)); !errors.As(err, &refused) || account.Refused() == nil {
		t.Errorf("error = %v, want one of the account", err)
	}
	account.Close()
	if ok, err := p.Bool(t.Context(), s.Bind(&Input{}, nil)); !ok || err != nil {
		t.Errorf("%v, %v, want true", ok, err)
	}
}

// To weigh a large result takes time, which ends as that of an evaluation does.
func TestWeighingEnds(t *testing.T) {
	for _, expr := range []string{"[JSONPatch{op: 'add', path: '/a', value: variables.v7}]", "[JSONPatch{op: 'add', path: '/a', value: [dyn(variables.v7), dyn(timestamp(0))]}]"} {
		s := unfolding(t, Vars{})
		p, err := s.Compile(expr, JSONPatch)
		if err != nil {
			t.Fatal(err)
		}
		in := *attacked
		in.Turn = &deadline{20}
		if _, err := p.JSONPatch(t.Context(), s.Bind(&in, nil)); !errors.Is(err, errTimeUp) {
			t.Errorf("%s: error = %v, want %v", expr, err, errTimeUp)
		}
	}
}

// unguarded are the functions that need no guard: they do the same work whatever they
// are given, or less than their cost tells.
var unguarded = []string{
	"!_", "-_", "@not_strictly_false", "_%_", "_&&_", "_*_", "_-_", "_/_", "_?._", "_?_:_", "_[?_]", "_[_]",
	"__not_strictly_false__", "_in_", "in", "_||_", "dyn", "type",
	"allowed", "check", "error", "errored", "group", "name", "namespace", "path", "reason", "resource", "serviceAccount", "subresource",
	"cel.@mapInsert", // of the turns of a loop
	"family", "isGlobalUnicast", "isLinkLocalMulticast", "isLinkLocalUnicast", "isLoopback", "isMask", "isUnspecified", "masked", "prefixLength",
	"first", "last",
	"format.byte", "format.date", "format.datetime", "format.dns1035Label", "format.dns1035LabelPrefix", "format.dns1123Label",
	"format.dns1123LabelPrefix", "format.dns1123Subdomain", "format.dns1123SubdomainPrefix", "format.labelValue",
	"format.qualifiedName", "format.uri", "format.uuid",
	"getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds",
	"getEscapedPath", "getHost", "getHostname", "getPort", "getScheme",
	"hasValue", "optional.none", "optional.of", "optional.ofNonZeroValue", "optional.unwrap", "or", "orValue", "unwrapOpt", "value",
	"major", "minor", "patch", "sign",
}

// Every function of every minor is guarded or needs no guard, so that a library that a
// new version brings is looked at.
func TestGuards(t *testing.T) {
	known := map[string]bool{}
	for _, minor := range []string{Nearest(oldestMinor), Nearest(newestMinor)} {
		env, err := NewEnv(Options{Version: minor})
		if err != nil {
			t.Fatal(err)
		}
		lang, err := env.language(Stored, true, true)
		if err != nil {
			t.Fatal(err)
		}
		for name := range lang.env.Functions() {
			known[name] = true
			if free := slices.Contains(unguarded, name); free == (guards[name] != nil) {
				t.Errorf("1.%s: %s is guarded: %v, and said to need no guard: %v", minor, name, !free, free)
			}
		}
	}
	for name := range guards {
		if !known[name] {
			t.Errorf("no minor has %s", name)
		}
	}
}

// What is done in steps gives what cel-go gives.
func TestGuardsAreExact(t *testing.T) {
	hammer.Alone(t)
	text := strings.Repeat("a", lightText) + "äb\xffc\n" + strings.Repeat("ab", lightText)
	for _, part := range []string{"b", "ab", "äb", "aa", "\xff", "c\na", strings.Repeat("ab", lightText), text, text + "a", "ba"} {
		for from := -1; from < 2*len(text); from += 171 {
			first, firstErr := indexOfOffset(text, part, from)
			last, lastErr := lastIndexOfOffset(text, part, from)
			s := testScope(t, Vars{}, nil)
			in := &Input{Object: map[string]any{"s": text, "part": part, "from": int64(from)}}
			for expr, want := range map[string]any{
				"string(object.s).indexOf(object.part, int(object.from))":     placeOrNil(first, firstErr),
				"string(object.s).lastIndexOf(object.part, int(object.from))": placeOrNil(last, lastErr),
			} {
				p, _, err := s.compile(expr, anything)
				if err != nil {
					t.Fatal(err)
				}
				got, _, err := p.run(started(t, s.Bind(in, nil)))
				if err != nil && want == nil {
					continue
				}
				if err != nil || got.Value() != want {
					t.Fatalf("%s with %.20q and %d: %v, %v, want %v", expr, part, from, got, err, want)
				}
			}
		}
	}
	for _, expr := range []string{`a|b`, `a*`, `(a*?)(b|)`, `\ba`, `(?m)^a|c$`, `^a`, `\Aa|b`, `b\B`, `(?i)A+`, `\Qab`, `[^a]`, `(?s).{3}`, ``, `ä|\xff`, `(a.*b)|a`, `x*$`, `\z`, `(?U)a+b`} {
		p := (*Activation)(nil).compile(expr)
		if p.err != nil {
			t.Fatal(p.err)
		}
		for _, s := range []string{text, "", "a", "\xff\xff", "ab\nab", "äöü", "aab b"} {
			for _, most := range []int{-1, 0, 1, 3} {
				if got, want := p.findAll(nil, s, most), p.regex.FindAllString(s, most); !slices.Equal(got, want) {
					t.Errorf("%s in %.20q: %.200q, want %.200q", expr, s, got, want)
				}
			}
		}
	}
}

func started(t *testing.T, a *Activation) *Activation {
	a.begin(t.Context())
	return a
}

func placeOrNil(n int, err error) any {
	if err != nil {
		return nil
	}
	return int64(n)
}

// indexOfOffset and lastIndexOfOffset are those of cel-go, ext/strings.go.
func indexOfOffset(s, part string, from int) (int, error) {
	runes, sub := []rune(s), []rune(part)
	if from < 0 {
		return -1, errTimeUp
	}
	if from >= len(runes) {
		return -1, nil
	}
	for i := from; i <= len(runes)-len(sub); i++ {
		if slices.Equal(runes[i:i+len(sub)], sub) {
			return i, nil
		}
	}
	return -1, nil
}

func lastIndexOfOffset(s, part string, from int) (int, error) {
	runes, sub := []rune(s), []rune(part)
	if from < 0 {
		return -1, errTimeUp
	}
	if from >= len(runes) {
		return -1, nil
	}
	for i := min(from, len(runes)-len(sub)); i >= 0; i-- {
		if slices.Equal(runes[i:i+len(sub)], sub) {
			return i, nil
		}
	}
	return -1, nil
}
