package feature

import (
	"context"
	"log/slog"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Feature is one kind of policy beside mapd's own, or one thing that is done with
// policies. Embed Base, and override what the feature has.
//
// The Store calls Start once, before everything else. Update and State are called by one
// goroutine, all other methods by any.
type Feature interface {
	// Name says what the feature is about, for logs and readiness: "Kubewarden's policies".
	Name() string
	// Start gives the feature what it works with.
	Start(d Deps)
	// Run watches the feature's objects until ctx is done.
	Run(ctx context.Context)
	// Look is called when the server serves other kinds than before.
	Look()
	// Update publishes what has changed since the last call, and reports whether State
	// returns another State than before. kindsChanged says that the server serves other
	// kinds than at the last call. Update must not wait for a server.
	Update(ctx context.Context, kindsChanged bool) bool
	// Ready returns nil once the first Update has published something, and otherwise what
	// is missing.
	Ready() error
	// Advisory says that the replica counts as ready while Ready returns an error.
	Advisory() bool
	// State returns the state of the feature's objects, nil before it is known.
	State() State
	// Stages are all that the feature runs on a request, for those who run everything
	// together: audits, and the objects that workloads create.
	Stages() []engine.Stage
	// ParamKinds are the kinds that policies read while they run, besides Namespaces.
	ParamKinds() []schema.GroupVersionKind
	// Holds reports whether a policy with that ID, as in a Decision, exists.
	Holds(id string) bool
	// Admitters returns what decides the reviews of the feature's webhook paths, by path.
	// It is called after Start and before Run.
	Admitters() map[string]webhook.Admitter
	// Owns reports whether a webhook entry with that name is the feature's.
	Owns(entry string) bool
}

// State is the state of a feature's objects at one time. It is immutable.
type State interface {
	// Entries returns the entries that the feature needs in the validating or else in the
	// mutating webhook configuration. base has the fields that all entries have in common.
	Entries(validating bool, base admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook
	// Listing returns what mapd says of the objects in a ConfigMap, nil if it says nothing.
	Listing() *Listing
}

// Controlled is a Feature that writes into the cluster.
type Controlled interface {
	Feature
	// Control writes until ctx is done. Only the replica that holds the lease calls it.
	// namespace is mapd's.
	Control(ctx context.Context, namespace *corev1.Namespace)
}

// Follower is a Feature that works with the stages of mapd's policies and of all other
// features.
type Follower interface {
	Feature
	// Published is called after each publication, by the goroutine of Update. own is the
	// stage of mapd's policies, and others are the Stages of all other features.
	Published(own engine.Stage, others []engine.Stage)
}

// Excepter is a Feature that has policies leave requests alone. Exceptions returns those of now,
// nil if there are none; every request that a policy matches asks, so it must not wait.
type Excepter interface {
	Feature
	Exceptions() *binding.Exceptions
}

// Named is a Feature of which exceptions can name policies. Policies calls f for each that is
// stored; only the goroutine of Update may call it.
type Named interface {
	Feature
	Policies(f func(*unstructured.Unstructured))
}

// Deps is what a feature works with.
type Deps struct {
	Client dynamic.Interface
	Log    *slog.Logger // never nil
	// Policy has the expression language and the kinds that the cluster serves.
	Policy     policy.Deps
	Sources    binding.Sources
	Engine     engine.Options
	Authorizer authorizer.Authorizer
	// Changed makes the Store call Update soon. It may be called at any time.
	Changed func()
	Own     Own
}

// Own answers about the policies of mapd's own group. Only Update may call its methods.
type Own interface {
	// Each calls f for each policy and binding that is stored: its metadata, and the rest
	// of it as JSON. Both stay the same pointers as long as the object does not change.
	// served is false if the server does not serve the group, and read is false while some
	// have not been read.
	Each(f func(object *unstructured.Unstructured, text []byte)) (served, read bool)
	// Called returns a function that reports whether API servers call mapd for the policy
	// with a name by all of its bindings, and the policy can run.
	Called() func(name string) bool
	// Routed reports whether API servers send mapd exactly the requests of an entry, or,
	// without an entry, have none of that name.
	Routed(name string, entry *admissionregistrationv1.MutatingWebhook) bool
	// Base has the fields that all entries have in common and that decide about requests.
	Base() admissionregistrationv1.MutatingWebhook
	// Follow makes each change of the webhook configurations a reason for an Update. It may
	// be called in Start.
	Follow()
}

// Base is a Feature that has nothing.
type Base struct{}

// Start implements Feature.
func (Base) Start(Deps) {}

// Run implements Feature.
func (Base) Run(context.Context) {}

// Look implements Feature.
func (Base) Look() {}

// Update implements Feature.
func (Base) Update(context.Context, bool) bool { return false }

// Ready implements Feature.
func (Base) Ready() error { return nil }

// Advisory implements Feature.
func (Base) Advisory() bool { return false }

// State implements Feature.
func (Base) State() State { return nil }

// Stages implements Feature.
func (Base) Stages() []engine.Stage { return nil }

// ParamKinds implements Feature.
func (Base) ParamKinds() []schema.GroupVersionKind { return nil }

// Holds implements Feature.
func (Base) Holds(string) bool { return false }

// Admitters implements Feature.
func (Base) Admitters() map[string]webhook.Admitter { return nil }

// Owns implements Feature.
func (Base) Owns(string) bool { return false }

// Unread is a webhook.Admitter for the time before anything has been read: it lets requests
// through if Ignore is set, and refuses them otherwise.
type Unread struct{ Ignore bool }

// Admit implements webhook.Admitter.
func (u Unread) Admit(_ context.Context, req *policy.Request) *engine.Decision {
	if u.Ignore {
		return &engine.Decision{Object: req.Object}
	}
	status := apierrors.NewServiceUnavailable("the policies of this cluster have not been read yet").Status()
	return &engine.Decision{Object: req.Object, Status: &status}
}
