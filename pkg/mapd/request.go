package mapd

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/mapd-project/mapd/internal/apiserver/defaulting"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// RequestOptions describe the request to the API server. The zero value creates the object as
// the administrator that kubeadm sets up.
type RequestOptions struct {
	// Operation defaults to CREATE, or to UPDATE with Old. For a DELETE the document is the
	// object to delete, which becomes the old object of the Request.
	Operation admissionv1.Operation
	// Old has the objects before an update.
	Old *Objects
	// Subresource is the one that is requested, such as "status".
	Subresource string
	DryRun      bool
	// Time is the time of the request, which decides whether an exception has ended; zero means
	// the time of the evaluation.
	Time time.Time
	// Namespace is used for a namespaced object that names none; empty means Options.Namespace.
	Namespace string
	// User makes the request. The groups that every server adds are added.
	User authenticationv1.UserInfo
	// Raw leaves objects as they are: no schemas, and no defaults of a server.
	Raw bool
	// Note is called with each assumption; it may be nil.
	Note func(Note)
}

// A Request is an object on its way through the policies.
type Request struct {
	// Admission is what the engine evaluates. Its object has the form that a server holds after
	// decoding and defaulting.
	Admission *policy.Request

	doc, old  *Document
	object    map[string]any // as it was given
	kind      *openapi.Kind  // nil: no schema is applied
	name      string
	review    bool
	generated bool // the object is not in the document
}

// Document returns the document that the request was made from.
func (r *Request) Document() *Document { return r.doc }

// Old returns the document of Objects that has the object before an update, nil if there
// is none.
func (r *Request) Old() *Document { return r.old }

// Name returns kind and name of the object, such as "Pod shop/web".
func (r *Request) Name() string { return r.name }

// Object returns the object as it was given, nil if there is none. Callers must not
// modify it.
func (r *Request) Object() map[string]any { return r.object }

// Written reports whether the object is the Document itself. It is not if it comes from a
// review, or if another object will create it.
func (r *Request) Written() bool { return !r.review && !r.generated }

// FromReview reports whether Review made the request.
func (r *Request) FromReview() bool { return r.review }

// Generated returns the request for an object that the object of r will create. made is that
// object as it was derived, admission is the request with which a controller will create it,
// and from says how it was derived, for messages. kind is nil if no schema was applied to the
// object, and defaulted says that admission has the defaults of a server.
func (r *Request) Generated(made *unstructured.Unstructured, admission *policy.Request, from string, kind *openapi.Kind) *Request {
	return &Request{
		Admission: admission, doc: r.doc, object: made.Object, kind: kind, name: fmt.Sprintf("%s (%s)", manifest.Name(made), from),
		generated: true,
	}
}

// asking is one call of Request or Review.
type asking struct {
	*Policies
	RequestOptions
}

func (p *Policies) asking(o RequestOptions) *asking {
	if o.Note == nil {
		o.Note = func(Note) {}
	}
	if o.Operation == "" {
		o.Operation = admissionv1.Create
		if o.Old != nil {
			o.Operation = admissionv1.Update
		}
	}
	return &asking{p, o}
}

// Request returns the request that a server would admit for the object of a
// document.
func (p *Policies) Request(d *Document, opts RequestOptions) (*Request, error) {
	r, err := p.asking(opts).request(d)
	if err != nil {
		return nil, located(err)
	}
	return r, nil
}

func (e *asking) request(document *Document) (*Request, error) {
	d := document.doc
	if d.Object == nil {
		return nil, d.Errorf("there is no object, only comments")
	}
	gvk := d.Object.GroupVersionKind()
	res, sub, err := e.resource(d, gvk)
	if err != nil {
		return nil, err
	}
	s := &Request{doc: document, object: d.Object.Object, kind: e.kind(gvk)}
	obj := d.Object
	namespace := namespaceOf(obj, res.Namespaced, cmp.Or(e.Namespace, e.namespace))
	if res.Namespaced && !connects(gvk) { // or it has no metadata
		obj = withNamespace(obj, namespace)
	}
	s.name = manifest.Name(obj)
	settled, err := s.normalize(e, d, "", obj)
	if err != nil {
		return nil, err
	}
	req := &policy.Request{
		UID:  uid(d),
		Kind: gvk, Resource: res.GVR, SubResource: sub,
		RequestKind: gvk, RequestResource: res.GVR, RequestSubResource: sub,
		Name: obj.GetName(), Namespace: namespace,
		Operation: e.Operation,
		UserInfo:  Requester(e.User),
		DryRun:    e.DryRun,
		Time:      e.Time,
		Options:   e.options(),
		Object:    settled,
	}
	if e.Operation == admissionv1.Update {
		if e.Old == nil {
			return nil, d.Errorf("%s: an update needs the object before it", s.name)
		}
		old, ok := e.Old.docs[identify(obj, namespaceOf(d.Object, res.Namespaced, e.namespace))]
		switch {
		case obj.GetName() == "":
			return nil, d.Errorf("%s: without metadata.name there is nothing to update", s.name)
		case !ok:
			return nil, d.Errorf("%s: no object of this kind and name in %s, so there is nothing to update", s.name, e.Old.name)
		case old.doc.Object.GroupVersionKind() != gvk:
			return nil, d.Errorf("%s: is of %s, but of %s in %s", s.name, gvk.GroupVersion(), old.doc.Object.GetAPIVersion(), e.Old.name)
		}
		s.old = old
		oldObj := old.doc.Object
		if res.Namespaced {
			oldObj = withNamespace(oldObj, namespace)
		}
		if req.OldObject, err = s.normalize(e, old.doc, "", oldObj); err != nil {
			return nil, err
		}
	}
	if e.Operation == admissionv1.Delete {
		s.object, req.Object, req.OldObject = nil, nil, settled
	}
	s.Admission = req
	return s, nil
}

// Review returns the request for a review that an API server would send, which was
// read from a document. Of opts it uses Raw and Note.
func (p *Policies) Review(d *Document, admission *policy.Request, opts RequestOptions) (*Request, error) {
	r, err := p.asking(opts).fromReview(d, admission)
	if err != nil {
		return nil, located(err)
	}
	return r, nil
}

func (e *asking) fromReview(document *Document, req *policy.Request) (*Request, error) {
	d := document.doc
	s := &Request{doc: document, Admission: req, review: true, kind: e.kind(req.Kind)}
	req.Time = e.Time
	var err error
	if req.Object != nil {
		s.object = req.Object.Object
		s.name = manifest.Name(req.Object)
		if req.Object, err = s.normalize(e, d, "request.object.", req.Object); err != nil {
			return nil, err
		}
	} else {
		s.name = strings.TrimSpace(req.Kind.Kind + " " + req.Name)
	}
	if req.OldObject != nil {
		if req.OldObject, err = s.normalize(e, d, "request.oldObject.", req.OldObject); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// decode returns an object as a server holds it when admission begins: in canonical form, with
// defaults. An object of a review has its defaults already.
func (s *Request) decode(obj map[string]any) (map[string]any, error) {
	if s.kind == nil {
		return obj, nil
	}
	if !s.review {
		obj, _ = defaulting.Apply(obj)
	}
	return s.kind.Normalize(obj)
}

// kind returns the kind whose schema decodes objects, nil if they are left as they are.
func (e *asking) kind(gvk schema.GroupVersionKind) *openapi.Kind {
	if e.Raw {
		return nil
	}
	kind, _ := e.loaded.Types.Kind(gvk)
	return kind
}

// normalize is decode with errors that name the position in the document, where prefix is the
// path of the object. If only mutators are loaded, which need no schema, an object that does
// not fit its own schema is left as it is.
func (s *Request) normalize(e *asking, d *manifest.Document, prefix string, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	obj, err := s.decode(u.Object)
	if err != nil && len(e.loaded.Policies) == 0 {
		e.Note(note(TakenAsIs, []string{u.GetKind()}, "a %s that a server would not accept is taken as it is", u.GetKind()))
		s.kind = nil
		return u, nil
	}
	if err != nil {
		return nil, d.ErrorOf(prefix, fmt.Errorf("%s: %w", manifest.Name(u), err))
	}
	return &unstructured.Unstructured{Object: obj}, nil
}

// Kubernetes is the release whose behaviour and schemas mapd has.
const Kubernetes = "v1.37.2"

// subresourceOf maps kinds that are only sent to a subresource to the resources that have it,
// the likeliest first.
var subresourceOf = map[string]struct {
	subresource string
	resources   []schema.GroupVersionResource
}{
	"Scale": {"scale", []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "statefulsets"},
		{Group: "apps", Version: "v1", Resource: "replicasets"}, {Version: "v1", Resource: "replicationcontrollers"},
	}},
	"Eviction":              {"eviction", []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}},
	"TokenRequest":          {"token", []schema.GroupVersionResource{{Version: "v1", Resource: "serviceaccounts"}}},
	"Binding":               {"binding", []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}},
	"PodExecOptions":        {"exec", []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}},
	"PodAttachOptions":      {"attach", []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}},
	"PodPortForwardOptions": {"portforward", []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}},
	"PodProxyOptions":       {"proxy", []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}},
	"ServiceProxyOptions":   {"proxy", []schema.GroupVersionResource{{Version: "v1", Resource: "services"}}},
	"NodeProxyOptions":      {"proxy", []schema.GroupVersionResource{{Version: "v1", Resource: "nodes"}}},
}

// resource returns the resource and the subresource to which an object of a kind is sent.
func (e *asking) resource(d *manifest.Document, gvk schema.GroupVersionKind) (openapi.Resource, string, error) {
	types := e.loaded.Types
	sub := e.Subresource
	res, known := types.ResourceFor(gvk)
	if only, ok := subresourceOf[gvk.Kind]; ok && (!known || sub == only.subresource) {
		if sub != "" && sub != only.subresource {
			return res, "", d.Errorf("%s: is sent to the subresource %s, not %s", d.Name(), only.subresource, sub)
		}
		for _, gvr := range only.resources {
			if k, ok := types.KindFor(gvr, only.subresource); ok && k == gvk {
				if connects(gvk) && e.Operation != admissionv1.Connect {
					return res, "", d.Errorf("%s: is sent with --operation connect only", d.Name())
				}
				if len(only.resources) > 1 {
					e.Note(note(Other, []string{gvk.Kind}, "a %s does not say whose it is: taken as that of %s (an AdmissionReview says)", gvk.Kind, gvr.GroupResource()))
				}
				return openapi.Resource{GVR: gvr, Kind: gvk, Namespaced: gvr.Resource != "nodes"}, only.subresource, nil
			}
		}
	}
	if known {
		if sub != "" {
			if !slices.Contains(res.Subresources, sub) {
				return res, "", d.Errorf("%s: %s has no subresource %s", d.Name(), res.GVR.GroupResource(), sub)
			}
			if k, ok := types.KindFor(res.GVR, sub); ok && k != gvk {
				return res, "", d.Errorf("%s: %s/%s takes a %s", d.Name(), res.GVR.Resource, sub, k.Kind)
			}
		}
		return res, sub, nil
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	if gvk.Group == api.OwnGroup && (gvk.Kind == api.PolicyKind || gvk.Kind == api.BindingKind) {
		return openapi.Resource{GVR: plural, Kind: gvk}, sub, nil // mapd's own kinds are cluster-scoped, like the native ones
	}
	about := []string{fmt.Sprintf("%s, Kind=%s", gvk.GroupVersion(), gvk.Kind), plural.GroupResource().String()}
	if strings.Contains(gvk.Group, ".") { // a custom group has a dot
		e.Note(note(UnknownKind, about, "%s is not known, give its CustomResourceDefinition: taken as namespaced %s", about[0], about[1]))
	} else {
		e.Note(note(Other, about, "%s is not known, Kubernetes %s does not serve it: taken as namespaced %s", about[0], Kubernetes, about[1]))
	}
	return openapi.Resource{GVR: plural, Kind: gvk, Namespaced: true}, sub, nil
}

// connects reports whether a kind is the options of a CONNECT.
func connects(gvk schema.GroupVersionKind) bool {
	_, ok := subresourceOf[gvk.Kind]
	return ok && strings.HasSuffix(gvk.Kind, "Options")
}

// namespaceOf returns request.namespace. For a Namespace it is the object's own name (spec
// §6.1).
func namespaceOf(u *unstructured.Unstructured, namespaced bool, fallback string) string {
	switch {
	case namespaced:
		return cmp.Or(u.GetNamespace(), fallback)
	case u.GetKind() == "Namespace" && u.GetAPIVersion() == "v1":
		return u.GetName()
	}
	return ""
}

// withNamespace returns an object with its namespace set from the request, as a server does if
// the object has none.
func withNamespace(u *unstructured.Unstructured, namespace string) *unstructured.Unstructured {
	if u.GetNamespace() == namespace {
		return u
	}
	obj := maps.Clone(u.Object)
	m, _ := obj["metadata"].(map[string]any)
	m = maps.Clone(m)
	if m == nil {
		m = map[string]any{}
	}
	m["namespace"] = namespace
	obj["metadata"] = m
	return &unstructured.Unstructured{Object: obj}
}

// Requester returns a user with the groups that a server adds as for kubectl --as. Without a
// name it is the administrator that kubeadm makes.
func Requester(u authenticationv1.UserInfo) authenticationv1.UserInfo {
	u.Groups = slices.Clone(u.Groups)
	if u.Username == "" {
		u.Username = "kubernetes-admin"
		if len(u.Groups) == 0 {
			u.Groups = []string{user.SystemPrivilegedGroup}
		}
	}
	if namespace, _, err := serviceaccount.SplitUsername(u.Username); err == nil && len(u.Groups) == 0 {
		u.Groups = serviceaccount.MakeGroupNames(namespace)
	}
	everybody := user.AllAuthenticated
	if u.Username == user.Anonymous {
		everybody = user.AllUnauthenticated
	}
	if !slices.Contains(u.Groups, everybody) {
		u.Groups = append(u.Groups, everybody)
	}
	return u
}

// options returns request.options, which are nil for CONNECT (spec §2.6).
func (e *asking) options() map[string]any {
	kind := map[admissionv1.Operation]string{admissionv1.Create: "CreateOptions", admissionv1.Update: "UpdateOptions", admissionv1.Delete: "DeleteOptions"}[e.Operation]
	if kind == "" {
		return nil
	}
	o := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": kind}
	if e.DryRun {
		o["dryRun"] = []any{"All"}
	}
	return o
}

// uid returns a UID that differs between documents and is the same in each run.
func uid(d *manifest.Document) types.UID {
	h := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d\x00%s", d.File, d.Index, d.Line, d.Raw))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

// Stored returns an object that policies made from that of r, in the form that a server stores:
// with defaults filled in again, in canonical form.
func (r *Request) Stored(object map[string]any) (map[string]any, error) {
	if r.kind == nil {
		return object, nil
	}
	object, _ = defaulting.Apply(object)
	return r.kind.Normalize(object)
}

// Again returns a request that updates object, which policies made from that of r, without
// changing it; nil if r does not create or update an object.
func (r *Request) Again(object map[string]any) (*policy.Request, error) {
	q := r.Admission
	if object == nil || q.Operation != admissionv1.Update && (q.Operation != admissionv1.Create || q.SubResource != "") {
		return nil, nil
	}
	object, err := r.Stored(object)
	if err != nil {
		return nil, err
	}
	name := q.Name
	if u := (&unstructured.Unstructured{Object: object}); u.GetName() == "" {
		// A server has made a name of generateName.
		name = u.GetGenerateName() + "00000"
		u = u.DeepCopy()
		u.SetName(name)
		object = u.Object
	}
	options := maps.Clone(q.Options)
	if options != nil {
		options["kind"] = "UpdateOptions"
	}
	return &policy.Request{
		UID: q.UID, Kind: q.Kind, Resource: q.Resource, SubResource: q.SubResource,
		RequestKind: q.RequestKind, RequestResource: q.RequestResource, RequestSubResource: q.RequestSubResource,
		Name: name, Namespace: q.Namespace, Operation: admissionv1.Update, UserInfo: q.UserInfo, DryRun: q.DryRun, Time: q.Time, Options: options, Source: q.Source,
		Object: &unstructured.Unstructured{Object: object}, OldObject: &unstructured.Unstructured{Object: object},
	}, nil
}
