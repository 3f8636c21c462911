package policy

import (
	"errors"
	"regexp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
)

// maxMatchConditions is the API's limit on spec.matchConditions.
const maxMatchConditions = 64

// The values of the API's enumerations, in the order in which a server lists them in errors.
var (
	failurePolicies      = []admissionregistrationv1.FailurePolicyType{"Fail", "Ignore"}
	reinvocationPolicies = []admissionregistrationv1.ReinvocationPolicyType{"IfNeeded", "Never"}
	patchTypes           = []admissionregistrationv1.PatchType{"ApplyConfiguration", "JSONPatch"}
)

// celReserved are the words of CEL that cannot name a variable.
var celReserved = sets.New("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for",
	"function", "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while")

var celIdentifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

// Validate returns all errors for which a server rejects obj, with the server's order and texts
// (spec §1.4; k8s.io/kubernetes pkg/apis/admissionregistration/validation:
// ValidateMutatingAdmissionPolicy). obj must have its defaults, as Decode returns it.
//
// One rule is added: a variable's name must be unique.
//
// Expressions are compiled with env as a server does at creation, which is stricter than for
// stored policies (spec §6.2). The permissions of the user who writes the policy are not
// checked.
func Validate(obj *admissionregistrationv1.MutatingAdmissionPolicy, env *cel.Env) api.Faults {
	errs := api.FormFaults(api.ValidateMeta(&obj.ObjectMeta)...)
	errs = append(errs, validateSpec(&obj.Spec, env, nil, field.NewPath("spec"))...)
	return append(errs, api.FormFaults(api.ValidateReservedName(obj.Name)...)...)
}

// ValidateStored returns the errors in the form of a stored policy that no server should have
// accepted: all that Validate returns except those about expressions, which only Compile
// checks.
func ValidateStored(obj *admissionregistrationv1.MutatingAdmissionPolicy) api.Faults {
	return append(api.FormFaults(api.ValidateMeta(&obj.ObjectMeta)...), validateSpec(&obj.Spec, nil, nil, field.NewPath("spec"))...)
}

// validateSpec checks a spec. kept, if not nil, has what the spec may keep from its old
// version. Without an env no expression is compiled.
func validateSpec(spec *admissionregistrationv1.MutatingAdmissionPolicySpec, env *cel.Env, kept *ratchet, path *field.Path) api.Faults {
	var form field.ErrorList
	if spec.FailurePolicy == nil {
		form = append(form, field.Required(path.Child("failurePolicy"), ""))
	} else {
		form = append(form, api.OneOf(path.Child("failurePolicy"), *spec.FailurePolicy, failurePolicies)...)
	}
	if spec.ParamKind != nil {
		form = append(form, validateParamKind(spec.ParamKind, path.Child("paramKind"))...)
	}
	if m := spec.MatchConstraints; m == nil {
		form = append(form, field.Required(path.Child("matchConstraints"), ""))
	} else {
		form = append(form, api.ValidateMatchResources(m, path.Child("matchConstraints"))...)
		if len(m.ResourceRules) == 0 {
			form = append(form, field.Required(path.Child("matchConstraints", "resourceRules"), ""))
		}
	}

	errs := api.FormFaults(form...)
	c := compiler{kept: kept}
	if env != nil {
		c.conditions = env.Scope(cel.Vars{Params: spec.ParamKind != nil, Mode: cel.New})
		c.mutations = env.Scope(cel.Vars{Params: spec.ParamKind != nil, Variables: true, Mode: cel.New})
	}
	if kept == nil || !kept.conditionsAlike {
		errs = append(errs, c.validateMatchConditions(spec.MatchConditions, path.Child("matchConditions"))...)
	}
	errs = append(errs, c.validateVariables(spec.Variables, path.Child("variables"))...)
	if len(spec.Mutations) == 0 {
		errs = append(errs, api.FormFault(field.Required(path.Child("mutations"), "mutations must contain at least one item")))
	}
	for i := range spec.Mutations {
		errs = append(errs, c.validateMutation(&spec.Mutations[i], path.Child("mutations").Index(i)).Of(api.Mutations, i)...)
	}

	at := path.Child("reinvocationPolicy")
	if spec.ReinvocationPolicy == "" {
		return append(errs, api.FormFault(field.Required(at, "")))
	}
	return append(errs, api.FormFaults(api.OneOf(at, spec.ReinvocationPolicy, reinvocationPolicies)...)...)
}

// validateParamKind checks only the form of the reference. Whether the kind exists is checked
// for each request (spec §3.1).
func validateParamKind(ref *admissionregistrationv1.ParamKind, path *field.Path) field.ErrorList {
	errs := validateAPIVersion(ref.APIVersion, path.Child("apiVersion"))
	if ref.Kind == "" {
		return append(errs, field.Required(path.Child("kind"), ""))
	}
	if msgs := validation.IsDNS1035Label(strings.ToLower(ref.Kind)); len(msgs) > 0 {
		errs = append(errs, field.Invalid(path.Child("kind"), ref.Kind,
			"may have mixed case, but should otherwise match: "+strings.Join(msgs, ",")))
	}
	return errs
}

func validateAPIVersion(apiVersion string, path *field.Path) field.ErrorList {
	var group, version string
	switch parts := strings.Split(apiVersion, "/"); {
	case apiVersion == "":
		return field.ErrorList{field.Required(path, "")}
	case len(parts) == 1:
		version = parts[0]
	case len(parts) == 2:
		group, version = parts[0], parts[1]
	default:
		return field.ErrorList{field.Invalid(path, apiVersion, "unexpected GroupVersion string: "+apiVersion)}
	}
	var errs field.ErrorList
	if group != "" {
		if msgs := validation.IsDNS1123Subdomain(group); len(msgs) > 0 {
			errs = append(errs, field.Invalid(path, group, strings.Join(msgs, ",")))
		}
	}
	if version == "" {
		return append(errs, field.Invalid(path, apiVersion, "version must be specified"))
	}
	if msgs := validation.IsDNS1035Label(version); len(msgs) > 0 {
		errs = append(errs, field.Invalid(path, version, strings.Join(msgs, ",")))
	}
	return errs
}

// compiler checks expressions. Match conditions and mutations have different variables, so each
// has a scope of its own. With a nil scope nothing is compiled.
type compiler struct {
	conditions, mutations *cel.Scope
	kept                  *ratchet
}

// ValidateMatchConditions checks the match conditions of a new webhook or policy
// without parameters. Their faults have the path spec.matchConditions.
func ValidateMatchConditions(list []admissionregistrationv1.MatchCondition, env *cel.Env) api.Faults {
	c := compiler{conditions: env.Scope(cel.Vars{Mode: cel.New})}
	return c.validateMatchConditions(list, field.NewPath("spec", string(api.MatchConditions)))
}

func (c *compiler) validateMatchConditions(list []admissionregistrationv1.MatchCondition, path *field.Path) api.Faults {
	var errs api.Faults
	if len(list) > maxMatchConditions {
		errs = append(errs, api.FormFault(field.TooMany(path, len(list), maxMatchConditions)))
	}
	names := sets.New[string]()
	for i := range list {
		errs = append(errs, c.validateMatchCondition(&list[i], names, path.Index(i)).Of(api.MatchConditions, i)...)
	}
	return errs
}

// validateMatchCondition checks a condition and adds its name to names.
func (c *compiler) validateMatchCondition(cond *admissionregistrationv1.MatchCondition, names sets.Set[string], path *field.Path) api.Faults {
	errs := c.validateExpression(c.conditionScope(cond.Expression), cond.Expression, cel.Bool, path.Child("expression"))
	at := path.Child("name")
	if cond.Name == "" {
		return append(errs, api.FormFault(field.Required(at, "")))
	}
	for _, msg := range validation.IsQualifiedName(cond.Name) {
		errs = append(errs, api.FormFault(field.Invalid(at, cond.Name, msg)))
	}
	if names.Has(cond.Name) {
		errs = append(errs, api.FormFault(field.Duplicate(at, cond.Name)))
	}
	names.Insert(cond.Name)
	return errs
}

// validateVariables declares the variables in their order, so that each can use those before
// it. Unlike other expressions they are compiled untrimmed; this only affects the columns in
// errors.
func (c *compiler) validateVariables(list []admissionregistrationv1.Variable, path *field.Path) api.Faults {
	var errs api.Faults
	names := sets.New[string]()
	for i := range list {
		errs = append(errs, c.validateVariable(&list[i], names, path.Index(i)).Of(api.Variables, i)...)
	}
	return errs
}

// validateVariable checks and declares a variable, and adds its name to names.
func (c *compiler) validateVariable(v *admissionregistrationv1.Variable, names sets.Set[string], path *field.Path) api.Faults {
	var errs api.Faults
	at := path.Child("name")
	switch {
	case strings.TrimSpace(v.Name) == "":
		errs = append(errs, api.FormFault(field.Required(at, "name is not specified")))
	case !celIdentifier.MatchString(v.Name) || celReserved.Has(v.Name):
		errs = append(errs, api.FormFault(field.Invalid(at, v.Name, "must be a valid CEL identifier")))
	}
	duplicate := v.Name != "" && names.Has(v.Name)
	if duplicate {
		errs = append(errs, api.FormFault(field.Duplicate(at, v.Name)))
	}
	names.Insert(v.Name)
	at = path.Child("expression")
	switch {
	case strings.TrimSpace(v.Expression) == "":
		errs = append(errs, api.FormFault(field.Required(at, "expression is not specified")))
	case !duplicate && c.mutations != nil:
		definition := v.Expression
		if err := c.mutations.Define(v.Name, definition); err != nil {
			errs = append(errs, refused(at, v.Expression, err))
			// As on a server, the variable gets an unknown type, so that the error is not
			// reported again for each use of the variable. This definition cannot fail: the
			// name is new.
			definition = "dyn(null)"
			_ = c.mutations.Define(v.Name, definition)
		}
		c.kept.define(v.Name, definition)
	}
	return errs
}

func (c *compiler) validateMutation(m *admissionregistrationv1.Mutation, path *field.Path) api.Faults {
	var apply, patch *string
	if m.ApplyConfiguration != nil {
		apply = &m.ApplyConfiguration.Expression
	}
	if m.JSONPatch != nil {
		patch = &m.JSONPatch.Expression
	}
	switch m.PatchType {
	case admissionregistrationv1.PatchTypeApplyConfiguration:
		return c.validateMembers(m.PatchType, cel.Object, "applyConfiguration", apply, "jsonPatch", patch, path)
	case admissionregistrationv1.PatchTypeJSONPatch:
		return c.validateMembers(m.PatchType, cel.JSONPatch, "jsonPatch", patch, "applyConfiguration", apply, path)
	case "":
		return api.FormFaults(field.Required(path.Child("patchType"), ""))
	}
	return api.FormFaults(api.OneOf(path.Child("patchType"), m.PatchType, patchTypes)...)
}

// validateMembers requires the field that belongs to the patch type, compiles its expression,
// and rejects the other field.
func (c *compiler) validateMembers(patchType admissionregistrationv1.PatchType, result cel.Want,
	name string, expression *string, otherName string, other *string, path *field.Path) api.Faults {
	var errs api.Faults
	if expression == nil {
		errs = append(errs, api.FormFault(field.Required(path.Child(name), "must be specified when patchType is "+string(patchType))))
	} else {
		errs = append(errs, c.validateExpression(c.mutationScope(*expression), *expression, result, path.Child(name, "expression"))...)
	}
	if other != nil {
		errs = append(errs, api.FormFault(field.Invalid(path.Child(otherName), "{"+otherName+"}", "must not be specified when patchType is "+string(patchType))))
	}
	return errs
}

func (c *compiler) validateExpression(scope *cel.Scope, expression string, want cel.Want, path *field.Path) api.Faults {
	trimmed := strings.TrimSpace(expression)
	if trimmed == "" {
		return api.FormFaults(field.Required(path, ""))
	}
	if scope == nil {
		return nil
	}
	if _, err := scope.Compile(trimmed, want); err != nil {
		return api.Faults{refused(path, trimmed, err)}
	}
	return nil
}

// refused returns an expression's error in the server's form: an unexpected error of the
// compiler is an internal error, not an invalid value (k8s.io/kubernetes
// …/admissionregistration/validation: convertCELErrorToValidationError).
func refused(path *field.Path, expression string, err error) *api.Fault {
	f := api.NewFault(api.Validating, path, expression, err)
	var ce *cel.CompileError
	if errors.As(err, &ce) && ce.Internal {
		f.Form = field.InternalError(path, err)
	} else {
		f.Form = field.Invalid(path, expression, err.Error())
	}
	return f
}
