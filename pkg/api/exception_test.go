package api

import (
	"encoding/json"
	"strings"
	"testing"
)

// What mapd takes as an exception, and what not.
func TestValidateException(t *testing.T) {
	const rest = `, "reason": "r", "until": "2027-01-31T00:00:00Z"`
	many := func(n int, item string) string {
		var items []string
		for i := range n {
			items = append(items, strings.ReplaceAll(item, "#", strings.Repeat("x", i+1)))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	rule := func(n int) string {
		return `{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ` + many(n, `"#"`) + `}`
	}
	for _, tt := range []struct{ namespace, spec, want string }{
		{"shop", `"policies": ["p"]` + rest, ""},
		{"shop", `"policies": ["p"], "namespaces": ["shop"]` + rest, ""},
		{"mapd-system", `"policies": ["p"], "namespaces": ["shop", "other"], "match": {"namespaceSelector": {"matchLabels": {"a": "b"}}}` + rest, ""},
		{"shop", `"policies": ["p"], "reason": "r", "from": "2027-01-31T00:30:00+01:00", "until": "2027-01-31T00:00:00.5Z"`, ""},
		{"shop", `"policies": []` + rest, "spec.policies: Required value: the names of policies"},
		{"shop", `"policies": ["P"]` + rest, "spec.policies[0]: Invalid value: \"P\": a lowercase RFC 1123 subdomain"},
		{"shop", `"policies": ` + many(65, `"p#"`) + rest, "spec.policies: Too many: 65: must have at most 64 items"},
		{"shop", `"policies": ["p", "Assign/p", "AssignImage/p", "AssignMetadata/p", "ModifySet/p", "AdmissionPolicy/p", "ClusterAdmissionPolicy/p"]` + rest, ""},
		{"shop", `"policies": ["Assign/P"]` + rest, "spec.policies[0]: Invalid value: \"Assign/P\": a lowercase RFC 1123 subdomain"},
		{"shop", `"policies": ["Assign/a/b"]` + rest, "a lowercase RFC 1123 subdomain"},
		{"shop", `"policies": ["Pod/p"]` + rest, "must be the name of a policy of admissionregistration.mapd.dev, or Kind/name of one of these kinds: AdmissionPolicy, Assign, "},
		{"shop", `"policies": ["` + strings.Repeat("k", 100000) + `/p"]` + rest, "must be the name of a policy of"},
		{"shop", `"policies": ["MutatingPolicy/p"]` + rest, "Kyverno runs its policies itself, and reads only the PolicyExceptions of kyverno.io and policies.kyverno.io"},
		{"shop", `"policies": ["p", "Assign/p"], "bindings": ["b"]` + rest, "spec.bindings: Forbidden: Assign/p has no bindings: write an exception of its own for it"},
		{"shop", `"policies": ["p"], "names": ["a/b"]` + rest, "spec.names[0]: Invalid value: \"a/b\": must be the name of an object"},
		{"shop", `"policies": ["p"], "names": ` + many(65, `"#"`) + rest, "spec.names: Too many: 65"},
		{"shop", `"policies": ["p"], "namespaces": ["other"]` + rest, "spec.namespaces: Forbidden: an exception in namespace shop is for objects of that namespace only"},
		{"shop", `"policies": ["p"], "match": {"resourceRules": ` + many(17, rule(1)) + `}` + rest, "spec.match.resourceRules: Too many: 17: must have at most 16 items"},
		{"shop", `"policies": ["p"], "match": {"resourceRules": [` + rule(33) + `]}` + rest, "spec.match.resourceRules[0].resources: Too many: 33: must have at most 32 items"},
		{"shop", `"policies": ["p"], "match": {"objectSelector": {"matchExpressions": ` + many(33, `{"key": "k#", "operator": "Exists"}`) + `}}` + rest, "spec.match.objectSelector: Too many: 33"},
		{"shop", `"policies": ["p"], "match": {"objectSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ` + many(65, `"v"`) + `}]}}` + rest, "spec.match.objectSelector.matchExpressions[0].values: Too many: 65"},
		{"shop", `"policies": ["p"], "match": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}]}` + rest, "spec.match.resourceRules.operations: Unsupported value"},
		{"shop", `"policies": ["p"], "until": "2027-01-31T00:00:00Z"`, "spec.reason: Required value: why there is the exception"},
		{"shop", `"policies": ["p"], "until": "2027-01-31T00:00:00Z", "reason": "` + strings.Repeat("r", 1025) + `"`, "spec.reason: Too long"},
		{"shop", `"policies": ["p"], "owner": "` + strings.Repeat("o", 129) + `"` + rest, "spec.owner: Too long"},
		{"shop", `"policies": ["p"], "reason": "r"`, "spec.until: Required value: when the exception ends"},
		{"shop", `"policies": ["p"], "reason": "r", "until": "2027-01-31"`, "spec.until: Invalid value: \"2027-01-31\": must be a time with a zone"},
		{"shop", `"policies": ["p"], "reason": "r", "until": "2027-01-31T00:00:00"`, "must be a time with a zone"},
		{"shop", `"policies": ["p"], "reason": "r", "until": "0001-01-01T01:00:00+01:00"`, "must be a time with a zone"}, // would be none
		{"shop", `"policies": ["p"], "reason": "r", "until": "2027-01-31T00:00:00.` + strings.Repeat("0", 100000) + `Z"`, "must be a time with a zone"},
		{"shop", `"policies": ["p"], "reason": "r", "from": "2027-01-31T00:00:00Z", "until": "2027-01-31T01:00:00+01:00"`, "spec.until: Invalid value: \"2027-01-31T01:00:00+01:00\": must be after from"},
	} {
		e, err := DecodeException([]byte(`{"apiVersion": "mapd.dev/v1alpha1", "kind": "PolicyException", "metadata": {"name": "x"}, "spec": {`+tt.spec+`}}`), tt.namespace)
		if err != nil {
			t.Errorf("%.100s: %v", tt.spec, err)
			continue
		}
		got := ""
		if faults := ValidateException(e, ExceptionRules{}); len(faults) > 0 {
			got = faults.Error()
		}
		if !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") || len(got) > 1000 {
			t.Errorf("%.100s:\n%.300s\nwant %s", tt.spec, got, tt.want)
		}
	}
	if _, err := DecodeException([]byte(`{"apiVersion": "mapd.dev/v1alpha1", "kind": "PolicyException", "metadata": {"name": "x"}, "spec": {"untill": "x"}}`), ""); err == nil || !strings.Contains(err.Error(), `unknown field "spec.untill"`) {
		t.Errorf("a misspelt field: %v", err)
	}
	if faults := ValidateException(&PolicyException{}, ExceptionRules{Endless: true}); len(faults) < 3 {
		t.Errorf("nothing at all: %v", faults)
	}
}

// An exception that is stored holds for the spec that its writer was allowed to write.
func TestExceptionAllowed(t *testing.T) {
	decode := func(spec, status string) *PolicyException {
		t.Helper()
		e, err := DecodeException([]byte(`{"apiVersion": "mapd.dev/v1alpha1", "kind": "PolicyException", "metadata": {"name": "x"}, "spec": {`+spec+`}, "status": `+status+`}`), "shop")
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	const spec = `"policies": ["p"], "reason": "r", "match": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}]}`
	status, err := json.Marshal(map[string]any{"allowed": map[string]any{"digest": decode(spec, "{}").Spec.Digest(), "user": "alice"}})
	if err != nil {
		t.Fatal(err)
	}
	// A server fills in defaults.
	stored := strings.Replace(spec, `"match": {`, `"match": {"matchPolicy": "Equivalent", "objectSelector": {}, "namespaceSelector": {}, `, 1)
	if by, err := decode(stored, string(status)).Allowed(); by != "alice" || err != nil {
		t.Errorf("with its defaults: %q, %v", by, err)
	}
	for _, e := range []*PolicyException{
		decode(spec, "{}"), decode(strings.Replace(spec, `"p"`, `"p", "q"`, 1), string(status)), decode(spec+`, "until": "2999-01-01T00:00:00Z"`, string(status)), decode(spec, `{"allowed": "yes"}`),
	} {
		if by, err := e.Allowed(); by != "" || err != ErrNotAllowed {
			t.Errorf("%v: %q, %v", e.Spec, by, err)
		}
	}
}
