package doctor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/cluster/exceptions"
	"github.com/mapd-project/mapd/internal/cluster/gatekeeper"
	"github.com/mapd-project/mapd/internal/cluster/modulepolicies"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/operate/install"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/api"
)

const (
	deploymentName = "mapd"
	crdCheck       = "CustomResourceDefinitions"
)

// installed checks that mapd's kinds and its Deployment exist, which everything else needs. If
// nothing is installed, it reports that in one line and returns false.
func (x *examination) installed(ctx context.Context) bool {
	deployment, err := x.Dynamic.Resource(resource("apps", "v1", "deployments")).Namespace(namespace).Get(ctx, deploymentName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && x.own.servedErr == nil && !x.own.served &&
		x.mutatingErr == nil && x.configuration() == nil && apierrors.IsNotFound(x.validatingErr) {
		if x.executes == yes {
			x.say(Warning, "mapd", "not installed, and not needed for policies of "+api.NativeGroup, "")
		} else {
			x.say(Bad, "mapd", "not installed", "mapd install")
		}
		return false
	}

	switch {
	case x.own.servedErr != nil:
		x.unseen(crdCheck, "get", "/apis/"+api.OwnGroup+"/v1", x.own.servedErr)
	case x.own.served:
		x.say(OK, crdCheck, "both kinds of "+api.OwnGroup+"/v1 are served", "")
	default:
		x.say(Bad, crdCheck, api.OwnGroup+"/v1 does not serve both kinds", "mapd install")
	}

	const check = "Deployment"
	at := namespace + "/" + deploymentName
	switch {
	case apierrors.IsNotFound(err) && x.byURL():
		x.say(OK, check, "there is no "+at+"; the webhook configurations name a URL, so mapd runs elsewhere", "")
	case apierrors.IsNotFound(err):
		x.say(Bad, check, "there is no "+at, "mapd install, or mapd uninstall to remove the rest")
	case err != nil:
		x.unseen(check, "get", "deployments.apps in "+namespace, err)
	default:
		x.deployment = deployment
		mark, fact, advice := health(deployment.Object)
		if what := install.Rollout(deployment); what != "" && mark == OK {
			mark, fact, advice = Warning, fact+"; "+what, "kubectl -n "+namespace+" describe deployment "+deploymentName
		}
		x.say(mark, check, fact, advice)
	}
	return true
}

// byURL reports whether a webhook entry of mapd has a URL instead of a Service.
func (x *examination) byURL() bool {
	return slices.ContainsFunc(x.entries(), func(e entry) bool { return e.client.URL != nil })
}

// health returns the result of checking how many replicas of a Deployment are available.
func health(deployment map[string]any) (mark Mark, fact, advice string) {
	number := func(of, field string) int64 {
		m, _ := deployment[of].(map[string]any)
		n, _ := m[field].(int64)
		return n
	}
	want, ready := number("spec", "replicas"), number("status", "readyReplicas")
	fact = fmt.Sprintf("%d of %d replicas ready", ready, want)
	switch {
	case want == 0:
		return Bad, "scaled to zero", "kubectl -n " + namespace + " scale deployment " + deploymentName + " --replicas 2"
	case number("status", "observedGeneration") == 0:
		return Warning, fact + ", and no controller has looked at it yet", "see whether the cluster has a controller manager"
	case ready == 0:
		return Bad, fact, "kubectl -n " + namespace + " describe pods"
	case ready < want:
		return Warning, fact, "kubectl -n " + namespace + " describe pods"
	}
	return OK, fact, ""
}

// mutation compares the entries of the configuration with those that the
// policies need.
func (x *examination) mutation() {
	const check = "mutating webhook"
	if x.mutatingErr != nil {
		x.unseen(check, "list", "mutatingwebhookconfigurations.admissionregistration.k8s.io", x.mutatingErr)
		return
	}
	config := x.configuration()
	all := x.own.complete()
	for _, p := range x.own.policies {
		all = all && p.err == nil // for a policy that cannot be decoded, the entry is not known here
	}
	want, policies := x.own.entries()
	if config == nil {
		if len(want) == 0 {
			x.say(Warning, check, configurationName+" is not there; no bound policy needs it yet", "mapd install")
		} else {
			x.say(Bad, check, configurationName+" is not there, so no policy has an effect", "mapd install")
		}
		return
	}
	if !all {
		x.say(Unknown, check, fmt.Sprintf("%s has %s; not all policies could be read to compare", configurationName, entryNames(config.Webhooks)), "")
		return
	}
	// The check of mutators looks at their entry. Entries of Kubewarden's policies are not compared.
	have := slices.DeleteFunc(slices.Clone(config.Webhooks), func(w admissionregistrationv1.MutatingWebhook) bool {
		return w.Name == gatekeeper.EntryName || modulepolicies.IsEntry(w.Name)
	})
	differences := compare(want, policies, have)
	for _, l := range differences {
		l.Check = check
		x.lines = append(x.lines, l)
	}
	if len(differences) == 0 {
		x.say(OK, check, fmt.Sprintf("%s has %s, as %s", configurationName, entryNames(have), words.Count(x.own.bound(), "bound policy needs", "bound policies need")), "")
	}
}

// outage reports which requests API servers would refuse while they do not reach mapd.
func (x *examination) outage() {
	const check = "an outage of mapd"
	config := x.configuration()
	if config == nil {
		return
	}
	before := len(x.lines)
	for _, w := range config.Webhooks {
		if w.FailurePolicy == nil || *w.FailurePolicy == admissionregistrationv1.Fail {
			x.say(OK, check, w.Name+" would refuse "+webhookconfig.Words(&w), "")
		}
	}
	if len(x.lines) == before {
		x.say(OK, check, "would refuse nothing: no bound policy has failurePolicy Fail", "")
	}
}

func entryNames(webhooks []admissionregistrationv1.MutatingWebhook) string {
	if len(webhooks) == 0 {
		return "no entries"
	}
	var names []string
	for _, w := range webhooks {
		names = append(names, w.Name)
	}
	return words.Count(len(names), "entry", "entries") + " (" + shortList(names) + ")"
}

// compare returns a line for each difference between the wanted entries and the existing ones.
// policies has the names of the policies of each wanted entry. compare ignores addresses, and the
// namespaces that all entries exempt, because they depend on mapd's flags.
func compare(want []*webhookconfig.Entry, policies [][]string, have []admissionregistrationv1.MutatingWebhook) []Line {
	const why = "mapd writes the entries within a second, but new ones only while a replica is ready: see its log"
	var lines []Line
	for n, e := range want {
		names := policies[n]
		i := slices.IndexFunc(have, func(h admissionregistrationv1.MutatingWebhook) bool { return h.Name == e.Name() })
		var base admissionregistrationv1.MutatingWebhook
		if i >= 0 {
			base.NamespaceSelector = exemptSelector(have[i].NamespaceSelector)
		}
		w := webhookconfig.Configuration(want[n:n+1], base).Webhooks[0]
		switch {
		case i < 0:
			lines = append(lines, Line{Bad, "", fmt.Sprintf("no entry %s, so without effect: %s", w.Name, shortList(names)), why})
		case !reflect.DeepEqual(rules(w.Rules), rules(have[i].Rules)):
			lines = append(lines, Line{Bad, "", fmt.Sprintf("the rules of %s are not those of its policies: %s", w.Name, shortList(names)), why})
		case !sameSelector(w.NamespaceSelector, have[i].NamespaceSelector), !sameSelector(w.ObjectSelector, have[i].ObjectSelector), condition(w, webhookconfig.NamesCondition) != condition(have[i], webhookconfig.NamesCondition),
			!slices.Contains([]string{"", condition(w, webhookconfig.ConditionsCondition)}, condition(have[i], webhookconfig.ConditionsCondition)):
			lines = append(lines, Line{Bad, "", fmt.Sprintf("%s does not select what its policies do: %s", w.Name, shortList(names)), why})
		case deref(w.FailurePolicy) != deref(have[i].FailurePolicy), deref(w.ReinvocationPolicy) != deref(have[i].ReinvocationPolicy), deref(w.MatchPolicy) != deref(have[i].MatchPolicy):
			lines = append(lines, Line{Bad, "", fmt.Sprintf("%s has failurePolicy %s, reinvocationPolicy %s, matchPolicy %s, and should have %s, %s, %s", w.Name,
				deref(have[i].FailurePolicy), deref(have[i].ReinvocationPolicy), deref(have[i].MatchPolicy),
				deref(w.FailurePolicy), deref(w.ReinvocationPolicy), deref(w.MatchPolicy)), why})
		}
	}
	for _, h := range have {
		if !slices.ContainsFunc(want, func(e *webhookconfig.Entry) bool { return e.Name() == h.Name }) {
			lines = append(lines, Line{Warning, "", fmt.Sprintf("entry %s stands for no bound policy, so requests wait for mapd without need", h.Name), "see in mapd's log why it does not remove it"})
		}
	}
	return lines
}

// exemptSelector returns the part of a namespaceSelector by which all entries exempt namespaces;
// nil if there is none. mapd writes it as the first requirement.
func exemptSelector(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil || len(s.MatchExpressions) == 0 || s.MatchExpressions[0].Key != corev1.LabelMetadataName || s.MatchExpressions[0].Operator != metav1.LabelSelectorOpNotIn {
		return nil
	}
	return &metav1.LabelSelector{MatchExpressions: slices.Clone(s.MatchExpressions[:1])}
}

func sameSelector(a, b *metav1.LabelSelector) bool {
	return metav1.FormatLabelSelector(a) == metav1.FormatLabelSelector(b) || api.SelectsAll(a) && api.SelectsAll(b)
}

// condition returns the expression of an entry's matchCondition with a name, "" if there is none.
// An entry does not have the condition for policies if one of its policies is broken.
func condition(w admissionregistrationv1.MutatingWebhook, name string) string {
	for _, m := range w.MatchConditions {
		if m.Name == name {
			return m.Expression
		}
	}
	return ""
}

func deref[T ~string](p *T) T {
	if p == nil {
		return "(none)"
	}
	return *p
}

// rules returns rules in the form that a server stores, in a fixed order.
func rules(all []admissionregistrationv1.RuleWithOperations) []string {
	var texts []string
	for _, r := range all {
		scope := admissionregistrationv1.AllScopes
		if r.Scope != nil {
			scope = *r.Scope
		}
		texts = append(texts, fmt.Sprint(r.Operations, r.APIGroups, r.APIVersions, r.Resources, scope))
	}
	slices.Sort(texts)
	return texts
}

// validation checks the ValidatingWebhookConfiguration, by which mapd validates policies.
func (x *examination) validation() {
	const check = "validating webhook"
	switch {
	case apierrors.IsNotFound(x.validatingErr):
		x.say(Bad, check, webhookconfig.ValidationName+" is not there, so policies are stored unchecked", "mapd install")
		return
	case x.validatingErr != nil:
		x.unseen(check, "get", "validatingwebhookconfigurations.admissionregistration.k8s.io", x.validatingErr)
		return
	}
	have := map[string]bool{}
	for _, w := range x.validating.Webhooks {
		have[w.Name] = true
	}
	var names, missing []string
	for _, w := range webhookconfig.ValidationConfiguration(admissionregistrationv1.ValidatingWebhook{}).Webhooks {
		names = append(names, w.Name)
		if !have[w.Name] {
			missing = append(missing, w.Name)
		}
	}
	if x.own.exceptions {
		if names = append(names, exceptions.EntryName); !have[exceptions.EntryName] {
			x.say(Warning, check, webhookconfig.ValidationName+" lacks "+exceptions.EntryName+", so new exceptions have no effect",
				"mapd writes the entry when a replica is ready, unless its release knows no exceptions: see its log")
		}
	}
	if len(missing) > 0 {
		x.say(Bad, check, webhookconfig.ValidationName+" lacks "+shortList(missing)+", so policies are stored unchecked", "mapd writes the entries when a replica is ready: see its log")
		return
	}
	if !x.own.exceptions || have[exceptions.EntryName] {
		x.say(OK, check, webhookconfig.ValidationName+" has "+shortList(names), "")
	}
}

// probe tries the connection from the API server to mapd, by a dry run that mapd has to refuse.
func (x *examination) probe(ctx context.Context) {
	const check = probeCheck
	err := install.Probe(ctx, x.Dynamic)
	if err == nil {
		x.say(OK, check, "a broken policy was refused by mapd (dry run)", "")
		return
	}
	if isTimeout(err) {
		x.unseen(check, "create", "a broken policy in a dry run", err)
		return
	}
	var pe *install.ProbeError
	if !errors.As(err, &pe) {
		x.say(Bad, check, err.Error(), "")
		return
	}
	mark, advice := Bad, pe.Advice
	switch pe.Reason {
	case install.Forbidden, install.Unknown:
		mark = Unknown
	case install.NotRegistered:
		if user := x.ownUser(ctx); user != "" {
			pe.Fact, advice = "a broken policy was accepted: the API server does not ask mapd about requests of "+user+", as which mapd runs", exemptAdvice
		}
	case install.NoReplica, install.NoService, install.Unreachable, install.Timeout, install.Untrusted, install.WrongAnswer:
		if config := x.configuration(); config != nil && slices.ContainsFunc(config.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
			return w.FailurePolicy == nil || *w.FailurePolicy == admissionregistrationv1.Fail
		}) {
			advice += "; until then what policies with failurePolicy Fail match is refused; kubectl delete mutatingwebhookconfiguration " + configurationName + " lets it pass until mapd is back"
		}
	}
	x.unreached = mark == Bad && pe.Reason != install.Refused && pe.Reason != install.NotRegistered
	x.say(mark, check, pe.Fact, advice)
}

const probeCheck = "API server to mapd"

const exemptAdvice = "run mapd by its own service account; until then this can only be checked as another user"

// exemptUser warns if mapd runs with the credentials of a person: mapd applies no policy to the
// requests of its own user, so none applies to that person's. A service account is no problem,
// because only mapd uses it.
func (x *examination) exemptUser() {
	config := x.configuration()
	if config == nil {
		return
	}
	for _, w := range config.Webhooks {
		if user := webhookconfig.ExemptUser(w.MatchConditions); user != "" && !strings.HasPrefix(user, "system:serviceaccount:") {
			x.say(Warning, "exempt user", "requests of "+user+" are not mutated, because mapd runs as this user", "run mapd by its own service account")
			return
		}
	}
}

// ownUser returns the name of the user who runs this check if mapd runs as the same user, else "".
func (x *examination) ownUser(ctx context.Context) string {
	review, err := x.Kubernetes.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || x.validating == nil {
		return ""
	}
	for _, w := range x.validating.Webhooks {
		if user := webhookconfig.ExemptUser(w.MatchConditions); user != "" && user == review.Status.UserInfo.Username {
			return user
		}
	}
	return ""
}

// neighbours reports the mutating webhooks that are called before mapd's, by
// the order of the names of their configurations (k8s.io/apiserver
// pkg/admission/configuration).
func (x *examination) neighbours() {
	const check = "webhooks before mapd's"
	if x.mutatingErr != nil {
		return // mutation has reported that
	}
	var names []string
	for _, c := range x.mutating {
		if c.Name < configurationName && len(c.Webhooks) > 0 {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		x.say(OK, check, "none", "")
		return
	}
	slices.Sort(names)
	x.say(Warning, check, shortList(names)+": policies see what these have changed, which a server's own policies would not",
		"rename the configurations if that matters")
}

const configurationName = webhookconfig.ConfigurationName

// entry is the address of a webhook in either configuration.
type entry struct {
	name   string
	client admissionregistrationv1.WebhookClientConfig
}

// entries returns mapd's webhook entries, as far as they could be read, the mutating ones first.
func (x *examination) entries() []entry {
	var all []entry
	if c := x.configuration(); c != nil {
		for _, w := range c.Webhooks {
			all = append(all, entry{w.Name, w.ClientConfig})
		}
	}
	if x.validating != nil {
		for _, w := range x.validating.Webhooks {
			all = append(all, entry{w.Name, w.ClientConfig})
		}
	}
	return all
}

// host returns the host name that the API server expects in mapd's certificate.
func (e entry) host() string {
	if s := e.client.Service; s != nil {
		return s.Name + "." + s.Namespace + ".svc"
	}
	if e.client.URL == nil {
		return ""
	}
	return hostOf(*e.client.URL)
}
