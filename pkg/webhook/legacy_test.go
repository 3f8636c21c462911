package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

type admits func(*policy.Request) *engine.Decision

func (f admits) Admit(_ context.Context, req *policy.Request) *engine.Decision { return f(req) }

// In the shadow, a change is reported and does not happen.
func TestShadow(t *testing.T) {
	object := func(team string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "labels": map[string]any{"team": team}},
		}}
	}
	before, after := object("secret-1"), object("secret-2")
	mutators := engine.Mutators(nil, api.Shadow)
	changes := engine.Record{Stage: &mutators, Object: after, Changed: true, Rounds: 2, Steps: []engine.Step{{
		Stage: mutators.Name, Round: 1, Policy: "AssignMetadata/team", Outcome: engine.Changed, Before: before, After: after,
	}}}
	refuses := engine.Record{Stage: &mutators, Object: before, Status: failure(http.StatusInternalServerError, "no way"), Steps: []engine.Step{{
		Stage: mutators.Name, Round: 1, Policy: "Assign/a", Outcome: engine.Failed, Err: errors.New("no way"),
	}}}
	policies := engine.Policies(nil)
	policies.Mode = api.Shadow
	labels := engine.Record{Stage: &policies, Object: after, Changed: true, Rounds: 1, Steps: []engine.Step{{
		Stage: policies.Name, Round: 1, Policy: "team", Binding: "all", Outcome: engine.Changed, Before: before, After: after,
	}}}
	enforced := engine.Policies(nil)
	beside := engine.Record{Stage: &enforced, Object: before, Shadows: []engine.Shadow{
		{Mode: api.Shadow, Policy: "team", Binding: "all", Before: before, After: after, Steps: labels.Steps},
		{Mode: api.Warn, Policy: "slow", Binding: "all", Before: before, After: before, Status: failure(http.StatusGatewayTimeout, "no time")},
	}}
	for _, tt := range []struct {
		name         string
		shadow       engine.Record
		log, warning string
		quiet        string
		annotations  map[string]string
	}{
		{name: "nothing", shadow: engine.Record{Stage: &mutators, Object: before}},
		{name: "a change", shadow: changes, log: `level=INFO msg="mutators would change the object"` +
			` uid=u resource="/v1, Resource=configmaps" subresource="" operation=CREATE namespace=shop name=a dryRun=false` +
			` mutators="AssignMetadata/team: /metadata/labels/team" passes=2`, warning: `mapd: mutator "AssignMetadata/team" would change metadata.labels.team`,
			annotations: map[string]string{"would-mutate": "AssignMetadata/team: /metadata/labels/team"}},
		{name: "a refusal", shadow: refuses, log: `level=INFO msg="mutators would refuse the request"` +
			` uid=u resource="/v1, Resource=configmaps" subresource="" operation=CREATE namespace=shop name=a dryRun=false` +
			` mutators=Assign/a reason="no way"`, warning: "mapd: mutators would refuse this: no way", annotations: map[string]string{"would-fail": "Assign/a"}},
		{name: "a policy's change", shadow: labels, log: `level=INFO msg="policies would change the object"` +
			` uid=u resource="/v1, Resource=configmaps" subresource="" operation=CREATE namespace=shop name=a dryRun=false` +
			` policies="team/all: /metadata/labels/team" rounds=1`, warning: `mapd: policy "team" with binding "all" would change metadata.labels.team`,
			annotations: map[string]string{"would-mutate": "team/all: /metadata/labels/team"}},
		{name: "policies that are not enforced", shadow: beside, log: `level=INFO msg="policies would refuse the request"` +
			` uid=u resource="/v1, Resource=configmaps" subresource="" operation=CREATE namespace=shop name=a dryRun=false policies=slow/all` + "\n" +
			`level=INFO msg="policies would change the object"` +
			` uid=u resource="/v1, Resource=configmaps" subresource="" operation=CREATE namespace=shop name=a dryRun=false` +
			` policies="team/all: /metadata/labels/team"`,
			warning:     `mapd: policy "team" with binding "all" would change metadata.labels.team` + "\n" + `mapd: policy "slow" with binding "all" would refuse this: no time`,
			quiet:       `mapd: policy "slow" with binding "all" would refuse this: no time`,
			annotations: map[string]string{"would-fail": "slow/all", "would-mutate": "team/all: /metadata/labels/team"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log strings.Builder
			h := NewHandler(Options{
				WarnOnMutation: true,
				Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey {
						return slog.Attr{}
					}
					return a
				}})),
			})
			req := &policy.Request{
				UID: "u", Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Operation: admissionv1.Create,
				Namespace: "shop", Name: "a", Object: before,
			}
			shadow := admits(func(*policy.Request) *engine.Decision {
				return &engine.Decision{Object: before, Stages: []engine.Record{tt.shadow}}
			})
			_, body := h.mutate(t.Context(), shadow, req, time.Now())
			var answer admissionv1.AdmissionReview
			if err := json.Unmarshal(body, &answer); err != nil {
				t.Fatal(err)
			}
			if r := answer.Response; !r.Allowed || r.Patch != nil || strings.Join(r.Warnings, "\n") != tt.warning {
				t.Errorf("answer %s, want it allowed as it is, with the warning %q", body, tt.warning)
			}
			if diff := cmp.Diff(tt.annotations, answer.Response.AuditAnnotations); diff != "" {
				t.Errorf("audit annotations (-want +got):\n%s", diff)
			}
			_, body = NewHandler(Options{}).mutate(t.Context(), shadow, req, time.Now())
			answer = admissionv1.AdmissionReview{}
			if err := json.Unmarshal(body, &answer); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(answer.Response.Warnings, "\n"); got != tt.quiet {
				t.Errorf("without --warn-on-mutation: %q, want %q", got, tt.quiet)
			}
			if got := strings.TrimSpace(log.String()); got != tt.log {
				t.Errorf("log\n%s\nwant\n%s", got, tt.log)
			}
		})
	}
}

// The path is there only if somebody answers on it.
func TestLegacyPath(t *testing.T) {
	for _, tt := range []struct {
		options Options
		want    int
	}{
		{Options{Paths: map[string]Admitter{LegacyPath: admits(func(req *policy.Request) *engine.Decision { return &engine.Decision{Object: req.Object} })}}, http.StatusBadRequest},
		{Options{}, http.StatusNotFound},
	} {
		r := httptest.NewRequest(http.MethodPost, LegacyPath, strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		NewHandler(tt.options).ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("POST %s with Paths %t: %d %s, want %d", LegacyPath, tt.options.Paths != nil, w.Code, w.Body, tt.want)
		}
	}
}

// The log says what was asked outside for a request, also by a stage in shadow.
func TestLogAsked(t *testing.T) {
	mutators, policies := engine.Mutators(nil, api.Shadow), engine.Policies(nil)
	object := &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap"}}
	stages := []engine.Record{
		{Stage: &policies, Object: object, Asked: []engine.Asked{{Source: "a", Calls: 1, Keys: 2, Failed: 1, Time: 3000}, {Source: "b", Keys: 1, Cached: 1}}},
		{Stage: &mutators, Object: object, Asked: []engine.Asked{{Source: "a", Calls: 1, Keys: 1, Shared: 1}}},
	}
	for _, tt := range []struct {
		stages []engine.Record
		want   string
	}{
		{stages, `"policiesAsked":[{"source":"a","calls":1,"keys":2,"cached":0,"shared":0,"failed":1,"time":3000},{"source":"b","calls":0,"keys":1,"cached":1,"shared":0,"failed":0,"time":0}],` +
			`"mutatorsAsked":[{"source":"a","calls":1,"keys":1,"cached":0,"shared":1,"failed":0,"time":0}]}` + "\n"},
		{stages[:0], "}\n"},
	} {
		var log strings.Builder
		h := NewHandler(Options{Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		_, _ = h.mutate(t.Context(), admits(func(*policy.Request) *engine.Decision {
			return &engine.Decision{Object: object, Stages: tt.stages}
		}), &policy.Request{UID: "u", Object: object}, time.Now())
		if _, facts, _ := strings.Cut(log.String(), `"duration":`); strings.TrimLeft(facts, "0123456789") != strings.Replace(","+tt.want, ",}", "}", 1) {
			t.Errorf("log %s, want it to end with %s", &log, tt.want)
		}
	}
}
