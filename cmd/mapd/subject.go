package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/mapd-project/mapd/internal/defaults"
	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/internal/report"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// subject is one object on its way through the policies.
type subject struct {
	doc *manifest.Document
	// object is what the user gave; request.Object is the same as a server holds
	// it after decoding and defaulting.
	object  map[string]any
	request *policy.Request
	kind    *openapi.Kind
	name    string
	review  bool
	// defaulted says that it is known what a server fills in for the kind.
	defaulted bool
}

// subject makes the request that a server would admit for a document.
func (e *evaluation) subject(d *manifest.Document) (*subject, error) {
	if gvk := d.Object.GroupVersionKind(); gvk.Group == admissionv1.GroupName && gvk.Kind == "AdmissionReview" {
		return e.fromReview(d)
	}
	gvk := d.Object.GroupVersionKind()
	res, sub, err := e.resource(d, gvk)
	if err != nil {
		return nil, err
	}
	s := &subject{doc: d, object: d.Object.Object, kind: e.kind(gvk)}
	obj := d.Object
	namespace := e.namespaceOf(obj, res.Namespaced)
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
		Operation: e.operation(),
		UserInfo:  e.userInfo(),
		DryRun:    e.flags.dryRun,
		Options:   e.options(),
		Object:    settled,
	}
	if e.operation() == admissionv1.Update {
		old, ok := e.old[identify(obj, namespace)]
		switch {
		case obj.GetName() == "":
			return nil, d.Errorf("%s: without metadata.name there is nothing to update", s.name)
		case !ok:
			return nil, d.Errorf("%s: no object of this kind and name in %s, so there is nothing to update", s.name, e.flags.old)
		case old.Object.GroupVersionKind() != gvk:
			return nil, d.Errorf("%s: is of %s, but of %s in %s", s.name, gvk.GroupVersion(), old.Object.GetAPIVersion(), e.flags.old)
		}
		oldObj := old.Object
		if res.Namespaced {
			oldObj = withNamespace(oldObj, namespace)
		}
		if req.OldObject, err = s.normalize(e, old, "", oldObj); err != nil {
			return nil, err
		}
	}
	s.request = req
	return s, nil
}

// fromReview takes a whole request from an AdmissionReview.
func (e *evaluation) fromReview(d *manifest.Document) (*subject, error) {
	data, err := json.Marshal(d.Object.Object)
	if err != nil {
		return nil, d.Errorf("%w", err)
	}
	req, err := webhook.DecodeReview(data)
	if err != nil {
		return nil, d.Errorf("AdmissionReview: %w", err)
	}
	s := &subject{doc: d, request: req, review: true, kind: e.kind(req.Kind)}
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

// decode returns an object as a server holds it when admission begins: with its
// defaults, in canonical form. A review comes from a server, defaults included.
func (s *subject) decode(obj map[string]any) (map[string]any, error) {
	if s.kind == nil {
		return obj, nil
	}
	if !s.review {
		obj, s.defaulted = defaults.Apply(obj)
	}
	return s.kind.Normalize(obj)
}

// kind is the kind by which objects are read, nil if they are taken as they are.
func (e *evaluation) kind(gvk schema.GroupVersionKind) *openapi.Kind {
	if e.flags.raw {
		return nil
	}
	kind, _ := e.policies.Types.Kind(gvk)
	return kind
}

// normalize is decode with errors that name the place in the document, where
// prefix is the path of the object. Mutators alone need no kind, so what does not
// fit its own is then taken as it is.
func (s *subject) normalize(e *evaluation, d *manifest.Document, prefix string, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	obj, err := s.decode(u.Object)
	if err != nil && len(e.policies.Policies) == 0 {
		e.notes.once("note: a %s that a server would not accept is taken as it is (--raw)\n", u.GetKind())
		s.kind = nil
		return u, nil
	}
	if err != nil {
		return nil, d.ErrorOf(prefix, fmt.Errorf("%s: %w", manifest.Name(u), err))
	}
	return &unstructured.Unstructured{Object: obj}, nil
}

// subresourceOf are the kinds that are sent to a subresource only, with the
// resources that have it, the likeliest first.
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

// resource finds out where an object of a kind is sent.
func (e *evaluation) resource(d *manifest.Document, gvk schema.GroupVersionKind) (openapi.Resource, string, error) {
	types := e.policies.Types
	sub := e.flags.subresource
	res, known := types.ResourceFor(gvk)
	if only, ok := subresourceOf[gvk.Kind]; ok && (!known || sub == only.subresource) {
		if sub != "" && sub != only.subresource {
			return res, "", d.Errorf("%s: is sent to the subresource %s, not %s", d.Name(), only.subresource, sub)
		}
		for _, gvr := range only.resources {
			if k, ok := types.KindFor(gvr, only.subresource); ok && k == gvk {
				if connects(gvk) && e.operation() != admissionv1.Connect {
					return res, "", d.Errorf("%s: is sent with --operation connect only", d.Name())
				}
				if len(only.resources) > 1 {
					e.notes.once("note: a %s does not say whose it is: taken as that of %s (an AdmissionReview says)\n", gvk.Kind, gvr.GroupResource())
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
	hint := "give its CustomResourceDefinition with -p"
	if !strings.Contains(gvk.Group, ".") { // a custom group has a dot
		hint = "Kubernetes " + reference + " does not serve it"
	}
	e.notes.once("note: %s, Kind=%s is not known, %s: taken as namespaced %s\n", gvk.GroupVersion(), gvk.Kind, hint, plural.GroupResource())
	return openapi.Resource{GVR: plural, Kind: gvk, Namespaced: true}, sub, nil
}

// connects tells whether a kind is the options of a CONNECT.
func connects(gvk schema.GroupVersionKind) bool {
	_, ok := subresourceOf[gvk.Kind]
	return ok && strings.HasSuffix(gvk.Kind, "Options")
}

// namespaceOf is request.namespace. That of a Namespace is its own name (spec
// §6.1).
func (e *evaluation) namespaceOf(u *unstructured.Unstructured, namespaced bool) string {
	switch {
	case namespaced:
		return cmp.Or(u.GetNamespace(), e.flags.namespace)
	case u.GetKind() == "Namespace" && u.GetAPIVersion() == "v1":
		return u.GetName()
	}
	return ""
}

// withNamespace is what a server does to an object that leaves its namespace to
// the request.
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

// objectID tells objects apart across versions.
type objectID struct{ group, kind, namespace, name string }

func identify(u *unstructured.Unstructured, namespace string) objectID {
	gvk := u.GroupVersionKind()
	return objectID{gvk.Group, gvk.Kind, namespace, u.GetName()}
}

// readOld reads the objects of --old.
func (e *evaluation) readOld(s streams) error {
	files, err := manifest.Files([]string{e.flags.old}, e.flags.recursive)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	e.old = map[objectID]*manifest.Document{}
	var errs []error
	for d, err := range manifest.Read(files, s.in) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if d.Object == nil {
			continue
		}
		res, known := e.policies.Types.ResourceFor(d.Object.GroupVersionKind())
		id := identify(d.Object, e.namespaceOf(d.Object, res.Namespaced || !known))
		if first, ok := e.old[id]; ok && id.name != "" {
			errs = append(errs, d.ErrorAt("metadata.name", fmt.Errorf("%s is given twice, first in %s", d.Name(), first.Where())))
			continue
		}
		e.old[id] = d
	}
	if len(errs) > 0 {
		printErrors(s.err, errs)
		return &codedError{code: exitUsage}
	}
	if len(e.old) == 0 {
		return e.flags.usagef("no objects in %s", e.flags.old)
	}
	return nil
}

// userInfo is who asks, with the groups that a server adds as for kubectl --as;
// without --user it is the administrator that kubeadm makes.
func (e *evaluation) userInfo() authenticationv1.UserInfo {
	u := authenticationv1.UserInfo{Username: e.flags.user, Groups: slices.Clone(e.flags.groups)}
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

// options are request.options; CONNECT has none (spec §2.6).
func (e *evaluation) options() map[string]any {
	kind := map[admissionv1.Operation]string{admissionv1.Create: "CreateOptions", admissionv1.Update: "UpdateOptions"}[e.operation()]
	if kind == "" {
		return nil
	}
	o := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": kind}
	if e.flags.dryRun {
		o["dryRun"] = []any{"All"}
	}
	return o
}

// uid is different for different documents and the same in the next run.
func uid(d *manifest.Document) types.UID {
	h := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d\x00%s", d.File, d.Index, d.Line, d.Raw))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

// keys are how the list elements of an object are called in reports.
func (e *evaluation) keys(u *unstructured.Unstructured) report.Keys {
	kind, err := e.policies.Types.Kind(u.GroupVersionKind())
	if err != nil {
		return nil
	}
	return report.SchemaKeys(kind)
}
