package validating

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/mapd-project/mapd/internal/detach"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Kinds and resources that this package reads, all in api.NativeGroup.
const (
	PolicyKind      = "ValidatingAdmissionPolicy"
	PolicyResource  = "validatingadmissionpolicies"
	BindingKind     = "ValidatingAdmissionPolicyBinding"
	BindingResource = "validatingadmissionpolicybindings"
)

var policySpellings = api.Spellings{
	api.NativeGroup + "/v1":       func() any { return new(admissionregistrationv1.ValidatingAdmissionPolicy) },
	api.NativeGroup + "/v1beta1":  func() any { return new(admissionregistrationv1beta1.ValidatingAdmissionPolicy) },
	api.NativeGroup + "/v1alpha1": func() any { return new(admissionregistrationv1alpha1.ValidatingAdmissionPolicy) },
}

var bindingSpellings = api.Spellings{
	api.NativeGroup + "/v1":       func() any { return new(admissionregistrationv1.ValidatingAdmissionPolicyBinding) },
	api.NativeGroup + "/v1beta1":  func() any { return new(admissionregistrationv1beta1.ValidatingAdmissionPolicyBinding) },
	api.NativeGroup + "/v1alpha1": func() any { return new(admissionregistrationv1alpha1.ValidatingAdmissionPolicyBinding) },
}

// Program is a compiled ValidatingAdmissionPolicy. It is immutable and safe for
// concurrent use.
type Program struct {
	object    *admissionregistrationv1.ValidatingAdmissionPolicy
	rules     *policy.Policy
	validator validating.Validator
}

// Name returns the policy's name.
func (p *Program) Name() string { return p.object.Name }

// Object returns the policy that was compiled. It must not be modified.
func (p *Program) Object() *admissionregistrationv1.ValidatingAdmissionPolicy { return p.object }

// Bound is a ValidatingAdmissionPolicyBinding whose selectors are parsed. It is
// immutable.
type Bound struct {
	*binding.Binding
	actions []admissionregistrationv1.ValidationAction
}

// NewPolicy decodes, validates and compiles a policy that is to be created. An error
// is the decoder's or api.Faults, in the order of the fields.
func NewPolicy(ctx context.Context, text []byte) (*Program, error) {
	obj, err := decodePolicy(text)
	if err != nil {
		return nil, err
	}
	faults := validate(obj)
	err = compiling.Do(ctx, obj.Name, func() { faults = append(faults, compileErrors(obj)...) })
	switch {
	case err != nil:
		return nil, fmt.Errorf("compiling takes too long: %w", err)
	case len(faults) > 0:
		return nil, faults
	}
	return compilePolicy(ctx, obj), nil
}

// StoredPolicy decodes and compiles a policy that a server has accepted. An error is
// the decoder's. A policy that does not compile denies what it matches, or lets it
// pass, as its failurePolicy says.
func StoredPolicy(ctx context.Context, text []byte) (*Program, error) {
	obj, err := decodePolicy(text)
	if err != nil {
		return nil, err
	}
	return compilePolicy(ctx, obj), nil
}

// NewBinding decodes and validates a binding that is to be created. An error is the
// decoder's or api.Faults.
func NewBinding(text []byte) (*Bound, error) { return newBinding(text, true) }

// StoredBinding decodes a binding that a server has accepted.
func StoredBinding(text []byte) (*Bound, error) { return newBinding(text, false) }

func decodePolicy(text []byte) (*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	obj := new(admissionregistrationv1.ValidatingAdmissionPolicy)
	if _, err := api.DecodeSpelling(text, PolicyKind, policySpellings, obj); err != nil {
		return nil, err
	}
	obj.TypeMeta = metav1.TypeMeta{APIVersion: api.NativeGroup + "/v1", Kind: PolicyKind}
	obj.Namespace = ""
	if obj.Spec.FailurePolicy == nil {
		obj.Spec.FailurePolicy = new(admissionregistrationv1.Fail)
	}
	api.SetMatchDefaults(obj.Spec.MatchConstraints)
	return obj, nil
}

func newBinding(text []byte, check bool) (*Bound, error) {
	obj := new(admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	gv, err := api.DecodeSpelling(text, BindingKind, bindingSpellings, obj)
	if err != nil {
		return nil, err
	}
	api.SetMatchDefaults(obj.Spec.MatchResources)
	if ref := obj.Spec.ParamRef; gv.Version == "v1alpha1" && ref != nil && ref.ParameterNotFoundAction == nil {
		ref.ParameterNotFoundAction = new(admissionregistrationv1.DenyAction)
	}
	mutating := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: obj.ObjectMeta,
		Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: obj.Spec.PolicyName, ParamRef: obj.Spec.ParamRef, MatchResources: obj.Spec.MatchResources,
		},
	}
	if check {
		faults := append(binding.Validate(mutating), api.FormFaults(validateActions(obj.Spec.ValidationActions, field.NewPath("spec", "validationActions"))...)...)
		if len(faults) > 0 {
			return nil, faults
		}
	}
	b, err := binding.Compile(mutating)
	if err != nil {
		return nil, api.Faults{{Phase: api.Compiling, Err: err}}
	}
	return &Bound{b, obj.Spec.ValidationActions}, nil
}

// validateActions checks spec.validationActions as an API server does (k8s.io/kubernetes
// pkg/apis/admissionregistration/validation).
func validateActions(actions []admissionregistrationv1.ValidationAction, path *field.Path) (errs field.ErrorList) {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(path, "at least one validation action is required")}
	}
	for i, a := range actions {
		errs = append(errs, api.OneOf(path.Index(i), a, []admissionregistrationv1.ValidationAction{
			admissionregistrationv1.Audit, admissionregistrationv1.Deny, admissionregistrationv1.Warn})...)
		if slices.Contains(actions[:i], a) {
			errs = append(errs, field.Duplicate(path.Index(i), a))
		}
	}
	if slices.Contains(actions, admissionregistrationv1.Deny) && slices.Contains(actions, admissionregistrationv1.Warn) {
		errs = append(errs, field.Invalid(path, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}

// reasons are those that the API allows in spec.validations[].reason.
var reasons = []metav1.StatusReason{
	metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonUnauthorized,
}

// maxAuditAnnotations is the API's limit on spec.auditAnnotations.
const maxAuditAnnotations = 20

// validate returns the faults of a policy, except those of its expressions. Fields that mutating
// policies have as well are checked by the same code.
func validate(obj *admissionregistrationv1.ValidatingAdmissionPolicy) api.Faults {
	faults := slices.DeleteFunc(policy.ValidateStored(asMutating(obj)), func(f *api.Fault) bool { return f.Path == "spec.mutations" })
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if len(obj.Spec.Validations) == 0 && len(obj.Spec.AuditAnnotations) == 0 {
		for _, member := range []string{"validations", "auditAnnotations"} {
			errs = append(errs, field.Required(spec.Child(member), "validations or auditAnnotations must contain at least one item"))
		}
	}
	for i := range obj.Spec.Validations {
		v, path := &obj.Spec.Validations[i], spec.Child("validations").Index(i)
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(path.Child("expression"), "expression is not specified"))
		}
		if v.MessageExpression != "" && strings.TrimSpace(v.MessageExpression) == "" {
			errs = append(errs, field.Invalid(path.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
		}
		if message := strings.TrimSpace(v.Message); v.Message != "" && message == "" {
			errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must be non-empty if specified"))
		} else if strings.ContainsAny(message, "\r\n") {
			errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must not contain line breaks"))
		}
		if v.Reason != nil {
			errs = append(errs, api.OneOf(path.Child("reason"), *v.Reason, reasons)...)
		}
	}
	if n := len(obj.Spec.AuditAnnotations); n > maxAuditAnnotations {
		errs = append(errs, field.Invalid(spec.Child("auditAnnotations"), obj.Spec.AuditAnnotations, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	keys := map[string]bool{}
	for i, a := range obj.Spec.AuditAnnotations {
		path := spec.Child("auditAnnotations").Index(i)
		for _, msg := range validation.IsQualifiedName(obj.Name + "/" + a.Key) {
			errs = append(errs, field.Invalid(path.Child("key"), obj.Name+"/"+a.Key, msg))
		}
		if strings.TrimSpace(a.ValueExpression) == "" {
			errs = append(errs, field.Required(path.Child("valueExpression"), "valueExpression is not specified"))
		}
		if keys[a.Key] {
			errs = append(errs, field.Duplicate(path.Child("key"), a.Key))
		}
		keys[a.Key] = true
	}
	return append(faults, api.FormFaults(errs...)...)
}

// asMutating returns a mutating policy without mutations that matches what obj
// matches.
func asMutating(obj *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.MutatingAdmissionPolicy {
	return &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: obj.ObjectMeta,
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ParamKind: obj.Spec.ParamKind, MatchConstraints: obj.Spec.MatchConstraints, MatchConditions: obj.Spec.MatchConditions,
			Variables: obj.Spec.Variables, FailurePolicy: obj.Spec.FailurePolicy, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		},
	}
}

// compiling bounds how many policies are compiled at once: cel-go's parser and
// checker cannot be interrupted.
var compiling = detach.New(runtime.GOMAXPROCS(0))

// compilePolicy compiles a policy as a server does when it learns of one
// (k8s.io/apiserver …/policy/validating/plugin.go: compilePolicy, which is not
// exported).
func compilePolicy(ctx context.Context, obj *admissionregistrationv1.ValidatingAdmissionPolicy) *Program {
	p := &Program{object: obj, rules: policy.Broken(asMutating(obj), errValidates)}
	var v validating.Validator
	if err := compiling.Do(ctx, obj.Name, func() { v = newValidator(obj) }); err != nil {
		v = validating.NewValidator(nil, nil, nil, nil, obj.Spec.FailurePolicy, fmt.Errorf("compiling takes too long: %w", err))
	}
	p.validator = v
	return p
}

// errValidates is the error of a Program if it is run as a mutating policy, which it never is.
var errValidates = fmt.Errorf("a %s changes nothing", PolicyKind)

func newValidator(obj *admissionregistrationv1.ValidatingAdmissionPolicy) validating.Validator {
	failurePolicy := obj.Spec.FailurePolicy
	e := newExpressions(obj, environment.StoredExpressions)
	if e.err != nil {
		return validating.NewValidator(nil, nil, nil, nil, failurePolicy, e.err)
	}
	var conditions matchconditions.Matcher
	if len(obj.Spec.MatchConditions) > 0 {
		conditions = matchconditions.NewMatcher(e.condition(e.conditions, true), failurePolicy, "policy", "validate", obj.Name)
	}
	return validating.NewValidator(e.condition(e.validations, true), conditions, e.condition(e.annotations, true),
		e.condition(e.messages, false), failurePolicy, nil)
}

// expressions are the expressions of a policy in the form that the server's compiler takes.
type expressions struct {
	compiler *plugincel.CompositedCompiler
	mode     environment.Type
	params   bool
	err      error

	conditions, validations, messages, annotations []plugincel.ExpressionAccessor // nil where the field has no expression
	variables                                      []plugincel.CompilationResult
}

func newExpressions(obj *admissionregistrationv1.ValidatingAdmissionPolicy, mode environment.Type) *expressions {
	e := &expressions{mode: mode, params: obj.Spec.ParamKind != nil}
	e.compiler, e.err = plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if e.err != nil {
		return e
	}
	for _, v := range obj.Spec.Variables {
		e.variables = append(e.variables, e.compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, e.declared(true), mode))
	}
	for i := range obj.Spec.MatchConditions {
		e.conditions = append(e.conditions, (*matchconditions.MatchCondition)(&obj.Spec.MatchConditions[i]))
	}
	for _, v := range obj.Spec.Validations {
		e.validations = append(e.validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		var message plugincel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		e.messages = append(e.messages, message)
	}
	for _, a := range obj.Spec.AuditAnnotations {
		e.annotations = append(e.annotations, &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression})
	}
	return e
}

func (e *expressions) declared(authorizer bool) plugincel.OptionalVariableDeclarations {
	return plugincel.OptionalVariableDeclarations{HasParams: e.params, HasAuthorizer: authorizer}
}

func (e *expressions) condition(all []plugincel.ExpressionAccessor, authorizer bool) plugincel.ConditionEvaluator {
	return e.compiler.CompileCondition(all, e.declared(authorizer), e.mode)
}

// compileErrors compiles the expressions of a policy as a server does when it is
// created, and returns what does not compile.
func compileErrors(obj *admissionregistrationv1.ValidatingAdmissionPolicy) (faults api.Faults) {
	e := newExpressions(obj, environment.NewExpressions)
	spec := field.NewPath("spec")
	if e.err != nil {
		return api.Faults{api.NewFault(api.Compiling, spec, "", e.err)}
	}
	fail := func(path *field.Path, expression string, err *apiservercel.Error) {
		if err != nil {
			faults = append(faults, api.NewFault(api.Compiling, path, expression, err))
		}
	}
	each := func(part, member string, all []plugincel.ExpressionAccessor, compiler plugincel.Compiler, authorizer bool) {
		for i, x := range all {
			if x != nil && strings.TrimSpace(x.GetExpression()) != "" {
				fail(spec.Child(part).Index(i).Child(member), x.GetExpression(), compiler.CompileCELExpression(x, e.declared(authorizer), e.mode).Error)
			}
		}
	}
	// The API refuses variables in match conditions, although they would work in a stored policy.
	bare := plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	each("matchConditions", "expression", e.conditions, bare, true)
	for i, v := range obj.Spec.Variables {
		fail(spec.Child("variables").Index(i).Child("expression"), v.Expression, e.variables[i].Error)
	}
	each("validations", "expression", e.validations, e.compiler, true)
	each("validations", "messageExpression", e.messages, e.compiler, false)
	each("auditAnnotations", "valueExpression", e.annotations, e.compiler, true)
	return faults
}
