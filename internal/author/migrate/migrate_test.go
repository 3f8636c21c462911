package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares text with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s: -want +got\n%s", path, d)
	}
}

// always is a unit like those that are written.
func always() translate.Unit {
	fail, never := admissionregistrationv1.Fail, admissionregistrationv1.NeverReinvocationPolicy
	exact := admissionregistrationv1.Exact
	labels := map[string]string{"app.kubernetes.io/managed-by": "mapd", "spec": "1"}
	return translate.Unit{
		Name:    "always-pull",
		Comment: "Sets imagePullPolicy of every container of Pods to Always.\n",
		Verdicts: []translate.MutatorVerdict{{ID: "Assign/always-pull", Verdict: translate.Differs, Notes: []translate.Note{
			{Trap: "T19", Text: "a value that is written to several containers is one value for Gatekeeper, and a later mutator that changes one of them changes all"},
			{Text: "Pods only"},
		}}},
		Policy: &admissionregistrationv1.MutatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "always-pull", Labels: labels},
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				FailurePolicy: &fail, ReinvocationPolicy: never,
				MatchConstraints: &admissionregistrationv1.MatchResources{
					MatchPolicy: &exact,
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/ephemeralcontainers"}},
					}}},
				},
				MatchConditions: []admissionregistrationv1.MatchCondition{
					{Name: "not-excluded", Expression: `!request.namespace.startsWith("kube-")`},
					{Name: "kind", Expression: `request.kind.kind == "Pod"`},
				},
				Variables: []admissionregistrationv1.Variable{{Name: "containers", Expression: "has(object.spec.containers)\n  ? object.spec.containers\n  : []"}},
				Mutations: []admissionregistrationv1.Mutation{{
					PatchType: admissionregistrationv1.PatchTypeJSONPatch,
					JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "variables.containers.transformList(i, c,\n  JSONPatch{\n    op: \"add\",\n    path: \"/spec/containers/\" + string(i) + \"/imagePullPolicy\",\n    value: \"Always\"\n  }\n)"},
				}},
			},
		},
		Binding: &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "always-pull", Labels: labels},
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName: "always-pull",
				MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "admission.gatekeeper.sh/ignore", Operator: metav1.LabelSelectorOpDoesNotExist},
				}}},
			},
		},
	}
}

// refused is a unit without a policy.
func refused() translate.Unit {
	return translate.Unit{Name: "b", Verdicts: []translate.MutatorVerdict{{ID: "AssignImage/b", Verdict: translate.Refused, Notes: []translate.Note{{Text: "conflicts with ModifySet/c"}}}}}
}

func TestFiles(t *testing.T) {
	files := Files([]translate.Unit{always(), refused()}, "")
	if len(files) != 1 || files[0].Name != "always-pull.yaml" {
		t.Fatalf("got %+v", files)
	}
	golden(t, "always-pull.yaml", files[0].Data)
	checkFile(t, files[0], always(), api.NativeGroup)
}

// checkFile reads a file as a server would get it.
func checkFile(t *testing.T, f File, u translate.Unit, group string) {
	t.Helper()
	var docs []*unstructured.Unstructured
	for d, err := range manifest.ReadStream(f.Name, bytes.NewReader(f.Data)) {
		if err != nil {
			t.Fatalf("%v\n%s", err, f.Data)
		}
		docs = append(docs, d.Object)
	}
	if len(docs) != 2 {
		t.Fatalf("%d documents\n%s", len(docs), f.Data)
	}
	if got := docs[0].GroupVersionKind().Group; got != group {
		t.Errorf("group %s, want %s", got, group)
	}
	p, err := policy.Decode(docs[0])
	if err != nil {
		t.Fatal(err)
	}
	want, err := policy.Decode(api.Object(u.Policy, api.NativeGroup))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("the policy is another: -want +got\n%s", d)
	}
	b, err := binding.Decode(docs[1])
	if err != nil {
		t.Fatal(err)
	}
	wantBinding, err := binding.Decode(api.Object(u.Binding, api.NativeGroup))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wantBinding, b); d != "" {
		t.Errorf("the binding is another: -want +got\n%s", d)
	}
}

func TestFilesOwnGroup(t *testing.T) {
	checkFile(t, Files([]translate.Unit{always()}, api.OwnGroup)[0], always(), api.OwnGroup)
}

// Whatever stands in names, values and comments, the file says the same, and the
// comment stays one.
func FuzzFiles(f *testing.F) {
	for _, s := range []string{"", "a", "a\nb", "a\r\nb", "\n", " a\n b ", "a: b # c", "'", "\"", "\t", "- a", "---\nkind: X", "...", "\u2028x: y", "\u0085x", "%TAG", "é\u0000", "null", "y", "1e3", "{{.}}", "a  b\n\n\nc", "|-", "\ufeff"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, expression, text string) {
		u := always()
		// What no string of JSON can hold does not come from an API.
		expression, text = strings.ToValidUTF8(expression, "?"), strings.ToValidUTF8(text, "?")
		u.Policy.Spec.Mutations[0].JSONPatch.Expression = expression
		u.Policy.Spec.MatchConditions[0].Expression = expression
		u.Policy.Annotations = map[string]string{text: text}
		u.Comment = text
		u.Verdicts[0].ID = text
		u.Verdicts[0].Notes[0].Text = text
		file := Files([]translate.Unit{u}, "")[0]
		var docs []map[string]any
		for d, err := range manifest.ReadStream("", bytes.NewReader(file.Data)) {
			if err != nil {
				t.Fatalf("%v\n%s", err, file.Data)
			}
			docs = append(docs, d.Object.Object)
		}
		want := []map[string]any{}
		for _, o := range Objects(u, api.NativeGroup) {
			want = append(want, o.Object)
		}
		if d := cmp.Diff(want, docs); d != "" {
			t.Errorf("-want +got\n%s\n%s", d, file.Data)
		}
		if !ours(file.Data, Command) {
			t.Errorf("the file does not say who wrote it:\n%s", file.Data)
		}
	})
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "policies")
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	a, b := File{"a.yaml", []byte(Marker(Command) + "\na: 1\n")}, File{"b.yaml", []byte(Marker(Command) + "\nb: 1\n")}
	if stale, err := Write(dir, Command, []File{a, b}); err != nil || len(stale) > 0 {
		t.Fatal(stale, err)
	}
	a.Data = []byte(Marker(Command) + "\na: 2\n")
	stale, err := Write(dir, Command, []File{a})
	if err != nil || len(stale) != 1 || stale[0] != filepath.Join(dir, "b.yaml") {
		t.Fatal(stale, err)
	}
	if got := read("a.yaml"); got != string(a.Data) {
		t.Errorf("a.yaml is %q", got)
	}

	// A file of somebody else's stays, and nothing else is changed either.
	if err := os.WriteFile(filepath.Join(dir, "z.yaml"), []byte("z: mine\n"+Marker(Command)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	a.Data = []byte(Marker(Command) + "\na: 3\n")
	if _, err := Write(dir, Command, []File{a, {"z.yaml", nil}}); err == nil || !strings.Contains(err.Error(), "z.yaml: is there and was not written by mapd") {
		t.Errorf("error = %v", err)
	}
	if got := read("a.yaml"); got != Marker(Command)+"\na: 2\n" {
		t.Errorf("a.yaml is %q", got)
	}

	// Neither is anything if one file cannot be put in its place.
	if err := os.MkdirAll(filepath.Join(dir, "y.yaml", "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, Command, []File{a, {"c.yaml", nil}, {"y.yaml", nil}}); err == nil {
		t.Error("no error")
	}
	if err := place(dir, t.TempDir(), []File{{"missing", nil}}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v", err)
	}
	if got := read("a.yaml"); got != Marker(Command)+"\na: 2\n" {
		t.Errorf("a.yaml is %q", got)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 4 { // a, b, y, z
		t.Errorf("left behind: %v", entries)
	}
}

// What was put in place is taken back when the next one cannot be.
func TestPlaceRestores(t *testing.T) {
	dir, temporary := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(dir, "a.yaml"), filepath.Join(temporary, "a.yaml"), filepath.Join(temporary, "b.yaml")} {
		if err := os.WriteFile(path, []byte(path), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old := []byte(filepath.Join(dir, "a.yaml"))
	if err := place(dir, temporary, []File{{"a.yaml", nil}, {"b.yaml", nil}, {"missing", nil}}, map[string][]byte{"a.yaml": old}); err == nil {
		t.Fatal("no error")
	}
	if got, err := os.ReadFile(filepath.Join(dir, "a.yaml")); err != nil || !bytes.Equal(got, old) {
		t.Errorf("a.yaml is %q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "b.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("b.yaml: %v", err)
	}
}

// sample is a report with something of everything.
func sample() *Report {
	r := newReport([]translate.Unit{always(), refused()})
	r.Refuse("Assign/<b>", errors.New("spec.location: unexpected | token"))
	r.Notes = append(r.Notes, "no mutators, so left alone: 2 ConstraintTemplate")
	pod := func(policy string) map[string]any {
		c := map[string]any{"name": "app"}
		if policy != "" {
			c["imagePullPolicy"] = policy
		}
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web"}, "spec": map[string]any{"containers": []any{c}}}
	}
	r.Verification = &Verification{Seed: 1, Generated: 500, Given: 1, Live: 20, Comparisons: []verify.Comparison{
		{Name: "Assign/always-pull", Mutators: []string{"Assign/always-pull"}, Objects: 521, Agreements: 521, Changed: 300, Refused: 2, NotAllowed: 11},
		{Name: "Assign/<b>", Objects: 521, Agreements: 500, First: &verify.Disagreement{
			Origin: "generated object 3 (seed 1)", Operation: "UPDATE", Object: pod(""), Old: pod("Never"),
			Namespace: map[string]any{"metadata": map[string]any{"labels": map[string]any{"env": "prod"}}},
			Reference: verify.Result{Object: pod("Always")}, Native: verify.Result{Refused: "no such key: <containers>"},
		}},
		{Name: "c", Invalid: "policy \"c\": does not compile"},
		{Name: "d"},
		{Name: "e", Known: true, Objects: 2, Agreements: 1, First: &verify.Disagreement{
			Origin: "Pod a", Operation: "CREATE", Object: pod("Never"), Reference: verify.Result{Object: pod("Never")}, Native: verify.Result{Object: pod("Always")},
		}},
	}}
	r.Version, r.Source = "v1.2.3", "mutators.yaml"
	r.Files = []File{{"always-pull.yaml", []byte("# <T19>\n")}}
	return r
}

func TestReports(t *testing.T) {
	for name, write := range map[string]func(*Report, *bytes.Buffer) error{
		"report.txt":  func(r *Report, b *bytes.Buffer) error { return r.WriteTable(b) },
		"report.json": func(r *Report, b *bytes.Buffer) error { return r.WriteJSON(b) },
		"report.md":   func(r *Report, b *bytes.Buffer) error { return r.WriteMarkdown(b) },
		"report.html": func(r *Report, b *bytes.Buffer) error { return r.WriteHTML(b) },
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := write(sample(), &b); err != nil {
				t.Fatal(err)
			}
			golden(t, name, b.Bytes())
			if strings.Contains(b.String(), "proven") {
				t.Error("the report claims too much")
			}
		})
	}
}

// A report without anything has its lists all the same: whoever reads the JSON need
// not ask for null.
func TestEmptyReport(t *testing.T) {
	var b bytes.Buffer
	if err := newReport(nil).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]any{"format": 1.0, "version": "", "source": "", "mutators": []any{}, "notes": []any{}}, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestOK(t *testing.T) {
	exact := translate.Unit{Name: "a", Policy: always().Policy, Verdicts: []translate.MutatorVerdict{{ID: "Assign/a", Verdict: translate.Exact}}}
	compared := func(c verify.Comparison) *Report {
		r := newReport([]translate.Unit{exact})
		r.Verification = &Verification{Comparisons: []verify.Comparison{c}}
		return r
	}
	tests := map[string]struct {
		report *Report
		ok     bool
	}{
		"exact":          {newReport([]translate.Unit{exact}), true},
		"differs":        {newReport([]translate.Unit{exact, always()}), false},
		"refused":        {newReport([]translate.Unit{exact, refused()}), false},
		"no difference":  {compared(verify.Comparison{Objects: 3, Agreements: 3}), true},
		"a difference":   {compared(verify.Comparison{Objects: 3, Agreements: 2, First: &verify.Disagreement{}}), false},
		"cannot be run":  {compared(verify.Comparison{Invalid: "no"}), false},
		"nothing at all": {newReport(nil), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.report.OK(); got != tt.ok {
				t.Errorf("OK() = %v, want %v", got, tt.ok)
			}
		})
	}
}

func TestSharedPolicy(t *testing.T) {
	u := always()
	u.Verdicts = append(u.Verdicts, translate.MutatorVerdict{ID: "ModifySet/x", Verdict: translate.Exact})
	r := newReport([]translate.Unit{u})
	if d := cmp.Diff([]string{"ModifySet/x"}, r.Mutators[0].With); d != "" {
		t.Error(d)
	}
	if r.Mutators[1].File != "always-pull.yaml" || r.Mutators[1].Policy != "always-pull" {
		t.Errorf("got %+v", r.Mutators[1])
	}
}
