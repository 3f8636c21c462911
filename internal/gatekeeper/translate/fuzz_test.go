package translate_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// Places for strings in locations: F is a field, K a key, both as they are quoted.
var places = []struct{ group, kind, location string }{
	{"ex.io", "Thing", `spec.F`},
	{"ex.io", "Thing", `spec.F.F`},
	{"ex.io", "Thing", `spec.l[F: K].F`},
	{"ex.io", "Thing", `spec.F[name: *].F`},
	{"ex.io", "Thing", `spec.F[F: K].l[F: *].a`},
	{"ex.io", "Thing", `spec.l[F: K]`},
	{"", "Pod", `spec.nodeSelector.F`},
	{"", "Pod", `spec.containers[name: K].workingDir`},
	{"", "Pod", `spec.containers[name: *].env[name: K].value`},
	{"", "Pod", `spec.tolerations[key: K]`},
	{"", "Pod", `spec.hostAliases[ip: K].hostnames`},
	{"apps", "Deployment", `spec.template.metadata.annotations.F`},
	{"", "ConfigMap", `data.F`},
}

// said is a mutator with strings wherever it may have some. choice decides which
// kind and place it has and what it asks for.
func said(choice uint32, field, key, value string) *unstructured.Unstructured {
	pick := func(n int) int {
		i := int(choice) % n
		choice /= uint32(n)
		return i
	}
	kind := pick(4)
	at := places[pick(len(places))]
	location := strings.ReplaceAll(strings.ReplaceAll(at.location, "F", quoted(field)), "K", quoted(key))
	parameters := map[string]any{}
	match := map[string]any{}
	m := map[string]any{
		"apiVersion": "mutations.gatekeeper.sh/v1", "kind": "Assign", "metadata": map[string]any{"name": value},
		"spec": map[string]any{
			"applyTo":  []any{map[string]any{"groups": []any{at.group}, "versions": []any{"v1"}, "kinds": []any{at.kind}}},
			"location": location, "parameters": parameters, "match": match,
		},
	}
	spec := m["spec"].(map[string]any)
	if pick(2) == 1 {
		parameters["pathTests"] = []any{map[string]any{"subPath": location, "condition": []string{"MustExist", "MustNotExist"}[pick(2)]}}
	}
	switch pick(4) {
	case 1:
		match["labelSelector"] = map[string]any{"matchLabels": map[string]any{field: value}}
	case 2:
		match["namespaces"], match["excludedNamespaces"] = []any{key}, []any{"x-*", value}
	case 3:
		match["name"] = value + "*"
	}
	switch kind {
	case 0:
		parameters["assign"] = map[string]any{"value": []any{value, map[string]any{field: value}, []any{value}, map[string]any{"name": key, "key": key, field: key}}[pick(4)]}
	case 1:
		m["kind"] = "ModifySet"
		parameters["operation"] = []string{"merge", "prune"}[pick(2)]
		parameters["values"] = map[string]any{"fromList": []any{value, value + "+", map[string]any{field: value}}[pick(3):]}
	case 2:
		m["kind"], m["apiVersion"] = "AssignImage", "mutations.gatekeeper.sh/v1alpha1"
		parameters["assignDomain"], parameters["assignPath"] = "my.reg", value
	case 3:
		m["kind"] = "AssignMetadata"
		delete(spec, "applyTo")
		delete(parameters, "pathTests")
		spec["location"] = "metadata." + []string{"labels", "annotations"}[pick(2)] + "." + quoted(field)
		match["kinds"] = []any{map[string]any{"apiGroups": []any{at.group}, "kinds": []any{at.kind}}}
		parameters["assign"] = map[string]any{"value": value}
	}
	return &unstructured.Unstructured{Object: m}
}

func quoted(s string) string { return strconv.Quote(s) }

func fuzzSeeds(f *testing.F) {
	texts := []string{"a", `"`, `\`, `"]}+x("`, "a\nb", "~1/0~", "a/b", "é\u2028世", "'''", "`", "${x}", "in", "true", "*", "-", "0", "//", `\u0022`, "object.spec"}
	for i, s := range texts {
		for choice := range uint32(hammer.Count(8)) {
			f.Add(choice*2654435+uint32(i), s, texts[(i+1)%len(texts)], texts[(i+2)%len(texts)])
		}
	}
}

// fuzzTypes are the built-in kinds and one without a schema.
func fuzzTypes(tb testing.TB) *openapi.Types {
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "things.ex.io"},
		"spec": map[string]any{"group": "ex.io", "scope": "Namespaced", "names": map[string]any{"kind": "Thing", "plural": "things"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}},
	}}
	custom, err := openapi.CRDs(crd)
	if err != nil {
		tb.Fatal(err)
	}
	return openapi.New(openapi.Builtin(), custom)
}

// forms are all the ways in which a mutator is translated. A mutator whose policy
// has another reason not to be made has none in that form.
func forms(m *legacy.Mutator, types *openapi.Types) map[string]*admissionregistrationv1.MutatingAdmissionPolicy {
	out := map[string]*admissionregistrationv1.MutatingAdmissionPolicy{"runtime": translate.Runtime(m, translate.ShapeOf(m))}
	for name, o := range map[string]translate.Options{
		"auto": {}, "json": {Patch: "json"}, "apply": {Patch: "apply"}, "readable": {Readable: true}, "params": {Params: true},
	} {
		o.Types = types
		for _, u := range translate.Native([]*legacy.Mutator{m}, o) {
			if u.Policy != nil {
				out[name] = u.Policy
			}
		}
	}
	return out
}

// Whatever mutator is accepted, the policies made of it are valid, compile, and
// can be written to a file.
func FuzzTranslate(f *testing.F) {
	hammer.Alone(f)
	fuzzSeeds(f)
	types := fuzzTypes(f)
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, choice uint32, field, key, value string) {
		if !utf8.ValidString(field + key + value) {
			return // no JSON holds such strings
		}
		m, err := legacy.Decode(said(choice, field, key, value))
		if err != nil {
			return
		}
		for name, p := range forms(m, types) {
			p = defaulted(t, p)
			if errs := policy.Validate(p, env); len(errs) > 0 {
				t.Fatalf("%s: %v\n%s", name, errs.ToAggregate(), strings.Join(sources(p), "\n"))
			}
			if _, err := policy.Compile(p, policy.Deps{Env: env, Types: types}); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, strings.Join(sources(p), "\n"))
			}
		}
		for _, file := range migrate.Files(translate.Native([]*legacy.Mutator{m}, translate.Options{Types: types}), "") {
			if got := len(documents(t, string(file.Data))); got != 2 {
				t.Fatalf("the file has %d documents\n%s", got, file.Data)
			}
		}
	})
}

// defaulted is a policy as a server has it.
func defaulted(t *testing.T, p *admissionregistrationv1.MutatingAdmissionPolicy) *admissionregistrationv1.MutatingAdmissionPolicy {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		t.Fatal(err)
	}
	out, err := policy.Decode(&unstructured.Unstructured{Object: content})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sources are the expressions of a policy, in order.
func sources(p *admissionregistrationv1.MutatingAdmissionPolicy) []string {
	var out []string
	for _, c := range p.Spec.MatchConditions {
		out = append(out, c.Expression)
	}
	for _, v := range p.Spec.Variables {
		out = append(out, v.Expression)
	}
	for _, m := range p.Spec.Mutations {
		if m.JSONPatch != nil {
			out = append(out, m.JSONPatch.Expression)
		} else {
			out = append(out, m.ApplyConfiguration.Expression)
		}
	}
	return out
}

// A location, a key, a name or a value is never more than a string: programs have
// the structure that they have with harmless ones.
func FuzzInjection(f *testing.F) {
	hammer.Alone(f)
	fuzzSeeds(f)
	types := fuzzTypes(f)
	env, err := celgo.NewEnv(celgo.ClearMacros(), celgo.OptionalTypes(), celgo.EnableIdentifierEscapeSyntax())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, choice uint32, field, key, value string) {
		for _, s := range []string{field, key, value} {
			// These are meant to be something else: patterns, indexes, nothing.
			if _, err := strconv.Atoi(s); err == nil || s == "" || s == "-" || strings.Contains(s, "*") || !utf8.ValidString(s) {
				return
			}
		}
		if field == "name" || field == "key" || field == key || key == value || field == "a" || field == "l" {
			return
		}
		m, err := legacy.Decode(said(choice, field, key, value))
		if err != nil {
			return
		}
		like := func(s, harmless string) string {
			if len(validation.IsValidLabelValue(s)) > 0 {
				harmless += "/" + harmless // a selector of namespaces cannot have it either
			}
			return harmless
		}
		harmless, err := legacy.Decode(said(choice, "f", like(key, "k"), like(value, "v")))
		if err != nil {
			t.Fatalf("f, k and v are refused, and %q, %q, %q are not: %v", field, key, value, err)
		}
		got, want := forms(m, types), forms(harmless, types)
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if want[name] == nil {
				continue // a place that only the other one has
			}
			hostile, plain := structures(t, env, got[name]), structures(t, env, want[name])
			if d := cmp.Diff(plain, hostile); d != "" {
				t.Fatalf("%s: another structure than with harmless strings (-harmless +hostile):\n%s\n%s", name, d, strings.Join(sources(got[name]), "\n"))
			}
		}
	})
}

// structures are the structures of the expressions of a policy, with those of variables
// in their place: only a long value becomes a variable.
func structures(t *testing.T, env *celgo.Env, p *admissionregistrationv1.MutatingAdmissionPolicy) []string {
	var out []string
	variables := map[string]string{}
	for i, source := range sources(p) {
		parsed, issues := env.Parse(source)
		if issues.Err() != nil {
			t.Fatalf("%v\n%s", issues.Err(), source)
		}
		text := namer{map[string]string{}, variables}.skeleton(parsed.NativeRep().Expr())
		if i -= len(p.Spec.MatchConditions); 0 <= i && i < len(p.Spec.Variables) {
			variables[p.Spec.Variables[i].Name] = text
		} else {
			out = append(out, text)
		}
	}
	return out
}

// namer numbers the variables of loops, which are named after fields, as they come.
type namer struct {
	loops, variables map[string]string // variables has skeletons
}

func (n namer) name(ident string) string {
	if len(ident) > 1 && strings.Trim(ident, "x") != "" {
		return ident
	}
	if _, ok := n.loops[ident]; !ok {
		n.loops[ident] = fmt.Sprintf("$%d", len(n.loops))
	}
	return n.loops[ident]
}

// isVariable reports whether e is a variable of the policy, or a sum with one.
func (n namer) isVariable(e ast.Expr) bool {
	switch e.Kind() {
	case ast.SelectKind:
		of := e.AsSelect().Operand()
		return of.Kind() == ast.IdentKind && of.AsIdent() == "variables"
	case ast.CallKind:
		return e.AsCall().FunctionName() == operators.Add && slices.ContainsFunc(e.AsCall().Args(), n.isVariable)
	}
	return false
}

// skeleton writes an expression without its strings. A field has two spellings,
// and so has the question whether it is there.
func (n namer) skeleton(e ast.Expr) string {
	list := func(es []ast.Expr) string {
		var parts []string
		for _, e := range es {
			parts = append(parts, n.skeleton(e))
		}
		return strings.Join(parts, ", ")
	}
	switch e.Kind() {
	case ast.LiteralKind:
		if _, ok := e.AsLiteral().Value().(string); ok {
			return "S"
		}
		return fmt.Sprint(e.AsLiteral().Value())
	case ast.IdentKind:
		return n.name(e.AsIdent())
	case ast.SelectKind:
		if n.isVariable(e) {
			return n.variables[e.AsSelect().FieldName()]
		}
		return n.skeleton(e.AsSelect().Operand()) + "[S]"
	case ast.CallKind:
		c := e.AsCall()
		switch {
		case c.FunctionName() == operators.Add && list(c.Args()) == "S, S" && (n.isVariable(c.Args()[0]) || n.isVariable(c.Args()[1])):
			return "S" // as one constant
		case c.FunctionName() == "has":
			return "in(S, " + n.skeleton(c.Args()[0].AsSelect().Operand()) + ")"
		case c.FunctionName() == "@in":
			return "in(" + list(c.Args()) + ")"
		case c.FunctionName() == "_[_]":
			return n.skeleton(c.Args()[0]) + "[" + n.skeleton(c.Args()[1]) + "]"
		case c.FunctionName() == "_?._", c.FunctionName() == "_[?_]":
			return n.skeleton(c.Args()[0]) + "[?" + n.skeleton(c.Args()[1]) + "]"
		case c.IsMemberFunction():
			return n.skeleton(c.Target()) + "." + c.FunctionName() + "(" + list(c.Args()) + ")"
		}
		return c.FunctionName() + "(" + list(c.Args()) + ")"
	case ast.ListKind:
		return "[" + list(e.AsList().Elements()) + "]"
	case ast.MapKind:
		var parts []string
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, n.skeleton(entry.AsMapEntry().Key())+": "+n.skeleton(entry.AsMapEntry().Value()))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case ast.StructKind:
		var parts []string
		for _, entry := range e.AsStruct().Fields() {
			parts = append(parts, n.skeleton(entry.AsStructField().Value()))
		}
		slices.Sort(parts)
		return "T{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(e.Kind())
}
