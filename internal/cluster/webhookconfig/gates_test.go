package webhookconfig

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

func TestParseGate(t *testing.T) {
	// The oldest servers that have matchConditions in v1.
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 30)))
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		"request.operation == \"CREATE\"":                 "request.operation == 'CREATE'",
		" request . operation\n!='it' ":                   "request.operation != 'it'",
		"request.operation != \"it's\"":                   `request.operation != 'it\'s'`,
		"request.namespace.startsWith('kube-')":           "!has(request.namespace) || (request.namespace.startsWith('kube-'))",
		"!(request.name in ['a', 'b'])&&request.dryRun":   "!has(request.dryRun) || !has(request.name) || (!(request.name in ['a', 'b']) && request.dryRun)",
		"has(request.name) || true":                       "has(request.name) || true",
		"size(request.operation) == 6":                    "size(request.operation) == 6",
		"'x' in request.userInfo.groups":                  "!has(request.userInfo.groups) || ('x' in request.userInfo.groups)",
		"!('a'.contains(request.resource.group) == true)": "!('a'.contains(request.resource.group) == true)",
		"request.requestKind.kind.size() != 0 || false":   "request.requestKind.kind.size() != 0 || false",
	} {
		got, ok := parseGate(expression)
		if !ok || got != want {
			t.Errorf("%s\n got %q, %t\nwant %q", expression, got, ok, want)
		}
		for _, e := range []string{expression, got} {
			compiled := compiler.CompileCELExpression(&matchconditions.MatchCondition{Name: "a", Expression: e}, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
			if compiled.Error != nil {
				t.Errorf("a server refuses %s: %v", e, compiled.Error)
			}
		}
	}
	for _, no := range []string{
		"", "true false", "object.a == 'b'", "request.kind.kind == 'Pod'", "request.uid == ''", "request.options.x", "request.userInfo.extra.a == 'b'", "request.userInfo.uid == 'a'",
		"request.userInfo == 'a'", "request == 'a'", "has(request)", "has(object.a)", "has(request.userInfo)", "has('a'.b)", "request.name", "request.name.matches('a')", "request.name.size()", "1 == 'a'",
		"request.name == true", "request.userInfo.groups == request.userInfo.groups", "request.userInfo.groups == ['a']", "request.name in 'a'", "request.name in []", "['a', true].size() == 2", "true in ['a']",
		"request.name.exists(x, true)", "request.name == r'a'", `request.name == 'a\'b'`, "request.name == '''a'''", "request.name == 'ä'", "request.name == 'a\tb'", "true // x", "!!true", "!request.name", "true && 'a'",
		"-1 == 1", "01 == 1", "1 < 2", "true ? true : false", "request['name'] == 'a'", "request.?name == 'a'", "variables.x", "params.x", "(true", "true)", "request.name.lowerAscii() == 'a'", "'a' + 'b' == 'ab'",
		"authorizer.path('/').check('get').allowed()", "namespaceObject.metadata.name == 'a'", "request.operation.startsWith('a', 'b')", "null == null", "request.", "request.operation.", "'a", "1e3 == 1", "0x1 == 1",
		strings.Repeat("(", 20) + "true" + strings.Repeat(")", 20), "request.operation == '" + strings.Repeat("a", maxGateBytes) + "'",
	} {
		if got, ok := parseGate(no); ok {
			t.Errorf("%s became %s", no, got)
		}
	}
}

// TestGates: an entry has the conditions of all its policies, or none.
func TestGates(t *testing.T) {
	type conditions []string
	reach := func(i int, of conditions, edit func(*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MatchResources)) *Reach {
		p := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
		p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"CREATE"}, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}}}
		for j, e := range of {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", j), Expression: e})
		}
		m := &admissionregistrationv1.MatchResources{}
		if edit != nil {
			edit(p, m)
		}
		return ReachOf(p, m)
	}
	const a, b = "request.operation == 'a'", "request.operation == 'b'"
	tests := map[string]struct {
		reaches []*Reach
		want    string
	}{
		"one":          {[]*Reach{reach(0, conditions{a}, nil)}, a},
		"two of one":   {[]*Reach{reach(0, conditions{b, a, b}, nil)}, "(" + a + ") && (" + b + ")"},
		"the same":     {[]*Reach{reach(0, conditions{a}, nil), reach(1, conditions{a}, nil)}, a},
		"different":    {[]*Reach{reach(0, conditions{b}, nil), reach(1, conditions{a}, nil)}, "(" + a + ") || (" + b + ")"},
		"none":         {[]*Reach{reach(0, conditions{a}, nil), reach(1, nil, nil)}, ""},
		"of an object": {[]*Reach{reach(0, conditions{a, "object.x"}, nil)}, ""},
		"parameters": {[]*Reach{reach(0, conditions{a}, func(p *admissionregistrationv1.MutatingAdmissionPolicy, _ *admissionregistrationv1.MatchResources) {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		})}, ""},
		"a selector that nobody can parse": {[]*Reach{reach(0, conditions{a}, func(_ *admissionregistrationv1.MutatingAdmissionPolicy, m *admissionregistrationv1.MatchResources) {
			m.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		})}, ""},
		"a broken one": {[]*Reach{reach(0, conditions{a}, nil), reach(1, conditions{b}, nil).Ungated()}, ""},
	}
	var many []*Reach
	for i := range maxGates + 1 {
		many = append(many, reach(i, conditions{fmt.Sprintf("request.operation == '%d'", i)}, nil))
	}
	tests["too many"] = struct {
		reaches []*Reach
		want    string
	}{many, ""}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			entries, _ := Divide(tt.reaches)
			got := ""
			for _, w := range Configuration(Undivide(entries), admissionregistrationv1.MutatingWebhook{}).Webhooks {
				for _, m := range w.MatchConditions {
					got += m.Expression
				}
			}
			if len(entries) != 1 || got != tt.want {
				t.Errorf("%d entries with %q, want %q", len(entries), got, tt.want)
			}
		})
	}
}
