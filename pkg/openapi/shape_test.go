package openapi

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

func init() {
	if err := apiextensionsv1.AddToScheme(clientscheme.Scheme); err != nil {
		panic(err)
	}
}

// allKinds are the kinds that requests to built-in resources carry.
func allKinds() []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for _, r := range builtin().Resources() {
		out = append(out, r.Kind)
		for _, sub := range r.Subresources {
			if gvk, ok := r.SubresourceKinds[sub]; ok {
				out = append(out, gvk)
			}
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(out)
}

// Zero values are worked out from the shapes; the converter agrees on every
// type that a built-in kind reaches, and there is none that we do not know.
func TestShapeZeroIsTheConverters(t *testing.T) {
	hammer.Alone(t)
	set := &shapeSet{m: map[reflect.Type]*shape{}}
	for _, rt := range goTypes().scheme.AllKnownTypes() {
		set.of(rt)
	}
	for rt, sh := range set.m {
		if sh.form == opaque {
			if rt.String() != "runtime.Object" {
				t.Errorf("%v is opaque: every change in one costs a round trip", rt)
			}
			continue
		}
		if want := zeroOf(rt); !tree.Equal(sh.zero, want) {
			t.Errorf("zero of %v is %v, want %v", rt, sh.zero, want)
		}
	}
}

// Objects and edits of every built-in kind: twelve are in
// TestSettleRandomEdits more often.
func TestSettleEveryKind(t *testing.T) {
	rounds := hammer.Count(5)
	types := New(Builtin())
	for i, gvk := range allKinds() {
		k, _ := types.Kind(gvk)
		if !k.Builtin() {
			continue
		}
		for round := range rounds {
			e := &editor{r: rand.New(rand.NewPCG(uint64(i), uint64(round)))}
			obj := e.fitting(k.goType.root.shape, 7).(map[string]any)
			obj["apiVersion"], obj["kind"] = gvk.ToAPIVersionAndKind()
			got, err := k.Normalize(obj)
			want, wantErr := wantBuiltin(gvk, obj, FromJSONPatch)
			if err != nil || wantErr != nil {
				t.Fatalf("%v: Normalize error = %v, want %v; the object ought to fit:\n%s", gvk, err, wantErr, asJSON(obj))
			}
			if !tree.Equal(got, want) {
				t.Fatalf("%v: Normalize differs (-want +got):\n%s", gvk, cmp.Diff(want, got))
			}
			before := got
			for range 6 {
				after, ok := e.edit(k.goType.root.shape, before, before).(map[string]any)
				if !ok || after == nil {
					continue
				}
				if unstable(obj) || unstable(after) {
					break
				}
				if err := differ(k, before, after, Decoding(e.r.IntN(2))); err != nil {
					t.Fatalf("%v round %d\nbefore %s\nafter  %s\n%v", gvk, round, asJSON(before), asJSON(after), err)
				}
			}
		}
	}
}
