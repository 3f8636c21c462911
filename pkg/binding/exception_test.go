package binding

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// except returns an exception from policy p.
func except(t testing.TB, name string, change func(*api.ExceptionSpec)) *Exception {
	t.Helper()
	namespace, name, _ := strings.Cut(name, "/")
	obj := &api.PolicyException{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: api.ExceptionSpec{Policies: []string{"p"}, Reason: "r", Until: "2027-01-31T00:00:00Z"}}
	if change != nil {
		change(&obj.Spec)
	}
	api.SetMatchDefaults(obj.Spec.Match)
	x, err := CompileException(obj, api.ExceptionRules{Endless: true})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// excepting are the Sources of exceptions that end by a clock.
func excepting(now func() time.Time, list ...*Exception) Sources {
	xs, _ := NewExceptions(list, now)
	return Sources{Namespaces: namespaces{"shop": {"team", "a"}, "t1": {}}, Exceptions: func() *Exceptions { return xs }}
}

// leftOut are the exceptions that hold for a request, as policy/binding: exception.
func leftOut(t testing.TB, ix *Index, req *policy.Request) string {
	var s Selection
	ix.SelectInto(&s, t.Context(), req, req.Object)
	var out []string
	for _, o := range s.LeftOut {
		out = append(out, o.Policy+"/"+o.Binding+": "+o.Exception.Name())
	}
	var misses []string
	for m := range ix.Misses(t.Context(), req, req.Object) {
		if m.Criterion == Excepted {
			misses = append(misses, m.Policy.Name()+"/"+m.Binding.Name()+": "+m.Exception.Name())
		}
	}
	if !slices.Equal(out, misses) {
		t.Errorf("left out %v, and missed %v", out, misses)
	}
	for _, inv := range s.Invocations {
		out = append(out, inv.Policy.Name()+"/"+inv.Binding)
	}
	return strings.Join(out, ", ")
}

// What an exception is about, and what not.
func TestExceptions(t *testing.T) {
	policies := []*policy.Policy{newPolicy("p", resources(newRule("v1 pods"), newRule("v1 namespaces"))), newPolicy("q", resources(newRule("v1 pods")))}
	bindings := []*Binding{newBinding(t, "b", "p"), newBinding(t, "c", "p"), newBinding(t, "d", "q")}
	const none = "p/b, p/c, q/d"
	req := createPod("shop", "web", "age", "old")
	namespace := createPod("shop", "shop")
	namespace.Resource.Resource, namespace.RequestResource.Resource = "namespaces", "namespaces"
	for name, tt := range map[string]struct {
		exceptions []*Exception
		req        *policy.Request
		want       string
	}{
		"none":                               {nil, req, none},
		"all objects of the namespace":       {[]*Exception{except(t, "shop/x", nil)}, req, "p/b: shop/x, p/c: shop/x, q/d"},
		"the same name in another namespace": {[]*Exception{except(t, "t1/x", nil)}, req, none},
		"both namespaces":                    {[]*Exception{except(t, "t1/x", nil), except(t, "shop/x", nil)}, req, "p/b: shop/x, p/c: shop/x, q/d"},
		"a policy that does not exist":       {[]*Exception{except(t, "shop/x", func(s *api.ExceptionSpec) { s.Policies = []string{"nope"} })}, req, none},
		"one binding":                        {[]*Exception{except(t, "shop/x", func(s *api.ExceptionSpec) { s.Bindings = []string{"c"} })}, req, "p/c: shop/x, p/b, q/d"},
		"another name":                       {[]*Exception{except(t, "shop/x", func(s *api.ExceptionSpec) { s.Names = []string{"old"} })}, req, none},
		"its name":                           {[]*Exception{except(t, "shop/x", func(s *api.ExceptionSpec) { s.Names = []string{"old", "web"} })}, req, "p/b: shop/x, p/c: shop/x, q/d"},
		"its labels": {[]*Exception{except(t, "shop/x", func(s *api.ExceptionSpec) {
			s.Match = &admissionregistrationv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"age": "old"}}}
		})}, req, "p/b: shop/x, p/c: shop/x, q/d"},
		"other labels": {[]*Exception{except(t, "shop/x", func(s *api.ExceptionSpec) {
			s.Match = &admissionregistrationv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"age": "new"}}}
		})}, req, none},
		"another resource":        {[]*Exception{except(t, "shop/x", func(s *api.ExceptionSpec) { s.Match = resources(newRule("v1 nodes")) })}, req, none},
		"its resource":            {[]*Exception{except(t, "shop/x", func(s *api.ExceptionSpec) { s.Match = resources(newRule("v1 pods")) })}, req, "p/b: shop/x, p/c: shop/x, q/d"},
		"a tenant's Namespace":    {[]*Exception{except(t, "shop/x", nil)}, namespace, "p/b, p/c"},
		"the whole cluster":       {[]*Exception{except(t, "mapd-system/x", nil)}, namespace, "p/b: mapd-system/x, p/c: mapd-system/x"},
		"namespaces by name":      {[]*Exception{except(t, "mapd-system/x", func(s *api.ExceptionSpec) { s.Namespaces = []string{"t1"} })}, req, none},
		"namespaces by label":     {[]*Exception{except(t, "mapd-system/x", func(s *api.ExceptionSpec) { s.Match = inNamespace(resources(), "team", "a") })}, req, "p/b: mapd-system/x, p/c: mapd-system/x, q/d"},
		"a Namespace that is not": {[]*Exception{except(t, "mapd-system/x", func(s *api.ExceptionSpec) { s.Match = inNamespace(resources(), "team", "a") })}, createPod("gone", "web"), none},
		"the one that ends last counts": {[]*Exception{
			except(t, "shop/a", nil), except(t, "shop/b", func(s *api.ExceptionSpec) { s.Until = "2027-02-01T00:00:00Z" }), except(t, "mapd-system/c", func(s *api.ExceptionSpec) { s.Until = "2027-01-31T00:30:00+01:00" }),
		}, req, "p/b: shop/b, p/c: shop/b, q/d"},
		"without an end is the last": {[]*Exception{
			except(t, "shop/b", nil), except(t, "mapd-system/c", func(s *api.ExceptionSpec) { s.Until = "" }),
		}, req, "p/b: mapd-system/c, p/c: mapd-system/c, q/d"},
	} {
		now := func() time.Time { return time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) }
		if got := leftOut(t, mustIndex(t, policies, bindings, excepting(now, tt.exceptions...)), tt.req); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// An exception begins and ends by the clock, whichever zone its times are in, also by one that
// jumps. Overlapping ones end together with the last.
func TestExceptionsEnd(t *testing.T) {
	policies, bindings := []*policy.Policy{newPolicy("p", resources(newRule("v1 pods")))}, []*Binding{newBinding(t, "b", "p")}
	list := []*Exception{
		except(t, "shop/first", func(s *api.ExceptionSpec) { s.From, s.Until = "2027-01-01T00:00:00Z", "2027-01-31T00:00:00+02:00" }),
		except(t, "shop/second", func(s *api.ExceptionSpec) { s.From, s.Until = "2027-01-20T00:00:00-05:00", "2027-02-10T12:00:00.5Z" }),
		except(t, "shop/past", func(s *api.ExceptionSpec) { s.Until = "1999-12-31T00:00:00Z" }),
	}
	var now time.Time
	ix := mustIndex(t, policies, bindings, excepting(func() time.Time { return now }, list...))
	at := func(text string) time.Time {
		t.Helper()
		out, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, step := range []struct{ now, want string }{
		{"2026-12-31T23:59:59Z", "p/b"},
		{"2027-01-01T00:00:00Z", "p/b: shop/first"},
		{"2027-01-20T04:59:59Z", "p/b: shop/first"},
		{"2027-01-20T05:00:00Z", "p/b: shop/second"},
		{"2027-01-30T22:00:00Z", "p/b: shop/second"}, // the first has ended
		{"2027-02-10T12:00:00Z", "p/b: shop/second"},
		{"2027-02-10T13:00:01+01:00", "p/b"},
		{"2027-01-10T00:00:00Z", "p/b: shop/first"}, // the clock was put back
		{"2099-01-01T00:00:00Z", "p/b"},
	} {
		now = at(step.now)
		if got := leftOut(t, ix, createPod("shop", "web")); got != step.want {
			t.Errorf("at %s: %s, want %s", step.now, got, step.want)
		}
		req := createPod("shop", "web") // that says itself when it was made
		req.Time, now = now, time.Time{}
		if got := leftOut(t, ix, req); got != step.want {
			t.Errorf("a request of %s: %s, want %s", step.now, got, step.want)
		}
	}
	// Between its rounds a request does not lose its exception.
	now = at("2027-02-10T12:00:00Z")
	var s Selection
	req := createPod("shop", "web")
	ix.SelectInto(&s, t.Context(), req, req.Object)
	now = at("2027-03-01T00:00:00Z")
	if ix.SelectInto(&s, t.Context(), req, req.Object); len(s.LeftOut) != 1 {
		t.Errorf("the second round runs %v", describe(s.Invocations))
	}
	if ix.SelectInto(&s, t.Context(), createPod("shop", "web"), req.Object); len(s.LeftOut) != 0 {
		t.Errorf("the next request is excepted: %v", s.LeftOut)
	}
}

// Nothing has to be published for an exception to end.
func TestExceptionsEndByThemselves(t *testing.T) {
	policies, bindings := []*policy.Policy{newPolicy("p", resources(newRule("v1 pods")))}, []*Binding{newBinding(t, "b", "p")}
	synctest.Test(t, func(t *testing.T) {
		ix := mustIndex(t, policies, bindings, excepting(time.Now, except(t, "shop/x", func(s *api.ExceptionSpec) { s.Until = time.Now().Add(time.Hour).Format(time.RFC3339) })))
		time.Sleep(time.Hour - time.Nanosecond)
		if got := leftOut(t, ix, createPod("shop", "web")); got != "p/b: shop/x" {
			t.Errorf("before its end: %s", got)
		}
		time.Sleep(time.Nanosecond)
		if got := leftOut(t, ix, createPod("shop", "web")); got != "p/b" {
			t.Errorf("at its end: %s", got)
		}
	})
}

// An error of a policy, such as an unknown paramKind, does not reach what is excepted from it.
func TestExceptionsFromErrors(t *testing.T) {
	p := newPolicy("p", resources(newRule("v1 pods")), withParams(schema.GroupVersionKind{Group: "none", Version: "v1", Kind: "None"}))
	now := func() time.Time { return time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) }
	one := func(s *api.ExceptionSpec) { s.Bindings = []string{"b"} }
	for _, tt := range []struct {
		exceptions []*Exception
		want       int
	}{{nil, 1}, {[]*Exception{except(t, "shop/x", nil)}, 0}, {[]*Exception{except(t, "shop/x", one)}, 1}, {[]*Exception{except(t, "t1/x", nil)}, 1}} {
		ix := mustIndex(t, []*policy.Policy{p}, []*Binding{newBinding(t, "b", "p"), newBinding(t, "c", "p")}, excepting(now, tt.exceptions...))
		if got := ix.Select(t.Context(), createPod("shop", "web")); len(got) != tt.want {
			t.Errorf("%v: %v", tt.exceptions, describe(got))
		}
	}
}

// A tenant may write as many exceptions as a server takes, as wide as mapd takes them: they
// cost requests of his namespace a bounded time, and those of others nothing.
func TestManyExceptions(t *testing.T) {
	policies, bindings := []*policy.Policy{newPolicy("p", resources(newRule("v1 pods")))}, []*Binding{newBinding(t, "b", "p")}
	wide := func(i int) func(*api.ExceptionSpec) {
		return func(s *api.ExceptionSpec) {
			m := resources()
			for r := range 16 {
				rule := newRule(fmt.Sprintf("v1 r%dx%d", i, r))
				for k := range 31 {
					rule.Resources = append(rule.Resources, fmt.Sprintf("r%dx%dx%d", i, r, k))
				}
				m.ResourceRules = append(m.ResourceRules, rule)
			}
			m.ResourceRules[15].Resources[31] = "pods"
			m.ObjectSelector = &metav1.LabelSelector{}
			for k := range 32 {
				r := metav1.LabelSelectorRequirement{Key: fmt.Sprint("k", k), Operator: metav1.LabelSelectorOpNotIn}
				for v := range 64 {
					r.Values = append(r.Values, fmt.Sprint("v", v))
				}
				m.ObjectSelector.MatchExpressions = append(m.ObjectSelector.MatchExpressions, r)
			}
			m.ObjectSelector.MatchExpressions[31].Operator = metav1.LabelSelectorOpIn
			s.Match = m
		}
	}
	var list []*Exception
	for i := range 2 * MaxExceptionsOfNamespace {
		list = append(list, except(t, fmt.Sprintf("shop/%d", i), wide(i)))
	}
	for i := len(list); i < 12_000; i++ {
		list = append(list, except(t, fmt.Sprintf("n%d/%d", i/100, i), nil))
	}
	now := func() time.Time { return time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) }
	xs, tooMany := NewExceptions(list, now)
	if len(tooMany) != len(list)-MaxExceptions || tooMany[0].Name() != fmt.Sprint("shop/", MaxExceptionsOfNamespace) {
		t.Errorf("%d are too many, the first is %s", len(tooMany), tooMany[0].Name())
	}
	src := Sources{Namespaces: namespaces{}, Exceptions: func() *Exceptions { return xs }}
	ix, without := mustIndex(t, policies, bindings, src), mustIndex(t, policies, bindings, Sources{})
	req := createPod("shop", "web")
	took := func(ix *Index, req *policy.Request) time.Duration {
		var s Selection
		least := time.Hour
		for range 5 {
			start := time.Now()
			ix.SelectInto(&s, t.Context(), req, req.Object)
			least = min(least, time.Since(start))
			s.Reset()
		}
		return least
	}
	if d := took(ix, req); d > 50*time.Millisecond {
		t.Errorf("a request of the namespace takes %v", d)
	}
	other := createPod("t1", "web")
	var s Selection
	count := func(ix *Index) float64 {
		return hammer.Allocs(t, func() { ix.SelectInto(&s, t.Context(), other, other.Object) })
	}
	if with, without := count(ix), count(without); with > without {
		t.Errorf("a request of another namespace allocates %v times, and %v without exceptions", with, without)
	}
}

// What exceptions call a policy is theirs: one of another kind has other exceptions.
func TestExceptionsFromOthers(t *testing.T) {
	policies, bindings := []*policy.Policy{newPolicy("p", resources(newRule("v1 pods")))}, []*Binding{newBinding(t, "b", "p")}
	src := excepting(time.Now, except(t, "shop/module", func(s *api.ExceptionSpec) {
		s.Policies, s.Until = []string{"ClusterAdmissionPolicy/q"}, "2999-01-31T00:00:00Z"
	}),
		except(t, "shop/mutator", func(s *api.ExceptionSpec) {
			s.Policies, s.Until, s.Names = []string{"Assign/p"}, "2999-01-31T00:00:00Z", []string{"web"}
		}))
	if got := leftOut(t, mustIndex(t, policies, bindings, src), createPod("shop", "web")); got != "p/b" {
		t.Errorf("a policy of mapd: %s", got)
	}
	for _, tt := range []struct{ namespace, name, policy, want string }{
		{"shop", "web", "Assign/p", "shop/mutator"}, {"shop", "old", "Assign/p", ""}, {"t1", "web", "Assign/p", ""}, {"shop", "web", "p", ""},
	} {
		req, got := createPod(tt.namespace, tt.name), ""
		if x := src.Excepting(t.Context(), req, req.Object).From(tt.policy); x != nil {
			got = x.Name()
		}
		if got != tt.want {
			t.Errorf("%v: %q", tt, got)
		}
	}
	src.Excepted = func(policy string) string { return "ClusterAdmissionPolicy/q" }
	if got := leftOut(t, mustIndex(t, policies, bindings, src), createPod("shop", "web")); got != "p/b: shop/module" {
		t.Errorf("a policy that exceptions call otherwise: %s", got)
	}
	var none *Sources
	if none.Excepting(t.Context(), createPod("shop", "web"), nil).From("p") != nil {
		t.Error("an exception without Sources")
	}
}

// A policy that has a namespace is there for exceptions of that namespace, and for those for all.
func TestKnown(t *testing.T) {
	var known Known
	known.Add(schema.GroupVersionKind{Group: api.OwnGroup, Kind: api.PolicyKind}, "", "p")
	known.Add(schema.GroupVersionKind{Group: api.OwnGroup, Kind: api.BindingKind}, "", "b")
	known.Add(schema.GroupVersionKind{Group: "policies.kubewarden.io", Kind: "AdmissionPolicy"}, "shop", "g")
	known.Add(schema.GroupVersionKind{Group: "example.com", Kind: "Assign"}, "", "other")
	known.Add(schema.GroupVersionKind{Kind: "Pod"}, "shop", "pod")
	for exception, want := range map[string]string{
		"shop/x":        "[policy Assign/other] false",
		"t1/x":          "[policy AdmissionPolicy/g policy Assign/other] false",
		"mapd-system/x": "[policy Assign/other] false",
	} {
		x := except(t, exception, func(s *api.ExceptionSpec) { s.Policies = []string{"p", "AdmissionPolicy/g", "Assign/other"} })
		if missing, nothing := known.Unknown(x); fmt.Sprint(missing, nothing) != want {
			t.Errorf("%s: %v %t, want %s", exception, missing, nothing, want)
		}
	}
	x := except(t, "shop/x", func(s *api.ExceptionSpec) { s.Policies, s.Bindings = []string{"pod"}, []string{"b", "c"} })
	if missing, nothing := known.Unknown(x); fmt.Sprint(missing, nothing) != "[policy pod binding c] true" {
		t.Errorf("bindings: %v %t", missing, nothing)
	}
}

// Last is the exception of each policy that ends last, while it has not ended.
func TestLastExceptions(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2027, 1, n, 0, 0, 0, 0, time.UTC) }
	xs, _ := NewExceptions([]*Exception{
		except(t, "shop/a", func(s *api.ExceptionSpec) { s.Until = "2027-01-10T00:00:00Z" }), except(t, "t1/b", func(s *api.ExceptionSpec) { s.Until = "2027-01-20T00:00:00Z" }),
		except(t, "shop/q", func(s *api.ExceptionSpec) { s.Policies, s.Until = []string{"q"}, "2027-01-15T00:00:00Z" }),
		except(t, "shop/r", func(s *api.ExceptionSpec) { s.Policies, s.Until = []string{"r"}, "" }),
	}, time.Now)
	for _, tt := range []struct {
		day, next int
		want      string
	}{{1, 15, "p t1/b, q shop/q, r shop/r"}, {15, 20, "p t1/b, r shop/r"}, {20, 0, "r shop/r"}} {
		of, next := xs.Last(day(tt.day))
		var got []string
		for _, policy := range slices.Sorted(maps.Keys(of)) {
			got = append(got, policy+" "+of[policy].Name())
		}
		if strings.Join(got, ", ") != tt.want || tt.next == 0 && !next.IsZero() || tt.next > 0 && !next.Equal(day(tt.next)) {
			t.Errorf("on day %d: %v, next %v", tt.day, got, next)
		}
	}
	if of, next := (*Exceptions)(nil).Last(day(1)); len(of) > 0 || !next.IsZero() {
		t.Errorf("without exceptions: %v, %v", of, next)
	}
}
