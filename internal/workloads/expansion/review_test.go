package expansion_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/policy"
)

// judging is a policy about Pods whose validation is an expression, with a binding.
const judging = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "%[2]s", message: no %[1]s}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [%[3]s]}
---
`

const template = `apiVersion: expansion.gatekeeper.sh/v1beta1
kind: ExpansionTemplate
metadata: {name: pods}
spec:
  applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment]}]
  templateSource: %s
  enforcementAction: %q
  generatedGVK: {version: v1, kind: Pod}
---
`

// reviewer returns what answers reviews with the documents in force.
func reviewer(t testing.TB, documents string) (*expansion.Reviewer, *policyset.Snapshot) {
	t.Helper()
	docs, errs := manifest.ReadAll(manifest.Inputs([]string{manifest.Stdin}, strings.NewReader(documents)), func(*manifest.Document) {})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	s, errs := policyset.Build(docs, policyset.Options{Unbound: true})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	judges, errs := validating.Read(t.Context(), docs)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	set, err := validating.NewSet(judges.Policies, judges.Bindings, validating.Sources{Sources: s.Sources(), Types: s.Types, Authorizer: s.Authorizer()})
	if err != nil {
		t.Fatal(err)
	}
	x := &expansion.Expander{
		Templates: expand.New(s.Templates()), Types: s.Types, Admit: s.Engine().Admit, Validators: []expansion.Validator{expansion.Server(set)},
		Limits: expansion.ReviewLimits,
	}
	return &expansion.Reviewer{Expander: func() *expansion.Expander { return x }}, s
}

func requestFor(t testing.TB, s *policyset.Snapshot, workload string) *policy.Request {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(workload), &u.Object); err != nil {
		t.Fatal(err)
	}
	req, err := policy.NewRequest(s.Types, "CREATE", u)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// What is wrong with a created object means a warning or a denial for its workload, by
// the template that made it.
func TestReview(t *testing.T) {
	const label = `[JSONPatch{op: "add", path: "/metadata/labels", value: {"a": "b"}}]`
	const fails = `[JSONPatch{op: "remove", path: "/none/x"}]`
	all := fmt.Sprintf(judging, "denied", "false", "Deny") + fmt.Sprintf(judging, "warned", "false", "Warn") +
		fmt.Sprintf(judging, "audited", "false", "Audit") + fmt.Sprintf(patch, "label", "pods", label)
	const (
		denied  = "Pod shop/web-pod: ValidatingAdmissionPolicy 'denied' with binding 'denied' denied request: no denied"
		warned  = "Pod shop/web-pod: Validation failed for ValidatingAdmissionPolicy 'warned' with binding 'warned': no warned"
		audited = "Pod shop/web-pod: Validation failed for ValidatingAdmissionPolicy 'audited' with binding 'audited': no audited"
		changed = "Pod shop/web-pod: changed by label"
		refused = "Pod shop/web-pod: policy 'fails' with binding 'unbound-fails' denied request: "
		by      = "[Implied by pods] "
	)
	for name, tc := range map[string]struct {
		documents         string
		denials, warnings []string
	}{
		"built in":              {all, nil, []string{"mapd: " + denied, "mapd: " + warned, "mapd: " + changed}},
		"own actions":           {all + fmt.Sprintf(template, "spec.template", ""), []string{by + denied}, []string{by + warned, by + changed}},
		"deny":                  {all + fmt.Sprintf(template, "spec.template", "deny"), []string{by + audited, by + denied, by + warned}, []string{by + changed}},
		"warn":                  {all + fmt.Sprintf(template, "spec.template", "warn"), nil, []string{by + audited, by + denied, by + warned, by + changed}},
		"dryrun":                {all + fmt.Sprintf(template, "spec.template", "dryrun"), nil, nil},
		"unknown":               {all + fmt.Sprintf(template, "spec.template", "scoped"), nil, []string{by + changed}},
		"nothing to say":        {fmt.Sprintf(judging, "holds", "true", "Deny"), nil, nil},
		"cannot be expanded":    {fmt.Sprintf(template, "spec.other", "deny"), nil, []string{`mapd: unable to expand object: could not find source field "spec.other" in resource web`}},
		"a policy refuses":      {fmt.Sprintf(patch, "fails", "pods", fails), nil, []string{"mapd: " + refused}},
		"a policy refuses, too": {fmt.Sprintf(patch, "fails", "pods", fails) + fmt.Sprintf(template, "spec.template", "deny"), []string{by + refused}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := reviewer(t, tc.documents)
			objects := 0
			r.Expanded = func(n int) { objects += n }
			req := requestFor(t, s, deployment)
			before := req.Object.DeepCopy()
			status, warnings := r.Validate(t.Context(), req)
			var denials []string
			if status != nil {
				if status.Code != 403 || status.Reason != metav1.StatusReasonForbidden {
					t.Errorf("status %v", status)
				}
				denials = strings.Split(status.Message, "\n")
			}
			// What an engine says of a refusal has tests of its own.
			for _, list := range [][]string{denials, warnings} {
				for i, text := range list {
					if at := strings.Index(text, refused); at >= 0 {
						list[i] = text[:at+len(refused)]
					}
				}
			}
			if diff := cmp.Diff(tc.denials, denials); diff != "" {
				t.Errorf("denials: -want +got\n%s", diff)
			}
			if diff := cmp.Diff(tc.warnings, warnings); diff != "" {
				t.Errorf("warnings: -want +got\n%s", diff)
			}
			if name != "cannot be expanded" && objects != 1 {
				t.Errorf("%d objects", objects)
			}
			if diff := cmp.Diff(before, req.Object); diff != "" {
				t.Errorf("the workload was changed: %s", diff)
			}
		})
	}
}

// However much a template or a policy wants, a review has its bounds, and the workload
// passes.
func TestReviewBounds(t *testing.T) {
	var many strings.Builder
	for i := range 30 {
		fmt.Fprintf(&many, strings.Replace(template, "name: pods", fmt.Sprintf("name: pods-%d", i), 1), "spec.template", "deny")
	}
	r, s := reviewer(t, many.String())
	if status, warnings := r.Validate(t.Context(), requestFor(t, s, deployment)); status != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "more than 20 objects") {
		t.Errorf("30 templates: %v, %q", status, warnings)
	}

	var loud strings.Builder
	for i := range 40 {
		fmt.Fprintf(&loud, judging, fmt.Sprintf("p%02d", i), "false", "Warn")
	}
	r, s = reviewer(t, loud.String())
	if status, warnings := r.Validate(t.Context(), requestFor(t, s, deployment)); status != nil || len(warnings) != 20 {
		t.Errorf("40 warnings: %v, %d", status, len(warnings))
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if status, warnings := r.Validate(ended, requestFor(t, s, deployment)); status != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "unable to expand object") {
		t.Errorf("no time: %v, %q", status, warnings)
	}

	// Time or memory may end while an object is admitted or judged. What refuses it then is
	// no reason to deny the workload, though a template denies.
	r, s = reviewer(t, fmt.Sprintf(patch, "fails", "pods", `[JSONPatch{op: "remove", path: "/none/x"}]`)+fmt.Sprintf(template, "spec.template", "deny"))
	for _, judging := range []bool{false, true} {
		ended, cancel := context.WithCancelCause(t.Context())
		x := *r.Expander()
		admit := x.Admit
		x.Admit = func(ctx context.Context, req *policy.Request) *engine.Decision {
			if judging {
				return &engine.Decision{Object: req.Object}
			}
			cancel(errors.New("time is up"))
			return admit(ctx, req)
		}
		x.Validators = []expansion.Validator{validator(func(*expansion.Object) []validating.Violation {
			cancel(errors.New("time is up"))
			return []validating.Violation{{Message: "cannot judge", Action: admissionregistrationv1.Deny}}
		})}
		r := &expansion.Reviewer{Expander: func() *expansion.Expander { return &x }}
		if status, warnings := r.Validate(ended, requestFor(t, s, deployment)); status != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "time is up") {
			t.Errorf("time ends, judging %t: %v, %q", judging, status, warnings)
		}
	}
	full := memory.New(1 << 20).Open()
	defer full.Close()
	x := *r.Expander()
	x.Admit = func(_ context.Context, req *policy.Request) *engine.Decision {
		if req.Memory.Charge(1<<40) == nil {
			t.Error("there is memory for everything")
		}
		return &engine.Decision{Object: req.Object, Status: &metav1.Status{Message: "too large"}}
	}
	req := requestFor(t, s, deployment)
	req.Memory = full
	memoryEnds := &expansion.Reviewer{Expander: func() *expansion.Expander { return &x }}
	if status, warnings := memoryEnds.Validate(t.Context(), req); status != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "unable to expand object") {
		t.Errorf("memory ends: %v, %q", status, warnings)
	}

	none := &expansion.Reviewer{Expander: func() *expansion.Expander { return nil }}
	if status, warnings := none.Validate(t.Context(), requestFor(t, s, deployment)); status != nil || warnings != nil {
		t.Errorf("nothing is read yet: %v, %q", status, warnings)
	}
}

// BenchmarkReview has what a Deployment costs with 100 policies about its Pod: in the
// mutating webhook, which is all without --expansion, and in the review of the
// expansion besides.
func BenchmarkReview(b *testing.B) {
	var documents strings.Builder
	for i := range 50 {
		fmt.Fprintf(&documents, judging, fmt.Sprintf("judge-%02d", i), "object.spec.containers.all(c, c.image != 'bad')", "Deny")
		fmt.Fprintf(&documents, patch, fmt.Sprintf("label-%02d", i), "pods", fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"n": "%d"}}]`, i))
	}
	r, s := reviewer(b, documents.String())
	req := requestFor(b, s, deployment)
	b.Run("off", func(b *testing.B) {
		e := s.Engine()
		if d := e.Admit(b.Context(), req); d.Status != nil || d.Changed {
			b.Fatal(d.Status)
		}
		b.ReportAllocs()
		for b.Loop() {
			e.Admit(b.Context(), req)
		}
	})
	b.Run("on", func(b *testing.B) {
		if status, warnings := r.Validate(b.Context(), req); status != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "changed by label-00") {
			b.Fatal(status, warnings)
		}
		b.ReportAllocs()
		for b.Loop() {
			r.Validate(b.Context(), req)
		}
	})
	b.Run("large", func(b *testing.B) { // about 1 MB
		var env strings.Builder
		for i := range 10000 {
			fmt.Fprintf(&env, "{name: N%d, value: %q},", i, strings.Repeat("x", 80))
		}
		req := requestFor(b, s, strings.Replace(deployment, "{name: a, image: a,", "{name: a, image: a, env: ["+env.String()+"],", 1))
		b.ReportAllocs()
		for b.Loop() {
			if status, warnings := r.Validate(b.Context(), req); status != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "changed by label-00") {
				b.Fatal(status, warnings)
			}
		}
	})
}
