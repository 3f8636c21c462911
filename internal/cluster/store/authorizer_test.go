package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestReviewSpec(t *testing.T) {
	label, err := labels.Parse("a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1")
	if err != nil {
		t.Fatal(err)
	}
	labelRequirements, _ := label.Requirements()
	field, err := fields.ParseSelector("x=1,y!=2,z==3")
	if err != nil {
		t.Fatal(err)
	}
	alice := &user.DefaultInfo{Name: "alice", UID: "7", Groups: []string{"a", "b"}, Extra: map[string][]string{"scope": {"x", "y"}}}
	tests := map[string]struct {
		attrs authorizer.AttributesRecord
		want  authorizationv1.SubjectAccessReviewSpec
	}{
		"a resource": {
			attrs: authorizer.AttributesRecord{
				User: alice, Verb: "list", Namespace: "shop", APIGroup: "apps", APIVersion: "*", Resource: "deployments", Subresource: "scale", Name: "web", ResourceRequest: true,
				LabelSelectorRequirements: labelRequirements, FieldSelectorRequirements: field.Requirements(),
			},
			want: authorizationv1.SubjectAccessReviewSpec{
				User: "alice", UID: "7", Groups: []string{"a", "b"}, Extra: map[string]authorizationv1.ExtraValue{"scope": {"x", "y"}},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: "list", Namespace: "shop", Group: "apps", Version: "*", Resource: "deployments", Subresource: "scale", Name: "web",
					LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
						{Key: "a", Operator: "In", Values: []string{"b"}},
						{Key: "c", Operator: "NotIn", Values: []string{"d"}},
						{Key: "e", Operator: "In", Values: []string{"f", "g"}},
						{Key: "h", Operator: "NotIn", Values: []string{"i"}},
						{Key: "j", Operator: "Exists"},
						{Key: "k", Operator: "DoesNotExist"},
						// l>1 cannot be said.
					}},
					FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
						{Key: "x", Operator: "In", Values: []string{"1"}},
						{Key: "y", Operator: "NotIn", Values: []string{"2"}},
						{Key: "z", Operator: "In", Values: []string{"3"}},
					}},
				},
			},
		},
		"a path": {
			attrs: authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "bob"}, Verb: "get", Path: "/healthz"},
			want:  authorizationv1.SubjectAccessReviewSpec{User: "bob", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/healthz"}},
		},
		"nobody": {
			attrs: authorizer.AttributesRecord{Verb: "get", Path: "/"},
			want:  authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, reviewSpec(tt.attrs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	type status = authorizationv1.SubjectAccessReviewStatus
	tests := map[string]struct {
		status   status
		decision authorizer.Decision
		err      string
	}{
		"allowed":               {status{Allowed: true, Reason: "r"}, authorizer.DecisionAllow, ""},
		"denied":                {status{Denied: true, Reason: "r"}, authorizer.DecisionDeny, ""},
		"no opinion":            {status{Reason: "r"}, authorizer.DecisionNoOpinion, ""},
		"allowed with an error": {status{Allowed: true, Reason: "r", EvaluationError: "one role is missing"}, authorizer.DecisionAllow, "one role is missing"},
		"only an error":         {status{Reason: "r", EvaluationError: "no roles"}, authorizer.DecisionNoOpinion, "no roles"},
		"both":                  {status{Allowed: true, Denied: true, Reason: "r"}, authorizer.DecisionDeny, "the subject access review both allows and denies"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			decision, reason, err := outcome(tt.status)
			if decision != tt.decision || reason != "r" || errString(err) != tt.err {
				t.Errorf("= %v, %q, %v; want %v, r, %q", decision, reason, err, tt.decision, tt.err)
			}
		})
	}
}
