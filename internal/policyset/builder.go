package policyset

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/mapd-project/mapd/internal/apiserver/rbac"
	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/parallel"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// builder is the state of one call of Build.
type builder struct {
	env       *cel.Env
	namespace string // of objects without a namespace
	seen      map[objectID]*manifest.Document
	more      map[*manifest.Document]bool // documents of Options.More
	snapshot  *Snapshot
	params    *params
	compiled  []*binding.Binding
	like      *Snapshot // Options.Like, if its definitions are the same
	ctx       context.Context
	errs      []error

	rbac     []*unstructured.Unstructured
	readsAll bool // policies may read objects of any kind
	// paramKinds are the paramKinds of policies, including policies that are not compiled here.
	paramKinds map[schema.GroupKind]bool
	twice      []twice // documents among others that occur twice
	exceptions func() *binding.Exceptions

	policies, bindings, crds, others []*manifest.Document
	// of has the documents of each feature, in the order of features.
	of [][]*manifest.Document
}

// objectID identifies an object, regardless of its version.
type objectID struct{ group, kind, namespace, name string }

// twice is a document whose object occurred before, with the error about that.
type twice struct {
	doc *manifest.Document
	err error
}

func (b *builder) fail(err error) { b.errs = append(b.errs, err) }

// sort sorts the documents by their kind.
func (b *builder) sort(docs []*manifest.Document, opts Options) {
	b.of = make([][]*manifest.Document, len(features))
	for _, d := range docs {
		if d.Object == nil {
			continue
		}
		gvk := d.Object.GroupVersionKind()
		at := slices.IndexFunc(features, func(f feature) bool { return f.on(&opts) && f.takes(gvk, d.Object.GetName()) })
		if what := Misspelt(gvk); what != "" {
			b.snapshot.Misspelt = append(b.snapshot.Misspelt, fmt.Sprintf("%s: %s", d.Where(), what))
			if gvk.Group != api.NativeGroup {
				b.snapshot.Ignored[gvk.Kind]++ // objects of that group are counted below
				continue
			}
		}
		if at < 0 && ignored(gvk) {
			b.snapshot.Ignored[gvk.Kind]++
			if pk, ok, _ := unstructured.NestedStringMap(d.Object.Object, "spec", "paramKind"); ok {
				b.paramKinds[schema.FromAPIVersionAndKind(pk["apiVersion"], pk["kind"]).GroupKind()] = true
			}
			if gvk.Group != api.NativeGroup {
				continue
			}
		}
		if d.Object.GetName() == "" {
			why := "name or generateName is required"
			if d.Object.GetGenerateName() != "" {
				why = "only a server can generate it"
			}
			b.fail(d.ErrorAt("metadata", fmt.Errorf("%s: metadata.name: Required value: %s", gvk.Kind, why)))
			continue
		}
		switch {
		case at >= 0:
			namespace := ""
			if features[at].namespaced(gvk) {
				namespace = cmp.Or(d.Object.GetNamespace(), b.namespace)
			}
			if b.first(d, gvk.Group, namespace) {
				b.of[at] = append(b.of[at], d)
			}
		case api.IsAdmission(gvk.Group) && gvk.Kind == api.PolicyKind:
			if b.first(d, api.NativeGroup, "") { // policies of both groups are in one Snapshot
				b.policies = append(b.policies, d)
			}
		case api.IsAdmission(gvk.Group) && gvk.Kind == api.BindingKind:
			if b.first(d, api.NativeGroup, "") {
				b.bindings = append(b.bindings, d)
			}
		case gvk.Group == api.DefinitionGroup && gvk.Kind == api.DefinitionKind:
			if b.first(d, api.DefinitionGroup, "") {
				b.crds = append(b.crds, d)
			}
		default:
			b.others = append(b.others, d)
			if opts.Provider != nil && legacy.IsProvider(gvk) {
				if err := opts.Provider(d.Object); err != nil {
					b.fail(MutatorError(d, err))
				}
			}
		}
	}
}

// IsContext reports whether objects of a kind influence how other objects are evaluated:
// policies, bindings, mutators, definitions and Namespaces, and misspelt forms of these kinds.
// Parameters do not count, because they may be of any kind.
func IsContext(gvk schema.GroupVersionKind) bool {
	switch gvk.Group {
	case "":
		return gvk.Kind == "Namespace"
	case api.DefinitionGroup:
		return gvk.Kind == api.DefinitionKind
	}
	return Misspelt(gvk) != "" || api.IsAdmission(gvk.Group) && (gvk.Kind == api.PolicyKind || gvk.Kind == api.BindingKind) ||
		slices.ContainsFunc(features, func(f feature) bool { return f.takes(gvk, "") })
}

// ignored reports whether a kind belongs to policies or manifests, but not to a Snapshot. Objects
// of the group admissionregistration.k8s.io may still be parameters.
func ignored(gvk schema.GroupVersionKind) bool {
	switch gvk.Group {
	case "kustomize.config.k8s.io", "kyverno.io", "policies.kyverno.io", "templates.gatekeeper.sh", "constraints.gatekeeper.sh", "test.mapd.dev", "cli.kyverno.io", "test.gatekeeper.sh":
		return true
	case api.NativeGroup:
		return gvk.Kind != api.PolicyKind && gvk.Kind != api.BindingKind
	}
	return false
}

// Pack reduces the memory of a document until Build reads it. It is for documents of which there
// may be very many.
func Pack(d *manifest.Document) {
	if d.Object == nil {
		return
	}
	if gvk := d.Object.GroupVersionKind(); api.IsAdmission(gvk.Group) && (gvk.Kind == api.PolicyKind || gvk.Kind == api.BindingKind) {
		d.Pack()
	}
}

// first records an object. It reports an error and returns false if the object occurred before.
func (b *builder) first(d *manifest.Document, group, namespace string) bool {
	err, ok := b.firstOf(d, group, namespace)
	if err != nil {
		b.fail(err)
	}
	return ok
}

// firstOf is first, but returns the error instead of reporting it.
func (b *builder) firstOf(d *manifest.Document, group, namespace string) (error, bool) {
	id := objectID{group, d.Object.GetKind(), namespace, d.Object.GetName()}
	if first, ok := b.seen[id]; ok {
		if b.more[d] {
			return nil, false
		}
		return d.ErrorAt("metadata.name", fmt.Errorf("%s is given twice, first in %s", d.Name(), first.Where())), false
	}
	b.seen[id] = d
	return nil, true
}

func (b *builder) readTypes() {
	builtin := openapi.Builtin()
	b.snapshot.Types = openapi.New(builtin)
	var good []*unstructured.Unstructured
	for _, d := range b.crds {
		if _, err := openapi.CRDs(d.Object); err != nil {
			b.definitionErrors(d, err)
			continue
		}
		good = append(good, d.Object)
	}
	custom, err := openapi.CRDs(good...)
	if err == nil {
		b.snapshot.Types = openapi.New(builtin, custom)
		return
	}
	// Of two definitions of the same kind, the second is reported.
	var of *openapi.DefinitionError
	for _, d := range b.crds {
		if errors.As(err, &of) && of.Name == d.Object.GetName() {
			b.definitionErrors(d, err)
		}
	}
}

// definitionErrors reports the errors of a CustomResourceDefinition with their places.
func (b *builder) definitionErrors(d *manifest.Document, err error) {
	var of *openapi.DefinitionError
	if errors.As(err, &of) {
		err = of.Err // the document's name is said anyway
	}
	b.faults(d, err)
}

// faults reports the faults of a document's object with their places.
func (b *builder) faults(d *manifest.Document, err error) {
	b.errs = append(b.errs, d.Errors(api.FaultsOf(err))...)
}

func (b *builder) readObjects() {
	b.params = newParams(b.snapshot.Types)
	for _, d := range b.others {
		gvk := d.Object.GroupVersionKind()
		namespace := d.Object.GetNamespace()
		if res, ok := b.snapshot.Types.ResourceFor(gvk); ok && !res.Namespaced {
			namespace = ""
		} else if namespace == "" {
			namespace = b.namespace
		}
		if err, ok := b.firstOf(d, gvk.Group, namespace); !ok {
			if err != nil {
				b.twice = append(b.twice, twice{d, err})
			}
			continue
		}
		if err := b.params.add(d.Object, namespace); err != nil {
			if !b.more[d] { // of which the request for it says the same
				b.faults(d, err)
			}
			continue
		}
		if gvk.Group == api.RBACGroup && slices.Contains(rbac.Kinds, gvk.Kind) {
			b.readRBAC(d, namespace)
		}
		if gvk.Group == "" && gvk.Kind == "Namespace" {
			if u, err := b.params.Get(context.Background(), gvk, "", d.Object.GetName()); err == nil {
				b.snapshot.Namespaces.add(u)
			}
		}
	}
	for i, f := range features {
		if !f.parameters() {
			continue
		}
		for _, d := range b.of[i] {
			// A policy may read the mutator that it stands for. One that its schema does
			// not allow is no parameter, but what runs is decided by its own rules.
			_ = b.params.add(d.Object, "")
		}
	}
}

func (b *builder) readRBAC(d *manifest.Document, namespace string) {
	if _, err := rbac.New(d.Object); err != nil {
		b.fail(d.Errorf("%w", err))
		return
	}
	u := d.Object.DeepCopy()
	u.SetNamespace(namespace)
	b.rbac = append(b.rbac, u)
}

func (b *builder) buildAuthorizer() {
	b.snapshot.HasRBAC = len(b.rbac) > 0
	b.snapshot.authorizer = &asked{Authorizer: rbac.NoOpinion{}}
	if len(b.rbac) == 0 {
		return
	}
	a, err := rbac.New(b.rbac...)
	if err != nil {
		b.fail(err)
		return
	}
	b.snapshot.authorizer.Authorizer = a
}

// countOthers counts the objects that nothing uses, and reports those of the others that occur
// twice.
func (b *builder) countOthers() {
	for i, f := range features {
		b.readsAll = b.readsAll || f.readsAll() && len(b.of[i]) > 0
	}
	for _, t := range b.twice {
		if len(b.errs) > 0 || b.used(t.doc.Object.GroupVersionKind()) { // after errors, not all uses are known
			b.fail(t.err)
		}
	}
	for _, d := range b.others {
		if gvk := d.Object.GroupVersionKind(); !b.more[d] && !ignored(gvk) && !b.used(gvk) {
			b.snapshot.Ignored[gvk.Kind]++
		}
	}
}

// used reports whether objects of a kind may be read: as parameters, as Namespaces, by the
// authorizer, as providers, or by Kubewarden's policies, which may read any kind.
func (b *builder) used(gvk schema.GroupVersionKind) bool {
	return b.readsAll || b.paramKinds[gvk.GroupKind()] || gvk.Group == api.RBACGroup || legacy.IsProvider(gvk) ||
		gvk.Group == "" && gvk.Kind == "Namespace"
}

// reading is the result of compiling a policy's text.
type reading struct {
	compile.Policy
	sum [sha256.Size]byte // of the text
}

// compile compiles the policies on all cores. It reuses results of Options.Like for the same
// document or the same text.
func (b *builder) compile() []reading {
	deps := policy.Deps{Env: b.env, Types: b.snapshot.Types}
	var there map[*manifest.Document]reading
	if b.like != nil {
		there = b.like.compiled
	}
	same := sync.OnceValue(func() map[[sha256.Size]byte]reading {
		out := make(map[[sha256.Size]byte]reading, len(there))
		for _, r := range there {
			out[r.sum] = r
		}
		return out
	})
	out := make([]reading, len(b.policies))
	parallel.Each(len(out), func(i int) {
		var ok bool
		if out[i], ok = there[b.policies[i]]; ok {
			return
		}
		text, err := b.policies[i].JSONText()
		if err != nil {
			out[i].Err = err
			return
		}
		sum := sha256.Sum256(text)
		if out[i], ok = same()[sum]; !ok {
			out[i] = reading{compile.NewPolicy(b.ctx, text, compile.New, deps), sum}
		}
	})
	return out
}

// unheeded reports mapd's annotations on a document of Kubernetes' group: mapd restricts the
// policy by them, an API server does not.
func (b *builder) unheeded(d *manifest.Document, annotations map[string]string) {
	if d.Object.GroupVersionKind().Group != api.NativeGroup {
		return
	}
	if _, ok := annotations[api.ExistingAnnotation]; ok {
		b.snapshot.Unheeded = append(b.snapshot.Unheeded, fmt.Sprintf("%s: an API server does not read %s: objects that exist stay as they are; mapd reads it in the group %s", d.Name(), api.ExistingAnnotation, api.OwnGroup))
	}
	for _, key := range api.RestrictingAnnotations(annotations) {
		b.snapshot.Unheeded = append(b.snapshot.Unheeded, fmt.Sprintf("%s: an API server does not read %s: it enforces the policy, on all objects; mapd reads it in the group %s", d.Name(), key, api.OwnGroup))
	}
}

func (b *builder) readPolicies() {
	readings := b.compile()
	unknown := map[string]bool{}
	for i, r := range readings {
		if r.Err != nil {
			b.faults(b.policies[i], r.Err)
			continue
		}
		b.snapshot.compiled[b.policies[i]] = r
		program := r.Program
		if b.policies[i].Object.GroupVersionKind().Group == api.NativeGroup {
			b.snapshot.Native[program.Name()] = true
		}
		b.unheeded(b.policies[i], r.Object.Annotations)
		if t := tripOf(b.policies[i], program); t != nil {
			program = program.Tripped()
			b.snapshot.Tripped = append(b.snapshot.Tripped, fmt.Sprintf("%s: its breaker has tripped, so it does not change anything: %s (without status.breaker it is enforced)", program.Name(), t.Reason))
		}
		b.snapshot.Policies = append(b.snapshot.Policies, program)
		if pk := r.Object.Spec.ParamKind; pk != nil {
			gvk := schema.FromAPIVersionAndKind(pk.APIVersion, pk.Kind)
			b.paramKinds[gvk.GroupKind()] = true
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

// tripOf returns the trip of a policy's breaker in the document's status, which documents from a
// cluster may have. It returns nil if there is none, or if it belongs to another version of the
// policy.
func tripOf(d *manifest.Document, p *policy.Policy) *breaker.Trip {
	if p.Rollout().Breaker == nil {
		return nil
	}
	var object map[string]any
	if text, err := d.JSONText(); err != nil || json.Unmarshal(text, &object) != nil {
		return nil
	}
	return breaker.Current(&unstructured.Unstructured{Object: object})
}

func (b *builder) readBindings(unbound bool) {
	readings := make([]compile.Binding, len(b.bindings))
	var there map[*manifest.Document]compile.Binding
	if b.like != nil {
		there = b.like.bindings
	}
	parallel.Each(len(readings), func(i int) {
		var ok bool
		if readings[i], ok = there[b.bindings[i]]; ok {
			return
		}
		text, err := b.bindings[i].JSONText()
		if readings[i].Err = err; err == nil {
			readings[i] = compile.NewBinding(text, compile.New)
		}
	})
	bound := map[string]bool{}
	names := map[string]bool{}
	known := map[string]bool{}
	for _, p := range b.snapshot.Policies {
		known[p.Name()] = true
	}
	for i, r := range readings {
		d := b.bindings[i]
		names[d.Object.GetName()] = true
		if r.Err != nil {
			b.faults(d, r.Err)
			continue
		}
		b.snapshot.bindings[d] = r
		for _, field := range r.Older {
			b.snapshot.Older = append(b.snapshot.Older, fmt.Sprintf("%s: %s is filled in by %s only, required in v1", d.Name(), field, d.Object.GetAPIVersion()))
		}
		b.compiled = append(b.compiled, r.Program)
		name := r.Program.PolicyName()
		bound[name] = true
		b.unheeded(d, r.Object.Annotations)
		if group := d.Object.GroupVersionKind().Group; known[name] && (group == api.NativeGroup) != b.snapshot.Native[name] {
			other := api.NativeGroup
			if group == other {
				other = api.OwnGroup
			}
			b.snapshot.Apart = append(b.snapshot.Apart, fmt.Sprintf("%s is of %s and its policy %s of %s: in a cluster, the API server has one and mapd the other, so the policy does nothing", d.Name(), group, name, other))
		}
	}
	for _, p := range b.snapshot.Policies {
		if bound[p.Name()] {
			continue
		}
		b.snapshot.Unbound = append(b.snapshot.Unbound, p.Name())
		if !unbound {
			continue
		}
		name := unboundBinding
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

// unboundBinding is the prefix of the names of bindings that Options.Unbound creates.
const unboundBinding = "unbound"
