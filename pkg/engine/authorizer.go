package engine

import (
	"context"

	caching "k8s.io/apiserver/pkg/admission/plugin/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// requestAuthorizer asks its Authorizer about equal attributes only once for a
// request, as the server does: many policies ask the same, and answers may come over
// a network. It serves one request, which runs on one goroutine.
type requestAuthorizer struct {
	authorizer.Authorizer
	memo authorizer.UnconditionalAuthorizer
}

// Authorize implements authorizer.Authorizer.
func (a *requestAuthorizer) Authorize(ctx context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.memo == nil {
		a.memo = caching.NewCachingAuthorizer(a.Authorizer)
	}
	return a.memo.Authorize(ctx, attrs)
}
