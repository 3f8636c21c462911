package promote

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/store"
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
			a.Broken = broken(&s.Policies[i])
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

// broken returns why a policy cannot run on a replica, "" if it can.
func broken(p *store.PolicyState) string {
	k := p.ParamKind
	switch {
	case len(p.Errs) > 0:
		return p.Errs[0].Error()
	case k == nil || !p.Bound: // without a binding nobody reads parameters
		return ""
	case !k.Found:
		return fmt.Sprintf("the server does not serve its parameters: %s, kind %s", k.GVK.GroupVersion(), k.GVK.Kind)
	case k.Err != nil:
		return fmt.Sprintf("its parameters (%s, kind %s) cannot be read: %v", k.GVK.GroupVersion(), k.GVK.Kind, k.Err)
	case !k.Synced:
		return fmt.Sprintf("its parameters (%s, kind %s) have not been read yet", k.GVK.GroupVersion(), k.GVK.Kind)
	}
	return ""
}
