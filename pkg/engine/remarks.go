package engine

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/policy"
)

// note moves what a policy has said to its step. The keys of annotations get the
// policy's name, since all policies of a stage share one audit event. A slash would
// make the server drop the annotation.
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

// warnings returns those of all policies of a stage.
func warnings(steps []Step) (all []string) {
	for i := range steps {
		if said := steps[i].Remarks; said != nil {
			all = append(all, said.Warnings...)
		}
	}
	return all
}

// refusedBy returns the status of a request that a policy of Kubewarden's refuses, as
// an API server would complete it for a webhook of its own (k8s.io/apiserver
// …/webhook/errors/statuserror.go). The client has to learn from it which policy it
// was: one webhook answers for all.
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
