package policyset

import (
	"io"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// toys are documents of a kind that nobody else knows: all that a new kind of policy needs
// here.
type toys struct{ names *[]string }

func (toys) kinds() map[string][]string                       { return map[string][]string{"toys.example.com": {"Toy"}} }
func (toys) on(o *Options) bool                               { return o.Mutators != api.Off }
func (toys) takes(gvk schema.GroupVersionKind, _ string) bool { return gvk.Group == "toys.example.com" }
func (toys) namespaced(schema.GroupVersionKind) bool          { return true }
func (toys) parameters() bool                                 { return false }
func (toys) readsAll() bool                                   { return false }
func (t toys) build(b *builder, docs []*manifest.Document, _ *Options) {
	for _, d := range docs {
		*t.names = append(*t.names, d.Object.GetName())
	}
}

// A new kind of policy among documents is a type with these methods and an element of
// features: its documents are read once each, told from others, and are context of objects.
func TestNewFeature(t *testing.T) {
	var names []string
	before := features
	features = append(slices.Clone(features), toys{&names})
	defer func() { features = before }()
	toy := schema.GroupVersionKind{Group: "toys.example.com", Version: "v1", Kind: "Toy"}
	if !IsContext(toy) || IsContext(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Toy"}) {
		t.Error("what is context of objects")
	}
	docs, errs := manifest.ReadAll([]manifest.Input{{Name: "toys.yaml", Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("{apiVersion: toys.example.com/v1, kind: Toy, metadata: {name: a}}\n---\n{apiVersion: toys.example.com/v1, kind: Toy, metadata: {name: a, namespace: other}}\n")), nil
	}}}, func(*manifest.Document) {})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	s, errs := Build(docs, Options{})
	if len(errs) > 0 || !slices.Equal(names, []string{"a", "a"}) || len(s.Ignored) > 0 {
		t.Errorf("read %v, ignored %v, errors %v", names, s.Ignored, errs)
	}
	if _, errs := Build(append(docs, docs[0]), Options{}); len(errs) != 1 {
		t.Errorf("a name that is given twice: %v", errs)
	}
	names = nil
	s, errs = Build(docs, Options{Mutators: api.Off})
	if len(errs) > 0 || len(names) > 0 || s.Ignored["Toy"] != 2 {
		t.Errorf("when it is off: read %v, ignored %v, errors %v", names, s.Ignored, errs)
	}
}

// What mapd runs in a cluster, exceptions can name.
func TestExceptionNames(t *testing.T) {
	kinds := []schema.GroupVersionKind{
		{Group: kubewarden.Group, Version: "v1", Kind: kubewarden.ClusterPolicyKind}, {Group: kubewarden.Group, Version: "v1", Kind: kubewarden.PolicyKind},
	}
	for _, kind := range legacy.Kinds() {
		kinds = append(kinds, schema.GroupVersionKind{Group: legacy.Group, Version: "v1", Kind: string(kind)})
	}
	for _, gvk := range kinds {
		name := api.ExceptionName(gvk, "x")
		if gvr, target := api.ExceptionTarget(name); name != gvk.Kind+"/x" || target != "x" || gvr.GroupVersion() != gvk.GroupVersion() {
			t.Errorf("%s: %q, which is %s %q", gvk, name, gvr, target)
		}
	}
}
