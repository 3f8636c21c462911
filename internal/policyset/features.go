package policyset

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
)

// feature is a kind of policy, beside MutatingAdmissionPolicies, that documents may have. A
// new one is a file with its methods and a line in features.
type feature interface {
	// kinds are those of the feature's groups that are spelt rightly, by group; none if only
	// other programs know them.
	kinds() map[string][]string
	// on reports whether documents of the feature are read; others count as any object.
	on(o *Options) bool
	// takes reports whether objects of a kind with a name belong to the feature; with an
	// empty name, whether some do.
	takes(gvk schema.GroupVersionKind, name string) bool
	// namespaced reports whether objects of a kind have a namespace.
	namespaced(gvk schema.GroupVersionKind) bool
	// parameters reports whether policies may read the documents, and readsAll whether what
	// they describe may read any object.
	parameters() bool
	readsAll() bool
	// build adds to the Snapshot the stages and the result of the feature's documents, and to
	// the errors what is wrong. A method of Snapshot beside it returns the result.
	build(b *builder, docs []*manifest.Document, o *Options)
}

// resultOf returns the result that a feature has put into a Snapshot, the zero value if none.
func resultOf[T any](s *Snapshot, f feature) T {
	result, _ := s.results[f].(T)
	return result
}

// features are all, in the order in which a request meets what they run.
// Exceptions come first, as the others ask them.
var features = []feature{exceptionDocuments{}, templateDocuments{}, mutatorDocuments{}, kyvernoDocuments{}, moduleDocuments{}}
