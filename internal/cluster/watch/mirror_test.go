package watch

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// keyed is an object that says no more than it has to.
func keyed(namespace, name, value string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"value": value}}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func newTestMirror(changed func()) *Mirror[string] {
	return New(Options[string]{Changed: changed, Keep: func(u *unstructured.Unstructured, old string) string {
		if value := u.Object["value"].(string); value != "same" {
			return value
		}
		return old
	}})
}

func keptIn(m *Mirror[string], namespace string) []string {
	var out []string
	m.Each(namespace, func(name, item string) { out = append(out, name+"="+item) })
	slices.Sort(out)
	return out
}

func TestMirror(t *testing.T) {
	told := 0
	m := newTestMirror(func() { told++ })
	if m.IsRead() {
		t.Error("read before anything was")
	}
	// Objects that a first list streams are converted one by one.
	streamed, err := m.Transformer()(keyed("a", "x", "1"))
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name string
		do   func() error
		a, b []string
	}{
		{"a list, half of it converted before", func() error {
			return m.Replace([]any{streamed, keyed("b", "x", "2")}, "")
		}, []string{"x=1"}, []string{"x=2"}},
		{"what is kept of the object before is at hand", func() error {
			return m.Replace([]any{keyed("a", "x", "same"), keyed("a", "y", "3")}, "")
		}, []string{"x=1", "y=3"}, nil},
		{"events", func() error {
			return errors.Join(m.Add(keyed("b", "z", "4")), m.Update(keyed("a", "x", "5")), m.Delete(keyed("a", "y", "3")))
		}, []string{"x=5"}, []string{"z=4"}},
		{"a deletion of what is not there", func() error { return m.Delete(keyed("c", "x", "")) }, []string{"x=5"}, []string{"z=4"}},
	}
	for _, s := range steps {
		told = 0
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if diff := cmp.Diff(s.a, keptIn(m, "a")); diff != "" {
			t.Errorf("%s: namespace a (-want +got):\n%s", s.name, diff)
		}
		if diff := cmp.Diff(s.b, keptIn(m, "b")); diff != "" {
			t.Errorf("%s: namespace b (-want +got):\n%s", s.name, diff)
		}
		if told == 0 || !m.IsRead() {
			t.Errorf("%s: told %d times, read: %v", s.name, told, m.IsRead())
		}
	}
	if err := m.Add("text"); err == nil {
		t.Error("a text was taken for an object")
	}
	m.forget()
	if _, ok := m.Get("a", "x"); ok || m.IsRead() {
		t.Error("something is left after forget")
	}
	if err := m.Replace(nil, ""); err != nil || !m.IsRead() {
		t.Errorf("not read after a second first list: %v", err)
	}
}

func TestHammerMirror(t *testing.T) {
	m := newTestMirror(func() {})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 500 {
				m.Get("a", "x")
				keptIn(m, "a")
				switch (i + j) % 4 {
				case 0:
					m.Add(keyed("a", "x", "1"))
				case 1:
					m.Delete(keyed("a", "x", "1"))
				case 2:
					m.Replace([]any{keyed("a", "y", "2")}, "")
				default:
					m.forget()
				}
				m.IsRead()
			}
		})
	}
	wg.Wait()
}

// Network errors name ports, which are others each time.
func TestCategory(t *testing.T) {
	network := func(port int) error {
		return &url.Error{Op: "Get", URL: "https://h", Err: fmt.Errorf("read tcp 127.0.0.1:%d: connection reset", port)}
	}
	gr := schema.GroupResource{Resource: "pods"}
	for _, same := range [][2]error{
		{nil, nil},
		{network(1), network(2)},
		{apierrors.NewForbidden(gr, "a", nil), fmt.Errorf("listing: %w", apierrors.NewForbidden(gr, "b", nil))},
	} {
		if category(same[0]) != category(same[1]) {
			t.Errorf("%v and %v are told apart", same[0], same[1])
		}
	}
	kinds := map[string]bool{}
	all := []error{nil, network(1), apierrors.NewForbidden(gr, "a", nil), apierrors.NewNotFound(gr, "a"), errors.New("x")}
	for _, err := range all {
		kinds[category(err)] = true
	}
	if len(kinds) != len(all) {
		t.Errorf("%d kinds of %d errors: %q", len(kinds), len(all), slices.Sorted(maps.Keys(kinds)))
	}
}
