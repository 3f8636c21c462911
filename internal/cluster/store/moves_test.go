package store

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// mover is a moves with what it is asked about.
type mover struct {
	*moves
	compiler *compiler
	before   *catalogue
	start    time.Time
	told     int
}

func newMover(t *testing.T) *mover {
	t.Helper()
	m := &mover{compiler: &compiler{deps: featuretest.Deps(t).Policy}, start: time.Now()}
	m.moves = newMoves(nil, nil, slog.New(slog.DiscardHandler), func() { m.told++ })
	return m
}

// write makes the configuration what the policies need.
func (m *mover) write(t *testing.T) {
	t.Helper()
	c := webhookconfig.Configuration(m.compiler.entries, m.base)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.configuration.Replace([]any{&unstructured.Unstructured{Object: object}}, ""); err != nil {
		t.Fatal(err)
	}
}

// publish settles so long after the start and says what came of it.
func (m *mover) publish(after time.Duration) string {
	also, wait := m.update(m.before, m.compiler.catalogue, m.start.Add(after))
	published := m.compiler.catalogue
	m.before = &published
	var out []string
	for _, b := range published.bindings {
		if ids, ok := also[b.key()]; ok {
			var names []string
			for _, id := range ids {
				names = append(names, strings.TrimSuffix(id.Name(), ".mapd.dev"))
			}
			out = append(out, fmt.Sprintf("%s also in %s", b.key(), strings.Join(names, " ")))
		}
	}
	if wait > 0 {
		out = append(out, wait.String())
	}
	return strings.Join(out, ", ")
}

func TestMoves(t *testing.T) {
	never, again := []string{}, []string{"reinvocationPolicy: Never", "reinvocationPolicy: IfNeeded"}
	ignored := []string{"failurePolicy: Fail", "failurePolicy: Ignore"}
	put := func(t *testing.T, m *mover, change []string) {
		m.compiler.update(byName(testPolicy(t, "p", "1", change...)), byName(testBinding(t, "p", "p")))
	}
	expect := func(t *testing.T, m *mover, after time.Duration, want string) {
		t.Helper()
		if diff := cmp.Diff(want, m.publish(after)); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", after, diff)
		}
	}
	const s = time.Second

	t.Run("until servers know", func(t *testing.T) {
		m := newMover(t)
		put(t, m, never)
		m.write(t)
		expect(t, m, 0, "")
		put(t, m, again)
		expect(t, m, 1*s, "p also in fail.never")
		// However long that takes.
		expect(t, m, 1000*s, "p also in fail.never")
		m.write(t)
		if m.told != 1 {
			t.Errorf("told %d times of a change of the configuration, want 1", m.told)
		}
		expect(t, m, 1001*s, "p also in fail.never, 500ms")
		expect(t, m, 1001*s+300*time.Millisecond, "p also in fail.never, 200ms")
		expect(t, m, 1001*s+handover, "")
		m.write(t)
		if m.told != 1 {
			t.Error("told of a change of the configuration that does not matter")
		}
	})
	t.Run("on and on", func(t *testing.T) {
		m := newMover(t)
		put(t, m, never)
		m.write(t)
		expect(t, m, 0, "")
		put(t, m, again)
		expect(t, m, 1*s, "p also in fail.never")
		put(t, m, ignored)
		expect(t, m, 2*s, "p also in fail.never fail.ifneeded")
		put(t, m, never)
		// Servers have not heard of any of it.
		expect(t, m, 3*s, "p also in ignore.never fail.ifneeded, 500ms")
		expect(t, m, 4*s, "")
	})
	t.Run("others in the new group", func(t *testing.T) {
		m := newMover(t)
		put(t, m, never)
		m.compiler.update(byName(testPolicy(t, "q", "1", append(again, "configmaps", "secrets")...)), byName(testBinding(t, "q", "q")))
		m.write(t)
		expect(t, m, 0, "")
		put(t, m, again)
		// Its entry is there, but not for these requests.
		expect(t, m, 1*s, "p also in fail.never")
	})
	t.Run("gone", func(t *testing.T) {
		m := newMover(t)
		put(t, m, never)
		m.write(t)
		expect(t, m, 0, "")
		put(t, m, again)
		expect(t, m, 1*s, "p also in fail.never")
		m.compiler.update(nil, gone("p"))
		expect(t, m, 2*s, "")
		// Who comes later under the same name is somebody else.
		put(t, m, ignored)
		expect(t, m, 3*s, "")
	})
	t.Run("unreadable", func(t *testing.T) {
		m := newMover(t)
		put(t, m, never)
		expect(t, m, 0, "")
		put(t, m, again)
		expect(t, m, 1*s, "p also in fail.never, 10s")
		expect(t, m, 11*s, "")
	})
	t.Run("unseen", func(t *testing.T) {
		m := newMover(t)
		put(t, m, never)
		m.write(t)
		put(t, m, again)
		expect(t, m, 0, "p also in fail.never")
		m.write(t)
		expect(t, m, 1*s, "p also in fail.never, 500ms")
		expect(t, m, 2*s, "")
	})
	t.Run("new", func(t *testing.T) {
		m := newMover(t)
		m.write(t)
		put(t, m, again)
		expect(t, m, 0, "")
	})
}

// A policy that has moved acts where servers still ask for it.
func TestStoreMoves(t *testing.T) {
	s := newTestStore(t, nil)
	s.change(t, byName(testPolicy(t, "one", "1")), byName(testBinding(t, "one", "one")))
	s.change(t, byName(testPolicy(t, "one", "2", "reinvocationPolicy: Never", "reinvocationPolicy: IfNeeded")), nil)
	for i, want := range []map[string]string{{"one": "2"}, nil, {"one": "2"}, nil} {
		g := webhook.ID{Group: webhook.Groups()[i]}
		d := s.Entry(g).Admit(t.Context(), configMap())
		if diff := cmp.Diff(want, d.Object.GetLabels()); diff != "" {
			t.Errorf("labels by %s (-want +got):\n%s", g.Path(), diff)
		}
	}
}
