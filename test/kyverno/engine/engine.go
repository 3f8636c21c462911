package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	policiesv1beta1 "github.com/kyverno/api/api/policies.kyverno.io/v1beta1"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	"github.com/kyverno/kyverno/pkg/config"
	"github.com/kyverno/kyverno/pkg/engine"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	"github.com/kyverno/kyverno/pkg/engine/factories"
	"github.com/kyverno/kyverno/pkg/engine/jmespath"
	"github.com/kyverno/kyverno/pkg/engine/policycontext"
	imageverifycache "github.com/kyverno/kyverno/pkg/image/verification/cache"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Request is what the webhook knows about the object to mutate.
type Request struct {
	Operation string         `json:"operation"` // CREATE or UPDATE
	Object    map[string]any `json:"object"`    // not modified
	OldObject map[string]any `json:"oldObject,omitempty"`
	// NamespaceLabels are those of the object's Namespace.
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	User            string            `json:"user,omitempty"`
	Groups          []string          `json:"groups,omitempty"`
	SubResource     string            `json:"subresource,omitempty"`
	// ConfigMaps are those of the cluster, by namespace/name.
	ConfigMaps map[string]map[string]string `json:"configMaps,omitempty"`
}

// configMaps implements engineapi.ConfigmapResolver.
type configMaps map[string]map[string]string

func (c configMaps) Get(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	data, ok := c[namespace+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}, nil
}

// Result is what became of an object.
type Result struct {
	// Object is the patched object; nil if the request is refused.
	Object map[string]any `json:"object,omitempty"`
	// Error is what the request is refused with.
	Error string `json:"error,omitempty"`
	// Rules has the status of each rule that matched, by its name: pass, skip or error.
	Rules map[string]string `json:"rules,omitempty"`
}

var (
	configuration = config.NewDefaultConfiguration(false)
	functions     = jmespath.New(configuration)
)

func init() {
	ctrllog.SetLogger(logr.Discard())
	// Of the ConfigMap that Kyverno is installed with, this is about controllers.
	configuration.Load(&corev1.ConfigMap{Data: map[string]string{"resourceFilters": "[ReplicaSet,*,*]"}})
}

// filtered reports whether the webhook leaves out the request's object, for whatever policy.
func filtered(r admissionv1.AdmissionRequest) bool {
	return configuration.ToFilter(schema.GroupVersionKind(r.Kind), r.SubResource, r.Namespace, r.Name)
}

// Policy is a policy that Kyverno has accepted.
type Policy interface {
	// Mutate runs the policy on the object of a request as the webhook does.
	Mutate(ctx context.Context, r Request) (Result, error)
}

// Decode reads a policy as Kyverno does, from JSON.
func Decode(data []byte) (Policy, error) {
	var head struct{ Kind string }
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	switch head.Kind {
	case "ClusterPolicy":
		p := &kyvernov1.ClusterPolicy{}
		return rules{p}, json.Unmarshal(data, p)
	case "Policy":
		p := &kyvernov1.Policy{}
		return rules{p}, json.Unmarshal(data, p)
	case "MutatingPolicy":
		p := &policiesv1beta1.MutatingPolicy{}
		if err := json.Unmarshal(data, p); err != nil {
			return nil, err
		}
		return newMutating(p)
	case "NamespacedMutatingPolicy":
		p := &policiesv1beta1.NamespacedMutatingPolicy{}
		if err := json.Unmarshal(data, p); err != nil {
			return nil, err
		}
		return newMutating(p)
	}
	return nil, fmt.Errorf("kind %q is no policy of Kyverno", head.Kind)
}

// rules is a policy of rules.
type rules struct{ policy kyvernov1.PolicyInterface }

// admission returns the request that the webhook gets.
func (r Request) admission() (admissionv1.AdmissionRequest, error) {
	object := unstructured.Unstructured{Object: r.Object}
	gvk := object.GroupVersionKind()
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	request := admissionv1.AdmissionRequest{
		Operation: admissionv1.Operation(r.Operation), Name: object.GetName(), Namespace: object.GetNamespace(), SubResource: r.SubResource,
		Kind: metav1.GroupVersionKind(gvk), Resource: metav1.GroupVersionResource(resource),
		UserInfo: authenticationv1.UserInfo{Username: r.User, Groups: r.Groups},
	}
	if gvk.Kind == "Namespace" && gvk.Group == "" {
		request.Namespace = object.GetName()
	}
	var err error
	if request.Object.Raw, err = json.Marshal(r.Object); err != nil {
		return request, err
	}
	if r.OldObject != nil {
		request.OldObject.Raw, err = json.Marshal(r.OldObject)
	}
	return request, err
}

// Mutate runs the mutate rules of a policy (Kyverno's pkg/webhooks/resource/mutation). A policy
// whose failurePolicy is Ignore changes nothing if one of its rules fails.
func (p rules) Mutate(ctx context.Context, r Request) (Result, error) {
	request, err := r.admission()
	if err != nil || filtered(request) {
		return Result{Object: r.Object}, err
	}
	gvk := schema.GroupVersionKind(request.Kind)
	info := kyvernov2.RequestInfo{AdmissionUserInfo: request.UserInfo}
	pc, err := policycontext.NewPolicyContextFromAdmissionRequest(functions, request, info, gvk, configuration)
	if err != nil {
		return Result{}, err
	}
	// What needs a cluster or a registry finds none.
	e := engine.NewEngine(configuration, functions, nil, nil, imageverifycache.DisabledImageVerifyCache(),
		factories.DefaultContextLoaderFactory(configMaps(r.ConfigMaps)), nil, nil)
	response := e.Mutate(ctx, pc.WithPolicy(p.policy).WithNamespaceLabels(r.NamespaceLabels))
	out := Result{Object: response.PatchedResource.Object, Rules: map[string]string{}}
	var errors []string
	for _, rule := range response.PolicyResponse.Rules {
		out.Rules[rule.Name()] = string(rule.Status())
		if rule.HasStatus(engineapi.RuleStatusError, engineapi.RuleStatusFail) {
			errors = append(errors, rule.Name()+": "+rule.Message())
		}
	}
	switch {
	case response.IsSuccessful() && out.Object != nil:
	case p.policy.GetSpec().GetFailurePolicy(ctx) == kyvernov1.Fail && len(errors) > 0:
		out.Object, out.Error = nil, strings.Join(errors, "; ")
	default:
		out.Object = r.Object
	}
	return out, nil
}
