package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/cel/syntax"
	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/openapi/smd"
)

// Warning is a part of a policy that compiles but always fails when it is evaluated.
type Warning struct {
	// Rule is the rule of `mapd lint` for the warning, one of those below.
	Rule string
	// Field is the path of the expression, such as
	// spec.mutations[0].applyConfiguration.expression.
	Field string
	// Line and Column are the 1-based position in the expression; columns count code points.
	Line, Column int
	// Kind is the kind for whose objects the expression fails; empty means any kind.
	Kind    schema.GroupVersionKind
	Message string
	// Near is the name that was probably meant by Written; both are empty if that is not known.
	Written, Near string
}

// The rules of Warnings.
const (
	UnknownField     = "unknown-field"
	AtomicField      = "atomic-field"
	WrongType        = "wrong-type"
	TypeName         = "type-name"
	UnchangeableKind = "unchangeable-kind"
)

// Targets returns the kinds that rules name, and whether they match other kinds, too.
func Targets(m *admissionregistrationv1.MatchResources, types *openapi.Types) (kinds []schema.GroupVersionKind, more bool) {
	targets := newTargets(m, types)
	for _, t := range targets.kinds {
		if t.by == "" {
			kinds = append(kinds, t.kind)
		}
	}
	return kinds, targets.more
}

// String returns the warning on one line, with its place.
func (w Warning) String() string {
	return fmt.Sprintf("%s: line %d, column %d: %s", w.Field, w.Line, w.Column, w.Message)
}

// Warnings checks the apply configurations of a policy against the schemas of the kinds that
// its rules name without wildcards. A server checks no schema at creation (spec §1.4), so that
// a misspelt field shows only when a request fails.
//
// It reports fields that a kind lacks, atomic fields (spec §7.3), literals that do not fit
// their field, literals with a wrong type name, and kinds that no apply configuration can
// change. It reports only certain errors: if an expression may depend on the kind, by a
// condition of its own or by the policy's matchConditions, a field is wrong only if it is wrong
// for every kind. Warnings are in the order of the expressions; a policy that cannot run has
// none.
func Warnings(p *Policy, types *openapi.Types) []Warning {
	if p.err != nil {
		return nil
	}
	targets := newTargets(p.object.Spec.MatchConstraints, types)
	selective := len(p.object.Spec.MatchConditions) > 0
	var out []Warning
	for i, m := range p.mutations {
		apply, ok := m.Mutator.(*applyMutator)
		if !ok {
			continue
		}
		faults := targets.faults(apply.expr.program.Fields(), selective)
		slices.SortFunc(faults, func(a, b Warning) int {
			return cmp.Or(
				cmp.Compare(a.Line, b.Line),
				cmp.Compare(a.Column, b.Column),
				cmp.Compare(kindName(a.Kind), kindName(b.Kind)),
				cmp.Compare(a.Message, b.Message))
		})
		for _, w := range slices.Compact(faults) {
			if len(out) == maxWarnings {
				return out
			}
			w.Field = fmt.Sprintf("spec.mutations[%d].applyConfiguration.expression", i)
			out = append(out, w)
		}
	}
	return out
}

const (
	// maxWarnings bounds the warnings about a policy.
	maxWarnings = 100
	// maxTargets bounds the resources that are checked, and maxExclusions the comparisons of
	// resources with exclusions, since three lists of a rule multiply.
	maxTargets, maxExclusions = 1000, 1_000_000
	// maxChecks bounds the checks of fields against kinds for one expression.
	maxChecks = 1_000_000
)

// targets are the kinds that a policy's rules name.
type targets struct {
	kinds []target
	// more says that the policy may match other kinds, too.
	more bool
}

// target is a kind with its schema. An apply configuration cannot change a kind without a
// schema (spec §2.6).
type target struct {
	kind      schema.GroupVersionKind
	published bool // there is a schema
	root      openapi.Place
	// by is the resource whose wildcard includes the kind; empty if the rules name the kind.
	by string
}

func newTargets(m *admissionregistrationv1.MatchResources, types *openapi.Types) (out targets) {
	if m == nil {
		return out
	}
	exclusions := 1
	for _, r := range m.ExcludeResourceRules {
		exclusions += 1 + len(r.APIGroups) + len(r.APIVersions) + len(r.Resources)
	}
	left := min(maxTargets, maxExclusions/exclusions)
	for _, r := range m.ResourceRules {
		found, missing := map[string]bool{}, map[string]bool{} // by resource
		for _, group := range r.APIGroups {
			for _, version := range r.APIVersions {
				for _, resource := range r.Resources {
					if left--; left < 0 {
						out.more = true
						return out.sorted()
					}
					if group == "*" || version == "*" || strings.Contains(resource, "*") {
						out.more = true
						if strings.Contains(resource, "*") {
							out.addUnchangeable(m, r.RuleWithOperations, resource, types)
						}
						continue
					}
					gvr := schema.GroupVersionResource{Group: group, Version: version}
					var subresource string
					gvr.Resource, subresource, _ = strings.Cut(resource, "/")
					_, known := types.KindFor(gvr, subresource)
					found[resource] = found[resource] || known
					switch {
					case covered(m.ExcludeResourceRules, r.Operations, gvr, subresource):
					case known:
						out.add(types, gvr, subresource)
					case strings.Contains(group, "."):
						out.more = true
					default:
						missing[resource] = true
					}
				}
			}
		}
		// The groups ["", apps] and the resources [pods, deployments] have four combinations, of
		// which two exist. Nobody can define the others, because the group of a definition has a
		// dot in its name. A resource that is in no combination counts as an unknown kind.
		for resource := range missing {
			out.more = out.more || !found[resource]
		}
	}
	return out.sorted()
}

func (t targets) sorted() targets {
	slices.SortFunc(t.kinds, func(a, b target) int { return cmp.Compare(kindName(a.kind), kindName(b.kind)) })
	return t
}

// unchangeable are requests that no ApplyConfiguration can change (spec T13), that wildcards
// include without the author's intent, and that a cluster needs: tokens for Pods, evictions,
// scaling, kubectl exec.
var unchangeable = []struct {
	group, resource, subresource string
	operation                    admissionregistrationv1.OperationType
}{
	{"", "serviceaccounts", "token", admissionregistrationv1.Create},
	{"", "pods", "eviction", admissionregistrationv1.Create},
	{"apps", "deployments", "scale", admissionregistrationv1.Update},
	{"", "pods", "exec", admissionregistrationv1.Connect},
}

// addUnchangeable adds the unchangeable requests that a rule includes by a wildcard for
// resources.
func (t *targets) addUnchangeable(m *admissionregistrationv1.MatchResources, rule admissionregistrationv1.RuleWithOperations, wildcard string, types *openapi.Types) {
	rule.Resources = []string{wildcard}
	all := []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}}
	for _, u := range unchangeable {
		gvr := schema.GroupVersionResource{Group: u.group, Version: "v1", Resource: u.resource}
		ops := []admissionregistrationv1.OperationType{u.operation}
		if covered(all, ops, gvr, u.subresource) && !covered(m.ExcludeResourceRules, ops, gvr, u.subresource) {
			before := len(t.kinds)
			t.add(types, gvr, u.subresource)
			for i := before; i < len(t.kinds); i++ {
				t.kinds[i].by = u.resource + "/" + u.subresource
			}
		}
	}
}

func (t *targets) add(types *openapi.Types, gvr schema.GroupVersionResource, subresource string) {
	gvk, ok := types.KindFor(gvr, subresource)
	if !ok {
		t.more = true
		return
	}
	if slices.ContainsFunc(t.kinds, func(t target) bool { return t.kind == gvk }) {
		return
	}
	kind, err := types.Kind(gvk)
	if noKind := (*openapi.NoKindError)(nil); err != nil && !errors.As(err, &noKind) {
		// The schema may be published later.
		t.more = true
		return
	}
	one := target{kind: gvk}
	if err == nil {
		one.root, one.published = kind.Root()
	}
	t.kinds = append(t.kinds, one)
}

// covered reports whether rules match all requests that a rule with these operations matches.
func covered(rules []admissionregistrationv1.NamedRuleWithOperations, ops []admissionregistrationv1.OperationType, gvr schema.GroupVersionResource, subresource string) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		if len(r.ResourceNames) > 0 || !has(r.APIGroups, gvr.Group) || !has(r.APIVersions, gvr.Version) {
			return false
		}
		for _, op := range ops {
			if !has(r.Operations, op) {
				return false
			}
		}
		return slices.ContainsFunc(r.Resources, func(s string) bool {
			resource, sub, _ := strings.Cut(s, "/")
			return (resource == "*" || resource == gvr.Resource) && (sub == "*" || sub == subresource)
		})
	})
}

func has[T ~string](list []T, v T) bool {
	return slices.Contains(list, "*") || slices.Contains(list, v)
}

// faults returns the warnings for one expression. selective says that the policy's conditions
// may exclude some kinds.
func (t *targets) faults(fields []syntax.Field, selective bool) (out []Warning) {
	if room := maxChecks / max(len(fields), 1); len(t.kinds) > room {
		t = &targets{kinds: t.kinds[:room], more: true}
	}
	several := t.more || len(t.kinds) > 1
	withSchema := slices.ContainsFunc(t.kinds, func(t target) bool { return t.published })
	if !selective || !t.more && !withSchema {
		for _, one := range t.kinds {
			if !one.published {
				advice := "use a JSONPatch"
				if one.by != "" {
					advice = "exclude " + one.by + ", which a wildcard includes"
				}
				out = append(out, Warning{Rule: UnchangeableKind, Line: 1, Column: 1, Kind: one.kind, Message: fmt.Sprintf(
					"an ApplyConfiguration cannot change %s, whose schema is not published with its group; %s", kindName(one.kind), advice)})
			}
		}
	}
	reported := map[string]bool{}
	for _, f := range fields {
		path, ok := fieldPath(f)
		if !ok {
			// The type name of the enclosing literal is wrong, which is reported for the field
			// that has that literal.
			continue
		}
		for _, name := range f.Misnamed {
			out = append(out, Warning{Rule: TypeName, Line: f.Line, Column: f.Column, Message: fmt.Sprintf(
				"the value of %s is of type %s; name it Object.%s, after the fields that lead to it", path, name, strings.Join(f.Path, "."))})
		}
		var found []fault
		bad := 0 // number of kinds for which the field is certainly wrong
		for _, one := range t.kinds {
			if !one.published {
				bad++
				continue
			}
			faults := one.check(f, path)
			if len(faults) > 0 {
				bad++
			}
			found = append(found, faults...)
		}
		everywhere := !t.more && bad == len(t.kinds)
		for _, fault := range found {
			if several && !everywhere && (selective || f.Conditional || fault.item) {
				continue
			}
			if fault.item && reported[fault.message] {
				continue
			}
			reported[fault.message] = true
			out = append(out, Warning{Rule: fault.rule, Line: f.Line, Column: f.Column, Kind: fault.kind, Message: fault.message, Written: fault.written, Near: fault.near})
		}
	}
	return out
}

// fieldPath returns the path of a field as text, false if the names of the enclosing types do
// not match it.
func fieldPath(f syntax.Field) (string, bool) {
	var b strings.Builder
	rest := f.Path
	for _, s := range f.Place {
		switch {
		case s.Kind == syntax.Named:
			if len(rest) == 0 || rest[0] != s.Name {
				return "", false
			}
			rest = rest[1:]
			b.WriteString("." + s.Name)
		case s.Name != "":
			b.WriteString("[" + s.Name + "]")
		default:
			b.WriteString("[]")
		}
	}
	return strings.TrimPrefix(b.String(), "."), len(rest) == 0
}

// fault is an error about a field for a kind.
type fault struct {
	rule    string
	kind    schema.GroupVersionKind
	message string
	// near is the name that was probably meant by written.
	written, near string
	// item says that the error is about items, of which there may be none. It is the same for
	// all fields of an item and all items of a list.
	item bool
}

const (
	atomicText = "%s of %s is atomic, and an ApplyConfiguration cannot set it; use a JSONPatch"
	misfitText = "%s of %s must be %s, not %s"
)

// check follows a field through the schema as checker does with its value.
func (t *target) check(f syntax.Field, path string) (out []fault) {
	if len(f.Place) == 1 && (path == "apiVersion" || path == "kind") {
		// The object keeps its own apiVersion and kind, whatever is written (spec §7.1).
		return nil
	}
	name := kindName(t.kind)
	fail := func(item bool, rule, format string, args ...any) {
		out = append(out, fault{rule: rule, kind: t.kind, message: fmt.Sprintf(format, args...), item: item})
	}
	at := t.root
	// The search for atomic content ends at undeclared fields and, here, at the first result.
	search := true
	for i, s := range f.Place {
		atom := at.Type()
		last := i == len(f.Place)-1
		if s.Kind == syntax.Item {
			if atom.List == nil {
				return out
			}
			search = search && atom.List.ElementRelationship != smd.Atomic
			at, _ = at.Element()
			continue
		}
		if atom.Map == nil {
			return out
		}
		if search && atom.Map.ElementRelationship == smd.Atomic {
			if last && i > 0 && f.Place[i-1].Kind != syntax.Named {
				fail(true, AtomicField, atomicText, strings.TrimSuffix(path, "."+s.Name), name)
			}
			search = false
		}
		switch {
		case at.Refuses(s.Name):
			if last {
				near := nearest(atom.Map, s.Name)
				fail(false, UnknownField, "%s has no field %s; %s", name, path, advice(near, path, s.Name))
				if near != "" {
					out[len(out)-1].written, out[len(out)-1].near = s.Name, near
				}
			}
			return out
		case at.Declares(s.Name):
		case s.Kind == syntax.Value && s.Name == "" && len(atom.Map.Fields) > 0:
			return out
		default:
			search = false
		}
		at, _ = at.Field(s.Name)
	}
	atom := at.Type()
	for _, form := range forms {
		if f.Value&form.bit != 0 && form.misfit(atom) {
			fail(false, WrongType, misfitText, path, name, wanted(atom), form.text)
		}
	}
	if search && (f.Value&(syntax.FormMap|syntax.FormObject) != 0 && atom.Map != nil && atom.Map.ElementRelationship == smd.Atomic ||
		f.Value&syntax.FormList != 0 && atom.List != nil && atom.List.ElementRelationship == smd.Atomic) {
		fail(false, AtomicField, atomicText, path, name)
	}
	if len(out) == 0 {
		t.checkItems(f, path, at, fail)
	}
	return out
}

// checkItems checks the literals in a list or map.
func (t *target) checkItems(f syntax.Field, path string, at openapi.Place, fail func(item bool, rule, format string, args ...any)) {
	if f.Items&(syntax.FormList|syntax.FormMap) != 0 {
		// This fails for every schema (spec §7.2).
		fail(true, WrongType, "%s of %s holds lists or maps that are written inside a list or map, which are not converted; write Object.%s{…} for them",
			path, kindName(t.kind), strings.Join(f.Path, "."))
		return
	}
	var item openapi.Place
	switch f.Value & (syntax.FormList | syntax.FormMap | syntax.FormObject) {
	case syntax.FormList:
		item, _ = at.Element()
	case syntax.FormMap:
		if m := at.Type().Map; m == nil || len(m.Fields) > 0 {
			return
		}
		item, _ = at.Field("")
	}
	atom := item.Type()
	for _, form := range forms {
		if f.Items&form.bit != 0 && form.misfit(atom) {
			fail(true, WrongType, misfitText, path+"[]", kindName(t.kind), wanted(atom), form.text)
		}
	}
}

// form is a form of values and the types that accept it.
type form struct {
	bit  syntax.Forms
	text string
	// fits is the scalar type that accepts it besides untyped.
	fits smd.Scalar
}

var forms = []form{
	{syntax.FormString, "a string", smd.String},
	{syntax.FormInt, "an integer", smd.Numeric},
	{syntax.FormDouble, "a double", smd.Numeric},
	{syntax.FormBool, "a boolean", smd.Boolean},
	{syntax.FormUint, "an unsigned integer", ""},
	{syntax.FormBytes, "bytes", ""},
	{syntax.FormNull, "null", ""},
	{syntax.FormList, "a list", ""},
	{syntax.FormMap, "a map", ""},
	{syntax.FormObject, "an object", ""},
}

// misfit reports whether checker.validate rejects every value of the form.
func (f form) misfit(atom smd.Atom) bool {
	if atom.Scalar == nil && atom.List == nil && atom.Map == nil {
		return false
	}
	switch f.bit {
	case syntax.FormList:
		return atom.List == nil
	case syntax.FormMap, syntax.FormObject:
		return atom.Map == nil
	case syntax.FormUint, syntax.FormBytes, syntax.FormNull:
		// Such values become Go values that no type accepts (spec §7.2).
		return true
	}
	return atom.Scalar == nil || *atom.Scalar != f.fits && *atom.Scalar != smd.Untyped
}

// wanted describes the values that a type accepts.
func wanted(atom smd.Atom) string {
	var out []string
	if atom.Scalar != nil {
		switch *atom.Scalar {
		case smd.String:
			out = append(out, "a string")
		case smd.Numeric:
			out = append(out, "a number")
		case smd.Boolean:
			out = append(out, "a boolean")
		default:
			out = append(out, "a string, number or boolean")
		}
	}
	if atom.List != nil {
		out = append(out, "a list")
	}
	if atom.Map != nil {
		out = append(out, "an object")
	}
	return strings.Join(out, " or ")
}

// nearest returns the field with the most similar name, "" if none is similar.
func nearest(m *smd.Map, name string) string {
	names := make([]string, len(m.Fields))
	for i, f := range m.Fields {
		names[i] = f.Name
	}
	return lookup.Nearest(name, names)
}

// advice says what to do about an unknown field.
func advice(near, path, name string) string {
	if near == "" {
		return "leave it out"
	}
	return "did you mean " + strings.TrimSuffix(path, name) + near + "?"
}

// kindName returns a kind in the form apps/v1 Deployment.
func kindName(gvk schema.GroupVersionKind) string {
	return gvk.GroupVersion().String() + " " + gvk.Kind
}
