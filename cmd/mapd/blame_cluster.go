//go:build !server

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"

	"github.com/mapd-project/mapd/internal/operate/blame"
)

// maxOwners bounds the chain of owners: a Pod of a Job of a CronJob of a custom resource.
const maxOwners = 5

// owned maps a workload to the resource of the objects that it creates from its template.
var owned = map[schema.GroupKind]schema.GroupVersionResource{
	{Group: "apps", Kind: "Deployment"}:        {Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "apps", Kind: "ReplicaSet"}:        podResource,
	{Group: "apps", Kind: "StatefulSet"}:       podResource,
	{Group: "apps", Kind: "DaemonSet"}:         podResource,
	{Group: "batch", Kind: "CronJob"}:          {Group: "batch", Version: "v1", Resource: "jobs"},
	{Group: "batch", Kind: "Job"}:              podResource,
	{Group: "", Kind: "ReplicationController"}: podResource,
}

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// blaming finds out from a cluster what wrote the fields of objects.
type blaming struct {
	client dynamic.Interface
	mapper meta.RESTMapper
	record *records // nil: no records can be read
	now    *present // nil: the policies cannot be read
	// complaints are messages about what could not be read.
	complaints []string
}

// subject is the object of a question; object is nil if it does not exist.
type subject struct {
	*blame.Target
	gk     schema.GroupKind
	object *unstructured.Unstructured
}

// newBlaming discovers the cluster's kinds.
func newBlaming(config *rest.Config) (*blaming, error) {
	config.WarningHandler = rest.NoWarnings{}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // the failures that klog would print are returned as errors
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(d)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	return &blaming{client: client, mapper: mapper}, nil
}

// kind returns the kind that a user names.
func (b *blaming) kind(word string) (*meta.RESTMapping, error) {
	full, short := schema.ParseResourceArg(word)
	if full != nil {
		if gvk, err := b.mapper.KindFor(*full); err == nil {
			return b.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		}
	}
	gvk, err := b.mapper.KindFor(short.WithVersion(""))
	if err != nil {
		return nil, err
	}
	return b.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}

func subjectOf(m *meta.RESTMapping, namespace, name string) *subject {
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	gk := m.GroupVersionKind.GroupKind()
	shown := schema.GroupResource{Group: gk.Group, Resource: strings.ToLower(gk.Kind)}
	return &subject{gk: gk, Target: &blame.Target{Kind: shown.String(), Namespace: namespace, Name: name, Resources: []schema.GroupResource{m.Resource.GroupResource()}}}
}

// read reads an object into s. If it cannot, it adds a complaint.
func (b *blaming) read(ctx context.Context, s *subject, m *meta.RESTMapping) {
	object, err := b.client.Resource(m.Resource).Namespace(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		b.complain("%s is not in the cluster; only records and the audit log can know it", s)
	case err != nil:
		b.complain("%s cannot be read, so its managedFields and owners are unknown: %v", s, err)
	case s.UID != "" && object.GetUID() != s.UID:
		b.complain("%s in the cluster has another UID, %s; only records and the audit log can know the one with %s", s, object.GetUID(), s.UID)
	default:
		s.set(object)
	}
}

func (s *subject) set(object *unstructured.Unstructured) {
	s.object, s.UID, s.Created = object, object.GetUID(), object.GetCreationTimestamp().Time
}

func (b *blaming) complain(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(b.complaints, text) {
		b.complaints = append(b.complaints, text)
	}
}

// lines returns what wrote the fields of an object, including the lines of its owners'
// templates.
func (b *blaming) lines(ctx context.Context, s *subject, owners int) []blame.Line {
	var above *subject
	if owners > 0 {
		above = b.owner(ctx, s)
	}
	all := b.own(ctx, s, above)
	if above == nil {
		return all
	}
	return blame.Inherit(all, s.object, above.String(), above.object, b.lines(ctx, above, owners-1))
}

// owner reads the controller of an object; nil if it has none or if reading it fails.
func (b *blaming) owner(ctx context.Context, s *subject) *subject {
	if s.object == nil {
		return nil
	}
	owner := metav1.GetControllerOf(s.object)
	if owner == nil {
		return nil
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil
	}
	m, err := b.mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: owner.Kind}, gv.Version)
	if err != nil {
		b.complain("%s is owned by a kind that cannot be read: %v", s, err)
		return nil
	}
	above := subjectOf(m, s.Namespace, owner.Name)
	above.UID = owner.UID
	if b.read(ctx, above, m); above.object == nil {
		return nil
	}
	return above
}

// own returns what wrote the fields of an object, without its owner's lines. above is the
// owner; it may be nil.
func (b *blaming) own(ctx context.Context, s, above *subject) []blame.Line {
	var managed []blame.Line
	uid := types.UID("")
	if s.object != nil {
		if owner := metav1.GetControllerOf(s.object); owner != nil {
			uid = owner.UID
		}
		managed = blame.Managed(s.String(), s.object)
		if len(s.object.GetManagedFields()) == 0 {
			b.complain("%s has no managedFields", s)
		}
	}
	var recorded []blame.Line
	if b.record != nil {
		var complaints []string
		recorded, complaints = b.record.of(ctx, s.Target, s.gk, uid)
		for _, c := range complaints {
			b.complain("%s", c)
		}
	}
	var again []blame.Line
	if b.now != nil && s.object != nil {
		var err error
		if again, err = b.now.again(ctx, s, above); err != nil {
			b.complain("%s cannot be evaluated again, so no line has the source again: %v", s, err)
		}
	}
	return blame.Join(recorded, managed, again)
}

// made returns the lines of policies, webhooks and exceptions for the objects that a workload
// created from its template: for the newest object of each kind.
func (b *blaming) made(ctx context.Context, s *subject) []blame.Line {
	var out []blame.Line
	for range maxOwners {
		resource, ok := owned[s.gk]
		if !ok || s.object == nil {
			return out
		}
		list, err := b.client.Resource(resource).Namespace(s.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			b.complain("%s in the namespace %s cannot be listed: %v", resource.Resource, s.Namespace, err)
			return out
		}
		all := slices.DeleteFunc(list.Items, func(u unstructured.Unstructured) bool {
			owner := metav1.GetControllerOf(&u)
			return owner == nil || owner.UID != s.UID
		})
		if len(all) == 0 {
			return out
		}
		newest := slices.MaxFunc(all, func(x, y unstructured.Unstructured) int {
			return cmp.Or(x.GetCreationTimestamp().Compare(y.GetCreationTimestamp().Time), strings.Compare(x.GetName(), y.GetName()))
		})
		gvk, err := b.mapper.KindFor(resource)
		if err != nil {
			b.complain("%s: %v", resource.Resource, err)
			return out
		}
		m, err := b.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			b.complain("%s: %v", resource.Resource, err)
			return out
		}
		above := s
		s = subjectOf(m, s.Namespace, newest.GetName())
		s.set(&newest)
		for _, line := range b.own(ctx, s, above) {
			switch line.Kind {
			case blame.ByPolicy, blame.ByWebhook, blame.ByException:
				out = append(out, line)
			}
		}
	}
	return out
}

// blameInCluster prints what wrote the fields of an object, from records and managedFields.
func blameInCluster(ctx context.Context, s streams, f *blameFlags, kind, name string) error {
	config, err := f.replicas.cluster.config()
	if err != nil {
		return &codedError{exitUsage, err}
	}
	namespace := f.namespace
	if namespace == "" {
		namespace = f.replicas.cluster.namespace()
	}
	ctx, stop := interruptible(ctx, f.replicas.timeout)
	defer stop()
	b, err := newBlaming(config)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	m, err := b.kind(strings.ToLower(kind))
	var unknown *meta.NoResourceMatchError
	switch {
	case errors.As(err, &unknown):
		return usagef("blame: the cluster has no kind %q", kind)
	case err != nil:
		return &codedError{exitUnreachable, fmt.Errorf("blame: %w", err)}
	}
	if b.record, err = newRecords(ctx, f.replicas.of(config, s)); err != nil {
		b.complain("records: %v", err)
	}
	if b.now, err = newPresent(ctx, config); err != nil {
		b.complain("the policies cannot be read, so nothing is evaluated again: %v", err)
	}
	object := subjectOf(m, namespace, name)
	object.UID = types.UID(f.uid)
	b.read(ctx, object, m)
	owners := 0
	if f.owners {
		owners = maxOwners
	}
	lines := b.lines(ctx, object, owners)
	if f.owners {
		lines = append(lines, b.made(ctx, object)...)
	}
	lines = slices.DeleteFunc(lines, func(l blame.Line) bool {
		return !l.About(f.field) || f.field == "" && strings.HasSuffix(l.Operation, " status")
	})
	out := newBlamePrinter(s.out, f.output)
	out.objects = slices.ContainsFunc(lines, func(l blame.Line) bool { return l.Object != object.String() })
	for i := range lines {
		if err := out.print(&lines[i]); err != nil {
			return &codedError{exitUsage, err}
		}
	}
	if err := out.end(); err != nil {
		return &codedError{exitUsage, err}
	}
	if b.record != nil {
		if text := b.record.about(); text != "" {
			fmt.Fprintln(s.err, text)
		}
	}
	for _, c := range b.complaints {
		fmt.Fprintf(s.err, "warning: %s\n", c)
	}
	switch {
	case interrupted(ctx):
		return &codedError{code: exitInterrupted}
	case len(b.complaints) > 0 && len(lines) > 0:
		return &codedError{code: exitPartial}
	case len(lines) == 0:
		return &codedError{code: exitDenied}
	}
	return nil
}
