package legacy

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
)

// TemplateKind is the kind of expansion templates.
const TemplateKind = "ExpansionTemplate"

// Template is a valid ExpansionTemplate, decoded: it says which objects an object of some kinds
// will create. It is immutable.
type Template struct {
	Name string
	// ApplyTo says which kinds are expanded; Operations are not used.
	ApplyTo []ApplyTo
	// Source is the path of field names to the template of the new object.
	Source string
	// Generates is the kind of the new object. Parts of it may be empty.
	Generates schema.GroupVersionKind
	// EnforcementAction, if not empty, replaces that of every violation by the new object:
	// "deny", "warn" or "dryrun". Gatekeeper does not know other values either.
	EnforcementAction string
	// BuiltIn says that the template is mapd's own.
	BuiltIn bool
}

// IsTemplate reports whether gvk is that of an expansion template, of whichever
// version.
func IsTemplate(gvk schema.GroupVersionKind) bool {
	return gvk.Group == api.ExpansionGroup && gvk.Kind == TemplateKind
}

// DecodeTemplate reads an ExpansionTemplate in any of its versions and checks what
// Gatekeeper checks, in its order (Gatekeeper spec §10.1). Its error is an *Error.
func DecodeTemplate(u *unstructured.Unstructured) (*Template, error) {
	t := &Template{Name: u.GetName()}
	if err := t.decode(u); err != nil {
		err.Mutator = TemplateKind + "/" + t.Name
		return nil, err
	}
	return t, nil
}

func (t *Template) decode(u *unstructured.Unstructured) *Error {
	gvk := u.GroupVersionKind()
	if !IsTemplate(gvk) {
		return refusef("apiVersion", "%s %s is not an expansion template", gvk.GroupVersion(), gvk.Kind)
	}
	if gvk.Version != "v1alpha1" && gvk.Version != "v1beta1" {
		return refusef("apiVersion", "no kind %q is registered for version %q", gvk.Kind, gvk.GroupVersion())
	}
	r := &reader{}
	top := object{r: r, in: u.Object, out: map[string]any{}}
	spec, _ := top.object("spec")
	t.ApplyTo = readEach(spec, "applyTo", func(o object) ApplyTo {
		return ApplyTo{Groups: o.strs("groups"), Versions: o.strs("versions"), Kinds: o.strs("kinds")}
	})
	t.Source = spec.str("templateSource")
	if generates, ok := spec.object("generatedGVK"); ok {
		t.Generates = schema.GroupVersionKind{Group: generates.str("group"), Version: generates.str("version"), Kind: generates.str("kind")}
	}
	t.EnforcementAction = spec.str("enforcementAction")
	if r.err != nil {
		return r.err
	}
	return t.validate()
}

func (t *Template) validate() *Error {
	switch {
	case t.Name == "":
		return refusef("metadata.name", "ExpansionTemplate has empty name field")
	case len(t.Name) > maxName:
		return refusef("metadata.name", "ExpansionTemplate name must be less than %d characters", maxName+1)
	case t.Source == "":
		return refusef("spec.templateSource", "ExpansionTemplate %s has empty source field", t.Name)
	case t.Generates == schema.GroupVersionKind{}:
		return refusef("spec.generatedGVK", "ExpansionTemplate %s has empty generatedGVK field", t.Name)
	case len(t.ApplyTo) == 0:
		return refusef("spec.applyTo", "ExpansionTemplate %s must specify ApplyTo", t.Name)
	case t.AppliesTo(t.Generates):
		return refusef("spec.generatedGVK", "ExpansionTemplate %s generates GVK %v, but also applies to that same GVK", t.Name, t.Generates)
	}
	kinds := 0
	for _, a := range t.ApplyTo {
		// The product cannot overflow: each list of a stored object has at most 2^20 elements.
		if kinds += len(a.Groups) * len(a.Versions) * len(a.Kinds); kinds > maxKinds {
			return refusef("spec.applyTo", "applyTo names more than %d kinds", maxKinds)
		}
	}
	return nil
}

// AppliesTo reports whether the template expands objects of a kind.
func (t *Template) AppliesTo(gvk schema.GroupVersionKind) bool {
	return slices.ContainsFunc(t.ApplyTo, func(a ApplyTo) bool {
		return slices.Contains(a.Groups, gvk.Group) && slices.Contains(a.Versions, gvk.Version) && slices.Contains(a.Kinds, gvk.Kind)
	})
}

// Kinds returns the kinds that the template expands, each once and in the order in
// which they are written.
func (t *Template) Kinds() []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	seen := map[schema.GroupVersionKind]bool{}
	for _, a := range t.ApplyTo {
		for _, g := range a.Groups {
			for _, v := range a.Versions {
				for _, k := range a.Kinds {
					if gvk := (schema.GroupVersionKind{Group: g, Version: v, Kind: k}); !seen[gvk] {
						seen[gvk] = true
						out = append(out, gvk)
					}
				}
			}
		}
	}
	return out
}
