package modulepolicy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/test/guest"
)

const objects = `
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: shop, labels: {app: web}}
data: {a: b, c: d}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two, namespace: bank}
data: {a: b}
`

// The module reads objects of the kinds that its policy names, and nothing else. It
// fails with what the host says, so that the error of the policy has it.
func TestHostCalls(t *testing.T) {
	const (
		prefix = "Guest call failure: "
		one    = `{"apiVersion":"v1","data":{"a":"b","c":"d"},"kind":"ConfigMap","metadata":{"labels":{"app":"web"},"name":"one","namespace":"shop"}}`
		two    = `{"apiVersion":"v1","data":{"a":"b"},"kind":"ConfigMap","metadata":{"name":"two","namespace":"bank"}}`
	)
	list := func(items ...string) string {
		return `{"apiVersion":"v1","kind":"ConfigMapList","metadata":{},"items":[` + strings.Join(items, ",") + `]}`
	}
	tests := map[string]struct{ operation, payload, want string }{
		"get":               {"get_resource", `{"api_version":"v1","kind":"ConfigMap","name":"one","namespace":"shop","disable_cache":false}`, one},
		"get masked":        {"get_resource", `{"api_version":"v1","kind":"ConfigMap","name":"one","namespace":"shop","field_masks":["data.a","metadata.name","none.of"]}`, `{"data":{"a":"b"},"metadata":{"name":"one"}}`},
		"get a namespace":   {"get_resource", `{"api_version":"v1","kind":"Namespace","name":"shop","namespace":null}`, `{"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"team":"a"},"name":"shop"},"spec":{},"status":{}}`},
		"get what is not":   {"get_resource", `{"api_version":"v1","kind":"ConfigMap","name":"none","namespace":"shop"}`, `Callback evaluation failure: ConfigMap "none" not found`},
		"get without place": {"get_resource", `{"api_version":"v1","kind":"ConfigMap","name":"one"}`, `Callback evaluation failure: ConfigMap "one": a namespace is needed`},
		"list":              {"list_resources_by_namespace", `{"api_version":"v1","kind":"ConfigMap","namespace":"shop"}`, list(one)},
		"list all":          {"list_resources_all", `{"api_version":"v1","kind":"ConfigMap"}`, list(two, one)},
		"list by label":     {"list_resources_all", `{"api_version":"v1","kind":"ConfigMap","label_selector":"app=web"}`, list(one)},
		"list by field":     {"list_resources_all", `{"api_version":"v1","kind":"ConfigMap","field_selector":"metadata.name=two"}`, list(two)},
		"another field":     {"list_resources_all", `{"api_version":"v1","kind":"ConfigMap","field_selector":"data.a=b"}`, `Callback evaluation failure: field_selector: "data.a" is not supported; metadata.name and metadata.namespace are`},
		"not granted":       {"get_resource", `{"api_version":"v1","kind":"Secret","name":"one","namespace":"shop"}`, "Policy has not been granted access to Kubernetes v1/Secret resources. The violation has been reported."},
		"can_i":             {"can_i", `{}`, "the 'kubernetes/can_i' host capability is not supported here"},
		"unknown":           {"delete_resource", `{}`, "unknown operation: delete_resource"},
		"not a query":       {"get_resource", `[]`, "get_resource: invalid request: json: cannot unmarshal array into Go value of type modulepolicy.query"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e, errs := load(t, guest.Answers{Call: [2]string{tt.operation, tt.payload}}, func(s string) string {
				return s + "  contextAwareResources:\n  - {apiVersion: v1, kind: ConfigMap}\n  - {apiVersion: v1, kind: Namespace}\n" + objects
			})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			d := e.Admit(t.Context(), request(t))
			if len(d.Steps) != 1 || d.Steps[0].Err == nil {
				t.Fatalf("%+v", d.Steps)
			}
			if diff := cmp.Diff(prefix+tt.want, d.Steps[0].Err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Warnings and audit annotations reach the decision, within bounds.
func TestRemarks(t *testing.T) {
	e, errs := load(t, guest.Answers{Validate: `{"accepted":false,"warnings":["one","two"],"audit_annotations":{"k":"v"}}`}, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	d := e.Admit(t.Context(), request(t))
	if diff := cmp.Diff([]string{"one", "two"}, d.Warnings); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"clusterwide-p.k": "v"}, d.Annotations()); diff != "" {
		t.Error(diff)
	}

	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprintf("%q:%q", strings.Repeat("k", 200)+fmt.Sprint(i), strings.Repeat("v", 5000)))
	}
	e, errs = load(t, guest.Answers{Validate: `{"accepted":true,"warnings":[` + strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("w", 500)+`",`, 200), ",") + `],"audit_annotations":{` + strings.Join(keys[:60], ",") + `}}`}, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	d = e.Admit(t.Context(), request(t))
	if d.Status != nil || len(d.Warnings) != 64 || len(d.Annotations()) > 32 {
		t.Errorf("status %v, %d warnings, %d annotations", d.Status, len(d.Warnings), len(d.Annotations()))
	}
	for key, value := range d.Annotations() {
		if len(key) > 200 || len(value) > 4<<10 {
			t.Errorf("an annotation has a key of %d bytes and a value of %d", len(key), len(value))
		}
	}
}
