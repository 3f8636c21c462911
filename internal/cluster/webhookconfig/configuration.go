package webhookconfig

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

const (
	// ConfigurationName is the name of the MutatingWebhookConfiguration.
	// Servers call mutating webhooks in the order of these names. This one
	// sorts first, so that policies run where the in-tree plugin runs them:
	// before other webhooks (spec §12 G1).
	ConfigurationName = "000.mapd.dev"
	// ValidationName is the name of the ValidatingWebhookConfiguration.
	ValidationName = "mapd.dev"
)

// Names of the two entries of the ValidatingWebhookConfiguration.
const (
	validateParamsName = "params.validate.mapd.dev"
	validateName       = "validate.mapd.dev"
)

// Configuration returns the configuration with these entries. base has what all
// entries share: ClientConfig, to whose Service or URL the entry's path is
// appended, NamespaceSelector, ObjectSelector, MatchConditions and
// TimeoutSeconds.
//
// Entries let through more than the policies match, never less: see ReachOf and
// Divide. An entry has one matchPolicy, which is Exact only if all its policies
// have that (spec §12 G6). The engine decides. An operation of "*" becomes
// CREATE, UPDATE and CONNECT; DELETE is left out, since no policy sees
// deletions (spec G23).
//
// Rules are rewritten where a server would refuse them, so that a policy that
// should never have been stored cannot keep the others from working: see
// Unroutable.
func Configuration(entries []*Entry, base admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName},
	}
	for _, e := range entries {
		w := NewEntry(base, e.Name(), e.Path())
		e.addTo(w)
		w.FailurePolicy, w.ReinvocationPolicy = new(e.FailurePolicy), new(e.ReinvocationPolicy)
		c.Webhooks = append(c.Webhooks, *w)
	}
	return c
}

// NewEntry returns an entry with a name and a path, and what base says of all entries. base is
// not modified.
func NewEntry(base admissionregistrationv1.MutatingWebhook, name, path string) *admissionregistrationv1.MutatingWebhook {
	w := base.DeepCopy()
	w.Name, w.ClientConfig = name, clientConfig(w.ClientConfig, path)
	w.SideEffects = new(admissionregistrationv1.SideEffectClassNone)
	w.AdmissionReviewVersions = []string{"v1"}
	return w
}

// RulesEntry returns NewEntry with rules for the requests that the given ones match
// together, in a form that a server accepts, or nil if they match none.
func RulesEntry(base admissionregistrationv1.MutatingWebhook, name, path string, rules []admissionregistrationv1.RuleWithOperations) *admissionregistrationv1.MutatingWebhook {
	if rules = mergeRules(normalRules(rules)); len(rules) == 0 {
		return nil
	}
	w := NewEntry(base, name, path)
	w.Rules = rules
	return w
}

// Unroutable returns the sorted names of the policies that have no part in a
// Configuration, because none of their rules can ever match a request. A
// server, or mapd's validation, refuses to store such a policy, so there are
// some only if mapd was away.
func Unroutable(policies []*policy.Policy) []string {
	var names []string
	for _, p := range policies {
		if len(routes(p.Object())) == 0 {
			names = append(names, p.Name())
		}
	}
	return sortedSet(names)
}

// ValidationConfiguration returns the configuration of the validating webhook,
// which checks writes to mapd's own API group. base has ClientConfig,
// TimeoutSeconds and MatchConditions.
//
// It has two entries. Objects that read parameters go to one with failurePolicy
// Fail: whether their writer may read the parameters is a question of
// permissions, since a policy could copy what it reads into other objects. It
// is asked for a new spec only, so that labels and finalizers can be written
// while mapd is away. Everything else goes to an entry with failurePolicy
// Ignore: a mistake that is stored unchecked is found when the policy is
// compiled, and fails by the policy's own failurePolicy.
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
		w.ClientConfig = clientConfig(w.ClientConfig, webhook.ValidatePath)
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

// MatchConditions exclude the requests that must not depend on mapd: those for
// its own API group, because a bad policy could prevent its own repair; reviews
// of tokens and permissions, which the in-tree plugin excludes (spec §2.7) and
// which mapd sends itself; and those of user, the name by which the server
// knows mapd, if it is known.
func MatchConditions(user string) []admissionregistrationv1.MatchCondition {
	conditions := []admissionregistrationv1.MatchCondition{
		{Name: "not-mapd-policies", Expression: "request.resource.group != " + quoteCEL(api.OwnGroup)},
		{Name: "not-auth-reviews", Expression: "!(request.resource.group in ['authentication.k8s.io', 'authorization.k8s.io'] && request.resource.resource.endsWith('reviews'))"},
	}
	return append(conditions, NotItself(user)...)
}

// NotItself excludes the requests of user, the name by which the server knows
// mapd. It returns nil if user is "".
func NotItself(user string) []admissionregistrationv1.MatchCondition {
	if user == "" {
		return nil
	}
	return []admissionregistrationv1.MatchCondition{{Name: notItself, Expression: notItselfPrefix + quoteCEL(user)}}
}

const (
	notItself       = "not-mapd-itself"
	notItselfPrefix = "request.userInfo.username != "
)

// ExemptUser returns the user whose requests the conditions of an entry exclude by
// NotItself, or "".
func ExemptUser(conditions []admissionregistrationv1.MatchCondition) string {
	for _, c := range conditions {
		if quoted, ok := strings.CutPrefix(c.Expression, notItselfPrefix+"'"); ok && c.Name == notItself {
			return strings.NewReplacer(`\\`, `\`, `\'`, `'`, `\n`, "\n", `\r`, "\r").Replace(strings.TrimSuffix(quoted, "'"))
		}
	}
	return ""
}

// quoteCEL returns s as a string literal of CEL. It escapes only characters
// that could end or change the string.
func quoteCEL(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`).Replace(s) + "'"
}

// clientConfig returns c with path appended to its URL or to the path of its Service.
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
