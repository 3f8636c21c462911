package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/test/fakeapi"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// serve returns a server with namespaces, ConfigMaps, Secrets and policies.
func serve() *fakeapi.Server {
	group := func(name string, versions ...string) map[string]any {
		var list []any
		for _, v := range versions {
			list = append(list, map[string]any{"groupVersion": name + "/" + v, "version": v})
		}
		return map[string]any{"name": name, "versions": list, "preferredVersion": list[0]}
	}
	resource := func(name, kind string, namespaced bool) map[string]any {
		return map[string]any{"name": name, "kind": kind, "namespaced": namespaced, "verbs": []any{"list", "get", "update"}}
	}
	return &fakeapi.Server{Discovery: map[string]map[string]any{
		"/api":  {"kind": "APIVersions", "versions": []any{"v1"}},
		"/apis": {"kind": "APIGroupList", "groups": []any{group(api.OwnGroup, "v1"), group(api.ExceptionGroup, api.ExceptionVersion)}},
		"/apis/" + api.ExceptionGroup + "/" + api.ExceptionVersion: {"kind": "APIResourceList", "groupVersion": api.ExceptionGroup + "/" + api.ExceptionVersion, "resources": []any{
			resource(api.ExceptionResource, api.ExceptionKind, true),
		}},
		"/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{
			resource("configmaps", "ConfigMap", true), resource("secrets", "Secret", true), resource("namespaces", "Namespace", false),
			resource("namespaces/status", "Namespace", false),
		}},
		"/apis/" + api.OwnGroup + "/v1": {"kind": "APIResourceList", "groupVersion": api.OwnGroup + "/v1", "resources": []any{
			resource(api.PolicyResource, api.PolicyKind, false), resource(api.BindingResource, api.BindingKind, false),
		}},
	}}
}

// put stores the objects of a text.
func put(t *testing.T, s *fakeapi.Server, text string) {
	t.Helper()
	for _, doc := range strings.Split(text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		resources := map[string]schema.GroupVersionResource{
			"ConfigMap": configMaps, "Secret": secrets, "Namespace": namespaces, api.PolicyKind: api.OwnPolicies, api.BindingKind: api.OwnBindings, api.ExceptionKind: api.Exceptions,
		}
		meta := o["metadata"].(map[string]any)
		namespace, _ := meta["namespace"].(string)
		s.Put(resources[o["kind"].(string)], namespace, meta["name"].(string), o)
	}
}

// labels is a policy with its binding that gives objects of a resource a label.
func labels(name, resource, value string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["v1"], operations: [CREATE, UPDATE], resources: [%[2]s]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: %[3]s
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}`, name, resource, strings.TrimSpace(string(must(yaml.Marshal(fmt.Sprintf(`Object{metadata: Object.metadata{labels: {%q: %s}}}`, name, value))))))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func connect(t *testing.T, s *fakeapi.Server) *Cluster {
	t.Helper()
	c, err := Connect(t.Context(), s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func options(t *testing.T, c *Cluster, l Loading) Options {
	t.Helper()
	l.Env = must(cel.NewEnv(cel.Options{}))
	set, err := c.Load(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Cluster: c, Set: set, Keep: 10, Asking: Asking{
		Operation: admissionv1.Update, Exempt: []string{"kube-system"}, Timeout: time.Minute, Memory: memory.New(64 << 20),
	}}
}

func fill(t *testing.T, s *fakeapi.Server, n int) {
	t.Helper()
	for _, ns := range []string{"a", "a-b", "kube-system"} {
		put(t, s, "kind: Namespace\napiVersion: v1\nmetadata: {name: "+ns+"}")
	}
	for i := range n {
		ns := []string{"a", "a-b"}[i%2]
		s.Put(configMaps, ns, fmt.Sprintf("m%04d", i), map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"n": fmt.Sprint(i)}})
	}
}

func TestAudit(t *testing.T) {
	s := serve()
	fill(t, s, 3)
	put(t, s, labels("team", "configmaps", `object.metadata.name`))
	put(t, s, labels("hidden", "secrets", `"x"`))
	put(t, s, "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: a}\ndata: {password: aGlkZGVu}")
	put(t, s, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: system, namespace: kube-system}")
	put(t, s, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: done, namespace: a, labels: {team: done}}")
	var lines []string
	o := options(t, connect(t, s), Loading{})
	o.Each = func(r *Result) error {
		lines = append(lines, r.Title())
		return nil
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines) // a server lists a-b before a
	if want := []string{"ConfigMap a-b/m0001", "ConfigMap a/m0000", "ConfigMap a/m0002", "Secret a/s"}; !reflect.DeepEqual(lines, want) {
		t.Errorf("got %q", lines)
	}
	var b bytes.Buffer
	if err := r.Write(&b, "table", "v1", false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ConfigMap a/m0000\n+ metadata.labels.team: m0000\n  team › team: metadata.labels.team\n",
		"ConfigMap  configmaps  4        3        0       0\n",
		"note: 1 objects are in namespaces that no policy of mapd's reaches: kube-system\n",
		"5 objects evaluated: 4 would change, 0 would be denied, for 0 a policy fails\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	for _, w := range s.Writes() {
		t.Errorf("written: %s", w)
	}
}

// What a policy does to fields whose names are data does not make a report grow without
// bound, and hostile text stays where it is.
func TestHostile(t *testing.T) {
	s := serve()
	fill(t, s, 0)
	const name = "<script>`|*\n```"
	for i := range 300 {
		s.Put(configMaps, "a", fmt.Sprintf("m%d", i), map[string]any{"data": map[string]any{"k": fmt.Sprintf("%s%d", name, i), "large": strings.Repeat("x", 10_000)}})
	}
	p := strings.ReplaceAll(labels("copy", "configmaps", `"x"`), `metadata: Object.metadata{labels: {\"copy\": \"x\"}}`, `data: {}`)
	p = p[:strings.Index(p, "  mutations:")] + `  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "add", path: "/data/" + jsonpatch.escapeKey(object.data.k), value: object.data.large}]'
` + p[strings.Index(p, "---"):]
	put(t, s, p)
	o := options(t, connect(t, s), Loading{})
	o.Keep = 1000
	r, err := Run(t.Context(), o)
	if err != nil || r.Changed != 300 {
		t.Fatal(err, r)
	}
	if text := string(must(json.Marshal(r.Kept))); len(text) > 300*1000 {
		t.Errorf("%d bytes are kept", len(text))
	}
	for format, bad := range map[string][]string{"html": {"<script>"}, "markdown": {"\n```\n+"}, "table": {name}, "sarif": nil} {
		var b bytes.Buffer
		if err := r.Write(&b, format, "v1", false); err != nil {
			t.Fatal(err)
		}
		for _, text := range bad {
			if strings.Contains(b.String(), text) {
				t.Errorf("%s has %q", format, text)
			}
		}
	}
	totals := &Totals{}
	for i := range 3 * maxFields {
		totals.add(&KindTotal{}, &Result{Changes: []Change{{}}, By: []Actor{{Policy: fmt.Sprint(i % 7), Fields: []string{fmt.Sprint(i)}}}})
	}
	if n := totals.fields; n != maxFields || totals.OtherFields != 2*maxFields {
		t.Errorf("%d fields, %d others", n, totals.OtherFields)
	}
}

// Objects as large as etcd takes are evaluated like others, a few at a time.
func TestLargeObjects(t *testing.T) {
	s := serve()
	fill(t, s, 0)
	const n, size = 12, 1_500_000
	for i := range n {
		s.Put(configMaps, "a", fmt.Sprintf("m%04d", i), map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"n": strings.Repeat("x", size)}})
	}
	put(t, s, labels("team", "configmaps", `object.data.n.substring(0, 3)`)+"\n---\n"+labels("whole", "configmaps", `object.data.n`))
	c := connect(t, s)
	o := options(t, c, Loading{})
	r, err := Run(t.Context(), o)
	if err != nil || r.Objects != n || r.Changed != n || r.Unread != 0 {
		t.Fatalf("%v, got %+v", err, r.Totals)
	}
	if text := string(must(json.Marshal(r))); len(text) > 100_000 {
		t.Errorf("the report has %d bytes", len(text))
	}
	most := 0
	l := newLister(c, c.Resources[slices.IndexFunc(c.Resources, func(r Resource) bool { return r.GVR == configMaps })], query{}, cursor{})
	if err := l.next(t.Context(), func(items []json.RawMessage) error {
		most = max(most, len(items))
		return nil
	}); err != nil || most*size > chunkBytes+size || l.limit*size > pageBytes {
		t.Errorf("%v, %d objects at once, the next page has %d", err, most, l.limit)
	}
}

// A policy that needs more time than an object may take, or more than its cost, fails for
// this object, and the audit goes on.
func TestExpensivePolicy(t *testing.T) {
	s := serve()
	fill(t, s, 4)
	put(t, s, labels("costly", "configmaps", `string(lists.range(1000).map(a, lists.range(1000).map(b, lists.range(1000).map(c, a*b*c))).size())`))
	o := options(t, connect(t, s), Loading{})
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Objects != 4 || r.Failed != 4 || r.Denied != 4 || r.Policies[0].Error == "" {
		t.Errorf("got %+v", r.Totals)
	}
	put(t, s, labels("costly", "configmaps", `string(lists.range(100).map(a, lists.range(100).map(b, a*b)).size())`))
	o = options(t, connect(t, s), Loading{})
	o.Timeout = time.Nanosecond
	if r, err = Run(t.Context(), o); err != nil || r.Objects != 4 || r.Unread != 4 {
		t.Errorf("%v, got %+v", err, r)
	}
}

func TestBase(t *testing.T) {
	s := serve()
	fill(t, s, 4)
	put(t, s, labels("team", "configmaps", `object.metadata.name == "m0002" ? "b" : "a"`))
	c := connect(t, s)
	o := options(t, c, Loading{})
	o.Base = o.Set
	files := func(text string) []manifest.Input {
		return []manifest.Input{{Name: "new.yaml", Open: opener(text)}}
	}
	o.Set = options(t, c, Loading{Files: files(labels("team", "configmaps", `"a"`))}).Set
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 1 || r.Results[0].Name != "m0002" || !reflect.DeepEqual(r.Results[0].Changes, []Change{{Path: "metadata.labels.team", Before: "b", After: "a"}}) {
		t.Errorf("got %+v", r.Results)
	}
	// The position of a fault is that in the file.
	_, err = c.Load(t.Context(), Loading{Env: must(cel.NewEnv(cel.Options{})), Files: files(labels("team", "configmaps", `nothing.here`))})
	if err == nil || !strings.Contains(err.Error(), "new.yaml: document 1, line ") {
		t.Errorf("got %v", err)
	}
}

// A policy of the cluster that cannot be compiled is left out, and said.
func TestBrokenPolicy(t *testing.T) {
	s := serve()
	fill(t, s, 2)
	put(t, s, labels("team", "configmaps", `"a"`))
	put(t, s, labels("wrong", "configmaps", `nothing.here`))
	o := options(t, connect(t, s), Loading{})
	r, err := Run(t.Context(), o)
	if err != nil || r.Changed != 2 || len(r.Notes) == 0 || !strings.Contains(strings.Join(r.Notes, "\n"), "left out: MutatingAdmissionPolicy wrong") {
		t.Errorf("%v, got %+v", err, r)
	}
}

// expired is what a server answers to an old token.
func expired(token string) error {
	err := apierrors.NewResourceExpired("too old")
	err.ErrStatus.Continue = token
	return err
}

// Every object counts once, whatever becomes of the pages.
func TestPages(t *testing.T) {
	const n = 1200
	for name, intercept := range map[string]func(calls int, r fakeapi.Request) error{
		"plain": func(int, fakeapi.Request) error { return nil },
		"expires": func(calls int, r fakeapi.Request) error {
			if calls == 3 {
				return expired(r.Continue)
			}
			return nil
		},
		"expires without a token": func(calls int, r fakeapi.Request) error {
			if calls == 3 || calls == 6 {
				return expired("")
			}
			return nil
		},
		"breaks": func(calls int, r fakeapi.Request) error {
			if calls%2 == 0 {
				return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError}}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve()
			fill(t, s, n)
			put(t, s, labels("team", "configmaps", `"a"`))
			c := connect(t, s)
			calls := 0
			s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
				if r.Resource != configMaps || r.Verb != "list" {
					return nil, nil
				}
				calls++
				return nil, intercept(calls, r)
			}
			seen := map[string]int{}
			o := options(t, c, Loading{})
			o.Each = func(r *Result) error {
				seen[r.Title()]++
				return nil
			}
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if len(seen) != n || r.Changed != n || r.Objects != n || len(r.Results) != 10 || r.Left != n-10 {
				t.Errorf("%d objects, %+v", len(seen), r.Totals)
			}
		})
	}
}

// A kind that cannot be read is said, and the others are read.
func TestForbidden(t *testing.T) {
	s := serve()
	fill(t, s, 2)
	put(t, s, labels("team", "configmaps", `"a"`)+"\n---\n"+labels("other", "secrets", `"a"`))
	c := connect(t, s)
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Resource == secrets {
			return nil, apierrors.NewForbidden(secrets.GroupResource(), "", errors.New("no"))
		}
		return nil, nil
	}
	r, err := Run(t.Context(), options(t, c, Loading{}))
	if err != nil || r.Changed != 2 || !r.Incomplete() {
		t.Fatalf("%v, got %+v", err, r)
	}
	if i := slices.IndexFunc(r.Kinds, func(k KindTotal) bool { return k.Kind == "Secret" }); i < 0 || !strings.Contains(r.Kinds[i].Unreadable, "secrets is forbidden") {
		t.Errorf("got %+v", r.Kinds)
	}

	// What policies depend on counts as well: without Namespaces nobody knows whom they select.
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Resource == namespaces {
			return nil, apierrors.NewForbidden(namespaces.GroupResource(), "", errors.New("no"))
		}
		return nil, nil
	}
	o := options(t, c, Loading{})
	if r, err = Run(t.Context(), o); err != nil || !o.Set.Incomplete || !r.Incomplete() || !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "namespaces is forbidden") }) {
		t.Errorf("%v, got %+v", err, r)
	}
}

// An audit that is ended at any page goes on with its state, and the report is that of one
// which was not.
func TestResume(t *testing.T) {
	s := serve()
	fill(t, s, 700)
	put(t, s, labels("team", "configmaps", `object.metadata.name`)+"\n---\n"+labels("spaces", "namespaces", `"a"`))
	c := connect(t, s)
	o := options(t, c, Loading{})
	want, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "state")
	var got *Report
	for tries := 0; got == nil; tries++ {
		if tries > 20 {
			t.Fatal("it does not end")
		}
		ctx, cancel := context.WithCancel(t.Context())
		pages := 0
		o.Progress = func(Progress) {
			if pages++; pages == 2 {
				cancel()
			}
		}
		o.Save = func(s *State) error { return WriteState(file, s) }
		if o.State, err = ReadState(file); err != nil {
			t.Fatal(err)
		}
		got, err = Run(ctx, o)
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if a, b := must(json.Marshal(want)), must(json.Marshal(got)); !bytes.Equal(a, b) {
		t.Errorf("got\n%s\nwant\n%s", b, a)
	}
	o.State, o.Namespace = &State{Digest: "other"}, ""
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrStateOther) {
		t.Errorf("got %v", err)
	}
}

func opener(text string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
}

// A policy in shadow is run as if it were enforced, and its share counts.
func TestModes(t *testing.T) {
	s := serve()
	fill(t, s, 50)
	put(t, s, strings.ReplaceAll(labels("team", "configmaps", `"a"`), "metadata: {name: team}\nspec: {", `metadata: {name: team, annotations: {mapd.dev/mode: shadow, mapd.dev/percent: "50"}}`+"\nspec: {"))
	c := connect(t, s)
	r, err := Run(t.Context(), options(t, c, Loading{}))
	if err != nil || len(r.Policies) != 1 || r.Policies[0].Mode != "shadow" || r.Changed == 0 || r.Changed == 50 {
		t.Fatalf("%v, got %+v", err, r)
	}
	if r, err = Run(t.Context(), options(t, c, Loading{Whole: true})); err != nil || r.Changed != 50 {
		t.Errorf("%v, got %+v", err, r)
	}
	if r, err = Run(t.Context(), options(t, c, Loading{Whole: true, Only: []string{"other"}})); err != nil || r.Changed != 0 {
		t.Errorf("%v, got %+v", err, r)
	}
}
