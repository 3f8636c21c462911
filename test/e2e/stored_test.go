//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// storedSubjects are objects, and what a policy sets in each of them when it is created
// and when its status is written.
var storedSubjects = []struct {
	resource, object, set string
	probes                []string
}{
	{"deployments", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: stored, namespace: default, labels: {a: b}}
spec: {replicas: 1, selector: {matchLabels: {c: d}}, template: {metadata: {labels: {c: d}}, spec: {containers: [{name: a, image: b}]}}}
`, `spec: Object.spec{minReadySeconds: n}, status: Object.status{replicas: n}`, []string{"spec.minReadySeconds", "status.replicas"}},
	{"pods", `
apiVersion: v1
kind: Pod
metadata: {name: stored, namespace: default}
spec: {containers: [{name: a, image: b}]}
`, `spec: Object.spec{activeDeadlineSeconds: n}, status: Object.status{message: string(n)}`, []string{"spec.activeDeadlineSeconds", "status.message"}},
	{"nodes", `
apiVersion: v1
kind: Node
metadata: {name: stored}
`, `spec: Object.spec{unschedulable: n == 1}, status: Object.status{phase: n == 1 ? "Pending" : "Running"}`, []string{"spec.unschedulable", "status.phase"}},
	{"volumeattachments", `
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: stored}
spec: {attacher: a, nodeName: b, source: {persistentVolumeName: c}}
`, `spec: Object.spec{nodeName: string(n) + "x"}, status: Object.status{attached: true}`, []string{"spec.nodeName", "status.attached"}},
	{"flowschemas", `
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: stored}
spec: {priorityLevelConfiguration: {name: exempt}}
`, `spec: Object.spec{matchingPrecedence: 5000 + n}`, []string{"spec.matchingPrecedence"}},
	{"storedwidgets", `
apiVersion: example.com/v1
kind: StoredWidget
metadata: {name: stored, namespace: default}
`, `spec: Object.spec{size: n}, status: Object.status{size: n}`, []string{"spec.size", "status.size"}},
}

const storedWidgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: storedwidgets.example.com}
spec:
  group: example.com
  names: {plural: storedwidgets, kind: StoredWidget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
          status: {type: object, properties: {size: {type: integer}}}
`

// TestStored creates objects and writes their status on a server whose own policies
// change labels, annotations, spec and status each time: what the server stores of that
// is what mapd.Result has.
func TestStored(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Native: true, Flags: []string{"--allow-privileged"}})
	c.Apply(t, storedWidgets)
	var given bytes.Buffer
	given.WriteString(storedWidgets)
	for _, s := range storedSubjects {
		group, version, ok := strings.Cut(field(t, s.object, "apiVersion"), "/")
		if !ok {
			group, version = "", group
		}
		set := strings.NewReplacer("string(n)", `string(variables.count)`, " n", " variables.count").Replace(s.set)
		fmt.Fprintf(&given, `
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: stored-%[1]s}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [%[2]q], apiVersions: [%[3]s], operations: [CREATE, UPDATE], resources: [%[1]s, %[1]s/status]}
  variables:
  - {name: count, expression: 'has(request.subResource) ? 2 : 1'}
  - {name: words, expression: '{"stored": request.operation + (has(request.subResource) ? "-status" : "")}'}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: variables.words, annotations: variables.words}, %[4]s}'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: stored-%[1]s}
spec: {policyName: stored-%[1]s}
`, s.resource, group, version, set)
	}
	c.Apply(t, given.String())
	policies, err := mapd.Load(mapd.Options{}, mapd.File{Name: "given.yaml", Data: given.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range storedSubjects {
		t.Run(s.resource, func(t *testing.T) {
			gvr := schema.FromAPIVersionAndKind(field(t, s.object, "apiVersion"), "").GroupVersion().WithResource(s.resource)
			var client dynamic.ResourceInterface = c.DynamicClient(t, c.Config).Resource(gvr)
			object := storedObject(t, s.object)
			if ns := object.GetNamespace(); ns != "" {
				client = c.DynamicClient(t, c.Config).Resource(gvr).Namespace(ns)
			}
			probes := append([]string{"metadata.labels.stored", "metadata.annotations.stored"}, s.probes...)
			there := map[string]bool{}
			compare := func(what string, made *unstructured.Unstructured, r *mapd.Result) {
				t.Helper()
				for _, probe := range probes {
					path := strings.Split(probe, ".")
					got, _, _ := unstructured.NestedFieldNoCopy(r.Decision.Object.Object, path...)
					want, _, _ := unstructured.NestedFieldNoCopy(made.Object, path...)
					there[probe] = there[probe] || want != nil
					if !reflect.DeepEqual(got, want) {
						t.Errorf("%s: %s: mapd %v, server %v", what, probe, got, want)
					}
				}
			}
			evaluate := func(o *unstructured.Unstructured, opts mapd.RequestOptions) *mapd.Result {
				t.Helper()
				text, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				if opts.Subresource != "" {
					old, errs := policies.Objects("old.yaml", mapd.Read("old.yaml", bytes.NewReader(text)))
					if len(errs) > 0 {
						t.Fatal(errs)
					}
					opts.Old = old
				}
				for d, err := range mapd.Read("object.yaml", bytes.NewReader(text)) {
					if err != nil {
						t.Fatal(err)
					}
					r, err := policies.Eval(t.Context(), d, opts)
					if err != nil {
						t.Fatal(err)
					}
					return r
				}
				return nil
			}
			cluster.Eventually(t, cluster.Patience, "the policy", func(ctx context.Context) error {
				made, err := client.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err == nil && made.GetAnnotations()["stored"] == "" {
					err = fmt.Errorf("not yet in effect")
				}
				return err
			})
			made, err := client.Create(t.Context(), object, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			compare("creation", made, evaluate(object, mapd.RequestOptions{}))
			var now *unstructured.Unstructured
			// Controllers of the server write the status of FlowSchemas, too.
			if err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
				if now, err = client.Get(t.Context(), object.GetName(), metav1.GetOptions{}); err != nil {
					return err
				}
				now.SetManagedFields(nil)
				made, err = client.UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			compare("status", made, evaluate(now, mapd.RequestOptions{Subresource: "status"}))
			for _, probe := range probes {
				if !there[probe] {
					t.Errorf("%s: the server has stored it neither at the creation nor with the status", probe)
				}
			}
		})
	}
}

func storedObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o, err := parsed(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func field(t *testing.T, text, name string) string {
	t.Helper()
	s, _, _ := unstructured.NestedString(storedObject(t, text).Object, name)
	return s
}
