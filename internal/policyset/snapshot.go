package policyset

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// DefaultNamespace is where a namespaced object goes that names no namespace.
const DefaultNamespace = "default"

// Options configure Build. The zero value is ready to use.
type Options struct {
	// Documents are added by Load to those that it reads.
	Documents []*manifest.Document
	// Context ends compiling; nil is one without an end.
	Context context.Context
	// Env is the CEL environment; nil means cel.Current.
	Env *cel.Env
	// Unbound gives each policy without a binding one for all objects. Otherwise such a policy
	// has no effect, as in a cluster.
	Unbound bool
	// Namespace is that of namespaced objects that name none; "" is
	// DefaultNamespace.
	Namespace string
	// Mutators is the mode of Gatekeeper's mutators. If it is Off, they count like any other
	// objects.
	Mutators api.Mode
	// Kyverno is the mode of Kyverno's policies, as Mutators is.
	Kyverno api.Mode
	// Expansion uses Gatekeeper's expansion templates even if Mutators is Off.
	Expansion bool
	// Modules loads the modules of Kubewarden's policies. Without it they do not run.
	Modules    kubewarden.Loader
	ModuleMode api.Mode
	// Trace and Resolver are those of engine.Options.
	Trace    bool
	Resolver engine.Resolver
	// Mode and Whole are those of binding.Sources.
	Mode  func(p *policy.Policy, b *binding.Binding, written api.Mode) api.Mode
	Whole bool
	// Installation is mapd's namespace, whose exceptions apply to all namespaces; "" means
	// api.Installation. Now returns the time at which exceptions are evaluated; nil means
	// time.Now.
	Installation string
	Now          func() time.Time
	// Provider is called for each Provider of external data, and returns an error, preferably of
	// externaldata.DecodeProvider, which Build reports. If it is nil, Providers count like any
	// other objects.
	Provider func(*unstructured.Unstructured) error
	// More are documents that complete the given ones. A document of More is used if IsContext
	// holds for it or it is no policy, unless the given documents have one of the same kind and
	// name.
	More []*manifest.Document
	// Like is an earlier Snapshot with the same Env, or nil. If the definitions are the same,
	// compiled policies and bindings are reused.
	Like *Snapshot
	// Also, if not nil, is called with all documents, and returns errors about kinds that a
	// Snapshot does not use but other packages do.
	Also func(docs []*manifest.Document) []error
}

// Snapshot is the result of reading a set of documents.
type Snapshot struct {
	Index    *binding.Index
	Types    *openapi.Types
	Policies []*policy.Policy
	// Misspelt describes documents with a kind that looks like a misspelt kind of policy.
	Misspelt []string
	// Apart describes bindings that name a policy of the other group. In a cluster, the API
	// server runs one of the two and mapd the other.
	Apart []string
	// Unheeded describes mapd's annotations on objects that only an API server reads.
	Unheeded []string
	// Native are the names of the policies of Kubernetes' group. In a cluster, the API server
	// runs them and mapd does not.
	Native map[string]bool
	// Ignored counts the documents that nothing uses, by kind.
	Ignored map[string]int
	// Namespaces tells which Namespaces had to be invented.
	Namespaces *Namespaces
	// HasRBAC says that there was at least one RBAC object.
	HasRBAC bool
	// Unbound are the names of the policies that no binding of the documents
	// names, sorted.
	Unbound []string
	// Dangling are the names of the bindings whose policy does not exist, sorted.
	Dangling []string
	// UnknownParams are the paramKinds that none of the documents defines, sorted.
	UnknownParams []string
	// Older describes defaults that only an older version of the API fills in, for bindings in
	// that version.
	Older []string
	// Tripped describes policies that are not enforced because their documents have the trip of a
	// breaker.
	Tripped []string

	crds       []*manifest.Document
	compiled   map[*manifest.Document]reading
	bindings   map[*manifest.Document]compile.Binding
	results    map[feature]any // of those features that have one
	stages     []engine.Stage
	sources    binding.Sources
	authorizer *asked
	trace      bool
	resolver   engine.Resolver
}

// PolicyDocuments returns the documents of the policies by their names.
func (s *Snapshot) PolicyDocuments() map[string]*manifest.Document {
	out := make(map[string]*manifest.Document, len(s.compiled))
	for d := range s.compiled {
		out[d.Object.GetName()] = d
	}
	return out
}

// AuthorizerAsked reports whether a policy has used the authorizer.
func (s *Snapshot) AuthorizerAsked() bool { return s.authorizer.yes.Load() }

// Sources returns the lookups of parameters and Namespaces that the policies of the snapshot use.
// It contains no exceptions.
func (s *Snapshot) Sources() binding.Sources { return s.sources }

// Authorizer returns the authorizer of the RBAC objects, which has no opinion if there
// is none of them.
func (s *Snapshot) Authorizer() authorizer.Authorizer { return s.authorizer }

// Engine returns an engine that runs this snapshot.
func (s *Snapshot) Engine() *engine.Engine {
	e := engine.New(engine.Options{Authorizer: s.authorizer, Convert: Convert(s.Types), Trace: s.trace, Resolver: s.resolver})
	e.Publish(s.stages...)
	return e
}

// asked is an authorizer that records whether it was used.
type asked struct {
	authorizer.Authorizer
	yes atomic.Bool
}

func (a *asked) Authorize(ctx context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	a.yes.Store(true)
	return a.Authorizer.Authorize(ctx, attrs)
}

func (a *asked) ConditionsAwareAuthorize(ctx context.Context, attrs authorizer.Attributes) authorizer.ConditionsAwareDecision {
	a.yes.Store(true)
	return a.Authorizer.ConditionsAwareAuthorize(ctx, attrs)
}

// sameObject reports whether two documents have the same content.
func sameObject(a, b *manifest.Document) bool {
	return a == b || tree.Equal(a.Object.Object, b.Object.Object)
}

// Build makes a Snapshot of documents. It returns all errors of all documents, as *PositionErrors
// in the order of their places. If there are errors, there is no Snapshot.
func Build(docs []*manifest.Document, opts Options) (*Snapshot, []error) {
	b := &builder{
		env:        opts.Env,
		ctx:        opts.Context,
		namespace:  cmp.Or(opts.Namespace, DefaultNamespace),
		snapshot:   &Snapshot{Ignored: map[string]int{}, Native: map[string]bool{}, Namespaces: newNamespaces(), trace: opts.Trace, resolver: opts.Resolver, compiled: map[*manifest.Document]reading{}, bindings: map[*manifest.Document]compile.Binding{}, results: map[feature]any{}},
		seen:       map[objectID]*manifest.Document{},
		more:       map[*manifest.Document]bool{},
		paramKinds: map[schema.GroupKind]bool{},
	}
	for _, d := range opts.More {
		b.more[d] = true
	}
	if b.ctx == nil {
		b.ctx = context.Background()
	}
	if b.env == nil {
		env, err := cel.NewEnv(cel.Options{})
		if err != nil {
			return nil, []error{err}
		}
		b.env = env
	}
	b.sort(docs, opts)
	b.snapshot.crds = b.crds
	if like := opts.Like; like != nil && slices.EqualFunc(like.crds, b.crds, sameObject) {
		b.snapshot.Types, b.like = like.Types, like
	} else {
		b.readTypes()
	}
	b.readObjects()
	b.buildAuthorizer()
	b.readPolicies()
	b.countOthers()
	b.readBindings(opts.Unbound)
	for i, f := range features {
		f.build(b, b.of[i], &opts)
	}
	if opts.Also != nil {
		b.errs = append(b.errs, opts.Also(docs)...)
	}
	if len(b.errs) > 0 {
		return nil, inOrder(b.errs, docs)
	}
	s := b.snapshot
	s.sources = binding.Sources{Params: b.params, Namespaces: s.Namespaces, Equivalents: Equivalents(s.Types), Mode: opts.Mode, Whole: opts.Whole}
	own := s.sources
	own.Exceptions = b.exceptions
	ix, err := binding.NewIndex(s.Policies, b.compiled, own)
	if err != nil {
		return nil, []error{err}
	}
	s.Index = ix
	s.stages = append([]engine.Stage{engine.Policies(ix)}, s.stages...)
	return s, nil
}
