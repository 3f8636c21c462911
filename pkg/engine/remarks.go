package engine

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/policy"
)

// note moves a policy's remarks to its step. The policy's name is prepended to the keys of
// annotations, since all policies of a stage share one audit event. It does not use a slash,
// for which the server would drop the annotation.
func (a *Admission) note(step *Step, name string) {
	said := a.said
	a.said = policy.Remarks{}
	if said.Withheld == "" && len(said.Warnings) == 0 && len(said.Annotations) == 0 {
		return
	}
	named := make(map[string]string, len(said.Annotations))
	for key, value := range said.Annotations {
		named[name+"."+key] = value
	}
	said.Annotations = named
	step.Remarks = &said
}

// warnings returns the warnings of all policies of a stage.
func warnings(steps []Step) (all []string) {
	for i := range steps {
		if said := steps[i].Remarks; said != nil {
			all = append(all, said.Warnings...)
		}
	}
	return all
}

// refusedBy returns the status for a request that a policy of Kubewarden's refuses, completed
// as an API server does for a webhook (k8s.io/apiserver …/webhook/errors/statuserror.go). It
// names the policy, since one webhook answers for all policies.
func refusedBy(name string, said *metav1.Status) *metav1.Status {
	status := *said
	status.Status = metav1.StatusFailure
	if status.Code < 400 {
		status.Code = 400
	}
	if said.Message == "" {
		said = &metav1.Status{Message: "without explanation"}
	}
	status.Message = denialMessage(name, "", errors.New(said.Message))
	return &status
}
