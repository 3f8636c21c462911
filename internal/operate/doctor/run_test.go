package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

// examine runs the doctor against an API server that answers /version, and asks handle
// for the rest.
func examine(t *testing.T, o Options, handle http.HandlerFunc) Report {
	t.Helper()
	config := &rest.Config{Host: "http://server", QPS: -1, Transport: answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/version" {
			fmt.Fprint(w, `{"gitVersion": "v1.37.1"}`)
			return
		}
		handle(w, r)
	})}
	var err error
	if o.Kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if o.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return Run(t.Context(), o)
}

// answering is a server without a network, so that a test may have the clock of synctest. It
// stops waiting for its handler when the client does.
type answering http.HandlerFunc

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		a(w, r)
	}()
	select {
	case <-done:
		return w.Result(), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func marks(r Report, m Mark) (checks []string) {
	for _, l := range r.Lines {
		if l.Mark == m {
			checks = append(checks, l.Check)
		}
	}
	return checks
}

// Checks of what this user may not read are Unknown, neither OK nor Bad.
func TestRunWithoutRights(t *testing.T) {
	r := examine(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"%s is forbidden: User \"nobody\" cannot create resource"}`, r.URL.Path)
	})
	if r.OK || !r.Reached {
		t.Errorf("OK %t, reached %t", r.OK, r.Reached)
	}
	if bad := marks(r, Bad); bad != nil {
		t.Errorf("broken: %q", bad)
	}
	unknown := marks(r, Unknown)
	for _, check := range []string{"native policies", "Deployment", "mutating webhook", "validating webhook", "certificate", "installed objects", mutatorsCheck} {
		if !slices.Contains(unknown, check) {
			t.Errorf("%s is not among what is not known: %q", check, unknown)
		}
	}
	for _, l := range r.Lines {
		if l.Mark == Unknown && !strings.Contains(l.Advice, "needs: ") {
			t.Errorf("no missing permission in %+v", l)
		}
	}
}

// A request without an answer leaves time for the other checks, and its check is not Bad.
func TestRunWithoutAnswers(t *testing.T) { synctest.Test(t, testRunWithoutAnswers) }

func testRunWithoutAnswers(t *testing.T) {
	const each = 200 * time.Millisecond
	silent := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/metrics"), r.Method == http.MethodPost:
			<-r.Context().Done() // longer than the client waits
		case strings.HasSuffix(r.URL.Path, "/mutatingadmissionpolicies"), strings.HasSuffix(r.URL.Path, "/mutatingadmissionpolicybindings"):
			fmt.Fprint(w, `{"kind":"List","items":[]}`)
		case strings.HasSuffix(r.URL.Path, "/deployments/mapd"):
			fmt.Fprint(w, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"mapd"},"spec":{"replicas":1},"status":{"observedGeneration":1,"readyReplicas":1}}`)
		case r.URL.Path == "/apis/admissionregistration.k8s.io/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","resources":[{"name":"mutatingadmissionpolicies","kind":"MutatingAdmissionPolicy"}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		}
	}
	r := examine(t, Options{Each: each}, silent)
	for _, check := range []string{"native policies", probeCheck, "senders of reviews", "memory of reviews"} {
		if !slices.ContainsFunc(r.Lines, func(l Line) bool {
			return l.Check == check && l.Mark == Unknown && strings.Contains(l.Fact, "no answer in time")
		}) {
			t.Errorf("%s: %+v", check, r.Lines)
		}
	}
	if bad := marks(r, Bad); !slices.Equal(bad, []string{crdCheck, "validating webhook"}) {
		t.Errorf("broken: %q", bad)
	}
}

// Checks for which no time was left are named.
func TestRunOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		x := &examination{Options: Options{Each: 10 * time.Second}}
		var ran []string
		wait := func(name string) step {
			return step{name, func(ctx context.Context) { <-ctx.Done(); ran = append(ran, name) }}
		}
		start := time.Now()
		x.each(ctx, wait("a"), wait("b"), wait("c"), wait("d"))
		if time.Since(start) != 15*time.Second || !slices.Equal(ran, []string{"a", "b"}) || !slices.Equal(x.unasked, []string{"c", "d"}) {
			t.Errorf("ran %q and not %q, after %s", ran, x.unasked, time.Since(start))
		}
	})
}

// A policy whose breaker has tripped needs the entry that mapd moves it to.
func TestEntriesTripped(t *testing.T) {
	object := func(text string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		return u
	}
	p := object(`{"apiVersion": "admissionregistration.mapd.dev/v1", "kind": "MutatingAdmissionPolicy",
		"metadata": {"name": "p", "annotations": {"mapd.dev/breaker": "errors=5%,window=30s"}},
		"spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never",
			"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
			"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}]}}`)
	b := object(`{"apiVersion": "admissionregistration.mapd.dev/v1", "kind": "MutatingAdmissionPolicyBinding",
		"metadata": {"name": "b"}, "spec": {"policyName": "p"}}`)
	names := func() (names []string) {
		o := objects{byName: map[string]int{"p": 0}}
		decoded, err := policy.Decode(p)
		if err != nil {
			t.Fatal(err)
		}
		o.policies = []ownPolicy{{object: p, policy: decoded, bound: true}}
		bound, err := binding.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		o.bindings = []ownBinding{{object: b, binding: bound}}
		entries, _ := o.entries()
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if got := names(); !slices.Equal(got, []string{"fail.never.mapd.dev"}) {
		t.Errorf("before: %q", got)
	}
	trip := breaker.Trip{Digest: breaker.DigestOf(p.Object), Reason: "20 of 20 failed", Time: time.Unix(0, 0)}
	p.Object["status"] = map[string]any{"breaker": trip.Object()}
	if got := names(); !slices.Equal(got, []string{"ignore.never.mapd.dev"}) {
		t.Errorf("tripped: %q", got)
	}
	p.Object["status"] = map[string]any{"breaker": (&breaker.Trip{Digest: "of an older version"}).Object()}
	if got := names(); !slices.Equal(got, []string{"fail.never.mapd.dev"}) {
		t.Errorf("tripped before an edit: %q", got)
	}
}

// mapd that runs as a person exempts that person, and says so.
func TestExemptUser(t *testing.T) {
	for user, want := range map[string]bool{"admin": true, `o'neil\`: true, "system:serviceaccount:mapd-system:mapd": false, "": false} {
		x := &examination{}
		x.mutating = []admissionregistrationv1.MutatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: configurationName},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{MatchConditions: webhookconfig.MatchConditions(user)}},
		}}
		x.exemptUser()
		if said := len(x.lines) == 1 && strings.Contains(x.lines[0].Fact, user); said != want {
			t.Errorf("%q: %+v", user, x.lines)
		}
	}
}
