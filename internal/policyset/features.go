package policyset

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
)

// feature is a kind of policy, besides MutatingAdmissionPolicies, that documents may have. To add
// one, write a file with its methods and add it to features.
type feature interface {
	// kinds returns the correctly spelt kinds of the feature's groups, by group; nil if only
	// other programs know them.
	kinds() map[string][]string
	// on reports whether documents of the feature are used. Otherwise they count like any other
	// objects.
	on(o *Options) bool
	// takes reports whether an object of a kind with a name belongs to the feature. With an empty
	// name, it reports whether some objects of the kind do.
	takes(gvk schema.GroupVersionKind, name string) bool
	// namespaced reports whether objects of a kind have a namespace.
	namespaced(gvk schema.GroupVersionKind) bool
	// parameters reports whether policies may read the documents, and readsAll whether the
	// feature's policies may read any object.
	parameters() bool
	readsAll() bool
	// build adds the stages and the result of the feature's documents to the Snapshot, and their
	// errors to the builder. A method of Snapshot next to it returns the result.
	build(b *builder, docs []*manifest.Document, o *Options)
}

// resultOf returns the result of a feature in a Snapshot, the zero value if there is none.
func resultOf[T any](s *Snapshot, f feature) T {
	result, _ := s.results[f].(T)
	return result
}

// features are all features in the order of their stages. Exceptions come first, because the
// others use them.
var features = []feature{exceptionDocuments{}, templateDocuments{}, mutatorDocuments{}, kyvernoDocuments{}, moduleDocuments{}}
