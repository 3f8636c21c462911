package store

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/test/hammer"
)

var configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// newTestParams has kinds in use that no server fills.
func newTestParams(t testing.TB, kinds ...schema.GroupVersionKind) *params {
	t.Helper()
	foo, err := openapi.Served(crd(t, 1, true, "a"), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	p := newParams(nil, openapi.New(openapi.Builtin(), foo), slog.New(slog.DiscardHandler), func() {})
	inUse := map[schema.GroupVersionKind]*paramKind{}
	for _, gvk := range kinds {
		inUse[gvk] = p.newKind(gvk)
	}
	p.kinds.Store(&inUse)
	return p
}

func TestParamShape(t *testing.T) {
	p := newTestParams(t)
	tests := map[string]struct {
		gvk  schema.GroupVersionKind
		in   string
		want string
	}{
		"built in": {configMapKind, `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: shop, managedFields: [{manager: x}], labels: {}, creationTimestamp: null}
data: {k: v}
immutable: null
`, `{apiVersion: x, kind: x, metadata: {name: a, namespace: shop}, data: {k: v}}`},
		"built in, newer than the Go type": {configMapKind, `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, managedFields: [{manager: x}]}
novelty: 1
`, `{apiVersion: x, kind: x, metadata: {name: a}, novelty: 1}`},
		"custom": {fooKind, `
apiVersion: ex.io/v1
kind: Foo
metadata: {name: a, managedFields: [{manager: x}]}
a: null
`, `{apiVersion: ex.io/v1, kind: Foo, metadata: {name: a}, a: null}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := featuretest.Parse(t, tt.want).Object
			if want["kind"] == "x" {
				delete(want, "kind")
				delete(want, "apiVersion")
			}
			if diff := cmp.Diff(want, p.shape(tt.gvk, featuretest.Parse(t, tt.in)).Object); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParamsFromMemory(t *testing.T) {
	p := newTestParams(t, configMapKind)
	var objs []any
	for _, src := range []string{
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop, labels: {sel: x}}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: shop}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop, labels: {sel: x}}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: d, namespace: other, labels: {sel: x}}}",
	} {
		objs = append(objs, featuretest.Parse(t, src))
	}
	if err := p.kind(configMapKind).objects.Replace(objs, ""); err != nil {
		t.Fatal(err)
	}
	if state := p.State(configMapKind); !state.Synced {
		t.Errorf("State = %+v", state)
	}
	u, err := p.Get(t.Context(), configMapKind, "shop", "a")
	if err != nil || u.GetName() != "a" || u.GetKind() != "" {
		t.Errorf("Get = %v, %v", u, err)
	}
	for sel, want := range map[string][]string{"": {"a", "b", "c"}, "sel=x": {"a", "c"}, "sel=y": nil} {
		selector, err := labels.Parse(sel)
		if err != nil {
			t.Fatal(err)
		}
		list, err := p.List(t.Context(), configMapKind, "shop", selector)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range list {
			got = append(got, u.GetName())
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("List(%q) = %q, want %q", sel, got, want)
		}
	}
	if n := hammer.Allocs(t, func() { p.Get(t.Context(), configMapKind, "shop", "a") }); n != 0 {
		t.Errorf("Get allocates %v times, want 0", n)
	}
}

func TestParamsKind(t *testing.T) {
	p := newTestParams(t)
	for gvk, want := range map[schema.GroupVersionKind]string{
		configMapKind: "",
		fooKind:       "",
		{Group: "ex.io", Version: "v2", Kind: "Foo"}: `no matches for kind "Foo" in version "ex.io/v2"`,
	} {
		namespaced, err := p.Kind(gvk)
		if errString(err) != want || namespaced != (err == nil) {
			t.Errorf("Kind(%v) = %v, %v, want error %q", gvk, namespaced, err, want)
		}
	}
	unknown := schema.GroupVersionKind{Group: "ex.io", Version: "v2", Kind: "Foo"}
	if _, err := p.Get(t.Context(), unknown, "", "x"); !apierrors.IsNotFound(err) {
		t.Errorf("Get of an unknown kind: %v", err)
	}
	if got, want := p.State(unknown), (ParamState{GVK: unknown}); got != want {
		t.Errorf("State = %+v, want %+v", got, want)
	}
}

// A list waits for the objects to be read, for a second and not longer.
func TestParamsListWaits(t *testing.T) {
	const text = "paramKind kind `&ParamKind{APIVersion:v1,Kind:ConfigMap,}` not yet synced to use for admission"
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
	tests := map[string]struct {
		ready  time.Duration // 0: never
		ends   time.Duration // of the request's context; 0: never
		err    error         // of reading them
		want   string
		within time.Duration
	}{
		"in time":                {ready: 300 * time.Millisecond, within: 300 * time.Millisecond},
		"too late":               {ready: 2 * time.Second, want: text, within: time.Second},
		"the request ends":       {ends: 100 * time.Millisecond, want: text, within: 100 * time.Millisecond},
		"forbidden":              {err: forbidden, want: text + ": " + forbidden.Error()},
		"the server is starting": {err: apierrors.NewServiceUnavailable("soon"), ready: 500 * time.Millisecond, within: 500 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newTestParams(t, configMapKind)
				k := p.kind(configMapKind)
				if tt.err != nil {
					k.objects.Note(tt.err)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if tt.ends > 0 {
					time.AfterFunc(tt.ends, stop)
				}
				if tt.ready > 0 {
					time.AfterFunc(tt.ready, func() { k.objects.Replace(nil, "") })
				}
				start := time.Now()
				_, err := p.List(ctx, configMapKind, "shop", labels.Everything())
				if errString(err) != tt.want || time.Since(start) != tt.within {
					t.Errorf("List error = %q after %v, want %q after %v", errString(err), time.Since(start), tt.want, tt.within)
				}
				time.Sleep(5 * time.Second) // let what was begun end; the clock is synctest's
			})
		})
	}
	if _, err := newTestParams(t).List(t.Context(), configMapKind, "shop", labels.Everything()); errString(err) != text {
		t.Errorf("a kind that is not in use: %v", err)
	}
}

func TestParamsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := 0
		p := newTestParams(t)
		p.changed = func() { changes++ }
		k := p.newKind(configMapKind)
		p.kinds.Store(&map[schema.GroupVersionKind]*paramKind{configMapKind: k})
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
		for i, step := range []struct {
			do            func()
			synced, isErr bool
			changes       int
		}{
			{func() { k.objects.Note(forbidden) }, false, true, 1},
			{func() { k.objects.Note(forbidden) }, false, true, 1},
			{func() {
				k.objects.Note(nil)
				k.objects.Replace([]any{featuretest.Parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}")}, "")
			}, true, false, 3},
			{func() { k.objects.Replace(nil, "") }, true, false, 3},
			{func() { k.objects.Note(forbidden) }, true, true, 4},
			{func() { time.Sleep(staleAfter - time.Second); k.objects.Note(forbidden) }, true, true, 4}, // the clock is synctest's
			{func() { time.Sleep(time.Second); k.objects.Note(forbidden) }, false, true, 5},
			{func() { k.objects.Note(nil); k.objects.Replace(nil, "") }, true, false, 7},
		} {
			step.do()
			if s := p.State(configMapKind); s.Synced != step.synced || (s.Err != nil) != step.isErr || changes != step.changes {
				t.Errorf("step %d: %+v after %d changes; want synced %v, error %v, %d changes", i, s, changes, step.synced, step.isErr, step.changes)
			}
		}
	})
}

// A kind nobody serves is in use as any other, and is let go some time after its
// last policy.
func TestParamsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		p := newTestParams(t)
		unserved := schema.GroupVersionKind{Group: "ex.io", Version: "v9", Kind: "Foo"}
		kinds := []schema.GroupVersionKind{unserved}
		p.Use(ctx, kinds)
		k := p.kind(unserved)
		if k == nil {
			t.Fatal("not in use")
		}
		p.Use(ctx, nil)
		time.Sleep(linger / 2) // the clock is synctest's
		if p.kind(unserved) != k {
			t.Error("gone at once")
		}
		p.Use(ctx, kinds)
		time.Sleep(2 * linger)
		if p.kind(unserved) != k {
			t.Error("stopped although it is in use again")
		}
		p.Use(ctx, nil)
		p.Use(ctx, nil)
		time.Sleep(2 * linger)
		if p.kind(unserved) != nil {
			t.Error("still there")
		}
		p.Use(ctx, kinds)
		if again := p.kind(unserved); again == nil || again == k {
			t.Error("not made anew")
		}
	})
}

func TestHammerParams(t *testing.T) {
	p := newTestParams(t)
	unserved := schema.GroupVersionKind{Group: "ex.io", Version: "v9", Kind: "Foo"}
	p.changed = func() { p.State(unserved) }
	hammer.Run(3, 300, func(_, i int) {
		p.Use(t.Context(), [][]schema.GroupVersionKind{nil, {unserved}}[i%2])
		p.State(unserved)
		p.Kind(configMapKind)
		p.Get(t.Context(), unserved, "a", "b")
		p.sweep()
		if k := p.kind(unserved); k != nil {
			k.objects.Note(apierrors.NewServiceUnavailable("x"))
			k.objects.Note(nil)
		}
	})
}
