package quick_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/test/hammer"
)

// overload is one way to call a function.
type overload struct {
	function, id string
	member       bool
	args         []*types.Type
}

// inMacros are functions that only macros call; the last two are old names of @in.
var inMacros = []string{"@not_strictly_false", "__not_strictly_false__", "@sortByAssociatedKeys", "cel.@mapInsert", "_in_", "in"}

// overloads are all of a server's environment, in order.
var overloads = func() (all []overload) {
	functions := serverEnv().Functions()
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if slices.Contains(inMacros, name) {
			continue
		}
		for _, o := range functions[name].OverloadDecls() {
			all = append(all, overload{name, o.ID(), o.IsMemberFunction(), o.ArgTypes()})
		}
	}
	slices.SortFunc(all, func(a, b overload) int { return cmp.Or(cmp.Compare(a.function, b.function), cmp.Compare(a.id, b.id)) })
	return all
}()

// values are of types that data does not have.
var values = map[string][]string{
	"double": {"1.5", "double(object.n)", "-0.0"}, "uint": {"3u", "uint(object.n)"}, "bytes": {`b"a"`, "bytes(object.s)"},
	"google.protobuf.Timestamp": {`timestamp("2026-01-02T03:04:05Z")`, "timestamp(object.s)"},
	"google.protobuf.Duration":  {`duration("90s")`, "duration(object.s)"},
	"kubernetes.URL":            {`url("https://a:1/b?c=d")`, "url(object.s)"},
	"kubernetes.Quantity":       {`quantity("1Gi")`, "quantity(object.s)"},
	"kubernetes.Semver":         {`semver("1.2.3")`, "semver(object.s)"},
	"kubernetes.NamedFormat":    {"format.dns1123Label()"},
	"net.IP":                    {`ip("10.0.0.1")`, "ip(object.s)"},
	"net.CIDR":                  {`cidr("10.0.0.0/8")`, "cidr(object.s)"},

	"kubernetes.authorization.Authorizer":    {"authorizer"},
	"kubernetes.authorization.PathCheck":     {`authorizer.path("/a")`},
	"kubernetes.authorization.GroupCheck":    {`authorizer.group("apps")`},
	"kubernetes.authorization.ResourceCheck": {`authorizer.group("").resource("pods")`, "authorizer.requestResource"},
	"kubernetes.authorization.Decision":      {`authorizer.path("/a").check("get")`},
}

// ofType writes an expression of a type, "" if it knows none. Parameters of types are
// string.
func (w *writer) ofType(t *types.Type) string {
	switch t.Kind() {
	case types.BoolKind:
		return w.boolean()
	case types.IntKind:
		return w.exactly(ints)
	case types.StringKind, types.TypeParamKind:
		return w.exactly(texts)
	case types.DynKind:
		return "dyn(" + w.any() + ")"
	case types.ListKind:
		element := w.ofType(t.Parameters()[0])
		if element == "" || w.one(4) {
			return element
		}
		return "[" + element + "]"
	case types.MapKind:
		return `{"s": ` + w.exactly(texts) + "}"
	case types.OpaqueKind:
		if t.TypeName() != types.OptionalType.TypeName() {
			break
		}
		if of := w.ofType(t.Parameters()[0]); of != "" {
			return w.choose("optional.of("+of+")", w.optional(texts), w.optional(textLists))
		}
	}
	if of := values[t.TypeName()]; of != nil {
		return w.choose(of...)
	}
	return ""
}

// call writes a call, "" if it does not know the type of an operand. One operand in
// some is dyn, so that cel-go finds the overload when it evaluates.
func (w *writer) call(o overload) string {
	args := make([]string, len(o.args))
	for i, t := range o.args {
		if args[i] = w.ofType(t); args[i] == "" {
			return ""
		}
		if w.one(4) {
			args[i] = "dyn(" + args[i] + ")"
		}
	}
	switch o.function {
	case "_?_:_":
		return fmt.Sprintf("(%s ? %s : %s)", args[0], args[1], args[2])
	case "_[_]":
		return fmt.Sprintf("%s[%s]", args[0], args[1])
	case "_[?_]":
		return fmt.Sprintf("%s[?%s]", args[0], args[1])
	case "_?._":
		return args[0] + ".?s"
	case "@in":
		return fmt.Sprintf("(%s in %s)", args[0], args[1])
	case "!_", "-_":
		return "(" + o.function[:1] + args[0] + ")"
	}
	switch operator := strings.Trim(o.function, "_"); {
	case operator != o.function:
		return "(" + args[0] + " " + operator + " " + args[1] + ")"
	case o.member:
		return args[0] + "." + o.function + "(" + strings.Join(args[1:], ", ") + ")"
	}
	return o.function + "(" + strings.Join(args, ", ") + ")"
}

// macro writes a macro with so many arguments, "" if it does not know it.
func (w *writer) macro(name string, args int) string {
	predicate, value, variables := w.boolean(), w.exactly(texts), "i, x"
	over := w.exactly(textLists)
	var body []string
	switch name {
	case "has":
		return "has(" + w.root() + ".s)"
	case "all", "exists", "exists_one", "existsOne", "filter":
		body = []string{predicate}
	case "map":
		body = []string{predicate, value}[3-args:]
	case "sortBy":
		body = []string{w.choose("x", "size(x)", value)}
	case "optMap", "optFlatMap":
		over, body = w.optional(texts), []string{value}
		if name == "optFlatMap" {
			body = []string{w.optional(texts)}
		}
	case "transformList", "transformMap":
		body = []string{predicate, value}[4-args:]
	case "transformMapEntry":
		body = []string{predicate, "{" + w.choose("i", "string(i)") + ": " + value + "}"}[4-args:]
	default:
		return ""
	}
	if args == len(body)+1 {
		variables = "x"
	}
	return over + "." + name + "(" + variables + ", " + strings.Join(body, ", ") + ")"
}

// anyCall writes a call or macro of a server's environment, whether package quick takes
// it or not.
func (w *writer) anyCall() string {
	if macros := serverEnv().Macros(); w.one(4) {
		m := macros[w.IntN(len(macros))]
		return w.macro(m.Function(), m.ArgCount())
	}
	return w.call(overloads[w.IntN(len(overloads))])
}

// The writer knows all functions and macros of a server's environment: each can be
// compiled as it writes them.
func TestWriterKnowsAll(t *testing.T) {
	hammer.Alone(t)
	scope := environments(t)[0].Scope(cel.Vars{Params: true})
	compiles := func(write func(w *writer) string) (last string, err error) {
		for seed := range uint64(60) {
			last = write(&writer{Rand: rand.New(rand.NewPCG(seed, 1)), depth: 6, patches: true})
			if _, err = scope.Compile(`[JSONPatch{op: "add", path: "/a", value: `+last+"}]", cel.JSONPatch); last == "" || err == nil {
				break
			}
		}
		return last, err
	}
	for _, o := range overloads {
		if expr, err := compiles(func(w *writer) string { return w.call(o) }); err != nil {
			t.Errorf("%s of %s, as in %q: %v", o.id, o.function, expr, err)
		}
	}
	for _, m := range serverEnv().Macros() {
		if expr, err := compiles(func(w *writer) string { return w.macro(m.Function(), m.ArgCount()) }); err != nil {
			t.Errorf("macro %s of %d arguments, as in %q: %v", m.Function(), m.ArgCount(), expr, err)
		}
	}
}
