package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/internal/author/requests"
	"github.com/mapd-project/mapd/internal/author/suite/cases"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// Generate returns the text of a suite for the policies of a file in the same directory. Its
// cases each reach an outcome of the policies' expressions that no earlier case reaches: with
// plain objects of the kinds that a policy matches, and with objects that differ from these in
// fields that the policy reads. The cases expect the present results. The same file gives the
// same text. Generate also returns the policies, which have counts if env observes.
func Generate(ctx context.Context, file string, env *cel.Env) ([]byte, *Loaded, error) {
	docs, errs := documents(file)
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	namespace := selectedNamespace(docs)
	spec := []cases.Field{{Name: "policies", Value: []any{filepath.Base(file)}}}
	all := docs
	if namespace != nil {
		for d, err := range mapd.Read("context", bytes.NewReader(manifest.Encode(namespace.Object))) {
			if err != nil {
				return nil, nil, err
			}
			all = append(slices.Clip(all), d)
		}
	}
	load := func(unbound bool) (*mapd.Policies, error) {
		return mapd.Load(mapd.Options{Unbound: unbound, ToolOptions: mapd.ToolOptions{Documents: all, Env: env}})
	}
	policies, err := load(false)
	if err == nil && slices.ContainsFunc(policies.Notes(), func(n mapd.Note) bool { return n.Kind == mapd.Unbound }) {
		spec = append(spec, cases.Field{Name: "unbound", Value: true})
		policies, err = load(true)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(policies.Policies()) == 0 {
		return nil, nil, fmt.Errorf("%s: there is no MutatingAdmissionPolicy in it", file)
	}
	var namespaces []string
	for _, d := range all {
		if u := d.Object(); u.GetKind() == "Namespace" && u.GetAPIVersion() == "v1" {
			namespaces = append(namespaces, u.GetName())
		}
	}
	found, counter := requests.Telling(ctx, policies, namespaces)
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if len(found) == 0 {
		return nil, nil, fmt.Errorf("%s: its policies match no request that was tried, or fail with each", file)
	}
	if namespace != nil && slices.ContainsFunc(found, func(c *requests.Candidate) bool {
		return (&unstructured.Unstructured{Object: c.Object}).GetNamespace() == namespace.GetName()
	}) {
		spec = append(spec, cases.Field{Name: "context", Value: []any{namespace.Object}})
	}
	var list [][]cases.Field
	for _, c := range found {
		list = append(list, fields(c))
	}
	text := cases.Write(fmt.Sprintf("# mapd test --generate wrote these cases for %s: they expect what the policies do today.\n", filepath.Base(file)), spec, list)
	return text, &Loaded{Policies: policies, Documents: all, Counter: counter}, nil
}

// selectedNamespace returns a Namespace with no more labels than the selectors of policies
// and bindings want, nil if they want none.
func selectedNamespace(docs []*mapd.Document) *unstructured.Unstructured {
	labels := map[string]string{}
	for _, d := range docs {
		u := d.Object()
		for _, field := range []string{"matchConstraints", "matchResources"} {
			if m, ok, _ := unstructured.NestedMap(u.Object, "spec", field, "namespaceSelector"); ok {
				var s metav1.LabelSelector
				if runtime.DefaultUnstructuredConverter.FromUnstructured(m, &s) == nil {
					maps.Copy(labels, requests.SelectedLabels(&s))
				}
			}
		}
	}
	if len(labels) == 0 {
		return nil
	}
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName("selected")
	if name, ok := labels["kubernetes.io/metadata.name"]; ok {
		ns.SetName(name)
	}
	if slices.ContainsFunc(docs, func(d *mapd.Document) bool {
		return d.Object().GetKind() == "Namespace" && d.Object().GetName() == ns.GetName()
	}) {
		return nil
	}
	ns.SetLabels(labels)
	return ns
}

func fields(c *requests.Candidate) []cases.Field {
	out := []cases.Field{{Name: "name", Value: c.Name}, {Name: "object", Value: c.Object}}
	if c.Old != nil {
		out = append(out, cases.Field{Name: "old", Value: c.Old})
	}
	return append(out, cases.Field{Name: "expect", Value: cases.From(c.Result, nil)})
}
