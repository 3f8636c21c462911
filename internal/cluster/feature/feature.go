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

// Feature is one kind of policy besides mapd's own, or something that is done with policies.
// Embed Base, and override the methods that the feature needs.
//
// The Store calls Start once, before everything else. Update and State are called by one
// goroutine, all other methods by any goroutine.
type Feature interface {
	// Name describes the feature in logs and readiness errors: "Kubewarden's policies".
	Name() string
	// Start passes the dependencies to the feature.
	Start(d Deps)
	// Run watches the feature's objects until ctx is done.
	Run(ctx context.Context)
	// Look is called when the server serves other kinds than before. The feature then has to
	// check whether its own are among them.
	Look()
	// Update publishes the changes since the last call, and reports whether State now returns
	// another State. kindsChanged: the server serves other kinds than at the last call. Update
	// must not wait for a server.
	Update(ctx context.Context, kindsChanged bool) bool
	// Ready returns nil once the first Update has published something, and otherwise an error
	// that names what is missing.
	Ready() error
	// Advisory reports whether the replica counts as ready even while Ready returns an error.
	Advisory() bool
	// State returns the state of the feature's objects, nil before it is known.
	State() State
	// Stages are all stages of the feature, for callers that run all policies together: audits,
	// and the expansion of workloads.
	Stages() []engine.Stage
	// ParamKinds are the kinds that the feature's policies read during a request, besides
	// Namespaces.
	ParamKinds() []schema.GroupVersionKind
	// Holds reports whether the feature has a policy with the ID that a Decision uses.
	Holds(id string) bool
	// Admitters returns the Admitters of the feature's webhook paths, by path. It is called after
	// Start and before Run.
	Admitters() map[string]webhook.Admitter
	// Owns reports whether the feature has the webhook entry with that name.
	Owns(entry string) bool
}

// State is the state of a feature's objects at one time. It is immutable.
type State interface {
	// Entries returns the entries that the feature needs in the mutating webhook configuration
	// or, if validating is set, in the validating one. base has the common fields of all entries.
	Entries(validating bool, base admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook
	// Listing returns the content of the ConfigMap about the feature's objects, nil if there is
	// no such ConfigMap.
	Listing() *Listing
}

// Controlled is a Feature that writes into the cluster.
type Controlled interface {
	Feature
	// Control writes until ctx is done. Only the replica that holds the lease calls it.
	// namespace is mapd's.
	Control(ctx context.Context, namespace *corev1.Namespace)
}

// Follower is a Feature that uses the stages of mapd's policies and of all other features.
type Follower interface {
	Feature
	// Published is called after each publication, by the goroutine that calls Update. own is the
	// stage of mapd's policies, and others are the Stages of all other features.
	Published(own engine.Stage, others []engine.Stage)
}

// Excepter is a Feature that exempts requests from policies. Exceptions returns the present
// exceptions, nil if there are none. It is called for every request that a policy matches, so it
// must not wait.
type Excepter interface {
	Feature
	Exceptions() *binding.Exceptions
}

// Named is a Feature with policies that exceptions can name. Policies calls f for each stored
// policy. Only the goroutine that calls Update may call it.
type Named interface {
	Feature
	Policies(f func(*unstructured.Unstructured))
}

// Deps are the dependencies of a feature.
type Deps struct {
	Client dynamic.Interface
	Log    *slog.Logger // never nil
	// Policy has the expression language and the kinds that the cluster serves.
	Policy     policy.Deps
	Sources    binding.Sources
	Engine     engine.Options
	Authorizer authorizer.Authorizer
	// Changed asks the Store to call Update soon. It may be called at any time.
	Changed func()
	Own     Own
}

// Own has information about the policies of mapd's own API group. Only Update may call its
// methods.
type Own interface {
	// Each calls f for each stored policy and binding: with its metadata, and the rest of it as
	// JSON. Both pointers stay the same as long as the object does not change. served is false if
	// the server does not serve the group. read is false while some objects have not been read.
	Each(f func(object *unstructured.Unstructured, text []byte)) (served, read bool)
	// Called returns a function that reports whether the policy with a name can run and API
	// servers call mapd for all of its bindings.
	Called() func(name string) bool
	// Routed reports whether API servers send mapd exactly the requests of an entry. If entry is
	// nil, it reports whether they have no entry of that name.
	Routed(name string, entry *admissionregistrationv1.MutatingWebhook) bool
	// Base has the common fields of all entries that influence which requests are sent.
	Base() admissionregistrationv1.MutatingWebhook
	// Follow makes the Store call Update after each change of the webhook configurations. It may
	// be called in Start.
	Follow()
}

// Base is a Feature without any objects, to embed.
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

// Unread is the webhook.Admitter of a feature whose objects have not been read yet: it admits all
// requests if Ignore is set, and refuses them otherwise.
type Unread struct{ Ignore bool }

// Admit implements webhook.Admitter.
func (u Unread) Admit(_ context.Context, req *policy.Request) *engine.Decision {
	if u.Ignore {
		return &engine.Decision{Object: req.Object}
	}
	status := apierrors.NewServiceUnavailable("the policies of this cluster have not been read yet").Status()
	return &engine.Decision{Object: req.Object, Status: &status}
}
