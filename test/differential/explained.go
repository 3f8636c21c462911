package differential

import (
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// explained says which row of docs/compat.md makes two answers differ, or
// nothing if they have to agree.
func explained(want, got *metav1.Status) string {
	switch {
	case want != nil && want.Code == http.StatusInternalServerError && (got == nil || got.Code == http.StatusForbidden):
		return "decode-errors: 500 in-tree, the policy's failurePolicy here"
	case strings.Contains(text(want), "type conversion error from struct type"):
		return "reflection-values: typed values cannot be copied in-tree"
	case strings.Contains(text(got), "does not fit int"):
		return "integer-overflow: wraps in-tree, an error here"
	}
	return ""
}

// text is everything that a status says.
func text(s *metav1.Status) string {
	if s == nil {
		return ""
	}
	out := s.Message
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			out += "\n" + c.Message
		}
	}
	return out
}

// class is what must agree about an error: code, reason, and how many causes.
func class(s *metav1.Status) string {
	if s == nil {
		return "allowed"
	}
	causes := 0
	if s.Details != nil {
		causes = len(s.Details.Causes)
	}
	return fmt.Sprintf("%d %s, %d causes", s.Code, s.Reason, causes)
}
