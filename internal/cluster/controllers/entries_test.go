package controllers

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
)

func rule(operation admissionregistrationv1.OperationType, group string, resources ...string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: resources},
	}
}

func named(name string, rules ...admissionregistrationv1.RuleWithOperations) entry {
	return entry{Name: name, Rules: rules}
}

func TestPlan(t *testing.T) {
	pods, services := rule("CREATE", "", "pods"), rule("CREATE", "", "services")
	podsUpdated, all := rule("UPDATE", "", "pods"), rule("CREATE", "*", "*/*")
	tests := map[string]struct {
		desired, live []entry
		ready         bool
		want          []entry
		waiting       bool
	}{
		"whoever is ready gets what is asked for": {desired: []entry{named("a", pods)}, live: []entry{named("b", services)}, ready: true,
			want: []entry{named("a", pods)}},
		"an entry waits":            {desired: []entry{named("a", pods)}, waiting: true},
		"an entry goes":             {live: []entry{named("a", pods)}},
		"an entry stays":            {desired: []entry{named("a", pods)}, live: []entry{named("a", pods)}, want: []entry{named("a", pods)}},
		"a rule waits":              {desired: []entry{named("a", pods, services)}, live: []entry{named("a", pods)}, want: []entry{named("a", pods)}, waiting: true},
		"a rule goes":               {desired: []entry{named("a", pods)}, live: []entry{named("a", pods, services)}, want: []entry{named("a", pods)}},
		"a rule that narrows stays": {desired: []entry{named("a", pods)}, live: []entry{named("a", all)}, want: []entry{named("a", all)}, waiting: true},
		"a rule that becomes another one is as good as new": {desired: []entry{named("a", podsUpdated)}, live: []entry{named("a", pods)}, waiting: true},
		"all but rules changes at once": {
			desired: []entry{{Name: "a", Rules: []admissionregistrationv1.RuleWithOperations{pods}, TimeoutSeconds: new(int32(3))}},
			live:    []entry{named("a", pods)},
			want:    []entry{{Name: "a", Rules: []admissionregistrationv1.RuleWithOperations{pods}, TimeoutSeconds: new(int32(3))}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, waiting := plan(tt.desired, tt.live, tt.ready)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if waiting != tt.waiting {
				t.Errorf("waiting = %t", waiting)
			}
		})
	}
}

// As long as nobody can answer, policies that have gone to another entry of their
// group keep the one that they have left, and an entry selects less but not more.
func TestPlanSelectors(t *testing.T) {
	const whole, part = "fail.never.mapd.dev", "0123abcd.fail.never.mapd.dev"
	pods := rule("CREATE", "", "pods")
	of := func(name, label string) entry {
		e := named(name, pods)
		e.NamespaceSelector = webhookconfig.Exempt([]string{"own"})
		if label != "" {
			e.NamespaceSelector.MatchExpressions = append(e.NamespaceSelector.MatchExpressions, metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpExists})
		}
		return e
	}
	when := func(expression string) entry {
		e := of(whole, "a")
		e.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "all", Expression: "true"}}
		if expression != "" {
			e.MatchConditions = append(e.MatchConditions, admissionregistrationv1.MatchCondition{Name: webhookconfig.ConditionsCondition, Expression: expression})
		}
		return e
	}
	spared := of(whole, "a")
	spared.NamespaceSelector.MatchExpressions[0].Values = []string{"more", "own"}
	for name, tt := range map[string]struct {
		desired, live, want []entry
		waiting             bool
	}{
		"less":                     {[]entry{of(whole, "a")}, []entry{of(whole, "")}, []entry{of(whole, "a")}, false},
		"more":                     {[]entry{of(whole, "")}, []entry{of(whole, "a")}, []entry{of(whole, "a")}, true},
		"something else":           {[]entry{of(whole, "b")}, []entry{of(whole, "a")}, []entry{of(whole, "a")}, true},
		"more namespaces exempt":   {[]entry{spared}, []entry{of(whole, "a")}, []entry{spared}, false},
		"a condition that changes": {[]entry{when("b")}, []entry{when("a")}, []entry{when("a")}, true},
		"a condition that comes":   {[]entry{when("b")}, []entry{when("")}, []entry{when("")}, true},
		"a condition that goes":    {[]entry{when("")}, []entry{when("a")}, []entry{when("a")}, true},
		"another name":             {[]entry{of(part, "a")}, []entry{of(whole, "a")}, []entry{of(whole, "a")}, true},
		"divided":                  {[]entry{of(part, "a"), of(whole, "b")}, []entry{of(whole, "")}, []entry{of(whole, "")}, true},
		"no policy of the group":   {[]entry{named("ignore.never.mapd.dev", pods)}, []entry{of(whole, "")}, nil, true},
		"as it should be, divided": {[]entry{of(part, "a"), of(whole, "b")}, []entry{of(part, "a"), of(whole, "b")}, []entry{of(part, "a"), of(whole, "b")}, false},
	} {
		got, waiting := plan(tt.desired, tt.live, false)
		if diff := cmp.Diff(tt.want, got); diff != "" || waiting != tt.waiting {
			t.Errorf("%s: waiting %t (-want +got):\n%s", name, waiting, diff)
		}
	}
}

func TestOverlap(t *testing.T) {
	tests := map[string]struct {
		a, b admissionregistrationv1.RuleWithOperations
		want bool
	}{
		"alike":                      {rule("CREATE", "", "pods"), rule("CREATE", "", "pods"), true},
		"one resource in common":     {rule("CREATE", "", "pods", "services"), rule("CREATE", "", "secrets", "services"), true},
		"other resources":            {rule("CREATE", "", "pods"), rule("CREATE", "", "services"), false},
		"other groups":               {rule("CREATE", "", "pods"), rule("CREATE", "x", "pods"), false},
		"other operations":           {rule("CREATE", "", "pods"), rule("UPDATE", "", "pods"), false},
		"every operation":            {rule("*", "", "pods"), rule("UPDATE", "", "pods"), true},
		"every group":                {rule("CREATE", "*", "pods"), rule("CREATE", "x", "pods"), true},
		"a pattern may mean another": {rule("CREATE", "", "pods/*"), rule("CREATE", "", "pods/status"), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := overlap(tt.a, tt.b); got != tt.want {
				t.Errorf("overlap = %t", got)
			}
			if got := overlap(tt.b, tt.a); got != tt.want {
				t.Errorf("overlap the other way = %t", got)
			}
		})
	}
}

// A validating entry goes through the other kind and back without loss, and its
// defaults are those that a server fills in.
func TestEntries(t *testing.T) {
	full := admissionregistrationv1.ValidatingWebhook{
		Name: "a", ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: "n", Name: "s", Path: new("/p")}, CABundle: []byte("ca")},
		Rules:         []admissionregistrationv1.RuleWithOperations{rule("CREATE", "", "pods")},
		FailurePolicy: new(admissionregistrationv1.Ignore), MatchPolicy: new(admissionregistrationv1.Exact),
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"c": "d"}},
		SideEffects: new(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: new(int32(3)), AdmissionReviewVersions: []string{"v1"},
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "m", Expression: "true"}},
	}
	in := []admissionregistrationv1.ValidatingWebhook{full}
	if diff := cmp.Diff(in, toValidating(fromValidating(in))); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}
	got := withDefaults(entry{ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{}},
		Rules: []admissionregistrationv1.RuleWithOperations{{}}}, false)
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"","clientConfig":{"service":{"namespace":"","name":"","port":443}},"rules":[{"scope":"*"}],"failurePolicy":"Fail",` +
		`"matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},"sideEffects":null,"timeoutSeconds":10,"admissionReviewVersions":null,"reinvocationPolicy":"Never"}`
	if string(text) != want {
		t.Errorf("defaults:\n%s\nwant\n%s", text, want)
	}
	if e := withDefaults(entry{}, true); e.ReinvocationPolicy != nil {
		t.Error("a validating entry has a reinvocationPolicy")
	}
}

func TestBase(t *testing.T) {
	w := New(Options{Namespace: "own", Service: "mapd", Exempt: []string{"kube-system", "own", "", "a"}, Timeout: 2500 * time.Millisecond, User: "me"})
	e := w.base()
	if got := e.NamespaceSelector.MatchExpressions[0].Values; !cmp.Equal(got, []string{"a", "kube-system", "own"}) {
		t.Errorf("exempt: %q", got)
	}
	if *e.TimeoutSeconds != 3 || *e.ClientConfig.Service.Port != 443 || len(e.MatchConditions) != 3 {
		t.Errorf("base: %+v", e)
	}
	w = New(Options{Namespace: "own", URL: "https://[::1]:1"})
	if e := w.base(); *e.TimeoutSeconds != 5 || e.ClientConfig.Service != nil || *e.ClientConfig.URL != "https://[::1]:1" {
		t.Errorf("base: %+v", e)
	}
}

func TestDerive(t *testing.T) {
	w := New(Options{Namespace: "own", Lease: "lease", Service: "mapd", Exempt: []string{"kube-system"}})
	both := []*configuration{
		{name: webhookconfig.ValidationName, kind: "ValidatingWebhookConfiguration", validating: true},
		{name: webhookconfig.ConfigurationName, kind: "MutatingWebhookConfiguration"},
	}
	w.derive(both, asked{}, []byte("ca"), true)
	validating, mutating := both[0], both[1]
	if len(mutating.desired) != 0 {
		t.Errorf("entries for no policies: %v", names(mutating.desired))
	}
	if len(validating.desired) == 0 {
		t.Error("no entries for validation")
	}
	for _, e := range validating.desired {
		if string(e.ClientConfig.CABundle) != "ca" || len(e.NamespaceSelector.MatchExpressions) != 0 {
			t.Errorf("entry %+v", e)
		}
	}
	// What was refused is tried again at once if it has become something else.
	validating.next, validating.retry = time.Now().Add(time.Hour), retryMost
	w.derive(both, asked{}, []byte("ca"), true)
	if validating.next.IsZero() {
		t.Error("the same is tried again at once")
	}
	w.derive(both, asked{}, []byte("another"), true)
	if !validating.next.IsZero() || validating.retry != 0 {
		t.Error("what is new has to wait")
	}

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own", UID: "1"}}
	data, err := mutating.encode(w.desiredMeta(metav1.ObjectMeta{}, namespace), nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"annotations":{"mapd.dev/installation":"own/lease"},` +
		`"labels":{"app.kubernetes.io/name":"mapd","app.kubernetes.io/part-of":"mapd"},"name":"000.mapd.dev",` +
		`"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"own","uid":"1"}]},"webhooks":null}`
	if string(data) != want {
		t.Errorf("encoded:\n%s\nwant\n%s", data, want)
	}
	if data, err = validating.encode(w.desiredMeta(metav1.ObjectMeta{}, namespace), validating.desired); err != nil || !bytes.Contains(data, []byte(`"webhooks":[{`)) {
		t.Errorf("encoded: %s, %v", data, err)
	}
}

func TestApplied(t *testing.T) {
	block := func(s string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(s)}))
	}
	holding := func(bundles ...string) *configuration {
		var entries []entry
		for _, b := range bundles {
			entries = append(entries, entry{ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte(b)}})
		}
		return &configuration{get: func() (metav1.ObjectMeta, []entry, bool) { return metav1.ObjectMeta{}, entries, true }}
	}
	a, b, c := block("a"), block("b"), block("c")
	tests := map[string]struct {
		in   []*configuration
		want []byte
	}{
		"no entries":                  {in: []*configuration{holding(), holding()}},
		"one that trusts nobody":      {in: []*configuration{holding(""), holding(a)}, want: []byte{}},
		"all the same":                {in: []*configuration{holding(a+b, a+b), holding(a + b)}, want: []byte(a + b)},
		"what they have in common":    {in: []*configuration{holding("# note\n"+a+b, b+c), holding(c + b)}, want: []byte(b)},
		"nothing in common":           {in: []*configuration{holding(a), holding(b)}, want: []byte{}},
		"no entries in one of them":   {in: []*configuration{holding(), holding(a)}, want: []byte(a)},
		"the same authority twice":    {in: []*configuration{holding(a + a)}, want: []byte(a)},
		"rubbish behind an authority": {in: []*configuration{holding(a + "rubbish")}, want: []byte(a)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := applied(tt.in)
			if !bytes.Equal(got, tt.want) || (got == nil) != (tt.want == nil) {
				t.Errorf("applied = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestAnyReady(t *testing.T) {
	slice := func(ready ...*bool) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{}
		for _, r := range ready {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: r}})
		}
		return s
	}
	for name, tt := range map[string]struct {
		in   []*discoveryv1.EndpointSlice
		want bool
	}{
		"none":               {},
		"empty":              {in: []*discoveryv1.EndpointSlice{slice()}},
		"none that is ready": {in: []*discoveryv1.EndpointSlice{slice(new(false)), slice(new(false))}},
		"one of many":        {in: []*discoveryv1.EndpointSlice{slice(new(false)), slice(new(false), new(true))}, want: true},
		"one that is silent": {in: []*discoveryv1.EndpointSlice{slice(nil)}, want: true},
	} {
		if got := anyReady(tt.in); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestOneTemplate(t *testing.T) {
	endpoint := func(pod string, ready, serving *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: ready, Serving: serving}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod}}
	}
	yes, no := new(true), new(false)
	const own = "mapd-6d5-abcde"
	for name, tt := range map[string]struct {
		endpoints []discoveryv1.Endpoint
		want      bool
	}{
		"nobody":                 {nil, true},
		"alone":                  {[]discoveryv1.Endpoint{endpoint(own, yes, yes)}, true},
		"two of one":             {[]discoveryv1.Endpoint{endpoint(own, yes, yes), endpoint("mapd-6d5-fghij", yes, yes)}, true},
		"one of another":         {[]discoveryv1.Endpoint{endpoint(own, no, no), endpoint("mapd-77c-fghij", yes, yes)}, false},
		"one that ends":          {[]discoveryv1.Endpoint{endpoint(own, yes, yes), endpoint("mapd-77c-fghij", no, yes)}, false},
		"one that has not begun": {[]discoveryv1.Endpoint{endpoint(own, yes, yes), endpoint("mapd-77c-fghij", no, no)}, true},
		"one that says nothing":  {[]discoveryv1.Endpoint{endpoint(own, nil, nil), endpoint("mapd-77c-fghij", nil, nil)}, false},
		"not among them":         {[]discoveryv1.Endpoint{endpoint("mapd-77c-fghij", yes, yes)}, true},
		"no Pods":                {[]discoveryv1.Endpoint{endpoint(own, yes, yes), {}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := oneTemplate([]*discoveryv1.EndpointSlice{{Endpoints: tt.endpoints}}, own); got != tt.want {
				t.Errorf("oneTemplate = %t", got)
			}
		})
	}
}
