package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/manifests"
	"github.com/mapd-project/mapd/pkg/api"
)

// Namespace is where the manifest puts mapd.
const Namespace = "mapd-system"

// Objects returns the objects of manifests/install.yaml, in its order. If image is not empty, it
// replaces mapd's image; args are added to mapd's arguments.
func Objects(image string, args ...string) ([]*unstructured.Unstructured, error) {
	docs, err := documents(manifests.Install(), image, args...)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, d := range docs {
		if d.object != nil {
			objects = append(objects, d.object)
		}
	}
	return objects, nil
}

// additions are the objects that manifests/overlays add to those, and that stay when mapd's
// namespace goes.
func additions() ([]*unstructured.Unstructured, error) {
	text, err := manifests.Additions()
	if err != nil {
		return nil, err
	}
	docs, err := documents(text, "")
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, d := range docs {
		if d.object != nil && d.object.GetNamespace() != Namespace {
			objects = append(objects, d.object)
		}
	}
	return objects, nil
}

// Manifest is the text of the same objects: manifests/install.yaml itself,
// comments included, but for the image and the arguments.
func Manifest(image string, args ...string) ([]byte, error) {
	if image == "" && len(args) == 0 {
		return manifests.Install(), nil
	}
	docs, err := documents(manifests.Install(), image, args...)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for i, d := range docs {
		if i > 0 || d.explicit {
			b.WriteString("---\n")
		}
		b.Write(d.text)
	}
	return b.Bytes(), nil
}

// document is one of the manifest, its image and arguments replaced.
type document struct {
	object   *unstructured.Unstructured // nil: comments only
	text     []byte
	explicit bool // a "---" stands before it
}

func documents(text []byte, image string, args ...string) ([]document, error) {
	var docs []document
	replaced := false
	for d, err := range manifest.ReadStream("manifests", bytes.NewReader(text)) {
		if err != nil {
			return nil, err
		}
		doc := document{object: d.Object, text: d.Raw, explicit: d.Explicit}
		if d.Object != nil && (image != "" || len(args) > 0) {
			obj := d.Object.DeepCopy()
			if setContainer(obj, image, args) {
				doc.object, doc.text, replaced = obj, manifest.Rewrite(d, obj.Object), true
			}
		}
		docs = append(docs, doc)
	}
	if (image != "" || len(args) > 0) && !replaced {
		return nil, errors.New("install.yaml: no container with the image of mapd")
	}
	return docs, nil
}

// setContainer replaces mapd's image, whatever its tag, in the containers of obj, if
// it is given another, and adds arguments.
func setContainer(obj *unstructured.Unstructured, image string, args []string) bool {
	containers, _, _ := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", "containers")
	found := false
	for _, c := range containers {
		c, _ := c.(map[string]any)
		old, _ := c["image"].(string)
		if rest, ok := strings.CutPrefix(old, manifests.Image); ok && (rest == "" || rest[0] == ':' || rest[0] == '@') {
			if image != "" {
				c["image"] = image
			}
			if len(args) > 0 {
				all, _ := c["args"].([]any)
				all = slices.Clone(all)
				for _, a := range args {
					all = append(all, a)
				}
				c["args"] = all
			}
			found = true
		}
	}
	if found {
		// The containers were copied out, so they always go back where they were.
		_ = unstructured.SetNestedSlice(obj.Object, containers, "spec", "template", "spec", "containers")
	}
	return found
}

// The resources that are used outside of the manifest's objects.
var (
	mutating       = schema.GroupVersionResource{Group: api.NativeGroup, Version: "v1", Resource: "mutatingwebhookconfigurations"}
	validating     = schema.GroupVersionResource{Group: api.NativeGroup, Version: "v1", Resource: "validatingwebhookconfigurations"}
	namespaces     = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	accessReviews  = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}
	configurations = []ref{{mutating, "", webhookconfig.ConfigurationName}, {validating, "", webhookconfig.ValidationName}}
)

// ref names one object.
type ref struct {
	gvr             schema.GroupVersionResource
	namespace, name string
}

// refOf derives the resource from the kind, as kubectl does without discovery. A test checks that
// this is right for every kind of the manifest.
func refOf(obj *unstructured.Unstructured) ref {
	gvr, _ := meta.UnsafeGuessKindToResource(obj.GroupVersionKind())
	return ref{gvr, obj.GetNamespace(), obj.GetName()}
}

// Live returns what a cluster has of an object of the manifest, and the object's
// name as kubectl writes it.
func Live(ctx context.Context, d dynamic.Interface, obj *unstructured.Unstructured) (name string, live *unstructured.Unstructured, err error) {
	r := refOf(obj)
	live, err = r.client(d).Get(ctx, r.name, metav1.GetOptions{})
	return r.String(), live, err
}

// owner returns another installation, in another namespace that is still there, to
// which the webhook configurations belong; ok is false if there is none, or if that
// cannot be seen.
func owner(ctx context.Context, d dynamic.Interface) (_ webhookconfig.Installation, ok bool) {
	for _, c := range configurations {
		obj, err := c.client(d).Get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			continue
		}
		i := webhookconfig.InstallationOf(metav1.ObjectMeta{Annotations: obj.GetAnnotations(), OwnerReferences: obj.GetOwnerReferences()})
		if i.Namespace == "" || i.Namespace == Namespace {
			return i, false
		}
		ns, err := ref{namespaces, "", i.Namespace}.client(d).Get(ctx, i.Namespace, metav1.GetOptions{})
		gone := err == nil && (ns.GetDeletionTimestamp() != nil || i.UID != "" && i.UID != ns.GetUID())
		return i, !gone && !apierrors.IsNotFound(err)
	}
	return webhookconfig.Installation{}, false
}

func (r ref) client(d dynamic.Interface) dynamic.ResourceInterface {
	if r.namespace == "" {
		return d.Resource(r.gvr)
	}
	return d.Resource(r.gvr).Namespace(r.namespace)
}

// singular reverts refOf's plural for text.
func singular(resource string) string {
	if s, ok := strings.CutSuffix(resource, "ies"); ok {
		return s + "y"
	}
	if s, ok := strings.CutSuffix(resource, "sses"); ok {
		return s + "ss"
	}
	return strings.TrimSuffix(resource, "s")
}

// String is the object as kubectl writes it: deployment.apps/mapd.
func (r ref) String() string {
	s := singular(r.gvr.Resource)
	if r.gvr.Group != "" {
		s += "." + r.gvr.Group
	}
	return s + "/" + r.name
}

// find is the only object of a kind.
func find(objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	if i < 0 {
		return nil
	}
	return objects[i]
}

// condition is the status, reason and message of one of obj's conditions; empty
// if it has none of that type.
func condition(obj *unstructured.Unstructured, kind string) (c metav1.Condition) {
	all, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, v := range all {
		m, _ := v.(map[string]any)
		if m["type"] == kind {
			c.Type = kind
			status, _ := m["status"].(string)
			c.Status = metav1.ConditionStatus(status)
			c.Reason, _ = m["reason"].(string)
			c.Message, _ = m["message"].(string)
		}
	}
	return c
}

func describe(c metav1.Condition) string {
	switch {
	case c.Message != "":
		return c.Message
	case c.Reason != "":
		return c.Reason
	}
	return fmt.Sprintf("%s is %s", c.Type, c.Status)
}
