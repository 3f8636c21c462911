package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/mapd-project/mapd/pkg/webhook"
)

const (
	// accessTTL is how long the answer to one question of an Access is used again.
	accessTTL = 10 * time.Second
	// maxAccess bounds how many answers an Access remembers.
	maxAccess = 256
	// maxToken is the length of the longest token that an Access looks at.
	maxToken = 16 << 10
	// How often an Access asks the API server, per second: anybody who reaches mapd's
	// port can send tokens.
	accessRate  = 5
	accessBurst = 20
)

// Access decides who may read what mapd serves besides reviews, as components of
// Kubernetes decide who may read their metrics: a TokenReview says who has sent a token,
// and a SubjectAccessReview whether that user may get the path. It is safe for
// concurrent use.
type Access struct {
	tokens     authenticationclient.TokenReviewInterface
	authorizer authorizer.Authorizer
	rate       flowcontrol.PassiveRateLimiter

	mu      sync.Mutex
	answers map[question]answer
}

// question is a token, by its hash, and a path.
type question struct {
	token [sha256.Size]byte
	path  string
}

type answer struct {
	err error
	at  time.Time
}

// NewAccess returns an Access that asks the server of kube.
func NewAccess(kube kubernetes.Interface) *Access {
	return &Access{
		tokens: kube.AuthenticationV1().TokenReviews(), authorizer: NewAuthorizer(kube),
		rate: flowcontrol.NewTokenBucketPassiveRateLimiter(accessRate, accessBurst), answers: map[question]answer{},
	}
}

// Authorize returns nil if the user with this token may get the path, and otherwise a
// *webhook.ReviewError: 401 without a token that the API server knows, 403 without the
// right, 429 if there are too many questions, 503 if the API server does not answer.
// Answers of the API server are used again for seconds.
func (a *Access) Authorize(ctx context.Context, token, path string) error {
	switch {
	case token == "":
		return refused(http.StatusUnauthorized, "a bearer token is required")
	case len(token) > maxToken:
		return refused(http.StatusUnauthorized, "the bearer token is longer than %d bytes", maxToken)
	}
	q := question{sha256.Sum256([]byte(token)), path}
	if known, ok := a.known(q); ok {
		return known.err
	}
	if !a.rate.TryAccept() {
		return refused(http.StatusTooManyRequests, "too many tokens have to be checked; try again in a second")
	}
	err := a.ask(ctx, token, path)
	var said *webhook.ReviewError
	if err == nil || errors.As(err, &said) && said.Code != http.StatusServiceUnavailable {
		a.remember(q, answer{err, time.Now()})
	}
	return err
}

func (a *Access) known(q question) (answer, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, ok := a.answers[q]
	return found, ok && time.Since(found.at) < accessTTL
}

// remember keeps an answer. If there are too many, those that are too old go, and all if
// none is.
func (a *Access) remember(q question, is answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.answers) >= maxAccess {
		for old, was := range a.answers {
			if is.at.Sub(was.at) >= accessTTL {
				delete(a.answers, old)
			}
		}
		if len(a.answers) >= maxAccess {
			clear(a.answers)
		}
	}
	a.answers[q] = is
}

// ask asks the API server.
func (a *Access) ask(ctx context.Context, token, path string) error {
	review, err := a.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		// The error's text is for mapd's operator: it may hold addresses.
		return refused(http.StatusServiceUnavailable, "the API server cannot be asked about the token")
	case !review.Status.Authenticated || review.Status.User.Username == "":
		return refused(http.StatusUnauthorized, "the API server does not know the token")
	}
	who := review.Status.User
	extra := make(map[string][]string, len(who.Extra))
	for k, v := range who.Extra {
		extra[k] = v
	}
	decision, _, err := a.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra}, Verb: "get", Path: path,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil && decision == authorizer.DecisionNoOpinion:
		return refused(http.StatusServiceUnavailable, "the API server cannot be asked about the rights of %q", who.Username)
	}
	return refused(http.StatusForbidden, "user %q may not get %q; the ClusterRole mapd-records gives the right", who.Username, path)
}

func refused(code int, format string, args ...any) error {
	return &webhook.ReviewError{Code: code, Reason: fmt.Sprintf(format, args...)}
}
