// Package exceptions applies the PolicyExceptions of a cluster: it reads them, checks who writes
// them, reports in their status whether they are in force, and makes an event when one is about
// to end. Whether an exception applies to a request is decided in pkg/binding. It is a feature of
// `mapd serve` (internal/cluster/feature).
//
// An exception is in force only if its status has the digest of its spec. The replica that was
// asked whether the writer may except the policies writes that digest. So an exception that was
// stored while no replica could be asked is not in force. Start reading at Feature.Update.
package exceptions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Metrics counts exceptions. *metrics.Metrics is one.
type Metrics interface {
	// ExceptionsPublished reports the number of exceptions by the reason of their condition
	// Active, and how many of those in force end within soon.
	ExceptionsPublished(reasons map[string]int, ending int)
}

// Options configure a Feature.
type Options struct {
	Rules   api.ExceptionRules
	Metrics Metrics // may be nil
	// Others are features with policies that exceptions can name, too.
	Others []feature.Named
	// Own is the user name by which the API server knows mapd.
	Own string
}

// Feature applies exceptions while the server has their kind.
type Feature struct {
	feature.Base
	options    Options
	log        *slog.Logger
	client     dynamic.Interface
	authorizer authorizer.Authorizer
	own        feature.Own
	refresh    func() // makes the Store update all features again
	now        func() time.Time
	mirror     *watch.Mirror[*stored]
	decoder    feature.Decoder[object]
	allowed    allowed

	exceptions atomic.Pointer[binding.Exceptions]
	states     atomic.Pointer[[]state] // nil before all exceptions have been read
	changed    watch.Listeners         // of changes of states

	list  []*stored // as of the last Update
	state *State
	names string // the names of policies as of the last Update
}

// object is an exception as it is stored.
type object struct {
	*api.PolicyException                    // without a spec if it cannot be decoded
	program              *binding.Exception // nil if it is not valid
	invalid              error
}

type stored = feature.Decoded[object]

// New returns a Feature that has not started.
func New(o Options) *Feature {
	f := &Feature{options: o, now: time.Now}
	f.decoder = feature.Decoder[object]{
		Decode: f.decode,
		Says:   func(u *unstructured.Unstructured) string { return u.GetResourceVersion() }, // of the status
	}
	return f
}

// decode returns an object even for an exception that is not valid, because its status has to say
// so.
func (f *Feature) decode(u *unstructured.Unstructured) (*object, error) {
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	text, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	obj, err := api.DecodeException(text, u.GetNamespace())
	if err != nil {
		status, _ := u.Object["status"].(map[string]any)
		head := metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), Generation: u.GetGeneration()}
		return &object{PolicyException: &api.PolicyException{ObjectMeta: head, Status: status}, invalid: err}, nil
	}
	o := &object{PolicyException: obj}
	o.program, o.invalid = binding.CompileException(obj, f.options.Rules)
	return o, nil
}

// Name implements feature.Feature.
func (f *Feature) Name() string { return "exceptions from policies" }

// Start implements feature.Feature.
func (f *Feature) Start(d feature.Deps) {
	f.refresh = d.Changed
	f.log, f.client, f.authorizer, f.own = d.Log, d.Client, d.Authorizer, d.Own
	f.mirror = feature.Watch(d, f.decoder.Keep, feature.Versions(api.ExceptionGroup, api.ExceptionKind, api.ExceptionVersion))
}

// Run implements feature.Feature.
func (f *Feature) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { f.mirror.Run(ctx) })
	all.Go(func() { f.writeAllowed(ctx) })
	all.Wait()
}

// Look implements feature.Feature.
func (f *Feature) Look() { f.mirror.Look() }

// Exceptions implements feature.Excepter.
func (f *Feature) Exceptions() *binding.Exceptions { return f.exceptions.Load() }

// Update implements feature.Feature. New exceptions apply to requests at once: they are not part
// of a snapshot.
func (f *Feature) Update(context.Context, bool) bool {
	if f.mirror.Settled() != nil {
		return false
	}
	list := feature.Sorted(f.mirror)
	names, known := "", binding.Known{}
	if len(list) > 0 {
		var all strings.Builder
		add := func(group string, o *unstructured.Unstructured) {
			known.Add(schema.GroupVersionKind{Group: group, Kind: o.GetKind()}, o.GetNamespace(), o.GetName())
			all.WriteString(o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName() + " ")
		}
		f.own.Each(func(o *unstructured.Unstructured, _ []byte) { add(api.OwnGroup, o) })
		for _, other := range f.options.Others {
			other.Policies(func(o *unstructured.Unstructured) { add(o.GroupVersionKind().Group, o) })
		}
		names = all.String()
	}
	served := f.mirror.State().Served
	if f.state != nil && f.state.served == served && names == f.names && slices.Equal(list, f.list) {
		return false
	}
	states := make([]state, len(list))
	var holding []*binding.Exception
	for i, d := range list {
		s := state{stored: d, object: d.Value, err: d.Err}
		if d.Err == nil {
			s.err = s.object.invalid
		}
		if s.err == nil {
			s.by, s.refused = s.object.Allowed()
			s.missing, s.nothing = known.Unknown(s.object.program)
			if s.refused == nil {
				holding = append(holding, s.object.program)
			}
		}
		states[i] = s
	}
	slices.SortStableFunc(holding, binding.Older)
	exceptions, tooMany := binding.NewExceptions(holding, f.now)
	late := map[*binding.Exception]bool{}
	for _, x := range tooMany {
		late[x] = true
	}
	for i := range states {
		s := &states[i]
		s.late = s.object != nil && late[s.object.program]
	}
	f.list, f.names = list, names
	f.exceptions.Store(exceptions)
	f.states.Store(&states)
	f.changed.Notify()
	if len(f.options.Others) > 0 {
		f.refresh() // features that come before this one were already updated
	}
	if f.state != nil && f.state.served == served {
		return false
	}
	f.state = &State{served: served}
	return true
}

// Ready implements feature.Feature.
func (f *Feature) Ready() error {
	if f.states.Load() != nil {
		return nil
	}
	if err := f.mirror.Settled(); err != nil {
		return err
	}
	return errors.New("no exceptions are published yet")
}

// State implements feature.Feature.
func (f *Feature) State() feature.State {
	if f.state == nil {
		return nil
	}
	return f.state
}

// Admitters implements feature.Feature.
func (f *Feature) Admitters() map[string]webhook.Admitter {
	return map[string]webhook.Admitter{path: f}
}

// Owns implements feature.Feature.
func (f *Feature) Owns(entry string) bool { return entry == EntryName }

// EntryName is the name of the entry of the validating webhook by which exceptions are checked.
const EntryName = "exceptions.mapd.dev"

const path = "/validate/exceptions"

// State says whether the server has the kind of exceptions.
type State struct{ served bool }

// Listing implements feature.State. It is nil, because exceptions have a status.
func (*State) Listing() *feature.Listing { return nil }

// Entries implements feature.State.
func (s *State) Entries(validating bool, base admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
	if !validating || !s.served {
		return nil
	}
	return []admissionregistrationv1.MutatingWebhook{newEntry(base)}
}

// newEntry returns the webhook entry that asks mapd whether somebody may write an exception. This
// is a permission check, so its failurePolicy is Fail. It matches writes of a new spec, and of a
// status, which has the user who was allowed; so labels and finalizers can be changed while mapd
// is unavailable.
func newEntry(base admissionregistrationv1.MutatingWebhook) admissionregistrationv1.MutatingWebhook {
	w := webhookconfig.NewEntry(base, EntryName, path)
	w.Rules = []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{api.ExceptionGroup}, APIVersions: []string{api.ExceptionVersion},
			Resources: []string{api.ExceptionResource, api.ExceptionResource + "/status"}, Scope: new(admissionregistrationv1.NamespacedScope),
		},
	}}
	w.FailurePolicy = new(admissionregistrationv1.Fail)
	w.MatchPolicy = new(admissionregistrationv1.Equivalent)
	w.NamespaceSelector, w.ObjectSelector, w.ReinvocationPolicy = nil, nil, nil // also in exempt namespaces
	w.SideEffects = new(admissionregistrationv1.SideEffectClassNoneOnDryRun)
	w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{
		Name:       "new-exception",
		Expression: "request.subResource == 'status' || oldObject == null || !has(oldObject.spec) || !has(object.spec) || object.spec != oldObject.spec",
	})
	return *w
}

// text is an error on one line.
func text(err error) string {
	var faults api.Faults
	if errors.As(err, &faults) {
		return faults.ToAggregate().Error()
	}
	return fmt.Sprint(err)
}
