package webhookconfig

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// pairOf reads a policy's spec and a binding's matchResources, which may be empty.
func pairOf(t testing.TB, name, spec, match string) *Reach {
	t.Helper()
	p := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(spec, err)
	}
	api.SetMatchDefaults(p.Spec.MatchConstraints)
	var m *admissionregistrationv1.MatchResources
	if match != "" {
		m = &admissionregistrationv1.MatchResources{}
		if err := yaml.UnmarshalStrict([]byte(match), m); err != nil {
			t.Fatal(match, err)
		}
		api.SetMatchDefaults(m)
	}
	return ReachOf(p, m)
}

// on is the spec of a policy on some resources, with more of its matchConstraints.
func on(resources string, more ...string) string {
	return "{failurePolicy: Fail, matchConstraints: {" + strings.Join(append(more, ""), ", ") +
		"resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [" + resources + "]}]}}"
}

func inNamespaces(selector string) string { return "namespaceSelector: {" + selector + "}" }

// described are entries, each as its name and its words.
func described(entries []*Entry) []string {
	out := []string{}
	for _, w := range Configuration(entries, admissionregistrationv1.MutatingWebhook{}).Webhooks {
		name := strings.TrimSuffix(w.Name, ".mapd.dev")
		if id, ok := webhook.ParseName(w.Name); ok && id.Part != "" {
			name = "PART" + strings.TrimPrefix(name, id.Part)
		}
		out = append(out, name+": "+Words(&w))
	}
	return out
}

func TestDivide(t *testing.T) {
	const prod, dev = "matchLabels: {env: prod}", "matchLabels: {env: dev}"
	in := func(names ...string) string {
		return "{" + inNamespaces("matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: ["+strings.Join(names, ", ")+"]}]") + "}"
	}
	type pair struct{ spec, match string }
	tests := map[string]struct {
		pairs []pair
		want  []string
	}{
		"none":      {nil, []string{}},
		"all alike": {[]pair{{on("pods"), ""}, {on("secrets"), ""}}, []string{"fail.never: creations of pods and secrets in all namespaces"}},
		"both selectors": {[]pair{{on("pods", inNamespaces(prod)), "{" + inNamespaces("matchLabels: {team: x}") + "}"}},
			[]string{"fail.never: creations of pods in namespaces with env=prod and team=x"}},
		"tenants of one policy": {[]pair{{on("pods"), in("b")}, {on("pods"), in("a", "c")}, {on("pods"), in("b")}},
			[]string{"fail.never: creations of pods in the namespaces a, b and c"}},
		"one value or another": {[]pair{{on("pods", inNamespaces(prod)), ""}, {on("pods"), "{" + inNamespaces(dev) + "}"}},
			[]string{"fail.never: creations of pods in namespaces with env in (dev, prod)"}},
		"left out by each": {[]pair{
			{on("pods", inNamespaces("matchExpressions: [{key: env, operator: NotIn, values: [a, b]}]")), ""}, {on("pods", inNamespaces("matchExpressions: [{key: env, operator: NotIn, values: [b, c]}]")), ""}},
			[]string{"fail.never: creations of pods in namespaces with env!=b"}},
		"two areas": {[]pair{{on("pods", inNamespaces(prod)), ""}, {on("secrets"), ""}},
			[]string{"PART.fail.never: creations of pods in namespaces with env=prod", "PART.fail.never: creations of secrets in all namespaces"}},
		"one within the other": {[]pair{{on("pods", inNamespaces(prod)), ""}, {on("pods, secrets"), ""}},
			[]string{"fail.never: creations of pods and secrets in all namespaces"}},
		"one selector, several rules": {[]pair{{on("pods", inNamespaces(prod)), ""}, {on("secrets", inNamespaces(prod)), ""}},
			[]string{"fail.never: creations of pods and secrets in namespaces with env=prod"}},
		"labels of objects, where there is no old one": {[]pair{{on("pods", "objectSelector: {matchLabels: {app: web}}"), "{objectSelector: {matchLabels: {tier: front}}}"}},
			[]string{"fail.never: creations of pods with app=web and tier=front in all namespaces"}},
		"labels of objects, where there may be": {[]pair{{strings.Replace(on("pods", "objectSelector: {matchLabels: {app: web}}"), "CREATE", "CREATE, UPDATE", 1), "{objectSelector: {matchLabels: {tier: front}}}"}},
			[]string{"fail.never: creations and updates of pods with tier=front in all namespaces"}},
		"rules of a binding": {[]pair{{strings.Replace(on("'*'"), "CREATE", "'*'", 1), "{resourceRules: [{operations: [CREATE, UPDATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments, pods]}], excludeResourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: [nothings]}]}"}},
			[]string{"fail.never: creations and updates of deployments and pods in all namespaces"}},
		"rules that never meet":            {[]pair{{on("pods"), "{resourceRules: [{operations: [UPDATE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}"}}, []string{}},
		"what is excluded":                 {[]pair{{on("pods"), "{excludeResourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}]}"}}, []string{}},
		"names":                            {[]pair{{on("pods"), "{resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*'], resourceNames: [b, a]}]}"}}, []string{"fail.never: creations of pods named a, b in all namespaces"}},
		"a selector that nobody can parse": {[]pair{{on("pods", "objectSelector: {matchExpressions: [{key: app, operator: Near}]}"), ""}}, []string{"fail.never: creations of pods in all namespaces"}},
		"ignored ones share an entry": {[]pair{{strings.Replace(on("pods", inNamespaces(prod)), "Fail", "Ignore", 1), ""}, {strings.Replace(on("secrets", inNamespaces(prod+", matchExpressions: [{key: x, operator: Exists}]")), "Fail", "Ignore", 1), ""}},
			[]string{"ignore.never: creations of pods and secrets in namespaces with env=prod"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var reaches []*Reach
			for i, p := range tt.pairs {
				reaches = append(reaches, pairOf(t, fmt.Sprint("p", i), p.spec, p.match))
			}
			entries, of := Divide(reaches)
			if diff := cmp.Diff(tt.want, described(entries)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			for i, r := range reaches {
				if (r == nil) != (of[i] < 0) {
					t.Errorf("pair %d is in entry %d", i, of[i])
				}
			}
			// The order of policies and bindings does not matter.
			slices.Reverse(reaches)
			again, _ := Divide(reaches)
			if diff := cmp.Diff(Configuration(entries, base()), Configuration(again, base())); diff != "" {
				t.Errorf("another order: %s", diff)
			}
		})
	}
}

// TestDivideBounds: however differently policies select, there are few entries, and
// what they say is short.
func TestDivideBounds(t *testing.T) {
	tests := map[string]func(i int) *Reach{
		"everybody has a key": func(i int) *Reach {
			return pairOf(t, fmt.Sprintf("p%05d", i), on("pods"), fmt.Sprintf("{namespaceSelector: {matchLabels: {key-%d: x}}}", i))
		},
		"everybody has rules and keys": func(i int) *Reach {
			return pairOf(t, fmt.Sprintf("p%05d", i), on(fmt.Sprintf("things%d", i)), fmt.Sprintf("{objectSelector: {matchLabels: {key-%d: x}}}", i))
		},
		"everybody has a namespace": func(i int) *Reach {
			return pairOf(t, "p", on("pods"), fmt.Sprintf("{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: tenant-%d}}}", i))
		},
		"everybody has a namespace and rules": func(i int) *Reach {
			return pairOf(t, fmt.Sprint("p", i%30), on(fmt.Sprintf("things%d", i%30)), fmt.Sprintf("{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: tenant-%d}}}", i))
		},
	}
	for name, make := range tests {
		for _, n := range []int{3, 30, 1000} {
			t.Run(fmt.Sprintf("%s, %d", name, n), func(t *testing.T) {
				var reaches []*Reach
				for i := range n {
					reaches = append(reaches, make(i))
				}
				entries, _ := Divide(reaches)
				if len(entries) > maxEntries {
					t.Errorf("%d entries", len(entries))
				}
				for i, a := range entries {
					met := 1
					for j, b := range entries {
						if i != j && a.meets(&b.area) {
							met++
						}
					}
					if met > maxMet {
						t.Errorf("entry %d meets %d", i, met)
					}
					for _, c := range []conjunction{a.namespaces, a.objects} {
						for _, r := range c {
							if len(r.values) > maxValues {
								t.Errorf("entry %d has %d values", i, len(r.values))
							}
						}
					}
				}
			})
		}
	}
}

// TestUndivide: what is divided becomes one entry for each group again, on the group's
// own path, which no part has.
func TestUndivide(t *testing.T) {
	divided, _ := Divide([]*Reach{
		pairOf(t, "a", on("pods"), "{"+inNamespaces("matchLabels: {env: prod}")+"}"), pairOf(t, "b", on("secrets"), ""),
	})
	for _, e := range divided {
		if e.Path() == e.Group.Path() {
			t.Errorf("%s is one of %d and has the path of the group", e.Name(), len(divided))
		}
	}
	want := []string{"fail.never: creations of pods and secrets in all namespaces"}
	if diff := cmp.Diff(want, described(Undivide(divided))); len(divided) != 2 || diff != "" {
		t.Errorf("%d entries undivided (-want +got):\n%s", len(divided), diff)
	}
	if got := Undivide(nil); got != nil {
		t.Errorf("nothing undivided is %v", got)
	}
}

// A tenant more changes no name and no path.
func TestIDs(t *testing.T) {
	tenants := func(names ...string) []*Reach {
		out := []*Reach{pairOf(t, "a", on("secrets"), "")}
		for _, n := range names {
			out = append(out, pairOf(t, "b", on("pods"), "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "+n+"}}}"))
		}
		return out
	}
	before, _ := Divide(tenants("x"))
	after, _ := Divide(tenants("x", "y", "z"))
	if len(before) != 2 || len(after) != 2 || before[1].ID != after[1].ID || before[1].Part == "" {
		t.Errorf("%v became %v", described(before), described(after))
	}
}

func TestConjunction(t *testing.T) {
	of := func(text string) conjunction {
		s := &metav1.LabelSelector{}
		if text != "" {
			var err error
			if s, err = metav1.ParseToLabelSelector(text); err != nil {
				t.Fatal(err)
			}
		}
		return conjunctionOf(s)
	}
	text := func(c conjunction) string { return metav1.FormatLabelSelector(c.addTo(&metav1.LabelSelector{})) }
	for _, tt := range []struct {
		a, b, union string
		exact       bool
	}{
		{"", "a=1", "", true},
		{"a=1", "a=2", "a in (1,2)", true},
		{"a=1,b=1", "a=2,b=1", "a in (1,2),b in (1)", true},
		{"a=1,b=1", "a=2,b=2", "a in (1,2),b in (1,2)", false},
		{"a notin (1)", "a notin (1,2)", "a notin (1)", true},
		{"a notin (1)", "a notin (2)", "", true},
		{"a", "a=1", "a", true},
		{"!a", "a notin (1)", "a notin (1)", true},
		{"a=1", "b=1", "", false},
		{"a=1,b=1", "b=1,c=1", "b in (1)", false},
		{"a=1,b", "a in (1,2)", "a in (1,2)", true},
	} {
		for _, ab := range [][2]string{{tt.a, tt.b}, {tt.b, tt.a}} {
			union, exact := of(ab[0]).or(of(ab[1]))
			want := text(of(tt.union))
			if got := text(union); got != want || exact != tt.exact {
				t.Errorf("%q or %q = %q, exact %t; want %q, %t", ab[0], ab[1], got, exact, want, tt.exact)
			}
		}
	}
	if got := text(of("a in (1,2)").and(of("a in (2,3),b notin (1)")).and(of("b notin (2)"))); got != "a in (2),b notin (1,2)" {
		t.Errorf("and: %s", got)
	}
}
