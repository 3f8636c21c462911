package store

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/api"
)

func object(name, uid, version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetName(name)
	u.SetUID(types.UID(uid))
	u.SetResourceVersion(version)
	return u
}

func newTestMirror() *watch.Mirror[*stored] {
	return watch.New(watch.Options[*stored]{Resource: api.OwnPolicies, Keep: keepStored, Names: true})
}

// Only what is another object than before is a change.
func TestChanges(t *testing.T) {
	w := newTestMirror()
	var list []*compiledPolicy
	steps := []struct {
		name string
		do   func() error
		want []string // those that are gone with a "-"
	}{
		{"the first list", func() error {
			return w.Replace([]any{object("a", "1", "1"), object("b", "1", "2")}, "2")
		}, []string{"a", "b"}},
		{"nothing", func() error { return nil }, nil},
		{"the same list", func() error {
			return w.Replace([]any{object("b", "1", "2"), object("a", "1", "1")}, "3")
		}, nil},
		{"a list with a new version, a new object and one less", func() error {
			return w.Replace([]any{object("a", "1", "4"), object("c", "1", "3")}, "4")
		}, []string{"a", "-b", "c"}},
		{"made again under its old name", func() error {
			return w.Replace([]any{object("a", "2", "4"), object("c", "1", "3")}, "5")
		}, []string{"a"}},
		{"events", func() error {
			return errors.Join(w.Add(object("d", "1", "6")), w.Update(object("c", "1", "7")), w.Delete(object("a", "2", "8")))
		}, []string{"-a", "c", "d"}},
		{"made and deleted", func() error {
			return errors.Join(w.Add(object("e", "1", "9")), w.Delete(object("e", "1", "10")))
		}, nil},
		{"all gone", func() error { return w.Replace(nil, "11") }, []string{"-c", "-d"}},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		changed := changes(list, w)
		var got []string
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			if changed[name] == nil {
				name = "-" + name
			}
			got = append(got, name)
		}
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("%s: changes (-want +got):\n%s", s.name, diff)
		}
		list = nil
		w.Inspect("", func(now map[string]*stored) {
			for _, name := range slices.Sorted(maps.Keys(now)) {
				list = append(list, &compiledPolicy{now[name], brokenPolicy(readable(name, nil), errors.New("not compiled"))})
			}
		})
	}
}

// Namespaces are looked up when they are needed, so nobody waits for changes.
func TestNamespaces(t *testing.T) {
	told := 0
	n := newNamespaces(nil, slog.New(slog.DiscardHandler), func() { told++ })
	for i := range 3 {
		u := object("shop", "1", strconv.Itoa(i))
		u.SetAPIVersion("v1")
		u.SetKind("Namespace")
		u.Object["metadata"].(map[string]any)["managedFields"] = []any{}
		if err := n.Replace([]any{u}, ""); err != nil {
			t.Fatal(err)
		}
		if err := n.Update(object("shop", "1", strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
	got, err := n.Namespace(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"metadata": map[string]any{"name": "shop", "uid": "1", "resourceVersion": "2"}}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("namespace as policies see it (-want +got):\n%s", diff)
	}
}

func TestKeepStored(t *testing.T) {
	u := featuretest.Parse(t, `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata:
  name: a
  uid: "1"
  resourceVersion: "7"
  generation: 2
  annotations: {team: x, kubectl.kubernetes.io/last-applied-configuration: "{}"}
  managedFields: [{manager: m}]
spec: {reinvocationPolicy: Never}
status: {observedGeneration: 2}
`)
	again := u.DeepCopy()
	got := keepStored(u, nil)
	want := featuretest.Parse(t, `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: a, uid: "1", resourceVersion: "7", generation: 2, annotations: {team: x}}
status: {observedGeneration: 2}
`)
	if diff := cmp.Diff(want, got.object); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
	text := `{"apiVersion":"admissionregistration.mapd.dev/v1","kind":"MutatingAdmissionPolicy","metadata":{"name":"a"},"spec":{"reinvocationPolicy":"Never"}}`
	if string(got.text) != text {
		t.Errorf("text:\n%s\nwant:\n%s", got.text, text)
	}
	if keepStored(again, got) != got {
		t.Error("the same version of an object is another one")
	}
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
