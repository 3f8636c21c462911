package verify

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/direct"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
)

// mutatorSide is the side of the mutators: Gatekeeper behind an API server.
type mutatorSide struct {
	system  direct.System
	config  *legacy.Config
	answers engine.Resolver // nil if no mutator asks
}

// newMutatorSide returns a side that runs some of all mutators.
func newMutatorSide(all, some []*legacy.Mutator, config *legacy.Config, answers engine.Resolver) *mutatorSide {
	on := map[string]bool{}
	for _, m := range some {
		on[m.ID()] = true
	}
	off := map[string]bool{}
	for _, m := range all {
		if !on[m.ID()] {
			off[m.ID()] = true
		}
	}
	return &mutatorSide{direct.System{Mutators: all, Off: off}, config, answers}
}

// skips reports whether Gatekeeper does not look at a request, or its webhook is
// not called: API servers call no webhook about objects of their own admission
// group, and a namespace is exempt by its label or by being Gatekeeper's own
// (Gatekeeper spec §9.2, §9.5).
func (s *mutatorSide) skips(r *request) bool {
	if r.gvk.Group == api.NativeGroup || r.namespaceName() == api.GatekeeperNamespace || api.IsGatekeepers(r.gvk.Group) {
		return true
	}
	ns := r.namespace
	if r.isNamespace() {
		ns = r.object
	}
	if s.config.Excludes(api.GatekeeperProcess, r.namespaceName()) {
		return true
	}
	_, ignored := (&unstructured.Unstructured{Object: ns}).GetLabels()[api.IgnoreLabel]
	return ignored
}

// run sends a request to Gatekeeper's webhook and applies the answer as a
// server does.
func (s *mutatorSide) run(ctx context.Context, r *request) Result {
	if s.skips(r) {
		return Result{Object: r.object}
	}
	c := direct.Context{Namespace: r.namespace, Operation: r.operation, Source: "Original", UID: "<uuid>", Username: r.user}
	if r.isNamespace() {
		c.Namespace = r.object
	}
	out, err := s.system.Mutate(r.object, c)
	if err != nil {
		return Result{Refused: firstLine(err.Error())}
	}
	if !out.Mutated {
		return Result{Object: r.object}
	}
	if out.Object, err = s.answered(ctx, out.Object); err != nil {
		return Result{Refused: firstLine(err.Error())}
	}
	after, err := r.lenient(out.Object)
	if err != nil {
		return Result{Refused: "the API server cannot decode the result: " + firstLine(err.Error())}
	}
	return Result{Object: after}
}

// answered fills in what a mutated object is to have of providers (Gatekeeper spec
// §11.5).
func (s *mutatorSide) answered(ctx context.Context, obj map[string]any) (map[string]any, error) {
	places := tree.Places(obj)
	if len(places) == 0 {
		return obj, nil
	}
	questions := make([]engine.Question, len(places))
	for i, p := range places {
		questions[i] = engine.Question{Source: p.Pending.Source, Key: p.Pending.Key}
	}
	texts := map[tree.Pending]string{}
	for i, a := range s.answers.Resolve(ctx, questions, false) {
		p := places[i].Pending
		switch {
		case a.Err == nil:
			texts[*p] = a.Value
		case p.Must:
			return nil, a.Err
		default:
			texts[*p] = p.Fallback
		}
	}
	return tree.Fill(obj, func(p *tree.Pending) string { return texts[*p] }).(map[string]any), nil
}

// lenient decodes the answer of a webhook as a server does: it drops unknown
// fields of built-in kinds (Gatekeeper spec §9.4).
func (r *request) lenient(obj map[string]any) (map[string]any, error) {
	if tree.Same(obj, r.object) {
		return obj, nil
	}
	obj = plain(obj)
	if r.kind == nil {
		return obj, nil
	}
	if !r.kind.Builtin() {
		return r.kind.Settle(r.object, obj, openapi.FromJSONPatch)
	}
	out, err := r.kind.Normalize(obj)
	if runtime.IsStrictDecodingError(err) {
		// The conversion from a tree skips fields that the Go type lacks.
		return r.kind.Settle(nil, obj, openapi.FromApply)
	}
	return out, err
}
