//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/test/cases"
)

// object is something to create: where, and what. The path of a policy or
// binding is only its resource.
type object struct {
	path  string
	tree  map[string]any
	owner string // the case
	// shared: other cases make the same.
	shared bool
}

// plan is a case as it is run on a server.
type plan struct {
	c *cases.Case
	// first is made before second, and both before any policy; during only while
	// the case runs, because it would matter to others.
	first, second, during []object
	// customKinds has an object of every version of every custom kind.
	customKinds []object
	policies    []object
	request     request
	// update is the path of the object that the request replaces; "" if its body
	// holds no version.
	update string
	// parent is what a subresource belongs to, or what is updated.
	parent string
	// watched are paths of objects that expressions may see.
	watched []string
	// cluster: the object has no namespace of the case around it.
	cluster bool

	id       string
	rewriter *rewriter
}

// planAll is planOf the minor of servers/go.mod.
func planAll(t *testing.T, only *regexp.Regexp) (plans []*plan, skipped map[string]string) {
	t.Helper()
	return planOf(t, cases.Current, only)
}

// planOf plans every case about a minor that can run, and says of the others why they cannot.
func planOf(t *testing.T, minor int, only *regexp.Regexp) (plans []*plan, skipped map[string]string) {
	t.Helper()
	skipped = map[string]string{}
	for i, c := range cases.Of(t, minor) {
		// Mutators have TestGatekeeper and guests TestKubewarden; Kubernetes has neither.
		if !only.MatchString(c.Name) || len(c.Mutators)+len(c.Guests) > 0 {
			continue
		}
		if why := cannotRun(&c); why != "" {
			skipped[c.Name] = why
			continue
		}
		p, err := newPlan(&c, fmt.Sprintf("c%03d", i))
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		plans = append(plans, p)
	}
	return plans, skipped
}

func newPlan(c *cases.Case, id string) (*plan, error) {
	r := newRewriter(c, id)
	p := &plan{c: c, id: id, rewriter: r}
	spec := &c.Request

	// Namespaces: those that the case names, and those that its objects are in.
	namespaces := map[string]map[string]any{}
	for _, n := range c.Namespaces {
		namespaces[r.name(n.GetName())] = bare(r.tree(n.Object))
	}
	objects := slices.Concat(c.Params, c.RBAC)
	for _, o := range objects {
		if ns := r.name(o.GetNamespace()); ns != "" && namespaces[ns] == nil {
			namespaces[ns] = map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns}}
		}
	}
	for _, ns := range slices.Sorted(maps.Keys(namespaces)) {
		p.first = append(p.first, object{path: "/api/v1/namespaces", tree: namespaces[ns]})
		p.watched = append(p.watched, "/api/v1/namespaces/"+ns)
	}

	resources := map[schema.GroupVersionKind]string{}
	for _, crd := range c.CRDs {
		tree := r.tree(crd.Object)
		p.first = append(p.first, object{path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", tree: bare(tree)})
		kinds, err := served(tree)
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			resources[k.gvk] = k.resource
			ns := ""
			if k.namespaced {
				ns = "canary"
			}
			p.customKinds = append(p.customKinds, object{
				path: collection(k.gvk.GroupVersion(), k.resource, ns),
				tree: map[string]any{"apiVersion": k.gvk.GroupVersion().String(), "kind": k.gvk.Kind, "metadata": map[string]any{"name": "probe"}},
			})
		}
	}
	resource := func(gvk schema.GroupVersionKind) string {
		if known, ok := resources[gvk]; ok {
			return known
		}
		return plural(gvk.Kind)
	}
	place := func(tree map[string]any, namespaced bool) object {
		u := unstructured.Unstructured{Object: tree}
		ns := u.GetNamespace()
		if !namespaced {
			ns = ""
		}
		gvk := u.GroupVersionKind()
		return object{path: collection(gvk.GroupVersion(), resource(gvk), ns), tree: tree}
	}
	for _, o := range objects {
		made := place(bare(r.tree(o.Object)), o.GetNamespace() != "")
		// Roles of the cluster are alike in all cases that have them.
		made.shared = strings.HasPrefix(made.path, "/apis/rbac.") && o.GetNamespace() == ""
		p.second = append(p.second, made)
		if !made.shared {
			p.watched = append(p.watched, made.path+"/"+o.GetName())
		}
	}
	for _, o := range slices.Concat(c.Policies, c.Bindings) {
		tree := bare(r.tree(o.Object))
		if strings.HasSuffix(o.GetAPIVersion(), "/v1alpha1") {
			defaultNotFound(tree)
		}
		p.policies = append(p.policies, object{path: plural(o.GetKind()), tree: tree})
	}

	ns := r.name(spec.Namespace)
	isNamespace := spec.Resource.Group == "" && spec.Resource.Resource == "namespaces"
	if isNamespace {
		ns = ""
	}
	p.cluster = ns == "" && !isNamespace
	gv := schema.GroupVersion{Group: r.group(spec.RequestResource.Group), Version: spec.RequestResource.Version}
	base := collection(gv, spec.RequestResource.Resource, ns)
	name := spec.Name
	if isNamespace {
		name = r.name(name)
	}
	sub := spec.SubResource

	// The object before the request, or the one that the subresource is of.
	switch old := spec.OldObject; {
	case sub == "" && spec.Operation == "UPDATE":
		if old == nil {
			old = spec.Object
		}
		made := object{path: base, tree: bare(r.tree(old.Object))}
		if isNamespace {
			p.first = slices.DeleteFunc(p.first, func(o object) bool { return lookup(o.tree, "metadata", "name") == name })
			p.first = append(p.first, made)
		} else {
			p.second = append(p.second, made)
		}
	case sub != "":
		made, err := owner(r, spec, base, gv, name)
		if err != nil {
			return nil, err
		}
		p.second = append(p.second, made)
	}
	if sub != "" || spec.Operation == "UPDATE" {
		p.parent = base + "/" + name
		p.watched = append(p.watched, p.parent)
	}

	p.request = request{method: http.MethodPost, path: base, user: spec}
	query := url.Values{}
	switch {
	case spec.Operation == "UPDATE":
		p.request.method, p.request.path = http.MethodPut, base+"/"+name
		// What belongs to the object itself must fit what is stored.
		if sub == "" || spec.Object.GetKind() != "Scale" {
			p.update = base + "/" + name
		}
	case sub != "":
		p.request.path = base + "/" + name
	}
	if sub != "" {
		p.request.path += "/" + sub
	}
	if spec.Operation == "CONNECT" {
		connect(query, spec)
	} else {
		p.request.body = bare(r.tree(spec.Object.Object))
	}
	if spec.DryRun {
		query.Set("dryRun", "All")
	}
	if manager, ok := spec.Options["fieldManager"].(string); ok {
		query.Set("fieldManager", manager)
	}
	if len(query) > 0 {
		p.request.path += "?" + query.Encode()
	}
	scope := ns
	if namespaces[ns] == nil {
		scope = "" // the case is about a namespace that is not there
	}
	if granted := rights(p, spec, gv.Group, scope); scope == "" {
		p.during = granted
	} else {
		p.second = append(p.second, granted...)
	}

	for _, list := range [][]object{p.first, p.second, p.customKinds, p.policies} {
		for i := range list {
			list[i].owner = c.Name
		}
	}
	return p, nil
}

// rights lets the requester do what the request itself needs and nothing else:
// an administrator would pass every check of an expression.
func rights(p *plan, spec *cases.RequestSpec, group, ns string) []object {
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update"}[p.request.method]
	resource := spec.RequestResource.Resource
	if spec.SubResource != "" {
		resource += "/" + spec.SubResource
	}
	kind, roles, bindings := "Role", collection(rbac, "roles", ns), collection(rbac, "rolebindings", ns)
	if ns == "" {
		kind, roles, bindings = "ClusterRole", collection(rbac, "clusterroles", ""), collection(rbac, "clusterrolebindings", "")
	}
	meta := map[string]any{"name": "requester-" + p.id}
	rules := []any{map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": []any{verb}}}
	if group == rbac.Group {
		// Roles may be handed on only by those who have them, or who may do this.
		rules = append(rules, map[string]any{
			"apiGroups": []any{group}, "resources": []any{"roles", "clusterroles"}, "verbs": []any{"escalate", "bind"},
		})
	}
	return []object{
		{path: roles, tree: map[string]any{"apiVersion": rbac.String(), "kind": kind, "metadata": meta, "rules": rules}},
		{path: bindings, tree: map[string]any{"apiVersion": rbac.String(), "kind": kind + "Binding", "metadata": meta,
			"roleRef":  map[string]any{"apiGroup": rbac.Group, "kind": kind, "name": meta["name"]},
			"subjects": []any{map[string]any{"apiGroup": rbac.Group, "kind": "User", "name": spec.User.Username}},
		}},
	}
}

var rbac = schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}

// owner is the object that a subresource belongs to, before the request.
func owner(r *rewriter, spec *cases.RequestSpec, base string, gv schema.GroupVersion, name string) (object, error) {
	old := spec.OldObject
	meta := map[string]any{"name": name, "namespace": r.name(spec.Namespace)}
	switch resource := spec.RequestResource.Resource; {
	case old != nil && old.GetKind() != "Scale":
		return object{path: base, tree: bare(r.tree(old.Object))}, nil
	case old != nil && resource == "deployments":
		replicas, _, err := unstructured.NestedInt64(old.Object, "spec", "replicas")
		return object{path: base, tree: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": map[string]any{
			"replicas": replicas,
			"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}, "spec": podSpec},
		}}}, err
	case old != nil && resource == "widgets":
		replicas, _, err := unstructured.NestedInt64(old.Object, "spec", "replicas")
		return object{path: base, tree: map[string]any{"apiVersion": gv.String(), "kind": "Widget", "metadata": meta,
			"spec": map[string]any{"size": replicas}}}, err
	case resource == "pods":
		return object{path: base, tree: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": podSpec}}, nil
	case resource == "serviceaccounts":
		return object{path: base, tree: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}}, nil
	}
	return object{}, fmt.Errorf("what does the subresource %s/%s belong to?", spec.RequestResource.Resource, spec.SubResource)
}

var podSpec = map[string]any{"containers": []any{
	map[string]any{"name": "app", "image": "shop/app:1"}, map[string]any{"name": "log", "image": "shop/log:1"},
}}

// connect writes the options of pods/exec as their query.
func connect(query url.Values, spec *cases.RequestSpec) {
	if spec.Object == nil {
		return
	}
	for key, v := range spec.Object.Object {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				query.Add(key, fmt.Sprint(item))
			}
		case bool:
			query.Set(key, fmt.Sprint(v))
		case string:
			if key != "apiVersion" && key != "kind" && v != "" {
				query.Set(key, v)
			}
		}
	}
}

// rewriter gives the namespaces and the API group of a case names that no other
// case has. Both twins get the same ones.
type rewriter struct {
	id         string
	custom     bool
	namespaces map[string]bool
	quoted     *regexp.Regexp
}

var exampleGroup = regexp.MustCompile(`\bexample\.com\b`)

func newRewriter(c *cases.Case, id string) *rewriter {
	r := &rewriter{id: id, custom: len(c.CRDs) > 0, namespaces: map[string]bool{}}
	add := func(name string) {
		if name != "" {
			r.namespaces[name] = true
		}
	}
	for _, o := range slices.Concat(c.Params, c.RBAC) {
		add(o.GetNamespace())
	}
	for _, o := range c.Namespaces {
		add(o.GetName())
	}
	add(c.Request.Namespace)
	if len(r.namespaces) > 0 {
		names := slices.Sorted(maps.Keys(r.namespaces))
		r.quoted = regexp.MustCompile(`(["'])(` + strings.Join(names, "|") + `)(["'])`)
	}
	return r
}

func (r *rewriter) name(ns string) string {
	if r.namespaces[ns] {
		return ns + "-" + r.id
	}
	return ns
}

func (r *rewriter) group(g string) string {
	if r.custom {
		return exampleGroup.ReplaceAllString(g, r.id+".example.com")
	}
	return g
}

// undo takes the names of a case out of a text again.
func (r *rewriter) undo(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, r.id+".", ""), "-"+r.id, "")
}

// tree rewrites every string of a tree: one that is the name of a namespace, one
// that quotes such a name, as an expression does, and the API group anywhere.
func (r *rewriter) tree(in map[string]any) map[string]any {
	return r.value(in).(map[string]any)
}

func (r *rewriter) value(in any) any {
	switch in := in.(type) {
	case map[string]any:
		out := make(map[string]any, len(in))
		for k, v := range in {
			out[r.group(k)] = r.value(v)
		}
		return out
	case []any:
		out := make([]any, len(in))
		for i, v := range in {
			out[i] = r.value(v)
		}
		return out
	case string:
		s := r.name(r.group(in))
		if r.quoted != nil {
			s = r.quoted.ReplaceAllString(s, "${1}${2}-"+r.id+"${3}")
		}
		return s
	}
	return in
}

type customKind struct {
	gvk        schema.GroupVersionKind
	resource   string
	namespaced bool
}

// served lists the versions that a CRD serves.
func served(tree map[string]any) ([]customKind, error) {
	crd, err := cases.DecodeCRD(&unstructured.Unstructured{Object: tree})
	if err != nil {
		return nil, err
	}
	var all []customKind
	for _, v := range crd.Spec.Versions {
		if v.Served {
			all = append(all, customKind{
				schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind},
				crd.Spec.Names.Plural, crd.Spec.Scope == "Namespaced",
			})
		}
	}
	return all, nil
}

// collection is the path of all objects of a resource.
func collection(gv schema.GroupVersion, resource, ns string) string {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	if ns != "" {
		path += "/namespaces/" + ns
	}
	return path + "/" + resource
}

// plural is right for the kinds that cases use beside their own.
func plural(kind string) string {
	lower := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(lower, "policy"), strings.HasSuffix(lower, "capacity"):
		return strings.TrimSuffix(lower, "y") + "ies"
	case strings.HasSuffix(lower, "class"), strings.HasSuffix(lower, "ingress"):
		return lower + "es"
	}
	return lower + "s"
}

// bare is an object as a client sends it: without what only a server writes.
func bare(tree map[string]any) map[string]any {
	out := clone(tree)
	if meta, ok := out["metadata"].(map[string]any); ok {
		for _, key := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"} {
			delete(meta, key)
		}
	}
	return out
}

// defaultNotFound fills in what only v1alpha1 defaults: the servers are asked in
// v1.
func defaultNotFound(tree map[string]any) {
	ref, ok := lookup(tree, "spec", "paramRef").(map[string]any)
	if ok && ref["parameterNotFoundAction"] == nil {
		ref["parameterNotFoundAction"] = "Deny"
	}
}

// The canary is a policy that denies a kind of objects that no case touches. It
// is made after the policies of the case, so when it acts, they do.

const canaryPath = "/api/v1/namespaces/canary/resourcequotas"

var (
	canaryNamespace = object{path: "/api/v1/namespaces", owner: "canary", tree: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "canary"},
	}}
	canaryObject = map[string]any{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "canary"}}
)

func canary(name string) []object {
	return policy(name, `[JSONPatch{op: "remove", path: "/there/is/no/such/field"}]`, "JSONPatch", []any{""}, []any{"resourcequotas"})
}

// probe labels every object of every custom kind.
var (
	probe                     = policy("probe", `Object{metadata: Object.metadata{labels: {"probed": "yes"}}}`, "ApplyConfiguration", []any{"*"}, []any{"*"})
	probePolicy, probeBinding = probe[0], probe[1]
)

// policy is a policy for the creation of some resources, and its binding.
func policy(name, expression, patchType string, groups, resources []any) []object {
	member := strings.ToLower(patchType[:1]) + patchType[1:]
	if patchType == "JSONPatch" {
		member = "jsonPatch"
	}
	meta := map[string]any{"name": name}
	return []object{
		{path: "mutatingadmissionpolicies", tree: map[string]any{"kind": "MutatingAdmissionPolicy", "metadata": meta, "spec": map[string]any{
			"reinvocationPolicy": "Never",
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": groups, "apiVersions": []any{"*"}, "operations": []any{"CREATE"}, "resources": resources,
			}}},
			"mutations": []any{map[string]any{"patchType": patchType, member: map[string]any{"expression": expression}}},
		}}},
		{path: "mutatingadmissionpolicybindings", tree: map[string]any{
			"kind": "MutatingAdmissionPolicyBinding", "metadata": meta, "spec": map[string]any{"policyName": name},
		}},
	}
}

func impersonate(h http.Header, user authenticationv1.UserInfo) {
	h.Set("Impersonate-User", user.Username)
	if user.UID != "" {
		h.Set("Impersonate-Uid", user.UID)
	}
	for _, g := range user.Groups {
		h.Add("Impersonate-Group", g)
	}
	for key, values := range user.Extra {
		for _, v := range values {
			h.Add("Impersonate-Extra-"+url.PathEscape(key), v)
		}
	}
}

func clone(tree map[string]any) map[string]any { return runtime.DeepCopyJSON(tree) }

func lookup(tree any, path ...string) any {
	for _, key := range path {
		m, ok := tree.(map[string]any)
		if !ok {
			return nil
		}
		tree = m[key]
	}
	return tree
}

func message(body any) string {
	if s, ok := body.(string); ok {
		return s
	}
	s, _ := lookup(body, "message").(string)
	return s
}

func setVersion(body any, version any) any {
	tree := clone(body.(map[string]any))
	meta, ok := tree["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		tree["metadata"] = meta
	}
	meta["resourceVersion"] = version
	return tree
}
