// Package defaulting answers one question: what does an API server fill into a
// manifest of a built-in kind before admission sees it?
//
// Policies may read object.spec.replicas or a container's imagePullPolicy
// without asking whether they are there, because on a server they always are:
// an object is defaulted when it is decoded. A manifest in a file is not. The
// tables here say what is missing. They describe Kubernetes 1.37 with its
// default feature gates and hold
//
//   - the defaults themselves (k8s.io/kubernetes, pkg/apis/*/v1/defaults.go and
//     zz_generated.defaults.go), and
//   - what the conversion to the internal version and back adds or folds
//     together on the way to admission (conversion.go of the same packages),
//     such as a Secret's stringData, which ends up in data.
//
// They do not hold what comes later (addresses and node ports of a Service,
// requests of a Pod as a whole, a reset status), nor what other admission
// plugins do (service account tokens, tolerations, priorities), nor zero fields
// that only the encoding of a Go type adds ("resources: {}"): that is
// openapi.Kind.Normalize. Apply goes first: to Normalize an empty list is as good
// as none, to a default it may be a choice.
//
// testdata holds what a real server was observed to do, and test/scheme puts random
// objects of every kind through these tables and through a server's own functions.
package defaulting
