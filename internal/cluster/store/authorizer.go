package store

import (
	"context"
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// NewAuthorizer returns an authorizer that asks the API server by SubjectAccessReview (spec §12,
// G11). It caches nothing: the engine caches answers for each request.
func NewAuthorizer(client kubernetes.Interface) authorizer.Authorizer {
	return &reviewer{client.AuthorizationV1().SubjectAccessReviews()}
}

type reviewer struct {
	reviews authorizationclient.SubjectAccessReviewInterface
}

// Authorize implements authorizer.Authorizer. Like an API server's own webhook authorizer, it has
// no opinion if the question fails.
func (r *reviewer) Authorize(ctx context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	review, err := r.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: reviewSpec(attrs)}, metav1.CreateOptions{})
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	return outcome(review.Status)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer: a review knows no
// conditions.
func (r *reviewer) ConditionsAwareAuthorize(ctx context.Context, attrs authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, attrs))
}

// EvaluateConditions implements authorizer.Authorizer.
func (r *reviewer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// outcome converts the status of a review. A status may have both a decision and an error
// (k8s.io/kubernetes pkg/registry/authorization/subjectaccessreview: Create writes both).
func outcome(status authorizationv1.SubjectAccessReviewStatus) (authorizer.Decision, string, error) {
	var err error
	if status.EvaluationError != "" {
		err = errors.New(status.EvaluationError)
	}
	switch {
	case status.Allowed && status.Denied:
		return authorizer.DecisionDeny, status.Reason, errors.Join(err, errors.New("the subject access review both allows and denies"))
	case status.Denied:
		return authorizer.DecisionDeny, status.Reason, err
	case status.Allowed:
		return authorizer.DecisionAllow, status.Reason, err
	}
	return authorizer.DecisionNoOpinion, status.Reason, err
}

// reviewSpec converts the attributes of a request to the spec of a review.
func reviewSpec(attrs authorizer.Attributes) authorizationv1.SubjectAccessReviewSpec {
	var spec authorizationv1.SubjectAccessReviewSpec
	if user := attrs.GetUser(); user != nil {
		spec.User, spec.UID, spec.Groups = user.GetName(), user.GetUID(), user.GetGroups()
		if extra := user.GetExtra(); len(extra) > 0 {
			spec.Extra = make(map[string]authorizationv1.ExtraValue, len(extra))
			for key, values := range extra {
				spec.Extra[key] = values
			}
		}
	}
	if !attrs.IsResourceRequest() {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: attrs.GetPath(), Verb: attrs.GetVerb()}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace:   attrs.GetNamespace(),
		Verb:        attrs.GetVerb(),
		Group:       attrs.GetAPIGroup(),
		Version:     attrs.GetAPIVersion(),
		Resource:    attrs.GetResource(),
		Subresource: attrs.GetSubresource(),
		Name:        attrs.GetName(),
	}
	if fields := fieldRequirements(attrs); len(fields) > 0 {
		spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: fields}
	}
	if labels := labelRequirements(attrs); len(labels) > 0 {
		spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: labels}
	}
	return spec
}

// fieldRequirements returns those requirements of a field selector that a review can express. A
// selector only narrows the request, so leaving out a requirement asks for more rights, never for
// fewer.
func fieldRequirements(attrs authorizer.Attributes) []metav1.FieldSelectorRequirement {
	requirements, _ := attrs.GetFieldSelector()
	var out []metav1.FieldSelectorRequirement
	for _, r := range requirements {
		var op metav1.FieldSelectorOperator
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
			op = metav1.FieldSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			op = metav1.FieldSelectorOpNotIn
		default:
			continue
		}
		out = append(out, metav1.FieldSelectorRequirement{Key: r.Field, Operator: op, Values: []string{r.Value}})
	}
	return out
}

// labelRequirements returns those requirements of a label selector that a review can express.
func labelRequirements(attrs authorizer.Attributes) []metav1.LabelSelectorRequirement {
	requirements, _ := attrs.GetLabelSelector()
	var out []metav1.LabelSelectorRequirement
	for _, r := range requirements {
		var op metav1.LabelSelectorOperator
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			op = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			op = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			op = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			op = metav1.LabelSelectorOpDoesNotExist
		default:
			continue
		}
		values := r.ValuesUnsorted()
		if len(values) == 0 {
			values = nil
		}
		out = append(out, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: op, Values: values})
	}
	return out
}
