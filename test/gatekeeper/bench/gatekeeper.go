package main

import (
	"context"
	"encoding/json"

	mutationsunversioned "github.com/open-policy-agent/gatekeeper/v3/apis/mutations/unversioned"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/mutators/assign"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/mutators/assignmeta"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/test/bench"
)

// theirs is Gatekeeper's mutation system: it decides requests whose objects are
// decoded, which for it means trees.
type theirs struct {
	mutators []string // as JSON
	system   *mutation.System
	request  mutationtypes.Mutable
	object   map[string]any
}

func (s *theirs) Prepare(ctx context.Context, w *bench.Workload) (*unstructured.Unstructured, error) {
	for _, u := range w.Mutators {
		text, err := u.MarshalJSON()
		if err != nil {
			return nil, err
		}
		s.mutators = append(s.mutators, string(text))
	}
	namespace := &corev1.Namespace{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(w.Namespaces[0].Object, namespace); err != nil {
		return nil, err
	}
	s.object = w.Request.Object.Object
	s.request = mutationtypes.Mutable{Namespace: namespace, Username: w.Request.User.Username,
		Operation: admissionv1.Operation(w.Request.Operation), Source: mutationtypes.SourceTypeOriginal}
	var err error
	if s.system, err = s.load(); err != nil {
		return nil, err
	}
	s.Fresh()
	return s.mutate(ctx)
}

func (s *theirs) Run(ctx context.Context) (any, error) { return s.mutate(ctx) }

func (s *theirs) mutate(ctx context.Context) (*unstructured.Unstructured, error) {
	_, err := s.system.Mutate(ctx, &s.request)
	return s.request.Object, err
}

// Fresh copies the object, because the system changes the one that it is given.
func (s *theirs) Fresh() {
	s.request.Object = &unstructured.Unstructured{Object: runtime.DeepCopyJSON(s.object)}
}

func (s *theirs) load() (*mutation.System, error) {
	system := mutation.NewSystem(mutation.SystemOpts{})
	for _, text := range s.mutators {
		if err := upsert(system, text); err != nil {
			return nil, err
		}
	}
	return system, nil
}

// upsert is what the controllers do with a mutator.
func upsert(system *mutation.System, text string) error {
	var kind struct{ Kind string }
	if err := json.Unmarshal([]byte(text), &kind); err != nil {
		return err
	}
	var m mutationtypes.Mutator
	var err error
	if kind.Kind == "Assign" {
		obj := &mutationsunversioned.Assign{}
		if err := json.Unmarshal([]byte(text), obj); err != nil {
			return err
		}
		m, err = assign.MutatorForAssign(obj)
	} else {
		obj := &mutationsunversioned.AssignMetadata{}
		if err := json.Unmarshal([]byte(text), obj); err != nil {
			return err
		}
		m, err = assignmeta.MutatorForAssignMetadata(obj)
	}
	if err != nil {
		return err
	}
	return system.Upsert(m)
}

// theirsLoaded puts all mutators into a system.
type theirsLoaded struct{ theirs }

func (s *theirsLoaded) Run(context.Context) (any, error) { return s.load() }

// theirsChanged puts in another version of one mutator among many, and decides the
// first request after that.
type theirsChanged struct {
	theirs
	next [2]string // versions of the mutator in turns
}

func (s *theirsChanged) Prepare(ctx context.Context, w *bench.Workload) (*unstructured.Unstructured, error) {
	if _, err := s.theirs.Prepare(ctx, w); err != nil {
		return nil, err
	}
	u := w.Mutators[len(w.Mutators)/2].DeepCopy()
	if err := unstructured.SetNestedStringSlice(u.Object, []string{"another"}, "spec", "match", "excludedNamespaces"); err != nil {
		return nil, err
	}
	text, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	s.next = [2]string{string(text), s.mutators[len(s.mutators)/2]}
	s.Fresh()
	return s.turn(ctx)
}

func (s *theirsChanged) Run(ctx context.Context) (any, error) { return s.turn(ctx) }

func (s *theirsChanged) turn(ctx context.Context) (*unstructured.Unstructured, error) {
	if err := upsert(s.system, s.next[0]); err != nil {
		return nil, err
	}
	s.next[0], s.next[1] = s.next[1], s.next[0]
	return s.mutate(ctx)
}
