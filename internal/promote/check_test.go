package promote

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/native"
	"github.com/mapd-project/mapd/pkg/api"
)

// Every difference that a check names has a row in docs/compat.md.
func TestRows(t *testing.T) {
	text, err := os.ReadFile("../../docs/compat.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range Rows() {
		if !strings.Contains(string(text), "\n| `"+row+"` |") {
			t.Errorf("docs/compat.md has no row %s", row)
		}
	}
}

func TestCheck(t *testing.T) {
	policy := func(spec string) *unstructured.Unstructured {
		return object(t, `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
`+spec)
	}
	label := `
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"a": "b"}}}'}
`
	grow := `
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/data", value: {"n": string(has(object.data) ? int(object.data.?n.orValue("0")) + 1 : 1)}}]'}
`
	bound := bindingOf(t, api.OwnGroup, "b1", "p", "")
	for name, tt := range map[string]struct {
		policy   *unstructured.Unstructured
		bindings []*unstructured.Unstructured
		minor    int
		worst    Level
		want     []string // parts of the text of findings, with level, check and row
	}{
		"idempotent": {policy: policy(label), worst: Note, want: []string{"ok mode", "ok server", "ok lint", "ok twice the policy leaves alone", "stable-order", "g14-away"}},
		"grows":      {policy: policy(grow), worst: Window, want: []string{"window twice the policy changes again what it has made: CREATE of ConfigMap"}},
		"external data": {policy: policy(strings.Replace(label, `"b"`, `externalData("p", ["a"])["a"]`, 1)), worst: Refuse,
			want: []string{"refuse server", "external-data"}},
		"in shadow": {policy: policy(label), bindings: []*unstructured.Unstructured{bindingOf(t, api.OwnGroup, "b1", "p", "mapd.dev/mode: shadow")}, worst: Refuse,
			want: []string{"refuse mode MutatingAdmissionPolicyBinding b1 is in mode shadow"}},
		"a share": {policy: policy(label), bindings: []*unstructured.Unstructured{bindingOf(t, api.OwnGroup, "b1", "p", `mapd.dev/percent: "10"`)}, worst: Refuse,
			want: []string{"refuse mode MutatingAdmissionPolicyBinding b1 takes 10 % of the objects"}},
		"after a condition": {policy: policy("  matchConditions: [{name: c, expression: 'true'}]" + label), worst: Note, want: []string{"reflection-values"}},
		"before 1.37":       {policy: policy("  matchConditions: [{name: c, expression: 'true'}]" + label), minor: 36, worst: Note, want: []string{"accepts it"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Subject{Direction: Native, Policy: tt.policy, Bindings: tt.bindings, Minor: tt.minor}
			if s.Bindings == nil {
				s.Bindings = []*unstructured.Unstructured{bound}
			}
			if s.Minor == 0 {
				s.Minor = 37
			}
			found, err := Check(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			for _, f := range found {
				all.WriteString(string(f.Level) + " " + f.Check + " " + f.Text + " " + f.Row + "\n")
			}
			for _, part := range tt.want {
				if !strings.Contains(all.String(), part) {
					t.Errorf("no %q in:\n%s", part, &all)
				}
			}
			if tt.minor == 36 && strings.Contains(all.String(), "reflection-values") {
				t.Errorf("about a server of 1.37:\n%s", &all)
			}
			if worst := Worst(found); worst != tt.worst {
				t.Errorf("the worst is %s, want %s:\n%s", worst, tt.worst, &all)
			}
		})
	}
}

// What becomes native and comes back is what it was.
func TestThereAndBack(t *testing.T) {
	for name, spec := range map[string]string{
		"no selector":  "{policyName: p}",
		"a selector":   "{policyName: p, matchResources: {namespaceSelector: {matchExpressions: [{key: a, operator: Exists}]}}}",
		"other labels": "{policyName: p, matchResources: {namespaceSelector: {matchLabels: {a: b}}, matchPolicy: Exact}}",
	} {
		t.Run(name, func(t *testing.T) {
			own := object(t, "{apiVersion: admissionregistration.mapd.dev/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: b1, labels: {team: a}, annotations: {note: x}}, spec: "+spec+"}")
			s := &sides{Options: Options{Exempt: []string{"kube-system", "mapd-system"}}}
			part := s.nativePart(NewObject(own), "id")
			list, _, _ := unstructured.NestedSlice(part.Object.Object, selectorPath...)
			if len(list) == 0 || !reflect.DeepEqual(list[len(list)-1], exemption(s.Exempt)) {
				t.Errorf("the native binding does not leave out namespaces: %v", list)
			}
			back := ownPart(NewObject(part.Object), func(string) string { return "mark" })
			annotations := back.Object.GetAnnotations()
			delete(annotations, recordAnnotation)
			back.Object.SetAnnotations(annotations)
			if !reflect.DeepEqual(own.Object, back.Object.Object) {
				t.Errorf("it came back as %v, and was %v", back.Object.Object, own.Object)
			}
		})
	}
}

// What is in the way stops a move, and says what it is.
func TestStops(t *testing.T) {
	own, bound := policyOf(t, api.OwnGroup, "p", "v"), bindingOf(t, api.OwnGroup, "b1", "p", "")
	live := policyOf(t, api.OwnGroup, "p", "v")
	live.SetLabels(map[string]string{native.LiveLabel: "gatekeeper"})
	broken := policyOf(t, api.OwnGroup, "p", "v")
	broken.SetAnnotations(map[string]string{recordAnnotation: "x"})
	for name, tt := range map[string]struct {
		objects []*unstructured.Unstructured
		to      Direction
		want    string
	}{
		"nothing":                  {to: Native, want: "no such policy"},
		"nothing to demote":        {to: Mapd, want: "no such policy"},
		"somebody's policy":        {[]*unstructured.Unstructured{own, policyOf(t, api.NativeGroup, "p", "w")}, Native, "there is a native policy of that name that was not promoted"},
		"somebody's binding":       {[]*unstructured.Unstructured{own, bound, bindingOf(t, api.NativeGroup, "b1", "other", "")}, Native, "there is a native binding b1"},
		"only native":              {[]*unstructured.Unstructured{policyOf(t, api.NativeGroup, "p", "w")}, Native, "and none of mapd"},
		"native, not promoted":     {[]*unstructured.Unstructured{policyOf(t, api.NativeGroup, "p", "w")}, Mapd, "the native policy was not promoted"},
		"two of one name":          {[]*unstructured.Unstructured{own, policyOf(t, api.NativeGroup, "p", "w")}, Mapd, "neither was made from the other"},
		"of a mutator":             {[]*unstructured.Unstructured{live}, Native, "stands for a mutator of Gatekeeper"},
		"a record without meaning": {[]*unstructured.Unstructured{broken}, Native, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			next := Decide(newEtcd(t, tt.objects...).world("p"), Options{To: tt.to, ID: "i"}, Proofs{})
			if next.Err == nil || !strings.Contains(next.Err.Error(), tt.want) || len(next.Do) > 0 {
				t.Errorf("%v, %v; want %q", next.Err, next.Do, tt.want)
			}
		})
	}
}
