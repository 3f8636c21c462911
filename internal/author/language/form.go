package language

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/author/forms"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// form describes what is valid at a place of a document: a JSON schema of package forms, or the
// schema of a kind.
type form interface {
	fields() []string
	// field returns the form of a field or of a map's key, nil if it is not known.
	field(name string) form
	// element returns the form of a list's elements, nil if the value is no list.
	element() form
	// refuses reports whether the field is not valid.
	refuses(name string) bool
	needs() []string
	// scalar returns "string", "boolean", "number", or "" if the value may be something else.
	scalar() string
	list() bool
	describe() string
	document() string
	// values returns the valid values, in YAML, if the form lists them.
	values() []string
}

// typeKeys are the fields that say of which kind an object is.
var typeKeys = []string{"apiVersion", "kind", "metadata", "spec"}

// formOf returns the form of a kind, nil if it is not known.
func (w *Workspace) formOf(apiVersion, kind string) form {
	types := w.kinds()
	if f := forms.Of(apiVersion, kind); f != nil {
		out := writtenForm{Form: f, top: true}
		if f.Fields["metadata"] != nil {
			policy, _ := types.Kind(schema.FromAPIVersionAndKind(api.NativeGroup+"/v1", api.PolicyKind))
			out.metadata = objectForm{root(policy).field("metadata")}
		}
		return out
	}
	k, err := types.Kind(schema.FromAPIVersionAndKind(apiVersion, kind))
	if err != nil {
		return nil
	}
	if v := root(k); v.known() {
		return objectForm{v}
	}
	return nil
}

// writtenForm is a form of package forms.
type writtenForm struct {
	*forms.Form
	top      bool
	metadata form
}

func (f writtenForm) fields() (out []string) {
	for name := range f.Fields {
		if !f.top || name != "status" { // which mapd writes
			out = append(out, name)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		needed := func(name string) int {
			if i := slices.Index(typeKeys, name); f.top && i >= 0 {
				return i
			}
			if slices.Contains(f.Required, name) {
				return len(typeKeys)
			}
			return len(typeKeys) + 1
		}
		return cmp.Or(needed(a)-needed(b), strings.Compare(a, b))
	})
	return out
}

func (f writtenForm) field(name string) form {
	if name == "metadata" && f.metadata != nil {
		return f.metadata
	}
	if g := f.Fields[name]; g != nil {
		return writtenForm{Form: g}
	}
	if f.Others != nil && f.Others.Form != nil {
		return writtenForm{Form: f.Others.Form}
	}
	for _, part := range f.AnyOf {
		if g := (writtenForm{Form: part}).field(name); g != nil {
			return g
		}
	}
	return nil
}

func (f writtenForm) element() form {
	if f.Items == nil {
		return nil
	}
	return writtenForm{Form: f.Items}
}

func (f writtenForm) refuses(name string) bool {
	return f.Fields[name] == nil && f.Fields != nil && (f.Others == nil || f.Others.Form == nil)
}

func (f writtenForm) needs() []string { return f.Required }

func (f writtenForm) scalar() string {
	types := slices.DeleteFunc(slices.Clone(f.Type), func(t string) bool { return t == "null" })
	if len(types) != 1 {
		return ""
	}
	switch types[0] {
	case "string", "boolean":
		return types[0]
	case "integer", "number":
		return "number"
	}
	return ""
}

func (f writtenForm) list() bool { return slices.Contains(f.Type, "array") }

func (f writtenForm) describe() string {
	switch {
	case f.list() && f.Items != nil:
		return "list of " + (writtenForm{Form: f.Items}).describe()
	case f.list():
		return "list"
	case len(f.AnyOf) > 0:
		return "true or object"
	}
	return strings.Join(slices.DeleteFunc(slices.Clone(f.Type), func(t string) bool { return t == "null" }), " or ")
}

func (f writtenForm) document() string { return f.Description }
func (f writtenForm) values() []string { return f.Values() }

// objectForm is the form of a place in the schema of a kind.
type objectForm struct{ value }

func (f objectForm) at() openapi.Place { return f.spots[0].Place }

// fields has those first that say of which kind an object is.
func (f objectForm) fields() []string {
	out := f.at().Fields()
	if len(f.spots[0].path) > 0 {
		return out
	}
	rank := func(name string) int {
		if i := slices.Index(typeKeys, name); i >= 0 {
			return i
		}
		return len(typeKeys)
	}
	slices.SortStableFunc(out, func(a, b string) int { return rank(a) - rank(b) })
	return out
}

func (f objectForm) field(name string) form {
	if v := f.value.field(name); v.known() {
		return objectForm{v}
	}
	return nil
}

func (f objectForm) element() form {
	if f.at().Type().List == nil {
		return nil
	}
	if v := f.each(); v.known() {
		return objectForm{v}
	}
	return nil
}

func (f objectForm) refuses(name string) bool { return f.at().Refuses(name) }
func (f objectForm) needs() []string          { return f.at().Keys() }

func (f objectForm) scalar() string {
	switch f.at().Scalar() {
	case "numeric":
		return "number"
	case "untyped":
		return ""
	}
	return f.at().Scalar()
}

func (f objectForm) list() bool       { return f.at().Type().List != nil }
func (f objectForm) describe() string { return f.value.describe() }
func (f objectForm) document() string { return f.value.document() }

func (f objectForm) values() []string {
	if f.scalar() == "boolean" {
		return []string{"true", "false"}
	}
	return nil
}

// headForm is the form of a document whose kind is not known yet.
type headForm struct{}

var headDocs = map[string]string{
	"apiVersion": "The group and version of the kind, such as apps/v1; of a kind of the core group the version only, v1.",
	"kind":       "The kind of the object, such as MutatingAdmissionPolicy or Pod.",
	"metadata":   "The object's name, namespace, labels and annotations.",
	"spec":       "What is wanted.",
}

func (headForm) fields() []string { return typeKeys }
func (headForm) field(name string) form {
	if headDocs[name] == "" {
		return nil
	}
	return headField(name)
}
func (headForm) element() form       { return nil }
func (headForm) refuses(string) bool { return false }
func (headForm) needs() []string     { return nil }
func (headForm) scalar() string      { return "" }
func (headForm) list() bool          { return false }
func (headForm) describe() string    { return "object" }
func (headForm) document() string    { return "" }
func (headForm) values() []string    { return nil }

// headField is a field of a headForm, by its name.
type headField string

func (headField) fields() []string    { return nil }
func (headField) field(string) form   { return nil }
func (headField) element() form       { return nil }
func (headField) refuses(string) bool { return false }
func (headField) needs() []string     { return nil }
func (headField) list() bool          { return false }
func (headField) values() []string    { return nil }
func (f headField) document() string  { return headDocs[string(f)] }

func (f headField) scalar() string {
	if f == "apiVersion" || f == "kind" {
		return "string"
	}
	return ""
}

func (f headField) describe() string {
	if f.scalar() != "" {
		return f.scalar()
	}
	return "object"
}

// child returns the node of a key of a node, -1 if there is none.
func (p *place) child(n int, name string) int {
	for _, k := range p.nodes[n].keys {
		if p.nodes[k].name == name {
			return k
		}
	}
	return -1
}

// text returns the text of a key of a node.
func (p *place) text(n int, name string) string {
	if k := p.child(n, name); k >= 0 {
		return p.nodes[k].scalar
	}
	return ""
}

// list returns the texts of a list at a key of a node.
func (p *place) list(n int, name string) (out []string) {
	k := p.child(n, name)
	if k < 0 {
		return nil
	}
	for _, i := range p.nodes[k].items {
		if i != p.node {
			out = append(out, p.nodes[i].scalar)
		}
	}
	return out
}

// chain are the nodes from the document to a node.
func (p *place) chain(n int) (out []int) {
	for ; n >= 0; n = p.nodes[n].parent {
		out = append(out, n)
	}
	slices.Reverse(out)
	return out
}

// maxDeep bounds how deep a place may be.
const maxDeep = 200

// object is the object around a place, and the path from it.
type object struct {
	node             int
	apiVersion, kind string
	path             []string // "[]" for an element of a list
}

// formAt returns the form of a node, nil if it is not known, and the object around the node.
func (w *Workspace) formAt(p *place, n int) (form, object) {
	chain := p.chain(n)
	if len(chain) > maxDeep {
		return nil, object{}
	}
	var at form
	var in object
	for i, step := range chain {
		node := &p.nodes[step]
		switch {
		case i == 0:
		case node.item:
			in.path = append(in.path, "[]")
			if at != nil {
				at = at.element()
			}
		default:
			in.path = append(in.path, node.name)
			if at != nil {
				at = at.field(node.name)
			}
		}
		// An object may be where no form says so: in a List, or in a case of a suite.
		listed := at == nil && len(in.path) == 2 && in.path[0] == "items" && in.path[1] == "[]"
		if i == 0 || listed || at != nil && isFree(at) {
			apiVersion, kind := p.text(step, "apiVersion"), p.text(step, "kind")
			if apiVersion != "" || kind != "" || i == 0 {
				in = object{node: step, apiVersion: apiVersion, kind: kind}
				if at = w.formOf(apiVersion, kind); at == nil && !strings.HasSuffix(kind, "List") {
					at = headForm{}
				}
			} else if e, ok := at.(writtenForm); ok && e.Embedded() {
				in, at = object{node: step}, headForm{}
			}
		}
	}
	return at, in
}

// isFree reports whether a value may have any fields, and so may be an object of any kind.
func isFree(f form) bool {
	switch f := f.(type) {
	case writtenForm:
		return f.Embedded() || len(f.Type) == 0 && f.Fields == nil && len(f.AnyOf) == 0
	case objectForm:
		if t := f.at().Type(); t.Map == nil || len(t.Map.Fields) > 0 {
			return false
		}
		v, ok := f.at().Field("")
		return !ok || v.Type().Map != nil // a map of texts, such as labels, is no object
	}
	return false
}
