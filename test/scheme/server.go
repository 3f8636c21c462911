// Package scheme holds what mapd fills into built-in kinds to the functions with which
// an API server does it. It is a module of its own, because those functions come with
// the source of Kubernetes, on which nothing of mapd depends.
package scheme

import (
	"fmt"
	"reflect"

	apiextensionsinstall "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	apiregistrationinstall "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apiserverinternal/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/lifecycle/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
)

// schemes has the three schemes of an API server: its own, that of
// CustomResourceDefinitions and that of APIServices.
func schemes() []*runtime.Scheme {
	extensions, aggregator := runtime.NewScheme(), runtime.NewScheme()
	apiextensionsinstall.Install(extensions)
	apiregistrationinstall.Install(aggregator)
	return []*runtime.Scheme{legacyscheme.Scheme, extensions, aggregator}
}

// A server is what an API server knows of one kind.
type server struct {
	scheme *runtime.Scheme
	gvk    schema.GroupVersionKind
	goType reflect.Type
}

// admitted returns the object that admission sees for a body, in the version of the
// body: decoded, with its defaults, converted to the internal version, in which a
// server holds it, and back.
func (s *server) admitted(body []byte) (map[string]any, error) {
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, s.scheme, s.scheme, json.SerializerOptions{Strict: true})
	obj, _, err := decoder.Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	s.scheme.Default(obj)
	internal, err := s.scheme.ConvertToVersion(obj, schema.GroupVersion{Group: s.gvk.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, fmt.Errorf("to the internal version: %w", err)
	}
	back, err := s.scheme.ConvertToVersion(internal, s.gvk.GroupVersion())
	if err != nil {
		return nil, fmt.Errorf("from the internal version: %w", err)
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(back)
}
