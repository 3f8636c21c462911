package expansion_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/policy"
)

const patch = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %s}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: ["%s"]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '%s'
---
`

// evaluate expands a workload with policies and mutators as they are written.
func evaluate(t *testing.T, policies, workload string, change func(*expansion.Expander)) ([]*expansion.Object, error) {
	t.Helper()
	docs, errs := manifest.ReadAll(manifest.Inputs([]string{manifest.Stdin}, strings.NewReader(policies)), func(*manifest.Document) {})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	s, errs := policyset.Build(docs, policyset.Options{Unbound: true})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(workload), &u.Object); err != nil {
		t.Fatal(err)
	}
	req, err := policy.NewRequest(s.Types, "UPDATE", u)
	if err != nil {
		t.Fatal(err)
	}
	x := &expansion.Expander{Templates: expand.New(s.Templates()), Types: s.Types, Admit: s.Engine().Admit}
	if change != nil {
		change(x)
	}
	return x.Evaluate(t.Context(), req, u)
}

const deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {
  spec: {hostNetwork: true, containers: [{name: a, image: a, ports: [{containerPort: 80}], resources: {limits: {cpu: 1000m}}}]}}}}`

const cronJob = `{apiVersion: batch/v1, kind: CronJob, metadata: {name: cron, namespace: shop}, spec: {jobTemplate: {spec: {template: {
  spec: {containers: [{name: a, image: a}]}}}}}}`

// Policies see what a server fills into a Pod, which no pod template has. What is
// stored is as it was written.
func TestDefaults(t *testing.T) {
	copied := fmt.Sprintf(patch, "copy", "pods", `[JSONPatch{op: "add", path: "/metadata/annotations", value: {`+
		`"port": string(object.spec.containers[0].ports[0].hostPort), "cpu": string(object.spec.containers[0].resources.requests.cpu), "operation": request.operation}}]`)
	objects, err := evaluate(t, copied, deployment, nil)
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, error %v", len(objects), err)
	}
	pod := objects[0].Stored
	if got := fmt.Sprint(pod.GetAnnotations()); got != "map[cpu:1 operation:CREATE port:80]" {
		t.Errorf("annotations %s", got)
	}
	if containers := fmt.Sprint(pod.Object["spec"]); strings.Contains(containers, "hostPort") || strings.Contains(containers, "requests") {
		t.Errorf("the defaults are printed: %s", containers)
	}
	if raw, err := evaluate(t, copied, deployment, func(x *expansion.Expander) { x.Raw = true }); err != nil || !raw[0].Refused() {
		t.Errorf("without defaults: %v, error %v", raw, err)
	}
}

// An object that is refused creates nothing, and the others do.
func TestRefused(t *testing.T) {
	objects, err := evaluate(t, fmt.Sprintf(patch, "fails", "jobs", `[JSONPatch{op: "remove", path: "/none/x"}]`), cronJob, nil)
	if err != nil || len(objects) != 1 || !objects[0].Refused() || objects[0].Decision.Status == nil {
		t.Fatalf("%v, error %v", objects, err)
	}
	objects, err = evaluate(t, fmt.Sprintf(patch, "fails", "pods", `[JSONPatch{op: "remove", path: "/none/x"}]`), cronJob, nil)
	if err != nil || len(objects) != 2 || !objects[0].Refused() || objects[1].Refused() {
		t.Fatalf("%v, error %v", objects, err)
	}
}

// Mutators leave alone what they would leave alone in a cluster.
func TestExcluded(t *testing.T) {
	const label = `apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: label}
spec:
  location: metadata.labels.x
  parameters: {assign: {value: x}}
---
`
	for name, c := range map[string]struct {
		more string
		want string
	}{
		"nothing": {"", "map[x:x]"},
		"config": {`{apiVersion: config.gatekeeper.sh/v1alpha1, kind: Config, metadata: {name: config, namespace: gatekeeper-system},
  spec: {match: [{excludedNamespaces: [shop], processes: ["*"]}]}}`, "map[]"},
		"ignored": {`{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {admission.gatekeeper.sh/ignore: ""}}}`, "map[]"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := evaluate(t, label+c.more, deployment, nil)
			if err != nil || len(objects) != 1 {
				t.Fatalf("%v, error %v", objects, err)
			}
			if got := fmt.Sprint(objects[0].Stored.GetLabels()); got != c.want {
				t.Errorf("labels %s, want %s", got, c.want)
			}
		})
	}
}

// What a server would not take is not admitted, unless mutators alone run.
func TestInvalid(t *testing.T) {
	const wrong = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {containers: 1}}}}`
	objects, err := evaluate(t, "", wrong, nil)
	if err != nil || len(objects) != 1 || objects[0].Err == nil || objects[0].Request != nil || !objects[0].Refused() {
		t.Fatalf("%+v, error %v", objects, err)
	}
	objects, err = evaluate(t, "", wrong, func(x *expansion.Expander) { x.Lenient = true })
	if err != nil || objects[0].Err != nil || objects[0].Kind != nil || objects[0].Refused() {
		t.Errorf("leniently: %+v, error %v", objects[0], err)
	}
}

// A cluster-scoped object is not in the namespace of what creates it.
func TestClusterScoped(t *testing.T) {
	const template = `apiVersion: expansion.gatekeeper.sh/v1beta1
kind: ExpansionTemplate
metadata: {name: roles}
spec:
  applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment]}]
  templateSource: spec.template
  generatedGVK: {group: rbac.authorization.k8s.io, version: v1, kind: ClusterRole}
`
	objects, err := evaluate(t, template, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {rules: []}}}`, nil)
	if err != nil || len(objects) != 1 || objects[0].Err != nil {
		t.Fatalf("%v, error %v", objects, err)
	}
	if got := objects[0].Request.Namespace; got != "" {
		t.Errorf("namespace %q", got)
	}
}

type validator func(o *expansion.Object) []validating.Violation

func (v validator) Validate(_ context.Context, o *expansion.Object) []validating.Violation {
	return v(o)
}

// Validators see what is admitted, as it would be stored.
func TestValidators(t *testing.T) {
	seen := 0
	objects, err := evaluate(t, fmt.Sprintf(patch, "label", "pods", `[JSONPatch{op: "add", path: "/metadata/labels", value: {"x": "y"}}]`), cronJob, func(x *expansion.Expander) {
		x.Validators = []expansion.Validator{validator(func(o *expansion.Object) []validating.Violation {
			seen++
			if o.Stored.GetLabels()["x"] != "y" {
				return nil
			}
			return []validating.Violation{{Message: "x", Action: admissionregistrationv1.Deny}}
		})}
	})
	if err != nil || seen != 2 || len(objects[0].Violations) != 1 || len(objects[1].Violations) != 0 {
		t.Errorf("%d seen, %v, error %v", seen, objects, err)
	}
}

// Nothing goes on after the request's time.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.DeadlineExceeded)
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(deployment), &u.Object); err != nil {
		t.Fatal(err)
	}
	x := &expansion.Expander{Templates: expand.New(nil)}
	if objects, err := x.Evaluate(ctx, &policy.Request{Namespace: "shop"}, u); err == nil || len(objects) != 0 {
		t.Errorf("%v, error %v", objects, err)
	}
	// What is not expanded costs nothing.
	if objects, err := x.Evaluate(ctx, &policy.Request{SubResource: "scale"}, u); err != nil || objects != nil {
		t.Errorf("%v, error %v", objects, err)
	}
}
