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
)

func object(name, uid, version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetName(name)
	u.SetUID(types.UID(uid))
	u.SetResourceVersion(version)
	return u
}

func newTestWatched(tell func()) *watched {
	w := newWatched(nil, policyResource, slog.New(slog.DiscardHandler), trimObject, tell)
	w.track = true
	return w
}

// changes are the names that take returns, those that are gone with a "-".
func changes(w *watched) []string {
	var out []string
	taken := w.take()
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		if taken[name] == nil {
			name = "-" + name
		}
		out = append(out, name)
	}
	return out
}

func TestWatched(t *testing.T) {
	told := 0
	w := newTestWatched(func() { told++ })
	steps := []struct {
		name  string
		do    func() error
		want  []string
		tells int
	}{
		{"the first list", func() error {
			return w.Replace([]any{object("a", "1", "1"), object("b", "1", "2")}, "2")
		}, []string{"a", "b"}, 1},
		{"nothing", func() error { return nil }, nil, 0},
		{"the same list", func() error {
			return w.Replace([]any{object("b", "1", "2"), object("a", "1", "1")}, "3")
		}, nil, 1},
		{"a list with a new version, a new object and one less", func() error {
			return w.Replace([]any{object("a", "1", "4"), object("c", "1", "3")}, "4")
		}, []string{"a", "-b", "c"}, 1},
		{"made again under its old name", func() error {
			return w.Replace([]any{object("a", "2", "4"), object("c", "1", "3")}, "5")
		}, []string{"a"}, 1},
		{"events", func() error {
			return errors.Join(w.Add(object("d", "1", "6")), w.Update(object("c", "1", "7")), w.Delete(object("a", "2", "8")))
		}, []string{"-a", "c", "d"}, 3},
		{"made and deleted", func() error {
			return errors.Join(w.Add(object("e", "1", "9")), w.Delete(object("e", "1", "10")))
		}, []string{"-e"}, 2},
		{"all gone", func() error { return w.Replace(nil, "11") }, []string{"-c", "-d"}, 1},
	}
	for _, s := range steps {
		told = 0
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if diff := cmp.Diff(s.want, changes(w)); diff != "" {
			t.Errorf("%s: changes (-want +got):\n%s", s.name, diff)
		}
		if told != s.tells {
			t.Errorf("%s: told of %d changes, want %d", s.name, told, s.tells)
		}
	}
}

// Nobody waits for changes of Namespaces: none is remembered.
func TestWatchedUntracked(t *testing.T) {
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
	if told != 1 || len(n.dirty) != 0 {
		t.Errorf("told %d times and kept %d changes, want once and none", told, len(n.dirty))
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

func TestWatchedReady(t *testing.T) {
	w := newTestWatched(func() {})
	if got := errString(w.ready()); got != "mutatingadmissionpolicies.admissionregistration.mapd.dev: not read yet" {
		t.Error(got)
	}
	w.note(errors.New("no such resource"))
	if got := errString(w.ready()); got != "mutatingadmissionpolicies.admissionregistration.mapd.dev: not read yet: no such resource" {
		t.Error(got)
	}
	if err := w.Replace(nil, "1"); err != nil {
		t.Fatal(err)
	}
	w.note(errors.New("no such resource"))
	if err := w.ready(); err != nil {
		t.Errorf("after a first list: %v", err)
	}
}

func TestTrimObject(t *testing.T) {
	u := object("a", "1", "1")
	meta := u.Object["metadata"].(map[string]any)
	meta["managedFields"] = []any{map[string]any{}}
	u.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "x"})
	trimObject(u)
	want := map[string]any{"metadata": map[string]any{
		"name": "a", "uid": "1", "resourceVersion": "1", "annotations": map[string]any{"team": "x"},
	}}
	if diff := cmp.Diff(want, u.Object); diff != "" {
		t.Errorf("trimmed (-want +got):\n%s", diff)
	}
	trimObject(&unstructured.Unstructured{Object: map[string]any{}})
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
