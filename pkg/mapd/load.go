package mapd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/explain"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// DefaultNamespace is the namespace of namespaced objects that name none, unless
// Options say another.
const DefaultNamespace = "default"

// Options say how policies are loaded. The zero value is usable.
type Options struct {
	// Kubernetes is the minor whose CEL libraries expressions may use, such as
	// "1.34"; empty means "1.37".
	Kubernetes string
	// Namespace is used for namespaced objects that name none; empty means DefaultNamespace.
	Namespace string
	// Unbound binds each policy that has no binding to everything. Without it such
	// a policy has no effect, as in a cluster.
	Unbound bool
	// Enforce has all policies enforced, whatever mode their annotations and those of their
	// bindings say.
	Enforce bool
	// Modules loads the WebAssembly modules of Kubewarden's policies, which do not run without
	// it. This package has no implementation, since a WebAssembly runtime is large; the command
	// mapd has one.
	Modules kubewarden.Loader
	ToolOptions
}

// ToolOptions are for programs that load the same policies repeatedly, that show how policies
// are evaluated, or that query providers of external data. Other programs leave it empty.
type ToolOptions struct {
	// Documents are documents that the caller has read. They come after the files.
	Documents []*Document
	// Env is the expression language to use instead of that of Options.Kubernetes.
	Env *cel.Env
	// Observe makes the Steps of decisions keep what expressions read and returned. An
	// evaluation takes several times as long.
	Observe bool
	// Brief leaves the objects before and after each step out of decisions, as a
	// server does, so that an evaluation costs what it costs there.
	Brief bool
	// Resolver answers queries to providers of external data. If it is nil, each query fails.
	Resolver engine.Resolver
	// Like are policies that were loaded with the same Env and Kubernetes: Load reuses their
	// compiled form for policies that did not change, if the definitions among the documents
	// did not change either. It may be nil.
	Like *Policies
	// Context are documents beside the files of Load, such as the objects of a stream. Load
	// uses those of them that are policies, bindings, mutators, definitions, Namespaces or
	// parameters, unless a file has the same object. The others cost nothing but memory.
	Context []*Document
	// Provider is called for each Provider of external data among the documents. Load reports
	// its error at the position of the document. It may be nil.
	Provider func(*unstructured.Unstructured) error
	// Installation is the namespace of mapd, whose exceptions may apply to all namespaces; empty
	// means api.Installation.
	Installation string
}

// mode returns the function that replaces the modes of policies; nil keeps the modes as
// written.
func (o *Options) mode() func(*policy.Policy, *binding.Binding, api.Mode) api.Mode {
	if !o.Enforce {
		return nil
	}
	return func(*policy.Policy, *binding.Binding, api.Mode) api.Mode { return api.Enforce }
}

// A File is a text with a name: YAML or JSON, any number of documents.
type File struct {
	// Name is how errors call it.
	Name string
	Data []byte
}

// Policies are loaded documents. They are immutable.
type Policies struct {
	loaded    *policyset.Loaded
	engine    *engine.Engine
	explainer *explain.Explainer
	namespace string
	env       *cel.Env
	unbound   bool
	compiled  time.Duration
	// observed returns the same policies loaded with Options.Observe. Its first call loads
	// them.
	observed func() (*Policies, error)
	keeps    bool // Options.Like, passed on to observed
	warned   *warned
	exempt   *exempt
}

// LoadError lists all errors that Load found, in the order of the files.
type LoadError struct {
	// Unreadable says that a text is not valid YAML or JSON. Otherwise all documents were read,
	// and the errors are about policies that do not validate or compile.
	Unreadable bool
	// Errs are of type *Error wherever the position in a file is known.
	Errs []error
}

// Error returns the errors, one a line.
func (e *LoadError) Error() string {
	texts := make([]string, len(e.Errs))
	for i, err := range e.Errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "\n")
}

func (e *LoadError) Unwrap() []error { return e.Errs }

// Load reads and compiles documents. If documents have errors, it returns a *LoadError with all
// of them; any other error is about opts.
func Load(opts Options, files ...File) (*Policies, error) {
	return LoadContext(context.Background(), opts, files...)
}

// LoadContext is Load that ends with ctx: policies that are not compiled by then are reported
// as errors.
func LoadContext(ctx context.Context, opts Options, files ...File) (*Policies, error) {
	p, err := load(ctx, opts, files)
	if err != nil {
		return nil, err
	}
	if opts.Like != nil && opts.Like.keeps {
		opts.Like = nil // otherwise each Policies would keep its predecessor alive, and none would be freed
	}
	p.keeps = opts.Like != nil
	if opts.Observe {
		p.observed = func() (*Policies, error) { return p, nil }
	} else {
		p.observed = sync.OnceValues(func() (*Policies, error) {
			opts.Observe, opts.Env, opts.Brief, opts.Provider = true, nil, false, nil
			if opts.Like != nil {
				like, err := opts.Like.observed()
				if err != nil {
					return nil, err
				}
				opts.Like, opts.Env = like, like.env
			}
			return LoadContext(context.Background(), opts, files...)
		})
	}
	return p, nil
}

func load(ctx context.Context, opts Options, files []File) (*Policies, error) {
	start := time.Now()
	env := opts.Env
	if env == nil {
		var err error
		if env, err = environment(opts.Kubernetes, opts.Observe); err != nil {
			return nil, err
		}
	}
	made := time.Since(start)
	inputs := make([]manifest.Input, len(files))
	for i, f := range files {
		inputs[i] = manifest.Input{Name: f.Name, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(f.Data)), nil
		}}
	}
	docs := make([]*manifest.Document, len(opts.Documents))
	for i, d := range opts.Documents {
		docs[i] = d.doc
	}
	more := make([]*manifest.Document, len(opts.Context))
	for i, d := range opts.Context {
		more[i] = d.doc
	}
	var like *policyset.Snapshot
	if opts.Like != nil && opts.Like.env == env {
		like = opts.Like.loaded.Snapshot
	}
	l, errs, unread := policyset.Load(inputs, policyset.Options{
		Context:   ctx,
		Like:      like,
		More:      more,
		Documents: docs,
		Env:       env, Unbound: opts.Unbound, Mode: opts.mode(), Namespace: opts.Namespace, Trace: !opts.Brief,
		Resolver: opts.Resolver, Provider: opts.Provider, Modules: opts.Modules, Installation: opts.Installation,
	})
	if len(errs) > 0 {
		for i, err := range errs {
			errs[i] = located(err)
		}
		return nil, &LoadError{unread, errs}
	}
	e := l.Engine()
	w := &warned{}
	if like != nil && like.Types == l.Types {
		w = opts.Like.warned.again()
	}
	return &Policies{
		warned: w, exempt: &exempt{own: cmp.Or(opts.Installation, api.Installation), names: map[string]bool{}},
		loaded: l, engine: e, explainer: explain.New(e, l.Types), compiled: made + l.Compiled,
		namespace: cmp.Or(opts.Namespace, DefaultNamespace), unbound: opts.Unbound, env: env,
	}, nil
}

// Engine returns the engine that runs the policies.
func (p *Policies) Engine() *engine.Engine { return p.engine }

// Policies returns the policies that were loaded, in the order of their names.
func (p *Policies) Policies() []*policy.Policy { return p.loaded.Policies }

// Mutators returns how many of Gatekeeper's mutators were loaded, including those that do not
// run; Notes says which these are and why.
func (p *Policies) Mutators() int { return len(p.loaded.Mutators()) }

// Templates returns Gatekeeper's expansion templates among the documents, in their
// order.
func (p *Policies) Templates() []*legacy.Template { return p.loaded.Templates() }

// Types returns the known kinds: the built-in ones, and those of the documents'
// CustomResourceDefinitions.
func (p *Policies) Types() *openapi.Types { return p.loaded.Types }

// Sources returns where policies look up parameters and Namespaces, for callers that need the
// same look-up.
func (p *Policies) Sources() binding.Sources { return p.loaded.Sources() }

// Authorizer returns the authorizer of the documents' RBAC objects. Without such objects it has
// no opinion on any request.
func (p *Policies) Authorizer() authorizer.Authorizer { return p.loaded.Authorizer() }

// Len returns how many policies of all kinds were loaded, bound or not: those of
// [Policies.Policies], mutators, rules of Kyverno's policies and policies of Kubewarden.
func (p *Policies) Len() int {
	return len(p.Policies()) + p.Mutators() + p.Kyverno() + len(p.Kubewarden())
}

// Bindings returns how many bindings were loaded.
func (p *Policies) Bindings() int {
	n := len(p.loaded.Index.Bindings())
	if p.unbound {
		n -= len(p.loaded.Unbound) // have a binding that Load made, not a document
	}
	return n
}

// Ignored counts, by kind, the documents that no policy and no part of mapd uses.
func (p *Policies) Ignored() map[string]int { return p.loaded.Ignored }

// Kubewarden returns Kubewarden's policies that run, in the order of their IDs.
func (p *Policies) Kubewarden() []*kubewarden.Policy { return p.loaded.Modules() }

// Kyverno returns how many mutate rules of Kyverno's policies were loaded, including those that
// were not converted and change nothing; Notes says which these are and why.
func (p *Policies) Kyverno() int { return len(p.loaded.Kyverno()) }

// A KyvernoRule is a mutate rule of one of Kyverno's policies. A MutatingPolicy counts as one
// rule with the policy's name.
type KyvernoRule struct {
	// Name is what Steps call it, such as "ClusterPolicy/labels/add-team".
	Name string
	// Rule is the rule's name within the policy, Path its field path in the document, and
	// Document the position of that document as returned by Document.Where.
	Rule, Path, Document string
	// Unconverted is the reason why the rule was not converted and changes nothing; "" if it
	// was.
	Unconverted string
	// Reorders says that the rule may leave a list with a merge key in another order than
	// Kyverno does.
	Reorders bool
}

// KyvernoRules returns the mutate rules of Kyverno's policies, in their order.
func (p *Policies) KyvernoRules() []KyvernoRule {
	var out []KyvernoRule
	for _, r := range p.loaded.Kyverno() {
		out = append(out, KyvernoRule{Name: r.Name, Rule: r.Rule, Path: r.Path, Document: r.Document.Where(), Unconverted: r.Unconverted, Reorders: r.Reorders})
	}
	return out
}

// Times returns how long Load took to read the documents and to compile them.
func (p *Policies) Times() (read, compile time.Duration) { return p.loaded.Read, p.compiled }

// An Error says what is wrong with a document, and where. Line and Column count
// from 1; 0 means that they are not known.
type Error struct {
	File     string
	Document int // from 1
	Line     int
	Column   int
	// Source is the text of the line.
	Source string
	// Err is what is wrong.
	Err error
}

// Error returns one line: file, document, line, column, and what is wrong.
func (e *Error) Error() string { return (*manifest.PositionError)(e).Error() }

// Render returns Error and below it the line with a caret under the column, if both
// are known.
func (e *Error) Render() string { return (*manifest.PositionError)(e).Render() }

func (e *Error) Unwrap() error { return e.Err }

// A ReadError says that a text could not be read to its end.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

// located turns errors of internal packages into those of this one.
func located(err error) error {
	var at *manifest.PositionError
	var read *manifest.ReadError
	switch {
	case errors.As(err, &at):
		return (*Error)(at)
	case errors.As(err, &read):
		return &ReadError{read.Err}
	}
	return err
}
