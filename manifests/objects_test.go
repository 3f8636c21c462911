package manifests

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/document/manifest"
)

func objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for doc, err := range manifest.ReadStream("install.yaml", bytes.NewReader(Install())) {
		if err != nil {
			t.Fatal(err)
		}
		if doc.Object != nil {
			all = append(all, doc.Object)
		}
	}
	return all
}

func find(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, obj := range objects(t) {
		if obj.GetKind() == kind && obj.GetName() == name {
			return obj
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

// Applied in this order, nothing is refused because what it needs is not there.
func TestOrder(t *testing.T) {
	seen := map[string]bool{"Namespace/default": true}
	need := func(obj *unstructured.Unstructured, what string) {
		if !seen[what] {
			t.Errorf("%s %s comes before %s", obj.GetKind(), obj.GetName(), what)
		}
	}
	for _, obj := range objects(t) {
		if ns := obj.GetNamespace(); ns != "" {
			need(obj, "Namespace/"+ns)
		}
		if role, ok, _ := unstructured.NestedStringMap(obj.Object, "roleRef"); ok {
			need(obj, role["kind"]+"/"+role["name"])
		}
		if account, ok, _ := unstructured.NestedString(obj.Object, "spec", "template", "spec", "serviceAccountName"); ok {
			need(obj, "ServiceAccount/"+account)
		}
		key := obj.GetKind() + "/" + obj.GetName()
		if obj.GetKind() != "Role" && obj.GetKind() != "RoleBinding" && seen[key] {
			t.Errorf("%s is there twice", key)
		}
		seen[key] = true
		if obj.GetLabels()["app.kubernetes.io/name"] != "mapd" || obj.GetLabels()["app.kubernetes.io/part-of"] != "mapd" {
			t.Errorf("%s is not labelled as mapd's", key)
		}
	}
}

// The webhooks lists belong to mapd while it runs, so that applying this again
// cannot wipe them; and it finds its configurations by these names.
func TestWebhookConfigurationsAreEmpty(t *testing.T) {
	for kind, name := range map[string]string{
		"MutatingWebhookConfiguration":   webhookconfig.ConfigurationName,
		"ValidatingWebhookConfiguration": webhookconfig.ValidationName,
	} {
		if _, ok := find(t, kind, name).Object["webhooks"]; ok {
			t.Errorf("%s %s has webhooks", kind, name)
		}
	}
}

// mapd reads and writes no webhook configuration and no Secret but its own. A rule without names may be there only where a name cannot be.
func TestRulesThatNeedNames(t *testing.T) {
	named := map[string]string{
		"mutatingwebhookconfigurations":   webhookconfig.ConfigurationName,
		"validatingwebhookconfigurations": webhookconfig.ValidationName,
		"secrets":                         "mapd-tls",
		"leases":                          "mapd",
	}
	withoutName := map[string][]string{
		"secrets": {"create"},
		"leases":  {"create"},
	}
	for _, obj := range objects(t) {
		if obj.GetKind() != "ClusterRole" && obj.GetKind() != "Role" {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(obj.Object, "rules")
		for _, rule := range rules {
			rule := &unstructured.Unstructured{Object: rule.(map[string]any)}
			groups, _, _ := unstructured.NestedStringSlice(rule.Object, "apiGroups")
			resources, _, _ := unstructured.NestedStringSlice(rule.Object, "resources")
			names, _, _ := unstructured.NestedStringSlice(rule.Object, "resourceNames")
			verbs, _, _ := unstructured.NestedStringSlice(rule.Object, "verbs")
			for _, word := range slices.Concat(groups, resources, verbs) {
				if strings.Contains(word, "*") {
					t.Errorf("%s %s: a wildcard in %v", obj.GetKind(), obj.GetName(), rule.Object)
				}
			}
			for _, resource := range resources {
				name, ok := named[resource]
				if !ok {
					continue
				}
				for _, verb := range verbs {
					if !slices.Equal(names, []string{name}) && (len(names) > 0 || !slices.Contains(withoutName[resource], verb)) {
						t.Errorf("%s %s: %s %s of the names %v", obj.GetKind(), obj.GetName(), verb, resource, names)
					}
				}
			}
		}
	}
}

// Rights that nobody uses, and those of another mode, are rights for whoever takes mapd over.
func TestRightsOfModes(t *testing.T) {
	// What may be done to what mapd does not need, or not in every mode, by the directory of
	// the manifests that grants it.
	granted := map[string]map[string][]string{}
	for _, dir := range []string{"base", "overlays/legacy", "overlays/native", "overlays/kubewarden", "overlays/audit", "overlays/reports", "overlays/external-data"} {
		files, err := filepath.Glob(filepath.Join(dir, "rbac*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		granted[dir] = map[string][]string{}
		for _, file := range files {
			if file == filepath.Join("base", "rbac-records.yaml") || file == filepath.Join("base", "rbac-users.yaml") {
				continue // those of people
			}
			for text := range strings.SplitSeq(string(read(t, file)), "\n---\n") {
				var role rbacv1.ClusterRole
				if err := yaml.Unmarshal([]byte(text), &role); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				for _, rule := range role.Rules {
					for _, group := range rule.APIGroups {
						for _, resource := range rule.Resources {
							name := strings.TrimPrefix(group+"/"+resource, "/")
							verbs := append(granted[dir][name], rule.Verbs...)
							slices.Sort(verbs)
							granted[dir][name] = slices.Compact(verbs)
						}
					}
				}
			}
		}
	}
	for _, tt := range []struct {
		dir, resource string
		verbs         []string
	}{
		{"base", "coordination.k8s.io/leases", []string{"create", "get", "update"}},
		{"base", "secrets", []string{"create", "get", "list", "update", "watch"}},
		{"base", "discovery.k8s.io/endpointslices", []string{"list", "watch"}},
		{"base", "admissionregistration.k8s.io/mutatingadmissionpolicies", nil},
		{"base", "admissionregistration.mapd.dev/mutatingadmissionpolicies", []string{"get", "list", "watch"}},
		{"overlays/legacy", "admissionregistration.k8s.io/mutatingadmissionpolicies", nil},
		{"overlays/legacy", "admissionregistration.k8s.io/mutatingadmissionpolicybindings", nil},
		{"overlays/legacy", "admissionregistration.mapd.dev/mutatingadmissionpolicies", nil},
		{"overlays/legacy", "admissionregistration.mapd.dev/mutatingadmissionpolicybindings", nil},
		{"overlays/native", "admissionregistration.k8s.io/mutatingadmissionpolicies", []string{"create", "delete", "list", "patch", "update", "watch"}},
		{"overlays/native", "admissionregistration.mapd.dev/mutatingadmissionpolicies", []string{"create", "delete", "patch", "update"}},
		{"overlays/reports", "openreports.io/reports", []string{"create", "delete", "list", "update"}},
		{"overlays/reports", "wgpolicyk8s.io/policyreports", nil},
		{"overlays/kubewarden", "admissionregistration.k8s.io/mutatingadmissionpolicies", nil},
	} {
		if got := granted[tt.dir][tt.resource]; !slices.Equal(got, tt.verbs) {
			t.Errorf("%s: %s: %v, want %v", tt.dir, tt.resource, got, tt.verbs)
		}
	}
}

func TestImage(t *testing.T) {
	containers, _, _ := unstructured.NestedSlice(find(t, "Deployment", "mapd").Object, "spec", "template", "spec", "containers")
	if len(containers) != 1 {
		t.Fatalf("%d containers", len(containers))
	}
	image, _ := containers[0].(map[string]any)["image"].(string)
	if tag, ok := strings.CutPrefix(image, Image+":"); !ok || tag == "" || tag == "latest" {
		t.Errorf("the image is %q, not %s with the tag of a version", image, Image)
	}
}
