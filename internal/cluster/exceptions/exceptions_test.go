package exceptions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/fakeapi"
)

// rights are what users may except: "user namespace policy".
type rights map[string]bool

func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "nobody-knows" {
		return authorizer.DecisionNoOpinion, "", errors.New("connection refused")
	}
	policy := a.GetName()
	switch a.GetResource() + "." + a.GetAPIGroup() {
	case "mutatingadmissionpolicies.admissionregistration.mapd.dev":
	case "assign.mutations.gatekeeper.sh", "admissionpolicies.policies.kubewarden.io":
		policy = a.GetResource() + "/" + policy
	default:
		return authorizer.DecisionDeny, "", nil
	}
	if a.GetVerb() == "except" && r[a.GetUser().GetName()+" "+a.GetNamespace()+" "+policy] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// own are the policies p and q, and the binding b.
type own struct{ feature.Own }

func (own) Each(f func(*unstructured.Unstructured, []byte)) (served, read bool) {
	for kind, names := range map[string][]string{api.PolicyKind: {"p", "q"}, api.BindingKind: {"b"}} {
		for _, name := range names {
			u := &unstructured.Unstructured{}
			u.SetKind(kind)
			u.SetName(name)
			f(u, nil)
		}
	}
	return true, true
}

// start returns a Feature on a server, which has exceptions that a mirror has read.
func start(t *testing.T, s *fakeapi.Server, o Options) *Feature {
	t.Helper()
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	f := New(o)
	d := featuretest.Deps(t)
	d.Client, d.Authorizer, d.Own = client, authorizer.AuthorizerFunc(rights{"alice shop p": true, "alice shop q": true, "bob other p": true, "carol shop assign/p": true, "carol shop admissionpolicies/g": true}.Authorize), own{d.Own}
	f.Start(d)
	f.mirror.SetServed(true)
	return f
}

func written(t *testing.T, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return featuretest.Parse(t, fmt.Sprintf(`{apiVersion: mapd.dev/v1alpha1, kind: PolicyException, metadata: {name: %s, namespace: %s, uid: %s-%s, generation: 1, resourceVersion: "1"}, spec: {%s}}`, name, namespace, namespace, name, spec))
}

func request(user string, u *unstructured.Unstructured) *policy.Request {
	return &policy.Request{
		Kind: u.GroupVersionKind(), Resource: api.Exceptions, Name: u.GetName(), Namespace: u.GetNamespace(), Operation: admissionv1.Create,
		Object: u, UserInfo: authenticationv1.UserInfo{Username: user},
	}
}

const until = `, reason: r, until: "2999-01-31T00:00:00Z"`

// Who may write an exception.
func TestAdmit(t *testing.T) {
	f := start(t, &fakeapi.Server{}, Options{Own: "mapd"})
	master := request("root", written(t, "shop", "x", "policies: [p, q, other]"+until))
	master.UserInfo.Groups = []string{"system:masters"}
	status := func(user, allowed string) *policy.Request {
		u := written(t, "shop", "x", "policies: [p]"+until)
		req := request(user, u)
		req.Operation, req.SubResource, req.OldObject = admissionv1.Update, "status", u.DeepCopy()
		u.Object["status"] = map[string]any{"observedGeneration": int64(1), "allowed": map[string]any{"digest": allowed}}
		return req
	}
	same := status("alice", "x")
	same.OldObject = same.Object.DeepCopy()
	for name, tt := range map[string]struct {
		req  *policy.Request
		code int32
		want string
	}{
		"allowed in the namespace":        {request("alice", written(t, "shop", "x", "policies: [p, q]"+until)), 0, ""},
		"a cluster administrator":         {master, 0, ""},
		"one policy more":                 {request("alice", written(t, "shop", "x", "policies: [p, q, other]"+until)), 403, `user "alice" must have the verb "except" on mutatingadmissionpolicies "other" of admissionregistration.mapd.dev in namespace "shop"`},
		"allowed in another namespace":    {request("bob", written(t, "shop", "x", "policies: [p]"+until)), 403, `user "bob" must have the verb "except"`},
		"for all namespaces":              {request("alice", written(t, "mapd-system", "x", "policies: [p]"+until)), 403, `in namespace "mapd-system"`},
		"the check cannot be made":        {request("nobody-knows", written(t, "shop", "x", "policies: [p]"+until)), 403, `whether user "nobody-knows" may "except" policy "p" is not known: the access check was not answered`},
		"a mutator and a module policy":   {request("carol", written(t, "shop", "x", "policies: [Assign/p, AdmissionPolicy/g]"+until)), 0, ""},
		"a mutator of the name":           {request("alice", written(t, "shop", "x", "policies: [Assign/p]"+until)), 403, `user "alice" must have the verb "except" on assign "p" of mutations.gatekeeper.sh in namespace "shop"`},
		"a policy of a mutator's name":    {request("carol", written(t, "shop", "x", "policies: [p]"+until)), 403, `on mutatingadmissionpolicies "p"`},
		"another kind of the name":        {request("carol", written(t, "shop", "x", "policies: [ModifySet/p]"+until)), 403, `on modifyset "p" of mutations.gatekeeper.sh`},
		"a policy of Kyverno":             {request("root", written(t, "shop", "x", "policies: [ClusterPolicy/p]"+until)), 422, "Kyverno runs its policies itself"},
		"without an end":                  {request("alice", written(t, "shop", "x", "policies: [p], reason: r")), 422, "spec.until: Required value"},
		"a field that is unknown":         {request("alice", written(t, "shop", "x", "policies: [p], untill: x"+until)), 400, `unknown field "spec.untill"`},
		"a status that says who may":      {status("alice", "x"), 403, "only mapd writes status.allowed"},
		"the same status":                 {same, 0, ""},
		"mapd's own status":               {status("mapd", "x"), 0, ""},
		"another namespace in the object": {request("alice", written(t, "shop", "x", "policies: [p], namespaces: [other]"+until)), 422, "spec.namespaces: Forbidden"},
	} {
		d := f.Admit(t.Context(), tt.req)
		switch {
		case d.Object != tt.req.Object || d.Changed:
			t.Errorf("%s: the object is changed", name)
		case tt.code == 0 && d.Status != nil, tt.code != 0 && (d.Status == nil || d.Status.Code != tt.code || !strings.Contains(d.Status.Message, tt.want)):
			t.Errorf("%s: %+v", name, d.Status)
		}
	}
	entries := (&State{served: true}).Entries(true, admissionregistrationv1.MutatingWebhook{NamespaceSelector: nil})
	if len(entries) != 1 || *entries[0].FailurePolicy != admissionregistrationv1.Fail || len((&State{}).Entries(true, entries[0]))+len((&State{served: true}).Entries(false, entries[0])) != 0 {
		t.Errorf("entries %+v", entries)
	}
}

// What the status says at a time.
func TestConditions(t *testing.T) {
	f := start(t, &fakeapi.Server{}, Options{})
	allowed := func(u *unstructured.Unstructured) *unstructured.Unstructured {
		o, err := f.decode(u.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		u.Object["status"] = map[string]any{"allowed": map[string]any{"digest": o.Spec.Digest(), "user": "alice"}}
		return u
	}
	const dates = `, reason: r, owner: payments, from: "2027-01-01T00:00:00Z", until: "2027-01-31T00:00:00Z"`
	featuretest.Put(t, f.mirror,
		allowed(written(t, "shop", "a", "policies: [p]"+dates)), written(t, "shop", "b", "policies: [p]"+dates), allowed(written(t, "shop", "c", "policies: [nope]"+dates)),
		allowed(written(t, "shop", "d", "policies: [p, nope], bindings: [none]"+dates)), allowed(written(t, "shop", "e", "policies: [p], reason: r")),
		allowed(written(t, "other", "a", "policies: [p]"+dates)),
	)
	if f.Ready() == nil {
		t.Error("ready before anything is published")
	}
	if !f.Update(t.Context(), false) || f.Update(t.Context(), false) {
		t.Error("what is new")
	}
	if err := f.Ready(); err != nil {
		t.Error(err)
	}
	at := func(text string) map[string]string {
		now, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, s := range *f.states.Load() {
			list, next := s.conditions(now)
			said := fmt.Sprintf("%s %s", list[0].Reason, next.UTC().Format(time.DateOnly))
			if meta.IsStatusConditionTrue(list, typeEnding) {
				said += " ending"
			}
			out[s.Object.GetNamespace()+"/"+s.Object.GetName()] = said
		}
		return out
	}
	for _, tt := range []struct {
		now, holds, ending string
		next               string
	}{
		{"2026-12-31T23:59:59Z", "NotYet", "", "2027-01-01"}, {"2027-01-01T00:00:00Z", "Active", "", "2027-01-24"}, {"2027-01-24T00:00:00Z", "Active", " ending", "2027-01-31"},
		{"2027-01-31T00:00:00Z", "Ended", "", "0001-01-01"},
	} {
		want := map[string]string{
			"shop/a": tt.holds + " " + tt.next + tt.ending, "other/a": tt.holds + " " + tt.next + tt.ending, "shop/d": tt.holds + " " + tt.next + tt.ending,
			"shop/b": "NotAllowed " + tt.next, "shop/e": "Invalid 0001-01-01", "shop/c": strings.Replace(tt.holds, "Active", "NoSuchPolicy", 1) + " " + tt.next,
		}
		if diff := cmp.Diff(want, at(tt.now)); diff != "" {
			t.Errorf("at %s (-want +got):\n%s", tt.now, diff)
		}
	}
	// More than there may be of one namespace: the later ones do not hold.
	var many []*unstructured.Unstructured
	for i := range binding.MaxExceptionsOfNamespace + 2 {
		u := written(t, "shop", fmt.Sprintf("x%03d", i), "policies: [p]"+until)
		u.SetResourceVersion(fmt.Sprint(i + 2))
		many = append(many, allowed(u))
	}
	featuretest.Put(t, f.mirror, many...)
	f.Update(t.Context(), false)
	if got := at("2027-01-01T00:00:00Z"); got["shop/x199"] != "Active 2999-01-24" || got["shop/x200"] != "TooMany 2999-01-24" || got["shop/x201"] != "TooMany 2999-01-24" {
		t.Errorf("too many: %s %s %s", got["shop/x199"], got["shop/x200"], got["shop/x201"])
	}
}

// An exception holds once its status says that its writer may write it, which the replica that
// was asked writes; its status follows the clock, and one event says that it ends.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeapi.Server{}
		f := start(t, s, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		u := written(t, "shop", "x", "policies: [p], owner: payments, reason: r, until: "+fmt.Sprintf("%q", time.Now().Add(8*24*time.Hour).UTC().Format(time.RFC3339)))
		read := func() {
			t.Helper()
			stored := s.Get(api.Exceptions, "shop", "x")
			featuretest.Put(t, f.mirror, stored)
			f.Update(ctx, false)
		}
		s.Put(api.Exceptions, "shop", "x", u.Object)
		read()
		go f.writeAllowed(ctx)
		go f.Control(ctx, nil)
		reason := func() string {
			time.Sleep(time.Minute)
			synctest.Wait()
			read()
			time.Sleep(time.Minute)
			synctest.Wait()
			o, err := f.decode(s.Get(api.Exceptions, "shop", "x"))
			if err != nil {
				t.Fatal(err)
			}
			list, _, _ := unstructured.NestedSlice(map[string]any{"status": o.Status}, "status", "conditions")
			for _, c := range list {
				if c := c.(map[string]any); c["type"] == api.ExceptionActive {
					return fmt.Sprint(c["reason"])
				}
			}
			return ""
		}
		events := func() int { return len(s.List(events)) }
		if got := reason(); got != reasonNotAllowed || f.Exceptions() != nil {
			t.Errorf("nobody was asked: %s", got)
		}
		if d := f.Admit(ctx, request("alice", u)); d.Status != nil {
			t.Fatal(d.Status)
		}
		read() // the write that was allowed
		f.changed.Notify()
		if got := reason(); got != reasonActive || f.Exceptions() == nil {
			t.Errorf("allowed: %s", got)
		}
		if n := events(); n != 0 {
			t.Errorf("%d events before the last week", n)
		}
		time.Sleep(24 * time.Hour)
		if got := reason(); got != reasonActive || events() != 1 {
			t.Errorf("in the last week: %s, %d events", got, events())
		}
		time.Sleep(24 * time.Hour)
		if got := reason(); got != reasonActive || events() != 1 {
			t.Errorf("later: %s, %d events", got, events())
		}
		time.Sleep(6 * 24 * time.Hour)
		if got := reason(); got != reasonEnded || events() != 1 {
			t.Errorf("at the end: %s, %d events", got, events())
		}
		cancel()
		synctest.Wait()
	})
}

// A tenant that writes and deletes exceptions without an end loses notes of his own only, be it
// in one namespace or in as many as he has.
func TestAllowedAreBounded(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	f := start(t, &fakeapi.Server{}, Options{Own: "mapd"})
	f.now = func() time.Time { now = now.Add(time.Millisecond); return now }
	note := func(namespace, name string) *object {
		u := written(t, namespace, name, "policies: [p]"+until)
		o, err := f.decode(u)
		if err != nil {
			t.Fatal(err)
		}
		f.note(request("alice", u), o)
		return o
	}
	known := func(o *object) bool {
		_, who, ok := f.allowed.get(o, now)
		return ok && who == "alice"
	}
	victim := note("victim", "x")
	var first, last *object
	for i := range 3 * maxAllowedOf {
		if o := note("attacker", fmt.Sprintf("x%d", i)); i == 0 {
			first = o
		} else {
			last = o
		}
	}
	if !known(victim) || !known(last) || known(first) || f.allowed.count != maxAllowedOf+1 || len(f.allowed.users["attacker"]) != maxAllowedOf {
		t.Errorf("after one namespace: victim %t, last %t, first %t, %d notes", known(victim), known(last), known(first), f.allowed.count)
	}
	for i := range 2 * maxAllowed / 100 {
		for k := range 100 {
			f.allowed.add(allowedKey{fmt.Sprintf("attacker-%d", i), fmt.Sprint(k), ""}, allowedUser{"mallory", now})
		}
	}
	total := 0
	for _, of := range f.allowed.users {
		total += len(of)
	}
	if late := note("late", "x"); !known(victim) || !known(late) || f.allowed.count != maxAllowed || total != maxAllowed {
		t.Errorf("after many namespaces: victim %t, late %t, %d notes, counted %d", known(victim), known(late), total, f.allowed.count)
	}
	f.allowed.forget(allowedKey{"victim", "x", victim.Spec.Digest()})
	f.allowed.forget(allowedKey{"victim", "x", victim.Spec.Digest()})
	if known(victim) || f.allowed.count != maxAllowed-1 {
		t.Errorf("forgotten: %t, %d notes", known(victim), f.allowed.count)
	}
	note("late", "y") // there are maxAllowed again
	now = now.Add(allowedFor + time.Second)
	if o := note("late", "z"); !known(o) || f.allowed.count != 1 {
		t.Errorf("later than anything is remembered: %t, %d notes", known(o), f.allowed.count)
	}
}
