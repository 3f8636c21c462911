package manifest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/internal/rbac"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// DefaultNamespace is where a namespaced object goes that names no namespace.
const DefaultNamespace = "default"

// BuildOptions configure Build. The zero value is usable.
type BuildOptions struct {
	// Env is the expression language; nil is that of the newest minor.
	Env *cel.Env
	// Unbound binds each policy without a binding to everything. Without it such
	// a policy has no effect, as in a cluster.
	Unbound bool
}

// Snapshot is what a set of documents comes to.
type Snapshot struct {
	Index    *binding.Index
	Types    *openapi.Types
	Policies []*policy.Policy
	// Namespaces knows which Namespaces had to be made up.
	Namespaces *Namespaces
	// HasRBAC says that there was at least one RBAC object.
	HasRBAC bool
	// Unbound are the names of the policies that no binding of the documents
	// names, sorted.
	Unbound []string
	// Dangling are the names of the bindings whose policy is not there, sorted.
	Dangling []string
	// UnknownParams are the paramKinds that nothing given serves, sorted.
	UnknownParams []string

	authorizer *asked
}

// Authorizer answers the checks of the policies' authorizer variable.
func (s *Snapshot) Authorizer() authorizer.Authorizer { return s.authorizer }

// AuthorizerAsked tells whether a policy has used it.
func (s *Snapshot) AuthorizerAsked() bool { return s.authorizer.yes.Load() }

// Engine returns an engine that runs this snapshot.
func (s *Snapshot) Engine() *engine.Engine {
	e := engine.New(engine.Options{Authorizer: s.authorizer, Convert: s.convert})
	e.Publish(s.Index)
	return e
}

// convert knows the one conversion that is possible without a server: another
// apiVersion on a custom resource whose definition says so.
func (s *Snapshot) convert(obj *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	kind, err := s.Types.Kind(obj.GroupVersionKind())
	if err != nil || !kind.ConvertibleTo(to) {
		return nil, engine.ErrNoConversion
	}
	return engine.WithVersion(obj, to), nil
}

// asked remembers whether anybody asked.
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

// Build makes a snapshot of documents. It finds all errors of all documents, as
// *PositionErrors; with any there is no Snapshot.
func Build(docs []*Document, opts BuildOptions) (*Snapshot, []error) {
	b := &builder{snapshot: &Snapshot{Namespaces: newNamespaces()}}
	b.env = opts.Env
	if b.env == nil {
		env, err := cel.NewEnv(cel.Options{})
		if err != nil {
			return nil, []error{err}
		}
		b.env = env
	}
	b.sort(docs)
	b.readTypes()
	b.readObjects()
	b.readRBAC()
	b.readPolicies()
	b.readBindings(opts.Unbound)
	if len(b.errs) > 0 {
		return nil, b.errs
	}
	s := b.snapshot
	ix, err := binding.NewIndex(s.Policies, b.compiled, binding.Sources{
		Params:      b.params,
		Namespaces:  s.Namespaces,
		Equivalents: equivalents(s.Types),
	})
	if err != nil {
		return nil, []error{err}
	}
	s.Index = ix
	return s, nil
}

func equivalents(types *openapi.Types) func(schema.GroupVersionResource) []binding.Equivalent {
	return func(gvr schema.GroupVersionResource) []binding.Equivalent {
		var out []binding.Equivalent
		for _, r := range types.Equivalents(gvr) {
			out = append(out, binding.Equivalent{Resource: r.GVR, Kind: r.Kind})
		}
		return out
	}
}

// builder collects what Build needs on its way.
type builder struct {
	env      *cel.Env
	snapshot *Snapshot
	params   *params
	compiled []*binding.Binding
	errs     []error

	policies, bindings, crds, rbac, others []*Document
}

func (b *builder) fail(err error) { b.errs = append(b.errs, err) }

const (
	ownGroup  = "admissionregistration.mapd.dev"
	crdGroup  = "apiextensions.k8s.io"
	rbacGroup = "rbac.authorization.k8s.io"
)

// sort puts every document where it belongs and refuses names that are given
// twice.
func (b *builder) sort(docs []*Document) {
	type id struct{ group, kind, namespace, name string }
	seen := map[id]*Document{}
	for _, d := range docs {
		if d.Object == nil {
			continue
		}
		gvk := d.Object.GroupVersionKind()
		if d.Object.GetName() == "" {
			b.fail(d.ErrorAt("metadata", fmt.Errorf("%s: metadata.name: Required value: name or generateName is required", gvk.Kind)))
			continue
		}
		key := id{gvk.Group, gvk.Kind, d.Object.GetNamespace(), d.Object.GetName()}
		admission := gvk.Group == policy.NativeGroup || gvk.Group == ownGroup
		if admission && (gvk.Kind == policy.Kind || gvk.Kind == binding.Kind) {
			key.group = policy.NativeGroup // both groups fill one snapshot
			key.namespace = ""
		}
		if first, ok := seen[key]; ok {
			b.fail(d.ErrorAt("metadata.name", fmt.Errorf("%s is given twice, first in %s", d.Name(), first.Where())))
			continue
		}
		seen[key] = d
		switch {
		case admission && gvk.Kind == policy.Kind:
			b.policies = append(b.policies, d)
		case admission && gvk.Kind == binding.Kind:
			b.bindings = append(b.bindings, d)
		case gvk.Group == crdGroup && gvk.Kind == "CustomResourceDefinition":
			b.crds = append(b.crds, d)
		case gvk.Group == rbacGroup && slices.Contains(rbac.Kinds, gvk.Kind):
			b.rbac = append(b.rbac, d)
			b.others = append(b.others, d)
		default:
			b.others = append(b.others, d)
		}
	}
}

func (b *builder) readTypes() {
	builtin := openapi.Builtin()
	var good []*unstructured.Unstructured
	for _, d := range b.crds {
		if _, err := openapi.CRDs(d.Object); err != nil {
			b.fail(d.Errorf("%s: %w", d.Name(), err))
			continue
		}
		good = append(good, d.Object)
	}
	custom, err := openapi.CRDs(good...)
	if err != nil {
		b.fail(b.crds[0].Errorf("%w", err))
		b.snapshot.Types = openapi.New(builtin)
		return
	}
	b.snapshot.Types = openapi.New(builtin, custom)
}

func (b *builder) readObjects() {
	b.params = newParams(b.snapshot.Types)
	for _, d := range b.others {
		if err := b.params.add(d.Object); err != nil {
			b.fail(d.ErrorOf("", fmt.Errorf("%s: %w", d.Name(), err)))
			continue
		}
		if gvk := d.Object.GroupVersionKind(); gvk.Group == "" && gvk.Kind == "Namespace" {
			if u, err := b.params.Get(context.Background(), gvk, "", d.Object.GetName()); err == nil {
				b.snapshot.Namespaces.add(u)
			}
		}
	}
}

func (b *builder) readRBAC() {
	var good []*unstructured.Unstructured
	for _, d := range b.rbac {
		if _, err := rbac.New(d.Object); err != nil {
			b.fail(d.Errorf("%w", err))
			continue
		}
		u := d.Object
		if kind := u.GetKind(); u.GetNamespace() == "" && (kind == "Role" || kind == "RoleBinding") {
			u = u.DeepCopy()
			u.SetNamespace(DefaultNamespace)
		}
		good = append(good, u)
	}
	b.snapshot.HasRBAC = len(good) > 0
	b.snapshot.authorizer = &asked{Authorizer: rbac.NoOpinion{}}
	if len(good) == 0 {
		return
	}
	a, err := rbac.New(good...)
	if err != nil {
		b.fail(b.rbac[0].Errorf("%w", err))
		return
	}
	b.snapshot.authorizer.Authorizer = a
}

func (b *builder) readPolicies() {
	deps := policy.Deps{Env: b.env, Types: b.snapshot.Types}
	unknown := map[string]bool{}
	for _, d := range b.policies {
		obj, err := policy.Decode(d.Object)
		if err != nil {
			b.decodeError(d, err)
			continue
		}
		if errs := policy.Validate(obj, b.env); len(errs) > 0 {
			b.fieldErrors(d, errs)
			continue
		}
		p, err := policy.Compile(obj, deps)
		if err != nil {
			b.compileErrors(d, err)
			continue
		}
		b.snapshot.Policies = append(b.snapshot.Policies, p)
		if pk := obj.Spec.ParamKind; pk != nil {
			gvk := schema.FromAPIVersionAndKind(pk.APIVersion, pk.Kind)
			if _, err := b.params.Kind(gvk); err != nil {
				unknown[fmt.Sprintf("%s, Kind=%s", pk.APIVersion, pk.Kind)] = true
			}
		}
	}
	for kind := range unknown {
		b.snapshot.UnknownParams = append(b.snapshot.UnknownParams, kind)
	}
	slices.Sort(b.snapshot.UnknownParams)
}

func (b *builder) readBindings(unbound bool) {
	bound := map[string]bool{}
	names := map[string]bool{}
	for _, d := range b.bindings {
		names[d.Object.GetName()] = true
		obj, err := binding.Decode(d.Object)
		if err != nil {
			b.decodeError(d, err)
			continue
		}
		if errs := binding.Validate(obj); len(errs) > 0 {
			b.fieldErrors(d, errs)
			continue
		}
		bd, err := binding.Compile(obj)
		if err != nil {
			b.fail(d.Errorf("%s: %w", d.Name(), err))
			continue
		}
		b.compiled = append(b.compiled, bd)
		bound[bd.PolicyName()] = true
	}
	known := map[string]bool{}
	for _, p := range b.snapshot.Policies {
		known[p.Name()] = true
		if bound[p.Name()] {
			continue
		}
		b.snapshot.Unbound = append(b.snapshot.Unbound, p.Name())
		if !unbound {
			continue
		}
		name := UnboundBinding
		for names[name+"-"+p.Name()] {
			name += "-"
		}
		bd, err := binding.Compile(&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + p.Name()},
			Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: p.Name()},
		})
		if err != nil {
			b.fail(err)
			continue
		}
		b.compiled = append(b.compiled, bd)
	}
	for _, bd := range b.compiled {
		if !known[bd.PolicyName()] {
			b.snapshot.Dangling = append(b.snapshot.Dangling, bd.Name())
		}
	}
	slices.Sort(b.snapshot.Unbound)
	slices.Sort(b.snapshot.Dangling)
}

// UnboundBinding begins the names of the bindings that BuildOptions.Unbound
// makes.
const UnboundBinding = "unbound"

// decodeError places what strict decoding did not like.
func (b *builder) decodeError(d *Document, err error) {
	var de *policy.DecodeError
	if errors.As(err, &de) && len(de.Fields) > 0 {
		err = fmt.Errorf("%s: %w", d.Name(), err)
		if unknown.MatchString(err.Error()) {
			b.fail(d.ErrorAtKey(de.Fields[0], err))
		} else {
			b.fail(d.ErrorAt(de.Fields[0], err))
		}
		return
	}
	b.fail(d.Errorf("%s: %w", d.Name(), err))
}

var (
	celIssue  = regexp.MustCompile(`(?m)^(?:.*?compilation failed: )?ERROR: <input>:(\d+):(\d+): (.*)$`)
	unknown   = regexp.MustCompile(`(?:unknown|duplicate) field "([^"]+)"`)
	mistyped  = regexp.MustCompile(`Go struct field \w+\.([\w.]+) of type`)
	aggregate = regexp.MustCompile(`^spec\.(?:variables|matchConditions|mutations)`)
)

// ErrorOf is err, from decoding the document's object, at the field that the
// decoder's text names; prefix is the path of that object in the document.
func (d *Document) ErrorOf(prefix string, err error) *PositionError {
	text := err.Error()
	if m := unknown.FindStringSubmatch(text); m != nil {
		return d.ErrorAtKey(prefix+m[1], err)
	}
	if m := mistyped.FindStringSubmatch(text); m != nil {
		return d.ErrorAt(prefix+m[1], err)
	}
	return d.ErrorAt(strings.TrimSuffix(prefix, "."), err)
}

// fieldErrors places what a server finds invalid; of an expression that does not
// compile each fault is placed in the expression.
func (b *builder) fieldErrors(d *Document, errs field.ErrorList) {
	for _, e := range errs {
		if aggregate.MatchString(e.Field) {
			if issues := celIssue.FindAllStringSubmatch(e.Detail, -1); issues != nil {
				for _, m := range issues {
					line, _ := strconv.Atoi(m[1])
					column, _ := strconv.Atoi(m[2])
					b.fail(d.ErrorIn(e.Field, line, column, fmt.Errorf("%s: %s: %s", d.Name(), e.Field, m[3])))
				}
				continue
			}
		}
		if e.Type == field.ErrorTypeInvalid && aggregate.MatchString(e.Field) {
			// The value is in the file; it need not be in the text again.
			b.fail(d.ErrorIn(e.Field, 1, 1, fmt.Errorf("%s: %s: %s", d.Name(), e.Field, e.Detail)))
			continue
		}
		b.fail(d.ErrorAt(e.Field, fmt.Errorf("%s: %w", d.Name(), e)))
	}
}

// compileErrors places what only the run-time compiler refuses.
func (b *builder) compileErrors(d *Document, err error) {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			b.compileErrors(d, e)
		}
		return
	}
	var ee *policy.ExpressionError
	var ce *cel.CompileError
	switch {
	case errors.As(err, &ee) && errors.As(err, &ce) && len(ce.Issues) > 0:
		for _, i := range ce.Issues {
			b.fail(d.ErrorIn(ee.Field, i.Line, i.Column, fmt.Errorf("%s: %s: %s", d.Name(), ee.Field, i.Message)))
		}
	case errors.As(err, &ee):
		b.fail(d.ErrorAt(ee.Field, fmt.Errorf("%s: %s: %w", d.Name(), ee.Field, ee.Err)))
	default:
		b.fail(d.Errorf("%s: %w", d.Name(), err))
	}
}
