package replicas

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// reader is the ServiceAccount for users who have no bearer token.
const reader = "mapd-reader"

// tokenSeconds is how long its token is valid, the least that API servers grant.
const tokenSeconds = 600

// auth says how requests to replicas are authenticated.
type auth struct {
	own    bool // the user has a bearer token
	config *rest.Config
	token  func(ctx context.Context) (string, error)
}

func newAuth(s *Set) auth {
	c := s.config
	a := auth{
		// A token of who impersonates another user would say too much.
		own: (c.BearerToken != "" || c.BearerTokenFile != "" || c.ExecProvider != nil || c.AuthProvider != nil) && c.Impersonate.UserName == "",
		config: &rest.Config{
			Host: c.Host, BearerToken: c.BearerToken, BearerTokenFile: c.BearerTokenFile, ExecProvider: c.ExecProvider,
			AuthProvider: c.AuthProvider, AuthConfigPersister: c.AuthConfigPersister,
		},
	}
	var mu sync.Mutex
	known := ""
	a.token = func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if known != "" {
			return known, nil
		}
		seconds := int64(tokenSeconds)
		got, err := s.kube.CoreV1().ServiceAccounts(s.namespace).CreateToken(ctx, reader,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
		if err != nil {
			return "", fmt.Errorf("replicas want a bearer token, and the user of this kubeconfig has none that they know; a token of the ServiceAccount %s/%s: %w", s.namespace, reader, err)
		}
		known = got.Status.Token
		return known, nil
	}
	return a
}

// asUser returns a transport that authenticates as the user, or as mapd-reader if the user
// has no token.
func (a *auth) asUser(ctx context.Context, t http.RoundTripper) (http.RoundTripper, error) {
	if a.own {
		return rest.HTTPWrappersForConfig(a.config, t)
	}
	return a.asReader(ctx, t)
}

// asReader returns a transport that authenticates as mapd-reader.
func (a *auth) asReader(ctx context.Context, t http.RoundTripper) (http.RoundTripper, error) {
	token, err := a.token(ctx)
	if err != nil {
		return nil, err
	}
	return rest.HTTPWrappersForConfig(&rest.Config{BearerToken: token}, t)
}
