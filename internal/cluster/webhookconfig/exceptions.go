package webhookconfig

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/api"
)

// ExceptionEntry returns the entry by which mapd is asked who may write an exception. That is a
// question of permissions, so its failurePolicy is Fail. It is asked for a new spec, and for a
// status, which says who was allowed; labels and finalizers can be written while mapd is away.
func ExceptionEntry(name, path string, base admissionregistrationv1.MutatingWebhook) admissionregistrationv1.MutatingWebhook {
	w := base.DeepCopy()
	w.Name = name
	w.ClientConfig = clientConfig(w.ClientConfig, path)
	w.Rules = []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{api.ExceptionGroup}, APIVersions: []string{api.ExceptionVersion},
			Resources: []string{api.ExceptionResource, api.ExceptionResource + "/status"}, Scope: new(admissionregistrationv1.NamespacedScope),
		},
	}}
	w.FailurePolicy = new(admissionregistrationv1.Fail)
	w.MatchPolicy = new(admissionregistrationv1.Equivalent)
	w.NamespaceSelector, w.ObjectSelector, w.ReinvocationPolicy = nil, nil, nil // also in namespaces that are exempt
	w.SideEffects = new(admissionregistrationv1.SideEffectClassNoneOnDryRun)
	w.AdmissionReviewVersions = []string{"v1"}
	w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{
		Name:       "new-exception",
		Expression: "request.subResource == 'status' || oldObject == null || !has(oldObject.spec) || !has(object.spec) || object.spec != oldObject.spec",
	})
	return *w
}
