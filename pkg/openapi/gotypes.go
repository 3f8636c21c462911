package openapi

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	kjson "sigs.k8s.io/json"
)

// serverScheme is the name of the API server's scheme, which its errors quote, and so do those
// of this package.
const serverScheme = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"

// A goTypeSet has the Go types of the built-in kinds in the documents of Builtin. It is a
// scheme of its own: pkg/ may not import client-go's, and some types of that one are served
// nowhere.
type goTypeSet struct {
	scheme *runtime.Scheme
	shapes shapeSet

	mu    sync.Mutex
	types map[schema.GroupVersionKind]*goType
}

var goTypes = sync.OnceValue(func() *goTypeSet {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme,
		admissionregistrationv1alpha1.AddToScheme,
		admissionregistrationv1beta1.AddToScheme,
		apiextensionsv1.AddToScheme,
		apiserverinternalv1alpha1.AddToScheme,
		appsv1.AddToScheme,
		authenticationv1.AddToScheme,
		authorizationv1.AddToScheme,
		autoscalingv1.AddToScheme,
		autoscalingv2.AddToScheme,
		batchv1.AddToScheme,
		certificatesv1.AddToScheme,
		certificatesv1beta1.AddToScheme,
		coordinationv1.AddToScheme,
		coordinationv1alpha2.AddToScheme,
		coordinationv1beta1.AddToScheme,
		corev1.AddToScheme,
		discoveryv1.AddToScheme,
		eventsv1.AddToScheme,
		flowcontrolv1.AddToScheme,
		lifecyclev1alpha1.AddToScheme,
		networkingv1.AddToScheme,
		nodev1.AddToScheme,
		policyv1.AddToScheme,
		rbacv1.AddToScheme,
		resourcev1.AddToScheme,
		resourcev1alpha3.AddToScheme,
		resourcev1beta1.AddToScheme,
		resourcev1beta2.AddToScheme,
		schedulingv1.AddToScheme,
		schedulingv1alpha3.AddToScheme,
		schedulingv1beta1.AddToScheme,
		storagemigrationv1.AddToScheme,
		storagemigrationv1beta1.AddToScheme,
		storagev1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // two Go types for one kind: an error in the list above
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return &goTypeSet{
		scheme: s,
		shapes: shapeSet{m: map[reflect.Type]*shape{}},
		types:  map[schema.GroupVersionKind]*goType{},
	}
})

// of returns the Go type of a kind, nil if there is none.
func (s *goTypeSet) of(gvk schema.GroupVersionKind) *goType {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.types[gvk]; ok {
		return t
	}
	rt := s.scheme.AllKnownTypes()[gvk]
	if rt == nil {
		return nil
	}
	t := &goType{set: s, gvk: gvk, typ: rt, root: member{shape: s.shapes.of(rt)}}
	t.apiVersion, t.kind = gvk.ToAPIVersionAndKind()
	s.types[gvk] = t
	return t
}

// A goType is the Go type of one built-in kind.
type goType struct {
	set              *goTypeSet
	gvk              schema.GroupVersionKind
	apiVersion, kind string
	typ              reflect.Type
	root             member
}

// roundTrip converts a tree into a Go object and back, as upstream does; settling has to have
// the same results. It is called when the settler stopped at something odd, mostly an error, so
// that upstream's code makes the error text.
func (t *goType) roundTrip(tree map[string]any, from Decoding) (map[string]any, error) {
	var obj runtime.Object
	var err error
	if err := t.checkNumbers(tree, from); err != nil {
		return nil, err
	}
	if from == FromApply {
		obj, err = t.set.scheme.ConvertToVersion(&unstructured.Unstructured{Object: tree}, t.gvk.GroupVersion())
	} else {
		obj, err = t.decode(tree)
	}
	if err != nil {
		return nil, t.asServer(err)
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// decode decodes a tree as upstream decodes the text of a patched object (k8s.io/apiserver
// …/patch/json_patch.go: Patch, then …/mutating/dispatcher.go: dispatchOne).
func (t *goType) decode(tree map[string]any) (runtime.Object, error) {
	data, err := encode(tree)
	if err != nil {
		return nil, err
	}
	into, err := t.set.scheme.New(t.gvk)
	if err != nil {
		return nil, err
	}
	obj, err := t.set.read(data, into)
	if err != nil {
		return nil, err
	}
	obj, err = t.set.scheme.ConvertToVersion(obj, t.gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	if got := reflect.TypeOf(obj).Elem(); got != t.typ {
		// Upstream notices only when it converts the last object back to the
		// internal type of the request's kind.
		return nil, fmt.Errorf("failed to convert object: converting (%v) to (%s.%s): unknown conversion", got, internalPackage(t.typ), t.typ.Name())
	}
	return obj, nil
}

// read decodes JSON as a server's strict serializer does: into an object, or into a new one of
// the kind in data if that is another. It does not use the serializer itself
// (k8s.io/apimachinery …/serializer/json: Decode), since that also reads YAML and would link a
// YAML library into every program.
func (s *goTypeSet) read(data []byte, into runtime.Object) (runtime.Object, error) {
	named, err := json.DefaultMetaFactory.Interpret(data)
	if err != nil {
		return nil, err
	}
	kinds, _, err := s.scheme.ObjectKinds(into)
	if err != nil {
		return nil, err
	}
	if named.Kind == "" {
		named.Kind = kinds[0].Kind
	}
	if named.Version == "" && (named.Group == "" || named.Group == kinds[0].Group) {
		named.Group, named.Version = kinds[0].Group, kinds[0].Version
	}
	if named.Version == "" {
		return nil, runtime.NewMissingVersionErr(string(data))
	}
	obj, err := runtime.UseOrCreateObject(s.scheme, s.scheme, *named, into)
	if err != nil {
		return nil, err
	}
	return obj, unmarshalStrict(data, obj)
}

func unmarshalStrict(data []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(data, into)
	if err == nil && len(strict) > 0 {
		err = runtime.NewStrictDecodingError(strict)
	}
	return err
}

// checkKind returns the error of a strict serializer about the kind and the
// apiVersion of an object of any kind.
func checkKind(obj map[string]any) error {
	data, err := encode(obj)
	if err != nil {
		return err
	}
	if _, err := json.DefaultMetaFactory.Interpret(data); err != nil {
		return err
	}
	if u := (&unstructured.Unstructured{Object: obj}); u.GroupVersionKind().Kind == "" {
		return runtime.NewMissingKindErr(string(data))
	}
	return nil
}

// internalPackage names the package of the internal type: k8s.io/api/core/v1
// has its counterpart in …/apis/core.
func internalPackage(t reflect.Type) string {
	return path.Base(path.Dir(t.PkgPath()))
}

// asServer replaces the name of this package's scheme in an error by the server's.
func (t *goType) asServer(err error) error {
	if name := t.set.scheme.Name(); strings.Contains(err.Error(), name) {
		return errors.New(strings.ReplaceAll(err.Error(), name, serverScheme))
	}
	return err
}
