package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/operate/audit"
)

// Objects that would differ from Git are taken from the server's last audit, or else from a sample.
func TestDrift(t *testing.T) {
	report := func(drift map[string]int, kinds ...audit.KindTotal) *audit.Report {
		r := &audit.Report{}
		r.Objects, r.Drift, r.Kinds = 7, drift, kinds
		return r
	}
	data := func(r *audit.Report) map[string]string {
		return (&audit.Finished{Report: r, Ended: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: time.Second}).Data()
	}
	shop := map[string]int{"Argo CD Application shop": 2, "Flux HelmRelease prod/web": 1}
	failing := report(nil)
	failing.Failed, failing.Unread = 2, 1
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", nil)
	for _, tt := range []struct {
		name      string
		data      map[string]string // of the ConfigMap; nil: there is none
		sample    *audit.Report
		err       error
		unbound   bool
		forbidden bool // to read the ConfigMap
		want      []string
	}{
		{name: "audited", data: data(report(shop)), want: []string{
			"warning 3 objects that would change would differ from Git: Argo CD Application shop (2), Flux HelmRelease prod/web (1) (the last audit of mapd serve: 2026-01-02T03:04:05Z, after 1s: 7 objects"}},
		{name: "audited without drift", data: data(report(nil)), sample: report(shop), want: []string{
			"ok none that Argo CD or Flux applies would differ from it (the last audit of mapd serve: 2026-01-02T03:04:05Z"}},
		{name: "sampled", sample: report(shop), want: []string{
			"warning 3 objects that would change would differ from Git: Argo CD Application shop (2), Flux HelmRelease prod/web (1) (a sample of 7 objects, at most 100 of each kind; mapd audit has all)"}},
		{name: "sampled without drift", sample: report(nil), want: []string{"ok none that Argo CD or Flux applies would differ from it (a sample of 7 objects"}},
		{name: "policies fail", sample: failing, want: []string{
			"ok none that Argo CD or Flux applies would differ from it (a sample of 7 objects, at most 100 of each kind; policies fail for 3 of them; mapd audit has all)"}},
		{name: "a kind is not read", sample: report(nil, audit.KindTotal{Resource: "secrets", Unreadable: "forbidden"}), want: []string{
			"unknown not all known: this user could not list secrets"}},
		{name: "a kind is not read, others drift", sample: report(shop, audit.KindTotal{Resource: "secrets", Unreadable: "forbidden"}), want: []string{
			"unknown not all known: this user could not list secrets", "warning 3 objects"}},
		{name: "no right to sample", err: fmt.Errorf("list namespaces: %w", forbidden), want: []string{"unknown not known: this user may not list policies and what they match"}},
		{name: "no time to sample", err: context.DeadlineExceeded, want: []string{"unknown not known: list policies and what they match: no answer in time"}},
		{name: "no policy", unbound: true, sample: report(shop)},
		{name: "nothing takes samples"},
		{name: "no right to the ConfigMap", forbidden: true, sample: report(shop), want: []string{"unknown not known: this user may not get configmap mapd-audit in mapd-system"}},
	} {
		o := Options{}
		if tt.sample != nil || tt.err != nil {
			o.Sample = func(context.Context) (*audit.Report, error) { return tt.sample, tt.err }
		}
		r := examine(t, o, func(w http.ResponseWriter, r *http.Request) {
			own := "/apis/admissionregistration.mapd.dev/v1"
			switch {
			case r.URL.Path == own:
				fmt.Fprint(w, `{"kind":"APIResourceList","resources":[{"name":"mutatingadmissionpolicies","kind":"MutatingAdmissionPolicy"},{"name":"mutatingadmissionpolicybindings","kind":"MutatingAdmissionPolicyBinding"}]}`)
			case r.URL.Path == own+"/mutatingadmissionpolicies":
				fmt.Fprint(w, `{"kind":"List","items":[{"apiVersion":"admissionregistration.mapd.dev/v1","kind":"MutatingAdmissionPolicy","metadata":{"name":"p"},"spec":{}}]}`)
			case r.URL.Path == own+"/mutatingadmissionpolicybindings" && !tt.unbound:
				fmt.Fprint(w, `{"kind":"List","items":[{"apiVersion":"admissionregistration.mapd.dev/v1","kind":"MutatingAdmissionPolicyBinding","metadata":{"name":"p"},"spec":{"policyName":"p"}}]}`)
			case r.URL.Path == own+"/mutatingadmissionpolicybindings":
				fmt.Fprint(w, `{"kind":"List","items":[]}`)
			case strings.HasSuffix(r.URL.Path, "/configmaps/mapd-audit") && tt.data != nil:
				_ = json.NewEncoder(w).Encode(map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "data": tt.data})
			case strings.HasSuffix(r.URL.Path, "/configmaps/mapd-audit") && tt.forbidden:
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			default:
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			}
		})
		var got []string
		for _, l := range r.Lines {
			if l.Check == driftCheck {
				got = append(got, string(l.Mark)+" "+l.Fact)
			}
			if l.Check == driftCheck && l.Mark == Warning && l.Advice != audit.DriftAdvice {
				t.Errorf("%s: advice %q", tt.name, l.Advice)
			}
		}
		if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
			t.Errorf("%s:\n%q, want\n%q", tt.name, got, tt.want)
		}
	}
}
