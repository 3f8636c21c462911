package translate_test

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/layout"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/direct"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// A file of testdata/runtime holds mutators and the programs that mapd runs for
// them. What servers would say of the policies is asked too, and that they do to
// generated objects what the direct interpreter does.
func TestRuntime(t *testing.T) {
	hammer.Alone(t)
	files, err := filepath.Glob("testdata/runtime/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/runtime: %d files, %v", len(files), err)
	}
	env := mustEnv(t, "")
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			g := readGolden(t, file)
			ms, _, options := g.units(t)
			want := map[string]string{}
			for _, m := range ms {
				b := translate.Runtime(m, translate.ShapeOf(m))
				want["want/"+strings.ToLower(m.ID())] = programs(t, b)
				validate(t, m, b)
				agreesWithDirect(t, env, m, options.Types)
			}
			if *update {
				g.write(t, file, want)
			} else if diff := cmp.Diff(g.wanted(), want); diff != "" {
				t.Errorf("Runtime() (-want +got):\n%s", diff)
			}
		})
	}
}

func mustEnv(t testing.TB, version string) *cel.Env {
	env, err := cel.NewEnv(cel.Options{Version: version})
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// programs is what a golden file shows of a policy, laid out.
func programs(t *testing.T, b *admissionregistrationv1.MutatingAdmissionPolicy) string {
	t.Helper()
	var s strings.Builder
	format := func(expression string) string {
		text, err := layout.Format(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
		}
		return text
	}
	for _, c := range b.Spec.MatchConditions {
		fmt.Fprintf(&s, "# %s\n%s\n\n", c.Name, format(c.Expression))
	}
	for _, m := range b.Spec.Mutations {
		fmt.Fprintf(&s, "%s\n", format(m.JSONPatch.Expression))
	}
	return s.String()
}

// validate asks what servers say: the first that serve policies as v1 beta, those
// that serve them as v1, and the newest.
func validate(t *testing.T, m *legacy.Mutator, b *admissionregistrationv1.MutatingAdmissionPolicy) {
	t.Helper()
	for _, version := range []string{"1.35", "1.36", "1.37"} {
		if errs := policy.Validate(b, mustEnv(t, version)); len(errs) > 0 {
			t.Errorf("%s: kubernetes %s: %v", m.ID(), version, errs)
		}
	}
	if _, err := policy.Compile(b, policy.Deps{Env: mustEnv(t, "1.34")}); err != nil {
		t.Errorf("%s: kubernetes 1.34: %v", m.ID(), err)
	}
	for _, line := range strings.Split(programs(t, b), "\n") {
		if n := len([]rune(line)); n > 100 && !strings.Contains(line, `path: "`) {
			t.Errorf("%s: a line of %d columns: %s", m.ID(), n, line)
		}
	}
}

// agreesWithDirect runs a mutator once, alone, on generated objects.
func agreesWithDirect(t *testing.T, env *cel.Env, m *legacy.Mutator, types *openapi.Types) {
	t.Helper()
	n := hammer.Count(100)
	program, err := policy.CompileLenient(translate.Runtime(m, translate.ShapeOf(m)), policy.Deps{Env: env})
	if err != nil {
		t.Errorf("%s: %v", m.ID(), err)
		return
	}
	for _, o := range verify.Generate([]*legacy.Mutator{m}, types, verify.DefaultSeed, n) {
		if d := difference(program, m, plain(o.Object).(map[string]any)); d != "" {
			t.Errorf("%s: %s", m.ID(), d)
			return
		}
	}
}

// plain is v with empty lists where there are nil ones, which JSON lacks.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = plain(e)
		}
	case []any:
		if v == nil {
			return []any{}
		}
		for i, e := range v {
			v[i] = plain(e)
		}
	}
	return v
}

// difference returns how a program and the direct interpreter disagree on an
// object, "" if they do not.
func difference(program *policy.Policy, m *legacy.Mutator, object map[string]any) string {
	before := unstructured.Unstructured{Object: object}
	obj := before.DeepCopy()
	if obj.GetKind() == "Namespace" {
		obj.SetNamespace("")
	}
	if !m.AppliesTo(obj.GroupVersionKind(), "CREATE") || !m.Match.OfRequests() {
		return "" // found out in Go
	}
	m = careful(m)
	c := direct.Context{Operation: "CREATE", Source: "Original", UID: "0"}
	wantMatch, err := direct.Matches(withoutNamespaceSelector(m), obj.Object, c)
	if err != nil {
		return fmt.Sprintf("direct.Matches(%v): %v", obj.Object, err)
	}
	in := policy.Input{
		Request: &policy.Request{Operation: admissionv1.Create, Kind: obj.GroupVersionKind(), Namespace: namespaceOf(obj)},
		Object:  obj, Params: &unstructured.Unstructured{Object: m.Object},
	}
	match, err := program.Matches(context.Background(), in)
	if err != nil || match.OK != wantMatch {
		return fmt.Sprintf("matches %v: %v (%s), %v; want %v", obj.Object, match.OK, match.Condition, err, wantMatch)
	}
	if !wantMatch {
		return ""
	}
	want, _, wantErr := direct.Apply(m, obj.Object, c)
	got, err := program.Mutations()[0].Mutate(context.Background(), in)
	switch {
	case (err == nil) != (wantErr == nil):
		return fmt.Sprintf("%v: error %v, want %v", obj.Object, err, wantErr)
	case err == nil && !reflect.DeepEqual(got.Object, want):
		return fmt.Sprintf("%v (-want +got):\n%s", obj.Object, cmp.Diff(want, got.Object))
	}
	return ""
}

// namespaceOf is the namespace of a request for an object: for a Namespace a
// server says that it is in itself.
func namespaceOf(obj *unstructured.Unstructured) string {
	if obj.GetKind() == "Namespace" && obj.GetAPIVersion() == "v1" {
		return obj.GetName()
	}
	return obj.GetNamespace()
}

// careful lets a prune touch nothing where nothing is, which is what mapd does
// otherwise than Gatekeeper (Gatekeeper spec §13, T21).
func careful(m *legacy.Mutator) *legacy.Mutator {
	if m.Set == nil || !m.Set.Prune {
		return m
	}
	c := *m
	last := len(m.Location) - 1
	condition, tested := m.Test(last)
	if tested && condition != legacy.MustExist {
		condition = "Never"
	} else {
		condition = legacy.MustExist
	}
	c.Tests = slices.DeleteFunc(slices.Clone(m.Tests), func(t legacy.PathTest) bool { return t.Depth == last })
	c.Tests = append(c.Tests, legacy.PathTest{Depth: last, Condition: condition})
	return &c
}

// withoutNamespaceSelector leaves out what the engine asks a Namespace for.
func withoutNamespaceSelector(m *legacy.Mutator) *legacy.Mutator {
	c := *m
	c.Match.NamespaceSelector = nil
	return &c
}
