package binding

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/policy"
)

// podTemplateHash is the label of a Deployment's ReplicaSets and their Pods. Its value is
// the last part of the ReplicaSet's name.
const podTemplateHash = "pod-template-hash"

// ShareKey returns the key that decides which shares of bindings include a request: its
// namespace, a slash, and the first of these names that exists:
//
//   - of the controller that owns the object; of a Deployment's ReplicaSet that owns a
//     Pod, the Deployment's name;
//   - its generateName, which it has before its name and keeps;
//   - its name.
//
// The object is the request's own and not what policies made of it, so all rounds of a request
// have one key. The key must never change between versions of mapd, since objects would move
// into or out of shares.
func ShareKey(req *policy.Request) string {
	namespace := req.Namespace
	if (req.Resource == schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}) {
		namespace = "" // requests for a Namespace have its name here, too
	}
	return namespace + "/" + shareName(req)
}

func shareName(req *policy.Request) string {
	object := req.Object
	if object == nil {
		object = req.OldObject
	}
	if object == nil {
		return req.Name
	}
	meta, _ := object.Object["metadata"].(map[string]any)
	owners, _ := meta["ownerReferences"].([]any)
	for _, o := range owners {
		owner, _ := o.(map[string]any)
		if controller, _ := owner["controller"].(bool); !controller {
			continue
		}
		name, _ := owner["name"].(string)
		if owner["kind"] == "ReplicaSet" {
			labels, _ := meta["labels"].(map[string]any)
			if hash, _ := labels[podTemplateHash].(string); hash != "" {
				name = strings.TrimSuffix(name, "-"+hash)
			}
		}
		if name != "" {
			return name
		}
	}
	for _, field := range [...]string{"generateName", "name"} {
		if name, _ := meta[field].(string); name != "" {
			return name
		}
	}
	return req.Name
}

// ShareHash returns the hash of a ShareKey that [api.Share.Has] takes: the first eight
// bytes of its SHA-256, as a big-endian number.
func ShareHash(key string) uint64 {
	sum := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(sum[:])
}

// shareHash returns the ShareHash of the request, computed once.
func (t *target) shareHash() uint64 {
	if !t.hashed {
		t.hashed, t.hash = true, ShareHash(ShareKey(t.req))
	}
	return t.hash
}
