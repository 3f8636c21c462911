package modulepolicy_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/kubewarden/download"
	"github.com/mapd-project/mapd/internal/kubewarden/modulepolicy"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/guest"
)

// loader returns a Loader whose modules are files of a directory.
func loader(t *testing.T) *modulepolicy.Loader {
	t.Helper()
	fetcher, err := download.New(download.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := modulepolicy.New(context.Background(), modulepolicy.Options{Modules: fetcher})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

const policyText = `
apiVersion: policies.kubewarden.io/v1
kind: ClusterAdmissionPolicy
metadata: {name: p}
spec:
  module: file://MODULE
  mutating: true
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE, DELETE]}
`

// load returns an engine with one policy, of which edit changes the text.
func load(t *testing.T, a guest.Answers, edit func(string) string) (*engine.Engine, []error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "module.wasm")
	if err := os.WriteFile(path, guest.Module(a), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(policyText, "MODULE", path)
	if edit != nil {
		text = edit(text)
	}
	p, err := mapd.Load(mapd.Options{Modules: loader(t)}, mapd.File{Name: "policies.yaml", Data: []byte(text)})
	var refused *mapd.LoadError
	if errors.As(err, &refused) {
		return nil, refused.Errs
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.Engine(), nil
}

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"app","image":"nginx","resources":{}}]},"status":{}}`

func request(t testing.TB) *policy.Request {
	return &policy.Request{
		UID: "1", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Name: "web", Namespace: "shop", Operation: admissionv1.Create, Object: object(t, pod),
	}
}

func TestAnswers(t *testing.T) {
	labelled := strings.Replace(pod, `"name":"web",`, `"name":"web","labels":{"a":"b"},`, 1)
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	tests := map[string]struct {
		answers  guest.Answers
		edit     func(string) string
		deleting bool
		// want is the outcome: an object's labels, or the status.
		labels map[string]string
		code   int32
		status string
		step   string // outcome and reason or error of the only step
	}{
		"accepted": {step: "unchanged"},
		"mutated":  {answers: guest.Answers{Validate: `{"accepted":true,"mutated_object":` + labelled + `}`}, labels: map[string]string{"a": "b"}, step: "changed"},
		"equal":    {answers: guest.Answers{Validate: `{"accepted":true,"mutated_object":` + pod + `}`}, step: "unchanged"},
		"refused": {
			answers: guest.Answers{Validate: `{"accepted":false,"message":"no","code":418}`},
			code:    418, status: `policy "clusterwide-p" denied request: no`, step: "failed: no",
		},
		"refused without a word": {
			answers: guest.Answers{Validate: `{"accepted":false}`},
			code:    400, status: `policy "clusterwide-p" denied request: without explanation`, step: "failed: ",
		},
		"refused although it mutates": {
			answers: guest.Answers{Validate: `{"accepted":false,"message":"no","mutated_object":` + labelled + `}`},
			code:    400, status: `policy "clusterwide-p" denied request: no`, step: "failed: no",
		},
		"message of the policy": {
			answers: guest.Answers{Validate: `{"accepted":false,"message":"no"}`}, edit: replace("  mutating", "  message: ask shop-team\n  mutating"),
			code: 400, status: `policy "clusterwide-p" denied request: ask shop-team`, step: "failed: ask shop-team",
		},
		"may not mutate": {
			answers: guest.Answers{Validate: `{"accepted":true,"mutated_object":` + labelled + `}`}, edit: replace("mutating: true", "mutating: false"),
			code:   400,
			status: `policy "clusterwide-p" denied request: Request rejected by policy clusterwide-p. The policy attempted to mutate the request, but it is currently configured to not allow mutations.`,
			step:   "failed: Request rejected by policy clusterwide-p. The policy attempted to mutate the request, but it is currently configured to not allow mutations.",
		},
		"may not mutate, equal": {
			answers: guest.Answers{Validate: `{"accepted":true,"mutated_object":` + pod + `}`}, edit: replace("mutating: true", "mutating: false"), step: "unchanged",
		},
		"monitored change": {
			answers: guest.Answers{Validate: `{"accepted":true,"mutated_object":` + labelled + `}`}, edit: replace("  mutating", "  mode: monitor\n  mutating"),
			step: "skipped: mode monitor: would change metadata.labels",
		},
		"monitored refusal": {
			answers: guest.Answers{Validate: `{"accepted":false,"message":"no"}`}, edit: replace("  mutating", "  mode: monitor\n  mutating"),
			step: "skipped: mode monitor: would refuse: no",
		},
		"monitored trap": {
			answers: guest.Answers{Trap: true}, edit: replace("  mutating", "  mode: monitor\n  mutating"),
			step: "skipped: mode monitor: would fail: Guest call failure: wasm error: unreachable",
		},
		"deleted": {deleting: true, step: "unchanged"},
		"deleted and mutated": {
			answers: guest.Answers{Validate: `{"accepted":true,"mutated_object":{}}`}, deleting: true, code: 400,
			status: `policy "clusterwide-p" denied request: Incoming object is null, which happens only with DELETE operations, but the policy is attempting a mutation. This is not allowed`,
			step:   "failed: Incoming object is null, which happens only with DELETE operations, but the policy is attempting a mutation. This is not allowed",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e, errs := load(t, tt.answers, tt.edit)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			req := request(t)
			if tt.deleting {
				req.Operation, req.OldObject, req.Object = admissionv1.Delete, req.Object, nil
			}
			d := e.Admit(t.Context(), req)
			if len(d.Steps) != 1 {
				t.Fatalf("%d steps: %+v", len(d.Steps), d.Steps)
			}
			step := d.Steps[0].Outcome.String()
			if err := d.Steps[0].Err; err != nil {
				step += ": " + err.Error()
			} else if d.Steps[0].Reason != "" {
				step += ": " + d.Steps[0].Reason
			}
			if step != tt.step {
				t.Errorf("step %q, want %q", step, tt.step)
			}
			if d.Status != nil {
				if d.Status.Message != tt.status || d.Status.Code != tt.code {
					t.Errorf("status %d %q, want %d %q", d.Status.Code, d.Status.Message, tt.code, tt.status)
				}
				return
			}
			if tt.status != "" {
				t.Fatalf("allowed, want %q", tt.status)
			}
			if d.Changed != (tt.labels != nil) {
				t.Errorf("changed: %v", d.Changed)
			}
			if d.Object != nil {
				if diff := cmp.Diff(tt.labels, d.Object.GetLabels()); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// What goes wrong with a module is the policy's error, and failurePolicy decides.
func TestFailures(t *testing.T) {
	const invalid = "internal server error: invalid response from policy: "
	tests := map[string]struct {
		answers guest.Answers
		want    string
	}{
		"trap":           {guest.Answers{Trap: true}, "Guest call failure: wasm error: unreachable"},
		"failure":        {guest.Answers{Fail: "went wrong"}, "Guest call failure: went wrong"},
		"endless loop":   {guest.Answers{Spin: true}, "Policy execution interrupted because it exceeded the allowed execution time"},
		"no JSON":        {guest.Answers{Validate: `accepted`}, invalid + "not JSON from byte 1 on"},
		"trailing bytes": {guest.Answers{Validate: `{"accepted":true} x`}, invalid + "not JSON from byte 19 on"},
		"no verdict":     {guest.Answers{Validate: `{}`}, invalid + "missing field `accepted`"},
		"camel case":     {guest.Answers{Validate: `{"Accepted":true}`}, invalid + "missing field `accepted`"},
		"twice":          {guest.Answers{Validate: `{"accepted":true,"accepted":true}`}, invalid + `duplicate field "accepted"`},
		"code too large": {guest.Answers{Validate: `{"accepted":true,"code":65536}`}, invalid + "code: unexpected number 65536"},
		"warnings":       {guest.Answers{Validate: `{"accepted":true,"warnings":["a",null]}`}, invalid + "warnings[1]: null, expected a string"},
		"annotations":    {guest.Answers{Validate: `{"accepted":true,"audit_annotations":{"a":1}}`}, invalid + "audit_annotations: unexpected number"},
		"not UTF-8":      {guest.Answers{Validate: "{\"accepted\":true,\"message\":\"\xff\"}"}, invalid + "not UTF-8"},
		"no object":      {guest.Answers{Validate: `{"accepted":true,"mutated_object":[1]}`}, "mutated_object is not an object"},
		"another kind":   {guest.Answers{Validate: `{"accepted":true,"mutated_object":{"apiVersion":"v1","kind":"Secret"}}`}, `mutated_object has another kind than the object: "Secret" instead of "Pod"`},
		"a wrong type":   {guest.Answers{Validate: `{"accepted":true,"mutated_object":{"apiVersion":"v1","kind":"Pod","spec":{"containers":1}}}`}, "mutated_object: json: cannot unmarshal number into Go struct field PodSpec.spec.containers of type []v1.Container"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, ignore := range []bool{false, true} {
				e, errs := load(t, tt.answers, func(s string) string {
					if ignore {
						return s + "  failurePolicy: Ignore\n"
					}
					return s
				})
				if len(errs) > 0 {
					t.Fatal(errs)
				}
				d := e.Admit(t.Context(), request(t))
				if len(d.Steps) != 1 || d.Steps[0].Err == nil || d.Steps[0].Err.Error() != tt.want || d.Steps[0].Ignored != ignore {
					t.Fatalf("ignore %v: %+v, want %q", ignore, d.Steps, tt.want)
				}
				if (d.Status == nil) != ignore || d.Changed {
					t.Errorf("ignore %v: status %v, changed %v", ignore, d.Status, d.Changed)
				}
			}
		})
	}
}
