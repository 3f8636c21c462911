package scheme

import (
	"testing"

	"k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion"

	"github.com/mapd-project/mapd/pkg/binding"
)

// What a server shows no policy, mapd and its lint know, and none of what it shows.
func TestUnreviewed(t *testing.T) {
	for _, r := range exclusion.Excluded() {
		if !binding.Unreviewed(r.Group, r.Resource) {
			t.Errorf("a server leaves out %s", r)
		}
	}
	for _, r := range exclusion.Included() {
		if binding.Unreviewed(r.Group, r.Resource) {
			t.Errorf("a server shows %s to policies", r)
		}
	}
}
