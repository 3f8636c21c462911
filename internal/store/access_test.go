package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/pkg/webhook"
	"github.com/mapd-project/mapd/test/fakeapi"
)

// accessServer answers token and access reviews. Tokens are names of users; bob may get
// /records/counts, and is the only one who may do anything.
type accessServer struct {
	fakeapi.Server
	tokens, rights       int // how many were asked
	noTokens, noDecision bool
	denied               bool
}

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
			status := map[string]any{"authenticated": !strings.HasPrefix(token, "forged"), "user": map[string]any{
				"username": token, "groups": []any{"readers"}, "extra": map[string]any{"scopes": []any{"a"}},
			}}
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
		want        int
	}{
		"allowed":               {nil, "bob", counts, 200},
		"another path":          {nil, "bob", "/records/samples", 403},
		"another user":          {nil, "eve", counts, 403},
		"denied":                {func(s *accessServer) { s.denied = true }, "bob", counts, 403},
		"no token":              {nil, "", counts, 401},
		"a long token":          {nil, strings.Repeat("x", maxToken+1), counts, 401},
		"unknown token":         {nil, "forged", counts, 401},
		"tokens not looked at":  {func(s *accessServer) { s.noTokens = true }, "bob", counts, 503},
		"rights not looked at":  {func(s *accessServer) { s.noDecision = true }, "bob", counts, 503},
		"neither is looked at":  {func(s *accessServer) { s.noTokens, s.noDecision = true, true }, "bob", counts, 503},
		"path that is a prefix": {nil, "bob", "/records/count", 403},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAccessServer()
			if tt.server != nil {
				tt.server(s)
			}
			if err := s.access(t).Authorize(t.Context(), tt.token, tt.path); codeOf(err) != tt.want {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAccessRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAccessServer()
		a := s.access(t)
		ask := func(token string, want, tokens, rights int) {
			t.Helper()
			s.tokens, s.rights = 0, 0
			if err := a.Authorize(context.Background(), token, "/records/counts"); codeOf(err) != want || s.tokens != tokens || s.rights != rights {
				t.Errorf("%s: %v, with %d and %d questions", token, err, s.tokens, s.rights)
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

// Who sends one token after the other makes mapd ask the server at a bounded rate, and
// takes a bounded memory.
func TestAccessUnderAttack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAccessServer()
		a := s.access(t)
		refused := 0
		for i := range 1000 {
			if code := codeOf(a.Authorize(context.Background(), fmt.Sprintf("forged-%d", i), "/records/counts")); code == http.StatusTooManyRequests {
				refused++
			} else if code != http.StatusUnauthorized {
				t.Fatal(code)
			}
		}
		if s.tokens != accessBurst || refused != 1000-accessBurst {
			t.Errorf("%d questions, %d refused", s.tokens, refused)
		}
		for i := range 3 * maxAccess {
			time.Sleep(time.Second / accessRate)
			_ = a.Authorize(context.Background(), fmt.Sprintf("forged-again-%d", i), "/records/counts")
			if len(a.answers) > maxAccess {
				t.Fatalf("%d answers are remembered", len(a.answers))
			}
		}
	})
}
