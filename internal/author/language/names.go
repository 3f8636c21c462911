package language

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/author/forms"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// head has the parts of an object that other documents refer to.
type head struct {
	document                          int    // its number in the file
	title                             string // as findings have it
	apiVersion, kind, namespace, name string
	labels                            map[string]string // of a Namespace
	paramKind                         [2]string         // apiVersion and kind, of a policy
	policyName                        string            // of a binding
}

// maxHeads bounds those of a document.
const maxHeads = 2_000

func heads(name, text string) (out []head) {
	for d, err := range manifest.ReadStream(name, strings.NewReader(text)) {
		if err != nil || d.Object == nil {
			continue
		}
		o := d.Object
		h := head{document: d.Index, title: d.Name(), apiVersion: o.GetAPIVersion(), kind: o.GetKind(), namespace: o.GetNamespace(), name: o.GetName()}
		if h.kind == "Namespace" {
			h.labels = o.GetLabels()
		}
		spec, _ := o.Object["spec"].(map[string]any)
		if h.kind == api.BindingKind {
			h.policyName, _ = spec["policyName"].(string)
		}
		if h.kind == api.PolicyKind {
			if param, ok := spec["paramKind"].(map[string]any); ok {
				h.paramKind[0], _ = param["apiVersion"].(string)
				h.paramKind[1], _ = param["kind"].(string)
			}
		}
		if out = append(out, h); len(out) == maxHeads {
			break
		}
	}
	return out
}

// heads yields the heads of all documents, sorted by the names of the documents.
func (w *Workspace) heads(yield func(head) bool) {
	w.mu.Lock()
	files := w.sorted()
	w.mu.Unlock()
	for _, f := range files {
		for _, h := range f.heads() {
			if !yield(h) {
				return
			}
		}
	}
}

// names are the names of objects for which a condition holds.
func (w *Workspace) names(is func(head) bool) (out []string) {
	for h := range w.heads {
		if h.name != "" && is(h) {
			out = append(out, quoted(h.name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// excepted returns the names by which an exception can refer to the policies.
func (w *Workspace) excepted() (out []string) {
	for h := range w.heads {
		gvk := schema.FromAPIVersionAndKind(h.apiVersion, h.kind)
		if name := api.ExceptionName(gvk, h.name); name != "" && h.name != "" && gvk.Group != api.NativeGroup {
			out = append(out, quoted(name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func isNamespace(h head) bool { return h.kind == "Namespace" && h.apiVersion == "v1" }

// quoted is a text as YAML has it.
func quoted(text string) string {
	if text == "" || strings.ContainsAny(text, "*:#{}[],&!|>'\"%@`") || text == "true" || text == "false" || text == "null" || strings.Trim(text, "0123456789.") == "" {
		return `"` + text + `"`
	}
	return text
}

// known returns names from schemas or other documents that are valid at the place: as a value, or
// as a key if keys is set.
func (c *offers) known(keys bool) (out []string) {
	path := "." + strings.Join(c.in.path, ".")
	is := func(ends ...string) bool {
		return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(path, "."+end) })
	}
	// beside is the mapping whose key leads to the place.
	beside := c.place.node
	if c.place.nodes[beside].item {
		beside = c.place.nodes[beside].parent
	}
	beside = max(c.place.nodes[beside].parent, 0)
	if keys {
		if is("namespaceSelector.matchLabels") {
			return c.labelKeys()
		}
		return nil
	}
	types := c.w.kinds()
	policies := c.in.kind == api.PolicyKind || c.in.kind == api.BindingKind || strings.HasPrefix(c.in.kind, "Validating")
	switch {
	case path == ".apiVersion":
		return versionsOf(types, c.place.text(c.in.node, "kind"))
	case path == ".kind":
		return kindsIn(types, c.place.text(c.in.node, "apiVersion"), true)
	case is("paramKind.apiVersion"):
		return plainVersions(types, c.place.text(beside, "kind"))
	case is("paramKind.kind"):
		return kindsIn(types, c.place.text(beside, "apiVersion"), false)
	case is("policyName"):
		return c.w.names(func(h head) bool {
			return strings.HasSuffix(c.in.kind, "Binding") && h.kind == strings.TrimSuffix(c.in.kind, "Binding") && groupOf(h.apiVersion) == groupOf(c.in.apiVersion)
		})
	case path == ".spec.policies.[]" && c.in.kind == api.ExceptionKind:
		return c.w.excepted()
	case path == ".spec.bindings.[]" && c.in.kind == api.ExceptionKind:
		return c.w.names(func(h head) bool { return h.kind == api.BindingKind && groupOf(h.apiVersion) == api.OwnGroup })
	case is("paramRef.name") && policies:
		return c.parameters()
	case path == ".metadata.namespace", is("paramRef.namespace", "match.namespaces.[]", "match.excludedNamespaces.[]", "spec.namespaces.[]"):
		return c.w.names(isNamespace)
	case strings.HasSuffix(path, "Rules.[].apiGroups.[]"), is("applyTo.[].groups.[]", "match.kinds.[].apiGroups.[]"):
		return groupsOf(types)
	case strings.HasSuffix(path, "Rules.[].apiVersions.[]"):
		return c.versions(types, c.place.list(beside, "apiGroups"))
	case is("applyTo.[].versions.[]"):
		return c.versions(types, c.place.list(beside, "groups"))
	case strings.HasSuffix(path, "Rules.[].resources.[]"):
		return c.resources(types, c.place.list(beside, "apiGroups"), c.place.list(beside, "apiVersions"))
	case is("applyTo.[].kinds.[]"):
		return c.kinds(types, c.place.list(beside, "groups"), c.place.list(beside, "versions"))
	case is("match.kinds.[].kinds.[]"):
		return c.kinds(types, c.place.list(beside, "apiGroups"), nil)
	case strings.Contains(path, ".namespaceSelector.matchLabels."):
		return c.labelValues(c.in.path[len(c.in.path)-1])
	case is("namespaceSelector.matchExpressions.[].key"):
		return c.labelKeys()
	case is("namespaceSelector.matchExpressions.[].values.[]"):
		return c.labelValues(c.place.text(beside, "key"))
	case is("externalData.provider"):
		return c.w.names(func(h head) bool { return h.kind == "Provider" })
	}
	return nil
}

// detail describes a name that known has returned.
func (c *offers) detail(name string) string {
	if len(c.in.path) > 0 && c.in.path[len(c.in.path)-1] == "[]" && strings.HasSuffix(strings.Join(c.in.path, "."), "resources.[]") {
		for _, r := range c.w.kinds().Resources() {
			if r.GVR.Resource == name {
				return r.Kind.Kind
			}
		}
	}
	return ""
}

func groupOf(apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// versionsOf are the apiVersions of a kind, of all kinds if it is not given. Those first that
// mapd reads.
func versionsOf(types *openapi.Types, kind string) (out []string) {
	for _, k := range forms.Kinds() {
		if kind == "" || k.Kind == kind {
			out = append(out, k.APIVersion)
		}
	}
	for _, v := range plainVersions(types, kind) {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func plainVersions(types *openapi.Types, kind string) (out []string) {
	for _, r := range types.Resources() {
		if kind == "" || r.Kind.Kind == kind {
			out = append(out, r.Kind.GroupVersion().String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// kindsIn are the kinds of an apiVersion, all kinds if it is not given.
func kindsIn(types *openapi.Types, apiVersion string, ours bool) (out []string) {
	for _, k := range forms.Kinds() {
		if ours && (apiVersion == "" || k.APIVersion == apiVersion) && !slices.Contains(out, k.Kind) {
			out = append(out, k.Kind)
		}
	}
	var rest []string
	for _, r := range types.Resources() {
		if apiVersion == "" || r.Kind.GroupVersion().String() == apiVersion {
			rest = append(rest, r.Kind.Kind)
		}
	}
	slices.Sort(rest)
	for _, kind := range slices.Compact(rest) {
		if !slices.Contains(out, kind) {
			out = append(out, kind)
		}
	}
	return out
}

func groupsOf(types *openapi.Types) (out []string) {
	for _, r := range types.Resources() {
		out = append(out, quoted(r.GVR.Group))
	}
	slices.Sort(out)
	return append(slices.Compact(out), `"*"`)
}

// among reports whether a group or a version is among those that are written; none and "*"
// are all.
func among(written []string, name string) bool {
	return len(written) == 0 || slices.Contains(written, name) || slices.Contains(written, "*")
}

func (c *offers) versions(types *openapi.Types, groups []string) (out []string) {
	for _, r := range types.Resources() {
		if among(groups, r.GVR.Group) {
			out = append(out, r.GVR.Version)
		}
	}
	slices.Sort(out)
	return append(slices.Compact(out), `"*"`)
}

func (c *offers) resources(types *openapi.Types, groups, versions []string) (out []string) {
	for _, r := range types.Resources() {
		if !among(groups, r.GVR.Group) || !among(versions, r.GVR.Version) {
			continue
		}
		out = append(out, r.GVR.Resource)
		for _, sub := range r.Subresources {
			out = append(out, r.GVR.Resource+"/"+sub)
		}
	}
	slices.Sort(out)
	return append(slices.Compact(out), `"*"`)
}

func (c *offers) kinds(types *openapi.Types, groups, versions []string) (out []string) {
	for _, r := range types.Resources() {
		if among(groups, r.GVR.Group) && among(versions, r.GVR.Version) {
			out = append(out, r.Kind.Kind)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// labelKeys are the labels of the Namespaces that are given.
func (c *offers) labelKeys() []string {
	keys := map[string]bool{}
	for h := range c.w.heads {
		for key := range h.labels {
			keys[key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

func (c *offers) labelValues(key string) (out []string) {
	for h := range c.w.heads {
		if v, ok := h.labels[key]; ok {
			out = append(out, quoted(v))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// parameters are the names of objects of the kind that the policy of a binding takes.
func (c *offers) parameters() []string {
	spec := c.place.child(c.in.node, "spec")
	if spec < 0 {
		return nil
	}
	policy := c.place.text(spec, "policyName")
	for h := range c.w.heads {
		if h.kind == api.PolicyKind && h.name == policy && groupOf(h.apiVersion) == groupOf(c.in.apiVersion) && h.paramKind[1] != "" {
			want := schema.FromAPIVersionAndKind(h.paramKind[0], h.paramKind[1])
			return c.w.names(func(o head) bool { return schema.FromAPIVersionAndKind(o.apiVersion, o.kind) == want })
		}
	}
	return nil
}
