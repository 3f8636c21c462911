package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	kjson "sigs.k8s.io/json"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/lookup"
)

// Bounds of what Decode accepts. They are far above what people write.
const (
	maxRules   = 500
	MaxNesting = 5         // of foreach
	MaxDepth   = 64        // of a patch or a condition
	maxText    = 128 << 10 // of one text with variables, in bytes
	MaxKinds   = 500       // of match and exclude of a rule, together
	MaxValues  = 2000      // of a patch or of preconditions: objects, lists and what is in them
	MaxParts   = 500       // of a foreach
)

var versions = map[string]map[string][]string{
	Group: {
		"ClusterPolicy": {"v1", "v2beta1"},
		"Policy":        {"v1", "v2beta1"},
	},
	CELGroup: {
		"MutatingPolicy":           {"v1alpha1", "v1beta1", "v1"},
		"NamespacedMutatingPolicy": {"v1alpha1", "v1beta1", "v1"},
	},
}

// Served returns the kinds of policies that mutate, each in all versions that Kyverno serves, the
// newest first.
func Served() (out [][]schema.GroupVersionKind) {
	for _, group := range slices.Sorted(maps.Keys(versions)) {
		for _, kind := range slices.Sorted(maps.Keys(versions[group])) {
			served := slices.Clone(versions[group][kind])
			slices.SortFunc(served, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
			var gvks []schema.GroupVersionKind
			for _, v := range served {
				gvks = append(gvks, schema.GroupVersionKind{Group: group, Version: v, Kind: kind})
			}
			out = append(out, gvks)
		}
	}
	return out
}

// Is reports whether Decode reads policies of this kind. It ignores the version; Decode checks
// that.
func Is(gvk schema.GroupVersionKind) bool { return versions[gvk.Group][gvk.Kind] != nil }

// Read returns the policy in d. The errors have the place of their cause.
func Read(d *manifest.Document) (*Policy, []error) {
	p, err := Decode(d.Object)
	if err == nil {
		return p, nil
	}
	var errs []error
	for _, f := range api.FaultsOf(err) {
		errs = append(errs, d.ErrorOf("", fmt.Errorf("%s: %w", d.Name(), f)))
	}
	return nil, errs
}

// Decode reads a policy. Its error has an api.Fault for every field that Kyverno does not have,
// or describes the first field that cannot be read.
func Decode(u *unstructured.Unstructured) (*Policy, error) {
	gvk := u.GroupVersionKind()
	served := versions[gvk.Group][gvk.Kind]
	if !slices.Contains(served, gvk.Version) {
		if served == nil {
			return nil, fault("kind", "%s %s is no mutating policy of Kyverno", gvk.GroupVersion(), gvk.Kind)
		}
		return nil, fault("apiVersion", "Kyverno serves %s in %s, not in %s", gvk.Kind, strings.Join(served, ", "), gvk.Version)
	}
	p := &Policy{
		APIVersion: u.GetAPIVersion(), Kind: gvk.Kind, Name: u.GetName(), Annotations: u.GetAnnotations(),
	}
	if IsNamespaced(gvk.Kind) {
		p.Namespace = cmp.Or(u.GetNamespace(), metav1.NamespaceDefault)
	}
	var r reader
	for name := range u.Object {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "spec", "status"}, name) {
			r.unknown(name, []string{"metadata", "spec", "status"})
		}
	}
	if p.Name == "" {
		r.fault("metadata.name", "a policy needs a name")
	}
	if gvk.Group == CELGroup {
		p.CEL = &CELSpec{}
		r.decode("spec", u.Object["spec"], p.CEL)
	} else {
		p.Rules = &Spec{}
		r.decode("spec", u.Object["spec"], p.Rules)
		if len(r.faults) == 0 {
			r.rules(p.Rules)
		}
	}
	if len(r.faults) > 0 {
		slices.SortStableFunc(r.faults, func(a, b *api.Fault) int { return cmp.Compare(a.Path, b.Path) })
		return nil, r.faults
	}
	return p, nil
}

func fault(path, format string, args ...any) *api.Fault {
	return &api.Fault{Path: path, Err: fmt.Errorf("%s: %w", path, fmt.Errorf(format, args...))}
}

// reader collects the faults of a policy.
type reader struct{ faults api.Faults }

func (r *reader) fault(path, format string, args ...any) {
	r.faults = append(r.faults, fault(path, format, args...))
}

// unknown reports a field at path that is not in names.
func (r *reader) unknown(path string, names []string) {
	text := fmt.Sprintf("unknown field %q", path)
	if near := lookup.Nearest(path[strings.LastIndexByte(path, '.')+1:], names); near != "" {
		text += "; did you mean " + near + "?"
	}
	r.faults = append(r.faults, &api.Fault{Path: path, Undeclared: true, Err: fmt.Errorf("%s", text)})
}

// decode decodes the value at a path strictly into out.
func (r *reader) decode(path string, value, out any) {
	if value == nil {
		return
	}
	if deep(value, MaxDepth) {
		r.fault(path, "more than %d levels deep", MaxDepth)
		return
	}
	data, err := json.Marshal(value)
	if err != nil {
		r.fault(path, "%w", err)
		return
	}
	strict, err := kjson.UnmarshalStrict(data, out)
	if err != nil {
		// The decoder's error names the field relative to path.
		if typed, ok := err.(*json.UnmarshalTypeError); ok {
			field := strings.TrimSuffix(path+"."+typed.Field, ".")
			moved := *typed
			moved.Field = field
			r.faults = append(r.faults, &api.Fault{Path: field, Err: &moved})
			return
		}
		r.fault(path, "%w", err)
		return
	}
	for _, f := range api.FaultsOf(runtime.NewStrictDecodingError(strict)) {
		if len(strict) > 0 {
			r.unknown(path+"."+f.Path, fieldsAt(reflect.TypeOf(out), manifest.Steps(f.Path)))
		}
	}
}

// deep reports whether a value has more than most levels.
func deep(v any, most int) bool {
	if most < 0 {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if deep(e, most-1) {
				return true
			}
		}
	case []any:
		for _, e := range v {
			if deep(e, most-1) {
				return true
			}
		}
	}
	return false
}

// fieldsAt returns the names of the fields that are valid in the place of the last step.
func fieldsAt(t reflect.Type, steps []string) []string {
	for {
		switch t.Kind() {
		case reflect.Pointer:
			t = t.Elem()
			continue
		case reflect.Slice, reflect.Map:
			if len(steps) <= 1 {
				return nil
			}
			t, steps = t.Elem(), steps[1:]
			continue
		case reflect.Struct:
		default:
			return nil
		}
		fields := fieldsOf(t)
		if len(steps) <= 1 {
			var names []string
			for name := range fields {
				names = append(names, name)
			}
			return names
		}
		next, ok := fields[steps[0]]
		if !ok {
			return nil
		}
		t, steps = next, steps[1:]
	}
}

// fieldsOf returns the fields of a struct by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			for n, ft := range fieldsOf(f.Type) {
				out[n] = ft
			}
		case name != "":
			out[name] = f.Type
		}
	}
	return out
}

// rules decodes the fields that Spec holds undecoded, and checks what Kyverno would refuse.
func (r *reader) rules(s *Spec) {
	if len(s.Rules) > maxRules {
		r.fault("spec.rules", "%d rules; at most %d are read", len(s.Rules), maxRules)
		return
	}
	names := map[string]bool{}
	for i := range s.Rules {
		rule, path := &s.Rules[i], fmt.Sprintf("spec.rules[%d]", i)
		switch {
		case rule.Name == "":
			r.fault(path+".name", "a rule needs a name")
		case names[rule.Name]:
			r.fault(path+".name", "the policy has another rule %s", rule.Name)
		}
		names[rule.Name] = true
		if rule.Mutate == nil {
			continue
		}
		if len(rule.Match.Any) > 0 && len(rule.Match.All) > 0 {
			r.fault(path+".match", "has any and all; Kyverno takes one of them")
		}
		if n := kindsOf(&rule.Match) + kindsOf(rule.Exclude); n > MaxKinds {
			r.fault(path+".match", "%d kinds, with those of exclude; at most %d are read", n, MaxKinds)
		}
		rule.Preconditions = r.conditions(path+".preconditions", rule.RawPreconditions)
		r.bounded(path+".preconditions", rule.Preconditions)
		r.mutate(path+".mutate", rule.Mutate)
	}
}

// kindsOf returns how many kinds a match names.
func kindsOf(m *Match) (n int) {
	if m == nil {
		return 0
	}
	for _, f := range slices.Concat([]Filter{m.Filter}, m.Any, m.All) {
		n += len(f.Resources.Kinds)
	}
	return n
}

// valuesIn returns the number of values in v, including those within objects and lists.
func valuesIn(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += valuesIn(e)
		}
	case []any:
		for _, e := range v {
			n += valuesIn(e)
		}
	}
	return n
}

// conditions decodes preconditions, which are a list in old policies.
func (r *reader) conditions(path string, raw any) *Conditions {
	switch raw := raw.(type) {
	case nil:
		return nil
	case []any:
		c := &Conditions{}
		for i, e := range raw {
			c.All = append(c.All, Condition{})
			r.decode(fmt.Sprintf("%s[%d]", path, i), e, &c.All[i])
		}
		return c
	case map[string]any:
		c := &Conditions{}
		r.decode(path, raw, c)
		return c
	}
	r.fault(path, "must have any or all")
	return nil
}

// bounded reports preconditions with too many values.
func (r *reader) bounded(path string, c *Conditions) {
	if c == nil {
		return
	}
	n := 0
	for _, one := range slices.Concat(c.Any, c.All) {
		n += valuesIn(one.Key) + valuesIn(one.Value)
	}
	if n > MaxValues {
		r.fault(path, "%d values; at most %d are read", n, MaxValues)
	}
}

func (r *reader) mutate(path string, m *Mutate) {
	ways := 0
	for _, has := range []bool{m.PatchStrategicMerge != nil, m.PatchesJSON6902 != "", m.ForEach != nil} {
		if has {
			ways++
		}
	}
	if ways != 1 {
		r.fault(path, "needs one of patchStrategicMerge, patchesJson6902 and foreach, and has %d", ways)
	}
	r.patches(path, m.PatchStrategicMerge, m.PatchesJSON6902)
	if len(m.ForEach) > MaxParts {
		r.fault(path+".foreach", "%d parts; at most %d are read", len(m.ForEach), MaxParts)
		return
	}
	for i := range m.ForEach {
		r.forEach(fmt.Sprintf("%s.foreach[%d]", path, i), &m.ForEach[i], 1)
	}
}

func (r *reader) forEach(path string, f *ForEach, depth int) {
	if depth > MaxNesting {
		r.fault(path, "foreach is nested more than %d times", MaxNesting)
		return
	}
	if f.List == "" {
		r.fault(path+".list", "a foreach needs a list")
	}
	if f.Order != nil && *f.Order != "Ascending" && *f.Order != "Descending" {
		r.fault(path+".order", "must be Ascending or Descending")
	}
	r.bounded(path+".preconditions", f.Preconditions)
	r.patches(path, f.PatchStrategicMerge, f.PatchesJSON6902)
	for i := range f.ForEach {
		r.forEach(fmt.Sprintf("%s.foreach[%d]", path, i), &f.ForEach[i], depth+1)
	}
}

func (r *reader) patches(path string, merge any, jsonPatch string) {
	if _, ok := merge.(map[string]any); merge != nil && !ok {
		r.fault(path+".patchStrategicMerge", "must be an object")
	}
	if n := valuesIn(merge); n > MaxValues {
		r.fault(path+".patchStrategicMerge", "%d values; at most %d are read", n, MaxValues)
	}
	if len(jsonPatch) > maxText {
		r.fault(path+".patchesJson6902", "%d bytes; at most %d are read", len(jsonPatch), maxText)
	}
}
