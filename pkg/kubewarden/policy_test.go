package kubewarden

import (
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const pods = `"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"]}]`

func decode(t *testing.T, kind, name, namespace, spec string) *Policy {
	t.Helper()
	p, err := Decode([]byte(`{"apiVersion":"policies.kubewarden.io/v1","kind":"`+kind+`","metadata":{"name":"`+name+`","namespace":"`+namespace+`"},"spec":{`+spec+`}}`), "default")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDecode(t *testing.T) {
	p := decode(t, ClusterPolicyKind, "p", "", `"module":"file:///p.wasm","mutating":true,"settings":null,"mode":"monitor","timeoutEvalSeconds":5,"failurePolicy":"Fail",
		"policyServer":"other","backgroundAudit":false,"sideEffects":"None","matchPolicy":"Exact","message":"m",
		"contextAwareResources":[{"apiVersion":"v1","kind":"Namespace"}],`+pods)
	spec := p.Object().Spec
	switch {
	case p.ID() != "clusterwide-p", p.Kind() != ClusterPolicyKind, p.Module.Location != "/p.wasm", !p.Mutating, !p.Monitor, p.Settings == nil,
		p.Timeout != 5*time.Second, p.Message != "m", p.PolicyServer != "other", p.BackgroundAudit:
		t.Errorf("%+v", p)
	case !slices.Equal(p.ContextAware, []schema.GroupVersionKind{{Version: "v1", Kind: "Namespace"}}):
		t.Errorf("%v", p.ContextAware)
	case *spec.FailurePolicy != admissionregistrationv1.Ignore: // of mode monitor
		t.Errorf("%v", *spec.FailurePolicy)
	case *spec.MatchConstraints.MatchPolicy != admissionregistrationv1.Exact:
		t.Errorf("%v", *spec.MatchConstraints.MatchPolicy)
	}
	p = decode(t, PolicyKind, "p", "", `"module":"file:///p.wasm","mutating":false,`+pods)
	rule := p.Object().Spec.MatchConstraints.ResourceRules[0]
	if p.ID() != "namespaced-default-p" || p.Timeout != DefaultTimeout || !p.BackgroundAudit || *rule.Scope != admissionregistrationv1.NamespacedScope {
		t.Errorf("%+v", p)
	}
}

func TestUnique(t *testing.T) {
	spec := `"module":"file:///p.wasm","mutating":true,` + pods
	a, b := decode(t, PolicyKind, "b-c", "a", spec), decode(t, PolicyKind, "c", "a-b", spec)
	first := decode(t, ClusterPolicyKind, "z", "", spec)
	for _, list := range [][]*Policy{{a, b, first}, {first, b, a}} {
		var ids []string
		for _, p := range Unique(list) {
			ids = append(ids, p.ID())
		}
		if want := []string{"clusterwide-z", "namespaced-a-b-c", "namespaced-a-b-c.a-b"}; !slices.Equal(ids, want) {
			t.Errorf("%v, want %v", ids, want)
		}
	}
	if a.ID() != b.ID() {
		t.Error("Unique changed a policy that others hold")
	}
}

func TestParseSource(t *testing.T) {
	digest := strings.Repeat("0a", 32)
	tests := map[string]struct {
		want Source
		err  string
	}{
		"ghcr.io/a/b:v1":                    {want: Source{Scheme: "registry", Location: "ghcr.io/a/b:v1"}},
		"registry://h:5000/b@sha256:00":     {want: Source{Scheme: "registry", Location: "h:5000/b@sha256:00"}},
		"file:///a/b.wasm":                  {want: Source{Scheme: "file", Location: "/a/b.wasm"}},
		"https://h/p.wasm#sha256:" + digest: {want: Source{Scheme: "https", Location: "https://h/p.wasm", Digest: digest}},
		"https://h/p.wasm@sha256:" + digest: {want: Source{Scheme: "https", Location: "https://h/p.wasm", Digest: digest}},
		"https://h/p.wasm":                  {err: "a module from https:// needs the digest of its bytes; append #sha256:HEX (sha256sum policy.wasm)"},
		"https://h/p.wasm#sha256:12":        {err: `"12" is no SHA-256; want 64 lower-case hexadecimal digits`},
		"http://h/p.wasm":                   {err: "http:// is not supported, since anybody on the way can replace the module; use https:// or registry://"},
		"ftp://h/p.wasm":                    {err: `scheme "ftp" is not known; want file, https or registry`},
		"file://p.wasm":                     {err: "file://p.wasm is not an absolute path; write file:///path/policy.wasm"},
		"policy.wasm":                       {err: `"policy.wasm" has no registry; write registry://host/path:tag`},
		"file://":                           {err: "names no module"},
		"ghcr.io/a b":                       {err: "contains white space or control characters"},
	}
	for text, tt := range tests {
		got, err := ParseSource(text)
		msg := ""
		if err != nil {
			msg = err.Error()
		}
		tt.want.URL = text
		if msg != tt.err || err == nil && got != tt.want {
			t.Errorf("ParseSource(%q) = %+v, %q, want %+v, %q", text, got, msg, tt.want, tt.err)
		}
	}
}

// What a policy says comes from tenants: nothing may panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"policies.kubewarden.io/v1","kind":"AdmissionPolicy","metadata":{"name":"p"},"spec":{"module":"a/b","mutating":true,` + pods + `}}`))
	f.Add([]byte(`{"kind":"AdmissionPolicyGroup"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Decode(text, "default")
		if p == nil && err == nil || p != nil && p.Unusable == nil && err != nil {
			t.Errorf("%v, %v", p, err)
		}
	})
}
