package quick_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/mapd-project/mapd/pkg/cel/quick"
)

// serverEnv is the environment of a server, which that of package cel is held to.
var serverEnv = sync.OnceValue(func() *celgo.Env {
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 37)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: []celgo.EnvOption{library.JSONPatch()},
	})
	if err != nil {
		panic(err)
	}
	return set.NewExpressionsEnv()
})

// The package's documentation lists the functions and macros that are not taken, and
// the table names no function or overload that the environment lacks.
func TestNotTaken(t *testing.T) {
	env := serverEnv()
	var others, macros []string
	overloads := map[string]bool{}
	for name, fn := range env.Functions() {
		if quick.Overloads[name] == nil && !strings.HasPrefix(name, "__") && name != "_in_" {
			others = append(others, name)
		}
		for _, o := range fn.OverloadDecls() {
			overloads[name+" "+o.ID()] = true
		}
	}
	taken := []string{"all", "exists", "filter", "has", "map", "optMap", "transformList"}
	for _, m := range env.Macros() {
		if !slices.Contains(taken, m.Function()) {
			macros = append(macros, m.Function())
		}
	}
	for name, ids := range quick.Overloads {
		for _, id := range ids {
			if !overloads[name+" "+id] {
				t.Errorf("the table has %s of %s, which the environment lacks", id, name)
			}
		}
	}
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	lists := regexp.MustCompile(`(?m)(?:^//\t.*\n)+`).FindAllString(string(text), -1)
	if len(lists) != 2 {
		t.Fatalf("doc.go has %d lists, want one of macros and one of functions", len(lists))
	}
	for i, want := range [][]string{macros, others} {
		slices.Sort(want)
		want = slices.Compact(want)
		if got := strings.Fields(strings.ReplaceAll(lists[i], "//", "")); !slices.Equal(got, want) {
			t.Errorf("doc.go lists\n%s\nwant\n%s", strings.Join(got, " "), strings.Join(want, " "))
		}
	}
}
