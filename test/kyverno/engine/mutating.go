package main

import (
	"context"
	"fmt"
	"strings"

	policiesv1beta1 "github.com/kyverno/api/api/policies.kyverno.io/v1beta1"
	celengine "github.com/kyverno/kyverno/pkg/cel/engine"
	"github.com/kyverno/kyverno/pkg/cel/libs"
	"github.com/kyverno/kyverno/pkg/cel/matching"
	"github.com/kyverno/kyverno/pkg/cel/policies/mpol/compiler"
	mpolengine "github.com/kyverno/kyverno/pkg/cel/policies/mpol/engine"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

// mutating is a MutatingPolicy, compiled, with those that Kyverno makes of it for controllers.
type mutating struct {
	policy   policiesv1beta1.MutatingPolicyLike
	provider mpolengine.Provider
}

func newMutating(p policiesv1beta1.MutatingPolicyLike) (Policy, error) {
	provider, err := mpolengine.NewProvider(compiler.NewCompiler(), []policiesv1beta1.MutatingPolicyLike{p}, nil, libs.GetLibsCtx())
	return mutating{p, provider}, err
}

// builtins implements compiler.TypeConverterManager with the types of Kyverno's own client.
type builtins struct{ managedfields.TypeConverter }

func (b builtins) GetTypeConverter(schema.GroupVersionKind) managedfields.TypeConverter {
	return b.TypeConverter
}

var known = builtins{applyconfigurations.NewTypeConverter(scheme.Scheme)}

// Mutate runs the policies (Kyverno's pkg/webhooks/resource/mpol). One whose failurePolicy is
// Ignore changes nothing if it fails.
func (m mutating) Mutate(ctx context.Context, r Request) (Result, error) {
	request, err := r.admission()
	if err != nil || filtered(request) {
		return Result{Object: r.Object}, err
	}
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: r.NamespaceLabels}}
	}
	predicate := mpolengine.And(mpolengine.ClusteredPolicy(), mpolengine.NoTargetMatchConstraintPolicy())
	if m.policy.GetNamespace() != "" {
		predicate = mpolengine.And(mpolengine.NamespacedPolicy(request.Namespace), mpolengine.NoTargetMatchConstraintPolicy())
	}
	e := mpolengine.NewEngine(m.provider, namespace, matching.NewMatcher(), known, libs.GetLibsCtx())
	response, err := e.Handle(ctx, celengine.RequestFromAdmission(libs.GetLibsCtx(), request), predicate)
	if err != nil {
		return Result{}, err
	}
	out := Result{Object: r.Object, Rules: map[string]string{}}
	if response.PatchedResource != nil {
		out.Object = response.PatchedResource.Object
	}
	var errors []string
	for i, p := range response.Policies {
		for _, rule := range p.Rules {
			out.Rules[fmt.Sprint(i)] = string(rule.Status())
			if rule.Status() == engineapi.RuleStatusError && p.Policy.GetFailurePolicy(false) == admissionregistrationv1.Fail {
				errors = append(errors, rule.Message())
			}
		}
	}
	if len(errors) > 0 {
		out.Object, out.Error = nil, strings.Join(errors, "; ")
	}
	return out, nil
}
