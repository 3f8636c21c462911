package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// Groups in which policies and bindings are written: Kubernetes' own, and the
// one of mapd's CustomResourceDefinitions, whose spec is that of native v1.
const (
	NativeGroup = admissionregistrationv1.GroupName
	OwnGroup    = "admissionregistration.mapd.dev"
)

// Kind is the kind that Decode reads.
const Kind = "MutatingAdmissionPolicy"

// spellings maps each apiVersion of a policy to an empty object of its Go
// type. The types have the same JSON shape; the older ones are kept because
// decoding errors name them.
var spellings = Spellings{
	"admissionregistration.k8s.io/v1":       func() any { return new(admissionregistrationv1.MutatingAdmissionPolicy) },
	"admissionregistration.k8s.io/v1beta1":  func() any { return new(admissionregistrationv1beta1.MutatingAdmissionPolicy) },
	"admissionregistration.k8s.io/v1alpha1": func() any { return new(admissionregistrationv1alpha1.MutatingAdmissionPolicy) },
	OwnGroup + "/v1":                        func() any { return new(admissionregistrationv1.MutatingAdmissionPolicy) },
}

// Decode turns a policy in any of its four spellings into the v1 type, with the
// defaults of its version filled in (spec §1.3) and TypeMeta set to native v1.
// Nothing behind it needs to know where a policy came from.
//
// Decoding is strict, as under kubectl's default of fieldValidation: an unknown
// field or a wrong type is an error in the server's words. The own group's status is accepted
// and dropped, and so is metadata.namespace, which a server clears on
// cluster-scoped objects. u is not modified and nothing in it is shared with
// the result.
func Decode(u *unstructured.Unstructured) (*admissionregistrationv1.MutatingAdmissionPolicy, error) {
	data, err := JSON(u)
	if err != nil {
		return nil, err
	}
	return DecodeJSON(data)
}

// DecodeJSON is Decode for an object that is still JSON text. Only here can a
// field that is given twice be seen, and it is an error too.
func DecodeJSON(data []byte) (*admissionregistrationv1.MutatingAdmissionPolicy, error) {
	obj := new(admissionregistrationv1.MutatingAdmissionPolicy)
	if _, err := DecodeSpelling(data, Kind, spellings, obj); err != nil {
		return nil, err
	}
	obj.TypeMeta = metav1.TypeMeta{APIVersion: NativeGroup + "/v1", Kind: Kind}
	obj.Namespace = ""
	setDefaults(&obj.Spec)
	return obj, nil
}

// setDefaults fills in what every version of the API fills in
// (k8s.io/kubernetes/pkg/apis/admissionregistration/v1: defaults.go).
// ReinvocationPolicy has no default.
func setDefaults(spec *admissionregistrationv1.MutatingAdmissionPolicySpec) {
	if spec.FailurePolicy == nil {
		spec.FailurePolicy = new(admissionregistrationv1.FailurePolicyType)
		*spec.FailurePolicy = admissionregistrationv1.Fail
	}
	SetMatchDefaults(spec.MatchConstraints)
}

// SetMatchDefaults fills in matchPolicy, the two selectors and the scope of
// every rule. A nil m stays nil: the defaults apply inside a given block only.
func SetMatchDefaults(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	if m.MatchPolicy == nil {
		m.MatchPolicy = new(admissionregistrationv1.MatchPolicyType)
		*m.MatchPolicy = admissionregistrationv1.Equivalent
	}
	if m.NamespaceSelector == nil {
		m.NamespaceSelector = &metav1.LabelSelector{}
	}
	if m.ObjectSelector == nil {
		m.ObjectSelector = &metav1.LabelSelector{}
	}
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			if rules[i].Scope == nil {
				rules[i].Scope = new(admissionregistrationv1.ScopeType)
				*rules[i].Scope = admissionregistrationv1.AllScopes
			}
		}
	}
}

// Spellings maps each apiVersion of one kind to a constructor of its Go type.
type Spellings map[string]func() any

// JSON is u as JSON text.
func JSON(u *unstructured.Unstructured) ([]byte, error) {
	if u == nil || u.Object == nil {
		return nil, errors.New("no object given")
	}
	return json.Marshal(u.Object)
}

// DecodeSpelling decodes data strictly into out, the v1 type of kind, and says
// which group and version it was written in. No default is filled in. After an
// error out is good for nothing.
//
// Binding uses it as well: it is the one place that knows what strict means.
func DecodeSpelling(data []byte, kind string, spellings Spellings, out any) (schema.GroupVersion, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &head); err != nil {
		return schema.GroupVersion{}, err
	}
	construct, ok := spellings[head.APIVersion]
	if !ok || head.Kind != kind {
		return schema.GroupVersion{}, fmt.Errorf("apiVersion %q, kind %q: not a %s of %s", head.APIVersion, head.Kind, kind, spellings)
	}
	gv, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return gv, err
	}

	obj := construct()
	same := reflect.TypeOf(obj) == reflect.TypeOf(out)
	if same {
		obj = out
	}
	strict, err := kjson.UnmarshalStrict(data, obj)
	if err != nil {
		return gv, err
	}
	if gv.Group == OwnGroup {
		strict = slices.DeleteFunc(strict, func(err error) bool { return fieldOf(err) == "status" })
	}
	if len(strict) > 0 {
		return gv, runtime.NewStrictDecodingError(strict)
	}
	if same {
		return gv, nil
	}
	// The versions differ in their Go types only, so JSON carries one into the
	// other without loss.
	plain, err := json.Marshal(obj)
	if err != nil {
		return gv, err
	}
	return gv, json.Unmarshal(plain, out)
}

func (s Spellings) String() string {
	var all []string
	for apiVersion := range s {
		all = append(all, apiVersion)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func fieldOf(err error) string {
	var f kjson.FieldError
	if errors.As(err, &f) {
		return f.FieldPath()
	}
	return ""
}
