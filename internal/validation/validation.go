// Package validation answers one question: may this user write this policy or
// this binding?
package validation

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Validator checks what is written into mapd's own API group.
type Validator struct {
	Env        *cel.Env
	Authorizer authorizer.Authorizer
	Types      *openapi.Types
	// Warn returns what a writer should know about a policy that is fine.
	Warn func(p *policy.Policy, types *openapi.Types) []string
}

var _ webhook.Validator = (*Validator)(nil)

// Validate implements webhook.Validator.
func (v *Validator) Validate(ctx context.Context, req *policy.Request) (*metav1.Status, []string) {
	return nil, nil
}
