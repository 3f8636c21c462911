package promote

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/store"
)

// RunningName is the name of the record that says what a replica runs of a policy, which the
// query names.
const RunningName = "running"

// RunningAnswer is the answer at RunningName.
type RunningAnswer struct {
	Replica string `json:"replica"`
	// Running is the fingerprint of what the replica answers reviews with; Broken is why the
	// policy fails instead.
	Running string `json:"running"`
	Broken  string `json:"broken,omitempty"`
	// Exempt are the namespaces that the replica leaves out.
	Exempt []string `json:"exempt"`
}

// RunningOf returns what a snapshot, which may be nil, has of a policy.
func RunningOf(s *store.Snapshot, policy string) RunningAnswer {
	var a RunningAnswer
	if s == nil {
		return a
	}
	var p *unstructured.Unstructured
	for i := range s.Policies {
		if s.Policies[i].Object.GetName() == policy {
			p = s.Policies[i].Object
			for _, err := range s.Policies[i].Errs {
				a.Broken = err.Error()
			}
		}
	}
	var bindings []*unstructured.Unstructured
	for i := range s.Bindings {
		if b := &s.Bindings[i]; b.PolicyName == policy {
			bindings = append(bindings, b.Object)
			if b.Err != nil {
				a.Broken = b.Err.Error()
			}
		}
	}
	a.Running = Running(p, bindings)
	return a
}
