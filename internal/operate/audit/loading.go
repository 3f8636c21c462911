package audit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/internal/document/manifest"
	kyverno "github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Loading says which policies a Set has, and how they run. Env is required.
type Loading struct {
	Env *cel.Env
	// Files, if not nil, are read instead of the cluster's policies. Namespaces,
	// CustomResourceDefinitions and parameters that they lack are read from the cluster.
	Files []manifest.Input
	// Unbound gives policies without a binding one for all objects.
	Unbound bool
	// Native, Mutators, Kyverno and Modules add the cluster's policies of Kubernetes' own group,
	// Gatekeeper's mutators, Kyverno's policies and Kubewarden's. Those in files always run.
	Native, Mutators, Kyverno, Modules bool
	// Only, if not empty, are the names of the only policies that run; no mutators, Kyverno's or
	// Kubewarden's policies run then.
	Only []string
	// Enforced skips policies and bindings that are not enforced.
	Enforced bool
	// Whole applies bindings to all objects, whatever their share is.
	Whole bool
	// Loader loads the modules of Kubewarden's policies.
	Loader kubewarden.Loader
	// Authorizer answers permission checks in policies.
	Authorizer authorizer.Authorizer
}

// Set has the policies of an audit. It is immutable.
type Set struct {
	// Problems describe policies that were left out, and parameters that could not be read.
	Problems []string
	// Incomplete says that something could not be read on which decisions depend: definitions,
	// Namespaces, exceptions or parameters. Problems say what.
	Incomplete bool
	// Policies is how many policies, mutators and policies of Kubewarden run.
	Policies int
	// Digest identifies the policies and what they read.
	Digest string

	options string // part of what Options.digest returns
	types   *openapi.Types
	whole   *engine.Engine
	native  *engine.Engine       // for policies that the API server runs itself; nil: none
	modes   map[[2]string]string // by policy and binding, of those that are not enforced
}

// Served returns a Set with the policies of an engine, each in its mode. Nothing may be published
// to the Engine afterwards.
func Served(e *engine.Engine, types *openapi.Types) *Set { return &Set{types: types, whole: e} }

// nativeStage is the name of the stage that stands for the API server's own policies.
const nativeStage = "native policies"

// surroundings returns the CustomResourceDefinitions, Namespaces and exceptions of a cluster.
func (c *Cluster) surroundings(ctx context.Context) (docs []*manifest.Document, problems []string, err error) {
	for _, of := range []schema.GroupVersionKind{
		{Group: api.DefinitionGroup, Kind: api.DefinitionKind, Version: "v1"}, {Kind: "Namespace", Version: "v1"}, api.Exceptions.GroupVersion().WithKind(api.ExceptionKind),
	} {
		r, ok := c.Serves(of.Group, of.Kind, of.Version)
		if !ok {
			continue
		}
		more, err := c.documents(ctx, r, query{})
		switch {
		case err == nil:
			docs = append(docs, more...)
		case unreadable(err):
			problems = append(problems, err.Error())
		default:
			return nil, nil, err
		}
	}
	return docs, problems, nil
}

// unreadable reports whether an error means that the user may not read a resource, or that it
// cannot be listed. Other errors end an audit.
func unreadable(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsUnauthorized(err)
}

// refused reports whether err is an answer of the server.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// documents lists objects as documents.
func (c *Cluster) documents(ctx context.Context, r Resource, q query) (docs []*manifest.Document, err error) {
	err = c.each(ctx, r, q, func(u *unstructured.Unstructured) error {
		meta, _ := u.Object["metadata"].(map[string]any)
		delete(meta, "managedFields")
		docs = append(docs, document(u))
		return nil
	})
	return docs, err
}

func document(u *unstructured.Unstructured) *manifest.Document {
	return &manifest.Document{Object: u, File: manifest.Name(u), Index: 1}
}

// decode decodes an object of a list. Its kind is r's, because servers omit it in lists.
func decode(item json.RawMessage, r Resource) (*unstructured.Unstructured, error) {
	o, err := tree.Decode(item)
	if err != nil {
		return nil, fmt.Errorf("an object of %s: %w", r.GVR.GroupResource(), err)
	}
	u := &unstructured.Unstructured{Object: o}
	u.SetGroupVersionKind(r.GVK)
	return u, nil
}

// policyKinds are the kinds of policies to read of a cluster.
func (l *Loading) policyKinds(native bool) [][]schema.GroupVersionKind {
	versions := func(group, kind string, versions ...string) (out []schema.GroupVersionKind) {
		for _, v := range versions {
			out = append(out, schema.GroupVersionKind{Group: group, Version: v, Kind: kind})
		}
		return out
	}
	if native {
		return [][]schema.GroupVersionKind{
			versions(api.NativeGroup, api.PolicyKind, "v1", "v1beta1", "v1alpha1"), versions(api.NativeGroup, api.BindingKind, "v1", "v1beta1", "v1alpha1"),
		}
	}
	kinds := [][]schema.GroupVersionKind{versions(api.OwnGroup, api.PolicyKind, "v1"), versions(api.OwnGroup, api.BindingKind, "v1")}
	if l.Mutators {
		for _, kind := range legacy.Kinds() {
			kinds = append(kinds, versions(legacy.Group, string(kind), "v1", "v1beta1", "v1alpha1"))
		}
		kinds = append(kinds, versions(legacy.ConfigGroup, "Config", "v1alpha1"))
	}
	if l.Kyverno {
		kinds = append(kinds, kyverno.Served()...)
	}
	if l.Modules {
		kinds = append(kinds, versions(kubewarden.Group, kubewarden.ClusterPolicyKind, kubewarden.Version), versions(kubewarden.Group, kubewarden.PolicyKind, kubewarden.Version))
	}
	return kinds
}

// Load reads policies and all that they read besides the objects. The error of files is
// errors.Join of errors with their positions.
func (c *Cluster) Load(ctx context.Context, l Loading) (*Set, error) {
	around, problems, err := c.surroundings(ctx)
	if err != nil {
		return nil, err
	}
	s := &Set{Problems: problems, Incomplete: len(problems) > 0, options: fmt.Sprint(l.Whole, l.Unbound, l.Only), modes: map[[2]string]string{}}
	sum := sha256.New()
	b := setBuilder{Set: s, cluster: c, loading: &l, around: around, installation: c.Installation(ctx), sum: sum}
	if l.Files != nil {
		docs, errs := manifest.ReadAll(l.Files, func(*manifest.Document) {})
		if len(errs) > 0 {
			return nil, errors.Join(errs...)
		}
		docs = slices.DeleteFunc(docs, func(d *manifest.Document) bool { return d.Object == nil })
		if err := b.add(ctx, docs, false); err != nil {
			return nil, err
		}
	} else {
		for _, native := range []bool{true, false} {
			if native && !l.Native {
				continue
			}
			docs, err := b.read(ctx, native)
			if err != nil {
				return nil, err
			}
			if err := b.add(ctx, docs, native); err != nil {
				return nil, err
			}
		}
	}
	s.Digest = hex.EncodeToString(sum.Sum(nil))
	var stages []engine.Stage
	for _, e := range b.engines {
		stages = append(stages, e.Stages()...)
	}
	last := b.engines[len(b.engines)-1]
	s.whole = last.With(func(o *engine.Options) {})
	s.whole.Publish(stages...)
	if l.Files == nil && l.Native {
		s.native = b.engines[0]
	}
	return s, nil
}

// setBuilder makes a Set.
type setBuilder struct {
	*Set
	cluster *Cluster
	loading *Loading
	around  []*manifest.Document
	// installation is the namespace of mapd, whose exceptions are for all namespaces; "" is the
	// default one.
	installation string

	sum     hash.Hash
	engines []*engine.Engine
	first   *policyset.Snapshot
}

// read lists the policies of a cluster.
func (b *setBuilder) read(ctx context.Context, native bool) (docs []*manifest.Document, err error) {
	for _, versions := range b.loading.policyKinds(native) {
		var names []string
		for _, v := range versions {
			names = append(names, v.Version)
		}
		r, ok := b.cluster.Serves(versions[0].Group, versions[0].Kind, names...)
		if !ok {
			continue
		}
		more, err := b.cluster.documents(ctx, r, query{})
		if err != nil {
			// Without its policies, an audit would always find that nothing changes.
			return nil, err
		}
		docs = append(docs, more...)
	}
	return docs, nil
}

// add compiles policies and the objects that they need. A fault in a file is an error; a policy
// of the cluster with a fault is left out.
func (b *setBuilder) add(ctx context.Context, docs []*manifest.Document, native bool) error {
	more, err := b.params(ctx, docs)
	if err != nil {
		return err
	}
	more = append(slices.Clip(b.around), more...)
	if native {
		more = withoutExceptions(more)
	}
	opts := policyset.Options{
		Env: b.loading.Env, Mode: b.mode, Whole: b.loading.Whole, Unbound: b.loading.Unbound, Modules: b.loading.Loader,
		Installation: b.installation,
	}
	if len(b.loading.Only) > 0 {
		opts.Mutators, opts.Kyverno, opts.ModuleMode = api.Off, api.Off, api.Off
	}
	opts.Like = b.first
	var built *policyset.Snapshot
	for built == nil {
		opts.More = more
		all := append(slices.Clip(docs), more...)
		now, errs := policyset.Build(all, opts)
		if len(errs) == 0 {
			built = now
			break
		}
		left := map[string]bool{}
		for _, err := range errs {
			var at *manifest.PositionError
			if !errors.As(err, &at) {
				return err
			}
			left[at.File] = true
		}
		drop := func(d *manifest.Document) bool { return left[d.File] && d.Raw == nil } // Raw: of a file
		before := len(all)
		docs, more = slices.DeleteFunc(slices.Clone(docs), drop), slices.DeleteFunc(slices.Clone(more), drop)
		if len(docs)+len(more) == before {
			return errors.Join(errs...)
		}
		for _, err := range errs {
			b.Problems = append(b.Problems, "left out: "+err.Error())
		}
	}
	for _, d := range slices.Concat(docs, more) {
		digest(b.sum, d.Object)
	}
	now := time.Now()
	for _, x := range built.Exceptions() {
		for _, text := range x.Problems(now) {
			b.Problems = append(b.Problems, "exception "+x.Name()+" "+text)
		}
	}
	for _, name := range built.NotLoaded() {
		b.Problems = append(b.Problems, "left out: "+name+": nothing loads its module")
	}
	for _, kind := range built.UnknownParams {
		b.Problems = append(b.Problems, "the cluster does not serve the paramKind "+kind)
	}
	for _, m := range built.Mutators() {
		if !m.Running {
			b.Problems = append(b.Problems, "left out: "+m.Mutator.ID()+": "+m.Reason)
		}
	}
	rules := 0
	for _, r := range built.Kyverno() {
		if r.Unconverted == "" {
			rules++
		} else {
			b.Problems = append(b.Problems, "left out: "+r.Text())
		}
	}
	b.types = built.Types
	b.first = cmp.Or(b.first, built)
	b.Policies += len(built.Index.Bindings()) - len(built.Dangling) + len(built.Mutators()) + rules + len(built.Modules())
	e := built.Engine().With(func(o *engine.Options) {
		if b.loading.Authorizer != nil {
			o.Authorizer = b.loading.Authorizer
		}
	})
	if native {
		stages := slices.Clone(e.Stages())
		stages[0].Name = nativeStage
		e.Publish(stages...)
	}
	b.engines = append(b.engines, e)
	return nil
}

// mode returns Enforce, so that every policy runs as if it were enforced, and records the actual
// mode. With Loading.Enforced, policies in other modes do not run.
func (b *setBuilder) mode(p *policy.Policy, by *binding.Binding, written api.Mode) api.Mode {
	if only := b.loading.Only; len(only) > 0 && !slices.Contains(only, p.Name()) {
		return api.Off
	}
	if written != api.Enforce {
		if b.loading.Enforced {
			return api.Off
		}
		b.modes[[2]string{p.Name(), by.Name()}] = written.String()
	}
	return api.Enforce
}

// digest adds what counts of an object.
func digest(sum hash.Hash, u *unstructured.Unstructured) {
	rest := make(map[string]any, len(u.Object))
	for name, v := range u.Object {
		if name != "metadata" && name != "status" {
			rest[name] = v
		}
	}
	rest["metadata"] = map[string]any{"namespace": u.GetNamespace(), "name": u.GetName(), "labels": u.GetLabels(), "annotations": u.GetAnnotations()}
	_ = json.NewEncoder(sum).Encode(rest) // it came as JSON
}

// params reads the parameters that policies and bindings name.
func (b *setBuilder) params(ctx context.Context, docs []*manifest.Document) (out []*manifest.Document, err error) {
	kinds := map[string]schema.GroupVersionKind{} // by policy
	for _, d := range docs {
		if u := d.Object; api.IsAdmission(u.GroupVersionKind().Group) && u.GetKind() == api.PolicyKind {
			if kind, ok, _ := unstructured.NestedStringMap(u.Object, "spec", "paramKind"); ok {
				kinds[u.GetName()] = schema.FromAPIVersionAndKind(kind["apiVersion"], kind["kind"])
			}
		}
	}
	type wanted struct {
		gvk schema.GroupVersionKind
		q   query
	}
	asked := map[wanted]bool{}
	have := map[string]bool{}
	for _, d := range docs {
		u := d.Object
		name, _, _ := unstructured.NestedString(u.Object, "spec", "policyName")
		gvk, ok := kinds[name]
		if u.GetKind() != api.BindingKind || !ok {
			continue
		}
		r, ok := b.cluster.Serves(gvk.Group, gvk.Kind, gvk.Version)
		if !ok {
			continue
		}
		q, ok := paramQuery(u)
		if !r.Namespaced {
			q.namespace = ""
		}
		if !ok || asked[wanted{gvk, q}] {
			continue
		}
		asked[wanted{gvk, q}] = true
		found, err := b.cluster.documents(ctx, r, q)
		switch {
		case err == nil:
		case unreadable(err):
			b.Problems = append(b.Problems, fmt.Sprintf("policy %s runs as if it had no parameters: %v", name, err))
			b.Incomplete = true
		default:
			return nil, err
		}
		for _, d := range found {
			// Two bindings may name the same.
			if key := gvk.String() + " " + d.File; !have[key] {
				have[key] = true
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// paramQuery returns a query for the parameters that a binding selects; false if it has no valid
// paramRef. It restricts the namespace only if the binding names one.
func paramQuery(binding *unstructured.Unstructured) (q query, ok bool) {
	ref, ok, _ := unstructured.NestedMap(binding.Object, "spec", "paramRef")
	if !ok {
		return q, false
	}
	q.namespace, _ = ref["namespace"].(string)
	if name, _ := ref["name"].(string); name != "" {
		q.fields = "metadata.name=" + name
		return q, true
	}
	text, err := json.Marshal(ref["selector"])
	if err != nil {
		return q, false
	}
	var selector metav1.LabelSelector
	if json.Unmarshal(text, &selector) != nil {
		return q, false
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return q, false
	}
	q.labels = parsed.String()
	return q, true
}

// mayMeet reports whether any policy can apply to requests of the kind of req.
func (s *Set) mayMeet(req *policy.Request) bool { return s.whole.MayMeet(req) }

// Documents returns the policies of mapd's group, or with l.Native those of the API server
// instead, with their bindings, parameters, definitions, Namespaces and exceptions. problems say
// which definitions, Namespaces and exceptions could not be read. Of l only Native, Mutators, Kyverno and Modules count.
func (c *Cluster) Documents(ctx context.Context, l Loading) (docs []*manifest.Document, problems []string, err error) {
	around, problems, err := c.surroundings(ctx)
	if err != nil {
		return nil, nil, err
	}
	b := setBuilder{Set: &Set{Problems: problems}, cluster: c, loading: &l, around: around}
	if docs, err = b.read(ctx, l.Native); err != nil {
		return nil, nil, err
	}
	params, err := b.params(ctx, docs)
	if err != nil {
		return nil, nil, err
	}
	if more := b.Problems[len(problems):]; len(more) > 0 {
		return nil, nil, errors.New(strings.Join(more, "; "))
	}
	if l.Native {
		around = withoutExceptions(around)
	}
	return slices.Concat(docs, params, around), problems, nil
}

// Needs returns the objects of a cluster that policies and bindings read besides the object of
// the request: parameters, CustomResourceDefinitions and Namespaces. problems say what could not
// be read.
func (c *Cluster) Needs(ctx context.Context, policies []*manifest.Document) (docs []*manifest.Document, problems []string, err error) {
	around, problems, err := c.surroundings(ctx)
	if err != nil {
		return nil, nil, err
	}
	b := setBuilder{Set: &Set{Problems: problems}, cluster: c, loading: &Loading{}, around: around}
	params, err := b.params(ctx, policies)
	if err != nil {
		return nil, nil, err
	}
	return slices.Concat(params, around), b.Problems, nil
}
