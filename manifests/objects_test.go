package manifests

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/webhook"
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
		"MutatingWebhookConfiguration":   webhook.ConfigurationName,
		"ValidatingWebhookConfiguration": webhook.ValidationName,
	} {
		if _, ok := find(t, kind, name).Object["webhooks"]; ok {
			t.Errorf("%s %s has webhooks", kind, name)
		}
	}
}

// mapd reads and writes no webhook configuration and no Secret but its own. A rule without names may be there only where a name cannot be.
func TestRulesThatNeedNames(t *testing.T) {
	named := map[string]string{
		"mutatingwebhookconfigurations":   webhook.ConfigurationName,
		"validatingwebhookconfigurations": webhook.ValidationName,
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
