package promote

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/pkg/api"
)

// A replica that cannot read the parameters of a policy says so: a demotion waits for it.
func TestRunningOf(t *testing.T) {
	limit := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Limit"}
	for name, tt := range map[string]struct {
		state store.PolicyState
		want  string
	}{
		"in order":                 {store.PolicyState{Bound: true}, ""},
		"with parameters":          {store.PolicyState{Bound: true, ParamKind: &store.ParamState{GVK: limit, Found: true, Synced: true}}, ""},
		"not compiled":             {store.PolicyState{Errs: []error{errors.New("no such field")}}, "no such field"},
		"nobody serves them":       {store.PolicyState{Bound: true, ParamKind: &store.ParamState{GVK: limit}}, "the server does not serve its parameters: example.com/v1, kind Limit"},
		"without the right":        {store.PolicyState{Bound: true, ParamKind: &store.ParamState{GVK: limit, Found: true, Err: errors.New("forbidden")}}, "its parameters (example.com/v1, kind Limit) cannot be read: forbidden"},
		"not read yet":             {store.PolicyState{Bound: true, ParamKind: &store.ParamState{GVK: limit, Found: true}}, "have not been read yet"},
		"nobody reads them":        {store.PolicyState{ParamKind: &store.ParamState{GVK: limit, Found: true}}, ""},
		"of another policy's name": {store.PolicyState{Object: policyOf(t, api.OwnGroup, "q", "v"), Errs: []error{errors.New("no such field")}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.state.Object == nil {
				tt.state.Object = policyOf(t, api.OwnGroup, "p", "v")
			}
			bound := bindingOf(t, api.OwnGroup, "b", "p", "")
			got := RunningOf(&store.Snapshot{
				Policies: []store.PolicyState{tt.state}, Bindings: []store.BindingState{{Object: bound, PolicyName: "p"}},
			}, "p")
			if (got.Broken == "") != (tt.want == "") || !strings.Contains(got.Broken, tt.want) || got.Running == "" {
				t.Errorf("%+v, want %q", got, tt.want)
			}
		})
	}
	if got := RunningOf(nil, "p"); got.Running != "" || got.Broken != "" {
		t.Errorf("of a replica that has read nothing: %+v", got)
	}
}
