package workloads

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/cel"
)

// TestNewEntry compiles the condition for the oldest minor and evaluates it as a server would.
func TestNewEntry(t *testing.T) {
	if w := newEntry([]admissionregistrationv1.RuleWithOperations{{}}, admissionregistrationv1.MutatingWebhook{}); w != nil {
		t.Errorf("a rule that matches nothing has the entry %v", w)
	}
	w := newEntry([]admissionregistrationv1.RuleWithOperations{{}, {
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
	}}, admissionregistrationv1.MutatingWebhook{})
	if w.Name != "expand.mapd.dev" || len(w.Rules) != 1 || *w.FailurePolicy != admissionregistrationv1.Ignore || len(w.MatchConditions) != 1 {
		t.Fatalf("%v", w)
	}
	env, err := cel.NewEnv(cel.Options{Version: "1.32"})
	if err != nil {
		t.Fatal(err)
	}
	scope := env.Scope(cel.Vars{Mode: cel.New})
	program, err := scope.Compile(w.MatchConditions[0].Expression, cel.Bool)
	if err != nil {
		t.Fatal(err)
	}
	type of = map[string]any
	for name, tt := range map[string]struct {
		metadata of
		want     bool
	}{
		"without an owner": {of{}, true},
		"with owners":      {of{"ownerReferences": []any{of{"name": "a"}, of{"name": "b", "controller": false}}}, true},
		"controlled":       {of{"ownerReferences": []any{of{"name": "a"}, of{"name": "b", "controller": true}}}, false},
	} {
		in := cel.Input{Object: of{"metadata": tt.metadata}}
		if got, err := program.Bool(t.Context(), scope.Bind(&in, &cel.Budget{Remaining: cel.ConditionBudget})); err != nil || got != tt.want {
			t.Errorf("%s: %t, %v; want %t", name, got, err, tt.want)
		}
	}
}
