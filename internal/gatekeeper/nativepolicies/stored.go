package nativepolicies

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/policy"
)

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "mapd"
	// LiveLabel marks the policies and bindings that mapd writes for mutators. It tells them from
	// policies that other tools manage, such as the one that installed mapd.
	LiveLabel = "mapd.dev/live"
	liveValue = "gatekeeper"
)

// Groups returns the API groups in which policies can be written, the preferred
// one first.
func Groups() []string { return []string{api.NativeGroup, api.OwnGroup} }

// Key names a policy or a binding of the cluster.
type Key struct {
	Group   string
	Binding bool
	Name    string
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
}

// partner returns the policy of a binding, or the binding of a policy.
func (k Key) partner() Key { return Key{k.Group, !k.Binding, k.Name} }

// Owner is a mutator as an owner reference names it.
type Owner struct {
	APIVersion, Kind, Name string
	UID                    types.UID
}

// ID returns the mutator's ID: "Assign/name".
func (o Owner) ID() string { return o.Kind + "/" + o.Name }

// Object has the fields of a stored policy or binding that this package needs.
type Object struct {
	Key
	UID     types.UID
	Version string // resourceVersion
	Going   bool   // has a deletionTimestamp
	Ours    bool
	Owners  []Owner // mutators, by ID
	Digest  string  // of the spec; empty if it cannot be read

	labels, annotations map[string]string
}

// ReadObject returns the Object of a stored policy or binding. It reads the spec from spec and
// the metadata from meta, which may belong to the same object.
func ReadObject(meta *unstructured.Unstructured, spec []byte) *Object {
	o := &Object{
		Key:     Key{Group: meta.GroupVersionKind().Group, Binding: meta.GetKind() == api.BindingKind, Name: meta.GetName()},
		UID:     meta.GetUID(),
		Version: meta.GetResourceVersion(),
		Going:   meta.GetDeletionTimestamp() != nil,
		labels:  meta.GetLabels(), annotations: meta.GetAnnotations(),
	}
	o.Ours = o.labels[managedByLabel] == managedBy && o.labels[LiveLabel] == liveValue
	if !o.Ours {
		o.labels, o.annotations = nil, nil
		return o
	}
	for _, ref := range meta.GetOwnerReferences() {
		if gv, err := schema.ParseGroupVersion(ref.APIVersion); err == nil && gv.Group == legacy.Group {
			o.Owners = append(o.Owners, Owner{ref.APIVersion, ref.Kind, ref.Name, ref.UID})
		}
	}
	slices.SortFunc(o.Owners, compareOwners)
	o.Digest = Digest(o.Binding, spec)
	return o
}

func compareOwners(a, b Owner) int { return cmp.Compare(a.ID(), b.ID()) }

// Digest returns the same text for equal specs, in whichever group and whether or
// not the server has filled in the defaults. It returns "" if text cannot be read.
func Digest(isBinding bool, text []byte) string {
	var spec any
	if isBinding {
		obj, err := binding.DecodeJSON(text)
		if err != nil {
			return ""
		}
		spec = obj.Spec
	} else {
		obj, err := policy.DecodeJSON(text)
		if err != nil {
			return ""
		}
		spec = obj.Spec
	}
	canonical, err := json.Marshal(spec)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:16])
}

// hasMetadataOf reports whether the stored object has the labels, annotations and
// owners of a part. It may have others, too.
func (o *Object) hasMetadataOf(p *Part, owners []Owner) bool {
	holds := func(have, want map[string]string) bool {
		for k, v := range want {
			if have[k] != v {
				return false
			}
		}
		return true
	}
	return holds(o.labels, p.Object.GetLabels()) && holds(o.annotations, p.Object.GetAnnotations()) && slices.Equal(o.Owners, owners)
}

// label adds the labels of objects that mapd keeps.
func label(u *unstructured.Unstructured) {
	labels := maps.Clone(u.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedByLabel], labels[LiveLabel] = managedBy, liveValue
	u.SetLabels(labels)
}
