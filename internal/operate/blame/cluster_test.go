package blame

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/pkg/engine"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func said(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s %s %s %s; %s\n", l.Field, l.Kind, l.By, l.Operation, l.Note)
	}
	return b.String()
}

const podYAML = `
apiVersion: v1
kind: Pod
metadata:
  name: web-1
  labels: {app: web, added: "yes", a/b: c}
  finalizers: [one, two]
  managedFields:
  - {manager: kube-controller-manager, operation: Update, apiVersion: v1, time: "2026-11-23T08:00:00Z", fieldsType: FieldsV1, fieldsV1: {
      "f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:a/b": {}, "f:gone": {}}, "f:finalizers": {".": {}, "v:\"two\"": {}, "v:\"three\"": {}}},
      "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}, "f:name": {}, "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}},
        "k:{\"name\":\"gone\"}": {".": {}}}, "f:tolerations": {"i:0": {}, "i:9": {}}, "f:nodeSelector": {}}}}
  - {manager: kubelet, operation: Update, subresource: status, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:status": {"f:phase": {}}}}
  - {manager: broken, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": 1, "k:{": {}, "f:metadata": {"f:finalizers": {"k:1": {}, "v:": {}, "i:x": {}}}}}
  - {manager: none, operation: Apply}
spec:
  nodeSelector: {disk: ssd}
  containers: [{name: mesh, image: mesh}, {name: main, image: "nginx:1", ports: [{containerPort: 80}]}]
  tolerations: [{key: x}]
status: {phase: Running}
`

func TestManaged(t *testing.T) {
	want := `/metadata/finalizers/1 manager kube-controller-manager update; 
/metadata/labels/app manager kube-controller-manager update; 
/metadata/labels/a~1b manager kube-controller-manager update; 
/spec/containers/1/image manager kube-controller-manager update; 
/spec/containers/1/name manager kube-controller-manager update; 
/spec/containers/1/ports/0/containerPort manager kube-controller-manager update; 
/spec/nodeSelector manager kube-controller-manager update; 
/spec/tolerations/0 manager kube-controller-manager update; 
/status/phase manager kubelet update status; 
`
	if diff := cmp.Diff(want, said(Managed("pod/web-1", object(t, podYAML)))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// If a field of a Pod has the value of its owner's template, its author is who wrote the template,
// even if a policy has inserted another element before it.
func TestInherit(t *testing.T) {
	pod := object(t, podYAML)
	set := object(t, `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  template:
    metadata: {labels: {app: web, a/b: other}}
    spec: {containers: [{name: main, image: "nginx:1"}], nodeSelector: {disk: ssd}}
`)
	owned := []Line{
		{Object: "replicaset.apps/web", Field: "/spec/template/spec/containers/0/image", By: "alice", Kind: ByManager, Operation: "update"},
		{Object: "replicaset.apps/web", Field: "/spec/template/spec/containers/0/image", By: "failed/all", Kind: ByPolicy, Failed: true},
		{Object: "replicaset.apps/web", Field: "/spec/template/metadata/labels", By: "labels/all", Kind: ByPolicy, Operation: "create", Note: "2 times"},
		{Object: "replicaset.apps/web", Field: "", By: "others", Kind: ByPolicy},
	}
	lines := append(Managed("pod/web-1", pod), Line{Object: "pod/web-1", Field: "/spec/containers/1/image", By: "p/b", Kind: ByPolicy})
	got := Inherit(lines, pod, "replicaset.apps/web", set, owned)
	want := `/metadata/finalizers/1 manager kube-controller-manager update; 
/metadata/labels/app policy labels/all create; in replicaset.apps/web spec.template.metadata.labels.app; 2 times
/metadata/labels/a~1b manager kube-controller-manager update; 
/spec/containers/1/image manager alice update; in replicaset.apps/web spec.template.spec.containers[0].image
/spec/containers/1/name manager kube-controller-manager update; from replicaset.apps/web spec.template.spec.containers[0].name
/spec/containers/1/ports/0/containerPort manager kube-controller-manager update; 
/spec/nodeSelector manager kube-controller-manager update; from replicaset.apps/web spec.template.spec.nodeSelector
/spec/tolerations/0 manager kube-controller-manager update; 
/status/phase manager kubelet update status; 
/spec/containers/1/image policy p/b ; 
`
	if diff := cmp.Diff(want, said(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for kind, c := range map[string]struct{ object, owner, field, want string }{
		"Deployment": {"spec: {template: {spec: {x: 1}}, replicas: 1}", "spec: {template: {spec: {x: 1}}, replicas: 1}", "/spec/template/spec/x", "/spec/template/spec/x"},
		"CronJob":    {"spec: {parallelism: 2}", "spec: {jobTemplate: {spec: {parallelism: 2}}}", "/spec/parallelism", "/spec/jobTemplate/spec/parallelism"},
		"Job":        {"metadata: {name: x}", "spec: {template: {metadata: {name: x}}}", "/metadata/name", ""},
		"DaemonSet":  {"spec: {list: [1, 2]}", "spec: {template: {spec: {list: [1]}}}", "/spec/list/1", ""},
		"Other":      {"spec: {x: 1}", "spec: 1", "/spec/x", ""},
	} {
		got, equal := inOwner(c.field, object(t, "kind: X\napiVersion: v1\n"+c.object), object(t, "kind: "+kind+"\napiVersion: v1\n"+c.owner))
		if got != c.want || equal != (c.want != "") {
			t.Errorf("%s: %q, %t, want %q", kind, got, equal, c.want)
		}
	}
	if got, _ := inOwner("/spec/replicas", object(t, "kind: X\napiVersion: v1\nspec: {replicas: 1}"), object(t, "kind: Deployment\napiVersion: v1\nspec: {replicas: 1}")); got != "" {
		t.Errorf("the replicas of a ReplicaSet are %q", got)
	}
}

// If a field of a Pod differs from the template, not the controller but admission wrote it, and the
// policies write it again when they get the template's value.
func TestReplaced(t *testing.T) {
	const pod = `
apiVersion: v1
kind: Pod
metadata:
  name: web-1
  creationTimestamp: "2026-11-23T08:00:00Z"
  managedFields:
  - {manager: kcm, operation: Update, apiVersion: v1, time: "2026-11-23T08:00:00Z", fieldsType: FieldsV1, fieldsV1: {
      "f:metadata": {"f:ownerReferences": {}},
      "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:name": {}, "f:terminationMessagePolicy": {}}}, "f:priority": {}, "f:nodeName": {}}}}
  - {manager: kubectl-edit, operation: Update, apiVersion: v1, time: "2026-11-23T09:00:00Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {"f:image": {}}}}}}
  ownerReferences: [{kind: ReplicaSet, name: web, controller: true}]
spec: {containers: [{name: mesh, image: m}, {name: main, image: b, terminationMessagePolicy: FallbackToLogsOnError}], priority: 1, nodeName: n}
`
	const owner = `
kind: %s
apiVersion: %s
metadata: {name: web}
spec: {template: {spec: {containers: [{name: main, image: a, terminationMessagePolicy: File}], priority: 1}}}
`
	for name, tt := range map[string]struct{ version, kind, note, value string }{
		"ReplicaSet":     {"apps/v1", "ReplicaSet", "differs from owner spec.template.spec.containers[0].terminationMessagePolicy: admission (a policy or webhook) wrote it, unless the template has changed since", "File"},
		"DaemonSet":      {"apps/v1", "DaemonSet", "differs from owner spec.template.spec.containers[0].terminationMessagePolicy: its controller, or admission (a policy or webhook), wrote it, unless the template has changed since", "File"},
		"somebody's own": {"example.com/v1", "ReplicaSet", "", "FallbackToLogsOnError"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, owner := object(t, pod), object(t, fmt.Sprintf(owner, tt.kind, tt.version))
			want := fmt.Sprintf(`/metadata/ownerReferences manager kcm create;%[1]s
/spec/containers/1/image manager kubectl-edit update;%[1]s
/spec/containers/1/name manager kcm create; from owner spec.template.spec.containers[0].name
/spec/containers/1/terminationMessagePolicy manager kcm create; %[2]s
/spec/nodeName manager kcm create;%[1]s
/spec/priority manager kcm create; from owner spec.template.spec.priority
`, " ", tt.note)
			if diff := cmp.Diff(want, said(Inherit(Managed("pod/web-1", pod), pod, "owner", owner, nil))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			made := AsManaged(pod)
			main := AsTemplate(made, pod, owner).Object["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
			if main["terminationMessagePolicy"] != tt.value || main["image"] != "b" {
				t.Errorf("the container is %v", main)
			}
			if was := made.Object["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["terminationMessagePolicy"]; was != "FallbackToLogsOnError" {
				t.Errorf("what was given has %v now", was)
			}
		})
	}
}

// creatorOf finds the creation, for which managedFields have the operation Update.
func TestCreator(t *testing.T) {
	entry := func(manager, operation, time string) string {
		return fmt.Sprintf(`{manager: %s, operation: %s, apiVersion: v1, time: "2026-11-23T08:00:0%sZ", fieldsType: FieldsV1, fieldsV1: {"f:data": {}}}`, manager, operation, time)
	}
	for name, tt := range map[string]struct{ entries, want string }{
		"created":          {entry("a", "Update", "0"), "create"},
		"changed since":    {entry("a", "Update", "5"), "update"},
		"and by another":   {entry("a", "Update", "0") + ", " + entry("b", "Update", "5"), "create update"},
		"in one second":    {entry("a", "Update", "0") + ", " + entry("b", "Update", "0"), "update update"},
		"applied":          {entry("a", "Apply", "0"), "apply"},
		"applied, updated": {entry("a", "Apply", "0") + ", " + entry("b", "Update", "5"), "apply update"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, l := range Managed("m", object(t, "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\nmetadata: {name: m, creationTimestamp: \"2026-11-23T08:00:00Z\", managedFields: ["+tt.entries+"]}")) {
				got = append(got, l.Operation)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestRecorded(t *testing.T) {
	at := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	act := func(policy string, paths ...string) history.Act {
		return history.Act{Policy: policy, Binding: "b", Paths: paths}
	}
	entries := []history.Entry{
		{Time: at, GenerateName: "web-", Operation: "CREATE", Acts: []history.Act{act("sidecar", "/spec/containers/1"), act("once", "/x")}},
		{Time: at.Add(time.Second), GenerateName: "web-", Operation: "CREATE", Acts: []history.Act{act("sidecar", "/spec/containers/1"), act("sidecar", "/spec/containers/1")}},
		{Time: at.Add(time.Hour), GenerateName: "web-", Operation: "CREATE", Acts: []history.Act{act("later", "/x")}},
		{Time: at.Add(-time.Hour), Name: "web-1", Operation: "CREATE", Acts: []history.Act{act("earlier", "/x")}},
		{Time: at.Add(time.Minute), Name: "web-1", UID: "other", Operation: "UPDATE", Acts: []history.Act{act("other", "/x")}},
		{Time: at.Add(time.Minute), Name: "web-1", UID: "1", Operation: "UPDATE", SubResource: "status", Acts: []history.Act{{Stage: "mutators", Policy: "Assign/a", Param: "p", Paths: []string{"/m"}, More: 2}}, More: 3},
		{Time: at.Add(2 * time.Minute), Name: "web-1", UID: "1", Operation: "UPDATE", Acts: []history.Act{act("labels", "/metadata/labels/app")}},
		{Time: at.Add(3 * time.Minute), Name: "web-1", UID: "1", Operation: "UPDATE", Acts: []history.Act{act("labels", "/metadata/labels/app")}},
	}
	target := &Target{Kind: "pod", Name: "web-1", UID: "1", Created: at}
	recorded := Recorded(target, entries)
	want := `/metadata/labels/app policy labels/b update; 2 times
/m policy Assign/a update status; with the parameter p
 policy Assign/a update status; with the parameter p; 2 fields more
 policy others update status; 3 mutations more
/spec/containers/1 policy sidecar/b create; so say 2 of 2 creations at this time, of which one is this object
/x policy once/b create; so say 1 of 2 creations at this time, of which one is this object
`
	if diff := cmp.Diff(want, said(recorded)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// A manager that set a field before the policy's last write is not its last writer.
	managed := []Line{
		{Field: "/metadata/labels/app", By: "before", Kind: ByManager, Time: Time{at.Add(3 * time.Minute)}},
		{Field: "/metadata/labels/app", By: "after", Kind: ByManager, Time: Time{at.Add(4 * time.Minute)}},
		{Field: "/spec/containers/10", By: "else", Kind: ByManager, Time: Time{at}},
		{Field: "/spec/containers/9", By: "else", Kind: ByManager, Time: Time{at}},
	}
	again := []Line{{Field: "/m", By: "Assign/a", Kind: ByPolicy, Source: FromAgain}, {Field: "/m", By: "other/b", Kind: ByPolicy, Source: FromAgain}}
	want = ` policy Assign/a ; 
 policy others ; 
/m policy other/b ; 
/m policy Assign/a ; 
/metadata/labels/app policy labels/b ; 
/metadata/labels/app manager after ; 
/spec/containers/1 policy sidecar/b ; 
/spec/containers/9 manager else ; 
/spec/containers/10 manager else ; 
/x policy once/b ; 
`
	joined := Join(recorded, managed, again)
	for i := range joined {
		joined[i].Operation, joined[i].Note = "", ""
	}
	if diff := cmp.Diff(want, said(joined)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Fields without a manager were written by admission: if they are removed, the policies write them
// again.
func TestAgain(t *testing.T) {
	pod := object(t, podYAML)
	managed := AsManaged(pod)
	want := object(t, `
apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: web, a/b: c}, finalizers: [two]}
spec:
  nodeSelector: {disk: ssd}
  containers: [{name: main, image: "nginx:1", ports: [{containerPort: 80}]}]
  tolerations: [{key: x}]
`)
	if diff := cmp.Diff(want.Object, managed.Object); diff != "" {
		t.Errorf("as managed (-want +got):\n%s", diff)
	}
	if AsManaged(want) != nil {
		t.Error("an object without managedFields has some")
	}
	step := func(policy, binding, param string, before *unstructured.Unstructured, change func(map[string]any)) engine.Step {
		after := before.DeepCopy()
		change(after.Object)
		return engine.Step{Stage: engine.PolicyStage, Policy: policy, Binding: binding, Param: param, Outcome: engine.Changed, Before: before, After: after}
	}
	labels := step("labels", "all", "", managed, func(o map[string]any) {
		set := o["metadata"].(map[string]any)["labels"].(map[string]any)
		set["added"], set["other"] = "yes", "no longer"
	})
	mesh := step("mesh", "shop", "params/mesh", labels.After, func(o map[string]any) {
		spec := o["spec"].(map[string]any)
		spec["containers"] = append(spec["containers"].([]any), map[string]any{"name": "mesh", "image": "mesh"})
	})
	d := &engine.Decision{Object: mesh.After, Changed: true, Steps: []engine.Step{labels, mesh}}
	lines := `/metadata/labels/added policy labels/all ; a guess: the policy writes this value today
/spec/containers/0 policy mesh/shop ; with the parameter params/mesh; a guess: the policy writes this value today
`
	if diff := cmp.Diff(lines, said(Again("pod/web-1", pod, d))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Again("pod/web-1", pod, &engine.Decision{Object: managed}); got != nil {
		t.Errorf("nothing changed, and %+v", got)
	}
}
