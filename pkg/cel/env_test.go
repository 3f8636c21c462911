package cel

import (
	"context"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

func TestNewEnv(t *testing.T) {
	tests := map[string]struct {
		version string
		err     string
	}{
		"newest by default":     {"", ""},
		"oldest":                {"1.32", ""},
		"newest":                {"1.37", ""},
		"before the first":      {"1.31", `kubernetes version "1.31": only 1.32 to 1.38 are known`},
		"after the last":        {"1.39", `kubernetes version "1.39": only 1.32 to 1.38 are known`},
		"a patch release":       {"1.37.1", `kubernetes version "1.37.1": want a minor such as "1.37"`},
		"two vs":                {"vv1.37", `kubernetes version "vv1.37": want a minor such as "1.37"`},
		"another major":         {"2.0", `kubernetes version "2.0": want a minor such as "1.37"`},
		"not quite the minor":   {"1.037", `kubernetes version "1.037": want a minor such as "1.37"`},
		"no minor":              {"1.", `kubernetes version "1.": want a minor such as "1.37"`},
		"something else":        {"latest", `kubernetes version "latest": want a minor such as "1.37"`},
		"a minor with a sign":   {"1.+37", `kubernetes version "1.+37": want a minor such as "1.37"`},
		"a minor out of bounds": {"1.99999999", `kubernetes version "1.99999999": want a minor such as "1.37"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := NewEnv(Options{Version: tt.version})
			if got := errText(err); got != tt.err {
				t.Errorf("NewEnv(%q) error = %q, want %q", tt.version, got, tt.err)
			}
		})
	}
}

// TestVersions holds spec §6.2: what the minor before knew for new
// expressions, what the minor knows for stored ones.
func TestVersions(t *testing.T) {
	const stored, fresh, both, none = "stored", "new", "stored new", ""
	tests := map[string]struct {
		expr string
		at   map[string]string // minor → modes that accept it
	}{
		"includes": {"[1].includes(1)", map[string]string{"1.38": both, "1.37": stored, "1.36": none}},
		"isMask":   {"cidr('10.0.0.0/8').isMask()", map[string]string{"1.38": stored, "1.37": none}},
		"lists v3": {"[1].sort() == [1]", map[string]string{"1.37": both, "1.35": both, "1.34": stored, "1.33": none}},
		"semver":   {"isSemver('1.2.3')", map[string]string{"1.34": both, "1.33": stored, "1.32": none}},
		"two variables": {"[1].all(i, v, i < v)", map[string]string{
			"1.33": both, "1.32": stored}},
		"format":           {"format.dns1123Label().validate('a') == optional.none()", map[string]string{"1.32": both, "1.37": both}},
		"ip":               {"isIP('1.2.3.4')", map[string]string{"1.32": both, "1.37": both}},
		"sets":             {"sets.contains([1], [1])", map[string]string{"1.32": both, "1.37": both}},
		"quantity":         {"isQuantity('1')", map[string]string{"1.32": both}},
		"cross-type":       {"1 < 2.5", map[string]string{"1.32": both}},
		"authz selectors":  {"authorizer.group('').resource('pods').labelSelector('a').check('get').allowed()", map[string]string{"1.32": both}},
		"cel.bind":         {"cel.bind(x, 1, x == 1)", map[string]string{"1.32": none, "1.37": none}},
		"math":             {"math.greatest(1, 2) == 2", map[string]string{"1.37": none}},
		"base64":           {"base64.encode(b'a') == 'YQ=='", map[string]string{"1.37": none}},
		"string reverse":   {"'ab'.reverse() == 'ba'", map[string]string{"1.37": none}},
		"regex extension":  {"regex.extract('a', 'a').hasValue()", map[string]string{"1.37": none}},
		"bad duration":     {"duration('x') == duration('1s')", map[string]string{"1.32": none, "1.37": none}},
		"bad timestamp":    {"timestamp('x') == timestamp('y')", map[string]string{"1.37": none}},
		"bad regex":        {"'a'.matches('(')", map[string]string{"1.37": none}},
		"mixed list":       {"[1, 'a'].size() == 2", map[string]string{"1.37": none}},
		"mixed map":        {"{'a': 1, 'b': 'c'}.size() == 2", map[string]string{"1.37": none}},
		"mixed with dyn":   {"[dyn(1), dyn('a')].size() == 2", map[string]string{"1.37": both}},
		"dyn is not bool":  {"object.x", map[string]string{"1.37": none}},
		"no patch types":   {"Object{} == Object{}", map[string]string{"1.37": none}},
		"no escapeKey":     {"jsonpatch.escapeKey('/') == '~1'", map[string]string{"1.37": none}},
		"no variables":     {"variables.x == 1", map[string]string{"1.37": none}},
		"no params":        {"params == null", map[string]string{"1.37": none}},
		"request.uid":      {"request.uid == ''", map[string]string{"1.37": none}},
		"namespace uid":    {"namespaceObject.metadata.uid == ''", map[string]string{"1.37": none}},
		"namespace UID":    {"namespaceObject.metadata.UID == ''", map[string]string{"1.37": both}},
		"reserved as name": {"request.namespace == ''", map[string]string{"1.32": both, "1.37": both}},
	}
	for name, tt := range tests {
		for minor, want := range tt.at {
			t.Run(name+" "+minor, func(t *testing.T) {
				env, err := NewEnv(Options{Version: minor})
				if err != nil {
					t.Fatal(err)
				}
				var accepted []string
				for mode, word := range []string{Stored: stored, New: fresh} {
					if _, err := env.Scope(Vars{Mode: Mode(mode)}).Compile(tt.expr, Bool); err == nil {
						accepted = append(accepted, word)
					}
				}
				if got := strings.Join(accepted, " "); got != want {
					t.Errorf("%s: %q is accepted as %q, want %q", minor, tt.expr, got, want)
				}
			})
		}
	}
}

// TestLibraries fixes a value and a cost for every group of functions. The
// differential test would follow an upstream that changes; this one tells.
func TestLibraries(t *testing.T) {
	tests := map[string]struct {
		expr string
		want string
		cost int64
	}{
		"constant":    {"1", "1", 0},
		"select":      {"object.metadata.name", "web", 3},
		"has":         {"has(object.metadata.name)", "true", 2},
		"arithmetic":  {"object.spec.replicas + 1", "4", 4},
		"strings":     {"'a,b'.split(',')[1].upperAscii()", "B", 4},
		"format":      {"'%d'.format([1])", "1", 1},
		"matches":     {"'abc'.matches('^a')", "true", 1},
		"find":        {"'a1'.find('[0-9]')", "1", 2},
		"lists":       {"[3, 1].min()", "1", 2},
		"lists v3":    {"[3, 1].sort()[0]", "1", 21},
		"includes":    {"[1, 2].includes(2)", "true", 2},
		"sets":        {"sets.contains([1, 2], [1])", "true", 3},
		"quantity":    {"quantity('1Ki').asInteger()", "1024", 2},
		"url":         {"url('https://h/p').getHost()", "h", 3},
		"ip":          {"ip('10.0.0.1').family()", "4", 2},
		"cidr":        {"cidr('10.0.0.0/8').prefixLength()", "8", 2},
		"formats":     {"format.dns1123Label().validate('a').hasValue()", "false", 10},
		"semver":      {"semver('1.2.3').major()", "1", 2},
		"two vars":    {"{'a': 1}.transformMap(k, v, v + 1)['a']", "2", 8},
		"optionals":   {"object.?x.orValue(7)", "7", 1},
		"authz":       {"authorizer.path('/a').check('get').allowed()", "true", 350003},
		"map":         {"object.spec.template.spec.containers.map(c, c.name).size()", "2", 35},
		"timestamp":   {"timestamp('2026-01-02T03:04:05Z').getFullYear()", "2026", 1},
		"request":     {"request.operation", "CREATE", 2},
		"params":      {"params.data.team", "blue", 3},
		"namespace":   {"namespaceObject.metadata.name", "shop", 3},
		"regex built": {"'abc'.matches('^' + 'a')", "true", 2},
	}
	w := testWorld(t)
	s := testScope(t, Vars{Params: true}, nil)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := s.Compile(tt.expr, anything)
			if err != nil {
				t.Fatal(err)
			}
			b := &Budget{Remaining: MutationBudget}
			got, err := run(p, context.Background(), s.Bind(w.input(), b))
			if err != nil {
				t.Fatal(err)
			}
			if text := got.(ref.Val).ConvertToType(types.StringType); text != types.String(tt.want) {
				t.Errorf("%s = %v, want %v", tt.expr, text, tt.want)
			}
			if cost := MutationBudget - b.Remaining; cost != tt.cost {
				t.Errorf("%s costs %d, want %d", tt.expr, cost, tt.cost)
			}
		})
	}
}
