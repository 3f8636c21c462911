package binding

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/policy"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

func shareRequest(namespace string, meta map[string]any) *policy.Request {
	return &policy.Request{Resource: podResource, Namespace: namespace, Object: &unstructured.Unstructured{Object: map[string]any{"metadata": meta}}}
}

// The keys, and with them the shares, of what one Deployment makes are the same; those of
// an object do not depend on whether a server has named it yet.
func TestShareKey(t *testing.T) {
	owner := func(kind, name string, controller bool) []any {
		return []any{map[string]any{"kind": "Node", "name": "other"}, map[string]any{"kind": kind, "name": name, "controller": controller}}
	}
	hash := map[string]any{"pod-template-hash": "7d4b9"}
	tests := map[string]struct {
		req  *policy.Request
		want string
	}{
		"a Deployment":          {shareRequest("shop", map[string]any{"name": "web"}), "shop/web"},
		"its ReplicaSet":        {shareRequest("shop", map[string]any{"name": "web-7d4b9", "labels": hash, "ownerReferences": owner("Deployment", "web", true)}), "shop/web"},
		"its Pod":               {shareRequest("shop", map[string]any{"generateName": "web-7d4b9-", "labels": hash, "ownerReferences": owner("ReplicaSet", "web-7d4b9", true)}), "shop/web"},
		"a ReplicaSet's Pod":    {shareRequest("shop", map[string]any{"generateName": "web-", "ownerReferences": owner("ReplicaSet", "web", true)}), "shop/web"},
		"a Pod with a label":    {shareRequest("shop", map[string]any{"name": "a", "labels": hash, "ownerReferences": owner("ReplicaSet", "7d4b9", true)}), "shop/7d4b9"},
		"another owner":         {shareRequest("shop", map[string]any{"name": "web-1", "ownerReferences": owner("Deployment", "web", false)}), "shop/web-1"},
		"to be named":           {shareRequest("shop", map[string]any{"generateName": "job-"}), "shop/job-"},
		"named":                 {shareRequest("shop", map[string]any{"generateName": "job-", "name": "job-x7"}), "shop/job-"},
		"of a DaemonSet":        {shareRequest("shop", map[string]any{"generateName": "agent-", "labels": map[string]any{"controller-revision-hash": "5f"}, "ownerReferences": owner("DaemonSet", "agent", true)}), "shop/agent"},
		"of a StatefulSet":      {shareRequest("shop", map[string]any{"name": "db-0", "generateName": "db-", "ownerReferences": owner("StatefulSet", "db", true)}), "shop/db"},
		"its claim":             {shareRequest("shop", map[string]any{"name": "data-db-0"}), "shop/data-db-0"},
		"a CronJob's Job":       {shareRequest("shop", map[string]any{"name": "night-2903", "ownerReferences": owner("CronJob", "night", true)}), "shop/night"},
		"that Job's Pod":        {shareRequest("shop", map[string]any{"generateName": "night-2903-", "ownerReferences": owner("Job", "night-2903", true)}), "shop/night-2903"},
		"of its own kind":       {shareRequest("shop", map[string]any{"generateName": "web-7d4b9-", "labels": hash, "ownerReferences": owner("Rollout", "web-7d4b9", true)}), "shop/web-7d4b9"},
		"without a hash":        {shareRequest("shop", map[string]any{"generateName": "web-", "labels": map[string]any{"pod-template-hash": ""}, "ownerReferences": owner("ReplicaSet", "web-", true)}), "shop/web-"},
		"said by the object":    {shareRequest("shop", map[string]any{"name": "web", "namespace": "other"}), "shop/web"},
		"of the cluster":        {shareRequest("", map[string]any{"name": "node-1"}), "/node-1"},
		"not what it should be": {shareRequest("shop", map[string]any{"name": 1, "ownerReferences": []any{1, map[string]any{"controller": "yes"}}, "labels": 3}), "shop/"},
		"no metadata":           {&policy.Request{Resource: podResource, Namespace: "shop", Name: "web", Object: &unstructured.Unstructured{Object: map[string]any{}}}, "shop/web"},
		"no object":             {&policy.Request{Resource: podResource, Namespace: "shop", Name: "web"}, "shop/web"},
		"a deletion":            {&policy.Request{Resource: podResource, Namespace: "shop", Name: "web-1", OldObject: shareRequest("", map[string]any{"name": "web-1", "ownerReferences": owner("StatefulSet", "web", true)}).Object}, "shop/web"},
		"a Namespace": {&policy.Request{Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Namespace: "shop", Name: "shop",
			Object: &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "shop"}}}}, "/shop"},
	}
	for name, tt := range tests {
		if got := ShareKey(tt.req); got != tt.want {
			t.Errorf("%s: ShareKey = %q, want %q", name, got, tt.want)
		}
	}
}

// A pair that is not in the share of its binding, or is off, is not met; all others have
// their mode, an error of the policy that of the binding that counts the most among those
// that have the request in their shares.
func TestModesAndShares(t *testing.T) {
	annotated := func(annotations ...string) bindingOption {
		return func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
			b.Annotations = map[string]string{}
			for i := 0; i < len(annotations); i += 2 {
				b.Annotations["mapd.dev/"+annotations[i]] = annotations[i+1]
			}
		}
	}
	shadow := func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
		p.Annotations = map[string]string{api.ModeAnnotation: "shadow"}
	}
	nope := withParams(schema.GroupVersionKind{Version: "v1", Kind: "Nope"})
	const web = "59" // percent, of which shop/web needs more: see TestShareHash
	pods := resources(newRule("v1 pods"))
	policies := []*policy.Policy{
		newPolicy("p", pods), newPolicy("q", pods, shadow), newPolicy("r", pods, shadow, nope), newPolicy("s", pods, nope), newPolicy("u", pods, nope),
	}
	bindings := []*Binding{
		newBinding(t, "p-1", "p"), newBinding(t, "p-2", "p", annotated("mode", "warn")), newBinding(t, "p-3", "p", annotated("percent", web)),
		newBinding(t, "p-4", "p", annotated("percent", "59.5")), newBinding(t, "p-5", "p", annotated("percent", "all")), newBinding(t, "p-6", "p", annotated("percent", "0")),
		newBinding(t, "q-1", "q"), newBinding(t, "q-2", "q", annotated("mode", "enforce", "percent", "100")),
		newBinding(t, "r-1", "r"), newBinding(t, "r-2", "r", annotated("mode", "warn")),
		newBinding(t, "s-1", "s", annotated("percent", web)), newBinding(t, "s-2", "s", annotated("percent", "0")),
		newBinding(t, "u-1", "u", annotated("percent", web)), newBinding(t, "u-2", "u", annotated("mode", "shadow")),
	}
	req := createPod("shop", "web")
	show := func(ix *Index) (got []string) {
		for _, inv := range ix.Select(t.Context(), req) {
			got = append(got, fmt.Sprintf("%s %s %v", inv.Policy.Name(), inv.Binding, inv.Mode))
		}
		return got
	}
	ix := mustIndex(t, policies, bindings, Sources{Params: params{}})
	want := []string{"p p-1 enforce", "p p-2 warn", "p p-4 enforce", "p p-5 shadow", "q q-1 shadow", "q q-2 enforce", "r  warn", "u  shadow"}
	if diff := cmp.Diff(want, show(ix)); diff != "" {
		t.Errorf("Select (-want +got):\n%s", diff)
	}
	var met Selection
	ix.SelectInto(&met, t.Context(), req, req.Object)
	if diff := cmp.Diff([]LeftOut{{Policy: "p", Binding: "p-3"}, {Policy: "p", Binding: "p-6"}}, met.LeftOut); diff != "" {
		t.Errorf("LeftOut (-want +got):\n%s", diff)
	}
	if met.Reset(); len(met.LeftOut) != 0 {
		t.Errorf("after Reset: %v", met.LeftOut)
	}
	var missed []string
	for m := range ix.Misses(t.Context(), req, req.Object) {
		missed = append(missed, fmt.Sprintf("%s %v", m.Binding.Name(), m.Criterion == Share))
	}
	if diff := cmp.Diff([]string{"p-3 true", "p-6 true", "s-1 true", "s-2 true", "u-1 true"}, missed); diff != "" {
		t.Errorf("Misses (-want +got):\n%s", diff)
	}
	ix = mustIndex(t, policies, bindings, Sources{Params: params{}, Mode: func(p *policy.Policy, b *Binding, written api.Mode) api.Mode {
		switch {
		case b.Name() == "p-1" || p.Name() >= "r":
			return api.Off
		case written == api.Warn:
			return api.Shadow
		}
		return api.Enforce
	}})
	if diff := cmp.Diff([]string{"p p-2 shadow", "p p-4 enforce", "p p-5 enforce", "q q-1 enforce", "q q-2 enforce"}, show(ix)); diff != "" {
		t.Errorf("Select, changed (-want +got):\n%s", diff)
	}
}

// All that a Deployment makes is on one side, at any percentage, and what is in a smaller
// share is in a larger one, as requests are answered.
func TestSharesOfDeployments(t *testing.T) {
	percents := []string{"0", "0.0001", "0.5", "1", "10", "50", "99.9999", "100"}
	var bindings []*Binding
	for _, percent := range percents {
		bindings = append(bindings, newBinding(t, "at-"+percent, "p", func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
			b.Annotations = map[string]string{api.PercentAnnotation: percent}
		}))
	}
	ix := mustIndex(t, []*policy.Policy{newPolicy("p", resources(newRule("v1 pods")))}, bindings, Sources{Params: params{}})
	bound := func(meta map[string]any) (in []bool) {
		req := createPod("shop", "")
		req.Object.Object["metadata"] = meta
		in = make([]bool, len(percents))
		for _, inv := range ix.Select(t.Context(), req) {
			in[slices.Index(percents, strings.TrimPrefix(inv.Binding, "at-"))] = true
		}
		return in
	}
	counts := make([]int, len(percents))
	for i := range 1000 {
		name := fmt.Sprintf("web-%d", i)
		want := bound(map[string]any{"name": name}) // as the Deployment
		for k, in := range want {
			if in {
				counts[k]++
			} else if k > 0 && want[k-1] {
				t.Errorf("%s is in %s%%, and not in %s%%", name, percents[k-1], percents[k])
			}
		}
		for _, hash := range []string{"7d4b9", "58c6f"} { // of two rollouts
			owner := map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name + "-" + hash, "controller": true}
			pod := map[string]any{"generateName": name + "-" + hash + "-", "labels": map[string]any{"pod-template-hash": hash}, "ownerReferences": []any{owner}}
			if got := bound(pod); !slices.Equal(got, want) {
				t.Errorf("%s: %v, its Pod %v", name, want, got)
			}
			pod["name"] = name + "-" + hash + "-x" // an update
			if got := bound(pod); !slices.Equal(got, want) {
				t.Errorf("%s: %v, its Pod later %v", name, want, got)
			}
		}
	}
	if want := []int{0, 0, 1, 8, 97, 531, 1000, 1000}; !slices.Equal(counts, want) {
		t.Errorf("%v of 1000 Deployments, want %v as ever", counts, want)
	}
}

// These never change: which objects are in a share would.
func TestShareHash(t *testing.T) {
	for key, want := range map[string]struct {
		hash  uint64
		least api.Share // the least that has the key
	}{
		"":                {0xe3b0c44298fc1c14, 889416},
		"/":               {0x8a5edab282632443, 540510},
		"shop/web":        {0x97375646b1deb3d2, 590689},
		"default/my-pod":  {0x260ad9c0b363e6a8, 148604},
		"/node-1":         {0xdb740b02bdd2653b, 857240},
		"kube-system/dns": {0xbfd0be7125e473b5, 749279},
	} {
		hash := ShareHash(key)
		if hash != want.hash {
			t.Errorf("ShareHash(%q) = %#x, want %#x", key, hash, want.hash)
		}
		if want.least.Has(hash) == false || (want.least - 1).Has(hash) {
			t.Errorf("%q is in %v: %v, in %v: %v", key, want.least, want.least.Has(hash), want.least-1, (want.least - 1).Has(hash))
		}
	}
}

// Every share has about as many of all keys as it says.
func TestShareIsEven(t *testing.T) {
	const keys = 20_000
	for _, share := range []api.Share{10_000, 100_000, 500_000, 900_000} {
		in := 0
		for i := range keys {
			if share.Has(ShareHash(fmt.Sprintf("namespace-%d/web-%d", i%40, i))) {
				in++
			}
		}
		p := float64(share) / float64(api.Whole)
		if deviation := math.Abs(float64(in) - p*keys); deviation > 4*math.Sqrt(keys*p*(1-p)) {
			t.Errorf("%d of %d keys are in %v%%", in, keys, share)
		}
	}
}

// Whatever an object says of itself, it has one key, in its namespace.
func FuzzShareKey(f *testing.F) {
	f.Add("shop", "web-1", "web-", "ReplicaSet", "web-7d4b9", "7d4b9")
	f.Add("", "", "", "", "", "")
	f.Add("a/b", "-", "x", "ReplicaSet", "-x", "x")
	f.Fuzz(func(t *testing.T, namespace, name, generated, kind, owner, hash string) {
		meta := map[string]any{
			"name": name, "generateName": generated, "labels": map[string]any{"pod-template-hash": hash},
			"ownerReferences": []any{map[string]any{"kind": kind, "name": owner, "controller": true}},
		}
		key := ShareKey(shareRequest(namespace, meta))
		rest, ok := strings.CutPrefix(key, namespace+"/")
		if !ok || owner == "" && rest != generated && rest != name || owner != "" && !strings.HasPrefix(owner, rest) && rest != generated && rest != name {
			t.Errorf("ShareKey = %q", key)
		}
		again := meta
		if generated != "" {
			again = map[string]any{"generateName": generated, "labels": meta["labels"], "ownerReferences": meta["ownerReferences"]}
		}
		if other := ShareKey(shareRequest(namespace, again)); other != key {
			t.Errorf("ShareKey = %q, and before it was named %q", key, other)
		}
	})
}
