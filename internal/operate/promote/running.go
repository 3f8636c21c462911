package promote

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/store"
)

// RunningName is the name of the record with the version of a policy that a replica runs. The
// query has the name of the policy.
const RunningName = "running"

// RunningAnswer is the answer at RunningName.
type RunningAnswer struct {
	Replica string `json:"replica"`
	// Running is the fingerprint of the policy and the bindings with which the replica answers
	// reviews. Broken is the reason why the policy or a binding fails; "" if they do not.
	Running string `json:"running"`
	Broken  string `json:"broken,omitempty"`
	// Exempt are the namespaces that the replica excludes.
	Exempt []string `json:"exempt"`
}

// RunningOf returns the answer for a policy, without Replica and Exempt, from a snapshot, which
// may be nil.
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
	case k == nil || !p.Bound: // without a binding, parameters are not read
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
