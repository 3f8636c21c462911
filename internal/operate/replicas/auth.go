package replicas

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/cluster/bearer"
)

const (
	// tokenSeconds is how long a token is valid. API servers do not grant less.
	tokenSeconds = 600
	// tokenSpare is how long before its end a token is no longer used.
	tokenSpare = time.Minute
)

// tokens requests tokens that only replicas accept. No other credential is ever sent to a replica:
// its address comes from the cluster, where others may have changed it, and whoever received the
// user's own credentials could use all of the user's rights in the cluster.
type tokens struct {
	mu        sync.Mutex
	namespace string // of the token
	token     string
	until     time.Time // when another one is requested
}

// of returns a token of the ServiceAccount mapd-reader in a namespace.
func (t *tokens) of(ctx context.Context, kube kubernetes.Interface, namespace string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.namespace == namespace && now.Before(t.until) {
		return t.token, nil
	}
	seconds := int64(tokenSeconds)
	got, err := kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, bearer.ServiceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{bearer.Audience}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	who := namespace + "/" + bearer.ServiceAccount
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("replicas answer only with a token of the ServiceAccount %s, and you may not create one; the Role mapd-records gives the right (create serviceaccounts/token, resourceName %s): %w",
			who, bearer.ServiceAccount, err)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("replicas answer only with a token of the ServiceAccount %s, which does not exist; mapd install and the manifests create it: %w", who, err)
	case err != nil:
		return "", fmt.Errorf("a token of the ServiceAccount %s: %w", who, err)
	}
	// A server that ignores audiences would return a token that it accepts itself. The expiration
	// is not checked here (the time is zero) but by the replica, whose clock may differ.
	if err := bearer.Check(got.Status.Token, time.Time{}); err != nil {
		return "", fmt.Errorf("the API server has returned another token of the ServiceAccount %s than was asked for, so it is not sent: %w", who, err)
	}
	t.namespace, t.token, t.until = namespace, got.Status.Token, now.Add(tokenSeconds*time.Second-tokenSpare)
	return t.token, nil
}
