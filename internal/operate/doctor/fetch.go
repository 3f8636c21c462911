package doctor

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

func getJSON(ctx context.Context, c rest.Interface, path string, out any) error {
	data, err := c.Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, out)
}

// kind is a kind that the server serves.
type kind struct {
	kind, resource string
	namespaced     bool
}

// resources returns the resources that the server serves in gv; none if it does
// not know gv.
func (x *examination) resources(ctx context.Context, gv schema.GroupVersion) ([]kind, error) {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	var list metav1.APIResourceList
	if err := getJSON(ctx, x.Kubernetes.Discovery().RESTClient(), path, &list); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, err
	}
	var kinds []kind
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			kinds = append(kinds, kind{r.Kind, r.Name, r.Namespaced})
		}
	}
	return kinds, nil
}

// ownPolicy is a policy in mapd's group.
type ownPolicy struct {
	object *unstructured.Unstructured
	policy *admissionregistrationv1.MutatingAdmissionPolicy // nil: it cannot be decoded
	err    error
	bound  bool
}

type ownBinding struct {
	object  *unstructured.Unstructured
	binding *admissionregistrationv1.MutatingAdmissionPolicyBinding // nil: it cannot be decoded
	err     error
}

// objects has the policies and bindings in mapd's group, by name.
type objects struct {
	served                   bool // the server serves policies and bindings
	exceptions               bool // the server serves PolicyExceptions
	servedErr                error
	policies                 []ownPolicy
	bindings                 []ownBinding
	policiesErr, bindingsErr error
	byName                   map[string]int // into policies
}

// complete reports whether all policies and bindings could be read.
func (o *objects) complete() bool {
	return o.servedErr == nil && o.policiesErr == nil && o.bindingsErr == nil
}

func (o *objects) policy(name string) *ownPolicy {
	if i, ok := o.byName[name]; ok {
		return &o.policies[i]
	}
	return nil
}

// dangling reports whether a binding names a policy that does not exist.
func (o *objects) dangling(b ownBinding) bool {
	return o.policiesErr == nil && b.err == nil && o.policy(b.binding.Spec.PolicyName) == nil
}

func resource(group, version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
}

// entries returns the webhook entries that the policies need, and the names of
// the policies of each.
func (o *objects) entries() (entries []*webhookconfig.Entry, policies [][]string) {
	var names []string
	var reaches []*webhookconfig.Reach
	for _, b := range o.bindings {
		if b.err != nil {
			continue
		}
		if p := o.policy(b.binding.Spec.PolicyName); p != nil && p.err == nil {
			names = append(names, p.object.GetName())
			reach := webhookconfig.ReachOf(p.policy, b.binding.Spec.MatchResources)
			own, _ := api.RolloutFor(api.PolicyKind, p.policy.Annotations)
			own.Tripped = breaker.Current(p.object) != nil
			refined, _ := api.RolloutFor(api.BindingKind, b.binding.Annotations)
			if own.With(refined) != api.Enforce {
				reach = reach.Dispensable()
			}
			reaches = append(reaches, reach)
		}
	}
	entries, of := webhookconfig.Divide(reaches)
	policies = make([][]string, len(entries))
	for i, at := range of {
		if at >= 0 {
			policies[at] = append(policies[at], names[i])
		}
	}
	for i := range policies {
		slices.Sort(policies[i])
		policies[i] = slices.Compact(policies[i])
	}
	return entries, policies
}

// bound returns how many policies have a binding.
func (o *objects) bound() int {
	n := 0
	for _, p := range o.policies {
		if p.bound && p.err == nil {
			n++
		}
	}
	return n
}

// fetch reads the objects that several checks need. Lists are in the order of names,
// which is that of etcd's keys.
func (x *examination) fetch(ctx context.Context) {
	configurations := x.Kubernetes.AdmissionregistrationV1()
	x.mutatingErr, x.validatingErr, x.own.servedErr = errUnasked, errUnasked, errUnasked
	x.each(ctx, step{"mutating webhooks", func(ctx context.Context) {
		list, err := configurations.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
		if x.mutatingErr = err; err == nil {
			x.mutating = list.Items
		}
	}}, step{"validating webhooks", func(ctx context.Context) {
		found, err := configurations.ValidatingWebhookConfigurations().Get(ctx, webhookconfig.ValidationName, metav1.GetOptions{})
		if x.validatingErr = err; err == nil {
			x.validating = found
		}
	}}, step{crdCheck, x.fetchServed})
	if x.own.served {
		x.own.policiesErr, x.own.bindingsErr = errUnasked, errUnasked
		x.each(ctx, step{"policies", x.fetchPolicies}, step{"bindings", x.fetchBindings})
	}
}

// errUnasked is the error of something for which no time was left to read it.
var errUnasked = context.DeadlineExceeded

// fetchServed finds out whether the server serves mapd's kinds.
func (x *examination) fetchServed(ctx context.Context) {
	kinds, err := x.resources(ctx, schema.GroupVersion{Group: api.OwnGroup, Version: "v1"})
	x.own.servedErr = err
	found := map[string]bool{}
	for _, k := range kinds {
		found[k.resource] = true
	}
	x.own.served = found[api.PolicyResource] && found[api.BindingResource]
	if kinds, err = x.resources(ctx, api.Exceptions.GroupVersion()); err == nil {
		x.own.exceptions = slices.ContainsFunc(kinds, func(k kind) bool { return k.resource == api.ExceptionResource })
	}
}

func (x *examination) fetchPolicies(ctx context.Context) {
	o := &x.own
	list, err := x.Dynamic.Resource(resource(api.OwnGroup, "v1", api.PolicyResource)).List(ctx, metav1.ListOptions{})
	o.byName = map[string]int{}
	if o.policiesErr = err; err != nil {
		return
	}
	for i := range list.Items {
		p := ownPolicy{object: &list.Items[i]}
		x.isKept(p.object)
		p.policy, p.err = policy.Decode(p.object)
		o.byName[p.object.GetName()] = len(o.policies)
		o.policies = append(o.policies, p)
	}
}

// fetchBindings reads the bindings and marks the policies that have one. fetchPolicies must have
// run before.
func (x *examination) fetchBindings(ctx context.Context) {
	o := &x.own
	list, err := x.Dynamic.Resource(resource(api.OwnGroup, "v1", api.BindingResource)).List(ctx, metav1.ListOptions{})
	if o.bindingsErr = err; err != nil {
		return
	}
	for i := range list.Items {
		b := ownBinding{object: &list.Items[i]}
		b.binding, b.err = binding.Decode(b.object)
		o.bindings = append(o.bindings, b)
		if b.err == nil {
			if p := o.policy(b.binding.Spec.PolicyName); p != nil {
				p.bound = true
			}
		}
	}
}
