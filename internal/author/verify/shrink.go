package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// shrinkSteps bounds the objects that shrink tries: each costs a run of both sides.
const shrinkSteps = 2000

// shrink reduces a disagreement: it removes fields and elements, large ones first, as long as the
// two sides disagree in the same manner. If the manner were not compared, a disagreement about a
// wrong value could be reduced to one about something else, such as a missing list.
func (p *part) shrink(ctx context.Context, types *openapi.Types, r *request, origin string) *Disagreement {
	o := Object{Object: r.object, Old: r.old, Operation: r.operation, Namespace: r.namespace, User: r.user, Groups: r.groups}
	want := p.manner(ctx, r)
	steps := 0
	try := func(o Object) bool {
		if steps++; steps > shrinkSteps || ctx.Err() != nil {
			return false
		}
		r := requests(types, o)[0]
		return r != nil && p.allowed(r) && p.manner(ctx, r) == want
	}
	if o.Operation == update {
		if c := (Object{Object: o.Object, Operation: create, Namespace: o.Namespace, User: o.User, Groups: o.Groups}); try(c) {
			o = c
		}
	}
	o.Object = reduce(o.Object, essential, func(m map[string]any) bool {
		c := o
		c.Object = m
		return try(c)
	})
	if o.Old != nil {
		o.Old = reduce(o.Old, essential, func(m map[string]any) bool {
			c := o
			c.Old = m
			return try(c)
		})
	}
	if o.Namespace != nil {
		o.Namespace = reduce(o.Namespace, essential, func(m map[string]any) bool {
			c := o
			c.Namespace = m
			return try(c)
		})
	}
	// requests decodes the reduced object as a server would, which restores required fields, so the
	// Disagreement has the object and the results after that.
	r = requests(types, o)[0]
	d := &Disagreement{Origin: origin, Operation: o.Operation, Object: r.object, Old: r.old, Namespace: r.namespace}
	if slices.ContainsFunc(p.mutators, (*legacy.Mutator).Asks) || r.user != nobody {
		d.User = r.user
	}
	d.Reference, d.Native = p.run(ctx, r)
	conceal(d)
	return d
}

// manner is the way in which two results differ.
type manner struct {
	how                             agreement
	referenceRefuses, nativeRefuses bool
}

func (p *part) manner(ctx context.Context, r *request) manner {
	ref, nat := p.run(ctx, r)
	if ref.unknown != "" {
		return manner{how: agree}
	}
	return manner{p.compare(r, ref, nat), ref.Refused != "", nat.Refused != ""}
}

// essential reports whether an object is invalid without a field.
func essential(path []string) bool {
	switch len(path) {
	case 1:
		return path[0] == "apiVersion" || path[0] == "kind" || path[0] == "metadata"
	case 2:
		return path[0] == "metadata" && (path[1] == "name" || path[1] == "namespace")
	}
	return false
}

// reduce returns m without the fields and elements that can be removed such that shows still
// returns true. It does not remove paths for which keep returns true.
func reduce(m map[string]any, keep func(path []string) bool, shows func(map[string]any) bool) map[string]any {
	for {
		before := m
		for depth := 1; ; depth++ {
			found := paths(m, depth)
			if len(found) == 0 {
				break
			}
			// From the end, so that removing an element does not change the indices in the paths
			// that follow.
			for _, path := range slices.Backward(found) {
				if keep(names(path)) {
					continue
				}
				if c := without(m, path).(map[string]any); shows(c) {
					m = c
				}
			}
		}
		if len(m) == len(before) && equalJSON(m, before) {
			return m
		}
	}
}

// paths returns the paths of all fields and elements at a depth, in order. A path consists of
// strings, which are field names, and ints, which are indices.
func paths(v any, depth int) [][]any {
	if depth == 0 {
		return [][]any{nil}
	}
	var out [][]any
	below := func(step, v any) {
		for _, p := range paths(v, depth-1) {
			out = append(out, append([]any{step}, p...))
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			below(k, v[k])
		}
	case []any:
		for i, e := range v {
			below(i, e)
		}
	}
	return out
}

func names(path []any) []string {
	out := make([]string, len(path))
	for i, s := range path {
		out[i], _ = s.(string)
	}
	return out
}

// without returns v without the value at path.
func without(v any, path []any) any {
	switch step := path[0].(type) {
	case string:
		m := maps.Clone(v.(map[string]any))
		if len(path) == 1 {
			delete(m, step)
		} else {
			m[step] = without(m[step], path[1:])
		}
		return m
	case int:
		l := slices.Clone(v.([]any))
		if len(path) == 1 {
			return slices.Delete(l, step, step+1)
		}
		l[step] = without(l[step], path[1:])
		return l
	}
	return v
}

// hidden replaces the contents of a Secret.
const hidden = "(hidden)"

// conceal removes the contents of a Secret from a disagreement. Fields in which the two sides
// differ remain visible, because concealed replaces different values by different texts.
func conceal(d *Disagreement) {
	if d.Object["kind"] != "Secret" || d.Object["apiVersion"] != "v1" {
		return
	}
	refused := func(r Result) Result {
		if r.Refused != "" {
			r.Refused = "(the reason may quote the Secret and is not shown)"
		}
		return r
	}
	d.Reference, d.Native = refused(d.Reference), refused(d.Native)
	seen := map[string]string{}
	for _, obj := range []*map[string]any{&d.Object, &d.Old, &d.Reference.Object, &d.Native.Object} {
		*obj = concealed(*obj, seen)
	}
}

// concealed returns a Secret with its values replaced by "(hidden) 1" and so on. Equal values get
// equal numbers, which seen has for the objects before.
func concealed(obj map[string]any, seen map[string]string) map[string]any {
	if obj == nil {
		return nil
	}
	obj = maps.Clone(obj)
	for _, field := range []string{"data", "stringData"} {
		if values, ok := obj[field].(map[string]any); ok {
			values = maps.Clone(values)
			for _, k := range slices.Sorted(maps.Keys(values)) {
				text := fmt.Sprint(values[k])
				if _, ok := seen[text]; !ok {
					seen[text] = fmt.Sprintf("%s %d", hidden, len(seen)+1)
				}
				values[k] = seen[text]
			}
			obj[field] = values
		} else if obj[field] != nil {
			obj[field] = hidden
		}
	}
	// kubectl apply keeps a copy of the whole object in an annotation.
	u := &unstructured.Unstructured{Object: obj}
	if annotations := u.GetAnnotations(); annotations[lastApplied] != "" {
		u.Object = runtime.DeepCopyJSON(obj)
		annotations[lastApplied] = hidden
		u.SetAnnotations(annotations)
	}
	return u.Object
}

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// NamespaceLabels returns the labels of the object's Namespace in the syntax of selectors, without
// the label kubernetes.io/metadata.name.
func (d *Disagreement) NamespaceLabels() string {
	labels := (&unstructured.Unstructured{Object: d.Namespace}).GetLabels()
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if k != "kubernetes.io/metadata.name" {
			out = append(out, k+"="+labels[k])
		}
	}
	return strings.Join(out, ", ")
}
