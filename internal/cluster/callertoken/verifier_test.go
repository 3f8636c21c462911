package callertoken

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/pkg/webhook"
)

const (
	issuer  = "https://kubernetes.default.svc.cluster.local"
	address = "https://mapd.mapd-system.svc:443"
	path    = "/mutate/fail/never"
)

var caller = netip.MustParsePrefix("10.0.0.1/32")

// server signs tokens as an API server does.
type server struct {
	mu     sync.Mutex
	keys   map[string]crypto.Signer
	uids   map[string]types.UID
	err    error // of asking
	asked  int
	issuer string
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newServer(t *testing.T) *server {
	return &server{keys: map[string]crypto.Signer{"k1": newKey(t)}, uids: map[string]types.UID{Mutating: "m1", Validating: "v1"}, issuer: issuer}
}

func (s *server) published(context.Context) (*Keys, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.err != nil {
		return nil, s.err
	}
	set := jose.JSONWebKeySet{}
	for id, key := range s.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: id, Use: "sig"})
	}
	text, err := json.Marshal(set)
	if err != nil {
		return nil, err
	}
	return ParseKeys(s.issuer, text)
}

func (s *server) uid(_ context.Context, kind, _ string) (types.UID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.uids[kind], s.err
}

func (s *server) verifier(mode Mode) *Verifier {
	return New(Options{
		Mode: mode, Address: address, Keys: s.published, UID: s.uid, Count: func(string, string) {}, Log: slog.New(slog.DiscardHandler),
	})
}

// payload is what a token says; the zero value is that of a token for an entry.
type payload struct {
	claims, kubernetes map[string]any
}

func (p payload) text(now time.Time) []byte {
	private := map[string]any{
		"namespace": "kube-system", "serviceaccount": map[string]string{"name": "webhook-auth", "uid": "s"},
		"mutatingwebhookconfiguration": map[string]string{"name": "000.mapd.dev", "uid": "m1"},
		"attestations":                 map[string][]string{"admissionReviewAPIGroups": {"*"}},
	}
	claims := map[string]any{
		"iss": issuer, "sub": "system:serviceaccount:kube-system:webhook-auth", "aud": []string{address + path},
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(), "kubernetes.io": private,
	}
	maps.Copy(private, p.kubernetes)
	maps.Copy(claims, p.claims)
	text, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	return text
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, id string, text []byte) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	object, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	token, err := object.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (s *server) token(t *testing.T, p payload) string {
	t.Helper()
	return sign(t, jose.ES256, s.keys["k1"], "k1", p.text(time.Now()))
}

func (v *Verifier) check(token, path, group string) error {
	may, err := v.Authenticate(context.Background(), caller, token, path)
	if err == nil && may != nil {
		err = may(group)
	}
	return err
}

func TestVerify(t *testing.T) {
	s := newServer(t)
	other := newServer(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s.keys["rsa"] = rsaKey
	public, err := x509.MarshalPKIXPublicKey(s.keys["k1"].Public())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	says := func(name string, value any) payload { return payload{claims: map[string]any{name: value}} }
	bound := func(kind, name, uid string) payload {
		return payload{kubernetes: map[string]any{"mutatingwebhookconfiguration": nil, kind: map[string]string{"name": name, "uid": uid}}}
	}
	groups := func(g ...string) payload {
		return payload{kubernetes: map[string]any{"attestations": map[string][]string{"admissionReviewAPIGroups": g}}}
	}
	validate := bound("validatingwebhookconfiguration", "mapd.dev", "v1")
	validate.claims = map[string]any{"aud": address + "/validate"}
	for name, tt := range map[string]struct {
		token, path, group, want string
		code                     int
	}{
		"valid":                    {token: s.token(t, payload{})},
		"RSA":                      {token: sign(t, jose.RS256, rsaKey, "rsa", payload{}.text(now))},
		"for the other kind":       {token: s.token(t, validate), path: "/validate"},
		"one group":                {token: s.token(t, groups("apps")), group: "apps"},
		"the core group":           {token: s.token(t, groups(""))},
		"none":                     {want: "a token of the API server is required"},
		"long":                     {token: strings.Repeat("x", maxToken+1), want: "longer than 16384 bytes"},
		"no token":                 {token: "a.b.c", want: "not a JSON Web Token"},
		"unsigned":                 {token: "eyJhbGciOiJub25lIn0." + base64.RawURLEncoding.EncodeToString(payload{}.text(now)) + ".", want: "not a JSON Web Token"},
		"signed by the public key": {token: sign(t, jose.HS256, public, "k1", payload{}.text(now)), want: "not a JSON Web Token"},
		"forged":                   {token: sign(t, jose.ES256, newKey(t), "k1", payload{}.text(now)), want: "signature is wrong"},
		"of another key":           {token: sign(t, jose.ES256, newKey(t), "k9", payload{}.text(now)), want: "a key that the API server does not have"},
		"of another cluster":       {token: other.token(t, payload{}), want: "signature is wrong"},
		"changed":                  {token: s.token(t, payload{})[:40] + "x" + s.token(t, payload{})[41:], want: "token"},
		"of another issuer":        {token: s.token(t, says("iss", "https://other")), want: `issued by "https://other", want "` + issuer + `"`},
		"expired":                  {token: s.token(t, says("exp", now.Add(-time.Minute).Unix())), want: "token is expired"},
		"of the future":            {token: s.token(t, says("nbf", now.Add(time.Hour).Unix())), want: "token not valid yet"},
		"without an end":           {token: s.token(t, says("exp", nil)), want: "never expires"},
		"for another path":         {token: s.token(t, payload{}), path: "/mutate/ignore/never", want: `for the audience "` + address + path + `", want "` + address + `/mutate/ignore/never"`},
		"for the API server":       {token: s.token(t, says("aud", []string{issuer})), want: "for the audience"},
		"for another webhook":      {token: s.token(t, bound("mutatingwebhookconfiguration", "other", "m1")), want: "not bound to the MutatingWebhookConfiguration 000.mapd.dev"},
		"for another kind":         {token: s.token(t, bound("validatingwebhookconfiguration", "mapd.dev", "v1")), want: "not bound to the Mutating"},
		"for one that is gone":     {token: s.token(t, bound("mutatingwebhookconfiguration", "000.mapd.dev", "m0")), want: "another MutatingWebhookConfiguration 000.mapd.dev than there is now"},
		"unbound":                  {token: s.token(t, payload{kubernetes: map[string]any{"mutatingwebhookconfiguration": nil}}), want: "not bound"},
		"without groups":           {token: s.token(t, payload{kubernetes: map[string]any{"attestations": nil}}), want: "names no API groups"},
		"another group":            {token: s.token(t, groups("apps", "batch")), group: "rbac.authorization.k8s.io", want: `API groups "apps", "batch", and this one is about "rbac.authorization.k8s.io"`, code: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			v := s.verifier(Require)
			counted := map[string]int{}
			v.o.Count = func(_, result string) { counted[result]++ }
			if tt.path == "" {
				tt.path = path
			}
			err := v.check(tt.token, tt.path, tt.group)
			result := invalid
			switch {
			case tt.want == "":
				result = valid
			case tt.token == "":
				result = missing
			}
			if counted[result] != 1 || len(counted) != 1 {
				t.Errorf("counted %v, want one %s", counted, result)
			}
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := v.check(tt.token, tt.path, tt.group); err != nil {
					t.Errorf("the second time: %v", err)
				}
				return
			}
			var refused *webhook.ReviewError
			if !errors.As(err, &refused) || !strings.Contains(refused.Reason, tt.want) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if tt.code == 0 {
				tt.code = http.StatusUnauthorized
			}
			if refused.Code != tt.code {
				t.Errorf("code %d, want %d", refused.Code, tt.code)
			}
			if tt.token != "" && strings.Contains(refused.Reason, tt.token) {
				t.Error("the token is in the error")
			}
			if err := s.verifier(Warn).check(tt.token, tt.path, tt.group); err != nil {
				t.Errorf("with warn: %v", err)
			}
		})
	}
}

// A token that was valid is looked at again: it ends, its key goes, its configuration is
// made anew. Keys outlast the API server.
func TestLater(t *testing.T) {
	s := newServer(t)
	synctest.Test(t, func(t *testing.T) {
		v := s.verifier(Require)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if v.Ready() == nil {
			t.Error("ready without keys")
		}
		go func() { _ = v.Run(ctx) }()
		synctest.Wait()
		if err := v.Ready(); err != nil {
			t.Error(err)
		}
		first := s.token(t, payload{})
		want := func(token, want string) {
			t.Helper()
			err := v.check(token, path, "")
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
		want(first, "")
		time.Sleep(11 * time.Minute)
		want(first, "expired")

		// A new key is accepted at once, also if the API server is away afterwards.
		s.mu.Lock()
		s.keys["k2"] = newKey(t)
		s.mu.Unlock()
		time.Sleep(2 * askEvery)
		second := sign(t, jose.ES256, s.keys["k2"], "k2", payload{}.text(time.Now()))
		want(second, "")
		s.mu.Lock()
		s.err = errors.New("connection refused")
		s.mu.Unlock()
		time.Sleep(6 * time.Minute)
		want(second, "")
		if err := v.Fresh(); err == nil || v.Ready() != nil {
			t.Errorf("fresh %v, ready %v; want an error, and ready", err, v.Ready())
		}

		// The API server is back without the key.
		s.mu.Lock()
		s.err = nil
		delete(s.keys, "k2")
		s.mu.Unlock()
		time.Sleep(retryEvery)
		synctest.Wait()
		want(second, "a key that the API server does not have")

		// The configuration is made anew.
		third := s.token(t, payload{})
		want(third, "")
		s.mu.Lock()
		s.uids[Mutating] = "m2"
		s.mu.Unlock()
		time.Sleep(2 * askEvery)
		fourth := s.token(t, payload{kubernetes: map[string]any{"mutatingwebhookconfiguration": map[string]string{"name": "000.mapd.dev", "uid": "m2"}}})
		want(fourth, "")
		want(third, "another MutatingWebhookConfiguration")
	})
}

// Who sends tokens of any kind makes a Verifier ask the API server once a second, and keep
// only so much.
func TestFlood(t *testing.T) {
	s := newServer(t)
	synctest.Test(t, func(t *testing.T) {
		v := s.verifier(Require)
		names := map[string]bool{}
		var counted atomic.Int64
		v.o.Count = func(server, _ string) { names[server] = true; counted.Add(1) }
		good := s.token(t, payload{})
		stranger := newKey(t)
		for i := range 300 {
			from, err := netip.ParsePrefix(fmt.Sprintf("10.1.%d.%d/32", i/250, i%250))
			if err != nil {
				t.Fatal(err)
			}
			token := sign(t, jose.ES256, stranger, fmt.Sprint("k", 2+i), payload{}.text(time.Now()))
			if _, err := v.Authenticate(t.Context(), from, token, path); err == nil {
				t.Fatal("accepted")
			}
		}
		if s.asked != 1 {
			t.Errorf("asked %d times in no time", s.asked)
		}
		// API servers that come last have places of their own.
		if _, err := v.Authenticate(t.Context(), caller, good, path); err != nil {
			t.Error(err)
		}
		if !names["10.0.0.1"] || !names[others] || len(names) != maxServers+2 || counted.Load() != 301 {
			t.Errorf("%d names of servers, %d reviews: %v", len(names), counted.Load(), names)
		}
		for i := range 2 * maxVerified {
			token := s.token(t, payload{claims: map[string]any{"jti": fmt.Sprint(i)}})
			if _, err := v.Authenticate(t.Context(), caller, token, path); err != nil {
				t.Fatal(err)
			}
		}
		if len(v.verified) > maxVerified {
			t.Errorf("%d tokens are kept", len(v.verified))
		}
	})
}

func TestParseKeys(t *testing.T) {
	for text, want := range map[string]string{
		``:            "not a JSON Web Key Set",
		`{"keys":[]}`: "no public key",
		`{"keys":[{"kty":"oct","kid":"a","k":"c2VjcmV0"}]}`:       "no public key",
		`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`: "not a JSON Web Key Set",
	} {
		if _, err := ParseKeys(issuer, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzAuthenticate(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	s := &server{keys: map[string]crypto.Signer{"k1": key}, uids: map[string]types.UID{Mutating: "m1"}, issuer: issuer}
	v := s.verifier(Require)
	f.Add("a.b.c", path)
	f.Add("eyJhbGciOiJub25lIn0.e30.", "/validate")
	f.Add("eyJhbGciOiJFUzI1NiIsImtpZCI6ImsxIn0.e30.AAAA", path)
	f.Fuzz(func(t *testing.T, token, path string) {
		if err := v.check(token, path, ""); err == nil {
			t.Error("accepted")
		}
	})
}
