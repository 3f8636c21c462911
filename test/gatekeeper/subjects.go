package gatekeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/mapd-project/mapd/internal/gatekeeper/mutators"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/direct"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/subject"
)

// Direct is mapd's interpreter.
type Direct struct {
	system    direct.System
	providers Providers
}

// NewDirect returns an interpreter of ms.
func NewDirect(ms []*legacy.Mutator, providers Providers) *Direct {
	off := map[string]bool{}
	for id := range legacy.Conflicts(ms) {
		off[id] = true
	}
	return &Direct{direct.System{Mutators: ms, Off: off}, providers}
}

// Mutate answers a request as Gatekeeper's webhook would.
func (d *Direct) Mutate(r Request) (Result, error) {
	obj := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(r.Object)}
	before, namespace := obj.GetNamespace(), r.NamespaceObject
	obj.SetNamespace(r.Namespace)
	if isNamespace(obj) {
		obj.SetNamespace("")
		namespace = r.Object
	}
	got, err := d.system.Mutate(obj.Object, direct.Context{Namespace: namespace, Operation: r.Operation, Source: r.Source, UID: "<uuid>", Username: r.Username})
	if err == nil {
		got.Object, err = d.resolve(got.Object)
	}
	if err != nil {
		return Result{Passes: got.Passes, Error: mask(err.Error())}, nil
	}
	if !got.Mutated {
		return Result{Object: r.Object}, nil
	}
	after := &unstructured.Unstructured{Object: got.Object}
	after.SetNamespace(before)
	return Result{Passes: got.Passes, Object: after.Object}, nil
}

// resolve fills in what is pending (Gatekeeper spec §11.5).
func (d *Direct) resolve(obj map[string]any) (map[string]any, error) {
	var errs []error
	after := tree.Fill(obj, func(p *tree.Pending) string {
		value, err := d.providers.answer(engine.Question{Source: p.Source, Key: p.Key})
		switch {
		case err != nil && p.Must:
			errs = append(errs, err)
		case err != nil:
			return p.Fallback
		}
		return value
	})
	if len(errs) > 0 {
		return nil, fmt.Errorf("failed to resolve external data placeholders: %w", utilerrors.NewAggregate(errs))
	}
	return after.(map[string]any), nil
}

// Runtime is mapd's engine with a Set of mutators and no policies. Mutate must
// not be called from several goroutines.
type Runtime struct {
	// Built says what became of each mutator.
	Built *mutators.Result

	engine    *engine.Engine
	namespace map[string]any
}

// Shapes are compiled once for all Runtimes.
type Shapes struct{ builder *mutators.Builder }

// NewShapes returns none yet.
func NewShapes() *Shapes {
	return &Shapes{mutators.NewBuilder(policy.Deps{Env: subject.Env, Types: types})}
}

// NewRuntime builds a Set of ms.
func (s *Shapes) NewRuntime(ms []*legacy.Mutator, providers Providers) *Runtime {
	r := &Runtime{engine: engine.New(engine.Options{Resolver: providers})}
	r.Built = s.builder.Build(ms, nil, types, mutators.Options{Namespace: r.find, External: true})
	r.engine.Publish(engine.Mutators(r.Built.Set, api.Enforce))
	return r
}

// find is how the Set asks for the request's Namespace.
func (r *Runtime) find(_ context.Context, name string) (*unstructured.Unstructured, error) {
	if r.namespace == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
	}
	return &unstructured.Unstructured{Object: r.namespace}, nil
}

// Mutate answers a request.
func (r *Runtime) Mutate(ctx context.Context, q Request) (Result, error) {
	r.namespace = q.NamespaceObject
	return result(r.engine.Admit(ctx, admission(q)), q)
}

// admission is a request as mapd's engine gets it.
func admission(q Request) *policy.Request {
	obj := &unstructured.Unstructured{Object: q.Object}
	gvk := obj.GroupVersionKind()
	gvr := gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
	if known, ok := types.ResourceFor(gvk); ok {
		gvr = known.GVR
	}
	out := &policy.Request{UID: apitypes.UID(uuid.Nil.String()),
		Kind: gvk, Resource: gvr, RequestKind: gvk, RequestResource: gvr, Name: obj.GetName(), Namespace: q.Namespace,
		Operation: admissionv1.Operation(q.Operation), UserInfo: authenticationv1.UserInfo{Username: q.Username},
		Options: map[string]any{}, Object: obj}
	if isNamespace(obj) {
		out.Namespace = obj.GetName() // as a server sends it
	}
	if q.Source == "Generated" {
		out.Source, out.Operation = policy.Generated, admissionv1.Create
	}
	if q.Operation == "UPDATE" {
		out.OldObject = obj
	}
	return out
}

func result(d *engine.Decision, q Request) (Result, error) {
	if d.Status == nil {
		return Result{Passes: d.Rounds(engine.MutatorStage), Object: d.Object.Object}, nil
	}
	if d.Status.Code != 500 {
		return Result{}, fmt.Errorf("code %d: %s", d.Status.Code, d.Status.Message)
	}
	if d.Object.Object == nil {
		return Result{}, errors.New("a refused request lost its object")
	}
	return Result{Passes: d.Rounds(engine.MutatorStage), Error: mask(d.Status.Message)}, nil
}
