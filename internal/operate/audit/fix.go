package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Manager is the field manager of all writes of a Fixer.
const Manager = "mapd-audit"

// Reference names an object in the version in which it was audited.
type Reference struct {
	Resource        Resource
	Namespace, Name string
	// Template runs the policies on the Pod that a workload's template would create, and writes
	// the result into the template.
	Template bool
}

// Fixer writes what policies do to objects, one object at a time.
//
// It reads the object, runs the policies, and applies the fields that they set by server-side
// apply, with the resourceVersion that it has read. If the object has changed meanwhile, it
// begins again. If another manager owns a field with another value, that is a conflict, which is
// reported and not forced. Changes that an apply cannot express, such as removing a field, are a
// JSON patch with the same resourceVersion.
type Fixer struct {
	Writer
	Set *Set
	Asking
	// Twice makes the Fixer skip objects for which the policies change their own result again:
	// each write would cause another one.
	Twice bool
	// Leave returns the reason to skip an object, "" if there is none. was is the object, and
	// want the object after the policies. It may be nil.
	Leave func(r *Result, was, want *unstructured.Unstructured) string
	// Confirm is called with the result that is about to be written, and returns whether to write
	// it; nil always writes.
	Confirm func(*Result) (bool, error)
	// Before is called before each write, with what undoes it; an error prevents the write. It is
	// called again after the write if the API server has stored something else than its answer to
	// the dry run. It must not be nil unless DryRun is set. Refused is called if the API server
	// then wrote nothing; it may be nil.
	Before  func(*Undo) error
	Refused func() error
}

// Outcome is the outcome for one object.
type Outcome string

// Outcomes of Fix and Restore.
const (
	Written Outcome = "written"
	Checked Outcome = "would be written"
	// Partly and CheckedPartly are used instead of Written and Checked if the API server leaves
	// some of the changed fields as they were. If it leaves all of them, the outcome is
	// Unwritten.
	Partly        Outcome = "written in part"
	CheckedPartly Outcome = "would be written in part"
	Unwritten     Outcome = "not written"
	// LeftOut: the write would replace Pods, which Writer.ReplacePods does not allow.
	LeftOut Outcome = "left out"

	Done     Outcome = "is as the policies make it"
	Gone     Outcome = "gone"
	Refused  Outcome = "refused by the policies"
	Conflict Outcome = "conflict"
	Declined Outcome = "left alone"
	Failed   Outcome = "failed"
	// Restored and Before are of Restore.
	Restored Outcome = "put back"
	Before   Outcome = "is as it was"
)

// attempts bounds how often an object is evaluated again because it has changed.
const attempts = 10

// OK reports whether the outcome needs no attention.
func (o Outcome) OK() bool {
	switch o {
	case Refused, Conflict, Failed, Partly, CheckedPartly, Unwritten, LeftOut:
		return false
	}
	return true
}

func (c *Cluster) of(r Resource, namespace string) dynamic.ResourceInterface {
	if r.Namespaced {
		return c.Dynamic.Resource(r.GVR).Namespace(namespace)
	}
	return c.Dynamic.Resource(r.GVR)
}

// Fix writes what the policies do to an object. why explains the outcome. An error is about the
// arguments of Fix, or the end of ctx: then nothing more can be written.
func (f *Fixer) Fix(ctx context.Context, of Reference) (outcome Outcome, why string, err error) {
	client := f.Cluster.of(of.Resource, of.Namespace)
	asked := ""
	for range attempts {
		u, err := client.Get(ctx, of.Name, metav1.GetOptions{})
		if outcome, why, err := failed(ctx, err); outcome != "" || err != nil {
			return outcome, why, err
		}
		if u.GetDeletionTimestamp() != nil {
			return Gone, "it is being deleted", nil
		}
		subject, want, d, err := f.evaluate(ctx, &of, u)
		switch {
		case ctx.Err() != nil:
			return "", "", ctx.Err()
		case err != nil:
			return Failed, err.Error(), nil
		case d.Status != nil:
			return Refused, d.Status.Message, nil
		case !d.Changed, tree.Equal(u.Object, want.Object):
			return Done, "", nil
		}
		r := newResult(u)
		f.Set.tell(r, d, subject, subject)
		r.Replaces = replacement(u.Object, want.Object)
		// If the failure of one policy is ignored, the result of the others is not what all of
		// them together would do.
		for _, a := range r.By {
			if a.Error != "" {
				return Failed, a.Policy + ": " + a.Error, nil
			}
		}
		if f.Leave != nil {
			if why := f.Leave(r, u, want); why != "" {
				return Declined, why, nil
			}
		}
		if f.Twice {
			_, again, d, err := f.evaluate(ctx, &of, want)
			if err == nil && d.Status == nil && !tree.Equal(again.Object, want.Object) {
				return Declined, unstable, nil
			}
		}
		if why := f.leftOut(u.Object, want.Object); why != "" {
			return LeftOut, why, nil
		}
		shown, _ := json.Marshal(r.Changes) // of JSON values
		if f.Confirm != nil && asked != string(shown) {
			yes, err := f.Confirm(r)
			if err != nil {
				return "", "", err
			}
			if !yes {
				return Declined, "", nil
			}
			asked = string(shown)
		}
		outcome, why, again, err := f.write(ctx, client, of.Resource, u, want)
		if !again {
			return outcome, why, err
		}
	}
	return Conflict, fmt.Sprintf("the object has changed %d times while it was evaluated", attempts), nil
}

// unstable says why Twice leaves an object alone.
const unstable = "the policies change their own result again"

// evaluate runs the policies on an object, or on the Pod of its template. subject is the object
// that they ran on, and want is their result.
func (f *Fixer) evaluate(ctx context.Context, of *Reference, u *unstructured.Unstructured) (subject, want *unstructured.Unstructured, d *engine.Decision, err error) {
	asking, resource, subject := f.Asking, &of.Resource, u
	if of.Template {
		if subject, err = podOf(u); err != nil {
			return nil, nil, nil, err
		}
		asking.Operation, resource = admissionv1.Create, &podResource
	}
	if d, err = f.Set.admit(ctx, &asking, asking.request(resource, subject)); err != nil || d.Status != nil {
		return subject, nil, d, err
	}
	if of.Template {
		return subject, withTemplate(u, d.Object), d, nil
	}
	return subject, d.Object, d, nil
}

// ControllerOf returns the controller of an object, nil if it has none. found is false if the
// object is gone or cannot be read.
func (c *Cluster) ControllerOf(ctx context.Context, of Reference) (controller *metav1.OwnerReference, found bool, err error) {
	u, err := c.of(of.Resource, of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	outcome, _, err := failed(ctx, err)
	if outcome != "" || err != nil {
		return nil, false, err
	}
	return metav1.GetControllerOf(u), true, nil
}

// failed returns the outcome for an error of the API server; "" if err is nil.
func failed(ctx context.Context, err error) (Outcome, string, error) {
	var status *apierrors.StatusError
	switch {
	case err == nil:
		return "", "", nil
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case apierrors.IsNotFound(err):
		return Gone, "", nil
	case owned(err):
		return Conflict, report.Line(err.Error()), nil
	case errors.As(err, &status):
		return Failed, err.Error(), nil
	}
	return "", "", err // the API server cannot be reached
}

// owned reports whether an error is a conflict with the fields of other managers.
func owned(err error) bool {
	var status *apierrors.StatusError
	return apierrors.IsConflict(err) && errors.As(err, &status) && status.ErrStatus.Details != nil &&
		slices.ContainsFunc(status.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeFieldManagerConflict })
}

// refusedWrite reports whether an error proves that nothing was written.
func refusedWrite(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}

// write writes one version of an object, after a dry run. again: the object has changed since it
// was read.
func (f *Fixer) write(ctx context.Context, client dynamic.ResourceInterface, of Resource, was, want *unstructured.Unstructured) (outcome Outcome, why string, again bool, err error) {
	writes, err := f.writes(was, want)
	if err != nil {
		return Failed, err.Error(), false, nil
	}
	var stored *unstructured.Unstructured
	for _, w := range writes {
		if stored, err = w.send(ctx, client, true); err != nil {
			break
		}
	}
	kept := ""
	if err == nil {
		var none bool
		if kept, none = unchanged(was, want, stored); none {
			return Unwritten, kept, false, nil
		}
		// The policies in force may change more than the evaluated ones.
		if why := f.leftOut(was.Object, stored.Object); why != "" {
			return LeftOut, why, false, nil
		}
	}
	if err == nil && f.DryRun {
		if kept != "" {
			return CheckedPartly, kept, false, nil
		}
		return Checked, replaces(was, stored), false, nil
	}
	if err == nil {
		if err := f.Before(newUndo(of, was, stored)); err != nil {
			return "", "", false, err
		}
		var now *unstructured.Unstructured
		now, err = writes[len(writes)-1].send(ctx, client, false)
		none := false
		if err == nil {
			if kept, none = unchanged(was, want, now); !none && !tree.Equal(stable(now), stable(stored)) {
				if err := f.Before(newUndo(of, was, now)); err != nil {
					return "", "", false, err
				}
			}
			stored = now
		}
		if (none || refusedWrite(err)) && f.Refused != nil {
			if err := f.Refused(); err != nil {
				return "", "", false, err
			}
		}
		if none {
			return Unwritten, kept, false, nil
		}
	}
	if apierrors.IsConflict(err) && !owned(err) {
		return "", "", true, nil
	}
	if outcome, why, err := failed(ctx, err); outcome != "" || err != nil {
		return outcome, why, false, err
	}
	outcome = Written
	if kept != "" {
		outcome = Partly
	}
	pods, err := f.await(ctx, client, was, stored)
	return outcome, also(kept, pods), false, err
}

// unchanged compares the API server's answer to a write with the request. why names the requested
// fields that stayed as they were; none: all of them did. Fields are compared by name, without
// list indices, because the server may have changed a list as well.
func unchanged(was, want, now *unstructured.Unstructured) (why string, none bool) {
	changed := names(tree.Changed(stable(was), stable(now)))
	var fixed, kept []string
	asked := tree.Changed(was.Object, want.Object)
	for _, pointer := range asked {
		name := fieldName(pointer)
		switch {
		case slices.ContainsFunc(changed, func(c string) bool { return overlap(c, name) }):
		case slices.ContainsFunc(identity, func(i string) bool { return overlap(i, name) }):
			fixed = append(fixed, name)
		default:
			kept = append(kept, name)
		}
	}
	none = len(fixed)+len(kept) == len(asked)
	var parts []string
	if len(fixed) > 0 {
		parts = append(parts, list(fixed)+" cannot be changed")
	}
	if len(kept) > 0 {
		parts = append(parts, "the API server leaves "+list(kept)+" unchanged")
	}
	return strings.Join(parts, "; "), none
}

// identity are the fields that every object has and that no write changes.
var identity = []string{
	"apiVersion", "kind", "metadata.name", "metadata.generateName", "metadata.namespace", "metadata.uid", "metadata.selfLink", "metadata.generation",
	"metadata.resourceVersion", "metadata.managedFields", "metadata.creationTimestamp", "metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds",
}

// overlap reports whether one of two fields is the other one or is inside it.
func overlap(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return strings.HasPrefix(b, a) && (len(a) == len(b) || b[len(a)] == '.' || b[len(a)] == '[')
}

// list returns names for a sentence, ten at most.
func list(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if more := len(names) - maxNames; more > 0 {
		names = append(names[:maxNames:maxNames], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// maxNames is how many fields a message names.
const maxNames = 10

// patch is one write.
type patch struct {
	kind types.PatchType
	name string
	body []byte
}

// writes returns writes that turn was into want. Only the last one is made; those before it are
// sent as dry runs only.
func (f *Fixer) writes(was, want *unstructured.Unstructured) ([]patch, error) {
	before, after := stable(was), stable(want)
	mine, other := ownFields(was)
	config, exact := f.Set.kindOf(was).Difference(before, after, mine)
	exact = exact && !other
	var out []patch
	if config != nil {
		apply := &unstructured.Unstructured{Object: config}
		apply.SetGroupVersionKind(was.GroupVersionKind())
		apply.SetName(was.GetName())
		apply.SetNamespace(was.GetNamespace())
		apply.SetUID(was.GetUID()) // without the UID, an apply would create the object if it is gone
		apply.SetResourceVersion(was.GetResourceVersion())
		text, err := json.Marshal(apply.Object)
		if err != nil {
			return nil, err
		}
		if !other {
			out = append(out, patch{types.ApplyPatchType, was.GetName(), text})
		}
	}
	if exact {
		return out, nil
	}
	replace, err := jsonPatch(was, tree.Diff(before, after))
	if err != nil {
		return nil, err
	}
	return append(out, replace), nil
}

// jsonPatch returns a patch that is refused if the object has another version.
func jsonPatch(of *unstructured.Unstructured, ops []tree.Op) (patch, error) {
	text, err := tree.EncodePatch(append(ops,
		tree.Op{Op: "replace", Path: "/metadata/uid", Value: string(of.GetUID())},
		tree.Op{Op: "replace", Path: "/metadata/resourceVersion", Value: of.GetResourceVersion()}))
	return patch{types.JSONPatchType, of.GetName(), text}, err
}

func (p *patch) send(ctx context.Context, client dynamic.ResourceInterface, dryRun bool) (*unstructured.Unstructured, error) {
	o := metav1.PatchOptions{FieldManager: Manager}
	if dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	if p.kind == types.ApplyPatchType {
		o.Force = new(false)
	}
	return client.Patch(ctx, p.name, p.kind, p.body, o)
}

// ownFields returns the fields that Manager has applied before, in the form of managedFields.
// other: they are of another version of the kind, which may name fields differently.
func ownFields(u *unstructured.Unstructured) (fields []byte, other bool) {
	for _, m := range u.GetManagedFields() {
		if m.Manager != Manager || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" {
			continue
		}
		if m.APIVersion != u.GetAPIVersion() {
			return nil, true
		}
		if m.FieldsV1 != nil {
			fields = m.FieldsV1.GetRawBytes()
		}
	}
	return fields, false
}

// templateGeneration is an annotation of DaemonSets in which an API server counts the changes of
// the template. It ignores values that clients write.
const templateGeneration = "deprecated.daemonset.template.generation"

// stable returns an object without the fields that the API server sets at each write.
func stable(u *unstructured.Unstructured) map[string]any {
	out := maps.Clone(u.Object)
	if meta, ok := u.Object["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		for _, name := range []string{"managedFields", "resourceVersion", "generation"} {
			delete(meta, name)
		}
		if annotations, ok := meta["annotations"].(map[string]any); ok && u.GetKind() == "DaemonSet" {
			annotations = maps.Clone(annotations)
			delete(annotations, templateGeneration)
			meta["annotations"] = annotations
		}
		out["metadata"] = meta
	}
	return out
}

// Selection says which results are written. An empty field is any.
type Selection struct {
	Policies              []string
	Kind, Namespace, Name string
}

// ParseSelection reads what --select takes: all, or terms such as policy=team,kind=Pod,
// namespace=shop,name=web.
func ParseSelection(text string) (s Selection, err error) {
	if text == "all" {
		return s, nil
	}
	for term := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(term, "=")
		if !ok || value == "" {
			return s, fmt.Errorf("want all, or terms such as policy=NAME,kind=KIND,namespace=NAME,name=NAME, not %q", term)
		}
		switch key {
		case "policy":
			s.Policies = append(s.Policies, value)
		case "kind":
			s.Kind = value
		case "namespace":
			s.Namespace = value
		case "name":
			s.Name = value
		default:
			return s, fmt.Errorf("%q: results are selected by policy, kind, namespace and name", key)
		}
	}
	return s, nil
}

// Has reports whether a result is selected.
func (s *Selection) Has(r *Result) bool {
	return (s.Kind == "" || strings.EqualFold(s.Kind, r.Kind)) && (s.Namespace == "" || s.Namespace == r.Namespace) && (s.Name == "" || s.Name == r.Name)
}
