package controllers

import (
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Condition types of policies and bindings.
const (
	typeReady          = "Ready"
	typeCompiled       = "Compiled"
	typeParamKindFound = "ParamKindFound"
	typePolicyFound    = "PolicyFound"
)

// Reasons of conditions. Those that an operator has to act on are reasons of events, too.
const (
	reasonNotCompiled       = "NotCompiled"
	reasonParamKindNotFound = "ParamKindNotFound"
	reasonParamsForbidden   = "ParamsForbidden"
	reasonParamsUnavailable = "ParamsUnavailable"
	reasonNeverMatches      = "NeverMatches"
	reasonPolicyNotFound    = "PolicyNotFound"
	reasonInvalid           = "Invalid"
	reasonBreakerTripped    = "BreakerTripped"
)

// maxMessage bounds the text of a condition or an event, in bytes. The API server accepts at most
// 1024 for events.
const maxMessage = 1000

// maxWarnings bounds how many warnings a status lists.
const maxWarnings = 50

// status is the status of a policy or a binding.
type status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// TypeChecking has the same form as in a ValidatingAdmissionPolicy.
	TypeChecking *typeChecking `json:"typeChecking,omitempty"`
	// Rollout says what a binding has done; nil for policies.
	Rollout *rolloutStatus `json:"rollout,omitempty"`
}

type typeChecking struct {
	ExpressionWarnings []expressionWarning `json:"expressionWarnings,omitempty"`
}

type expressionWarning struct {
	FieldRef string `json:"fieldRef"`
	Warning  string `json:"warning"`
}

// policyStatus returns the status of a policy, with zero times.
func policyStatus(p store.PolicyState, unroutable bool) status {
	s := status{ObservedGeneration: p.Object.GetGeneration()}
	ok := func(kind, reason, message string) metav1.Condition { return s.condition(kind, true, reason, message) }
	no := func(kind, reason, message string) metav1.Condition { return s.condition(kind, false, reason, message) }

	isCompiled := ok(typeCompiled, "Compiled", "all expressions compile")
	if len(p.Errs) > 0 {
		isCompiled = no(typeCompiled, reasonNotCompiled, joined(p.Errs))
	}
	found := ok(typeParamKindFound, "NotNeeded", "the policy takes no parameters")
	params := found
	if k := p.ParamKind; k != nil {
		kind := k.GVK.GroupVersion().String() + ", kind " + k.GVK.Kind
		found = ok(typeParamKindFound, "Found", kind+" is served")
		params = found
		switch {
		case !k.Found:
			found = no(typeParamKindFound, reasonParamKindNotFound, "the API server does not serve "+kind)
			params = found
		case k.Err == nil:
		case apierrors.IsForbidden(k.Err):
			params = no(typeReady, reasonParamsForbidden, "mapd may not read "+kind+": "+k.Err.Error())
		default:
			params = no(typeReady, reasonParamsUnavailable, kind+" cannot be read: "+k.Err.Error())
		}
	}
	isReady := ok(typeReady, "InUse", "the policy applies as its bindings say")
	if !p.Bound {
		isReady = ok(typeReady, "NotBound", "the policy has no effect, because no binding names it")
	}
	var never *policy.Warning
	if p.Policy != nil {
		never = lint.MatchesNothing(p.Policy.Object().Spec.MatchConstraints, p.Warnings)
	}
	switch {
	case p.Breaker.Trip != nil:
		isReady = no(typeReady, reasonBreakerTripped, trippedMessage(p.Breaker.Trip))
	case isCompiled.Status != metav1.ConditionTrue:
		isReady = no(typeReady, isCompiled.Reason, "the policy does not compile, so requests that it matches fail by its failurePolicy")
	case params.Status != metav1.ConditionTrue:
		isReady = no(typeReady, params.Reason, params.Message)
	case unroutable:
		isReady = no(typeReady, reasonNeverMatches, "no rule of the policy can match a request")
	case never != nil:
		isReady = no(typeReady, reasonNeverMatches, "the policy can match no request: "+never.Field+": "+never.Message)
	case len(p.Warnings) > 0:
		isReady.Message += "; but " + warned(p.Warnings)
	}
	s.Conditions = []metav1.Condition{isReady, isCompiled, found}

	if len(p.Warnings) > 0 {
		s.TypeChecking = &typeChecking{}
		for i, warning := range p.Warnings {
			if i == maxWarnings {
				break
			}
			text := warning.Message
			if warning.Line > 0 {
				text = fmt.Sprintf("%d:%d: %s", warning.Line, warning.Column, text)
			}
			s.TypeChecking.ExpressionWarnings = append(s.TypeChecking.ExpressionWarnings, expressionWarning{FieldRef: warning.Field, Warning: bounded(text)})
		}
	}
	return s.bounded()
}

// warned returns the first warning with its field, and the number of further ones.
func warned(warnings []policy.Warning) string {
	text := warnings[0].Field + ": " + warnings[0].Message
	if more := len(warnings) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// bindingStatus returns the status of a binding, with zero times.
func bindingStatus(b store.BindingState) status {
	s := status{ObservedGeneration: b.Object.GetGeneration()}
	found := s.condition(typePolicyFound, true, "Found", fmt.Sprintf("policy %q exists", b.PolicyName))
	if !b.PolicyFound {
		found = s.condition(typePolicyFound, false, reasonPolicyNotFound, fmt.Sprintf("there is no policy %q", b.PolicyName))
	}
	isReady := s.condition(typeReady, true, "InUse", fmt.Sprintf("policy %q applies as the binding says", b.PolicyName))
	switch {
	case b.Err != nil:
		isReady = s.condition(typeReady, false, reasonInvalid, "the binding has no effect: "+b.Err.Error())
	case !b.PolicyFound:
		isReady = s.condition(typeReady, false, reasonPolicyNotFound, "the binding has no effect: "+found.Message)
	}
	if isReady.Status == metav1.ConditionTrue && len(b.Warnings) > 0 {
		if w := lint.MatchesNothing(b.Binding.Object().Spec.MatchResources, b.Warnings); w != nil {
			isReady = s.condition(typeReady, false, reasonNeverMatches, "the binding can match no request: "+w.Field+": "+w.Message)
		} else {
			isReady.Message += "; but " + warned(b.Warnings)
		}
	}
	s.Conditions = []metav1.Condition{isReady, found}
	return s.bounded()
}

func (s status) condition(kind string, ok bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, ObservedGeneration: s.ObservedGeneration, Reason: reason, Message: message}
	if ok {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func (s status) bounded() status {
	for i := range s.Conditions {
		s.Conditions[i].Message = bounded(s.Conditions[i].Message)
	}
	return s
}

// bounded cuts text to maxMessage bytes, between characters.
func bounded(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxMessage {
		return text
	}
	const more = " …"
	cut := maxMessage - len(more)
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + more
}

// joined returns the texts of all errors. If they are too long, it ends with the number of errors
// left out.
func joined(errs []error) string {
	var b strings.Builder
	for i, err := range errs {
		text := err.Error()
		if i > 0 && b.Len()+len(text)+1 > maxMessage-100 {
			fmt.Fprintf(&b, "\nand %d more", len(errs)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(text)
	}
	return b.String()
}

// withTransitionTimes sets the transition time of every condition: the time in before if the
// status of the condition is the same there, otherwise now.
func (s status) withTransitionTimes(before status, now metav1.Time) status {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.LastTransitionTime = now
		if old := before.get(c.Type); old != nil && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return s
}

func (s status) get(kind string) *metav1.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

// equal reports whether writing s over before would change nothing.
func (s status) equal(before status) bool {
	return apiequality.Semantic.DeepEqual(s.withTransitionTimes(before, metav1.Time{}), before)
}

// statusOf reads the status of an object. Parts that cannot be decoded count as missing, and are
// overwritten.
func statusOf(u *unstructured.Unstructured) status {
	var s status
	m, ok := u.Object["status"].(map[string]any)
	if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(m, &s) != nil {
		return status{}
	}
	return s
}

// object returns an apply configuration for the status of u.
func (s status) object(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{Object: map[string]any{"status": m}}
	out.SetAPIVersion(u.GetAPIVersion())
	out.SetKind(u.GetKind())
	out.SetName(u.GetName())
	// The UID makes sure that the status is not written to a new object of the same name.
	out.SetUID(u.GetUID())
	return out, nil
}
