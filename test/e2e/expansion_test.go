//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/cluster/workloads"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

const expansionTemplates = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: expansiontemplate.expansion.gatekeeper.sh}
spec:
  group: expansion.gatekeeper.sh
  scope: Cluster
  names: {kind: ExpansionTemplate, plural: expansiontemplate, singular: expansiontemplate, listKind: ExpansionTemplateList}
  versions:
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// expansionPolicies mutate and judge Pods.
const expansionPolicies = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: registries, namespace: shop}
data: {allowed: registry.example.com}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: team}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"team": "shop"}}}'}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: team}
spec: {policyName: team}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: images}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations:
  - expression: object.spec.containers.all(c, c.image.startsWith(params.data.allowed))
    messageExpression: "'images are from ' + params.data.allowed + ', team ' + object.metadata.labels.team"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: images}
spec: {policyName: images, paramRef: {name: registries, parameterNotFoundAction: Deny}, validationActions: [Deny]}
`

const nativePolicies = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: native}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"native": "yes"}}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: native}
spec: {policyName: native}
`

// TestExpansion has authors of workloads warned of what their Pods will meet, in the
// words in which the API server itself refuses such a Pod.
func TestExpansion(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	c.Apply(t, expansionTemplates)
	m := cluster.Install(t, c, cluster.InstallOptions{Flags: []string{"--expansion"}})
	rights, err := os.ReadFile(filepath.Join(cluster.Root(t), "manifests/overlays/expansion/rbac-expansion.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(rights))
	c.Apply(t, expansionPolicies)

	warned := &warnings{}
	config := rest.CopyConfig(c.Config)
	config.WarningHandler = warned
	client := c.DynamicClient(t, config)
	create := func(ctx context.Context, yaml string) (*unstructured.Unstructured, []string, error) {
		o, err := parsed(yaml)
		if err != nil {
			return nil, nil, err
		}
		plural := map[string]string{"Deployment": "deployments", "ReplicaSet": "replicasets", "Pod": "pods", "CronJob": "cronjobs"}[o.GetKind()]
		gv := o.GroupVersionKind().GroupVersion()
		warned.take()
		o, err = client.Resource(gv.WithResource(plural)).Namespace("shop").Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		// The server itself warns of the template of a Deployment, by Pod Security.
		return o, slices.DeleteFunc(warned.take(), func(w string) bool { return strings.HasPrefix(w, "would violate PodSecurity") }), err
	}
	const spec = `{hostPID: true, restartPolicy: Always, containers: [{name: app, image: nginx}]}`
	workload := func(kind, meta string) string {
		return fmt.Sprintf(`{apiVersion: apps/v1, kind: %s, metadata: {name: web, namespace: shop%s}, spec: {selector: {matchLabels: {app: web}},
			template: {metadata: {labels: {app: web}}, spec: %s}}}`, kind, meta, spec)
	}
	deployment := workload("Deployment", "")
	want := []string{
		"mapd: Pod shop/web-pod: ValidatingAdmissionPolicy 'images' with binding 'images' denied request: images are from registry.example.com, team shop",
		`mapd: Pod shop/web-pod: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)`,
		"mapd: Pod shop/web-pod: changed by team",
	}
	var created *unstructured.Unstructured
	cluster.Eventually(t, cluster.Patience, "warnings about the Deployment", func(ctx context.Context) error {
		o, got, err := create(ctx, deployment)
		if err != nil {
			return err
		}
		if created = o; !slices.Equal(got, want) {
			return fmt.Errorf("warnings %q, want %q", got, want)
		}
		return nil
	})
	if labels, _, _ := unstructured.NestedStringMap(created.Object, "spec", "template", "metadata", "labels"); len(labels) != 1 || labels["app"] != "web" {
		t.Errorf("the template has the labels %v", labels)
	}

	// The server has the same to say about the Pod.
	_, _, err = create(t.Context(), fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: web-pod, namespace: shop}, spec: %s}", spec))
	if err == nil || !strings.HasSuffix(want[0], strings.TrimPrefix(err.Error(), `pods "web-pod" is forbidden: `)) && !strings.HasSuffix(want[1], strings.TrimPrefix(err.Error(), `pods "web-pod" is forbidden: `)) {
		t.Errorf("the Pod: %v", err)
	}

	// A workload that a controller has made is another author's.
	if _, got, err := create(t.Context(), workload("ReplicaSet", ", ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u, controller: true}]")); err != nil || len(got) > 0 {
		t.Errorf("a controlled ReplicaSet: %q, %v", got, err)
	}
	if _, got, err := create(t.Context(), workload("ReplicaSet", "")); err != nil || len(got) != 3 {
		t.Errorf("a ReplicaSet: %q, %v", got, err)
	}
	cron := fmt.Sprintf(`{apiVersion: batch/v1, kind: CronJob, metadata: {name: tick, namespace: shop}, spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: %s}}}}}`,
		strings.Replace(spec, "Always", "Never", 1))
	if _, got, err := create(t.Context(), cron); err != nil || len(got) != 4 || !strings.HasPrefix(got[0], "mapd: Pod shop/tick-job-pod: ") {
		t.Errorf("a CronJob: %q, %v", got, err)
	}

	// Templates decide what findings mean.
	template := func(action string) string {
		return fmt.Sprintf(`{apiVersion: expansion.gatekeeper.sh/v1beta1, kind: ExpansionTemplate, metadata: {name: deployments}, spec: {
			applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment]}], templateSource: spec.template, enforcementAction: %s,
			generatedGVK: {group: "", version: v1, kind: Pod}}}`, action)
	}
	c.Apply(t, template("deny"))
	cluster.Eventually(t, cluster.Patience, "a denial", func(ctx context.Context) error {
		_, _, err := create(ctx, deployment)
		var status *apierrors.StatusError
		if !errors.As(err, &status) || status.ErrStatus.Code != 403 || !strings.Contains(err.Error(), `admission webhook "`+workloads.EntryName+`" denied the request: [Implied by deployments] Pod shop/web-pod: `) {
			return fmt.Errorf("answer %v", err)
		}
		return nil
	})
	c.Apply(t, template("dryrun"))
	cluster.Eventually(t, cluster.Patience, "no warning", func(ctx context.Context) error {
		if _, got, err := create(ctx, deployment); err != nil || len(got) > 0 {
			return fmt.Errorf("warnings %q, %v", got, err)
		}
		return nil
	})
	templates := schema.GroupVersionResource{Group: "expansion.gatekeeper.sh", Version: "v1beta1", Resource: "expansiontemplate"}
	if err := c.Dynamic.Resource(templates).Delete(t.Context(), "deployments", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Templates in a circle are reported, and in force once that is broken.
	link := func(name, from, to string) string {
		return fmt.Sprintf(`{apiVersion: expansion.gatekeeper.sh/v1beta1, kind: ExpansionTemplate, metadata: {name: %s}, spec: {
			applyTo: [{groups: [example.com], versions: [v1], kinds: [%s]}], templateSource: spec, generatedGVK: {group: example.com, version: v1, kind: %s}}}`, name, from, to)
	}
	listed := func(want string) {
		t.Helper()
		cluster.Eventually(t, cluster.Patience, "the ConfigMap", func(ctx context.Context) error {
			cm, err := m.Kubernetes.CoreV1().ConfigMaps(cluster.Namespace).Get(ctx, workloads.ListingName, metav1.GetOptions{})
			if err != nil || cm.Data["templates"] != want {
				return fmt.Errorf("it has %q: %v", cm.Data["templates"], err)
			}
			return nil
		})
	}
	c.Apply(t, link("a", "A", "B"))
	c.Apply(t, link("b", "B", "A"))
	const cycle = "template forms expansion cycle: a, b"
	listed("a  cycle  " + cycle + "\nb  cycle  " + cycle + "\n")
	cluster.Eventually(t, cluster.Patience, "events about both", func(ctx context.Context) error {
		list, err := m.Kubernetes.EventsV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		about := map[string]bool{}
		for _, e := range list.Items {
			if e.Reason == "TemplateDisabled" && e.Note == cycle && e.Regarding.Kind == "ExpansionTemplate" {
				about[e.Regarding.Name] = true
			}
		}
		if !about["a"] || !about["b"] {
			return fmt.Errorf("events about %v", about)
		}
		return nil
	})
	c.Apply(t, link("b", "B", "C"))
	listed("a  running\nb  running\n")

	// The API server's own policies are met before mapd's.
	for _, text := range strings.Split(nativePolicies, "---\n") {
		c.Apply(t, text)
	}
	native := append(want[:2:2], "mapd: Pod shop/web-pod: changed by native, team")
	cluster.Eventually(t, cluster.Patience, "the native policy", func(ctx context.Context) error {
		if _, got, err := create(ctx, deployment); err != nil || !slices.Equal(got, native) {
			return fmt.Errorf("warnings %q, %v", got, err)
		}
		return nil
	})
	if err := c.Dynamic.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicybindings"}).
		Delete(t.Context(), "native", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// A parameter that changes is seen, and a policy that is gone.
	c.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: registries, namespace: shop}, data: {allowed: nginx}}")
	cluster.Eventually(t, cluster.Patience, "the new parameter", func(ctx context.Context) error {
		if _, got, err := create(ctx, deployment); err != nil || !slices.Equal(got, want[1:]) {
			return fmt.Errorf("warnings %q, %v", got, err)
		}
		return nil
	})

	_, metrics, err := m.Replicas()[0].Get(t.Context(), "/metrics")
	if err != nil || !strings.Contains(metrics, `mapd_expansion_duration_seconds_count{result="warned"}`) || !strings.Contains(metrics, `mapd_expansion_duration_seconds_count{result="denied"}`) {
		t.Errorf("metrics: %v\n%s", err, metrics)
	}
}
