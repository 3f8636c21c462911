package install

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/manifests"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/policy"
)

func TestManifest(t *testing.T) {
	got, err := Manifest("")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, manifests.Install()) {
		t.Error("without an image it is not install.yaml")
	}

	const image = "registry.example.com/mapd@sha256:0123"
	text, err := Manifest(image)
	if err != nil {
		t.Fatal(err)
	}
	before, after := strings.Split(string(manifests.Install()), "\n"), strings.Split(string(text), "\n")
	if len(before) != len(after) {
		t.Fatalf("%d lines became %d", len(before), len(after))
	}
	var changed []string
	for i := range before {
		if before[i] != after[i] {
			changed = append(changed, strings.TrimSpace(after[i]))
		}
	}
	if diff := cmp.Diff([]string{"image: " + image}, changed); diff != "" {
		t.Errorf("other lines changed (-want +got):\n%s", diff)
	}

	objects, err := Objects(image)
	if err != nil {
		t.Fatal(err)
	}
	var printed []*unstructured.Unstructured
	for d, err := range manifest.ReadStream("install.yaml", bytes.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Object != nil {
			printed = append(printed, d.Object)
		}
	}
	if diff := cmp.Diff(printed, objects); diff != "" {
		t.Errorf("printed and applied objects differ:\n%s", diff)
	}
}

func TestImage(t *testing.T) {
	for _, tt := range []struct {
		image string
		ours  bool
	}{
		{manifests.Image, true},
		{manifests.Image + ":v1", true},
		{manifests.Image + "@sha256:0", true},
		{manifests.Image + "-sidecar:v1", false},
		{"example.com/" + manifests.Image, false},
		{"", false},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "a", "image": tt.image}},
		}}}}}
		if got := setContainer(obj, "new", nil); got != tt.ours {
			t.Errorf("%q replaced: %t, want %t", tt.image, got, tt.ours)
		}
	}
}

func TestArguments(t *testing.T) {
	objects, err := Objects("", "--adopt")
	if err != nil {
		t.Fatal(err)
	}
	args := func(objects []*unstructured.Unstructured) []string {
		containers, _, _ := unstructured.NestedSlice(find(objects, "Deployment").Object, "spec", "template", "spec", "containers")
		all, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	plain, err := Objects("")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(args(plain), "--adopt"), args(objects)); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	text, err := Manifest("", "--adopt")
	if err != nil || !bytes.Contains(text, []byte("- --adopt\n")) || !bytes.HasPrefix(text, []byte("# All of mapd")) {
		t.Errorf("%v\n%s", err, text)
	}
	if advice := Advice(&OwnedError{}); !strings.Contains(advice, "--adopt") {
		t.Errorf("advice %q", advice)
	}
}

// The resources are guessed from the kinds; these are what they are.
func TestReferences(t *testing.T) {
	plurals := map[string]string{
		"Namespace":                      "namespaces",
		"ResourceQuota":                  "resourcequotas",
		"LimitRange":                     "limitranges",
		"CustomResourceDefinition":       "customresourcedefinitions",
		"ServiceAccount":                 "serviceaccounts",
		"ClusterRole":                    "clusterroles",
		"ClusterRoleBinding":             "clusterrolebindings",
		"Role":                           "roles",
		"RoleBinding":                    "rolebindings",
		"NetworkPolicy":                  "networkpolicies",
		"PriorityClass":                  "priorityclasses",
		"PriorityLevelConfiguration":     "prioritylevelconfigurations",
		"FlowSchema":                     "flowschemas",
		"Service":                        "services",
		"ConfigMap":                      "configmaps",
		"Deployment":                     "deployments",
		"PodDisruptionBudget":            "poddisruptionbudgets",
		"MutatingWebhookConfiguration":   "mutatingwebhookconfigurations",
		"ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
	}
	objects, err := Objects("")
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range objects {
		r := refOf(obj)
		if want := plurals[obj.GetKind()]; r.gvr.Resource != want {
			t.Errorf("%s: resource %q, want %q", obj.GetKind(), r.gvr.Resource, want)
		}
		if name, _, _ := strings.Cut(r.String(), "/"); !strings.HasPrefix(name, strings.ToLower(obj.GetKind())) {
			t.Errorf("%s is called %s", obj.GetKind(), r)
		}
	}
	for _, c := range configurations {
		if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return refOf(o) == c }) {
			t.Errorf("%s is not among the objects", c)
		}
	}
	if ns := find(objects, "Namespace"); ns == nil || ns.GetName() != Namespace {
		t.Errorf("the namespace is not %s", Namespace)
	}
}

func TestUninstallOrder(t *testing.T) {
	objects, err := Objects("")
	if err != nil {
		t.Fatal(err)
	}
	u := &uninstall{UninstallOptions: UninstallOptions{Objects: objects}}
	writers, rest := u.writers()
	if len(writers) == 0 {
		t.Fatal("nothing lets mapd write webhook configurations")
	}
	for _, w := range writers {
		if w.GetKind() != "ClusterRoleBinding" || len(serviceAccounts(w)) == 0 {
			t.Errorf("%s of %v", refOf(w), serviceAccounts(w))
		}
	}
	if rest[0].GetKind() != "Deployment" {
		t.Errorf("%s goes before the Deployment", refOf(rest[0]))
	}
	// Everything goes once: in one of the two lists, or by name.
	var got, want []string
	for _, obj := range slices.Concat(writers, rest) {
		got = append(got, refOf(obj).String()+" "+obj.GetNamespace())
	}
	for _, obj := range objects {
		switch obj.GetKind() {
		case "Namespace", "CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		default:
			want = append(want, refOf(obj).String()+" "+obj.GetNamespace())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("removed one by one (-want +got):\n%s", diff)
	}
}

// The probe has to pass everything that an API server checks by itself: only its
// expression is wrong, and only mapd compiles that.
func TestProbePolicy(t *testing.T) {
	obj, err := policy.Decode(probePolicy())
	if err != nil {
		t.Fatal(err)
	}
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	errs := policy.Validate(obj, env)
	if len(errs) != 1 || errs[0].Path != "spec.mutations[0].applyConfiguration.expression" {
		t.Errorf("validation finds %v, want only the expression", errs)
	}
	if obj.Spec.ParamKind == nil {
		t.Error("without a paramKind a webhook that is down does not refuse it")
	}
	for _, w := range webhookconfig.ValidationConfiguration(admissionregistrationv1.ValidatingWebhook{}).Webhooks {
		if !ours(w.Name) {
			t.Errorf("%s is not taken for mapd's", w.Name)
		}
	}
}

func TestRollout(t *testing.T) {
	deployment := func(generation, replicas int64, status map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"generation": generation},
			"spec":     map[string]any{"replicas": replicas},
			"status":   status,
		}}
	}
	for _, tt := range []struct {
		name   string
		status map[string]any
		want   string
	}{
		{"no controller", nil, ""},
		{"not seen", map[string]any{"observedGeneration": int64(1)}, "its change was not seen yet"},
		{"begun", map[string]any{"observedGeneration": int64(2), "replicas": int64(2), "availableReplicas": int64(2)}, "0 of 2 replicas updated"},
		{"surging", map[string]any{"observedGeneration": int64(2), "replicas": int64(3), "updatedReplicas": int64(2), "availableReplicas": int64(2)}, "1 old replicas still there"},
		{"starting", map[string]any{"observedGeneration": int64(2), "replicas": int64(2), "updatedReplicas": int64(2), "availableReplicas": int64(1)}, "1 of 2 replicas available"},
		{"stuck", map[string]any{"observedGeneration": int64(2), "conditions": []any{
			map[string]any{"type": "Progressing", "status": "False", "message": "too slow"},
			map[string]any{"type": "ReplicaFailure", "status": "True", "message": "quota exceeded"},
		}}, "0 of 2 replicas updated (quota exceeded)"},
		{"done", map[string]any{"observedGeneration": int64(2), "replicas": int64(2), "updatedReplicas": int64(2), "availableReplicas": int64(2)}, ""},
	} {
		if got := Rollout(deployment(2, 2, tt.status)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestPoll(t *testing.T) {
	why := errors.New("why")
	t.Run("fails", func(t *testing.T) {
		if err := poll(t.Context(), nil, func() (string, error) { return "", why }); err != why {
			t.Errorf("error %v", err)
		}
	})
	t.Run("ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var said []string
		err := poll(ctx, func(text string) { said = append(said, text); cancel() }, func() (string, error) { return "rain", why })
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || err.Error() != "interrupted while waiting: rain" {
			t.Errorf("error %v", err)
		}
		if diff := cmp.Diff([]string{"rain"}, said); diff != "" {
			t.Error(diff)
		}
	})
}
