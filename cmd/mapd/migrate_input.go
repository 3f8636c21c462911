package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/internal/snapshot"
	"github.com/mapd-project/mapd/internal/verify"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// mutatorInput has what migrate reads: mutators, and what is needed to
// understand them.
type mutatorInput struct {
	mutators   []*legacy.Mutator
	refused    []refusedMutator
	config     *legacy.Config
	namespaces map[string]map[string]any
	types      *openapi.Types
	notes      []string

	configNamespace string            // of config
	seen            map[string]string // where each mutator stands, by ID
	sources         []openapi.Source
	crds            []*unstructured.Unstructured
	ignored         map[string]int // by kind
}

// refusedMutator is a mutator that Gatekeeper would have refused.
type refusedMutator struct {
	id  string
	err error
	at  error // err with its place in a file; nil if there is none
}

func newMutatorInput() mutatorInput {
	return mutatorInput{namespaces: map[string]map[string]any{}, seen: map[string]string{}, ignored: map[string]int{}}
}

// readFiles reads mutators and others from files. Its errors are about files
// that cannot be read.
func (in *mutatorInput) readFiles(paths []string, recursive bool, stdin io.Reader) []error {
	files, skipped, err := manifest.Files(paths, recursive)
	if err != nil {
		return []error{err}
	}
	for what, n := range skipped {
		in.ignored[what] += n
	}
	var errs []error
	for d, err := range manifest.Read(manifest.Inputs(once(files), stdin)) {
		if err == nil && d.Object != nil {
			err = in.add(d.Object, d)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// add records one object. d is its document, nil if it is from a cluster.
func (in *mutatorInput) add(u *unstructured.Unstructured, d *manifest.Document) error {
	gvk := u.GroupVersionKind()
	switch {
	case gvk.Group == legacy.Group && slices.Contains(legacy.Kinds(), legacy.Kind(gvk.Kind)):
		return in.addMutator(u, d)
	case gvk.Group == legacy.ConfigGroup && gvk.Kind == "Config":
		if u.GetName() != legacy.ConfigName {
			in.notes = append(in.notes, manifest.Name(u)+": Gatekeeper reads only the one with the name config")
			return nil
		}
		c, err := legacy.DecodeConfig(u)
		switch {
		case err != nil && d != nil:
			return snapshot.MutatorError(d, err)
		case err != nil:
			return err
		}
		if in.config == nil || in.closer(u.GetNamespace()) {
			in.config, in.configNamespace = c, u.GetNamespace()
		}
	case gvk.Group == api.DefinitionGroup && gvk.Kind == api.DefinitionKind:
		in.crds = append(in.crds, u)
	case gvk.Group == "" && gvk.Kind == "Namespace":
		in.namespaces[u.GetName()] = u.Object
	default:
		in.ignored[gvk.Kind]++
	}
	return nil
}

// closer reports whether a Config in a namespace replaces the one that was read
// before. Gatekeeper reads the Config of its own namespace: the usual one or,
// if that has no Config, the first namespace that has one.
func (in *mutatorInput) closer(namespace string) bool {
	const usual = api.GatekeeperNamespace
	return in.configNamespace != usual && (namespace == usual || namespace < in.configNamespace)
}

func (in *mutatorInput) addMutator(u *unstructured.Unstructured, d *manifest.Document) error {
	id := u.GetKind() + "/" + u.GetName()
	if d != nil {
		if first, ok := in.seen[id]; ok {
			return d.ErrorAt("metadata.name", fmt.Errorf("%s is given twice, first in %s", id, first))
		}
		in.seen[id] = d.Where()
	}
	m, err := legacy.Decode(u)
	if err == nil {
		in.mutators = append(in.mutators, m)
		return nil
	}
	r := refusedMutator{id: id, err: err}
	if d != nil {
		r.at = snapshot.MutatorError(d, err)
	}
	in.refused = append(in.refused, r)
	return nil
}

// settle combines what was read.
func (in *mutatorInput) settle() error {
	slices.SortFunc(in.mutators, legacy.Compare)
	custom, err := openapi.CRDs(in.crds...)
	if err != nil {
		return err
	}
	in.types = openapi.New(slices.Concat([]openapi.Source{openapi.Builtin(), custom}, in.sources)...)
	var what []string
	for _, kind := range slices.Sorted(maps.Keys(in.ignored)) {
		what = append(what, fmt.Sprintf("%d %s", in.ignored[kind], kind))
	}
	if len(what) > 0 {
		in.notes = append(in.notes, "no mutators, so left alone: "+strings.Join(what, ", "))
	}
	return nil
}

// readObjects reads the objects to compare on and calls check with each. A
// Namespace among them, at any position, is also the Namespace of the others.
func (in *mutatorInput) readObjects(paths []string, recursive bool, stdin io.Reader, check func(verify.Object)) (n int, errs []error) {
	files, _, err := manifest.Files(paths, recursive)
	if err != nil {
		return 0, []error{err}
	}
	var docs []*manifest.Document
	for d, err := range manifest.Read(manifest.Inputs(once(files), stdin)) {
		switch {
		case err != nil:
			errs = append(errs, err)
		case d.Object != nil:
			if d.Object.GetKind() == "Namespace" && d.Object.GetAPIVersion() == "v1" {
				in.namespaces[d.Object.GetName()] = d.Object.Object
			}
			docs = append(docs, d)
		}
	}
	if len(errs) > 0 {
		return 0, errs
	}
	for _, d := range docs {
		check(in.object(d.Object, cmp.Or(d.Object.GetNamespace(), snapshot.DefaultNamespace), d.Name()+" in "+d.Where()))
	}
	return len(docs), nil
}

// object returns an object to compare on. It is in a namespace if its kind is
// namespaced.
func (in *mutatorInput) object(u *unstructured.Unstructured, namespace, origin string) verify.Object {
	return verify.Object{Object: runtime.DeepCopyJSON(u.Object), Origin: origin, Namespace: in.namespaces[namespace]}
}
