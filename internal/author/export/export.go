package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Suffix is the required end of the names of manifest policies and their bindings (spec §1.5).
const Suffix = ".static.k8s.io"

// originAnnotation has the policy, binding and parameter from which a manifest policy was made.
const originAnnotation = "mapd.dev/exported-from"

// Policy is the result of exporting one policy.
type Policy struct {
	Name     string
	Bindings []*binding.Binding
	// Manifests are the manifest policies, in the order in which they run. There are none if the
	// policy does nothing or has Problems.
	Manifests []*Manifest
	// Problems describe what no manifest policy can do, and Notes describe differences.
	Problems, Notes []string

	policy     *policy.Policy
	own        bool     // the policy is of mapd's group
	namespaces []string // of parameters that depend on the request
}

// Manifest is a policy with its bindings.
type Manifest struct {
	Policy   *admissionregistrationv1.MutatingAdmissionPolicy
	Bindings []*admissionregistrationv1.MutatingAdmissionPolicyBinding
	// Params names the parameter, "" if there is none.
	Params string
}

// Objects returns the policy and the bindings as one writes them.
func (m *Manifest) Objects() []*unstructured.Unstructured {
	out := []*unstructured.Unstructured{api.Object(m.Policy, api.NativeGroup)}
	for _, b := range m.Bindings {
		out = append(out, api.Object(b, api.NativeGroup))
	}
	return out
}

// Options configure Export.
type Options struct {
	// Env is the CEL environment of the servers.
	Env *cel.Env
	// Own reports whether the policy of that name is of mapd's group.
	Own func(name string) bool
	// Only are the policies to export; nil means all.
	Only []string
	// Exempt are namespaces that policies of mapd's group do not reach.
	Exempt []string
}

// Export returns the policies of a snapshot in the order in which they run.
func Export(ctx context.Context, s *policyset.Snapshot, o Options) ([]*Policy, error) {
	var out []*Policy
	for _, p := range s.Policies {
		if o.Only == nil || slices.Contains(o.Only, p.Name()) {
			out = append(out, &Policy{Name: p.Name(), policy: p, own: o.Own(p.Name())})
		}
	}
	slices.SortFunc(out, func(a, b *Policy) int { return cmp.Compare(a.Name, b.Name) })
	bindings := slices.SortedFunc(slices.Values(s.Index.Bindings()), func(a, b *binding.Binding) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, p := range out {
		for _, b := range bindings {
			if b.PolicyName() == p.Name {
				p.Bindings = append(p.Bindings, b)
			}
		}
		if err := p.export(ctx, s, o); err != nil {
			return nil, err
		}
	}
	name(out)
	for _, p := range out {
		p.check(o.Env)
	}
	return out, nil
}

func (p *Policy) problem(format string, args ...any) {
	p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
}

func (p *Policy) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// Refuse removes the manifests of a policy because of a problem.
func (p *Policy) Refuse(text string) {
	p.Problems, p.Manifests = append(p.Problems, text), nil
}

// export makes the manifests of a policy, without their names. An error is that of ctx.
func (p *Policy) export(ctx context.Context, s *policyset.Snapshot, o Options) error {
	if len(p.Bindings) == 0 {
		p.note("has no binding, so it does nothing and nothing is written")
		return nil
	}
	p.rollouts()
	p.exceptions(s.Exceptions(), time.Now())
	spec := p.policy.Object().Spec
	if kind := spec.ParamKind; kind == nil {
		m := p.manifest(nil, "")
		for _, b := range p.Bindings {
			m.Bindings = append(m.Bindings, p.binding(b, nil, o))
		}
		p.Manifests = append(p.Manifests, m)
	} else {
		for _, b := range p.Bindings {
			if err := p.inlined(ctx, s, b, o); err != nil {
				return err
			}
		}
	}
	if len(p.Problems) > 0 {
		p.Manifests = nil
	}
	return nil
}

// rollouts refuses annotations of mapd that an API server does not support.
func (p *Policy) rollouts() {
	rollout := p.policy.Rollout()
	if rollout.Breaker != nil {
		p.note("a server has no breaker: %s no longer counts", api.BreakerAnnotation)
	}
	for _, b := range p.Bindings {
		if mode := rollout.With(b.Rollout()); mode != api.Enforce {
			p.problem("by binding %s it is in mode %s, and a server only enforces; set %s: enforce first", b.Name(), mode, api.ModeAnnotation)
		}
		if share := b.Rollout().Share; share != api.Whole {
			p.problem("binding %s takes %s %% of the objects, and a server has no shares; set %s to 100 first", b.Name(), share, api.PercentAnnotation)
		}
	}
}

// exceptions refuses a policy to which exceptions apply, now or later.
func (p *Policy) exceptions(list []policyset.Exception, now time.Time) {
	for _, x := range list {
		if x.Unapplied == "" && !x.Ended(now) && slices.Contains(x.Object().Spec.Policies, p.Name) && !slices.Contains(x.Native, p.Name) {
			_, until := x.Times()
			p.problem("exception %s holds %s, and a server reads no exceptions; end it, or leave it out", x.Name(), binding.UntilText(until))
		}
	}
}

// metadata returns labels and annotations without what belongs to mapd and kubectl.
func metadata(from metav1.ObjectMeta, origin string) metav1.ObjectMeta {
	keep := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(k, _ string) bool {
			return strings.HasPrefix(k, "mapd.dev/") || k == corev1.LastAppliedConfigAnnotation
		})
		return m
	}
	out := metav1.ObjectMeta{Labels: keep(from.Labels), Annotations: keep(from.Annotations)}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[originAnnotation] = origin
	return out
}

// manifest returns a copy of the policy.
func (p *Policy) manifest(b *binding.Binding, params string) *Manifest {
	obj := p.policy.Object().DeepCopy()
	origin := p.Name
	if b != nil {
		origin += ", binding " + b.Name()
	}
	if params != "" {
		origin += ", " + params
	}
	obj.ObjectMeta = metadata(obj.ObjectMeta, origin)
	conditions, others := expressions(&obj.Spec)
	for _, e := range slices.Concat(conditions, others) {
		*e = strings.TrimRight(*e, "\n") // YAML would need quotes
	}
	return &Manifest{Policy: obj, Params: params}
}

// binding returns a copy of a binding without its paramRef. If namespace is not nil, the copy
// selects that namespace only; otherwise a binding of mapd's group excludes the exempt
// namespaces.
func (p *Policy) binding(b *binding.Binding, namespace *string, o Options) *admissionregistrationv1.MutatingAdmissionPolicyBinding {
	obj := b.Object().DeepCopy()
	obj.ObjectMeta = metadata(obj.ObjectMeta, b.Name())
	obj.Spec.ParamRef = nil
	if namespace != nil {
		selectNamespaces(obj, metav1.LabelSelectorOpIn, *namespace)
	} else if p.own && len(o.Exempt) > 0 {
		selectNamespaces(obj, metav1.LabelSelectorOpNotIn, o.Exempt...)
	}
	return obj
}

func selectNamespaces(b *admissionregistrationv1.MutatingAdmissionPolicyBinding, operator metav1.LabelSelectorOperator, names ...string) {
	if b.Spec.MatchResources == nil {
		b.Spec.MatchResources = &admissionregistrationv1.MatchResources{}
	}
	m := b.Spec.MatchResources
	if m.NamespaceSelector == nil {
		m.NamespaceSelector = &metav1.LabelSelector{}
	}
	m.NamespaceSelector.MatchExpressions = append(m.NamespaceSelector.MatchExpressions,
		metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: operator, Values: names})
}

// inlined makes the manifests of a policy with parameters by one binding.
func (p *Policy) inlined(ctx context.Context, s *policyset.Snapshot, b *binding.Binding, o Options) error {
	ref := b.Object().Spec.ParamRef
	if ref == nil {
		p.add(b, nil, nil, "no parameter", o)
		return nil
	}
	kind := p.policy.Object().Spec.ParamKind
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	params := s.Sources().Params
	namespaced, err := params.Kind(gvk)
	if err != nil {
		p.problem("the paramKind %s, kind %s is unknown; pass its CustomResourceDefinition, too", kind.APIVersion, kind.Kind)
		return nil
	}
	if !namespaced && ref.Namespace != "" {
		p.problem("binding %s has paramRef.namespace, and objects of the kind %s have no namespace, so all its requests fail", b.Name(), kind.Kind)
		return nil
	}
	found, err := resolve(ctx, params, gvk, ref)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.problem("binding %s: %v", b.Name(), err)
		return nil
	}
	spec := &p.policy.Object().Spec
	fails := spec.FailurePolicy == nil || *spec.FailurePolicy == admissionregistrationv1.Fail
	denies := fails && ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == admissionregistrationv1.DenyAction
	byRequest := namespaced && ref.Namespace == ""
	switch {
	case byRequest && denies:
		p.problem("binding %s takes parameters of the request's namespace, and parameterNotFoundAction: Deny refuses requests in namespaces without one, also in those to come; set paramRef.namespace, or Allow", b.Name())
		return nil
	case len(found) == 0 && denies:
		p.problem("binding %s finds no parameter, and parameterNotFoundAction: Deny refuses its requests until there is one; pass it, too, or set Allow", b.Name())
		return nil
	case len(found) == 0:
		p.note("binding %s finds no parameter, so nothing is written for it", b.Name())
		return nil
	case byRequest:
		if what := clusterScoped(spec.MatchConstraints, s); what != "" {
			p.problem("binding %s takes parameters of the request's namespace, and the policy may match %s, which have none; set scope: Namespaced in its rules", b.Name(), what)
			return nil
		}
	}
	for _, u := range found {
		text := fmt.Sprintf("%s %s", kind.Kind, u.GetName())
		if u.GetNamespace() != "" {
			text = fmt.Sprintf("%s %s/%s", kind.Kind, u.GetNamespace(), u.GetName())
		}
		var namespace *string
		if byRequest {
			namespace = new(u.GetNamespace())
			if p.own && slices.Contains(o.Exempt, *namespace) {
				continue
			}
			if !slices.Contains(p.namespaces, *namespace) {
				p.namespaces = append(p.namespaces, *namespace)
			}
		}
		p.add(b, u, namespace, text, o)
	}
	return nil
}

// resolve returns the parameters that a paramRef selects for any request, in the order in which
// they are used.
func resolve(ctx context.Context, params binding.Params, gvk schema.GroupVersionKind, ref *admissionregistrationv1.ParamRef) ([]*unstructured.Unstructured, error) {
	selector := labels.Everything()
	switch {
	case ref.Name != "" && ref.Selector != nil:
		return nil, errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	case ref.Selector != nil:
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(ref.Selector); err != nil {
			return nil, err
		}
	}
	list, err := params.List(ctx, gvk, ref.Namespace, selector)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(slices.Clone(list), func(u *unstructured.Unstructured) bool { return ref.Name != "" && u.GetName() != ref.Name })
	return binding.SortParams(list), nil
}

// clusterScoped returns which resources without a namespace rules may match, or "".
func clusterScoped(m *admissionregistrationv1.MatchResources, s *policyset.Snapshot) string {
	m = m.DeepCopy()
	m.ResourceRules = slices.DeleteFunc(m.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return r.Scope != nil && *r.Scope == admissionregistrationv1.NamespacedScope
	})
	if len(m.ResourceRules) == 0 {
		return ""
	}
	kinds, more := policy.Targets(m, s.Types)
	for _, k := range kinds {
		if res, ok := s.Types.ResourceFor(k); !ok || !res.Namespaced {
			return "objects of the kind " + k.Kind
		}
	}
	if more {
		return "objects of any kind"
	}
	return ""
}

// add makes the manifest of one binding and one parameter.
func (p *Policy) add(b *binding.Binding, params *unstructured.Unstructured, namespace *string, text string, o Options) {
	m := p.manifest(b, text)
	if err := inline(&m.Policy.Spec, params); err != nil {
		p.problem("binding %s, %s: %v", b.Name(), text, err)
		return
	}
	m.Bindings = append(m.Bindings, p.binding(b, namespace, o))
	p.Manifests = append(p.Manifests, m)
}

// name sets the names of all manifests. Servers run manifest policies in the order of their
// names, which has to be the order of the policies.
func name(all []*Policy) {
	var list []*Manifest
	var bases []string
	for _, p := range all {
		base := strings.TrimSuffix(p.Name, Suffix)
		for i, m := range p.Manifests {
			list = append(list, m)
			bases = append(bases, numbered(base, i, len(p.Manifests)))
		}
	}
	set := func(prefix func(i int) string) (inOrder bool) {
		inOrder = true
		bindings := map[string]bool{}
		for i, m := range list {
			base := prefix(i) + bases[i]
			m.Policy.Name = base + Suffix
			inOrder = inOrder && (i == 0 || list[i-1].Policy.Name < m.Policy.Name)
			for j, b := range m.Bindings {
				b.Name, b.Spec.PolicyName = numbered(base, j, len(m.Bindings))+Suffix, m.Policy.Name
				inOrder = inOrder && !bindings[b.Name]
				bindings[b.Name] = true
			}
		}
		return inOrder
	}
	if set(func(int) string { return "" }) {
		return
	}
	digits := len(fmt.Sprint(len(list)))
	set(func(i int) string { return fmt.Sprintf("%0*d-", digits, i+1) })
	for _, p := range all {
		if len(p.Manifests) > 0 {
			p.note("its file has a number, so that the server runs the policies in the same order")
		}
	}
}

// numbered returns a name for the i-th of n.
func numbered(base string, i, n int) string {
	if n == 1 {
		return base
	}
	return fmt.Sprintf("%s-%0*d", base, len(fmt.Sprint(n)), i+1)
}

// check removes manifests that a server would not load.
func (p *Policy) check(env *cel.Env) {
	for _, m := range p.Manifests {
		if err := loadable(m, env); err != nil {
			p.problem("%sa server would not load it: %v", of(m), err)
		}
	}
	if len(p.Problems) > 0 {
		p.Manifests = nil
	}
}

// loadable returns the reason why a server would not load a manifest, with defaults set, nil if
// it would. It ignores the Suffix, which is only refused for policies that are created through
// the API.
func loadable(m *Manifest, env *cel.Env) error {
	for i, u := range m.Objects() {
		if len(u.GetName()) > validation.DNS1123SubdomainMaxLength {
			return fmt.Errorf("the name %s is longer than %d characters", u.GetName(), validation.DNS1123SubdomainMaxLength)
		}
		u.SetName(strings.TrimSuffix(u.GetName(), Suffix))
		var faults api.Faults
		if i == 0 {
			obj, err := policy.Decode(u)
			if err != nil {
				return err
			}
			faults = policy.Validate(obj, env)
		} else {
			obj, err := binding.Decode(u)
			if err != nil {
				return err
			}
			faults = binding.Validate(obj)
		}
		if len(faults) > 0 {
			return faults.ToAggregate()
		}
	}
	return nil
}

func of(m *Manifest) string {
	if m.Params == "" {
		return ""
	}
	return "with " + m.Params + " "
}
