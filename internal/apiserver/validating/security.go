package validating

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	psadmission "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	psapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	pspolicy "k8s.io/pod-security-admission/policy"

	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/quantity"
)

// security is the PodSecurity plugin of a server that has no configuration for it:
// Namespaces without labels are privileged, and nobody is exempt.
type security struct{ *psadmission.Admission }

func newSecurity(s *Set) (*security, error) {
	config, err := load.LoadFromData(nil)
	if err != nil {
		return nil, err
	}
	evaluator, err := pspolicy.NewEvaluator(pspolicy.DefaultChecks(), nil)
	if err != nil {
		return nil, err
	}
	a := &psadmission.Admission{Configuration: config, Evaluator: evaluator, Metrics: uncounted{}, NamespaceGetter: namespaceGetter{s}, PodLister: noPods{}}
	if err := a.CompleteConfiguration(); err != nil {
		return nil, err
	}
	return &security{a}, a.ValidateConfiguration()
}

type namespaceGetter struct{ *Set }

func (n namespaceGetter) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return n.typedNamespace(ctx, name)
}

// noPods replaces the lookup of existing Pods. The plugin would check them when the labels of a
// Namespace change.
type noPods struct{}

func (noPods) ListPods(context.Context, string) ([]*corev1.Pod, error) { return nil, nil }

// uncounted is a metrics recorder that records nothing.
type uncounted struct{}

func (uncounted) RecordEvaluation(metrics.Decision, psapi.LevelVersion, metrics.Mode, psapi.Attributes) {
}
func (uncounted) RecordExemption(psapi.Attributes)   {}
func (uncounted) RecordError(bool, psapi.Attributes) {}

// podKinds are the kinds that have a Pod's spec, as Go types.
var podKinds = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}()

// podAttributes present a request to the PodSecurity plugin. It converts objects to Go types only
// when the plugin asks for them, which it does for levels above privileged only.
type podAttributes struct {
	psapi.AttributesRecord
	object, old *unstructured.Unstructured
}

func (a *podAttributes) GetObject() (runtime.Object, error)    { return typed(a.object) }
func (a *podAttributes) GetOldObject() (runtime.Object, error) { return typed(a.old) }

func typed(u *unstructured.Unstructured) (runtime.Object, error) {
	if u == nil {
		return nil, nil
	}
	obj, err := podKinds.New(u.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	// No level of Pod Security depends on a quantity.
	return obj, runtime.DefaultUnstructuredConverter.FromUnstructured(quantity.Within(u.Object), obj)
}

// podSecurity adds the violations of the namespace's Pod Security levels.
func (j *judgement) podSecurity() error {
	r := j.req
	if !(psadmission.DefaultPodSpecExtractor{}).HasPodSpec(r.Resource.GroupResource()) || j.object == nil {
		return nil
	}
	response := j.security.Validate(j.ctx, &podAttributes{
		AttributesRecord: psapi.AttributesRecord{
			Name: r.Name, Namespace: r.Namespace, Kind: r.Kind, Resource: r.Resource, Subresource: r.SubResource,
			Operation: operation(r), Username: r.UserInfo.Username,
		},
		object: j.object, old: r.OldObject,
	})
	if !response.Allowed {
		if response.Result.Code == 500 {
			return fmt.Errorf("judging by Pod Security: %s", response.Result.Message)
		}
		_, message, ok := strings.Cut(response.Result.Message, " is forbidden: ")
		if !ok {
			message = response.Result.Message
		}
		j.add(Violation{Source: PodSecurity, Action: admissionregistrationv1.Deny, Reason: response.Result.Reason, Message: message})
	}
	for _, w := range response.Warnings {
		j.add(Violation{Source: PodSecurity, Action: admissionregistrationv1.Warn, Message: w})
	}
	if violations := response.AuditAnnotations[psapi.AuditViolationsAnnotationKey]; violations != "" {
		j.add(Violation{Source: PodSecurity, Action: admissionregistrationv1.Audit, Message: violations})
	}
	return nil
}

// operation returns CREATE for an update whose old object is not known: the plugin compares the
// two, and every Pod that replaces another is created.
func operation(r *policy.Request) admissionv1.Operation {
	if r.Operation == admissionv1.Update && r.OldObject == nil {
		return admissionv1.Create
	}
	return r.Operation
}
