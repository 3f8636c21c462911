package main

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/test/bench"
	"github.com/mapd-project/mapd/test/oracle"
)

// inTree is the plugin of the API server: it decides requests whose objects are
// decoded, which for it means Go types.
type inTree struct {
	oracle  *oracle.Oracle
	request *oracle.Request
}

func (s *inTree) Prepare(ctx context.Context, w *bench.Workload) (*unstructured.Unstructured, error) {
	var err error
	if s.oracle, err = newOracle(w); err != nil {
		return nil, err
	}
	if s.request, err = s.oracle.Prepare(w.Request); err != nil {
		return nil, err
	}
	got := s.oracle.Admit(ctx, s.request)
	if got.Panic != nil || got.Status != nil {
		return nil, fmt.Errorf("denied: %v %v", got.Status, got.Panic)
	}
	return got.Object, nil
}

func (s *inTree) Run(ctx context.Context) (any, error) {
	object, _, err := s.oracle.Dispatch(ctx, s.request)
	return object, err
}

func newOracle(w *bench.Workload) (*oracle.Oracle, error) {
	return oracle.New(w.Policies, w.Bindings, w.Params, w.Namespaces, nil, nil)
}

// inTreeCompiled compiles the first policy.
type inTreeCompiled struct {
	inTree
	policy *admissionregistrationv1.MutatingAdmissionPolicy
}

func (s *inTreeCompiled) Prepare(ctx context.Context, w *bench.Workload) (*unstructured.Unstructured, error) {
	var err error
	if s.policy, err = oracle.DecodePolicy(w.Policies[0]); err != nil {
		return nil, err
	}
	return s.inTree.Prepare(ctx, w)
}

func (s *inTreeCompiled) Run(context.Context) (any, error) { return oracle.CompilePolicy(s.policy) }

// inTreeLoaded decodes and compiles all policies and joins them with their bindings.
type inTreeLoaded struct {
	inTree
	workload *bench.Workload
}

func (s *inTreeLoaded) Prepare(ctx context.Context, w *bench.Workload) (*unstructured.Unstructured, error) {
	s.workload = w
	got, err := s.inTree.Prepare(ctx, w)
	s.inTree = inTree{} // thousands of policies are not to be held twice
	return got, err
}

func (s *inTreeLoaded) Run(context.Context) (any, error) { return newOracle(s.workload) }
