package kyverno

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/kyverno/convert"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

var (
	update   = flag.Bool("update", false, "record what Kyverno does in the case files")
	count    = flag.Int("objects", 60, "random objects for each policy")
	policies = flag.Int("policies", 60, "random policies")
	seed     = flag.Uint64("seed", 1, "of the random objects")
)

var oracle struct {
	sync.Once
	*Oracle
	err error
}

func kyverno(t *testing.T) *Oracle {
	t.Helper()
	oracle.Do(func() {
		dir, err := os.MkdirTemp("", "kyverno")
		if err != nil {
			oracle.err = err
			return
		}
		oracle.Oracle, oracle.err = NewOracle(dir)
	})
	if oracle.err != nil {
		t.Fatal(oracle.err)
	}
	return oracle.Oracle
}

// given is one policy to convert.
type subject struct {
	name   string
	object map[string]any
	policy *policy.Policy
}

// read returns the policies of a text that Kyverno's engine can run.
func read(t *testing.T, name string, data []byte) (all []subject) {
	t.Helper()
	for d, err := range manifest.ReadStream(name, bytes.NewReader(data)) {
		if err != nil || d.Object == nil || !policy.Is(d.Object.GroupVersionKind()) {
			continue
		}
		p, errs := policy.Read(d)
		if len(errs) > 0 || p.Rules != nil && slices.ContainsFunc(p.Rules.Rules, asks) {
			continue
		}
		all = append(all, subject{name + " " + p.Name, d.Object.Object, p})
	}
	return all
}

// asks reports whether a rule asks somebody, which the engine cannot here.
func asks(r policy.Rule) bool {
	return slices.ContainsFunc(r.Context, func(c policy.Context) bool { return c.Variable == nil && c.ConfigMap == nil })
}

// everyKind stands for all kinds.
var everyKind = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Namespace"}, {Version: "v1", Kind: "ConfigMap"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
}

// kindsOf are the kinds that the units of a policy are about.
func kindsOf(r *convert.Result) (out []schema.GroupVersionKind) {
	for _, u := range r.Units {
		for _, rule := range u.Policy.Spec.MatchConstraints.ResourceRules {
			for _, res := range rule.Resources {
				if res == "*" {
					out = append(out, everyKind...)
				}
				for _, known := range types.Resources() {
					if known.GVR.Group == rule.APIGroups[0] && known.GVR.Version == rule.APIVersions[0] && known.GVR.Resource == res && !slices.Contains(out, known.Kind) {
						out = append(out, known.Kind)
					}
				}
			}
		}
	}
	return out
}

// only keeps the rules that are converted: the others are Kyverno's alone.
func only(object map[string]any, r *convert.Result) map[string]any {
	out := plain(object)
	spec, _ := out["spec"].(map[string]any)
	rules, ok := spec["rules"].([]any)
	if !ok {
		return out
	}
	spec["rules"] = slices.DeleteFunc(rules, func(rule any) bool {
		m, _ := rule.(map[string]any)
		if m["mutate"] == nil {
			return false // it can turn autogen off
		}
		return !slices.ContainsFunc(r.Rules, func(c convert.Rule) bool { return c.Name == m["name"] && c.Converted() })
	})
	return out
}

// tally counts comparisons.
type tally struct {
	objects, changed, refused, explained, invalid int
	reasons                                       map[string]int
}

// log says what was counted.
func (c *tally) log(t *testing.T) {
	t.Helper()
	t.Logf("%d objects, %d changed and %d refused by Kyverno; %d differences that a verdict explains; %d objects that no server admits", c.objects, c.changed, c.refused, c.explained, c.invalid)
	for _, reason := range slices.Sorted(maps.Keys(c.reasons)) {
		t.Logf("%d differences: %s", c.reasons[reason], reason)
	}
}

// differ compares both sides on random objects.
func differ(t *testing.T, s subject, n int, total *tally) {
	r := convert.Policy(s.policy, convert.Options{Types: types})
	if len(r.Units) == 0 {
		return
	}
	kinds := kindsOf(r)
	if len(kinds) == 0 {
		t.Logf("%s: no built-in kinds", s.name)
		return
	}
	native, err := NewNative(r.Units)
	if err != nil {
		t.Errorf("%s: a server would refuse what was written: %v", s.name, err)
		return
	}
	k := kyverno(t)
	if err := k.Use(only(s.object, r)); err != nil {
		t.Errorf("%s: %v", s.name, err)
		return
	}
	verdict := worst(r)
	objects := ObjectsOf(s.policy, kinds)
	shown := 0
	for i := range n {
		request := objects.Request(*seed, i)
		if request == nil {
			total.invalid++
			continue
		}
		theirs, err := k.Mutate(*request)
		if err != nil {
			t.Errorf("%s: object %d: %v", s.name, i, err)
			continue
		}
		before := Stored(Result{Object: request.Object})
		want, got := Stored(theirs), Stored(native.Mutate(context.Background(), *request))
		total.objects++
		if want.Error != "" {
			total.refused++
		} else if !Same(want, before) {
			total.changed++
		}
		if Same(want, got) {
			continue
		}
		if reordered(r, want, got) {
			continue
		}
		if why := explained(r, *request, before, want, got); why != "" {
			total.explained++
			if total.reasons == nil {
				total.reasons = map[string]int{}
			}
			total.reasons[why]++
			continue
		}
		if shown++; shown <= 1 {
			t.Errorf("%s (%s): object %d\nrequest %s\nkyverno %s\nnative  %s\n%s", s.name, verdict, i, show(request), show(want), show(got), written(r))
		}
	}
	if shown > 1 {
		t.Errorf("%s: %d differences", s.name, shown)
	}
}

// reordered reports whether two objects are equal but for the order of lists of which a verdict says so.
func reordered(r *convert.Result, want, got Result) bool {
	return want.Error == "" && got.Error == "" && tree.Equal(packed(r.Ordered(want.Object)), packed(r.Ordered(got.Object)))
}

// explained returns the reason of a verdict that is that of a difference, or row kyverno-cel-unknown
// of compat.md; "" if none is.
func explained(r *convert.Result, request Request, before, want, got Result) string {
	if unknown := "strict decoding error: unknown field"; r.Policy.CEL != nil && strings.Contains(got.Error, unknown) {
		return unknown
	}
	return r.Explains(convert.Case{Object: request.Object, Unchanged: before.Object, Operation: request.Operation, User: request.User},
		convert.Outcome{Object: want.Object, Refused: want.Error, Failed: want.failed()}, convert.Outcome{Object: got.Object, Refused: got.Error})
}

func worst(r *convert.Result) convert.Verdict {
	w := convert.Exact
	for _, rule := range r.Rules {
		if rule.Converted() && slices.Index(convert.Verdicts, rule.Verdict) > slices.Index(convert.Verdicts, w) {
			w = rule.Verdict
		}
	}
	return w
}

func show(v any) string {
	data, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return "\n" + string(data)
}

func written(r *convert.Result) string {
	var b strings.Builder
	for _, u := range r.Units {
		for _, c := range u.Policy.Spec.MatchConditions {
			fmt.Fprintf(&b, "%s: if %s\n", u.Name, c.Expression)
		}
		for _, m := range u.Policy.Spec.Mutations {
			if m.JSONPatch != nil {
				fmt.Fprintf(&b, "%s: %s\n", u.Name, m.JSONPatch.Expression)
			} else {
				fmt.Fprintf(&b, "%s: %s\n", u.Name, m.ApplyConfiguration.Expression)
			}
		}
	}
	return b.String()
}

const caseDir = "../cases/kyverno"

func caseFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(caseDir + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no case files: %v", err)
	}
	return files
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// The policies of the case files, and those of MAPD_KYVERNO_POLICIES, on random objects.
func TestRandomObjects(t *testing.T) {
	var total tally
	for _, file := range caseFiles(t) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range read(t, filepath.Base(file), section(a, "policy.yaml")) {
			differ(t, s, *count, &total)
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
				differ(t, s, *count, &total)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	total.log(t)
	if total.changed < total.objects/4 {
		t.Errorf("of %d objects only %d are changed", total.objects, total.changed)
	}
}

// What Kyverno does in each case file is what was recorded, and the verdict says what mapd makes of
// the policy.
func TestRecorded(t *testing.T) {
	for _, file := range caseFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { recorded(t, file) })
	}
}

func recorded(t *testing.T, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := read(t, file, section(a, "policy.yaml"))
	if len(all) != 1 {
		t.Fatalf("%d policies", len(all))
	}
	s := all[0]
	var request Request
	if err := yaml.UnmarshalStrict(section(a, "request.yaml"), &request); err != nil {
		t.Fatal(err)
	}
	if request.Operation == "" {
		request.Operation = "CREATE"
	}
	kind, err := types.Kind(schema.FromAPIVersionAndKind(fmt.Sprint(request.Object["apiVersion"]), fmt.Sprint(request.Object["kind"])))
	if err != nil {
		t.Fatal(err)
	}
	if request.Object, err = kind.Normalize(plain(request.Object)); err != nil {
		t.Fatal(err)
	}
	request.Object = plain(request.Object)
	k := kyverno(t)
	if err := k.Use(s.object); err != nil {
		t.Fatal(err)
	}
	theirs, err := k.Mutate(request)
	if err != nil {
		t.Fatal(err)
	}
	r := convert.Policy(s.policy, convert.Options{Types: types})
	var verdicts strings.Builder
	for _, rule := range r.Rules {
		fmt.Fprintf(&verdicts, "%s: %s\n", rule.Name, rule.Verdict)
		for _, reason := range rule.Reasons {
			fmt.Fprintf(&verdicts, "  %s\n", reason)
		}
	}
	want := &txtar.Archive{Comment: a.Comment}
	for _, f := range a.Files {
		if !strings.HasPrefix(f.Name, "want") {
			want.Files = append(want.Files, f)
		}
	}
	add := func(name, text string) { want.Files = append(want.Files, txtar.File{Name: name, Data: []byte(text)}) }
	add("want.verdict", verdicts.String())
	result := func(side string, r Result) {
		if r.Error != "" {
			add("want."+side+".error", "refused\n")
			return
		}
		data, err := yaml.Marshal(r.Object)
		if err != nil {
			t.Fatal(err)
		}
		add("want."+side+".yaml", string(data))
	}
	result("kyverno", theirs)
	if len(r.Units) > 0 {
		native, err := NewNative(r.Units)
		if err != nil {
			t.Fatal(err)
		}
		ours := native.Mutate(t.Context(), request)
		if !Same(Stored(theirs), Stored(ours)) {
			result("native", ours)
			if v := worst(r); v == convert.Exact || v == convert.Order && !reordered(r, Stored(theirs), Stored(ours)) {
				t.Errorf("the verdict is %s, and the results differ", v)
			}
		}
	}
	got := txtar.Format(want)
	if *update {
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old := txtar.Format(a); !bytes.Equal(old, got) {
		t.Errorf("recorded\n%s\nnow\n%s", old, got)
	}
}
