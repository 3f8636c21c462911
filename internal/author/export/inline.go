package export

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// Bounds of a parameter that is written as a literal. Servers refuse expressions of more than
// 100,000 code points (spec §1.4), and expressions that are nested too deeply for their parser.
const (
	maxBytes = 400_000 // code points have up to four
	maxDepth = 200
)

const paramsName = "params"

// expressions returns pointers to all expressions of a policy: conditions separately from the
// others.
func expressions(spec *admissionregistrationv1.MutatingAdmissionPolicySpec) (conditions, others []*string) {
	for i := range spec.MatchConditions {
		conditions = append(conditions, &spec.MatchConditions[i].Expression)
	}
	for i := range spec.Variables {
		others = append(others, &spec.Variables[i].Expression)
	}
	for i := range spec.Mutations {
		if m := &spec.Mutations[i]; m.JSONPatch != nil {
			others = append(others, &m.JSONPatch.Expression)
		} else if m.ApplyConfiguration != nil {
			others = append(others, &m.ApplyConfiguration.Expression)
		}
	}
	return conditions, others
}

// inline replaces params in the expressions of a policy by a literal. A nil params is null in the
// expressions.
func inline(spec *admissionregistrationv1.MutatingAdmissionPolicySpec, params *unstructured.Unstructured) error {
	conditions, others := expressions(spec)
	var paths [][][]string // of each expression
	for _, e := range slices.Concat(conditions, others) {
		found, err := syntax.Occurrences(*e, paramsName)
		if err != nil {
			return err
		}
		var own [][]string
		for _, o := range found {
			own = append(own, o.Path)
		}
		paths = append(paths, own)
	}
	spec.ParamKind = nil
	var value any
	if params != nil {
		value = only(params.Object, slices.Concat(paths...))
	}
	err := bounded(value, maxDepth)
	if err != nil {
		return err
	}
	if cel.Outweighs(value, maxBytes) {
		return fmt.Errorf("the fields of the parameter that the policy reads are larger than the 100,000 code points that an expression may have")
	}
	for i, e := range conditions {
		if *e, err = syntax.Substitute(*e, paramsName, literal(only(value, paths[i]))); err != nil {
			return err
		}
	}
	name := free(spec.Variables)
	read := false
	for _, e := range others {
		text, err := syntax.Substitute(*e, paramsName, "variables."+name)
		if err != nil {
			return err
		}
		read = read || text != *e
		*e = text
	}
	if read {
		value = only(value, slices.Concat(paths[len(conditions):]...))
		spec.Variables = slices.Insert(spec.Variables, 0, admissionregistrationv1.Variable{Name: name, Expression: literal(value)})
	}
	return nil
}

// literal returns an expression for a value. Its type is dyn, like that of params, so that a
// wrong type is an error of the request as before, and not of the compiler.
func literal(v any) string { return "dyn(" + celgen.Constant(v).Text + ")" }

// free returns a name that no variable of the policy has, because a second definition would
// replace the first (spec T8).
func free(variables []admissionregistrationv1.Variable) string {
	name := paramsName
	for i := 2; slices.ContainsFunc(variables, func(v admissionregistrationv1.Variable) bool { return v.Name == name }); i++ {
		name = fmt.Sprintf("%s%d", paramsName, i)
	}
	return name
}

// only returns a value without the fields that none of the paths leads to or through. Expressions
// that read only these paths have the same result.
func only(v any, paths [][]string) any {
	m, ok := v.(map[string]any)
	if !ok || slices.ContainsFunc(paths, func(p []string) bool { return len(p) == 0 }) {
		return v
	}
	out := map[string]any{}
	below := map[string][][]string{}
	for _, p := range paths {
		below[p[0]] = append(below[p[0]], p[1:])
	}
	for name, rest := range below {
		if field, ok := m[name]; ok {
			out[name] = only(field, rest)
		}
	}
	return out
}

// bounded returns an error if a value is not JSON data, or is nested too deeply.
func bounded(v any, depth int) error {
	if depth == 0 {
		return fmt.Errorf("the parameter is nested deeper than %d levels", maxDepth)
	}
	switch v := v.(type) {
	case nil, bool, string, int64, float64:
	case []any:
		for _, e := range v {
			if err := bounded(e, depth-1); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, e := range v {
			if err := bounded(e, depth-1); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("the parameter has a value of the type %T, which is not JSON", v)
	}
	return nil
}
