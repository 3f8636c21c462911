package webhookconfig

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// InstallationAnnotation on both webhook configurations names the Installation
// that writes them, as NAMESPACE/LEASE.
const InstallationAnnotation = "mapd.dev/installation"

// Installation is one mapd of a cluster: the replicas that share a Lease. The
// names of the webhook configurations are fixed, so only one installation of a
// cluster can have them.
type Installation struct {
	Namespace, Lease string
	// UID is the UID of the namespace when the configurations were written; ""
	// if they do not say. An installation whose namespace has another UID by
	// now no longer exists, because everything in a namespace is deleted with
	// it.
	UID types.UID
}

// InstallationOf returns the installation that a webhook configuration belongs
// to, or the zero value if the configuration names none. Configurations that
// were written before there was the annotation are recognised by their owner
// reference, and have no Lease.
func InstallationOf(meta metav1.ObjectMeta) Installation {
	var i Installation
	i.Namespace, i.Lease, _ = strings.Cut(meta.Annotations[InstallationAnnotation], "/")
	for _, o := range meta.OwnerReferences {
		if o.APIVersion == "v1" && o.Kind == "Namespace" && (i.Namespace == "" || i.Namespace == o.Name) {
			i.Namespace, i.UID = o.Name, o.UID
			break
		}
	}
	return i
}

// Is reports whether both are the same installation. The UID does not count: if a namespace was
// created again, or restored from a backup, its installation is still the same.
func (i Installation) Is(other Installation) bool {
	return i.Namespace == other.Namespace && (i.Lease == other.Lease || i.Lease == "" || other.Lease == "")
}

// String returns NAMESPACE/LEASE.
func (i Installation) String() string {
	if i.Lease == "" {
		return i.Namespace
	}
	return i.Namespace + "/" + i.Lease
}
