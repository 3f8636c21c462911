package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/pkg/webhook"
	"github.com/mapd-project/mapd/test/fakeapi"
)

// accessServer answers token and access reviews. The signature of a token is the name of its
// user; bob may get /records/counts, and is the only one who may do anything.
type accessServer struct {
	fakeapi.Server
	tokens, rights       int // how many were asked
	noTokens, noDecision bool
	denied               bool
	unaware              bool // of audiences
}

// claims are those of tokens that replicas accept.
const claims = `{"aud": ["records.mapd.dev"], "exp": 4102444800}`

func tokenOf(user, claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + user
}

var (
	inside  = netip.MustParsePrefix("127.0.0.1/32") // who forwards a port
	outside = netip.MustParsePrefix("10.0.0.7/32")
)

func newAccessServer() *accessServer {
	s := &accessServer{}
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		spec, _ := r.Object["spec"].(map[string]any)
		switch r.Resource.Resource {
		case "tokenreviews":
			s.tokens++
			if s.noTokens {
				return nil, errors.New("tokens are not looked at")
			}
			token, _ := spec["token"].(string)
			_, name, _ := strings.Cut(strings.TrimPrefix(token, "e30."), ".")
			status := map[string]any{"authenticated": !strings.HasPrefix(name, "forged"), "audiences": spec["audiences"], "user": map[string]any{
				"username": name, "groups": []any{"readers"}, "extra": map[string]any{"scopes": []any{"a"}},
			}}
			if fmt.Sprint(spec["audiences"]) != "[records.mapd.dev]" {
				status["authenticated"] = false
			}
			if s.unaware {
				delete(status, "audiences")
			}
			return map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}, nil
		case "subjectaccessreviews":
			s.rights++
			if s.noDecision {
				return nil, errors.New("rights are not looked at")
			}
			asked := fmt.Sprint(spec)
			allowed := asked == "map[extra:map[scopes:[a]] groups:[readers] nonResourceAttributes:map[path:/records/counts verb:get] user:bob]"
			return map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
				"status": map[string]any{"allowed": allowed, "denied": s.denied}}, nil
		}
		return nil, fmt.Errorf("unexpected %v", r)
	}
	return s
}

func (s *accessServer) access(t *testing.T) *Access {
	t.Helper()
	kube, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return NewAccess(kube)
}

func codeOf(err error) int {
	var refused *webhook.ReviewError
	if errors.As(err, &refused) {
		return refused.Code
	}
	if err == nil {
		return http.StatusOK
	}
	return 0
}

func TestAccess(t *testing.T) {
	const counts = "/records/counts"
	for name, tt := range map[string]struct {
		server      func(*accessServer)
		token, path string
		want, asked int
	}{
		"allowed":               {nil, tokenOf("bob", claims), counts, 200, 1},
		"another path":          {nil, tokenOf("bob", claims), "/records/samples", 403, 1},
		"another user":          {nil, tokenOf("eve", claims), counts, 403, 1},
		"denied":                {func(s *accessServer) { s.denied = true }, tokenOf("bob", claims), counts, 403, 1},
		"no token":              {nil, "", counts, 401, 0},
		"an opaque token":       {nil, "bob", counts, 401, 0},
		"no audience":           {nil, tokenOf("bob", `{"exp": 4102444800}`), counts, 401, 0},
		"the server's audience": {nil, tokenOf("bob", `{"aud": "https://kubernetes.default.svc", "exp": 4102444800}`), counts, 401, 0},
		"both audiences":        {nil, tokenOf("bob", `{"aud": ["records.mapd.dev", "https://kubernetes.default.svc"], "exp": 4102444800}`), counts, 401, 0},
		"an expired token":      {nil, tokenOf("bob", `{"aud": "records.mapd.dev", "exp": 1}`), counts, 401, 0},
		"unknown token":         {nil, tokenOf("forged", claims), counts, 401, 1},
		"audiences ignored":     {func(s *accessServer) { s.unaware = true }, tokenOf("bob", claims), counts, 401, 1},
		"tokens not looked at":  {func(s *accessServer) { s.noTokens = true }, tokenOf("bob", claims), counts, 503, 1},
		"rights not looked at":  {func(s *accessServer) { s.noDecision = true }, tokenOf("bob", claims), counts, 503, 1},
		"neither is looked at":  {func(s *accessServer) { s.noTokens, s.noDecision = true, true }, tokenOf("bob", claims), counts, 503, 1},
		"path that is a prefix": {nil, tokenOf("bob", claims), "/records/count", 403, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAccessServer()
			if tt.server != nil {
				tt.server(s)
			}
			if err := s.access(t).Authorize(t.Context(), outside, tt.token, tt.path); codeOf(err) != tt.want || s.tokens != tt.asked {
				t.Errorf("%v, and the server was asked about %d tokens", err, s.tokens)
			}
		})
	}
}

func TestAccessRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAccessServer()
		a := s.access(t)
		ask := func(user string, want, tokens, rights int) {
			t.Helper()
			s.tokens, s.rights = 0, 0
			if err := a.Authorize(context.Background(), outside, tokenOf(user, claims), "/records/counts"); codeOf(err) != want || s.tokens != tokens || s.rights != rights {
				t.Errorf("%s: %v, with %d and %d questions", user, err, s.tokens, s.rights)
			}
		}
		ask("bob", 200, 1, 1)
		ask("bob", 200, 0, 0)
		ask("eve", 403, 1, 1)
		ask("eve", 403, 0, 0)
		ask("forged", 401, 1, 0)
		ask("forged", 401, 0, 0)
		// A right that is taken away ends within seconds, and one that is given begins.
		s.denied = true
		ask("bob", 200, 0, 0)
		time.Sleep(accessTTL)
		ask("bob", 403, 1, 1)
		// That the server did not answer is not remembered, and what it said before it
		// went away does not last.
		s.denied, s.noTokens = false, true
		ask("bob", 403, 0, 0)
		time.Sleep(accessTTL)
		ask("bob", 503, 1, 0)
		s.noTokens = false
		ask("bob", 200, 1, 1)
	})
}

// Who sends one token after the other makes mapd ask the server at a bounded rate, takes a
// bounded memory, and keeps nobody else out.
func TestAccessUnderAttack(t *testing.T) {
	const counts = "/records/counts"
	address := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32)
	}
	synctest.Test(t, func(t *testing.T) {
		s := newAccessServer()
		a := s.access(t)
		bob := tokenOf("bob", claims)
		bounded := func() {
			t.Helper()
			if len(a.refused) > maxAccess || len(a.granted) > maxAccess || len(a.callers) > maxCallers+2 { // two buckets are shared
				t.Fatalf("%d refusals, %d grants and %d callers are remembered", len(a.refused), len(a.granted), len(a.callers))
			}
		}
		n := 0
		flood := func(from netip.Prefix, tokens int) (late int) {
			t.Helper()
			for range tokens {
				n++
				switch code := codeOf(a.Authorize(context.Background(), from, tokenOf(fmt.Sprintf("forged-%d", n), claims), counts)); code {
				case http.StatusTooManyRequests:
					late++
				case http.StatusUnauthorized:
				default:
					t.Fatal(code)
				}
			}
			bounded()
			return late
		}
		// What cannot be a token for mapd costs no question, and nobody's share.
		for range 1000 {
			if code := codeOf(a.Authorize(context.Background(), outside, "bench-token", counts)); code != http.StatusUnauthorized {
				t.Fatal(code)
			}
		}
		if late := flood(outside, 1000); s.tokens != accessBurst || late != 1000-accessBurst {
			t.Errorf("%d questions, %d refused", s.tokens, late)
		}
		if err := a.Authorize(context.Background(), address(0), bob, counts); err != nil {
			t.Errorf("another address: %v", err)
		}
		// So many addresses that they use up what all together may ask.
		s.tokens = 0
		for i := range 3 * maxCallers {
			flood(address(i), 1)
		}
		if s.tokens > accessBurstOfAll {
			t.Errorf("%d questions", s.tokens)
		}
		if err := a.Authorize(context.Background(), inside, tokenOf("bob", claims+" "), counts); err != nil {
			t.Errorf("by port-forward: %v", err)
		}
		// bob's answer is too old by now, and he is behind the address of the flood.
		for range 5 {
			time.Sleep(accessTTL)
			flood(outside, 1000)
			if err := a.Authorize(context.Background(), outside, bob, counts); err != nil {
				t.Errorf("among the flood: %v", err)
			}
		}
		// Users with the right are bounded as well.
		for i := range 2 * maxAccess {
			time.Sleep(time.Second)
			if err := a.Authorize(context.Background(), outside, tokenOf("bob", claims+strings.Repeat(" ", i)), counts); err != nil {
				t.Fatal(err)
			}
			bounded()
		}
	})
}
