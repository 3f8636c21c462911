package webhookconfig_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	upstream "k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/authentication/user"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
	"github.com/mapd-project/mapd/test/hammer"
)

// server decides which entries are called for a request, with the code of an API
// server.
type server struct {
	*generic.Webhook
	interfaces *admission.RuntimeObjectInterfaces
	registry   runtime.EquivalentResourceRegistry
	namespaces map[string]map[string]string
}

func newServer(t testing.TB, namespaces map[string]map[string]string) *server {
	t.Helper()
	s := &server{namespaces: namespaces}
	// Deployments of two groups are stored as one; widgets are a custom resource.
	s.registry = runtime.NewEquivalentResourceRegistryWithIdentity(func(gr schema.GroupResource) string {
		if gr.Resource == "deployments" {
			return "deployments"
		}
		return gr.String()
	})
	for _, r := range kindsOf {
		for _, gvr := range r.all {
			for _, sub := range []string{"", "status"} {
				s.registry.RegisterKindFor(gvr, sub, gvr.GroupVersion().WithKind(r.kind))
			}
		}
	}
	s.interfaces = &admission.RuntimeObjectInterfaces{EquivalentResourceMapper: s.registry}
	w, err := generic.NewWebhook(admission.NewHandler(admission.Create), nil,
		nil, func(*webhookutil.ClientManager) generic.Dispatcher { return nil })
	if err != nil {
		t.Fatal(err)
	}
	s.Webhook = w
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	w.SetExternalKubeClientSet(client)
	w.SetExternalKubeInformerFactory(factory)
	for name, labels := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if err := factory.Core().V1().Namespaces().Informer().GetIndexer().Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Namespace implements binding.Namespaces.
func (s *server) Namespace(_ context.Context, name string) (*unstructured.Unstructured, error) {
	labels, ok := s.namespaces[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetName(name)
	u.SetLabels(labels)
	return u, nil
}

func (s *server) equivalents(gvr schema.GroupVersionResource) []binding.Equivalent {
	var out []binding.Equivalent
	for _, r := range s.registry.EquivalentResourcesFor(gvr, "") {
		out = append(out, binding.Equivalent{Resource: r, Kind: s.registry.KindFor(r, "")})
	}
	return out
}

// asIs is a request's object in any version: conditions do not look at it.
type asIs struct{ admission.Attributes }

func (a asIs) VersionedAttribute(gvk schema.GroupVersionKind) (*admission.VersionedAttributes, error) {
	return &admission.VersionedAttributes{Attributes: a.Attributes, VersionedKind: gvk,
		VersionedObject: admission.NewLazyObject(a.GetObject()), VersionedOldObject: admission.NewLazyObject(a.GetOldObject())}, nil
}

// calls returns for each entry whether it is called, and an error if the server
// refuses the request by itself.
func (s *server) calls(t testing.TB, entries []upstream.WebhookAccessor, req *policy.Request) ([]bool, error) {
	var old runtime.Object
	if req.OldObject != nil {
		old = req.OldObject
	}
	attrs := admission.NewAttributesRecord(req.Object, old, req.Kind, req.Namespace, req.Name, req.Resource, req.SubResource, admission.Operation(req.Operation), nil, req.DryRun,
		&user.DefaultInfo{Name: req.UserInfo.Username, Groups: req.UserInfo.Groups})
	called := make([]bool, len(entries))
	for i, e := range entries {
		invocation, status := s.ShouldCallHook(t.Context(), e, attrs, s.interfaces, asIs{attrs})
		if status != nil {
			return nil, status
		}
		called[i] = invocation != nil
	}
	return called, nil
}

// stored is what all entries have, with the defaults that a server fills in.
var stored = admissionregistrationv1.MutatingWebhook{NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}}

func accessors(c *admissionregistrationv1.MutatingWebhookConfiguration) []upstream.WebhookAccessor {
	var out []upstream.WebhookAccessor
	for i := range c.Webhooks {
		out = append(out, upstream.NewMutatingWebhookAccessor(fmt.Sprint(i), c.Name, &c.Webhooks[i]))
	}
	return out
}

// kindsOf are the kinds of the random tests, each with all its spellings.
var kindsOf = []struct {
	kind      string
	all       []schema.GroupVersionResource
	clustered bool
}{
	{"Pod", []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}, false},
	{"ConfigMap", []schema.GroupVersionResource{{Version: "v1", Resource: "configmaps"}}, false},
	{"Namespace", []schema.GroupVersionResource{{Version: "v1", Resource: "namespaces"}}, true},
	{"Node", []schema.GroupVersionResource{{Version: "v1", Resource: "nodes"}}, true},
	{"Deployment", []schema.GroupVersionResource{{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "extensions", Version: "v1beta1", Resource: "deployments"}}, false},
	{"Widget", []schema.GroupVersionResource{{Group: "ex.io", Version: "v1", Resource: "widgets"}, {Group: "ex.io", Version: "v2", Resource: "widgets"}}, false},
}

// world makes random policies, bindings and requests of few words, so that they meet.
type world struct{ *rand.Rand }

func (w world) pick(s ...string) string { return s[w.IntN(len(s))] }

func (w world) some(s ...string) []string {
	out := []string{w.pick(s...)}
	for w.IntN(3) == 0 {
		out = append(out, w.pick(s...))
	}
	return out
}

var worldNamespaces = map[string]map[string]string{
	"a": {"kubernetes.io/metadata.name": "a", "env": "prod", "team": "x"}, "b": {"kubernetes.io/metadata.name": "b", "env": "prod", "team": "y"},
	"c": {"kubernetes.io/metadata.name": "c", "env": "dev"}, "d": {"kubernetes.io/metadata.name": "d"}, "e": {"kubernetes.io/metadata.name": "e", "env": "", "team": "x"},
	"kube-system": {"kubernetes.io/metadata.name": "kube-system", "env": "prod"},
}

func (w world) namespaceSelector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for w.IntN(2) == 0 {
		switch w.IntN(6) {
		case 0:
			s.MatchLabels = map[string]string{w.pick("env", "team"): w.pick("prod", "dev", "x", "y")}
		case 1:
			s.MatchLabels = map[string]string{"kubernetes.io/metadata.name": w.pick("a", "b", "c", "d")}
		default:
			r := metav1.LabelSelectorRequirement{Key: w.pick("env", "team", "kubernetes.io/metadata.name"), Operator: metav1.LabelSelectorOperator(w.pick("In", "NotIn", "Exists", "DoesNotExist"))}
			if r.Operator == "In" || r.Operator == "NotIn" {
				r.Values = w.some("prod", "dev", "x", "y", "a", "b", "c", "")
			}
			s.MatchExpressions = append(s.MatchExpressions, r)
		}
	}
	return s
}

func (w world) objectSelector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for w.IntN(3) == 0 {
		r := metav1.LabelSelectorRequirement{Key: w.pick("app", "tier"), Operator: metav1.LabelSelectorOperator(w.pick("In", "In", "NotIn", "Exists", "DoesNotExist"))}
		if r.Operator == "In" || r.Operator == "NotIn" {
			r.Values = w.some("web", "db", "")
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

func (w world) rules(n int) (out []admissionregistrationv1.NamedRuleWithOperations) {
	for range n {
		var r admissionregistrationv1.NamedRuleWithOperations
		for _, op := range w.some("CREATE", "CREATE", "UPDATE", "CONNECT", "*") {
			r.Operations = append(r.Operations, admissionregistrationv1.OperationType(op))
		}
		r.APIGroups, r.APIVersions = w.some("", "apps", "extensions", "ex.io", "*"), w.some("v1", "v1", "v2", "v1beta1", "*")
		r.Resources = w.some("pods", "pods", "configmaps", "deployments", "widgets", "namespaces", "nodes", "*", "*/*", "pods/*", "*/status", "widgets/status")
		if w.IntN(4) == 0 {
			r.Scope = new(admissionregistrationv1.ScopeType(w.pick("*", "Cluster", "Namespaced")))
		}
		if w.IntN(5) == 0 {
			r.ResourceNames = w.some("n", "o'", "p")
		}
		out = append(out, r)
	}
	return out
}

func (w world) match(rules int) *admissionregistrationv1.MatchResources {
	m := &admissionregistrationv1.MatchResources{
		NamespaceSelector: w.namespaceSelector(), ObjectSelector: w.objectSelector(), ResourceRules: w.rules(rules), MatchPolicy: new(admissionregistrationv1.Equivalent),
	}
	if w.IntN(3) == 0 {
		m.MatchPolicy = new(admissionregistrationv1.Exact)
	}
	if w.IntN(4) == 0 {
		m.ExcludeResourceRules = w.rules(1)
	}
	return m
}

// conditions are matchConditions, most of which an entry can have. Some are errors for
// some requests.
func (w world) conditions(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	for w.IntN(2) == 0 {
		e := w.condition(2)
		if w.IntN(12) == 0 {
			e = w.pick("has(object.metadata.labels)", "object.metadata.labels.app == 'web'", "request.kind.version == 'v1'", "request.name.matches('^o')")
		}
		p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", len(p.Spec.MatchConditions)), Expression: e})
	}
}

func (w world) condition(depth int) string {
	if depth > 0 && w.IntN(3) > 0 {
		a, b := w.condition(depth-1), w.condition(depth-1)
		return w.pick(a+" && "+b, a+" || "+b, "!("+a+")", "("+a+")||"+b, "("+a+") == ("+b+")", a)
	}
	text := w.pick("request.operation", "request.name", "request.namespace", "request.subResource", "request.requestSubResource", "request.userInfo.username",
		"request.resource.group", "request.resource.version", "request.resource.resource", "request.requestKind.kind", "request.requestResource.version")
	value := w.pick("'CREATE'", `"UPDATE"`, "'n'", `"o'"`, "'a'", "'b'", "''", "'status'", "'alice'", "'v1'", "'pods'", "'apps'", "'Pod'")
	return w.pick(
		text+" == "+value, text+"!="+value, text+" in ["+value+", 'a', 'CREATE']", text+".startsWith("+value+")", "!"+text+".endsWith('s')", text+".contains('a')",
		"size("+text+") != 1", text+".size() == 6", value+" in request.userInfo.groups", "'admins' in request.userInfo.groups", "request.userInfo.groups.size() == 0",
		"request.dryRun", "request.dryRun != true", "has(request.name) && request.name == "+value, "!has(request.namespace) || request.namespace != "+value,
		"has(request.subResource)", "has(request.userInfo.groups)",
	)
}

// pairs are policies with bindings. None has parameters.
func (w world) pairs(t testing.TB, env *cel.Env) (policies []*policy.Policy, bindings []*binding.Binding) {
	for i := range 1 + w.IntN(12) {
		p := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%02d", i)}}
		p.Spec.MatchConstraints = w.match(1 + w.IntN(2))
		p.Spec.FailurePolicy = new(admissionregistrationv1.FailurePolicyType(w.pick("Fail", "Fail", "Fail", "Ignore")))
		p.Spec.ReinvocationPolicy = admissionregistrationv1.ReinvocationPolicyType(w.pick("Never", "Never", "IfNeeded"))
		w.conditions(p)
		c, err := policy.Compile(p, policy.Deps{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, c)
		for j := range 1 + w.IntN(3) {
			b := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", p.Name, j)}}
			b.Spec.PolicyName = p.Name
			if w.IntN(4) > 0 {
				b.Spec.MatchResources = w.match(w.IntN(2))
			}
			compiled, err := binding.Compile(b)
			if err != nil {
				t.Fatal(err)
			}
			bindings = append(bindings, compiled)
		}
	}
	return policies, bindings
}

func (w world) object() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
	labels := map[string]string{}
	for _, key := range []string{"app", "tier", "env", "team"} {
		if w.IntN(2) == 0 {
			labels[key] = w.pick("web", "db", "", "prod", "dev", "x")
		}
	}
	if len(labels) > 0 {
		u.SetLabels(labels)
	}
	return u
}

func (w world) request() *policy.Request {
	k := kindsOf[w.IntN(len(kindsOf))]
	gvr := k.all[w.IntN(len(k.all))]
	req := &policy.Request{
		Resource: gvr, Kind: gvr.GroupVersion().WithKind(k.kind), SubResource: w.pick("", "", "", "status"), Name: w.pick("n", "o'", "p", "q", ""),
		Operation: admissionv1.Operation(w.pick("CREATE", "CREATE", "UPDATE", "UPDATE", "CONNECT")), Object: w.object(),
		UserInfo: authenticationv1.UserInfo{Username: w.pick("alice", "bob", "system:node:a", "")}, DryRun: w.IntN(4) == 0,
	}
	if w.IntN(3) > 0 {
		req.UserInfo.Groups = w.some("admins", "system:nodes", "a", "n")
	}
	switch {
	case k.kind == "Namespace":
		req.Namespace = w.pick("a", "b", "c", "d", "e")
		req.Name = req.Namespace
		labels := req.Object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["kubernetes.io/metadata.name"] = req.Name
		req.Object.SetLabels(labels)
	case !k.clustered:
		req.Namespace = w.pick("a", "b", "c", "d", "e", "gone")
	}
	if req.Operation == admissionv1.Update {
		req.OldObject = w.object()
	}
	return req
}

// unrestricted is what entries were before they knew selectors, names, excluded rules,
// conditions and bindings.
func unrestricted(p *admissionregistrationv1.MutatingAdmissionPolicy) *admissionregistrationv1.MutatingAdmissionPolicy {
	p = p.DeepCopy()
	p.Spec.MatchConditions = nil
	m := p.Spec.MatchConstraints
	m.NamespaceSelector, m.ObjectSelector, m.ExcludeResourceRules = nil, nil, nil
	for i := range m.ResourceRules {
		m.ResourceRules[i].ResourceNames = nil
	}
	return p
}

// TestEntriesReachAll: whatever the index selects, a server sends to the entry of the
// policy and the binding. An API server's own code says what is sent.
func TestEntriesReachAll(t *testing.T) {
	worlds, requests := hammer.Count(150), 150
	s := newServer(t, worldNamespaces)
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var conditional, left, failing int
	var wanted, idle, idleSent, idleBefore, refused, calls, callsBefore, most int
	for seed := range worlds {
		w := world{rand.New(rand.NewPCG(uint64(seed), 7))}
		policies, bindings := w.pairs(t, env)
		ix, err := binding.NewIndex(policies, bindings, binding.Sources{Namespaces: s, Equivalents: s.equivalents})
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		var reaches, before []*webhookconfig.Reach
		for i, b := range bindings {
			at[b.Name()] = i
			p := policies[slices.IndexFunc(policies, func(p *policy.Policy) bool { return p.Name() == b.PolicyName() })].Object()
			reaches = append(reaches, webhookconfig.ReachOf(p, b.Object().Spec.MatchResources))
			before = append(before, webhookconfig.ReachOf(unrestricted(p), nil))
		}
		entries, of := webhookconfig.Divide(reaches)
		configuration := webhookconfig.Configuration(entries, stored)
		checkEntries(t, configuration, seed)
		hooks := accessors(configuration)
		for _, h := range hooks {
			conditional += len(slices.DeleteFunc(slices.Clone(h.GetMatchConditions()), func(m admissionregistrationv1.MatchCondition) bool {
				return m.Name != webhookconfig.ConditionsCondition
			}))
		}
		oldEntries, _ := webhookconfig.Divide(before)
		oldHooks := accessors(webhookconfig.Configuration(oldEntries, stored))
		for range requests {
			req := w.request()
			called, err := s.calls(t, hooks, req)
			if err != nil {
				if req.Namespace != "gone" {
					t.Fatal(err)
				}
				refused++
				continue
			}
			calledBefore, err := s.calls(t, oldHooks, req)
			if err != nil {
				t.Fatal(err)
			}
			count := func(list []bool) (n int) {
				for _, c := range list {
					if c {
						n++
					}
				}
				return n
			}
			calls, callsBefore = calls+count(called), callsBefore+count(calledBefore)
			most = max(most, count(called))
			var selection binding.Selection
			ix.SelectInto(&selection, t.Context(), req, req.Object)
			selected := slices.DeleteFunc(selection.Invocations, func(inv binding.Invocation) bool {
				if inv.PolicyError {
					return true // no binding has been asked: row policy-errors-unsent
				}
				if inv.Err != nil {
					return req.Namespace == "gone" && len(inv.Policy.Object().Spec.MatchConditions) > 0 // servers refuse what is in a Namespace that is not there
				}
				match, err := inv.Policy.Matches(t.Context(), policy.Input{
					Request: req, Kind: inv.Kind, Resource: inv.Resource, Object: req.Object, OldObject: req.OldObject,
				})
				if err != nil {
					failing++
				}
				out := err == nil && !match.OK
				if at := of[at[inv.Binding]]; out && at >= 0 && !called[at] {
					left++
				}
				return out
			})
			for _, inv := range selected {
				i := at[inv.Binding]
				if of[i] < 0 || !called[of[i]] {
					t.Fatalf("world %d: %s %s/%s %s of %q in %q is not sent for policy %s with binding %s (entry %d)\nlabels %v, old %v\npolicy %+v\nbinding %+v\nentries %+v", seed,
						req.Operation, req.Resource, req.SubResource, req.Kind, req.Name, req.Namespace, inv.Policy.Name(), inv.Binding, of[i],
						req.Object.GetLabels(), req.OldObject, inv.Policy.Object().Spec, bindings[i].Object().Spec.MatchResources, configuration.Webhooks)
				}
			}
			if len(selected) > 0 {
				wanted++
				continue
			}
			idle++
			if count(called) > 0 {
				idleSent++
			}
			if count(calledBefore) > 0 {
				idleBefore++
			}
		}
	}
	t.Logf("%d entries have conditions of policies, which leave out %d invocations; %d conditions fail", conditional, left, failing)
	t.Logf("%d requests that policies want, %d that none wants: of these %d are sent (%.1f %%), without selectors %d (%.1f %%); %d calls, without selectors %d; at most %d for one request; %d refused by the server",
		wanted, idle, idleSent, 100*float64(idleSent)/float64(idle), idleBefore, 100*float64(idleBefore)/float64(idle), calls, callsBefore, most, refused)
	if wanted < worlds*requests/10 || idle < worlds*requests/10 {
		t.Error("the worlds show little")
	}
	if conditional < worlds/2 || left < worlds || failing < worlds {
		t.Error("the worlds show little of conditions")
	}
	if idleSent*2 > idleBefore {
		t.Error("entries narrow little")
	}
}

// checkEntries holds a configuration against what a server accepts and what Divide
// promises.
func checkEntries(t testing.TB, c *admissionregistrationv1.MutatingWebhookConfiguration, seed int) {
	t.Helper()
	names := map[string]bool{}
	groups := map[webhook.Group]int{}
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		id, ok := webhook.ParseName(w.Name)
		if !ok || names[w.Name] {
			t.Errorf("world %d: name %q is unknown or there twice", seed, w.Name)
		}
		names[w.Name] = true
		if groups[id.Group]++; groups[id.Group] > 8 || groups[id.Group] > 1 && id.FailurePolicy == admissionregistrationv1.Ignore {
			t.Errorf("world %d: %d entries of %s", seed, groups[id.Group], id.Group.Name())
		}
		for _, s := range []*metav1.LabelSelector{w.NamespaceSelector, w.ObjectSelector} {
			if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
				t.Errorf("world %d: %v", seed, err)
			}
		}
		if len(w.Rules) == 0 || len(w.MatchConditions) > 64 {
			t.Errorf("world %d: entry %+v", seed, w)
		}
	}
}
