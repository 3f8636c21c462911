package exceptions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Admit implements webhook.Admitter: it refuses an exception that is not valid, or whose writer
// may not except one of its policies, and remembers the writer of others. It changes nothing.
func (f *Feature) Admit(ctx context.Context, req *policy.Request) *engine.Decision {
	d := &engine.Decision{Object: req.Object}
	if err := f.check(ctx, req); err != nil {
		var status *apierrors.StatusError
		if !errors.As(err, &status) {
			status = apierrors.NewForbidden(schema.GroupResource{Group: api.ExceptionGroup, Resource: api.ExceptionResource}, req.Name, err)
		}
		d.Status = &status.ErrStatus
	}
	return d
}

func (f *Feature) check(ctx context.Context, req *policy.Request) error {
	if !api.IsException(req.Kind) || req.Object == nil || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return nil
	}
	if req.SubResource != "" {
		return f.checkStatus(req)
	}
	u := req.Object.DeepCopy()
	u.SetNamespace(req.Namespace)
	o, err := f.decode(u)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if faults := (api.Faults)(nil); errors.As(o.invalid, &faults) {
		return apierrors.NewInvalid(req.Kind.GroupKind(), o.Name, faults.Form())
	} else if o.invalid != nil {
		return apierrors.NewBadRequest(o.invalid.Error())
	}
	if slices.Contains(req.UserInfo.Groups, user.SystemPrivilegedGroup) {
		f.note(req, o)
		return nil
	}
	for _, name := range o.Spec.Policies {
		if err := f.mayExcept(ctx, req, name); err != nil {
			return err
		}
	}
	f.note(req, o)
	return nil
}

// mayExcept returns an error unless the writer may except a policy in the exception's namespace.
// A ClusterRoleBinding grants that in all namespaces, a RoleBinding in its own.
func (f *Feature) mayExcept(ctx context.Context, req *policy.Request, name string) error {
	who := req.User()
	gvr, target := api.ExceptionTarget(name)
	decision, _, err := f.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: api.ExceptVerb, ResourceRequest: true, Name: target, Namespace: req.Namespace,
		APIGroup: gvr.Group, APIVersion: gvr.Version, Resource: gvr.Resource,
	})
	switch {
	case err != nil:
		f.log.Warn("a PolicyException is refused: whether the user may except the policy is not known", "policy", name, "namespace", req.Namespace, "error", err)
		return fmt.Errorf("whether user %q may %q policy %q is not known: the access check was not answered", who.GetName(), api.ExceptVerb, name)
	case decision != authorizer.DecisionAllow:
		return fmt.Errorf("user %q must have the verb %q on %s %q of %s in namespace %q", who.GetName(), api.ExceptVerb, gvr.Resource, target, gvr.Group, req.Namespace)
	}
	return nil
}

// checkStatus refuses writes to status.allowed by anybody but mapd.
func (f *Feature) checkStatus(req *policy.Request) error {
	if req.UserInfo.Username == f.options.Own && f.options.Own != "" {
		return nil
	}
	of := func(u *unstructured.Unstructured) any {
		if u == nil {
			return nil
		}
		status, _ := u.Object["status"].(map[string]any)
		return status["allowed"]
	}
	if now := of(req.Object); now == nil || tree.Equal(now, of(req.OldObject)) {
		return nil
	}
	return errors.New("only mapd writes status.allowed")
}

// allowed has the exceptions that this replica was asked about and allowed, until their status
// says so. If a namespace has too many, its own oldest ones are dropped and not those of others:
// whoever may write exceptions in one namespace must not be able to make those of other
// namespaces ineffective.
type allowed struct {
	mu    sync.Mutex
	users map[string]map[allowedKey]allowedUser // by namespace
	count int
}

// allowedKey identifies a spec of an exception.
type allowedKey struct{ namespace, name, digest string }

type allowedUser struct {
	name string
	at   time.Time
}

const (
	// allowedFor is how long after it was allowed an exception may take to be stored and read.
	allowedFor = 10 * time.Minute
	// maxAllowedOf bounds the remembered exceptions of a namespace, and maxAllowed those of all.
	maxAllowedOf = binding.MaxExceptionsOfNamespace
	maxAllowed   = binding.MaxExceptions
	// maxUser bounds the name of a user in status.allowed, in bytes.
	maxUser = 256
)

// note remembers that the writer of an exception was allowed to write it.
func (f *Feature) note(req *policy.Request, o *object) {
	if req.DryRun {
		return
	}
	a := &f.allowed
	a.mu.Lock()
	defer a.mu.Unlock()
	name := words.Cut(req.UserInfo.Username, maxUser)
	a.add(allowedKey{req.Namespace, o.Name, o.Spec.Digest()}, allowedUser{name, f.now()})
}

// add remembers one exception. The caller holds a.mu.
func (a *allowed) add(k allowedKey, u allowedUser) {
	of := a.users[k.namespace]
	if _, known := of[k]; !known {
		if a.count >= maxAllowed {
			a.dropBefore(u.at.Add(-allowedFor))
		}
		if len(of) >= maxAllowedOf {
			a.dropOldest(k.namespace)
		} else if a.count >= maxAllowed {
			a.dropOldest(a.largest())
		}
		a.count++
	}
	if a.users[k.namespace] == nil {
		if a.users == nil {
			a.users = map[string]map[allowedKey]allowedUser{}
		}
		a.users[k.namespace] = map[allowedKey]allowedUser{}
	}
	a.users[k.namespace][k] = u
}

// largest returns the namespace with the most remembered exceptions; the first by name if there
// are several.
func (a *allowed) largest() (found string) {
	for namespace, of := range a.users {
		if n := len(of) - len(a.users[found]); n > 0 || n == 0 && namespace < found {
			found = namespace
		}
	}
	return found
}

// dropBefore drops all exceptions that were allowed before a time.
func (a *allowed) dropBefore(at time.Time) {
	for _, of := range a.users {
		for k, u := range of {
			if u.at.Before(at) {
				a.drop(k)
			}
		}
	}
}

// dropOldest drops the oldest exception of a namespace.
func (a *allowed) dropOldest(namespace string) {
	var oldest allowedKey
	var at time.Time
	for k, u := range a.users[namespace] {
		if at.IsZero() || u.at.Before(at) {
			oldest, at = k, u.at
		}
	}
	a.drop(oldest)
}

func (a *allowed) drop(k allowedKey) {
	of := a.users[k.namespace]
	if _, ok := of[k]; !ok {
		return
	}
	if delete(of, k); len(of) == 0 {
		delete(a.users, k.namespace)
	}
	a.count--
}

// get returns the user who was allowed to write an exception as it is stored, if this replica
// knows.
func (a *allowed) get(o *object, now time.Time) (allowedKey, string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := allowedKey{o.Namespace, o.Name, o.Spec.Digest()}
	u, ok := a.users[k.namespace][k]
	return k, u.name, ok && now.Sub(u.at) <= allowedFor
}

func (a *allowed) forget(k allowedKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(k)
}

const (
	// allowedManager is the field manager of status.allowed, and statusManager that of the rest
	// of the status, on all replicas.
	allowedManager = "mapd-exceptions-allowed"
	statusManager  = "mapd-exceptions"
	// callLimit bounds one request, and retry is the wait before a failed request is repeated.
	callLimit = 10 * time.Second
	retry     = 5 * time.Second
)

// writeAllowed writes status.allowed of exceptions until ctx is done. It needs no lease: only the
// replica that was asked knows who was allowed.
func (f *Feature) writeAllowed(ctx context.Context) {
	changed := f.changed.Add()
	for {
		pause := time.Hour // a change comes earlier
		if states := f.states.Load(); states != nil {
			for i := range *states {
				s := &(*states)[i]
				if s.refused == nil || s.object == nil {
					continue
				}
				k, who, ok := f.allowed.get(s.object, f.now())
				if !ok {
					continue
				}
				err := f.applyStatus(ctx, s.object, allowedManager, map[string]any{"allowed": map[string]any{"digest": k.digest, "user": who}})
				switch {
				case err == nil:
					f.allowed.forget(k)
				case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // the exception is gone or has changed
				default:
					f.log.Warn("a PolicyException has no effect yet: that it is allowed cannot be written to its status", "exception", k.namespace+"/"+k.name, "error", err)
					pause = retry
				}
			}
		}
		if !watch.Sleep(ctx, pause, changed, nil) {
			return
		}
	}
}

// applyStatus applies fields of the status of an exception.
func (f *Feature) applyStatus(ctx context.Context, o *object, manager string, status map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	u.SetAPIVersion(api.ExceptionGroup + "/" + api.ExceptionVersion)
	u.SetKind(api.ExceptionKind)
	u.SetNamespace(o.Namespace)
	u.SetName(o.Name)
	u.SetUID(o.UID)
	_, err := f.client.Resource(api.Exceptions).Namespace(o.Namespace).ApplyStatus(ctx, o.Name, u, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}
