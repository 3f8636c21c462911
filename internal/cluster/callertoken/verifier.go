// Package callertoken verifies the tokens by which API servers authenticate to admission
// webhooks (KEP-6060): ServiceAccount tokens for the address of one webhook, bound to a
// webhook configuration, about resources of named API groups. Kubernetes 1.37 issues them
// behind the feature gate APIServerWebhookAuthenticationToken
// (pkg/registry/core/serviceaccount/storage/token.go, pkg/serviceaccount/claims.go).
//
// Tokens are verified here and not by a TokenReview, as the KEP wants it: a review must not
// wait for the API server that waits for its answer.
package callertoken

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Mode says what happens to a review without a valid token.
type Mode string

// Modes of a Verifier.
const (
	// Off does not look at tokens.
	Off Mode = "off"
	// Warn answers the review, and counts and logs that it had no valid token.
	Warn Mode = "warn"
	// Require refuses with 401, or 403 for an API group that the token does not name, so
	// that the failurePolicy of the entry applies.
	Require Mode = "require"
)

const (
	// maxToken bounds the length of a token that is parsed.
	maxToken = 16 << 10
	// maxVerified bounds how many tokens are remembered.
	maxVerified = 256
	// maxSkew is how far the clocks of two machines may differ.
	maxSkew = 30 * time.Second
	// askTimeout bounds one request to the API server.
	askTimeout = 2 * time.Second
	// askEvery is how often, at most, reviews make a Verifier ask for keys, or for the UID of
	// a webhook configuration.
	askEvery = time.Second
	// refreshEvery is how long a key is accepted after the API server has dropped it. retryEvery
	// is how long a Verifier waits after the API server could not be asked.
	refreshEvery = 5 * time.Minute
	retryEvery   = 2 * time.Second
)

// algorithms are the algorithms with which API servers sign ServiceAccount tokens.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}

// Kinds of webhook configurations.
const (
	Mutating   = "MutatingWebhookConfiguration"
	Validating = "ValidatingWebhookConfiguration"
)

// configurations are the names of mapd's webhook configurations, by kind.
var configurations = map[string]string{Mutating: webhookconfig.ConfigurationName, Validating: webhookconfig.ValidationName}

// Results by which reviews are counted.
const (
	valid   = "valid"
	missing = "missing"
	invalid = "invalid"
)

// Keys are the public keys of the tokens that an API server issues.
type Keys struct {
	Issuer string
	Set    jose.JSONWebKeySet
}

// Options configure a Verifier. All are required.
type Options struct {
	Mode Mode
	// Address is that of the webhook entries, without a path: https://NAME.NAMESPACE.svc:PORT
	// or the URL of the installation. An entry's address is the audience of its tokens.
	Address string
	// Keys returns the keys of the API server.
	Keys func(ctx context.Context) (*Keys, error)
	// UID returns the UID of a configuration of mapd's, "" if there is none.
	UID func(ctx context.Context, kind, name string) (types.UID, error)
	// Count counts a review by the server that sent it and by valid, missing or invalid.
	Count func(server, result string)
	Log   *slog.Logger
}

// Verifier decides whose reviews are answered. It is safe for concurrent use.
type Verifier struct {
	o Options

	asking sync.Mutex // held during requests to the API server

	mu       sync.Mutex
	keys     *Keys // nil until they were read once
	keysErr  error // of the last attempt to read them
	keysAt   time.Time
	uids     map[string]types.UID // by kind
	uidsAt   map[string]time.Time
	verified map[[sha256.Size]byte]*claims // by hash, verified with these keys
	servers  servers
}

var _ webhook.Callers = (*Verifier)(nil)

// New returns a Verifier. Run keeps its keys up to date.
func New(o Options) *Verifier {
	return &Verifier{
		o: o, uids: map[string]types.UID{}, uidsAt: map[string]time.Time{}, verified: map[[sha256.Size]byte]*claims{},
		servers: servers{known: map[netip.Prefix]map[string]bool{}},
	}
}

// Run reads the keys at once and then every few minutes, until ctx is done.
func (v *Verifier) Run(ctx context.Context) error {
	for {
		wait := refreshEvery
		if err := v.refresh(ctx); err != nil {
			wait = retryEvery
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Ready returns an error until the keys were read once. After that, a Verifier works with the
// keys that it has, even if the API server does not answer.
func (v *Verifier) Ready() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.keys == nil {
		return fmt.Errorf("the keys of the API server have not been read: %w", cause(v.keysErr))
	}
	return nil
}

// Fresh returns the error of the last attempt to read the keys.
func (v *Verifier) Fresh() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.keysErr
}

func cause(err error) error {
	if err == nil {
		return errors.New("the API server has not answered yet")
	}
	return err
}

// claims are what a token says, as pkg/serviceaccount/claims.go of Kubernetes writes it.
type claims struct {
	keys *Keys // the keys that verified the token
	jwt.Claims
	Private struct {
		Validating   *reference          `json:"validatingwebhookconfiguration"`
		Mutating     *reference          `json:"mutatingwebhookconfiguration"`
		Attestations map[string][]string `json:"attestations"`
	} `json:"kubernetes.io"`
}

type reference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// Authenticate implements webhook.Callers.
func (v *Verifier) Authenticate(ctx context.Context, from netip.Prefix, token, path string) (may func(group string) error, err error) {
	c, err := v.verify(ctx, token, path, time.Now())
	if err != nil {
		result := invalid
		if token == "" {
			result = missing
		}
		return nil, v.decide(from, result, err, http.StatusUnauthorized)
	}
	groups := c.Private.Attestations[authenticationv1.AttestationAdmissionReviewAPIGroups]
	if slices.Contains(groups, "*") {
		return nil, v.decide(from, valid, nil, 0)
	}
	// Whether the token is valid depends on the API group of the review, so the review is counted
	// when that is known.
	return func(group string) error {
		if slices.Contains(groups, group) {
			return v.decide(from, valid, nil, 0)
		}
		err := fmt.Errorf("the token is for reviews about the API groups %s, and this one is about %q", quoted(groups), group)
		return v.decide(from, invalid, err, http.StatusForbidden)
	}, nil
}

// decide counts a review by its result. If err is not nil, it returns err as a refusal, provided
// that the mode is Require.
func (v *Verifier) decide(from netip.Prefix, result string, err error, code int) error {
	v.mu.Lock()
	server, first := v.servers.see(from, result)
	v.mu.Unlock()
	v.o.Count(server, result)
	if err == nil {
		if first {
			v.o.Log.Info("an API server authenticates by tokens", "server", server)
		}
		return nil
	}
	if first {
		v.o.Log.Warn("a review came without a valid token of an API server", "server", server, "answered", v.o.Mode != Require, "reason", err.Error())
	}
	if v.o.Mode != Require {
		return nil
	}
	return &webhook.ReviewError{Code: code, Reason: err.Error()}
}

// verify returns the claims of a valid token, or the reason why it is not valid. The error quotes
// parts of a token only if the API server has signed it.
func (v *Verifier) verify(ctx context.Context, token, path string, now time.Time) (*claims, error) {
	switch {
	case token == "":
		return nil, errors.New("a token of the API server is required")
	case len(token) > maxToken:
		return nil, fmt.Errorf("the token is longer than %d bytes", maxToken)
	}
	hash := sha256.Sum256([]byte(token))
	v.mu.Lock()
	c := v.verified[hash]
	v.mu.Unlock()
	if c == nil {
		var err error
		if c, err = v.read(ctx, token, now); err != nil {
			return nil, err
		}
	}
	if err := c.ValidateWithLeeway(jwt.Expected{Time: now}, maxSkew); err != nil {
		return nil, fmt.Errorf("the token: %s", strings.TrimPrefix(err.Error(), "go-jose/go-jose/jwt: "))
	}
	if want := v.o.Address + path; !c.Audience.Contains(want) {
		return nil, fmt.Errorf("the token is for the audience %s, want %q", quoted(c.Audience), want)
	}
	if err := v.bound(ctx, c, path, now); err != nil {
		return nil, err
	}
	v.remember(hash, c, now)
	return c, nil
}

// read verifies the signature of a token and its claims that do not depend on the review.
func (v *Verifier) read(ctx context.Context, token string, now time.Time) (*claims, error) {
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return nil, errors.New("the token is not a JSON Web Token that an API server signs")
	}
	id := parsed.Headers[0].KeyID
	keys := v.current()
	if keys == nil || len(keys.Set.Key(id)) == 0 {
		// The key may be new, so the keys are read again. Other reviews wait for the result.
		v.asking.Lock()
		v.mu.Lock()
		keys = v.keys
		due := now.Sub(v.keysAt) >= askEvery
		v.mu.Unlock()
		if due && (keys == nil || len(keys.Set.Key(id)) == 0) {
			_ = v.readKeys(ctx) // Fresh returns the error
			keys = v.current()
		}
		v.asking.Unlock()
	}
	if keys == nil {
		return nil, fmt.Errorf("no token can be verified: %w", v.Ready())
	}
	c := &claims{keys: keys}
	err = errors.New("the token is signed by a key that the API server does not have")
	for _, key := range keys.Set.Key(id) {
		if e := parsed.Claims(key.Key, c); e == nil {
			err = nil
			break
		}
		err = errors.New("the token's signature is wrong")
	}
	switch {
	case err != nil:
		return nil, err
	case c.Issuer != keys.Issuer:
		return nil, fmt.Errorf("the token is issued by %q, want %q", words.Cut(c.Issuer, 200), keys.Issuer)
	case c.Expiry == nil:
		return nil, errors.New("the token never expires")
	case len(c.Private.Attestations[authenticationv1.AttestationAdmissionReviewAPIGroups]) == 0:
		return nil, errors.New("the token is not for admission webhooks: it names no API groups")
	}
	return c, nil
}

// bound returns an error unless the token is bound to the present configuration that has the
// entries with this path.
func (v *Verifier) bound(ctx context.Context, c *claims, path string, now time.Time) error {
	kind, ref := Validating, c.Private.Validating
	if strings.HasPrefix(path, "/mutate") {
		kind, ref = Mutating, c.Private.Mutating
	}
	name := configurations[kind]
	if ref == nil || ref.Name != name {
		return fmt.Errorf("the token is not bound to the %s %s", kind, name)
	}
	known := func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.uids[kind] != "" && v.uids[kind] == ref.UID
	}
	if known() {
		return nil
	}
	// The configuration may have been deleted and created again.
	v.asking.Lock()
	defer v.asking.Unlock()
	v.mu.Lock()
	due := now.Sub(v.uidsAt[kind]) >= askEvery
	v.mu.Unlock()
	if !known() && due {
		if err := v.readUID(ctx, kind, name); err != nil {
			return fmt.Errorf("whether the %s %s is the one that the token is bound to is not known: %w", kind, name, err)
		}
	}
	if !known() {
		return fmt.Errorf("the token is bound to another %s %s than there is now", kind, name)
	}
	return nil
}

// readUID reads the UID of a configuration. The caller holds v.asking.
func (v *Verifier) readUID(ctx context.Context, kind, name string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	uid, err := v.o.UID(ctx, kind, name)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.uidsAt[kind] = time.Now()
	if err == nil {
		v.uids[kind] = uid
	}
	return err
}

// remember keeps a token, so that its signature is not verified for each review.
func (v *Verifier) remember(hash [sha256.Size]byte, c *claims, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.verified[hash] != nil || c.keys != v.keys {
		return
	}
	if len(v.verified) >= maxVerified {
		for h, old := range v.verified {
			if now.After(old.Expiry.Time()) {
				delete(v.verified, h)
			}
		}
	}
	if len(v.verified) < maxVerified {
		v.verified[hash] = c
	}
}

func (v *Verifier) current() *Keys {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.keys
}

// refresh reads the keys, and the UIDs of configurations that tokens were bound to.
func (v *Verifier) refresh(ctx context.Context) error {
	v.asking.Lock()
	defer v.asking.Unlock()
	if err := v.readKeys(ctx); err != nil {
		return err
	}
	for kind, name := range configurations {
		if err := v.readUID(ctx, kind, name); err != nil {
			return err
		}
	}
	return nil
}

// readKeys reads the keys. The caller holds v.asking.
func (v *Verifier) readKeys(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	keys, err := v.o.Keys(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keysAt, v.keysErr = time.Now(), err
	if err == nil {
		v.keys = keys
		clear(v.verified) // they may have been verified by a key that is gone
	}
	return err
}

// quoted lists the first texts, quoted.
func quoted(texts []string) string {
	list := make([]string, len(texts))
	for i, t := range texts {
		list[i] = strconv.Quote(words.Cut(t, 200))
	}
	return words.Some(list, 8)
}
