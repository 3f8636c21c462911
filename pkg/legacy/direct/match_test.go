package direct

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/legacy"
)

func TestMatches(t *testing.T) {
	const (
		pod     = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1","generateName":"web-","namespace":"shop","labels":{"app":"web"}}}`
		orphan  = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1"}}`
		node    = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`
		space   = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","labels":{"team":"a"}}}`
		numeric = `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"app":"web","n":1}}}`
		shop    = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","labels":{"team":"a"}}}`
	)
	labels := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	broken := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
	const badOperator = `"Is" is not a valid label selector operator`

	tests := map[string]struct {
		match  legacy.Match
		object string
		ns     string // its Namespace
		source string // Original if empty
		want   bool
		err    string
	}{
		"nothing is asked": {object: pod, ns: shop, want: true},
		"kinds":            {match: legacy.Match{Kinds: []legacy.MatchKinds{{APIGroups: []string{"apps"}}, {Kinds: []string{"Node"}}}}, object: node, want: true},
		"other kinds":      {match: legacy.Match{Kinds: []legacy.MatchKinds{{APIGroups: []string{"apps"}}, {Kinds: []string{"Node"}}}}, object: pod},

		"Cluster, of a Node":                     {match: legacy.Match{Scope: "Cluster"}, object: node, want: true},
		"Cluster, of a Namespace":                {match: legacy.Match{Scope: "Cluster"}, object: space, ns: shop, want: true},
		"Cluster, of a Pod":                      {match: legacy.Match{Scope: "Cluster"}, object: pod},
		"Namespaced, of a Node":                  {match: legacy.Match{Scope: "Namespaced"}, object: node},
		"Namespaced, of a Namespace":             {match: legacy.Match{Scope: "Namespaced"}, object: space, ns: shop},
		"Namespaced, known from the request":     {match: legacy.Match{Scope: "Namespaced"}, object: orphan, ns: shop, want: true},
		"a scope that is none":                   {match: legacy.Match{Scope: "namespaced"}, object: node, want: true},
		"namespaces":                             {match: legacy.Match{Namespaces: []string{"a", "sh*"}}, object: pod, want: true},
		"other namespaces":                       {match: legacy.Match{Namespaces: []string{"a"}}, object: pod},
		"the request's namespace goes first":     {match: legacy.Match{Namespaces: []string{"shop"}}, object: `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"x"}}`, ns: shop, want: true},
		"namespaces, of a Node":                  {match: legacy.Match{Namespaces: []string{"a"}}, object: node, want: true},
		"namespaces, of a Namespace":             {match: legacy.Match{Namespaces: []string{"shop"}}, object: space, want: true},
		"excludedNamespaces":                     {match: legacy.Match{ExcludedNamespaces: []string{"*op"}}, object: pod},
		"excludedNamespaces, of a Namespace":     {match: legacy.Match{ExcludedNamespaces: []string{"shop"}}, object: space},
		"excludedNamespaces, of a Node":          {match: legacy.Match{ExcludedNamespaces: []string{"*"}}, object: node, want: true},
		"labels":                                 {match: legacy.Match{LabelSelector: labels("app", "web")}, object: pod, want: true},
		"other labels":                           {match: legacy.Match{LabelSelector: labels("app", "db")}, object: pod},
		"one label that is no string hides all":  {match: legacy.Match{LabelSelector: labels("app", "web")}, object: numeric},
		"a broken selector":                      {match: legacy.Match{LabelSelector: broken}, object: pod, err: "matching for mutator AssignMetadata.mutations.gatekeeper.sh /k failed for  Pod shop web-1: failed to run Match criteria: " + badOperator},
		"a broken selector that nobody asks":     {match: legacy.Match{LabelSelector: broken, Scope: "Cluster"}, object: pod},
		"namespace labels":                       {match: legacy.Match{NamespaceSelector: labels("team", "a")}, object: pod, ns: shop, want: true},
		"other namespace labels":                 {match: legacy.Match{NamespaceSelector: labels("team", "b")}, object: pod, ns: shop},
		"namespace labels, of a Node":            {match: legacy.Match{NamespaceSelector: broken}, object: node, want: true},
		"namespace labels, of a Namespace":       {match: legacy.Match{NamespaceSelector: labels("team", "a")}, object: space, want: true},
		"namespace labels, no Namespace":         {match: legacy.Match{NamespaceSelector: &metav1.LabelSelector{}}, object: pod, err: "matching for mutator AssignMetadata.mutations.gatekeeper.sh /k failed for  Pod shop web-1: failed to run Match criteria: namespace selector for namespace-scoped object but missing Namespace"},
		"broken namespace labels, no Namespace":  {match: legacy.Match{NamespaceSelector: broken}, object: pod, err: "matching for mutator AssignMetadata.mutations.gatekeeper.sh /k failed for  Pod shop web-1: failed to run Match criteria: " + badOperator},
		"name":                                   {match: legacy.Match{Name: "*-1"}, object: pod, want: true},
		"generateName, by its beginning":         {match: legacy.Match{Name: "web*"}, object: `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-"}}`, want: true},
		"generateName, by its end":               {match: legacy.Match{Name: "*-"}, object: `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-"}}`},
		"generateName still counts with a name":  {match: legacy.Match{Name: "web-*"}, object: `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-","name":"db"}}`, want: true},
		"source":                                 {match: legacy.Match{Source: "Original"}, object: pod, want: true},
		"other source":                           {match: legacy.Match{Source: "Generated"}, object: pod},
		"any source":                             {match: legacy.Match{Source: "All"}, object: pod, source: "none", want: true},
		"an unknown source is asked for":         {match: legacy.Match{Source: "original"}, object: pod, err: `matching for mutator AssignMetadata.mutations.gatekeeper.sh /k failed for  Pod shop web-1: failed to run Match criteria: invalid source field "original"`},
		"an object that comes from somewhere":    {match: legacy.Match{Source: "Original"}, object: pod, source: "Elsewhere", err: `matching for mutator AssignMetadata.mutations.gatekeeper.sh /k failed for  Pod shop web-1: failed to run Match criteria: invalid source field "Elsewhere"`},
		"the name is asked before the source":    {match: legacy.Match{Name: "x", Source: "original"}, object: pod},
		"the namespaces are asked before labels": {match: legacy.Match{Namespaces: []string{"x"}, LabelSelector: broken}, object: pod},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := Context{Operation: "CREATE", Source: "Original"}
			if tt.source != "" {
				c.Source = tt.source
			}
			if tt.ns != "" {
				c.Namespace = object(t, tt.ns)
			}
			got, err := Matches(label("k", tt.match), object(t, tt.object), c)
			if got != tt.want || errString(err) != tt.err {
				t.Errorf("Matches(%+v, %s) = %v, %q; want %v, %q", tt.match, tt.object, got, errString(err), tt.want, tt.err)
			}
		})
	}

	c := Context{Operation: "CREATE"}
	_, err := Matches(label("k", legacy.Match{Source: "Original"}), object(t, pod), c)
	if want := "source field not specified for resource web-1"; err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
		t.Errorf("an object without source: %v, want %q", err, want)
	}
}

func TestMatchesApplyTo(t *testing.T) {
	m := assignTo("spec.a", "v")
	m.ApplyTo = []legacy.ApplyTo{
		{Groups: []string{""}, Versions: []string{"v1"}, Kinds: []string{"Pod"}, Operations: []string{"CREATE"}},
		{Groups: []string{"apps"}, Versions: []string{"v1"}, Kinds: []string{"Deployment"}},
		{Groups: []string{"*"}, Versions: []string{"*"}, Kinds: []string{"*"}},
	}
	const pod, deployment = `{"apiVersion":"v1","kind":"Pod"}`, `{"apiVersion":"apps/v1","kind":"Deployment"}`
	for _, tt := range []struct {
		object, operation string
		want              bool
	}{
		{pod, "CREATE", true},
		{pod, "UPDATE", false},
		{pod, "", false}, // limited to an operation, and there is none
		{deployment, "UPDATE", true},
		{deployment, "DELETE", false},
		{deployment, "", true},
		{`{"apiVersion":"apps/v1beta1","kind":"Deployment"}`, "CREATE", false},
		{`{"apiVersion":"v1","kind":"Deployment"}`, "CREATE", false},
		{`{"apiVersion":"v1","kind":"Node"}`, "CREATE", false},
	} {
		got, err := Matches(m, object(t, tt.object), Context{Operation: tt.operation})
		if got != tt.want || err != nil {
			t.Errorf("Matches(%s, %q) = %v, %v; want %v", tt.object, tt.operation, got, err, tt.want)
		}
	}
}
