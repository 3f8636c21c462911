package cel

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// The names and types of names.go are the server's.
func TestNamesAreTheServers(t *testing.T) {
	ours := []string{objectName, oldObjectName, paramsName, requestName, namespaceName, authzName, resourceName, variablesName}
	theirs := []string{
		plugincel.ObjectVarName, plugincel.OldObjectVarName, plugincel.ParamsVarName, plugincel.RequestVarName,
		plugincel.NamespaceVarName, plugincel.AuthorizerVarName, plugincel.RequestResourceAuthorizerVarName, plugincel.VariableVarName,
	}
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("names (-server +mapd):\n%s", diff)
	}
	for _, pair := range [][2]*apiservercel.DeclType{
		{plugincel.BuildRequestType(), requestType},
		{plugincel.BuildNamespaceType(), namespaceType},
	} {
		if diff := cmp.Diff(describe(pair[0]), describe(pair[1])); diff != "" {
			t.Errorf("%s (-server +mapd):\n%s", pair[0].TypeName(), diff)
		}
	}
}

// describe returns a type with all the types that it is made of, as plain data.
func describe(t *apiservercel.DeclType) map[string]any {
	out := map[string]any{"name": t.TypeName(), "cel": t.CelType().String(), "max": fmt.Sprint(t.MaxElements)}
	for name, f := range t.Fields {
		out["field "+name] = map[string]any{"name": f.Name, "required": f.Required, "enum": fmt.Sprint(f.EnumValues()), "type": describe(f.Type)}
	}
	if t.KeyType != nil {
		out["key"] = describe(t.KeyType)
	}
	if t.ElemType != nil {
		out["element"] = describe(t.ElemType)
	}
	return out
}

// The environment of each minor has what the server's has: libraries with their
// versions, functions with their overloads, macros, variables, validators and
// settings.
func TestEnvironmentsAreTheServers(t *testing.T) {
	for minor := uint(oldestMinor - 1); minor <= newestMinor; minor++ {
		t.Run(fmt.Sprintf("1.%d", minor), func(t *testing.T) {
			set, err := environment.MustBaseEnvSet(version.MajorMinor(1, minor)).Extend(environment.VersionedOptions{
				IntroducedVersion: version.MajorMinor(1, 0),
				DeclTypes:         []*apiservercel.DeclType{plugincel.BuildNamespaceType(), plugincel.BuildRequestType()},
				EnvOptions: []celgo.EnvOption{
					celgo.Variable(plugincel.ObjectVarName, celgo.DynType),
					celgo.Variable(plugincel.OldObjectVarName, celgo.DynType),
					celgo.Variable(plugincel.NamespaceVarName, plugincel.BuildNamespaceType().CelType()),
					celgo.Variable(plugincel.RequestVarName, plugincel.BuildRequestType().CelType()),
					celgo.Variable(plugincel.AuthorizerVarName, library.AuthorizerType),
					celgo.Variable(plugincel.RequestResourceAuthorizerVarName, library.ResourceCheckType),
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			ours, err := baseEnv(minor)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(contents(t, set.NewExpressionsEnv()), contents(t, ours)); diff != "" {
				t.Errorf("(-server +mapd):\n%s", diff)
			}
		})
	}
}

// contents is what an environment declares, as text.
func contents(t *testing.T, env *celgo.Env) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for name, f := range env.Functions() {
		for _, o := range f.OverloadDecls() {
			out["functions"] = append(out["functions"], fmt.Sprintf("%s: %s%v %v strict=%t", name, o.ID(), o.ArgTypes(), o.ResultType(), !o.IsNonStrict()))
		}
	}
	for _, v := range env.Variables() {
		out["variables"] = append(out["variables"], v.Name()+" "+v.Type().String())
	}
	for _, m := range env.Macros() {
		out["macros"] = append(out["macros"], m.MacroKey())
	}
	for _, v := range env.Validators() {
		out["validators"] = append(out["validators"], v.Name())
	}
	out["libraries"] = append(out["libraries"], env.Libraries()...)
	config, err := env.ToConfig("env")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range config.Extensions {
		out["extensions"] = append(out["extensions"], fmt.Sprintf("%s %s", e.Name, e.Version))
	}
	for _, f := range config.Features {
		out["features"] = append(out["features"], fmt.Sprintf("%s %t", f.Name, f.Enabled))
	}
	for _, list := range out {
		slices.Sort(list)
	}
	if len(out) < 5 {
		t.Fatalf("an environment of %v only", slices.Collect(maps.Keys(out)))
	}
	return out
}
