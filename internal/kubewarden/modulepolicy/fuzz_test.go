package modulepolicy

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

const (
	fuzzPolicy = `{"apiVersion":"policies.kubewarden.io/v1","kind":"ClusterAdmissionPolicy","metadata":{"name":"p"},
	"spec":{"module":"file:///m.wasm","mutating":true,"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"]}]}}`
	fuzzPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"app","image":"nginx","resources":{}}]},"status":{}}`
)

// Whatever a guest answers, there is an object that an API server would take, a refusal
// or an error; the object before it stays as it is, the result does not change when the
// guest answers with it, and what a client reads is bounded.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"accepted":true}`, `{"accepted":false,"message":"no","code":418}`, `{"accepted":false,"code":65536}`, `{"valid":false}`, `[]`, `nul`, "{\"accepted\":true,\"message\":\"\xff\"}",
		`{"accepted":true,"mutated_object":null,"audit_annotations":{"a":"b","c":null},"warnings":["w",null]}`,
		`{"accepted":true,"warnings":["w"],"audit_annotations":{"a":"b"}} x`, `{"accepted":true,"accepted":false}`, `{"Accepted":true}`,
		`{"accepted":true,"mutated_object":` + fuzzPod + `}`,
		`{"accepted":true,"mutated_object":` + strings.Replace(fuzzPod, `"name":"web",`, `"name":"web","labels":{"a":"b"},"finalizers":null,`, 1) + `}`,
		`{"accepted":true,"mutated_object":` + strings.Replace(fuzzPod, `"resources":{}`, `"resources":{"limits":{"cpu":"0.50","memory":1e3}},"ports":[{"containerPort":80.0}]`, 1) + `}`,
		`{"accepted":true,"mutated_object":` + strings.Replace(fuzzPod, `"status":{}`, `"status":{"x":9007199254740993,"y":1e400,"z":18446744073709551616}`, 1) + `}`,
		`{"accepted":true,"mutated_object":{"apiVersion":"v1","kind":"Secret"}}`, `{"accepted":true,"mutated_object":[` + strings.Repeat("[", 300) + strings.Repeat("]", 301) + `}`,
	} {
		f.Add([]byte(seed), true, true)
		f.Add([]byte(seed), false, false)
	}
	types := openapi.New(openapi.Builtin())
	before := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(fuzzPod), &before.Object); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte, mutating, present bool) {
		if err := checkVerdict(text); err != nil && len(err.Error()) > 2*maxMessage {
			t.Fatalf("an error of %d bytes", len(err.Error()))
		}
		a, err := readAnswer(text)
		if err != nil {
			if len(err.Error()) > maxMessage {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		p, err := kubewarden.Decode([]byte(fuzzPolicy), "")
		if err != nil {
			t.Fatal(err)
		}
		p.Mutating = mutating
		g := &guest{policy: p, types: types}
		in := policy.Input{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}}
		if present {
			in.Object = before.DeepCopy()
		}
		var said policy.Remarks
		g.remark(&said, a)
		for key, value := range said.Annotations {
			if len(key) > maxKey || len(value) > maxAnnotation {
				t.Fatalf("annotation %q has %d bytes", key, len(value))
			}
		}
		for _, w := range said.Warnings {
			if len(w) > maxMessage || !utf8.ValidString(w) {
				t.Fatalf("warning %q", w)
			}
		}
		next, err := g.follow(in, a)
		if present && !tree.Equal(before.Object, in.Object.Object) {
			t.Fatalf("the object was modified by %s", text)
		}
		var refused *apierrors.StatusError
		switch {
		case errors.As(err, &refused):
			if n := len(refused.ErrStatus.Message); n > maxMessage {
				t.Fatalf("a message of %d bytes", n)
			}
			if *a.Accepted && mutating && present {
				t.Fatalf("refused although accepted: %s", text)
			}
		case err != nil, next == in.Object:
		case !*a.Accepted || !mutating:
			t.Fatalf("changed by %s", text)
		case next.GetAPIVersion() != "v1" || next.GetKind() != "Pod":
			t.Fatalf("a %s %s", next.GetAPIVersion(), next.GetKind())
		default:
			again, err := g.follow(policy.Input{Kind: in.Kind, Object: next}, &answer{Accepted: a.Accepted, MutatedObject: next.DeepCopy().Object})
			if err != nil || again != next {
				t.Fatalf("%v: %v is not settled: %v", err, next.Object, again)
			}
		}
	})
}
