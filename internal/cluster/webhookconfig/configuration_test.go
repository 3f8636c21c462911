package webhookconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/policy"
)

var update = flag.Bool("update", false, "make the golden configuration anew")

// base is what a writer gives to both configurations.
func base() admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: "ignored",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service:  &admissionregistrationv1.ServiceReference{Namespace: "mapd-system", Name: "mapd", Port: new(int32(443))},
			CABundle: []byte("ca"),
		},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-node-lease", "kube-system", "mapd-system"}},
		}},
		MatchConditions: MatchConditions("system:serviceaccount:mapd-system:mapd"),
		TimeoutSeconds:  new(int32(5)),
	}
}

// divided are the entries of policies that are bound without any restriction.
func divided(all []*policy.Policy) []*Entry {
	var reaches []*Reach
	for _, p := range all {
		reaches = append(reaches, ReachOf(p.Object(), nil))
	}
	entries, _ := Divide(reaches)
	return entries
}

// policies reads policies of which only what concerns a configuration is given.
func policies(t testing.TB, text string) []*policy.Policy {
	t.Helper()
	var list []struct {
		Name string
		Spec admissionregistrationv1.MutatingAdmissionPolicySpec
	}
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	var out []*policy.Policy
	for _, p := range list {
		out = append(out, policy.Broken(&admissionregistrationv1.MutatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Spec: p.Spec,
		}, errors.New("not compiled")))
	}
	return out
}

// TestConfigurationGolden shows both configurations as they are written.
func TestConfigurationGolden(t *testing.T) {
	all := policies(t, `
- name: labels
  spec:
    failurePolicy: Fail
    reinvocationPolicy: Never
    matchConstraints:
      matchPolicy: Exact
      resourceRules:
      - {operations: [UPDATE, CREATE], apiGroups: [apps], apiVersions: [v1], resources: [statefulsets, deployments], scope: Namespaced}
- name: more-labels
  spec:
    failurePolicy: Fail
    reinvocationPolicy: Never
    matchConstraints:
      matchPolicy: Exact
      resourceRules:
      - {operations: [CREATE, UPDATE], apiGroups: [apps], apiVersions: [v1], resources: [daemonsets], scope: Namespaced}
      - {operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments], resourceNames: [web], scope: Namespaced}
- name: sidecar
  spec:
    reinvocationPolicy: IfNeeded
    matchConstraints:
      matchPolicy: Equivalent
      resourceRules:
      - {operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: ["pods/*", pods]}
      excludeResourceRules:
      - {operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: [pods/status]}
- name: namespaces
  spec:
    failurePolicy: Ignore
    reinvocationPolicy: IfNeeded
    matchConstraints:
      matchPolicy: Exact
      resourceRules:
      - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [namespaces], scope: Cluster}
- name: namespaces-too
  spec:
    failurePolicy: Ignore
    reinvocationPolicy: IfNeeded
    matchConstraints:
      resourceRules:
      - {operations: [CREATE, DELETE], apiGroups: [""], apiVersions: [v1], resources: [namespaces], scope: "*"}
`)
	mutating := base()
	validating := admissionregistrationv1.ValidatingWebhook{ClientConfig: mutating.ClientConfig, TimeoutSeconds: mutating.TimeoutSeconds}
	var got []byte
	for _, c := range []any{Configuration(divided(all), mutating), ValidationConfiguration(validating)} {
		text, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		got = append(append(got, "---\n"...), text...)
	}
	const golden = "testdata/configurations.yaml"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(base(), mutating); diff != "" {
		t.Errorf("the base was modified: %s", diff)
	}
}

func TestConfigurationRules(t *testing.T) {
	tests := map[string]struct {
		rules string   // of a policy each
		want  []string // group/version/resources/operations/scope
	}{
		"nothing":              {`[]`, nil},
		"one":                  {`[{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]`, []string{"|v1|pods|CREATE|*"}},
		"all operations":       {`[{operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: [pods]}]`, []string{"|v1|pods|CONNECT,CREATE,UPDATE|*"}},
		"deletions":            {`[{operations: [DELETE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]`, nil},
		"deletions and others": {`[{operations: [DELETE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]`, []string{"|v1|pods|UPDATE|*"}},
		"a wildcard among others": {`[{operations: [CREATE, "*"], apiGroups: [apps, "*"], apiVersions: [v1, "*", ""], resources: [pods, "*", pods/status]}]`,
			[]string{"*|*|*,pods/status|CONNECT,CREATE,UPDATE|*"}},
		"every resource": {`[{operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: ["*/*", pods, "x/*", "*"]}]`, []string{"a|v1|*/*|CREATE|*"}},
		"subresources":   {`[{operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: [x/y, x/*, "*/y", z/y, z/z, x, z/]}]`, []string{"a|v1|*/y,x/*,z,z/z|CREATE|*"}},
		"lists that match nothing": {`[{operations: [CREATE], apiGroups: [], apiVersions: [v1], resources: [a]},
			{operations: [CREATE], apiGroups: [a], apiVersions: [""], resources: [a]}, {operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: [""]},
			{operations: [], apiGroups: [a], apiVersions: [v1], resources: [a]}, {operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: [a], scope: Galactic}]`, nil},
		"the same twice": {`[{operations: [CREATE, UPDATE], apiGroups: [a], apiVersions: [v1], resources: [x, xx]},
			{operations: [UPDATE, CREATE], apiGroups: [a], apiVersions: [v1], resources: [xx, x], resourceNames: [n]}]`, []string{"a|v1|x,xx|CREATE,UPDATE|*"}},
		"covered by another": {`[{operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: [x], scope: Namespaced},
			{operations: [CREATE, UPDATE], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}]`, []string{"*|*|*|CREATE,UPDATE|*"}},
		"not covered: another scope": {`[{operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: [x], scope: Namespaced},
			{operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: [x], scope: Cluster}]`, []string{"a|v1|x|CREATE|Cluster", "a|v1|x|CREATE|Namespaced"}},
		"not covered: a subresource": {`[{operations: [CREATE], apiGroups: [a], apiVersions: [v1, v2], resources: [x/y]},
			{operations: [CREATE], apiGroups: [a], apiVersions: ["*"], resources: ["*"]}]`, []string{"a|*|*|CREATE|*", "a|v1,v2|x/y|CREATE|*"}},
		"joined by resources": {`[{operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: [x]},
			{operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: [xx]}]`, []string{"a|v1|x,xx|CREATE|*"}},
		"joined by operations": {`[{operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: [x]},
			{operations: [UPDATE], apiGroups: [a], apiVersions: [v1], resources: [x]}]`, []string{"a|v1|x|CREATE,UPDATE|*"}},
		"joined by groups and versions": {`[{operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: [x]},
			{operations: [CREATE], apiGroups: [a], apiVersions: [v2], resources: [x]}, {operations: [CREATE], apiGroups: [b], apiVersions: [v2, v1], resources: [x]}]`,
			[]string{"a,b|v1,v2|x|CREATE|*"}},
		"not joined": {`[{operations: [CREATE], apiGroups: [a], apiVersions: [v1], resources: [x]},
			{operations: [UPDATE], apiGroups: [a], apiVersions: [v1], resources: [xx]}]`, []string{"a|v1|x|CREATE|*", "a|v1|xx|UPDATE|*"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			all := policies(t, `[{name: p, spec: {matchConstraints: {resourceRules: `+tt.rules+`}}}]`)
			c := Configuration(divided(all), base())
			var got []string
			for _, w := range c.Webhooks {
				for _, r := range w.Rules {
					got = append(got, strings.Join([]string{words(r.APIGroups), words(r.APIVersions), words(r.Resources), words(r.Operations), string(*r.Scope)}, "|"))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("rules of %s: -want +got\n%s", tt.rules, diff)
			}
			wantUnroutable := []string(nil)
			if tt.want == nil {
				wantUnroutable = []string{"p"}
			}
			if diff := cmp.Diff(wantUnroutable, Unroutable(all)); diff != "" {
				t.Errorf("Unroutable: -want +got\n%s", diff)
			}
		})
	}
	none := policies(t, `[{name: b, spec: {}}, {name: a, spec: {}}]`)
	if got := Configuration(divided(none), base()).Webhooks; got != nil {
		t.Errorf("policies without matchConstraints have entries: %v", got)
	}
	if diff := cmp.Diff([]string{"a", "b"}, Unroutable(none)); diff != "" {
		t.Errorf("Unroutable: -want +got\n%s", diff)
	}
}

func words[T ~string](list []T) string {
	var b strings.Builder
	for i, s := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(s))
	}
	return b.String()
}

func TestClientConfig(t *testing.T) {
	tests := map[string]struct {
		in   admissionregistrationv1.WebhookClientConfig
		want string
	}{
		"a service":             {admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{}}, "/validate"},
		"a service with a path": {admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Path: new("/mapd/")}}, "/mapd/validate"},
		"a URL":                 {admissionregistrationv1.WebhookClientConfig{URL: new("https://mapd.example.com:8443")}, "https://mapd.example.com:8443/validate"},
		"a URL with a path":     {admissionregistrationv1.WebhookClientConfig{URL: new("https://mapd.example.com/mapd/")}, "https://mapd.example.com/mapd/validate"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := tt.in.DeepCopy()
			c := ValidationConfiguration(admissionregistrationv1.ValidatingWebhook{ClientConfig: tt.in}).Webhooks[0].ClientConfig
			var got string
			if c.URL != nil {
				got = *c.URL
			} else {
				got = *c.Service.Path
			}
			if got != tt.want || !cmp.Equal(before, &tt.in) {
				t.Errorf("path %q, want %q; base before and after: %v, %v", got, tt.want, before, tt.in)
			}
		})
	}
}

// TestMatchConditions compiles the conditions for the oldest minor and
// evaluates them as a server would.
func TestMatchConditions(t *testing.T) {
	env, err := cel.NewEnv(cel.Options{Version: "1.32"})
	if err != nil {
		t.Fatal(err)
	}
	type of = map[string]any
	request := func(group, resource, user string) of {
		return of{"resource": of{"group": group, "version": "v1", "resource": resource}, "userInfo": of{"username": user}}
	}
	object := func(spec of) of { return of{"metadata": of{"name": "x"}, "spec": spec} }
	params := object(of{"paramKind": of{"kind": "ConfigMap"}})
	validating := ValidationConfiguration(admissionregistrationv1.ValidatingWebhook{}).Webhooks
	tests := map[string]struct {
		conditions []admissionregistrationv1.MatchCondition
		in         cel.Input
		want       bool
	}{
		"a pod":                     {MatchConditions("mapd"), cel.Input{Request: func() of { return request("", "pods", "ann") }}, true},
		"our own group":             {MatchConditions("mapd"), cel.Input{Request: func() of { return request("admissionregistration.mapd.dev", "mutatingadmissionpolicies", "ann") }}, false},
		"an access review":          {MatchConditions("mapd"), cel.Input{Request: func() of { return request("authorization.k8s.io", "localsubjectaccessreviews", "ann") }}, false},
		"a rules review":            {MatchConditions("mapd"), cel.Input{Request: func() of { return request("authorization.k8s.io", "selfsubjectrulesreviews", "ann") }}, false},
		"a token review":            {MatchConditions("mapd"), cel.Input{Request: func() of { return request("authentication.k8s.io", "tokenreviews", "ann") }}, false},
		"somebody else's review":    {MatchConditions("mapd"), cel.Input{Request: func() of { return request("example.com", "codereviews", "ann") }}, true},
		"ourselves":                 {MatchConditions("mapd"), cel.Input{Request: func() of { return request("", "pods", "mapd") }}, false},
		"an odd name of ours":       {MatchConditions(`ma'p\d` + "\n"), cel.Input{Request: func() of { return request("", "pods", `ma'p\d`+"\n") }}, false},
		"an unknown name of ours":   {MatchConditions(""), cel.Input{Request: func() of { return request("", "pods", "") }}, true},
		"created without params":    {validating[0].MatchConditions, cel.Input{Object: object(of{"policyName": "p"})}, false},
		"created with paramKind":    {validating[0].MatchConditions, cel.Input{Object: params}, true},
		"created with paramRef":     {validating[0].MatchConditions, cel.Input{Object: object(of{"paramRef": of{}})}, true},
		"created without spec":      {validating[0].MatchConditions, cel.Input{Object: of{}}, false},
		"updated without a change":  {validating[0].MatchConditions, cel.Input{Object: params, OldObject: object(of{"paramKind": of{"kind": "ConfigMap"}})}, false},
		"updated with a change":     {validating[0].MatchConditions, cel.Input{Object: params, OldObject: object(of{"paramKind": of{"kind": "Secret"}})}, true},
		"updated from without spec": {validating[0].MatchConditions, cel.Input{Object: params, OldObject: of{}}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			evaluate := func(conditions []admissionregistrationv1.MatchCondition) bool {
				ok := true
				scope := env.Scope(cel.Vars{Mode: cel.New})
				for _, c := range conditions {
					program, err := scope.Compile(c.Expression, cel.Bool)
					if err != nil {
						t.Fatal(err)
					}
					got, err := program.Bool(t.Context(), scope.Bind(&tt.in, &cel.Budget{Remaining: cel.ConditionBudget}))
					if err != nil {
						t.Fatal(err)
					}
					ok = ok && got
				}
				return ok
			}
			if got := evaluate(tt.conditions); got != tt.want {
				t.Errorf("the conditions let it through: %t, want %t", got, tt.want)
			}
			if tt.in.Request == nil && evaluate(validating[1].MatchConditions) == tt.want {
				t.Error("both entries, or neither, want it")
			}
		})
	}
}

// sample is a request as rules see it.
type sample struct {
	operation                     admissionregistrationv1.OperationType
	group, version, resource, sub string
	namespaced                    bool
}

// matches says whether a server takes a request for one that a rule means
// (spec §2.2), word by word.
func (s *sample) matches(r *admissionregistrationv1.RuleWithOperations) bool {
	scope := admissionregistrationv1.AllScopes
	if r.Scope != nil {
		scope = *r.Scope
	}
	in := scope == admissionregistrationv1.AllScopes || s.namespaced && scope == admissionregistrationv1.NamespacedScope ||
		!s.namespaced && scope == admissionregistrationv1.ClusterScope
	one := func(list []string, s string) bool { return slices.Contains(list, "*") || slices.Contains(list, s) }
	resource := func(r string) bool {
		resource, sub, _ := strings.Cut(r, "/")
		return (resource == "*" || resource == s.resource) && (sub == "*" || sub == s.sub)
	}
	return in && (slices.Contains(r.Operations, "*") || slices.Contains(r.Operations, s.operation)) &&
		one(r.APIGroups, s.group) && one(r.APIVersions, s.version) && slices.ContainsFunc(r.Resources, resource)
}

// randomRules are rules over few words, so that they overlap in all ways,
// including those that a server refuses.
func randomRules(r *rand.Rand, n int) []admissionregistrationv1.RuleWithOperations {
	some := func(words ...string) []string {
		list := make([]string, r.IntN(4))
		for i := range list {
			list[i] = words[r.IntN(len(words))]
		}
		return list
	}
	out := make([]admissionregistrationv1.RuleWithOperations, n)
	for i := range out {
		o := &out[i]
		for _, op := range some("CREATE", "UPDATE", "CONNECT", "DELETE", "*", "NONE") {
			o.Operations = append(o.Operations, admissionregistrationv1.OperationType(op))
		}
		o.APIGroups = some("", "a", "b", "*")
		o.APIVersions = some("", "v1", "v2", "*")
		o.Resources = some("", "x", "y", "x/s", "y/s", "x/t", "x/", "*", "*/*", "x/*", "*/s", "*/")
		if scopes := [...]admissionregistrationv1.ScopeType{"*", "Cluster", "Namespaced", "Odd"}; r.IntN(2) == 0 {
			o.Scope = &scopes[r.IntN(len(scopes))]
		}
	}
	return out
}

// FuzzConfiguration: entries let in exactly what the rules mean, less what no
// policy sees; a server accepts them; the order of policies does not matter.
func FuzzConfiguration(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		random := rand.New(rand.NewPCG(seed, 1))
		var in []*policy.Policy
		var rules []admissionregistrationv1.RuleWithOperations
		for range n % 16 {
			obj := &admissionregistrationv1.MutatingAdmissionPolicy{}
			obj.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{}
			for _, r := range randomRules(random, random.IntN(4)) {
				rules = append(rules, r)
				obj.Spec.MatchConstraints.ResourceRules = append(obj.Spec.MatchConstraints.ResourceRules,
					admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
			}
			in = append(in, policy.Broken(obj, errors.New("not compiled")))
		}
		before, err := json.Marshal(rules)
		if err != nil {
			t.Fatal(err)
		}
		c := Configuration(divided(in), base())
		var out []admissionregistrationv1.RuleWithOperations
		if len(c.Webhooks) > 0 {
			out = c.Webhooks[0].Rules
		}
		checkValid(t, out)
		for _, s := range samples() {
			means := func(rules []admissionregistrationv1.RuleWithOperations) bool {
				return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool { return s.matches(&r) })
			}
			if want := s.operation != "DELETE" && means(rules); means(out) != want {
				t.Fatalf("%+v: the entry lets it in: %t, want %t\nrules %s\nentry %+v", s, !want, want, before, out)
			}
		}
		random.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		if diff := cmp.Diff(c, Configuration(divided(in), base())); diff != "" {
			t.Errorf("another order gives another configuration: %s", diff)
		}
		if after, err := json.Marshal(rules); err != nil || !bytes.Equal(before, after) {
			t.Error("the policies' rules were modified")
		}
	})
}

// samples are all requests that randomRules can tell apart.
func samples() (out []sample) {
	for _, op := range []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "CONNECT", "DELETE"} {
		for _, g := range []string{"", "a", "b", "c"} {
			for _, v := range []string{"v1", "v2", "v3"} {
				for _, r := range []string{"x", "y", "z"} {
					for _, s := range []string{"", "s", "t", "u"} {
						out = append(out, sample{op, g, v, r, s, false}, sample{op, g, v, r, s, true})
					}
				}
			}
		}
	}
	return out
}

// checkValid applies the server's rules for rules; those for webhooks are those
// for policies.
func checkValid(t *testing.T, rules []admissionregistrationv1.RuleWithOperations) {
	t.Helper()
	m := &admissionregistrationv1.MatchResources{}
	api.SetMatchDefaults(m)
	for _, r := range rules {
		m.ResourceRules = append(m.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	if errs := api.ValidateMatchResources(m, field.NewPath("webhooks")); len(errs) > 0 {
		t.Errorf("a server refuses the rules: %v", errs.ToAggregate())
	}
}

// BenchmarkConfiguration is what a writer does after each change of a policy.
func BenchmarkConfiguration(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	var in []*policy.Policy
	for _, r := range randomRules(random, 10_000) {
		obj := &admissionregistrationv1.MutatingAdmissionPolicy{}
		r.APIGroups = []string{"group-" + string(rune('a'+random.IntN(26))) + string(rune('a'+random.IntN(26)))}
		obj.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: r}}}
		in = append(in, policy.Broken(obj, errors.New("not compiled")))
	}
	b.ReportAllocs()
	for b.Loop() {
		Configuration(divided(in), base())
	}
}
