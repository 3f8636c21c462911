package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientopenapi "k8s.io/client-go/openapi"

	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// crd is a definition of kind Foo with one field in its spec.
func crd(t testing.TB, generation int64, established bool, field string) *unstructured.Unstructured {
	t.Helper()
	u := featuretest.Parse(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.ex.io, uid: "1"}
spec:
  group: ex.io
  scope: Namespaced
  names: {plural: foos, kind: Foo, listKind: FooList, singular: foo}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {%s: {type: string}}}}}
status:
  conditions:
  - {type: NamesAccepted, status: "True"}
  - {type: Established, status: %q}
`, field, map[bool]string{true: "True", false: "False"}[established]))
	u.SetGeneration(generation)
	return u
}

// newTestSchemas has no server: what one would say is put in by hand.
func newTestSchemas() *schemas {
	s := &schemas{
		log: slog.New(slog.DiscardHandler), types: openapi.New(), changed: func() {},
		rebuild: watch.NewSignal(), refresh: watch.NewSignal(), custom: map[schema.GroupVersion]bool{},
	}
	s.definitions = watch.New(watch.Options[*definition]{Resource: definitionResource, Keep: s.define, Changed: s.rebuild.Notify})
	s.apiServices = watch.New(watch.Options[apiService]{Resource: apiServiceResource, Keep: register, Changed: s.servicesChanged})
	return s
}

var fooKind = schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "Foo"}

func TestDefine(t *testing.T) {
	s := newTestSchemas()
	first := s.define(crd(t, 1, false, "a"), nil)
	if first.source != nil || !slices.Equal(first.versions, []schema.GroupVersion{fooKind.GroupVersion()}) {
		t.Errorf("not established: %+v", first)
	}
	established := s.define(crd(t, 1, true, "a"), first)
	if established.source == nil {
		t.Fatal("established, and no source")
	}
	if again := s.define(crd(t, 1, true, "a"), established); again != established {
		t.Error("a new status made a new definition")
	}
	if deleting := s.define(crd(t, 2, true, "a"), established); deleting.source != established.source {
		t.Error("a new generation that defines the same made a new source")
	}
	if changed := s.define(crd(t, 3, true, "b"), established); changed.source == established.source {
		t.Error("a change made no new source")
	}
	if gone := s.define(crd(t, 4, false, "a"), established); gone.source != nil {
		t.Error("no longer established, and it has a source")
	}
	bad := crd(t, 1, true, "a")
	bad.SetName("bars.ex.io")
	if d := s.define(bad, nil); d.source != nil || len(d.versions) != 1 {
		t.Errorf("a definition that cannot be used: %+v", d)
	}
}

func TestRegister(t *testing.T) {
	for src, want := range map[string]apiService{
		`{metadata: {labels: {kube-aggregator.kubernetes.io/automanaged: onstart}}, spec: {group: apps, version: v1}}`:       {gv: schema.GroupVersion{Group: "apps", Version: "v1"}, origin: serverItself},
		`{metadata: {labels: {kube-aggregator.kubernetes.io/automanaged: "true"}}, spec: {group: ex.io, version: v1}}`:       {gv: schema.GroupVersion{Group: "ex.io", Version: "v1"}, origin: customDefined},
		`{spec: {group: ex.io, version: v1, service: {name: x}}, status: {conditions: [{type: Available, status: "True"}]}}`: {gv: schema.GroupVersion{Group: "ex.io", Version: "v1"}, origin: aggregated, available: true},
		`{spec: {version: v1}}`: {gv: schema.GroupVersion{Version: "v1"}},
	} {
		if got := register(featuretest.Parse(t, "{apiVersion: x/v1, kind: X, "+src[1:]), apiService{}); got != want {
			t.Errorf("%s: %+v, want %+v", src, got, want)
		}
	}
}

// Only what aggregated servers serve needs discovery at once.
func TestServicesChanged(t *testing.T) {
	s := newTestSchemas()
	rung := func() bool {
		select {
		case <-s.refresh:
			return true
		default:
			return false
		}
	}
	service := func(name, spec string) *unstructured.Unstructured {
		return featuretest.Parse(t, fmt.Sprintf("{apiVersion: x/v1, kind: X, metadata: {name: %s}, spec: %s}", name, spec))
	}
	foreign := service("v1.agg.io", "{group: agg.io, version: v1, service: {name: x}}")
	for _, step := range []struct {
		name string
		do   func() error
		want bool
	}{
		{"one of the server's own", func() error { return s.apiServices.Add(service("v1.apps", "{group: apps, version: v1}")) }, false},
		{"an aggregated one", func() error { return s.apiServices.Add(foreign) }, true},
		{"the same again", func() error { return s.apiServices.Update(foreign) }, false},
		{"it goes", func() error { return s.apiServices.Delete(foreign) }, true},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := rung(); got != step.want {
			t.Errorf("%s: discovery asked for: %v, want %v", step.name, got, step.want)
		}
	}
}

// A server of the embedded minor is taken to publish the embedded documents.
func TestEmbeddedMinor(t *testing.T) {
	data, err := os.ReadFile("../../../pkg/openapi/builtin/index.json")
	if err != nil {
		t.Fatal(err)
	}
	var index struct{ Revision string }
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	if want := "v1." + embeddedMinor + "."; !strings.HasPrefix(index.Revision, want) {
		t.Errorf("the embedded documents are of %s, want %s…", index.Revision, want)
	}
}

// discoveredOf is what a server says that serves Pods, Deployments and the given.
func discoveredOf(groups ...*group) *discovered {
	d := &discovered{minor: embeddedMinor, groups: map[schema.GroupVersion]*group{}}
	for gv, kind := range map[schema.GroupVersion]string{{Version: "v1"}: "Pod", {Group: "apps", Version: "v1"}: "Deployment"} {
		groups = append(groups, &group{gv: gv, models: openapi.Builtin(), resources: []openapi.Resource{
			{GVR: gv.WithResource(strings.ToLower(kind) + "s"), Kind: gv.WithKind(kind), Namespaced: true},
		}})
	}
	for _, g := range groups {
		d.groups[g.gv] = g
	}
	return d
}

func TestBuild(t *testing.T) {
	s := newTestSchemas()
	changes := 0
	s.changed = func() { changes++ }
	status := func(gvk schema.GroupVersionKind) string {
		_, err := s.Types().Kind(gvk)
		_, resource := s.Types().ResourceFor(gvk)
		return fmt.Sprintf("%v %v", errString(err), resource)
	}
	pod, scale := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}
	agg := schema.GroupVersionKind{Group: "agg.io", Version: "v1", Kind: "Agg"}
	const unknown = "no schema for %v false"

	s.build()
	s.definitions.Replace(nil, "")
	s.build()
	if s.Ready() || changes != 0 {
		t.Error("ready before discovery")
	}
	s.known.Store(discoveredOf())
	s.build()
	if !s.Ready() || changes != 1 {
		t.Errorf("Ready() = %v after %d changes", s.Ready(), changes)
	}
	if got := status(pod); got != " true" {
		t.Errorf("Pod: %s", got)
	}
	if got := status(scale); got != fmt.Sprintf(unknown, scale) {
		t.Errorf("a built-in kind that is not served: %s", got)
	}
	s.build()
	if changes != 1 {
		t.Error("nothing was taken for a change")
	}

	s.definitions.Add(crd(t, 1, false, "a"))
	s.build()
	if got := status(fooKind); got != fmt.Sprintf(unknown, fooKind) || changes != 1 {
		t.Errorf("not established: %s after %d changes", got, changes)
	}
	s.definitions.Update(crd(t, 1, true, "a"))
	s.build()
	if got := status(fooKind); got != " true" || changes != 2 {
		t.Errorf("established: %s after %d changes", got, changes)
	}

	// Discovery lists the kind, too, and goes on doing so for a while after the
	// definition has gone.
	listed := &group{gv: fooKind.GroupVersion(), resources: []openapi.Resource{{GVR: fooKind.GroupVersion().WithResource("foos"), Kind: fooKind}}}
	foreign := &group{gv: agg.GroupVersion(), foreign: true, resources: []openapi.Resource{{GVR: agg.GroupVersion().WithResource("aggs"), Kind: agg}}}
	s.known.Store(discoveredOf(listed, foreign))
	s.build()
	if k, err := s.Types().Kind(fooKind); err != nil || k.Validate(map[string]any{"a": "x"}) != nil {
		t.Errorf("defined and listed: %v", err)
	}
	if got := status(agg); got != "no schema for agg.io/v1, Kind=Agg true" {
		t.Errorf("aggregated without a document: %s", got)
	}
	s.definitions.Delete(crd(t, 1, true, "a"))
	s.build()
	if got := status(fooKind); got != fmt.Sprintf(unknown, fooKind) {
		t.Errorf("deleted: %s", got)
	}
	// The group-version goes over to another server.
	listed.foreign = true
	s.build()
	if _, ok := s.Types().ResourceFor(fooKind); !ok {
		t.Error("what another server serves now is unknown, because of a former definition")
	}
}

// Nobody can take a built-in kind over by defining one of its name.
func TestBuildKeepsBuiltins(t *testing.T) {
	s := newTestSchemas()
	u := featuretest.Parse(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: deployments.apps}
spec:
  group: apps
  scope: Cluster
  names: {plural: deployments, kind: Deployment}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
status: {conditions: [{type: Established, status: "True"}]}
`)
	s.definitions.Replace([]any{u}, "")
	s.known.Store(discoveredOf())
	s.build()
	gvk := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	if k, err := s.Types().Kind(gvk); err != nil || !k.Builtin() {
		t.Errorf("Deployment: %v", err)
	}
	if r, _ := s.Types().ResourceFor(gvk); !r.Namespaced {
		t.Error("Deployments have no namespace")
	}
}

func TestResourcesOf(t *testing.T) {
	gv := schema.GroupVersion{Group: "apps", Version: "v1"}
	got := resourcesOf(gv, []metav1.APIResource{
		{Name: "deployments/status", Kind: "Deployment", Namespaced: true},
		{Name: "deployments/scale", Group: "autoscaling", Version: "v1", Kind: "Scale", Namespaced: true},
		{Name: "deployments", Kind: "Deployment", Namespaced: true},
		{Name: "controllerrevisions", Group: "apps", Version: "v1", Kind: "ControllerRevision"},
		{Name: "orphans/status", Kind: "Orphan"},
		{Name: "deployments/proxy/path", Kind: "Deployment"},
	})
	want := []openapi.Resource{
		{GVR: gv.WithResource("controllerrevisions"), Kind: gv.WithKind("ControllerRevision")},
		{
			GVR: gv.WithResource("deployments"), Kind: gv.WithKind("Deployment"), Namespaced: true, Subresources: []string{"scale", "status"},
			SubresourceKinds: map[string]schema.GroupVersionKind{"scale": {Group: "autoscaling", Version: "v1", Kind: "Scale"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var events []openapi.Resource
	for _, gv := range []schema.GroupVersion{{Version: "v1"}, {Group: "events.k8s.io", Version: "v1"}} {
		events = append(events, resourcesOf(gv, []metav1.APIResource{{Name: "events", Kind: "Event", Namespaced: true}})...)
	}
	types := openapi.New(&group{resources: events[:1]}, &group{resources: events[1:]})
	if n := len(types.Equivalents(events[0].GVR)); n != 1 {
		t.Errorf("events have %d equivalents, want 1", n)
	}
}

func TestCompareVersions(t *testing.T) {
	var got []string
	gvs := []schema.GroupVersion{{Group: "b", Version: "v1beta1"}, {Group: "b", Version: "v1"}, {Version: "v1"}, {Group: "b", Version: "v2"}, {Group: "a", Version: "v1"}}
	slices.SortFunc(gvs, compareVersions)
	for _, gv := range gvs {
		got = append(got, gv.String())
	}
	if want := []string{"v1", "a/v1", "b/v2", "b/v1", "b/v1beta1"}; !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestMinor(t *testing.T) {
	for in, want := range map[string]string{"37": "37", "29+": "29", "31-eks": "31", "": ""} {
		if got := minor(in); got != want {
			t.Errorf("minor(%q) = %q, want %q", in, got, want)
		}
	}
}

// A publishedAt counts how often it is fetched.
type publishedAt struct {
	address, data string
	fetched       *int
}

func (p publishedAt) ServerRelativeURL() string { return p.address }

func (p publishedAt) SchemaWithContext(context.Context, string) ([]byte, error) {
	*p.fetched++
	if p.data == "" {
		return nil, errors.New("no answer")
	}
	return []byte(p.data), nil
}

func TestDocuments(t *testing.T) {
	gv := schema.GroupVersion{Group: "agg.io", Version: "v1"}
	const doc = `{"components":{"schemas":{"Agg":{"type":"object","x-kubernetes-group-version-kind":[{"group":"agg.io","kind":"Agg","version":"v1"}]}}}}`
	var index map[string]clientopenapi.GroupVersionWithContext
	fetched, asked := 0, 0
	docs := &documents{
		paths: func(context.Context) (map[string]clientopenapi.GroupVersionWithContext, error) {
			asked++
			if index == nil {
				return nil, errors.New("no index")
			}
			return index, nil
		},
		read: map[string]openapi.Source{}, used: map[string]bool{},
	}
	publish := func(address, data string) {
		index = map[string]clientopenapi.GroupVersionWithContext{"apis/agg.io/v1": publishedAt{address, data, &fetched}}
	}
	var last openapi.Source
	round := func() (same bool, err error) {
		src, err := docs.find(t.Context(), gv)
		docs.done()
		same, last = src != nil && src == last, src
		return same, err
	}

	if _, err := round(); errString(err) != "the index of OpenAPI documents: no index" {
		t.Errorf("without an index: %v", err)
	}
	index = map[string]clientopenapi.GroupVersionWithContext{}
	if _, err := round(); err != nil || last != nil {
		t.Errorf("not published: %v, %v", last, err)
	}
	publish("/x?hash=1", "")
	if _, err := round(); errString(err) != "the OpenAPI document of agg.io/v1: no answer" {
		t.Errorf("no answer: %v", err)
	}
	publish("/x?hash=1", doc)
	for i, want := range []bool{false, true, true} {
		if same, err := round(); err != nil || same != want {
			t.Errorf("round %d: same document: %v, %v", i, same, err)
		}
	}
	if fetched != 2 {
		t.Errorf("fetched %d times, want 2", fetched)
	}
	publish("/x?hash=2", doc)
	if same, err := round(); err != nil || same {
		t.Errorf("another hash: same document: %v, %v", same, err)
	}
	if len(docs.read) != 1 {
		t.Errorf("%d documents are kept, want 1", len(docs.read))
	}
	held := index
	index = nil
	round()
	index = held
	fetched = 0
	if _, err := round(); err != nil || fetched != 0 {
		t.Errorf("after a round without an index: fetched %d times, %v", fetched, err)
	}
	publish("/x", doc)
	round()
	if same, err := round(); err != nil || !same {
		t.Errorf("without a hash: same document: %v, %v", same, err)
	}
	asked = 0
	docs.find(t.Context(), gv)
	docs.find(t.Context(), schema.GroupVersion{Group: "other.io", Version: "v1"})
	if asked != 1 {
		t.Errorf("the index was asked for %d times in a round, want once", asked)
	}
}
