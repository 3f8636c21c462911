package verify

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/test/hammer"
)

const gadgets = `
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: gadgets}
spec:
  applyTo:
  - {groups: [example.com], versions: [v1], kinds: [Gadget]}
  match:
    namespaces: [team-*]
    excludedNamespaces: ["*-system"]
    name: pod-*
    labelSelector:
      matchLabels: {app: web}
      matchExpressions:
      - {key: tier, operator: NotIn, values: [front]}
      - {key: lit, operator: Exists}
    namespaceSelector:
      matchLabels: {env: prod}
  location: "spec.parts[port: 80].limits.size"
  parameters:
    assign: {value: 5}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: ModifySet
metadata: {name: gadgets}
spec:
  applyTo:
  - {groups: [example.com], versions: [v1], kinds: [Gadget]}
  location: "spec.all[name: *].args"
  parameters:
    operation: merge
    values: {fromList: [a, b, 1]}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: owner}
spec:
  location: metadata.labels.owner
  parameters:
    assign: {value: me}
---
apiVersion: mutations.gatekeeper.sh/v1alpha1
kind: AssignImage
metadata: {name: registry}
spec:
  applyTo:
  - {groups: [""], versions: [v1], kinds: [Pod]}
  location: "spec.containers[name: *].image"
  parameters: {assignDomain: registry.example.com}
`

// The generator goes everywhere it says it goes.
func TestGenerateCovers(t *testing.T) {
	hammer.Alone(t)
	ms := mutators(t, gadgets)
	seen := map[string]bool{}
	note := func(what string, is bool) {
		if is {
			seen[what] = true
		}
	}
	for _, o := range Generate(ms, types(), DefaultSeed, 4000) {
		u := &unstructured.Unstructured{Object: o.Object}
		note("created", o.Operation == create)
		note("updated", o.Operation == update && o.Old != nil)
		note("updated from something else", o.Operation == update && !equalJSON(o.Old, o.Object))
		note("cluster-scoped", o.Namespace == nil && u.GetKind() == "ClusterRole")
		note("a Namespace", u.GetKind() == "Namespace" && u.GetAPIVersion() == "v1")
		note("generateName", u.GetName() == "" && u.GetGenerateName() != "")
		note("name and generateName", u.GetName() != "" && u.GetGenerateName() != "")
		note("a name that is asked for", strings.HasPrefix(u.GetName(), "pod-"))
		note("another name", u.GetName() == "web" || u.GetName() == "other")
		ns := u.GetNamespace()
		note("a namespace that is asked for", strings.HasPrefix(ns, "team-"))
		note("an excluded namespace", strings.HasSuffix(ns, "-system"))
		note("another namespace", ns == "default")
		nsLabels := (&unstructured.Unstructured{Object: o.Namespace}).GetLabels()
		note("a namespace's label that is asked for", nsLabels["env"] == "prod")
		note("another label of a namespace", o.Namespace != nil && nsLabels["env"] != "prod")
		_, ignored := nsLabels[api.IgnoreLabel]
		note("a namespace to be ignored", ignored)
		if u.GetKind() == "Gadget" {
			l := u.GetLabels()
			_, on := l["lit"]
			note("all labels that are asked for", l["app"] == "web" && l["tier"] != "front" && on)
			note("all but one label, by value", l["app"] != "web" && l["tier"] != "front" && on)
			note("all but one label, by exclusion", l["app"] == "web" && l["tier"] == "front" && on)
			note("all but one label, by absence", l["app"] == "web" && l["tier"] != "front" && !on)
			gadget(note, o.Object)
		}
		if u.GetKind() == "Pod" {
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers")
			dns, _, _ := unstructured.NestedString(o.Object, "spec", "dnsPolicy")
			note("a Pod with two containers", len(containers) == 2)
			note("a Pod with defaults", dns == "ClusterFirst")
			note("a Pod without defaults", len(containers) > 0 && dns == "")
		}
		labels, is := labelsOf(o.Object)
		note("the label is there", labels["owner"] == "me")
		note("another value is there", is && labels["owner"] != nil && labels["owner"] != "me")
		note("the label is there and empty", labels["owner"] == "")
		note("the label is null", is && has(labels, "owner") && labels["owner"] == nil)
		note("no label", is && !has(labels, "owner"))
	}
	want := []string{
		"created", "updated", "updated from something else", "cluster-scoped", "a Namespace",
		"generateName", "name and generateName", "a name that is asked for", "another name",
		"a namespace that is asked for", "an excluded namespace", "another namespace",
		"a namespace's label that is asked for", "another label of a namespace", "a namespace to be ignored",
		"all labels that are asked for", "all but one label, by value", "all but one label, by exclusion", "all but one label, by absence",
		"a Pod with two containers", "a Pod with defaults", "a Pod without defaults",
		"the label is there", "another value is there", "the label is there and empty", "the label is null", "no label",
		"no spec", "spec is null", "spec is empty", "spec is no object",
		"no list", "the list is null", "the list is empty", "the list is none",
		"the element", "the element twice", "other elements only", "an element without key", "a key of another type", "an element that is no object",
		"no parent in the element", "the parent is null", "the parent is no object",
		"no value", "the value", "another value", "a null value", "a value of another type",
		"the set is empty", "the set has a value", "the set has a value twice", "the set has another value", "the set is null", "the set is none",
	}
	for _, w := range want {
		if !seen[w] {
			t.Errorf("never generated: %s", w)
		}
	}
	for s := range seen {
		if !slices.Contains(want, s) {
			t.Errorf("generated, and not expected to be told: %s", s)
		}
	}
}

func has(m map[string]any, key string) bool {
	_, ok := m[key]
	return ok
}

// gadget notes what is on the way of two locations.
func gadget(note func(string, bool), obj map[string]any) {
	spec, ok := obj["spec"].(map[string]any)
	note("no spec", !has(obj, "spec"))
	note("spec is null", has(obj, "spec") && obj["spec"] == nil)
	note("spec is empty", ok && len(spec) == 0)
	note("spec is no object", obj["spec"] != nil && !ok)
	if !ok {
		return
	}
	parts, ok := spec["parts"].([]any)
	note("no list", !has(spec, "parts"))
	note("the list is null", has(spec, "parts") && spec["parts"] == nil)
	note("the list is empty", ok && len(parts) == 0)
	note("the list is none", spec["parts"] != nil && !ok)
	matching := 0
	for _, e := range parts {
		m, ok := e.(map[string]any)
		note("an element that is no object", !ok)
		if !ok {
			continue
		}
		note("an element without key", !has(m, "port"))
		_, fraction := m["port"].(float64)
		note("a key of another type", fraction)
		if m["port"] != int64(80) {
			continue
		}
		matching++
		limits, ok := m["limits"].(map[string]any)
		note("no parent in the element", !has(m, "limits"))
		note("the parent is null", has(m, "limits") && m["limits"] == nil)
		note("the parent is no object", m["limits"] != nil && !ok)
		if !ok {
			continue
		}
		size := limits["size"]
		note("no value", !has(limits, "size"))
		note("the value", size == 5.0)
		note("another value", size == 6.0)
		note("a null value", has(limits, "size") && size == nil)
		switch size.(type) {
		case string, bool, []any, map[string]any:
			note("a value of another type", true)
		}
	}
	note("the element", matching == 1)
	note("the element twice", matching == 2)
	note("other elements only", len(parts) > 0 && matching == 0)
	all, _ := spec["all"].([]any)
	for _, e := range all {
		m, _ := e.(map[string]any)
		args, ok := m["args"].([]any)
		note("the set is null", has(m, "args") && m["args"] == nil)
		note("the set is none", m["args"] != nil && !ok)
		note("the set is empty", ok && len(args) == 0)
		n := 0
		for _, a := range args {
			if a == "a" {
				n++
			}
		}
		note("the set has a value", n == 1)
		note("the set has a value twice", n > 1)
		note("the set has another value", slices.Contains(args, "other"))
	}
}

func TestGenerateRepeats(t *testing.T) {
	ms := mutators(t, gadgets)
	a, b := Generate(ms, types(), 7, 50), Generate(ms, types(), 7, 50)
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("the same seed gives other objects:\n%s", d)
	}
	if cmp.Equal(a, Generate(ms, types(), 8, 50)) {
		t.Error("another seed gives the same objects")
	}
	if d := cmp.Diff(a[:20], Generate(ms, types(), 7, 20)); d != "" {
		t.Errorf("more objects are other objects:\n%s", d)
	}
	if Generate(nil, types(), 1, 5) != nil {
		t.Error("objects for nobody")
	}
}

// Most objects of built-in kinds have to be ones that their kind allows, or little
// is compared.
func TestGenerateIsAllowed(t *testing.T) {
	hammer.Alone(t)
	var pods []*legacy.Mutator
	for _, m := range mutators(t, gadgets) {
		if m.Kind == legacy.AssignImage {
			pods = append(pods, m)
		}
	}
	allowed := 0
	for _, o := range Generate(pods, types(), DefaultSeed, 500) {
		if requests(types(), o)[0] != nil {
			allowed++
		}
	}
	if allowed < 450 {
		t.Errorf("%d of 500 are allowed", allowed)
	}
}
