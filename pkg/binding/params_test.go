package binding

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/policy"
)

// Spec §3.1.
func TestParams(t *testing.T) {
	allow, deny := admissionregistrationv1.AllowAction, admissionregistrationv1.DenyAction
	const noParams = "p/b error: no params found for policy binding with `Deny` parameterNotFoundAction"
	selector := func(kv ...string) *metav1.LabelSelector {
		s := &metav1.LabelSelector{}
		if len(kv) > 0 {
			s.MatchLabels = map[string]string{kv[0]: kv[1]}
		}
		return s
	}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	store := params{
		object("t1", "pb", "sel", "1"), object("t1", "pa", "sel", "1"), object("t1", "pc", "sel", "2"),
		object("t2", "other", "sel", "1"), object("", "global", "sel", "1"),
	}
	tests := map[string]struct {
		kind      schema.GroupVersionKind // empty: none
		ref       *admissionregistrationv1.ParamRef
		namespace string // of the request
		want      []string
	}{
		"no paramKind":                          {namespace: "t1", want: []string{"p/b"}},
		"no paramKind, paramRef is ignored":     {ref: &admissionregistrationv1.ParamRef{Name: "pa"}, namespace: "t1", want: []string{"p/b"}},
		"no paramRef":                           {kind: configMap, namespace: "t1", want: []string{"p/b"}},
		"unknown kind":                          {kind: schema.GroupVersionKind{Version: "v1", Kind: "Nope"}, namespace: "t1", want: []string{"p/ error: failed to find resource referenced by paramKind: '/v1, Kind=Nope' (policy)"}},
		"unknown kind, Allow does not help":     {kind: schema.GroupVersionKind{Version: "v1", Kind: "Nope"}, ref: &admissionregistrationv1.ParamRef{Name: "pa", ParameterNotFoundAction: &allow}, namespace: "t1", want: []string{"p/ error: failed to find resource referenced by paramKind: '/v1, Kind=Nope' (policy)"}},
		"by name":                               {kind: configMap, ref: &admissionregistrationv1.ParamRef{Name: "pa", ParameterNotFoundAction: &deny}, namespace: "t1", want: []string{"p/b t1/pa"}},
		"by name in another namespace":          {kind: configMap, ref: &admissionregistrationv1.ParamRef{Name: "other", Namespace: "t2", ParameterNotFoundAction: &deny}, namespace: "t1", want: []string{"p/b t2/other"}},
		"by name, missing, Deny":                {kind: configMap, ref: &admissionregistrationv1.ParamRef{Name: "nope", ParameterNotFoundAction: &deny}, namespace: "t1", want: []string{noParams}},
		"by name, missing, Allow":               {kind: configMap, ref: &admissionregistrationv1.ParamRef{Name: "nope", ParameterNotFoundAction: &allow}, namespace: "t1"},
		"by name, missing, no action":           {kind: configMap, ref: &admissionregistrationv1.ParamRef{Name: "nope"}, namespace: "t1"},
		"by name, error":                        {kind: configMap, ref: &admissionregistrationv1.ParamRef{Name: "boom", ParameterNotFoundAction: &allow}, namespace: "t1", want: []string{"p/b error: connection refused"}},
		"by selector, in order":                 {kind: configMap, ref: &admissionregistrationv1.ParamRef{Selector: selector("sel", "1"), ParameterNotFoundAction: &deny}, namespace: "t1", want: []string{"p/b t1/pa", "p/b t1/pb"}},
		"by empty selector":                     {kind: configMap, ref: &admissionregistrationv1.ParamRef{Selector: selector(), ParameterNotFoundAction: &deny}, namespace: "t1", want: []string{"p/b t1/pa", "p/b t1/pb", "p/b t1/pc"}},
		"by selector, nothing, Deny":            {kind: configMap, ref: &admissionregistrationv1.ParamRef{Selector: selector("sel", "9"), ParameterNotFoundAction: &deny}, namespace: "t1", want: []string{noParams}},
		"by selector, nothing, Allow":           {kind: configMap, ref: &admissionregistrationv1.ParamRef{Selector: selector("sel", "9"), ParameterNotFoundAction: &allow}, namespace: "t1"},
		"bad selector":                          {kind: configMap, ref: &admissionregistrationv1.ParamRef{Selector: bad}, namespace: "t1", want: []string{`p/b error: "Near" is not a valid label selector operator`}},
		"name and selector":                     {kind: configMap, ref: &admissionregistrationv1.ParamRef{Name: "pa", Selector: selector()}, namespace: "t1", want: []string{"p/b error: paramRef.name and paramRef.selector are mutually exclusive"}},
		"neither":                               {kind: configMap, ref: &admissionregistrationv1.ParamRef{}, namespace: "t1", want: []string{"p/b error: one of name or selector must be provided"}},
		"cluster-scoped request":                {kind: configMap, ref: &admissionregistrationv1.ParamRef{Name: "pa"}, want: []string{"p/b error: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"}},
		"cluster-scoped request, own namespace": {kind: configMap, ref: &admissionregistrationv1.ParamRef{Name: "pa", Namespace: "t1"}, want: []string{"p/b t1/pa"}},
		"cluster-scoped kind":                   {kind: clusterParam, ref: &admissionregistrationv1.ParamRef{Name: "global"}, namespace: "t1", want: []string{"p/b /global"}},
		"cluster-scoped kind by selector":       {kind: clusterParam, ref: &admissionregistrationv1.ParamRef{Selector: selector("sel", "1")}, namespace: "t1", want: []string{"p/b /global"}},
		"cluster-scoped kind with a namespace":  {kind: clusterParam, ref: &admissionregistrationv1.ParamRef{Name: "global", Namespace: "t1"}, namespace: "t1", want: []string{"p/b error: paramRef.namespace must not be provided for a cluster-scoped `paramKind`"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var popts []policyOption
			if !tt.kind.Empty() {
				popts = append(popts, withParams(tt.kind))
			}
			var bopts []bindingOption
			if tt.ref != nil {
				bopts = append(bopts, ref(*tt.ref))
			}
			ix := mustIndex(t, []*policy.Policy{newPolicy("p", resources(newRule("v1 pods")), popts...)}, []*Binding{newBinding(t, "b", "p", bopts...)}, Sources{Params: store})
			got := ix.Select(t.Context(), createPod(tt.namespace, "x"))
			if diff := cmp.Diff(tt.want, describe(got)); diff != "" {
				t.Errorf("Select() (-want +got):\n%s", diff)
			}
			for _, inv := range got {
				if inv.HasParams != !tt.kind.Empty() {
					t.Errorf("HasParams = %v, want %v", inv.HasParams, !tt.kind.Empty())
				}
			}
		})
	}
}

// A provider may hand out its own list.
func TestParamsAreNotSortedInPlace(t *testing.T) {
	list := []string{"b", "a"}
	store := params{object("t1", list[0]), object("t1", list[1])}
	SortParams(store)
	if store[0].GetName() != "b" {
		t.Error("SortParams() changed the list that it was given")
	}
}
