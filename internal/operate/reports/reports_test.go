package reports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/test/fakeapi"
)

var (
	reports        = schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "reports"}
	clusterReports = schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "clusterreports"}
	began          = time.Unix(1_800_000_000, 0)
)

// serve returns a server with reports of openreports.io, and a client of it.
func serve(t *testing.T, groups ...string) (*fakeapi.Server, *audit.Cluster) {
	t.Helper()
	s := &fakeapi.Server{Discovery: map[string]map[string]any{
		"/api":    {"kind": "APIVersions", "versions": []any{"v1"}},
		"/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{}},
	}}
	resource := func(name, kind string, namespaced bool) map[string]any {
		return map[string]any{"name": name, "kind": kind, "namespaced": namespaced, "verbs": []any{"list", "create", "update", "delete"}}
	}
	var list []any
	for _, name := range groups {
		version := map[string]any{"groupVersion": name + "/v1alpha1", "version": "v1alpha1"}
		list = append(list, map[string]any{"name": name, "versions": []any{version}, "preferredVersion": version})
		s.Discovery["/apis/"+name+"/v1alpha1"] = map[string]any{"kind": "APIResourceList", "groupVersion": name + "/v1alpha1", "resources": []any{
			resource("reports", "Report", true), resource("clusterreports", "ClusterReport", false),
		}}
	}
	s.Discovery["/apis"] = map[string]any{"kind": "APIGroupList", "groups": list}
	c, err := audit.Connect(t.Context(), s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// changed is a result of a policy that would change an object.
func changed(namespace, name string, by ...audit.Actor) *audit.Result {
	if by == nil {
		by = []audit.Actor{{Policy: "team", Binding: "all", Fields: []string{"metadata.labels.team"}}}
	}
	return &audit.Result{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: name, UID: types.UID("uid-" + name), By: by}
}

// write writes reports of results as an audit that ended some seconds after began.
func write(t *testing.T, c *audit.Cluster, seconds int, results ...*audit.Result) (string, error) {
	t.Helper()
	collector := NewCollector(Named("openreports"))
	for _, r := range results {
		collector.Add(r)
	}
	return collector.Write(t.Context(), c, &audit.Finished{Report: &audit.Report{}, Ended: began.Add(time.Duration(seconds) * time.Second)})
}

// Each kind of result has the expected entry in both APIs. Reports have no value of an object and
// no message of a policy.
func TestResults(t *testing.T) {
	results := []*audit.Result{
		changed("shop", "web", audit.Actor{Policy: "team", Binding: "all", Fields: []string{"metadata.labels.team", "data.x"}},
			audit.Actor{Policy: "quiet", Binding: "all", Mode: "shadow", Fields: []string{"data.y"}},
			audit.Actor{Policy: "ignored", Binding: "all", Error: "secret-value (ignored: failurePolicy)"}),
		{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "broken", Denied: "secret-value", By: []audit.Actor{{Policy: "fails", Binding: "all", Error: "secret-value"}}},
		{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "refused", Denied: "secret-value", By: []audit.Actor{{Stage: "kubewarden", Policy: "module", Mode: "warn", Error: "secret-value"}}},
		{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "slow", Error: "secret-value"},
		{APIVersion: "v1", Kind: "Namespace", Name: "shop", By: []audit.Actor{{Policy: "team", Binding: "all", Fields: []string{"metadata.labels.team"}}}},
	}
	for _, api := range apis {
		c := NewCollector(api)
		for _, r := range results {
			c.Add(r)
		}
		var text bytes.Buffer
		if err := c.WriteYAML(&text, &audit.Report{Totals: audit.Totals{Kinds: []audit.KindTotal{{Resource: "secrets", Unreadable: "forbidden"}}}}, began); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "secret-value") || strings.Contains(text.String(), "scope") {
			t.Errorf("%s:\n%s", api.Name, &text)
		}
		u := c.object("shop", began)
		want := []string{
			"team all fail low true web uid-web enforce: would change metadata.labels.team, data.x",
			"quiet all warn info false web uid-web shadow: would change data.y",
			"ignored all error medium true web uid-web enforce: the policy fails for the object, which is written without it; mapd audit says why",
			"fails all error high true broken  enforce: the policy fails for the object, and a write would be denied; mapd audit says why",
			"module  error info false refused  warn: the policy fails for the object, and is not enforced; mapd audit says why",
			"mapd admission fail high true refused  enforce: a write of the object would be denied; mapd audit says why",
			"mapd evaluate error medium true slow  enforce: the object could not be evaluated; mapd audit says why",
		}
		if diff := cmp.Diff(want, lines(u)); diff != "" {
			t.Errorf("%s (- want):\n%s", api.Name, diff)
		}
		wantSummary := map[string]any{"pass": int64(0), "fail": int64(2), "warn": int64(1), "error": int64(4), "skip": int64(0)}
		if diff := cmp.Diff(wantSummary, u.Object["summary"]); diff != "" {
			t.Errorf("%s: summary (- want):\n%s", api.Name, diff)
		}
		whole := c.object("", began)
		if got := lines(whole); len(got) != 2 || !strings.HasPrefix(got[1], "mapd list error medium true   ") || !strings.Contains(got[1], "secrets could not be read") {
			t.Errorf("%s: of the cluster: %q", api.Name, got)
		}
		if u.GetKind() != api.kind || whole.GetKind() != api.clusterKind || whole.GetNamespace() != "" || u.GetLabels()[managedBy] != "mapd" {
			t.Errorf("%s: %s %s", api.Name, u.GetKind(), whole.GetKind())
		}
		if _, has := u.Object["source"]; has != (api.Name == "openreports") {
			t.Errorf("%s: source: %v", api.Name, has)
		}
		first := u.Object["results"].([]any)[0].(map[string]any)
		if first["source"] != "mapd" || first["category"] != "Mutation" || !cmp.Equal(first["timestamp"], map[string]any{"seconds": began.Unix(), "nanos": int64(0)}) {
			t.Errorf("%s: %v", api.Name, first)
		}
	}
}

// lines returns the results of a report as lines.
func lines(u *unstructured.Unstructured) (out []string) {
	list, _ := u.Object["results"].([]any)
	for _, r := range list {
		r := r.(map[string]any)
		var name, uid, mode any = "", "", ""
		if resources, ok := r["resources"].([]any); ok {
			of := resources[0].(map[string]any)
			name, mode = of["name"], r["properties"].(map[string]any)["mode"]
			if of["uid"] != nil {
				uid = of["uid"]
			}
		}
		rule := r["rule"]
		if rule == nil {
			rule = ""
		}
		out = append(out, fmt.Sprint(r["policy"], " ", rule, " ", r["result"], " ", r["severity"], " ", r["scored"], " ", name, " ", uid, " ", mode, ": ", r["message"]))
	}
	return out
}

// A report is written if it differs from the stored one, and removed if it has no results. Results
// that stay keep their timestamps.
func TestWrite(t *testing.T) {
	s, c := serve(t, "openreports.io")
	web, db, other := changed("shop", "web"), changed("shop", "db"), changed("other", "web")
	whole := &audit.Result{APIVersion: "v1", Kind: "Namespace", Name: "shop", UID: "n", By: web.By}
	step := func(what, want string, writes int, seconds int, results ...*audit.Result) {
		t.Helper()
		before := len(s.Writes())
		said, err := write(t, c, seconds, results...)
		if err != nil || said != want {
			t.Errorf("%s: %q, %v; want %q", what, said, err, want)
		}
		if n := len(s.Writes()) - before; n != writes {
			t.Errorf("%s: %d writes, want %d", what, n, writes)
		}
	}
	step("first", "3 reports: 3 created, 0 updated, 0 unchanged; 0 removed", 3, 0, web, other, whole)
	step("again", "3 reports: 0 created, 0 updated, 3 unchanged; 0 removed", 0, 10, web, other, whole)

	stored := s.Get(reports, "shop", "mapd")
	stored = stored.DeepCopy()
	stored.SetLabels(map[string]string{managedBy: "mapd", "others": "label"})
	stored.SetAnnotations(map[string]string{"others": "annotation"})
	s.Put(reports, "shop", "mapd", stored.Object)
	step("another object", "3 reports: 0 created, 1 updated, 2 unchanged; 0 removed", 1, 20, web, db, other, whole)
	stored = s.Get(reports, "shop", "mapd")
	if stored.GetLabels()["others"] != "label" || stored.GetAnnotations()["others"] != "annotation" {
		t.Errorf("what others wrote is gone: %v %v", stored.GetLabels(), stored.GetAnnotations())
	}
	var times []any
	for _, r := range stored.Object["results"].([]any) {
		seconds, _, _ := unstructured.NestedFieldNoCopy(r.(map[string]any), "timestamp", "seconds")
		times = append(times, fmt.Sprint(seconds))
	}
	if want := []any{fmt.Sprint(began.Unix()), fmt.Sprint(began.Unix() + 20)}; !cmp.Equal(times, want) {
		t.Errorf("times %v, want %v", times, want)
	}
	// An edit by somebody else does not last.
	edited := stored.DeepCopy()
	edited.Object["results"] = []any{}
	s.Put(reports, "shop", "mapd", edited.Object)
	step("an edit", "3 reports: 0 created, 1 updated, 2 unchanged; 0 removed", 1, 30, web, db, other, whole)
	step("nothing left", "1 report: 0 created, 0 updated, 1 unchanged; 2 removed", 2, 40, other)
	if n := len(s.List(reports)); n != 1 || len(s.List(clusterReports)) != 0 {
		t.Errorf("%d reports are left", n)
	}
	step("nothing at all", "0 reports: 0 created, 0 updated, 0 unchanged; 1 removed", 1, 50)
}

// If a report cannot be written, Write returns an error, and still writes the others.
func TestCannotWrite(t *testing.T) {
	s, c := serve(t)
	if said, err := write(t, c, 0, changed("shop", "web")); said != "" || err == nil || len(s.Writes()) != 0 ||
		err.Error() != "the cluster does not serve ClusterReport of openreports.io/v1alpha1: install its CustomResourceDefinitions, or leave --reports out" {
		t.Errorf("without definitions: %q, %v", said, err)
	}
	s, c = serve(t, "openreports.io")
	s.Put(reports, "a", "mapd", map[string]any{"apiVersion": "openreports.io/v1alpha1", "kind": "Report"}) // without the label
	s.Put(reports, "d", "other", map[string]any{"apiVersion": "openreports.io/v1alpha1", "kind": "Report", "metadata": map[string]any{"labels": map[string]any{managedBy: "mapd"}}})
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Verb == "create" && r.Namespace == "b" {
			err := apierrors.NewForbidden(reports.GroupResource(), "mapd", errors.New("the namespace is being terminated"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return nil, err
		}
		return nil, nil
	}
	said, err := write(t, c, 0, changed("a", "web"), changed("b", "web"), changed("c", "web"))
	if said != "3 reports: 1 created, 0 updated, 0 unchanged; 0 removed" || err == nil ||
		err.Error() != "1 report is not written, the first: Report a/mapd: it exists without the label app.kubernetes.io/managed-by=mapd, so it is somebody else's and left alone" {
		t.Errorf("%q, %v", said, err)
	}
	if s.Get(reports, "c", "mapd") == nil || s.Get(reports, "d", "other") == nil {
		t.Error("the report of c is not written, or another one is gone")
	}
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Verb == "list" && r.Resource == reports {
			return nil, apierrors.NewForbidden(reports.GroupResource(), "", errors.New("no"))
		}
		return nil, nil
	}
	if _, err := write(t, c, 0); err == nil || !strings.Contains(err.Error(), `list reports.openreports.io: reports.openreports.io is forbidden`) {
		t.Errorf("without the right to list: %v", err)
	}
}

// Whatever tenants have, a report fits into etcd, all of them into memory, and no namespace
// takes the place of another. What is left out is counted.
func TestBounds(t *testing.T) {
	long := strings.Repeat("x", 253)
	var fields []string
	for i := range 50 {
		fields = append(fields, fmt.Sprintf("metadata.annotations[%s/%s%d]", long, strings.Repeat("é", 30), i))
	}
	c := NewCollector(Named("openreports"))
	for i := range 5000 {
		c.Add(changed("many", fmt.Sprint(i)))
		c.Add(changed("large", long, audit.Actor{Policy: long, Binding: long, Mode: "shadow", Stage: long, Fields: fields}))
	}
	for _, tt := range []struct {
		namespace, result string
		least, most       int
	}{{"many", "fail", maxResults, maxResults}, {"large", "warn", 100, maxResults}} {
		u := c.object(tt.namespace, began)
		text, err := json.Marshal(u)
		if err != nil || len(text) > 1<<20 {
			t.Errorf("%s: %d bytes, %v", tt.namespace, len(text), err)
		}
		results := u.Object["results"].([]any)
		n := len(results) - 1
		if n < tt.least || n > tt.most || u.Object["summary"].(map[string]any)[tt.result] != int64(5000) || u.Object["summary"].(map[string]any)["skip"] != int64(1) {
			t.Errorf("%s: %d results, %v", tt.namespace, n, u.Object["summary"])
		}
		if last, want := results[n].(map[string]any), fmt.Sprintf("%d more results are not listed here, but counted in the summary; mapd audit -n %s -o json lists all", 5000-n, tt.namespace); last["result"] != "skip" || last["message"] != want {
			t.Errorf("%s: %v, want %s", tt.namespace, last, want)
		}
		if got := u.GetAnnotations()[cutAnnotation]; got != fmt.Sprint(5000-n) {
			t.Errorf("%s: the annotation is %q", tt.namespace, got)
		}
	}
	for i := range maxReports + 5 {
		for range 6 {
			c.Add(changed(fmt.Sprintf("n%05d", i), long))
		}
	}
	if len(c.namespaces) != maxReports || c.unplaced != 7*6 || c.bytes > maxAll {
		t.Errorf("%d reports, %d results without one, %d bytes", len(c.namespaces), c.unplaced, c.bytes)
	}
	last := c.namespaces["n09000"]
	if last == nil || last.counts["fail"] != 6 || last.cut == 0 {
		t.Errorf("a namespace for which there is no room any more has %+v", last)
	}
	if !slices.Equal(Names(), []string{"openreports", "policyreport"}) || Named("none") != nil {
		t.Error(Names())
	}
}
