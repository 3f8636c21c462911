package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Input has what a migration reads: mutators, and what is needed to understand them.
type Input struct {
	Mutators   []*legacy.Mutator
	Config     *legacy.Config
	Namespaces map[string]map[string]any
	Types      *openapi.Types   // after Settle
	Sources    []openapi.Source // of other kinds than those of definitions
	Notes      []string
	Ignored    map[string]int // documents that are not for a migration, by kind

	configNamespace string            // of Config
	seen            map[string]string // where each mutator stands, by ID
	crds            []*unstructured.Unstructured
	refused         []refusal
}

// refusal is a mutator that Gatekeeper would have refused.
type refusal struct {
	id  string
	err error
	at  error // err with its place in a file; nil if there is none
}

// NewInput returns an Input that has read nothing.
func NewInput() *Input {
	return &Input{Namespaces: map[string]map[string]any{}, seen: map[string]string{}, Ignored: map[string]int{}}
}

// Add records one object. d is its document, nil if it is from a cluster.
func (in *Input) Add(u *unstructured.Unstructured, d *manifest.Document) error {
	gvk := u.GroupVersionKind()
	switch {
	case gvk.Group == legacy.Group && slices.Contains(legacy.Kinds(), legacy.Kind(gvk.Kind)):
		return in.addMutator(u, d)
	case gvk.Group == legacy.ConfigGroup && gvk.Kind == "Config":
		if u.GetName() != legacy.ConfigName {
			in.Notes = append(in.Notes, manifest.Name(u)+": Gatekeeper reads only the one with the name config")
			return nil
		}
		c, err := legacy.DecodeConfig(u)
		switch {
		case err != nil && d != nil:
			return policyset.MutatorError(d, err)
		case err != nil:
			return err
		}
		if in.Config == nil || in.closer(u.GetNamespace()) {
			in.Config, in.configNamespace = c, u.GetNamespace()
		}
	case gvk.Group == api.DefinitionGroup && gvk.Kind == api.DefinitionKind:
		in.crds = append(in.crds, u)
	case gvk.Group == "" && gvk.Kind == "Namespace":
		in.Namespaces[u.GetName()] = u.Object
	default:
		in.Ignored[gvk.Kind]++
	}
	return nil
}

// closer reports whether a Config in a namespace replaces the one read before. Gatekeeper reads
// the Config of its own namespace. That is assumed to be the default one or, if it has no Config,
// the first namespace that has one.
func (in *Input) closer(namespace string) bool {
	const usual = api.GatekeeperNamespace
	return in.configNamespace != usual && (namespace == usual || namespace < in.configNamespace)
}

func (in *Input) addMutator(u *unstructured.Unstructured, d *manifest.Document) error {
	id := u.GetKind() + "/" + u.GetName()
	if d != nil {
		if first, ok := in.seen[id]; ok {
			return d.ErrorAt("metadata.name", fmt.Errorf("%s is given twice, first in %s", id, first))
		}
		in.seen[id] = d.Where()
	}
	m, err := legacy.Decode(u)
	if err == nil {
		in.Mutators = append(in.Mutators, m)
		return nil
	}
	r := refusal{id: id, err: err}
	if d != nil {
		r.at = policyset.MutatorError(d, err)
	}
	in.refused = append(in.refused, r)
	return nil
}

// Settle combines what was read.
func (in *Input) Settle() error {
	slices.SortFunc(in.Mutators, legacy.Compare)
	custom, err := openapi.CRDs(in.crds...)
	if err != nil {
		return err
	}
	in.Types = openapi.New(slices.Concat([]openapi.Source{openapi.Builtin(), custom}, in.Sources)...)
	var what []string
	for _, kind := range slices.Sorted(maps.Keys(in.Ignored)) {
		what = append(what, fmt.Sprintf("%d %s", in.Ignored[kind], kind))
	}
	if len(what) > 0 {
		in.Notes = append(in.Notes, "no mutators, so left alone: "+strings.Join(what, ", "))
	}
	return nil
}

// Object returns an object for comparisons. It gets a namespace if its kind is namespaced.
func (in *Input) Object(u *unstructured.Unstructured, namespace, origin string) verify.Object {
	return verify.Object{Object: runtime.DeepCopyJSON(u.Object), Origin: origin, Namespace: in.Namespaces[namespace]}
}

// Empty reports whether there is no mutator.
func (in *Input) Empty() bool { return len(in.Mutators) == 0 && len(in.refused) == 0 }

// Refused returns the errors of mutators that Gatekeeper would have refused, with their
// places.
func (in *Input) Refused() (errs []error) {
	for _, r := range in.refused {
		if r.at != nil {
			errs = append(errs, r.at)
		}
	}
	return errs
}

// Translate returns the policies for the mutators, and the report with their files.
func (in *Input) Translate(ctx context.Context, o translate.Options) ([]translate.Unit, *Report, error) {
	o.Types = in.Types
	excluded := in.Config.Patterns(api.GatekeeperProcess)
	translated := make([]*legacy.Mutator, len(in.Mutators))
	for i, mutator := range in.Mutators {
		translated[i] = mutator.Excluding(excluded)
	}
	units := translate.Native(translated, o)
	r := newReport(units)
	for _, x := range in.refused {
		r.Refuse(x.id, x.err)
	}
	r.Notes = append(r.Notes, in.Notes...)
	if len(excluded) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("the Config keeps mutation from the namespaces %s: the policies exclude them", strings.Join(excluded, ", ")))
	}
	r.Files = Files(units, o.Group)
	return units, r, r.warnOfUpdates(ctx)
}

// warnOfUpdates notes which policies set what an update cannot change.
func (r *Report) warnOfUpdates(ctx context.Context) error {
	sources := make([]lint.Source, len(r.Files))
	for i, f := range r.Files {
		sources[i] = lint.Source{Name: f.Name, Data: f.Data}
	}
	const rule = "immutable-field"
	found, err := lint.Run(ctx, sources, lint.Options{Oldest: lint.CurrentMinor, Newest: lint.CurrentMinor, Only: []string{rule}})
	if err != nil {
		return err
	}
	var names []string
	for _, f := range found.Findings {
		if f.Rule == rule && !slices.Contains(names, f.File) {
			names = append(names, f.File)
		}
	}
	const most = 5
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	if len(names) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s: updates of objects that are older than the policy are refused, as with Gatekeeper, because a server lets no update change what it sets; --operations create leaves updates alone, and without it mapd lint warns (%s)",
			strings.Join(names, ", "), rule))
	}
	return nil
}

// Verifier returns a verifier that compares the mutators with units, the result of Translate with
// o. Options of the verification are completed with what in has read.
func (in *Input) Verifier(units []translate.Unit, o translate.Options, v verify.Options) *verify.Verifier {
	o.Types = in.Types
	v.Types, v.Config = in.Types, in.Config
	v.Alone = func(one *legacy.Mutator) []translate.Unit { return translate.Native([]*legacy.Mutator{one}, o) }
	return verify.New(in.Mutators, units, v)
}
