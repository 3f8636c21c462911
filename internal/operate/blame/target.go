package blame

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// Target is the object that is asked about.
type Target struct {
	// Resources are the plural names that its kind may have. AnyGroup takes every group.
	Resources []schema.GroupResource
	AnyGroup  bool
	Kind      string // as kubectl prints it, such as deployment.apps
	Namespace string // empty for an object that is in none
	Name      string
	// UID, if it is known, excludes other objects that had the same name.
	UID types.UID
	// Created is when the object was made, if that is known.
	Created time.Time
}

func (t *Target) String() string { return t.Kind + "/" + t.Name }

// shortNames are those that kubectl users type most. A cluster knows all of them; this
// table is for where there is none.
var shortNames = map[string]string{
	"cm": "configmaps", "cj": "cronjobs", "crd": "customresourcedefinitions", "crds": "customresourcedefinitions", "deploy": "deployments", "ds": "daemonsets",
	"ep": "endpoints", "hpa": "horizontalpodautoscalers", "ing": "ingresses", "limits": "limitranges", "netpol": "networkpolicies", "no": "nodes", "ns": "namespaces",
	"pc": "priorityclasses", "pdb": "poddisruptionbudgets", "po": "pods", "pv": "persistentvolumes", "pvc": "persistentvolumeclaims", "quota": "resourcequotas",
	"rc": "replicationcontrollers", "rs": "replicasets", "sa": "serviceaccounts", "sc": "storageclasses", "sts": "statefulsets", "svc": "services",
}

// ParseName splits what kubectl calls an object, "deploy/web" or "deployments.apps/web".
func ParseName(s string) (kind, name string, err error) {
	kind, name, ok := strings.Cut(s, "/")
	if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q: want KIND/NAME, such as pod/web-1 or deployments.apps/web", s)
	}
	return kind, name, nil
}

// Offline returns the target that a user names, without a cluster: built-in kinds are
// known, and the resource of another one is guessed from its name.
func Offline(kind, namespace, name string) *Target {
	word, group, grouped := strings.Cut(strings.ToLower(kind), ".")
	if _, rest, ok := strings.Cut(group, "."); ok && isVersion(group[:len(group)-len(rest)-1]) {
		group = rest // deployments.v1.apps
	}
	if long := shortNames[word]; long != "" {
		word = long
	}
	t := &Target{Namespace: namespace, Name: name, Kind: word}
	for _, r := range openapi.New(openapi.Builtin()).Resources() {
		one := strings.ToLower(r.Kind.Kind)
		if word != r.GVR.Resource && word != one || grouped && group != r.GVR.Group {
			continue
		}
		gr := r.GVR.GroupResource()
		if slices.Contains(t.Resources, gr) {
			continue
		}
		t.Resources = append(t.Resources, gr)
		if len(t.Resources) == 1 {
			t.Kind = schema.GroupResource{Group: gr.Group, Resource: one}.String()
			if !r.Namespaced {
				t.Namespace = ""
			}
		}
	}
	if len(t.Resources) > 0 {
		return t
	}
	t.AnyGroup = !grouped
	if grouped {
		t.Kind = word + "." + group
	}
	for _, plural := range plurals(word) {
		t.Resources = append(t.Resources, schema.GroupResource{Group: group, Resource: plural})
	}
	return t
}

// plurals returns the resources that a kind or resource of this name may have.
func plurals(word string) []string {
	out := []string{word, word + "s", word + "es"}
	if stem, ok := strings.CutSuffix(word, "y"); ok {
		out = append(out, stem+"ies")
	}
	return out
}

func isVersion(s string) bool {
	return len(s) > 1 && s[0] == 'v' && s[1] >= '0' && s[1] <= '9'
}

// isResource reports whether an object of the target's kind is meant.
func (t *Target) isResource(group, resource string) bool {
	for _, r := range t.Resources {
		if r.Resource == resource && (t.AnyGroup || r.Group == group) {
			return true
		}
	}
	return false
}

// isHere reports whether an object in namespace may be the target. The server puts a
// Namespace into itself.
func (t *Target) isHere(resource, namespace string) bool {
	return namespace == t.Namespace || t.Namespace == "" || namespace == "" || resource == "namespaces"
}
