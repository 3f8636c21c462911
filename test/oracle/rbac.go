package oracle

import (
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/internal/apiserver/rbac"
	"github.com/mapd-project/mapd/test/cases"
)

// rbacAuthorizer answers from the case's RBAC objects; without any it has no
// opinion.
func rbacAuthorizer(c *cases.Case) (authorizer.UnconditionalAuthorizer, error) {
	if len(c.RBAC) == 0 {
		return nil, nil
	}
	return rbac.New(c.RBAC...)
}
