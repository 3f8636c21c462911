package promote

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Every difference that a check names has a row in docs/reference/compat.md.
func TestRows(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/compat.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows() {
		if !strings.Contains(string(text), "\n| `"+row+"` |") {
			t.Errorf("docs/reference/compat.md has no row %s", row)
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
	// In a form of which generated objects do not have the value.
	hidden := `
  matchConditions: [{name: rare, expression: 'has(object.data) && size(object.data.?s.orValue("").split("r")) == 3'}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/data/n", value: object.data.?n.orValue("") + "x"}]'}
`
	onUpdate := policy(hidden)
	rules, _, _ := unstructured.NestedSlice(onUpdate.Object, "spec", "matchConstraints", "resourceRules")
	rules[0].(map[string]any)["operations"] = []any{"UPDATE"}
	if err := unstructured.SetNestedSlice(onUpdate.Object, rules, "spec", "matchConstraints", "resourceRules"); err != nil {
		t.Fatal(err)
	}
	once := `
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/metadata/labels"}]'}
`
	lists := `
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/metadata/ownerReferences", value: [Object.metadata.ownerReferences{apiVersion: "v1", kind: "Node", name: "n", uid: "u"}]}]'}
`
	params := policy("  paramKind: {apiVersion: example.com/v1, kind: Limit}" + label)
	configMap := func(name, value string) *unstructured.Unstructured {
		return object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+", namespace: default, labels: {a: x}}, data: {s: "+value+"}}")
	}
	bound := bindingOf(t, api.OwnGroup, "b1", "p", "")
	for name, tt := range map[string]struct {
		policy   *unstructured.Unstructured
		bindings []*unstructured.Unstructured
		minor    int
		gone     bool // the server does not serve the paramKind
		given    []*unstructured.Unstructured
		live     []*unstructured.Unstructured
		worst    Level
		want     []string // parts of the text of results, with level, check and row
	}{
		"idempotent": {policy: policy(label), worst: Note, want: []string{"ok mode", "ok server", "ok lint", "ok twice the policy leaves alone", "stable-order", "g14-away"}},
		"grows":      {policy: policy(grow), worst: Window, want: []string{"window twice the policy changes again what it has made: CREATE of ConfigMap"}},
		"external data": {policy: policy(strings.Replace(label, `"b"`, `externalData("p", ["a"])["a"]`, 1)), worst: Refuse,
			want: []string{"refuse server", "external-data"}},
		"in shadow": {policy: policy(label), bindings: []*unstructured.Unstructured{bindingOf(t, api.OwnGroup, "b1", "p", "mapd.dev/mode: shadow")}, worst: Refuse,
			want: []string{"refuse mode MutatingAdmissionPolicyBinding b1 is in mode shadow", "rollout-annotations"}},
		"a share": {policy: policy(label), bindings: []*unstructured.Unstructured{bindingOf(t, api.OwnGroup, "b1", "p", `mapd.dev/percent: "10"`)}, worst: Refuse,
			want: []string{"refuse mode MutatingAdmissionPolicyBinding b1 takes 10 % of the objects", "rollout-annotations"}},
		"a breaker that has tripped": {policy: tripped(t, annotated(policy(label), api.BreakerAnnotation, "errors=5%")), worst: Refuse,
			want: []string{"refuse mode the policy is in shadow, because its breaker tripped", "note mode a server has no breaker: mapd.dev/breaker: errors=5% no longer counts"}},
		"a breaker": {policy: annotated(policy(label), api.BreakerAnnotation, "errors=5%"), worst: Note, want: []string{"ok mode the policy and its bindings (1) are enforced"}},
		"moving":    {policy: annotated(policy(label), recordAnnotation, `{"to": "native"}`, modeAnnotation, "shadow"), worst: Note, want: []string{"ok mode the policy is being moved already"}},

		"a server of before 1.36": {policy: policy(label), minor: 35, worst: Refuse,
			want: []string{"refuse lint MutatingAdmissionPolicy p, apiVersion: admissionregistration.k8s.io/v1 is served from Kubernetes 1.36 on"}},
		"a value that 1.37 cannot copy": {policy: policy(`
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/data", value: namespaceObject.metadata.labels}]'}
`), worst: Refuse, want: []string{"refuse lint MutatingAdmissionPolicy p, ", "Kubernetes 1.37 cannot put namespaceObject.metadata.labels into a JSONPatch", "(reflection-value)"}},
		"a value that crashes 1.36": {policy: policy(lists), minor: 36, worst: Refuse, want: []string{"servers before 1.37 crash on a list of Object literals", "(server-panic)"}},
		"and not 1.37":              {policy: policy(lists), worst: Note, want: []string{"ok lint no finding for servers of 1.37"}},
		"a binding that lint finds fault with": {policy: policy(label), bindings: []*unstructured.Unstructured{object(t, `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: b1}
spec: {policyName: p, paramRef: {name: x, parameterNotFoundAction: Deny}}
`)}, worst: Note, want: []string{"note lint MutatingAdmissionPolicyBinding b1, spec.paramRef"}},
		"a newer server":            {policy: policy(label), minor: 40, worst: Note, want: []string{"a server of 1.40 accepts it", "no finding for servers of 1.38"}},
		"params that nobody serves": {policy: params, gone: true, worst: Refuse, want: []string{"refuse params the server does not serve example.com/v1, kind Limit"}},
		"params":                    {policy: params, worst: Window, want: []string{"note difference the server reads Limit itself", "g10-params"}},

		"grows on a given object": {policy: policy(hidden), given: []*unstructured.Unstructured{configMap("given", "rare")}, worst: Window,
			want: []string{"window twice the policy changes again what it has made: CREATE of ConfigMap default/given: /data/n"}},
		"grows on a live object": {policy: policy(hidden), live: []*unstructured.Unstructured{configMap("live", "rare")}, worst: Window,
			want: []string{"window twice the policy changes again what it has made: CREATE of ConfigMap default/live: /data/n"}},
		"grows on updates": {policy: onUpdate, given: []*unstructured.Unstructured{configMap("given", "rare")}, worst: Window,
			want: []string{"window twice the policy changes again what it has made: UPDATE of ConfigMap default/given: /data/n"}},
		"given and live objects are counted": {policy: policy(label), given: []*unstructured.Unstructured{configMap("a", "x")},
			live: []*unstructured.Unstructured{configMap("b", "x"), configMap("c", "x")}, worst: Note,
			want: []string{"ok twice the policy leaves alone what it has made. Requests tried: 2 with given objects (1 changed), 4 with live ones (2 changed), "}},
		"grows on no object that is found": {policy: policy(hidden), worst: Window,
			want: []string{"window twice no object was found that the policy changes, so nothing shows that it leaves alone what it has made; give one with -f. Requests tried: 0 with given objects (0 changed), 0 with live ones (0 changed), "}},
		"refuses what it has made":    {policy: policy(once), worst: Window, want: []string{"is refused the second time: "}},
		"an expression that is wrong": {policy: policy(strings.Replace(label, `"b"`, `nobody.knows`, 1)), worst: Refuse, want: []string{"refuse server a server of 1.37 does not accept it"}},
		"a spec that cannot be read": {policy: object(t, "{apiVersion: admissionregistration.mapd.dev/v1, kind: MutatingAdmissionPolicy, metadata: {name: p}, spec: {mutations: 5}}"), worst: Refuse,
			want: []string{"refuse policy the policy cannot be read"}},
		"after a condition": {policy: policy("  matchConditions: [{name: c, expression: 'true'}]" + label), worst: Note, want: []string{"reflection-values"}},
		"before 1.37":       {policy: policy("  matchConditions: [{name: c, expression: 'true'}]" + label), minor: 36, worst: Note, want: []string{"accepts it"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Subject{Direction: Native, Policy: tt.policy, Bindings: tt.bindings, Minor: tt.minor, ParamKindMissing: tt.gone, Given: tt.given, Live: tt.live}
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
	live.SetLabels(map[string]string{nativepolicies.LiveLabel: "gatekeeper"})
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

// Each difference is named for a policy that it is about, and not for one that differs in that
// point only.
func TestFeatures(t *testing.T) {
	const rules = "matchConstraints: {resourceRules: [{apiGroups: [%s], apiVersions: [%s], operations: [CREATE], resources: [%s]}]}\n"
	spec := func(groups, versions, resources, more string) string {
		return fmt.Sprintf("failurePolicy: Fail\nreinvocationPolicy: Never\n"+rules, groups, versions, resources) + more
	}
	label := "mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {\"a\": \"b\"}}}'}}]\n"
	patch := "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[]'}}]\n"
	plain := spec(`""`, "v1", "configmaps", label)
	versions := map[string][]string{"autoscaling": {"v1", "v2"}, "example.com": {"v1", "v2"}}
	one, tested := Subject{Minor: 37}, map[string]bool{}
	for row, tt := range map[string]struct {
		with, without       string
		subject, notSubject Subject
	}{
		"g1-first":          {plain, plain, Subject{Minor: 37, Others: 1}, one},
		"stable-order":      {plain, "", one, one}, // of all
		"exempt-namespaces": {plain, plain, Subject{Minor: 37, Exempt: []string{"kube-system"}}, one},
		"g2-passes":         {strings.Replace(plain, "Never", "IfNeeded", 1), plain, one, one},
		"server-defaults":   {spec(`""`, "v1", "configmaps", strings.Replace(label, "[{", "[{patchType: JSONPatch, jsonPatch: {expression: '[]'}}, {", 1)), plain, one, one},
		"reflection-values": {plain + "matchConditions: [{name: a, expression: 'true'}]\n", plain, one, one},
		"decode-errors":     {strings.Replace(spec(`""`, "v1", "configmaps", patch), "Fail", "Ignore", 1), spec(`""`, "v1", "configmaps", patch), one, one},
		"custom-scale":      {spec("example.com", "v1", "things/scale", patch), spec("apps", "v1", "deployments/scale", patch), one, one},
		"g6-versions": {spec("autoscaling", "v2", "horizontalpodautoscalers", label), spec("autoscaling", "v1, v2", "horizontalpodautoscalers", label),
			Subject{Minor: 37, Versions: versions}, Subject{Minor: 37, Versions: versions}},
		"g12-admission-kinds": {spec("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", label), plain, one, one},
		"g10-params":          {plain + "paramKind: {apiVersion: v1, kind: ConfigMap}\n", plain, one, one},
		"g11-authorizer":      {plain + "matchConditions: [{name: a, expression: 'authorizer.path(\"/x\").check(\"get\").allowed()'}]\n", plain, one, one},
		"g14-away":            {plain, "", one, one}, // of all
	} {
		t.Run(row, func(t *testing.T) {
			i := slices.IndexFunc(features, func(f feature) bool { return f.row == row })
			if i < 0 {
				t.Fatal("no check names it")
			}
			has := func(text string, s Subject) string {
				u := object(t, "apiVersion: admissionregistration.mapd.dev/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n  "+strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  "))
				typed, err := policy.Decode(u)
				if err != nil {
					t.Fatal(err)
				}
				return features[i].has(&s, &typed.Spec, string(manifest.Encode(u.Object["spec"])))
			}
			if has(tt.with, tt.subject) == "" {
				t.Errorf("it is not named for\n%s", tt.with)
			}
			if tt.without == "" {
				return
			}
			if text := has(tt.without, tt.notSubject); text != "" {
				t.Errorf("it is named, %q, for\n%s", text, tt.without)
			}
		})
		tested[row] = true
	}
	for _, f := range features {
		if !tested[f.row] {
			t.Errorf("nothing tests row %s", f.row)
		}
	}
}

// rows returns the rows of docs/reference/compat.md that checks name.
func rows() []string {
	out := []string{"exceptions", "external-data", "rollout-annotations"}
	for _, f := range features {
		out = append(out, f.row)
	}
	return out
}
