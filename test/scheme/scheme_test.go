package scheme

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/apiserver/defaulting"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
)

var count = flag.Int("objects", 300, "random objects of each kind")

// servers finds the Go type of every kind that mapd has a schema of and that can be
// sent to a server.
func servers(t *testing.T, types *openapi.Types) []*server {
	t.Helper()
	kinds := map[schema.GroupVersionKind]bool{}
	for _, r := range types.Resources() {
		kinds[r.Kind] = true
		for _, sub := range r.Subresources {
			if gvk, ok := types.KindFor(r.GVR, sub); ok {
				kinds[gvk] = true
			}
		}
	}
	var out []*server
	for gvk := range kinds {
		found := false
		for _, s := range schemes() {
			if goType, ok := s.AllKnownTypes()[gvk]; ok {
				out, found = append(out, &server{s, gvk, goType}), true
				break
			}
		}
		if !found {
			t.Errorf("no server knows %s", gvk)
		}
	}
	slices.SortFunc(out, func(a, b *server) int { return strings.Compare(a.gvk.String(), b.gvk.String()) })
	return out
}

// TestDefaults puts random objects of every built-in kind, from the empty one to those
// with every field, through the functions of a server and through internal/apiserver/defaulting.
func TestDefaults(t *testing.T) {
	types := openapi.New(openapi.Builtin())
	values := constants(t)
	for _, s := range servers(t, types) {
		t.Run(s.gvk.GroupVersion().String()+"/"+s.gvk.Kind, func(t *testing.T) {
			kind, err := types.Kind(s.gvk)
			if err != nil {
				t.Log(err) // a kind of a subresource, which has no schema
			}
			g := &generator{rand: rand.New(rand.NewPCG(1, uint64(len(s.gvk.String())))), constants: values}
			refused, differ, began := 0, 0, time.Now().Add(-time.Minute)
			for i := range *count {
				obj := g.object(s, i)
				body, err := json.Marshal(obj)
				if err != nil {
					t.Fatal(err)
				}
				want, err := s.admitted(body)
				if err != nil {
					if refused++; i == 0 {
						t.Fatalf("the smallest object is refused: %v", err)
					}
					continue
				}
				obj, err = tree.Decode(body)
				if err != nil {
					t.Fatal(err)
				}
				got, known := defaulting.Apply(obj)
				if !known {
					t.Fatal("no table for this kind")
				}
				if got, err = kind.Normalize(got); err != nil {
					t.Fatalf("%s: %v", body, err)
				}
				if want, err = kind.Normalize(want); err != nil {
					t.Fatalf("%s: %v", body, err)
				}
				dateless(want, began)
				dateless(got, began)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: -server +mapd\n%s", body, diff)
					if differ++; differ == 2 {
						t.FailNow()
					}
				}
			}
			if refused > *count/2 {
				t.Errorf("%d of %d objects were refused", refused, *count)
			}
		})
	}
}

// dateless replaces times after a moment, which are those of the test, by a word.
func dateless(value any, after time.Time) any {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = dateless(item, after)
		}
	case []any:
		for i, item := range v {
			v[i] = dateless(item, after)
		}
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil && at.After(after) {
			return "now"
		}
	}
	return value
}
