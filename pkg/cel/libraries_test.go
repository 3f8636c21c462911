package cel

import (
	"fmt"
	"os"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/go-cmp/cmp"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/mapd-project/mapd/test/oracle"
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
	for minor := uint(oldestMinor - 1); minor <= currentMinor; minor++ {
		t.Run(fmt.Sprintf("1.%d", minor), func(t *testing.T) {
			theirs, err := oracle.Environment(minor)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := baseEnv(minor)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, theirs, ours)
		})
	}
}

// The environments of minors that the libraries in go.mod do not know are those that
// test/next has recorded of theirs.
func TestNewerEnvironmentsAreTheServers(t *testing.T) {
	for minor := uint(currentMinor + 1); minor <= newestMinor; minor++ {
		text, err := os.ReadFile(fmt.Sprintf("testdata/environment-1.%d.txt", minor))
		if err != nil {
			t.Fatal(err)
		}
		ours, err := baseEnv(minor)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, strings.Split(strings.TrimSpace(string(text)), "\n"), ours)
	}
}

func compare(t *testing.T, theirs []string, env *celgo.Env) {
	t.Helper()
	ours, err := oracle.Contents(env)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("(-server +mapd):\n%s", diff)
	}
}
