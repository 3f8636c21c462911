package kyverno

import (
	"errors"
	"flag"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/kyverno/convert"
	"github.com/mapd-project/mapd/internal/kyverno/interpret"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

var interpreted = flag.Int("interpreted", 60, "random objects for each policy that the interpreter runs")

// interpretTally counts what the interpreter and Kyverno did to the same objects.
type interpretTally struct {
	policies, objects, changed, refused, unknown, invalid int
	reasons                                               map[string]int
}

// defaultKinds are for policies of which nothing is converted.
var defaultKinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Pod"}, {Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "batch", Version: "v1", Kind: "CronJob"}, {Version: "v1", Kind: "ConfigMap"},
}

// hold holds the interpreter against Kyverno on n random objects, and reports whether they agree.
func hold(t *testing.T, s subject, n int, total *interpretTally) (agree bool) {
	if s.policy.Rules == nil || !slices.ContainsFunc(s.policy.Rules.Rules, func(r policy.Rule) bool { return r.Mutate != nil }) {
		return true
	}
	total.policies++
	engine, err := interpret.New(s.policy, nil)
	if err != nil {
		total.reasons[err.Error()]++
		return true
	}
	kinds := kindsOf(convert.Policy(s.policy, convert.Options{Types: types}))
	if len(kinds) == 0 {
		kinds = defaultKinds
	}
	k := kyverno(t)
	if err := k.Use(s.object); err != nil {
		t.Errorf("%s: %v", s.name, err)
		return false
	}
	objects := ObjectsOf(s.policy, kinds)
	shown := 0
	for i := range n {
		request := objects.Request(*seed, i)
		if request == nil {
			total.invalid++
			continue
		}
		got, err := engine.Mutate(t.Context(), interpret.Request{
			Operation: request.Operation, Object: request.Object, Old: request.OldObject, NamespaceLabels: request.NamespaceLabels, User: request.User, Groups: request.Groups, ConfigMaps: known(request.ConfigMaps),
		})
		if err != nil {
			var u *interpret.Unknown
			if !errors.As(err, &u) {
				t.Fatal(err)
			}
			total.unknown++
			total.reasons[err.Error()]++
			continue
		}
		want, err := k.Mutate(*request)
		if err != nil {
			t.Errorf("%s: object %d: %v", s.name, i, err)
			continue
		}
		total.objects++
		switch {
		case want.Error != "":
			total.refused++
		case !tree.Equal(plain(want.Object), request.Object):
			total.changed++
		}
		if want.Error != "" && got.Refused != "" || want.Error == "" && got.Refused == "" && tree.Equal(plain(want.Object), plain(got.Object)) {
			continue
		}
		if shown++; shown <= 1 {
			t.Errorf("%s: object %d (seed %d)\nrequest %s\nkyverno %s\ninterpreter %s", s.name, i, *seed, show(request), show(want), show(got))
		}
	}
	if shown > 1 {
		t.Errorf("%s: %d disagreements", s.name, shown)
	}
	return shown == 0
}

// known says that there are no other ConfigMaps.
func known(all map[string]map[string]string) map[string]map[string]string {
	if all == nil {
		return map[string]map[string]string{}
	}
	return all
}

// The interpreter that migrate kyverno --verify runs does what Kyverno does: with the policies of the
// case files and of MAPD_KYVERNO_POLICIES, and with random ones.
func TestInterpreter(t *testing.T) {
	total := interpretTally{reasons: map[string]int{}}
	for _, file := range caseFiles(t) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range read(t, filepath.Base(file), section(a, "policy.yaml")) {
			hold(t, s, *interpreted, &total)
		}
	}
	if root := os.Getenv("MAPD_KYVERNO_POLICIES"); root != "" {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
				return filepath.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".yaml"):
				return nil
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, s := range read(t, path, data) {
				hold(t, s, *interpreted, &total)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []func(*rand.Rand) string{randomPolicy, wildPolicy} {
		for i := range *policies {
			text := kind(rand.New(rand.NewPCG(*seed, uint64(i))))
			var probe any
			if yaml.UnmarshalStrict([]byte(text), &probe) != nil {
				total.reasons["(no YAML)"]++ // a field twice
				continue
			}
			for _, s := range read(t, "random policy", []byte(text)) {
				if !hold(t, s, *interpreted/3, &total) {
					t.Logf("seed %d, policy %d:\n%s", *seed, i, text)
				}
			}
		}
	}
	t.Logf("%d policies; %d objects, %d changed and %d refused by Kyverno; %d that the interpreter knows nothing about; %d that no server admits; seed %d",
		total.policies, total.objects, total.changed, total.refused, total.unknown, total.invalid, *seed)
	for _, reason := range slices.Sorted(maps.Keys(total.reasons)) {
		t.Logf("%d times: %s", total.reasons[reason], reason)
	}
	if total.changed < total.objects/4 || total.unknown > total.objects/4 {
		t.Error("too little is compared")
	}
}
