package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/mapd-project/mapd/internal/cluster/bearer"
	"github.com/mapd-project/mapd/pkg/webhook"
)

const (
	// accessTTL is how long an Access reuses the answer to a question.
	accessTTL = 10 * time.Second
	// maxAccess bounds the cached granted answers, and the cached refused ones.
	maxAccess = 256
	// accessRate and the burst bound how often one caller can make an Access ask the API server,
	// per second: anybody who reaches mapd's port can send tokens.
	accessRate  = 5
	accessBurst = 20
	// accessRateOfAll and its burst bound all callers from other machines together.
	accessRateOfAll  = 50
	accessBurstOfAll = 200
	// maxCallers bounds the callers that have their own bucket.
	maxCallers = 1024
)

// Access decides who may read what mapd serves besides reviews, in the same way as Kubernetes
// components protect their metrics: a TokenReview for mapd's own audience tells who has sent a
// token, and a SubjectAccessReview whether that user may get the path. It is safe for concurrent
// use.
type Access struct {
	tokens     authenticationclient.TokenReviewInterface
	authorizer authorizer.Authorizer

	mu      sync.Mutex
	all     bucket
	callers map[netip.Prefix]bucket
	// Many refused tokens displace no answer in granted, because granted has only answers for
	// users with the right.
	granted map[question]time.Time
	refused map[question]answer
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
		callers: map[netip.Prefix]bucket{}, granted: map[question]time.Time{}, refused: map[question]answer{},
	}
}

// Authorize returns nil if the user with this token may get the path, and otherwise a
// *webhook.ReviewError: 401 without a token that the API server knows for mapd's audience, 403
// without the right, 429 if this caller sends too many tokens, 503 if the API server does not
// answer. It reuses answers of the API server for some seconds.
func (a *Access) Authorize(ctx context.Context, from netip.Prefix, token, path string) error {
	now := time.Now()
	if err := bearer.Check(token, now); err != nil {
		return refused(http.StatusUnauthorized, "%v", err)
	}
	q := question{sha256.Sum256([]byte(token)), path}
	if err, known := a.begin(q, from, now); known || err != nil {
		return err
	}
	err := a.ask(ctx, token, path)
	var said *webhook.ReviewError
	if err == nil || errors.As(err, &said) && said.Code != http.StatusServiceUnavailable {
		a.remember(q, err, now)
	}
	return err
}

// begin returns the cached answer to a question; known is false if there is none. Then the caller
// may ask the API server, unless err is not nil.
func (a *Access) begin(q question, from netip.Prefix, now time.Time) (err error, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, granted := a.granted[q]
	if granted && now.Sub(at) < accessTTL {
		return nil, true
	}
	if was, ok := a.refused[q]; ok && now.Sub(was.at) < accessTTL {
		return was.err, true
	}
	// If the token had the right earlier, there is no rate limit: only a user with the right can
	// send it, and other callers from the same address must not block this user.
	if granted || a.admit(from, now) {
		return nil, false
	}
	return refused(http.StatusTooManyRequests, "too many tokens from your address have to be checked; try again in a second"), false
}

// loopback stands for all loopback addresses, which share one bucket.
var loopback = netip.MustParsePrefix("127.0.0.1/32")

// admit reports whether a caller may make mapd ask the API server. The caller of admit holds
// a.mu.
//
// Commands reach replicas by port-forward, that is from the Pod's loopback address. Callers from
// other machines cannot use up what is left for commands.
func (a *Access) admit(from netip.Prefix, now time.Time) bool {
	local := from.Addr().IsLoopback()
	if local {
		from = loopback
	}
	own, ok := a.callers[from]
	if !ok && !local && len(a.callers) >= maxCallers {
		for p, b := range a.callers {
			if b.full(now) {
				delete(a.callers, p)
			}
		}
		if len(a.callers) >= maxCallers {
			from = netip.Prefix{} // callers beyond maxCallers share a bucket
			own = a.callers[from]
		}
	}
	ok = own.take(now, accessRate, accessBurst)
	a.callers[from] = own
	return ok && (local || a.all.take(now, accessRateOfAll, accessBurstOfAll))
}

// remember caches an answer.
func (a *Access) remember(q question, err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		delete(a.granted, q)
		if len(a.refused) >= maxAccess {
			clear(a.refused)
		}
		a.refused[q] = answer{err, now}
		return
	}
	if _, ok := a.granted[q]; !ok && len(a.granted) >= maxAccess {
		oldest, first := q, now
		for other, at := range a.granted {
			if !at.After(first) {
				oldest, first = other, at
			}
		}
		delete(a.granted, oldest)
	}
	a.granted[q] = now
}

// ask asks the API server.
func (a *Access) ask(ctx context.Context, token, path string) error {
	review, err := a.tokens.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{bearer.Audience}},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		// The text of the error is for mapd's operator only, because it may contain addresses.
		return refused(http.StatusServiceUnavailable, "the API server cannot be asked about the token")
	case !review.Status.Authenticated || review.Status.User.Username == "":
		return refused(http.StatusUnauthorized, "the API server does not know the token")
	case !slices.Contains(review.Status.Audiences, bearer.Audience):
		// An API server that has checked the audience says so in its answer.
		return refused(http.StatusUnauthorized, "the API server does not say that the token is for the audience %s", bearer.Audience)
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

// bucket is a token bucket. The zero bucket is full.
type bucket struct {
	missing float64 // tokens that were taken and had not come back at the time at
	at      time.Time
	rate    float64
}

// take takes a token if there is one.
func (b *bucket) take(now time.Time, rate, burst float64) bool {
	b.missing, b.at, b.rate = max(b.missing-now.Sub(b.at).Seconds()*rate, 0), now, rate
	if b.missing+1 > burst {
		return false
	}
	b.missing++
	return true
}

// full reports whether all tokens have come back.
func (b *bucket) full(now time.Time) bool { return now.Sub(b.at).Seconds()*b.rate >= b.missing }
