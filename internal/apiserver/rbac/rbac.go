package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Kinds are the kinds of rbac.authorization.k8s.io/v1 that New takes.
var Kinds = []string{"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}

// Authorizer decides from a fixed set of objects. It is immutable and safe for
// concurrent use.
type Authorizer struct {
	roles        map[key][]rbacv1.PolicyRule // of a Role, or with namespace "" of a ClusterRole
	cluster      []binding
	byNamespace  map[string][]binding
	clusterRoles map[string]*rbacv1.ClusterRole
}

type key struct{ namespace, name string }

// binding is a RoleBinding or a ClusterRoleBinding.
type binding struct {
	text      string // the binding's description in reasons
	namespace string
	ref       rbacv1.RoleRef
	subjects  []rbacv1.Subject
}

// New makes an authorizer of RBAC objects. Its error names the object that does
// not decode.
func New(objs ...*unstructured.Unstructured) (*Authorizer, error) {
	a := &Authorizer{
		roles:        map[key][]rbacv1.PolicyRule{},
		byNamespace:  map[string][]binding{},
		clusterRoles: map[string]*rbacv1.ClusterRole{},
	}
	for _, u := range objs {
		if err := a.add(u); err != nil {
			return nil, fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
		}
	}
	for name := range a.clusterRoles {
		rules, err := a.rules(name, map[string]bool{})
		if err != nil {
			return nil, fmt.Errorf("ClusterRole %q: %w", name, err)
		}
		a.roles[key{name: name}] = rules
	}
	slices.SortFunc(a.cluster, func(x, y binding) int { return strings.Compare(x.text, y.text) })
	for _, bs := range a.byNamespace {
		slices.SortFunc(bs, func(x, y binding) int { return strings.Compare(x.text, y.text) })
	}
	return a, nil
}

func (a *Authorizer) add(u *unstructured.Unstructured) error {
	switch u.GetKind() {
	case "Role":
		var r rbacv1.Role
		if err := decode(u, &r); err != nil {
			return err
		}
		a.roles[key{r.Namespace, r.Name}] = r.Rules
	case "ClusterRole":
		r := new(rbacv1.ClusterRole)
		if err := decode(u, r); err != nil {
			return err
		}
		a.clusterRoles[r.Name] = r
	case "RoleBinding":
		var b rbacv1.RoleBinding
		if err := decode(u, &b); err != nil {
			return err
		}
		a.byNamespace[b.Namespace] = append(a.byNamespace[b.Namespace], binding{
			text:      fmt.Sprintf("RoleBinding %q of %s %q", b.Name+"/"+b.Namespace, b.RoleRef.Kind, b.RoleRef.Name),
			namespace: b.Namespace, ref: b.RoleRef, subjects: b.Subjects,
		})
	case "ClusterRoleBinding":
		var b rbacv1.ClusterRoleBinding
		if err := decode(u, &b); err != nil {
			return err
		}
		a.cluster = append(a.cluster, binding{
			text: fmt.Sprintf("ClusterRoleBinding %q of %s %q", b.Name, b.RoleRef.Kind, b.RoleRef.Name),
			ref:  b.RoleRef, subjects: b.Subjects,
		})
	default:
		return errors.New("not an RBAC kind")
	}
	return nil
}

// decode is strict: ignoring a misspelt field of a rule would silently remove
// permissions.
func decode(u *unstructured.Unstructured, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, into, true)
}

// rules returns the rules of a ClusterRole as the controller manager fills them
// in: for an aggregated one, the rules of all roles that a selector matches
// instead of its own, in the order of their names and through any number of
// aggregations.
func (a *Authorizer) rules(name string, seen map[string]bool) ([]rbacv1.PolicyRule, error) {
	role := a.clusterRoles[name]
	if role.AggregationRule == nil {
		return role.Rules, nil
	}
	seen[name] = true // roles that aggregate each other add nothing twice
	var names []string
	for _, s := range role.AggregationRule.ClusterRoleSelectors {
		sel, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			return nil, err
		}
		for other, r := range a.clusterRoles {
			if !seen[other] && sel.Matches(labels.Set(r.Labels)) {
				names = append(names, other)
			}
		}
	}
	slices.Sort(names)
	var all []rbacv1.PolicyRule
	for _, other := range slices.Compact(names) {
		if seen[other] {
			continue
		}
		rules, err := a.rules(other, seen)
		if err != nil {
			return nil, err
		}
		all = append(all, rules...)
	}
	return all, nil
}

// Authorize allows what a rule allows that a binding gives to the user, and has
// no opinion about anything else. ClusterRoleBindings are asked first, then the
// RoleBindings of the request's namespace; the reason names the first binding
// that allows.
func (a *Authorizer) Authorize(_ context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	var problems []error
	bindings := a.cluster
	if ns := attrs.GetNamespace(); ns != "" {
		bindings = slices.Concat(a.cluster, a.byNamespace[ns])
	}
	for _, b := range bindings {
		subject, ok := b.appliesTo(attrs.GetUser())
		if !ok {
			continue
		}
		rules, err := a.rulesOf(b)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for i := range rules {
			if allows(&rules[i], attrs) {
				return authorizer.DecisionAllow, "RBAC: allowed by " + b.text + " to " + subject, nil
			}
		}
	}
	if len(problems) > 0 {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("RBAC: %v", utilerrors.NewAggregate(problems)), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize is Authorize: RBAC has no conditions.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, attrs authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attrs))
}

// EvaluateConditions fails closed: there are no conditions.
func (a *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

func (a *Authorizer) rulesOf(b binding) ([]rbacv1.PolicyRule, error) {
	switch b.ref.Kind {
	case "Role":
		if rules, ok := a.roles[key{b.namespace, b.ref.Name}]; ok && b.namespace != "" {
			return rules, nil
		}
		return nil, fmt.Errorf("role.rbac.authorization.k8s.io %q not found", b.ref.Name)
	case "ClusterRole":
		if rules, ok := a.roles[key{name: b.ref.Name}]; ok {
			return rules, nil
		}
		return nil, fmt.Errorf("clusterrole.rbac.authorization.k8s.io %q not found", b.ref.Name)
	}
	return nil, fmt.Errorf("unsupported role reference kind: %q", b.ref.Kind)
}

// appliesTo returns the first subject of the binding that is the user.
func (b binding) appliesTo(u user.Info) (string, bool) {
	if u == nil {
		return "", false
	}
	for _, s := range b.subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			if u.GetName() == s.Name {
				return fmt.Sprintf("%s %q", s.Kind, s.Name), true
			}
		case rbacv1.GroupKind:
			if slices.Contains(u.GetGroups(), s.Name) {
				return fmt.Sprintf("%s %q", s.Kind, s.Name), true
			}
		case rbacv1.ServiceAccountKind:
			ns := s.Namespace
			if ns == "" {
				ns = b.namespace
			}
			if ns != "" && serviceaccount.MatchesUsername(ns, s.Name, u.GetName()) {
				return fmt.Sprintf("%s %q", s.Kind, s.Name+"/"+ns), true
			}
		}
	}
	return "", false
}

// allows reports whether one rule allows the request.
func allows(rule *rbacv1.PolicyRule, attrs authorizer.Attributes) bool {
	if !hasOr(rule.Verbs, attrs.GetVerb(), rbacv1.VerbAll) {
		return false
	}
	if !attrs.IsResourceRequest() {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
			return url == rbacv1.NonResourceAll || url == attrs.GetPath() ||
				strings.HasSuffix(url, "*") && strings.HasPrefix(attrs.GetPath(), strings.TrimRight(url, "*"))
		})
	}
	return hasOr(rule.APIGroups, attrs.GetAPIGroup(), rbacv1.APIGroupAll) &&
		allowsResource(rule.Resources, attrs.GetResource(), attrs.GetSubresource()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, attrs.GetName()))
}

func hasOr(list []string, want, all string) bool {
	return slices.Contains(list, want) || slices.Contains(list, all)
}

// allowsResource matches "*" (everything, subresources too), "pods",
// "pods/status" and "*/status". "pods/*" is just a name.
func allowsResource(list []string, resource, subresource string) bool {
	if subresource == "" {
		return hasOr(list, resource, rbacv1.ResourceAll)
	}
	return hasOr(list, resource+"/"+subresource, rbacv1.ResourceAll) || slices.Contains(list, "*/"+subresource)
}

// NoOpinion is the authorizer to use without RBAC objects.
type NoOpinion struct{}

// Authorize has no opinion about anything.
func (NoOpinion) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize is Authorize.
func (n NoOpinion) ConditionsAwareAuthorize(ctx context.Context, attrs authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(n.Authorize(ctx, attrs))
}

// EvaluateConditions fails closed: there are no conditions.
func (NoOpinion) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}
