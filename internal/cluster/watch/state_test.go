package watch

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"

	"github.com/mapd-project/mapd/pkg/openapi"
)

var things = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func keepName(u *unstructured.Unstructured, _ string) string { return u.GetName() }

func TestMirrorReady(t *testing.T) {
	m := New(Options[string]{Resource: things, Keep: keepName})
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"at first", func() {}, "things.example.com: not read yet"},
		{"an error", func() { m.Note(errors.New("no such resource")) }, "things.example.com: not read yet: no such resource"},
		{"read", func() { m.Replace(nil, "1") }, ""},
		{"an error later", func() { m.Note(errors.New("no such resource")) }, ""},
	} {
		step.do()
		if got := errString(m.Ready()); got != step.want {
			t.Errorf("%s: Ready() = %q, want %q", step.name, got, step.want)
		}
	}
}

// A resource that the server no longer knows has no objects; one that it does not
// know for a moment keeps those that it had.
func TestMirrorEmptyAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 3 * time.Second
		m := New(Options[string]{Resource: things, Keep: keepName, EmptyAfter: limit})
		missing := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", things.GroupResource(), "", "", 0, false)
		if err := m.Replace([]any{keyed("", "a", "1")}, "1"); err != nil {
			t.Fatal(err)
		}
		check := func(want int, when string) {
			t.Helper()
			if got := m.Len(); got != want {
				t.Errorf("%s: %d objects, want %d", when, got, want)
			}
		}
		m.Note(missing)
		time.Sleep(limit - time.Millisecond) // the clock is synctest's
		m.Note(missing)
		check(1, "for a moment")
		m.Note(nil)
		time.Sleep(limit)
		m.Note(missing)
		check(1, "for another moment")
		time.Sleep(limit)
		m.Note(missing)
		check(0, "for good")
	})
}

func TestMirrorSettled(t *testing.T) {
	changed := 0
	m := New(Options[string]{
		Types: openapi.New(), Kinds: []schema.GroupVersionKind{{Group: "example.com", Version: "v1", Kind: "Thing"}},
		Keep: keepName, StateChanged: func() { changed++ },
	})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("no"))
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, "")
	for _, step := range []struct {
		name             string
		do               func()
		settled, problem string
	}{
		{"at first", func() {}, "Thing.example.com: not read yet", ""},
		{"not served", func() { m.SetServed(false) }, "", ""},
		{"served", func() { m.SetServed(true) }, "Thing.example.com: not read yet", ""},
		{"not served after all", func() { m.Note(notFound) }, "Thing.example.com: not read yet: " + notFound.Error(), ""},
		{"forbidden", func() { m.Note(forbidden) }, "", "Thing.example.com cannot be read: " + forbidden.Error()},
		{"forbidden still", func() { m.Note(forbidden) }, "", "Thing.example.com cannot be read: " + forbidden.Error()},
		{"allowed", func() { m.Note(nil) }, "Thing.example.com: not read yet", ""},
		{"read", func() { m.Replace(nil, "") }, "", ""},
		{"an error later", func() { m.Note(errors.New("oh")) }, "", "Thing.example.com cannot be read: oh"},
		{"gone", func() { m.SetServed(false) }, "", ""},
	} {
		step.do()
		if got := errString(m.Settled()); got != step.settled {
			t.Errorf("%s: Settled() = %q, want %q", step.name, got, step.settled)
		}
		if got := errString(m.Problem()); got != step.problem {
			t.Errorf("%s: Problem() = %q, want %q", step.name, got, step.problem)
		}
	}
	if changed != 8 {
		t.Errorf("StateChanged was called %d times, want 8", changed)
	}
}

// typed is a thing as a server returns it.
func typed(name, uid, version string) *unstructured.Unstructured {
	u := keyed("", name, "")
	u.SetAPIVersion("example.com/v1")
	u.SetKind("Thing")
	u.SetUID(types.UID(uid))
	u.SetResourceVersion(version)
	return u
}

// A kind is read while the server serves it, in the first version that it has. Another
// version does not empty the mirror, another resource does.
func TestMirrorOfKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := openapi.New()
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			things: "ThingList", things.GroupResource().WithVersion("v1beta1"): "ThingList",
		}, typed("a", "1", "1"))
		kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
		beta := kind.GroupKind().WithVersion("v1beta1")
		m := New(Options[string]{Client: client, Types: served, Kinds: []schema.GroupVersionKind{kind, beta}, Keep: keepName})
		done := make(chan struct{})
		go func() { defer close(done); m.Run(t.Context()) }()
		check := func(when string, isServed bool, objects int) {
			t.Helper()
			synctest.Wait()
			if s := m.State(); s.Served != isServed || m.Len() != objects {
				t.Errorf("%s: %+v with %d objects, want served %v with %d", when, s, m.Len(), isServed, objects)
			}
		}
		serve := func(versions ...string) {
			var resources resourceSource
			for _, v := range versions {
				resources = append(resources, openapi.Resource{GVR: things.GroupResource().WithVersion(v), Kind: kind.GroupKind().WithVersion(v)})
			}
			served.Update(resources)
			m.Look()
		}
		check("before the first look", false, 0)
		if m.State().Known {
			t.Error("known before the first look")
		}
		serve()
		check("not served", false, 0)
		serve("v1beta1", "v1")
		check("served", true, 1)
		serve("v1beta1")
		synctest.Wait()
		if s := m.State(); !s.Served {
			t.Errorf("served in another version: %+v", s)
		}
		serve()
		check("no longer served", false, 0)
	})
}

// resourceSource is an openapi.Source without schemas.
type resourceSource []openapi.Resource

func (resourceSource) GroupVersions() []schema.GroupVersion         { return nil }
func (s resourceSource) Resources() []openapi.Resource              { return s }
func (resourceSource) Lookup(schema.GroupVersionKind) openapi.Model { return nil }
