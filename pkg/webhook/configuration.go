package webhook

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/policy"
)

const (
	// ConfigurationName is the name of the MutatingWebhookConfiguration. Servers
	// call mutating webhooks in the order of these names, and ours comes first so
	// that policies run where the in-tree plugin runs them, before webhooks
	// (spec §12 G1).
	ConfigurationName = "000.mapd.dev"
	// ValidationName is the name of the ValidatingWebhookConfiguration.
	ValidationName = "mapd.dev"
	// ValidatePath is where policies and bindings are validated.
	ValidatePath = "/validate"
)

// Names of the two entries of the ValidatingWebhookConfiguration.
const (
	validateParamsName = "params.validate.mapd.dev"
	validateName       = "validate.mapd.dev"
)

// Group is the policies that can share a webhook entry. A server knows
// failurePolicy and reinvocationPolicy per entry only, so each combination has
// entries and paths of its own; docs/adr/0001-reinvocation.md says what that
// means for policies.
type Group struct {
	FailurePolicy      admissionregistrationv1.FailurePolicyType
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType
}

// Groups returns all groups in the order of their entries, which is the order
// in which a server calls them.
func Groups() []Group {
	return []Group{
		{admissionregistrationv1.Fail, admissionregistrationv1.NeverReinvocationPolicy},
		{admissionregistrationv1.Ignore, admissionregistrationv1.NeverReinvocationPolicy},
		{admissionregistrationv1.Fail, admissionregistrationv1.IfNeededReinvocationPolicy},
		{admissionregistrationv1.Ignore, admissionregistrationv1.IfNeededReinvocationPolicy},
	}
}

// GroupOf returns the group of a policy. What is missing or unknown counts as
// Fail and as Never, the values that promise least to be lenient.
func GroupOf(obj *admissionregistrationv1.MutatingAdmissionPolicy) Group {
	g := Group{admissionregistrationv1.Fail, admissionregistrationv1.NeverReinvocationPolicy}
	if p := obj.Spec.FailurePolicy; p != nil && *p == admissionregistrationv1.Ignore {
		g.FailurePolicy = admissionregistrationv1.Ignore
	}
	if obj.Spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy {
		g.ReinvocationPolicy = admissionregistrationv1.IfNeededReinvocationPolicy
	}
	return g
}

// Path is where the reviews of the group's only entry go, such as /mutate/fail/never.
func (g Group) Path() string {
	return strings.ToLower("/mutate/" + string(g.FailurePolicy) + "/" + string(g.ReinvocationPolicy))
}

// Name is the name of the group's only entry, such as fail.never.mapd.dev.
func (g Group) Name() string {
	return strings.ToLower(string(g.FailurePolicy) + "." + string(g.ReinvocationPolicy) + "." + ValidationName)
}

// Configuration is the configuration with these entries. base gives what all entries
// have in common: ClientConfig, to whose Service or URL the entry's path is appended,
// NamespaceSelector, ObjectSelector, MatchConditions and TimeoutSeconds.
//
// Entries let through more than the policies match, never less: see ReachOf and
// Divide. An entry has one matchPolicy, which is Exact only if every policy in it
// wants that (spec §12 G6). The engine decides. An operation of "*" becomes CREATE,
// UPDATE and CONNECT, and DELETE is left out, since no policy sees deletions (G23).
//
// What a server would refuse in a rule is put into words that it accepts, so
// that no policy, however it came to be stored, keeps the others from working:
// see Unroutable.
func Configuration(entries []*Entry, base admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName},
	}
	for _, e := range entries {
		w := base.DeepCopy()
		w.Name = e.Name()
		w.ClientConfig = clientConfig(w.ClientConfig, e.Path())
		e.addTo(w)
		w.FailurePolicy, w.ReinvocationPolicy = new(e.FailurePolicy), new(e.ReinvocationPolicy)
		w.SideEffects = new(admissionregistrationv1.SideEffectClassNone)
		w.AdmissionReviewVersions = []string{"v1"}
		c.Webhooks = append(c.Webhooks, *w)
	}
	return c
}

// Unroutable returns the names of the policies that have no part in a
// Configuration, sorted: those of whose rules none can ever match a request. A
// server, or mapd's validation, refuses to store such a policy, so there are
// some only if it was down or away.
func Unroutable(policies []*policy.Policy) []string {
	var names []string
	for _, p := range policies {
		if len(routes(p.Object())) == 0 {
			names = append(names, p.Name())
		}
	}
	return sortedSet(names)
}

// ValidationConfiguration is the configuration of the validating webhook, which
// checks what is written into mapd's own API group. base gives ClientConfig,
// TimeoutSeconds and MatchConditions.
//
// It has two entries. Objects that read parameters go to one with failurePolicy
// Fail: whether their writer may read the parameters is a question of
// permissions, and a policy could carry what it reads into other objects. It is
// asked when the spec is new, so that labels and finalizers can be written while
// mapd is away. All else goes to an entry with failurePolicy Ignore: what is
// stored unchecked is found out later and fails by its own failurePolicy.
func ValidationConfiguration(base admissionregistrationv1.ValidatingWebhook) *admissionregistrationv1.ValidatingWebhookConfiguration {
	const readsParams = "has(object.spec) && (has(object.spec.paramKind) || has(object.spec.paramRef))" +
		" && (oldObject == null || !has(oldObject.spec) || object.spec != oldObject.spec)"
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: ValidationName},
	}
	for _, entry := range []struct {
		name, condition, expression string
		failurePolicy               admissionregistrationv1.FailurePolicyType
	}{
		{validateParamsName, "reads-params", readsParams, admissionregistrationv1.Fail},
		{validateName, "reads-no-params", "!(" + readsParams + ")", admissionregistrationv1.Ignore},
	} {
		w := base.DeepCopy()
		w.Name = entry.name
		w.ClientConfig = clientConfig(w.ClientConfig, ValidatePath)
		w.Rules = []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups:   []string{api.OwnGroup},
				APIVersions: []string{"v1"},
				Resources:   []string{api.PolicyResource, api.BindingResource},
				Scope:       new(admissionregistrationv1.ClusterScope),
			},
		}}
		w.FailurePolicy = &entry.failurePolicy
		w.MatchPolicy = new(admissionregistrationv1.Equivalent)
		w.SideEffects = new(admissionregistrationv1.SideEffectClassNone)
		w.AdmissionReviewVersions = []string{"v1"}
		w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{Name: entry.condition, Expression: entry.expression})
		c.Webhooks = append(c.Webhooks, *w)
	}
	return c
}

// MatchConditions keep requests away from mapd that must not depend on it:
// those for its own API group, or a bad policy could prevent its own repair;
// reviews of tokens and of permissions, which the in-tree plugin leaves alone
// (spec §2.7) and which mapd makes itself; and those of user, which is who mapd
// is to the server, if it is known.
func MatchConditions(user string) []admissionregistrationv1.MatchCondition {
	conditions := []admissionregistrationv1.MatchCondition{
		{Name: "not-mapd-policies", Expression: "request.resource.group != " + quoteCEL(api.OwnGroup)},
		{Name: "not-auth-reviews", Expression: "!(request.resource.group in ['authentication.k8s.io', 'authorization.k8s.io'] && request.resource.resource.endsWith('reviews'))"},
	}
	return append(conditions, NotItself(user)...)
}

// NotItself keeps the requests of user away, who is mapd to the server; nil if that
// is not known.
func NotItself(user string) []admissionregistrationv1.MatchCondition {
	if user == "" {
		return nil
	}
	return []admissionregistrationv1.MatchCondition{{Name: "not-mapd-itself", Expression: "request.userInfo.username != " + quoteCEL(user)}}
}

// quoteCEL is s as a string of CEL. Only what could end or change the string is
// escaped.
func quoteCEL(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`).Replace(s) + "'"
}

// Exempt is a namespaceSelector that leaves out the namespaces with these names, in a
// form that depends on the set of names only.
func Exempt(namespaces []string) *metav1.LabelSelector {
	names := sortedSet(named(namespaces))
	if len(names) == 0 {
		return nil
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: names,
	}}}
}

// clientConfig appends a path to where a webhook is reached.
func clientConfig(c admissionregistrationv1.WebhookClientConfig, path string) admissionregistrationv1.WebhookClientConfig {
	if c.URL != nil {
		c.URL = new(strings.TrimSuffix(*c.URL, "/") + path)
	}
	if c.Service != nil {
		if c.Service.Path != nil {
			path = strings.TrimSuffix(*c.Service.Path, "/") + path
		}
		c.Service.Path = &path
	}
	return c
}
