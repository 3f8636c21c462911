package bench

import (
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/test/cases"
)

// A Workload has policies, or mutators with the same effect, and a request. Its WantObject is the
// correct result. Sides must not modify it.
type Workload = cases.Case

// Match returns a workload of n policies, and mutators if the case has some, that all apply.
func Match(c *Case, o *Object, n int) *Workload {
	w := request(o, "default")
	for i := range n {
		if c.HasPolicy() {
			w.Policies = append(w.Policies, policy(c, o, i, ""))
			w.Bindings = append(w.Bindings, bind(c, i, i, ""))
		}
		if c.HasMutator() {
			w.Mutators = append(w.Mutators, mutator(c, o, i, ""))
		}
		c.want(o, w.WantObject.Object, i)
	}
	return w
}

// Misses are the reasons why policies do not match a request: its resource, or its namespace.
var Misses = []string{"resource", "namespace"}

// Miss returns a workload of n policies and n mutators of which none applies to a small Pod.
func Miss(how string, n int) *Workload {
	c, o := Label, Objects[0]
	w := request(o, "default")
	other := *o
	constraints, match := "", `"match": {"namespaces": ["other"]}, `
	if how == "namespace" {
		constraints = namespaceIs("other") + ", "
	} else {
		other.resource, match = "configmaps", `"match": {"kinds": [{"apiGroups": [""], "kinds": ["ConfigMap"]}]}, `
	}
	for i := range n {
		w.Policies = append(w.Policies, policy(c, &other, i, constraints))
		w.Bindings = append(w.Bindings, bind(c, i, i, ""))
		w.Mutators = append(w.Mutators, mutator(c, o, i, match))
	}
	return w
}

// Selectors are the ways in which policies, bindings or mutators can select by labels that the
// request does not have: which of them selects, whether by labels of the object or its Namespace,
// and with which selectors; "few" means ten selectors with all operators.
var Selectors = func() (all []string) {
	for _, who := range []string{"policies", "bindings", "mutators"} {
		for _, where := range []string{"namespace", "object"} {
			for _, how := range []string{"labels", "not-in", "few"} {
				all = append(all, who+"-"+where+"-"+how)
			}
		}
	}
	return all
}()

// Select returns a workload of n policies with a binding each, or n mutators, that use the same few
// selectors. None applies to a small Pod.
func Select(way string, n int) *Workload {
	c, o := Label, Objects[0]
	w := request(o, "default")
	parts := strings.SplitN(way, "-", 3)
	who, where, how := parts[0], parts[1], parts[2]
	key, value := "app", "web"
	if where == "namespace" {
		key, value = "kubernetes.io/metadata.name", "default"
	}
	selectors := []string{
		fmt.Sprintf(`{"matchLabels": {%q: "other"}}`, key),
		fmt.Sprintf(`{"matchExpressions": [{"key": %q, "operator": "NotIn", "values": [%q]}]}`, key, value),
		fmt.Sprintf(`{"matchExpressions": [{"key": %q, "operator": "DoesNotExist"}]}`, key),
	}
	for i := range 7 {
		operator := []string{`"Exists"`, `"In", "values": ["a", "b"]`}[i%2]
		selectors = append(selectors, fmt.Sprintf(`{"matchExpressions": [{"key": "example.com/k%d", "operator": %s}]}`, i, operator))
	}
	switch how {
	case "labels":
		selectors = selectors[:1]
	case "not-in":
		selectors = selectors[1:2]
	}
	for i := range n {
		selector := fmt.Sprintf(`"%sSelector": %s`, where, selectors[i%len(selectors)])
		switch who {
		case "policies":
			w.Policies = append(w.Policies, policy(c, o, i, selector+", "))
			w.Bindings = append(w.Bindings, bind(c, i, i, ""))
		case "bindings":
			w.Policies = append(w.Policies, policy(c, o, i, ""))
			w.Bindings = append(w.Bindings, bind(c, i, i, `, "matchResources": {`+selector+`}`))
		default:
			w.Mutators = append(w.Mutators, mutator(c, o, i, `"match": {`+strings.Replace(selector, "object", "label", 1)+`}, `))
		}
	}
	return w
}

// Tenants are the ways in which n tenants can have a policy each: a binding of one
// policy, or a policy.
var Tenants = []string{"bindings", "policies"}

// Tenant returns a workload of n bindings, each for a namespace of its own, and a request that one
// of them applies to. If alone is set, the workload has only that binding.
func Tenant(how string, n int, alone bool) *Workload { return tenants(Label, how, n, alone) }

// Many returns a workload of n policies or mutators of a case, each for a namespace of its own, and
// a request that one of them applies to.
func Many(c *Case, n int) *Workload { return tenants(c, "policies", n, false) }

func tenants(c *Case, how string, n int, alone bool) *Workload {
	o, hit := Objects[0], n/2
	w := request(o, tenant(hit))
	for i := range n {
		if alone && i != hit {
			continue
		}
		p := i
		if how == "bindings" {
			p = 0
		}
		if c.HasPolicy() && (how == "policies" || len(w.Policies) == 0) {
			w.Policies = append(w.Policies, policy(c, o, p, ""))
		}
		if c.HasPolicy() {
			w.Bindings = append(w.Bindings, bind(c, i, p, `, "matchResources": {`+namespaceIs(tenant(i))+`}`))
		}
		if c.HasMutator() {
			w.Mutators = append(w.Mutators, tenantMutator(c, o, i, p))
		}
		if i == hit {
			c.want(o, w.WantObject.Object, p)
		}
	}
	return w
}

// tenantMutator returns the mutator that corresponds to the i-th binding, which is of the p-th
// policy.
func tenantMutator(c *Case, o *Object, i, p int) *unstructured.Unstructured {
	u := mutator(c, o, p, fmt.Sprintf(`"match": {"namespaces": [%q]}, `, tenant(i)))
	u.SetName(fmt.Sprintf("m%05d", i))
	return u
}

func tenant(i int) string { return fmt.Sprintf("tenant-%05d", i) }

func namespaceIs(name string) string {
	return fmt.Sprintf(`"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": %q}}`, name)
}

// request returns a workload without policies, whose request creates an object in a namespace.
func request(o *Object, namespace string) *Workload {
	obj := o.tree.DeepCopy()
	obj.SetNamespace(namespace)
	gvr := o.kind.GroupVersion().WithResource(o.resource)
	return &Workload{
		Params: []*unstructured.Unstructured{parse(`{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": {"name": "settings", "namespace": "default"}, "data": {"k": "v"}}`)},
		Namespaces: []*unstructured.Unstructured{parse(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace",
			"metadata": {"name": %[1]q, "labels": {"kubernetes.io/metadata.name": %[1]q}}}`, namespace))},
		Request: cases.RequestSpec{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: "CREATE",
			Kind: o.kind, Resource: gvr, RequestKind: o.kind, RequestResource: gvr,
			Name: obj.GetName(), Namespace: namespace,
			User:    authenticationv1.UserInfo{Username: "alice", Groups: []string{"developers", "system:authenticated"}},
			Options: map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
			Object:  obj,
		},
		WantObject: obj.DeepCopy(),
	}
}

func policy(c *Case, o *Object, i int, constraints string) *unstructured.Unstructured {
	return parse(fmt.Sprintf(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "p%05d"},
		"spec": {"reinvocationPolicy": "Never", "failurePolicy": "Fail",
		"matchConstraints": {%s"resourceRules": [{"apiGroups": [%q], "apiVersions": [%q], "operations": ["CREATE"], "resources": [%q]}]},
		%s}}`, i, constraints, o.kind.Group, o.kind.Version, o.resource, c.spec(o, i)))
}

// bind returns the i-th binding, which is of the p-th policy.
func bind(c *Case, i, p int, more string) *unstructured.Unstructured {
	if c.params {
		more += `, "paramRef": {"name": "settings", "namespace": "default", "parameterNotFoundAction": "Deny"}`
	}
	return parse(fmt.Sprintf(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "b%05d"},
		"spec": {"policyName": "p%05d"%s}}`, i, p, more))
}

func mutator(c *Case, o *Object, i int, match string) *unstructured.Unstructured {
	kind, spec := c.mutator(o, i)
	return parse(fmt.Sprintf(`{"apiVersion": "mutations.gatekeeper.sh/v1", "kind": %q, "metadata": {"name": "m%05d"}, "spec": {%s%s}}`, kind, i, match, spec))
}

func parse(text string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		panic(fmt.Errorf("%w: %s", err, text)) // written in this file
	}
	return u
}
