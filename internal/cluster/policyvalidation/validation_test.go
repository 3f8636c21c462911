package policyvalidation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/apiserver/rbac"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// access is what ann may read: every Deployment, the ConfigMap shop/mine, and
// lists of Services.
const access = `
- kind: ClusterRole
  metadata: {name: r}
  rules:
  - {apiGroups: [apps], resources: [deployments], verbs: [get]}
  - {apiGroups: [""], resources: [services], verbs: [list]}
- kind: ClusterRoleBinding
  metadata: {name: r}
  roleRef: {kind: ClusterRole, name: r}
  subjects: [{kind: User, name: ann}]
- kind: Role
  metadata: {name: r, namespace: shop}
  rules: [{apiGroups: [""], resources: [configmaps], resourceNames: [mine], verbs: [get]}]
- kind: RoleBinding
  metadata: {name: r, namespace: shop}
  roleRef: {kind: Role, name: r}
  subjects: [{kind: User, name: ann}]
`

// stored are the paramKinds of the policies that bindings name.
var stored = map[string]string{
	"configmaps":  "{apiVersion: v1, kind: ConfigMap}",
	"services":    "{apiVersion: v1, kind: Service}",
	"deployments": "{apiVersion: apps/v1, kind: Deployment}",
	"unknown":     "{apiVersion: ex.io/v1, kind: Nope}",
	"malformed":   "{apiVersion: a/b/c, kind: Nope}",
	"plain":       "",
}

func validator(t *testing.T) *Validator {
	t.Helper()
	env, err := cel.NewEnv(cel.Options{Version: "1.37"})
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := yaml.Unmarshal([]byte(access), &list); err != nil {
		t.Fatal(err)
	}
	var objs []*unstructured.Unstructured
	for _, o := range list {
		o["apiVersion"] = "rbac.authorization.k8s.io/v1"
		objs = append(objs, &unstructured.Unstructured{Object: o})
	}
	authorizer, err := rbac.New(objs...)
	if err != nil {
		t.Fatal(err)
	}
	return &Validator{
		Env: env, Authorizer: authorizer, Types: openapi.New(openapi.Builtin()),
		Policy: func(_ context.Context, name string) (*unstructured.Unstructured, error) {
			kind, ok := stored[name]
			if !ok {
				return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
			}
			return object(t, "MutatingAdmissionPolicy", "{paramKind: "+kind+"}"), nil
		},
	}
}

func object(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	var s any
	if err := yaml.Unmarshal([]byte(spec), &s); err != nil {
		t.Fatal(err)
	}
	if m, ok := s.(map[string]any); ok && m["paramKind"] == nil {
		delete(m, "paramKind")
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.mapd.dev/v1", "kind": kind, "metadata": map[string]any{"name": "x"}, "spec": s,
	}}
}

// request is what ann does with an object; old makes it an update.
func request(object, old *unstructured.Unstructured) *policy.Request {
	req := &policy.Request{
		Kind:      schema.FromAPIVersionAndKind("admissionregistration.mapd.dev/v1", object.GetKind()),
		Operation: admissionv1.Create, Object: object, OldObject: old,
		UserInfo: authenticationv1.UserInfo{Username: "ann", UID: "7", Groups: []string{"dev"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}},
	}
	if old != nil {
		req.Operation = admissionv1.Update
	}
	return req
}

const (
	ann   = `&{ann 7 [dev] map[k:[v]]}`
	patch = `{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'remove', path: '/x'}]"}}`
	// broken does not compile.
	broken = `{patchType: JSONPatch, jsonPatch: {expression: " nope"}}`
	rules  = `matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}`
)

func policySpec(mutation, more string) string {
	return `{reinvocationPolicy: Never, ` + rules + `, mutations: [` + mutation + `]` + more + `}`
}

func TestPolicies(t *testing.T) {
	v := validator(t)
	const configMaps = `, paramKind: {apiVersion: v1, kind: ConfigMap}`
	const deployments = `, paramKind: {apiVersion: apps/v1, kind: Deployment}`
	mayNot := func(kind, apiVersion string) string {
		return `spec.paramKind: Forbidden: user ` + ann + ` must have "get" permission on all objects of the referenced paramKind (kind=` + kind + `, apiVersion=` + apiVersion + `)`
	}
	const compile = "spec.mutations[0].jsonPatch.expression: Invalid value: \"nope\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^"
	tests := map[string]struct {
		old, obj string
		want     string // after `… "x" is invalid: `
	}{
		"fine":                           {obj: policySpec(patch, "")},
		"does not compile":               {obj: policySpec(broken, ""), want: compile},
		"may read the parameters":        {obj: policySpec(patch, deployments)},
		"may not read the parameters":    {obj: policySpec(patch, configMaps), want: mayNot("ConfigMap", "v1")},
		"may not read an unknown kind":   {obj: policySpec(patch, `, paramKind: {apiVersion: ex.io/v1, kind: Nope}`), want: mayNot("Nope", "ex.io/v1")},
		"is not asked unless it is well": {obj: policySpec(broken, configMaps), want: compile},
		"updated, to parameters":         {old: policySpec(patch, ""), obj: policySpec(patch, configMaps), want: mayNot("ConfigMap", "v1")},
		"updated, to other parameters":   {old: policySpec(patch, deployments), obj: policySpec(patch, configMaps), want: mayNot("ConfigMap", "v1")},
		"updated, parameters kept":       {old: policySpec(patch, configMaps), obj: policySpec(patch, configMaps+", failurePolicy: Ignore")},
		"updated, without a change":      {old: policySpec(broken, configMaps), obj: policySpec(broken, configMaps)},
		"updated, still broken":          {old: policySpec(broken, ""), obj: policySpec(broken, ", failurePolicy: Ignore"), want: compile},
		"updated, repaired":              {old: `{mutations: nonsense}`, obj: policySpec(patch, "")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := object(t, "MutatingAdmissionPolicy", tt.obj)
			var old *unstructured.Unstructured
			if tt.old != "" {
				old = object(t, "MutatingAdmissionPolicy", tt.old)
			}
			status, warnings := v.Validate(t.Context(), request(obj, old))
			check(t, status, "MutatingAdmissionPolicy", tt.want)
			if len(warnings) > 0 {
				t.Errorf("warnings %q", warnings)
			}
			req := request(obj, old)
			req.UserInfo.Groups = []string{"system:masters"}
			if status, _ := v.Validate(t.Context(), req); status != nil && strings.Contains(status.Message, "Forbidden") {
				t.Errorf("system:masters are refused: %s", status.Message)
			}
		})
	}
}

func TestBindings(t *testing.T) {
	v := validator(t)
	ref := func(policy, ref string) string {
		return `{policyName: ` + policy + `, paramRef: {parameterNotFoundAction: Deny, ` + ref + `}}`
	}
	minimum := func(what, verb string) string {
		return `spec.paramRef: Forbidden: unable to ` + what + ` to determine minimum required permissions and user ` + ann + ` does not have "` + verb + `" permission for all groups, versions and resources`
	}
	mayNot := func(verb string) string {
		return `spec.paramRef: Forbidden: user ` + verb + ` does not have "` + ann + `" permission on the object referenced by paramRef`
	}
	tests := map[string]struct {
		old, obj string
		want     string
	}{
		"without parameters":             {obj: `{policyName: gone}`},
		"malformed":                      {obj: `{policyName: A_b}`, want: `spec.policyName: Invalid value: "A_b"`},
		"named, may":                     {obj: ref("configmaps", "name: mine, namespace: shop")},
		"named, may not":                 {obj: ref("configmaps", "name: other, namespace: shop"), want: mayNot("get")},
		"named, not in every namespace":  {obj: ref("configmaps", "name: mine"), want: mayNot("get")},
		"named, in every namespace":      {obj: ref("deployments", "name: any")},
		"selected, may":                  {obj: ref("services", "selector: {}")},
		"selected, may not":              {obj: ref("deployments", "selector: {matchLabels: {a: b}}"), want: mayNot("list")},
		"no such policy":                 {obj: ref("gone", "name: mine"), want: minimum("get policy gone", "get")},
		"unknown kind":                   {obj: ref("unknown", "selector: {}"), want: minimum("resolve paramKind &{ex.io/v1 Nope}", "list")},
		"malformed kind":                 {obj: ref("malformed", "name: mine"), want: minimum("parse paramKind &{a/b/c Nope}", "get")},
		"a policy without paramKind":     {obj: ref("plain", "name: mine"), want: mayNot("get")},
		"updated, without a change":      {old: ref("configmaps", "name: other"), obj: ref("configmaps", "name: other")},
		"updated, to another policy":     {old: ref("deployments", "name: a"), obj: ref("configmaps", "name: a"), want: mayNot("get")},
		"updated, parameters kept":       {old: ref("configmaps", "name: other"), obj: strings.TrimSuffix(ref("configmaps", "name: other"), "}") + ", matchResources: {}}", want: mayNot("get")},
		"updated, from what is nonsense": {old: `[]`, obj: ref("configmaps", "name: mine, namespace: shop")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := object(t, "MutatingAdmissionPolicyBinding", tt.obj)
			var old *unstructured.Unstructured
			if tt.old != "" {
				old = object(t, "MutatingAdmissionPolicyBinding", tt.old)
			}
			status, warnings := v.Validate(t.Context(), request(obj, old))
			check(t, status, "MutatingAdmissionPolicyBinding", tt.want)
			if len(warnings) > 0 {
				t.Errorf("warnings %q", warnings)
			}
		})
	}
}

// check wants a status as a server sends it for an invalid object: the message
// with one cause that begins so, or none.
func check(t *testing.T, status *metav1.Status, kind, want string) {
	t.Helper()
	if want == "" {
		if status != nil {
			t.Errorf("refused: %s", status.Message)
		}
		return
	}
	if status == nil {
		t.Fatalf("allowed, want %s", want)
	}
	if got, want := status.Message, kind+`.admissionregistration.mapd.dev "x" is invalid: `+want; !strings.HasPrefix(got, want) {
		t.Errorf("message %s\nwant    %s", got, want)
	}
	if status.Code != 422 || status.Reason != metav1.StatusReasonInvalid || status.Status != metav1.StatusFailure {
		t.Errorf("code %d, reason %s, status %s", status.Code, status.Reason, status.Status)
	}
	d := status.Details
	if d == nil || d.Name != "x" || d.Kind != kind || d.Group != "admissionregistration.mapd.dev" || len(d.Causes) != 1 {
		t.Fatalf("details %+v", d)
	}
	if c := d.Causes[0]; !strings.HasPrefix(c.Field+": "+c.Message, want) || c.Type == "" {
		t.Errorf("cause %+v, want %s", c, want)
	}
}

func TestNotOurBusiness(t *testing.T) {
	v := validator(t)
	bad := func() *policy.Request { return request(object(t, "MutatingAdmissionPolicy", "{}"), nil) }
	tests := map[string]func(*policy.Request){
		"another group": func(r *policy.Request) { r.Kind.Group = "admissionregistration.k8s.io" },
		"another kind":  func(r *policy.Request) { r.Kind.Kind = "Pod" },
		"the status":    func(r *policy.Request) { r.SubResource = "status" },
		"a deletion":    func(r *policy.Request) { r.Operation, r.OldObject, r.Object = admissionv1.Delete, r.Object, nil },
		"only metadata": func(r *policy.Request) {
			r.Operation, r.OldObject = admissionv1.Update, r.Object.DeepCopy()
			r.Object.SetFinalizers(nil)
		},
		"being deleted": func(r *policy.Request) {
			r.Operation, r.OldObject = admissionv1.Update, r.Object.DeepCopy()
			r.Object.SetDeletionTimestamp(new(metav1.Now()))
		},
	}
	if status, _ := v.Validate(t.Context(), bad()); status == nil {
		t.Fatal("an empty spec is allowed")
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			req := bad()
			change(req)
			if status, _ := v.Validate(t.Context(), req); status != nil {
				t.Errorf("refused: %s", status.Message)
			}
		})
	}
}

func TestUndecodable(t *testing.T) {
	v := validator(t)
	none := request(object(t, "MutatingAdmissionPolicy", "{}"), nil)
	none.Object = nil
	tests := map[string]struct {
		req  *policy.Request
		want string
	}{
		"an unknown field": {request(object(t, "MutatingAdmissionPolicy", "{nope: 1}"), nil),
			`MutatingAdmissionPolicy in version "v1" cannot be handled as a MutatingAdmissionPolicy: strict decoding error: unknown field "spec.nope"`},
		"a wrong type": {request(object(t, "MutatingAdmissionPolicyBinding", "{policyName: 1}"), nil),
			`MutatingAdmissionPolicyBinding in version "v1" cannot be handled as a MutatingAdmissionPolicyBinding: json: cannot unmarshal number into Go struct field MutatingAdmissionPolicyBindingSpec.spec.policyName of type string`},
		"no object": {none, "the review has no object"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status, _ := v.Validate(t.Context(), tt.req)
			if status == nil || status.Code != 400 || !strings.HasPrefix(status.Message, tt.want) {
				t.Errorf("status %+v, want 400 and %s", status, tt.want)
			}
		})
	}
}

// Annotations that say how much of an object counts are looked at although its spec stays.
func TestRollout(t *testing.T) {
	v := validator(t)
	with := func(kind, key, value string) *unstructured.Unstructured {
		spec := policySpec(patch, "")
		if kind == "MutatingAdmissionPolicyBinding" {
			spec = "{policyName: a}"
		}
		obj := object(t, kind, spec)
		if key != "" {
			obj.SetAnnotations(map[string]string{"other": value, "mapd.dev/" + key: value})
		}
		return obj
	}
	const p, b = "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"
	for _, tt := range []struct{ kind, key, value, want string }{
		{p, "mode", "shadow", ""},
		{b, "percent", "0.5", ""},
		{p, "breaker", "errors=5%", ""},
		{p, "mode", "off", `metadata.annotations[mapd.dev/mode]: Invalid value: "off": must be enforce, warn or shadow`},
		{b, "mode", "", `metadata.annotations[mapd.dev/mode]: Invalid value: "": must be enforce, warn or shadow`},
		{b, "percent", "ten", `metadata.annotations[mapd.dev/percent]: Invalid value: "ten": must be a number from 0 to 100 with at most 4 decimals, such as 10 or 0.5`},
		{p, "percent", "10", "metadata.annotations[mapd.dev/percent]: Forbidden: only a MutatingAdmissionPolicyBinding can have it"},
		{b, "breaker", "errors=5%", "metadata.annotations[mapd.dev/breaker]: Forbidden: only a MutatingAdmissionPolicy can have it"},
		{p, "breaker", "errors=5", `metadata.annotations[mapd.dev/breaker]: Invalid value: "errors=5": errors must be a percentage above 0%, such as errors=5%`},
	} {
		now, before := with(tt.kind, tt.key, tt.value), with(tt.kind, "", "")
		for name, old := range map[string]*unstructured.Unstructured{"created": nil, "updated": before, "as before": now} {
			want := tt.want
			if name == "as before" {
				want = ""
			}
			status, _ := v.Validate(t.Context(), request(now, old))
			if got := ""; status != nil {
				if got = status.Message; !strings.Contains(got, want) || want == "" || status.Code != http.StatusUnprocessableEntity {
					t.Errorf("%s %s %s=%s: %d %s, want %s", tt.kind, name, tt.key, tt.value, status.Code, got, want)
				}
			} else if want != "" {
				t.Errorf("%s %s %s=%s: allowed, want %s", tt.kind, name, tt.key, tt.value, want)
			}
		}
	}
}

func TestReservedName(t *testing.T) {
	v := validator(t)
	for _, kind := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
		spec, changed := policySpec(patch, ""), policySpec(patch, ", failurePolicy: Ignore")
		if kind == "MutatingAdmissionPolicyBinding" {
			spec, changed = "{policyName: a}", "{policyName: b}"
		}
		obj, after := object(t, kind, spec), object(t, kind, changed)
		obj.SetName("x.static.k8s.io")
		after.SetName("x.static.k8s.io")
		if status, _ := v.Validate(t.Context(), request(obj, nil)); status == nil || !strings.Contains(status.Message, `names ending with ".static.k8s.io" are reserved`) {
			t.Errorf("%s: created: %+v", kind, status)
		}
		if status, _ := v.Validate(t.Context(), request(after, obj)); status != nil {
			t.Errorf("%s: updated: %s", kind, status.Message)
		}
	}
}

func TestWarnings(t *testing.T) {
	v := validator(t)
	const misspelt = `{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{label: {'a': 'b'}}}"}}`
	obj := object(t, "MutatingAdmissionPolicy", policySpec(misspelt, ""))
	status, warnings := v.Validate(t.Context(), request(obj, nil))
	if status != nil {
		t.Fatalf("refused: %s", status.Message)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "spec.mutations[0].applyConfiguration.expression:1:") || !strings.Contains(warnings[0], "label") {
		t.Errorf("warnings %q", warnings)
	}
}

// A rule that names nothing that the cluster serves is accepted, as by a native server, and
// never without a word.
func TestMatchesNothing(t *testing.T) {
	v := validator(t)
	const policyOf, bindingOf = `{reinvocationPolicy: Never, matchConstraints: %s, mutations: [` + patch + `]}`, `{policyName: plain, matchResources: %s}`
	for rule, want := range map[string]string{
		`{apiGroups: [""], apiVersions: [v1], resources: [Pod]}`:                                `Pod; did you mean pods?`,
		`{apiGroups: [core], apiVersions: [v1], resources: [pods]}`:                             `the group of Pods and Services is written as ""`,
		`{apiGroups: [""], apiVersions: [v1], resources: [pod]}`:                                `pod; did you mean pods?`,
		`{apiGroups: [""], apiVersions: [v1], resources: [deployments]}`:                        `deployments is not in group "", but in apps`,
		`{apiGroups: [""], apiVersions: [v1], resources: [pods/statuses]}`:                      `pods has no subresource statuses`,
		`{apiGroups: [example.com], apiVersions: [v1], resources: [Widget]}`:                    `no resource has capital letters`,
		`{apiGroups: [""], apiVersions: [v1], resources: [pods, pods/exec]}`:                    "",
		`{apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}`:                              "",
		`{apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}`:                   "",
		`{apiGroups: ["", apps], apiVersions: [v1], resources: [pods, deployments, "*/scale"]}`: "",
	} {
		match := "{resourceRules: [" + strings.Replace(rule, "{", "{operations: [CREATE], ", 1) + "]}"
		for kind, spec := range map[string]string{"MutatingAdmissionPolicy": policyOf, "MutatingAdmissionPolicyBinding": bindingOf} {
			status, warnings := v.Validate(t.Context(), request(object(t, kind, fmt.Sprintf(spec, match)), nil))
			if status != nil {
				t.Fatalf("%s of a %s: refused: %s", rule, kind, status.Message)
			}
			if want == "" && len(warnings) > 0 || want != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], ".resourceRules[0].") || !strings.Contains(warnings[0], want)) {
				t.Errorf("%s of a %s: %q, want %q", rule, kind, warnings, want)
			}
		}
	}
	// A condition that no request meets, and a selector that selects nothing.
	for _, more := range []string{
		`, matchConditions: [{name: never, expression: "false"}]`,
	} {
		_, warnings := v.Validate(t.Context(), request(object(t, "MutatingAdmissionPolicy", policySpec(patch, more)), nil))
		if len(warnings) != 1 {
			t.Errorf("%s: %q", more, warnings)
		}
	}
	selector := `{policyName: plain, matchResources: {objectSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}}}`
	if _, warnings := v.Validate(t.Context(), request(object(t, "MutatingAdmissionPolicyBinding", selector), nil)); len(warnings) != 1 {
		t.Errorf("%s: %q", selector, warnings)
	}
	// Many findings are one bounded answer.
	many := `{reinvocationPolicy: Never, matchConstraints: {resourceRules: [` + strings.Repeat(`{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [Pod]}, `, 60) + `]}, mutations: [` + patch + `]}`
	if _, warnings := v.Validate(t.Context(), request(object(t, "MutatingAdmissionPolicy", many), nil)); len(warnings) != maxWarnings+1 || warnings[maxWarnings] != "and 40 more" {
		t.Errorf("%d warnings, the last is %q", len(warnings), warnings[len(warnings)-1])
	}
}

// What is too much to compile is refused at once, and so is what is not compiled when
// the request ends: an error would let it be stored.
func TestBounds(t *testing.T) {
	v := validator(t)
	attack := `{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/a', value: optional.of(1)` + strings.Repeat(".optMap(x, x+x)", 24) + `}]"}}`
	obj := object(t, "MutatingAdmissionPolicy", policySpec(attack, ""))
	status, _ := v.Validate(t.Context(), request(obj, nil))
	if status == nil || status.Reason != metav1.StatusReasonInvalid || !strings.Contains(status.Message, "more than 200000 syntax-tree nodes") {
		t.Errorf("got %+v", status)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	status, _ = v.Validate(over, request(object(t, "MutatingAdmissionPolicy", policySpec(patch, "")), nil))
	if status == nil || status.Reason != metav1.StatusReasonTimeout || status.Code != http.StatusGatewayTimeout {
		t.Errorf("after the end of the request: %+v", status)
	}
}

// refusing is an authorizer that cannot answer.
type refusing struct {
	rbac.NoOpinion
	err error
}

func (r refusing) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", r.err
}

func TestUnansweredAccessCheck(t *testing.T) {
	tests := map[string]struct {
		err  error
		want string
	}{
		"the network":  {errors.New("dial tcp 10.0.0.1:443: refused"), "spec.paramKind: Forbidden: the access check was not answered"},
		"the server":   {apierrors.NewForbidden(schema.GroupResource{Resource: "subjectaccessreviews"}, "", errors.New("mapd may not")), `spec.paramKind: Forbidden: subjectaccessreviews is forbidden: mapd may not`},
		"its overload": {apierrors.NewTooManyRequests("later", 1), "spec.paramKind: Forbidden: later"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := validator(t)
			v.Authorizer = refusing{err: tt.err}
			status, _ := v.Validate(t.Context(), request(object(t, "MutatingAdmissionPolicy", policySpec(patch, ", paramKind: {apiVersion: v1, kind: Secret}")), nil))
			check(t, status, "MutatingAdmissionPolicy", tt.want)
		})
	}
}
