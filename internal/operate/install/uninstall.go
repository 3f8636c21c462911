package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/api"
)

// UninstallOptions say what to remove. Dynamic, Objects and Report are required.
type UninstallOptions struct {
	Dynamic  dynamic.Interface
	Objects  []*unstructured.Unstructured
	Purge    bool // policies and bindings too, those of mapd's own group and those written for mutators
	DryRun   bool // only report what would be removed
	Report   func(Result)
	Progress func(string) // called with what is waited for, whenever that changes
}

// Uninstall removes mapd, even an incomplete installation. found is false if nothing is
// installed.
//
// The order matters. First mapd loses the permission to write webhook configurations, so that it
// cannot restore the configurations, which are removed next. From then on no request waits for
// mapd, and the rest is removed, the namespace last. Deletions pass no webhook of mapd's, so all
// this works even while a policy with failurePolicy Fail matches everything and mapd does not
// answer. If one of the first two steps fails, nothing else is removed: configurations without a
// running mapd would be worse than the present state.
//
// Unless Purge is set, the CustomResourceDefinitions are kept while there are policies or
// bindings, which would be deleted with them.
func Uninstall(ctx context.Context, o UninstallOptions) (found bool, err error) {
	more, err := additions()
	if err != nil {
		return false, err
	}
	o.Objects = slices.Concat(o.Objects, more)
	u := &uninstall{UninstallOptions: o}
	err = u.run(ctx)
	return u.found, err
}

type uninstall struct {
	UninstallOptions
	found bool
}

func (u *uninstall) run(ctx context.Context) error {
	if i, ok := owner(ctx, u.Dynamic); ok {
		return u.removeNamespaced(ctx, i)
	}
	writers, rest := u.writers()
	for _, w := range writers {
		if err := u.remove(ctx, refOf(w)); err != nil {
			return fmt.Errorf("%w; nothing else was removed", err)
		}
	}
	if !u.DryRun && u.found {
		if err := u.waitUntilUnauthorized(ctx, writers); err != nil {
			return err
		}
	}
	for _, c := range configurations {
		if err := u.remove(ctx, c); err != nil {
			return fmt.Errorf("%w; mapd itself was left running", err)
		}
	}

	var errs []error
	for _, obj := range rest {
		if err := u.remove(ctx, refOf(obj)); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
	errs = append(errs, u.removeNativePolicies(ctx), u.removeDefinitions(ctx))
	if ns := find(u.Objects, "Namespace"); ns != nil {
		if err := u.remove(ctx, refOf(ns)); err != nil {
			errs = append(errs, err)
		}
	}
	if !u.DryRun {
		if u.found {
			errs = append(errs, u.ensureConfigurationsGone(ctx))
		}
		errs = append(errs, u.retire(ctx))
	}
	return errors.Join(errs...)
}

// removeNamespaced removes mapd's namespace and the objects in it. Objects without a namespace
// are kept, because the other installation uses the same ones.
func (u *uninstall) removeNamespaced(ctx context.Context, other webhookconfig.Installation) error {
	_, rest := u.writers()
	var errs []error
	for _, obj := range append(rest, find(u.Objects, "Namespace")) {
		if obj.GetNamespace() != "" || obj.GetKind() == "Namespace" {
			errs = append(errs, u.remove(ctx, refOf(obj)))
		}
	}
	u.Report(Result{"what has no namespace", "kept: it belongs to the installation " + other.String()})
	return errors.Join(errs...)
}

// writers are the bindings by which mapd may write webhook configurations; rest is
// everything else that is removed one by one, the Deployment first and then in
// reverse order of the manifest.
func (u *uninstall) writers() (writers, rest []*unstructured.Unstructured) {
	roles := map[string]bool{}
	for _, obj := range u.Objects {
		if obj.GetKind() == "ClusterRole" && writesConfigurations(obj) {
			roles[obj.GetName()] = true
		}
	}
	for _, obj := range slices.Backward(u.Objects) {
		role, _, _ := unstructured.NestedString(obj.Object, "roleRef", "name")
		switch obj.GetKind() {
		case "ClusterRoleBinding":
			if roles[role] {
				writers = append(writers, obj)
				continue
			}
		case "Namespace", "CustomResourceDefinition":
			continue
		}
		if !slices.Contains(configurations, refOf(obj)) {
			rest = append(rest, obj)
		}
	}
	slices.SortStableFunc(rest, func(a, b *unstructured.Unstructured) int {
		first := func(o *unstructured.Unstructured) int {
			if o.GetKind() == "Deployment" {
				return 0
			}
			return 1
		}
		return first(a) - first(b)
	})
	return writers, rest
}

func writesConfigurations(role *unstructured.Unstructured) bool {
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	return slices.ContainsFunc(rules, func(r any) bool {
		rule, _ := r.(map[string]any)
		verbs, _, _ := unstructured.NestedStringSlice(rule, "verbs")
		resources, _, _ := unstructured.NestedStringSlice(rule, "resources")
		return slices.ContainsFunc(resources, func(s string) bool { return s == "*" || s == mutating.Resource || s == validating.Resource }) &&
			slices.ContainsFunc(verbs, func(s string) bool { return slices.Contains([]string{"*", "create", "update", "patch"}, s) })
	})
}

// remove deletes one object and reports that. It reports nothing if the object does not exist.
func (u *uninstall) remove(ctx context.Context, r ref) error {
	client := r.client(u.Dynamic)
	obj, err := client.Get(ctx, r.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", r, err)
	case obj.GetDeletionTimestamp() != nil:
		u.report(r, "is being deleted already")
		return u.removeFinalizers(ctx, r, obj)
	case u.DryRun:
		u.report(r, "would be deleted")
		return nil
	}
	background := metav1.DeletePropagationBackground
	err = client.Delete(ctx, r.name, metav1.DeleteOptions{PropagationPolicy: &background})
	switch {
	case apierrors.IsNotFound(err): // somebody else was faster
	case err != nil:
		return fmt.Errorf("%s: %w", r, err)
	}
	u.report(r, "deleted")
	return u.removeFinalizers(ctx, r, obj)
}

// removeFinalizers removes the finalizers of a webhook configuration that is being deleted,
// because the configuration refuses writes until it is gone. None of the finalizers is mapd's.
func (u *uninstall) removeFinalizers(ctx context.Context, r ref, obj *unstructured.Unstructured) error {
	if len(obj.GetFinalizers()) == 0 || !slices.Contains(configurations, r) {
		return nil
	}
	_, err := r.client(u.Dynamic).Patch(ctx, r.name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: finalizers: %w", r, err)
	}
	u.report(r, "had finalizers, which were removed")
	return nil
}

func (u *uninstall) report(r ref, outcome string) {
	u.found = true
	u.Report(Result{r.String(), outcome})
}

// removeNativePolicies removes the policies that `mapd serve --legacy native` has put into the
// place of mutators, if all is to go. Without mapd they go on doing what they did.
func (u *uninstall) removeNativePolicies(ctx context.Context) error {
	var errs []error
	for _, gvr := range []schema.GroupVersionResource{api.NativeBindings, api.NativePolicies} {
		list, err := u.Dynamic.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: nativepolicies.LiveLabel})
		switch {
		case apierrors.IsNotFound(err): // the kind is not served
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("the %s that mapd has written: %w", gvr.Resource, err))
			continue
		}
		for _, o := range list.Items {
			r := ref{gvr, "", o.GetName()}
			if u.Purge {
				errs = append(errs, u.remove(ctx, r))
				continue
			}
			if slices.ContainsFunc(o.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == "Namespace" && o.Name == Namespace }) {
				u.Report(Result{r.String(), "goes with the namespace"})
				continue
			}
			u.Report(Result{r.String(), "kept as it is, and it goes on acting; --purge deletes it"})
		}
	}
	return errors.Join(errs...)
}

// kept are the objects of a kind that stay when mapd goes.
type kept struct {
	gvr       schema.GroupVersionResource
	one, many string
	condition string // by which mapd says that they have an effect
	items     []unstructured.Unstructured
}

// objectsKept lists what is to stay, and says how many objects there are: 2 policies and 1
// binding; empty if nothing is of value.
func (u *uninstall) objectsKept(ctx context.Context) (all []kept, counts string, err error) {
	if u.Purge {
		return nil, "", nil
	}
	all = []kept{
		{gvr: api.OwnPolicies, one: "policy", many: "policies", condition: "Ready"},
		{gvr: api.OwnBindings, one: "binding", many: "bindings", condition: "Ready"},
		{gvr: api.Exceptions, one: "exception", many: "exceptions", condition: api.ExceptionActive},
	}
	n := make([]int, len(all))
	for i := range all {
		list, err := u.Dynamic.Resource(all[i].gvr).List(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsNotFound(err): // the kind is not served
			continue
		case err != nil:
			return nil, "", fmt.Errorf("which %s there are: %w", all[i].gvr.Resource, err)
		}
		all[i].items = list.Items
		n[i] = len(list.Items)
	}
	return all, countsOf(all, n), nil
}

// countsOf says how many objects of each kind there are.
func countsOf(kinds []kept, n []int) string {
	var counts []string
	for i, k := range kinds {
		if n[i] > 0 {
			counts = append(counts, words.Count(n[i], k.one, k.many))
		}
	}
	if last := len(counts) - 1; last > 0 {
		return strings.Join(counts[:last], ", ") + " and " + counts[last]
	}
	return strings.Join(counts, "")
}

// retire sets the condition Ready of the policies and bindings that are kept, and Active of the
// exceptions, to False: they have no effect without mapd, and nobody else would update their
// status.
func (u *uninstall) retire(ctx context.Context) error {
	all, _, err := u.objectsKept(ctx)
	if err != nil {
		return err
	}
	var errs []error
	retired := make([]int, len(all))
	for k := range all {
		for i := range all[k].items {
			obj := &all[k].items[i]
			done, err := u.retireOne(ctx, all[k].gvr, obj, all[k].condition)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s may go on saying that it is %s: %w", ref{all[k].gvr, obj.GetNamespace(), obj.GetName()}, all[k].condition, err))
			} else if done {
				retired[k]++
			}
			if ctx.Err() != nil {
				return errors.Join(errs...)
			}
		}
	}
	if counts := countsOf(all, retired); counts != "" {
		u.Report(Result{counts, "not in use any more, as their status says: nothing runs them"})
	}
	return errors.Join(errs...)
}

// reasonUninstalled is why an object that was kept has no effect.
const reasonUninstalled = "Uninstalled"

func (u *uninstall) retireOne(ctx context.Context, gvr schema.GroupVersionResource, obj *unstructured.Unstructured, name string) (done bool, err error) {
	if condition(obj, name).Reason == reasonUninstalled {
		return false, nil
	}
	all, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	all = slices.DeleteFunc(all, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == name
	})
	all = append([]any{map[string]any{
		"type": name, "status": string(metav1.ConditionFalse), "reason": reasonUninstalled,
		"message":            "mapd was uninstalled, so this has no effect",
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}, all...)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion()},
		"status":   map[string]any{"conditions": all},
	})
	if err != nil {
		return false, err
	}
	_, err = ref{gvr, obj.GetNamespace(), obj.GetName()}.client(u.Dynamic).Patch(ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager}, "status")
	if apierrors.IsNotFound(err) { // somebody has deleted it meanwhile
		return false, nil
	}
	return err == nil, err
}

// removeDefinitions removes the CustomResourceDefinitions if nothing of value goes with them.
func (u *uninstall) removeDefinitions(ctx context.Context) error {
	_, left, err := u.objectsKept(ctx)
	if err != nil {
		return fmt.Errorf("%w; the CustomResourceDefinitions are kept", err)
	}
	var errs []error
	for _, obj := range u.Objects {
		if obj.GetKind() != "CustomResourceDefinition" {
			continue
		}
		r := refOf(obj)
		if left == "" {
			errs = append(errs, u.remove(ctx, r))
			continue
		}
		_, err := r.client(u.Dynamic).Get(ctx, r.name, metav1.GetOptions{})
		if err == nil {
			u.Report(Result{r.String(), "kept, and with it " + left + "; --purge deletes all"})
		}
	}
	return errors.Join(errs...)
}

// waitUntilUnauthorized waits until the API server knows that mapd may no longer write webhook
// configurations. It learns of deleted bindings with a delay, during which mapd could restore a
// configuration. If the user may not ask that, it does not wait; ensureConfigurationsGone checks
// again.
func (u *uninstall) waitUntilUnauthorized(ctx context.Context, writers []*unstructured.Unstructured) error {
	limit, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, w := range writers {
		for _, user := range serviceAccounts(w) {
			err := poll(limit, u.Progress, func() (string, error) {
				may, err := u.mayWrite(limit, user)
				if err != nil || !may {
					return "", nil
				}
				return user + " may still write webhook configurations", nil
			})
			if ctx.Err() != nil {
				return err
			}
			// Something else that gives it the right is not ours to remove.
		}
	}
	return nil
}

func serviceAccounts(binding *unstructured.Unstructured) []string {
	var users []string
	subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
	for _, s := range subjects {
		s, _ := s.(map[string]any)
		if s["kind"] == "ServiceAccount" {
			users = append(users, fmt.Sprintf("system:serviceaccount:%v:%v", s["namespace"], s["name"]))
		}
	}
	return users
}

func (u *uninstall) mayWrite(ctx context.Context, user string) (bool, error) {
	for _, c := range configurations {
		review, err := u.Dynamic.Resource(accessReviews).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": accessReviews.GroupVersion().String(),
			"kind":       "SubjectAccessReview",
			"spec": map[string]any{
				"user":               user,
				"resourceAttributes": map[string]any{"group": c.gvr.Group, "resource": c.gvr.Resource, "verb": "patch", "name": c.name},
			},
		}}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		if allowed, _, _ := unstructured.NestedBool(review.Object, "status", "allowed"); allowed {
			return true, nil
		}
	}
	return false, nil
}

// quiet is how long both configurations have to stay away. mapd writes them within
// a second of a change.
const quiet = time.Second

// ensureConfigurationsGone returns when both configurations are gone and stay away,
// and deletes them again if they come back.
func (u *uninstall) ensureConfigurationsGone(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	since := time.Now()
	err := poll(limit, u.Progress, func() (string, error) {
		for _, c := range configurations {
			_, err := c.client(u.Dynamic).Get(limit, c.name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				continue
			case err != nil:
				return "", fmt.Errorf("%s: %w", c, err)
			}
			since = time.Now()
			if err := u.remove(limit, c); err != nil {
				return "", err
			}
		}
		if time.Since(since) >= quiet {
			return "", nil
		}
		return "for the webhook configurations to stay away", nil
	})
	var we *waitError
	if errors.As(err, &we) && ctx.Err() == nil {
		return errors.New("the webhook configurations keep coming back: somebody else than the Deployment that was removed writes them")
	}
	return err
}
