// Package bearer answers one question: may this bearer token be sent to a replica of mapd?
//
// Replicas accept only tokens that API servers accept nowhere. Commands check a token before
// they send it, and replicas check it before they ask the API server about it.
package bearer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// Audience is the only audience of a token that replicas accept.
	Audience = "records.mapd.dev"
	// ServiceAccount is the one, in mapd's namespace, whose tokens mapd's commands request.
	ServiceAccount = "mapd-reader"
	// maxToken is the length of the longest token that is looked at.
	maxToken = 16 << 10
	// maxSkew is how far the clocks of two machines may differ.
	maxSkew = time.Minute
)

// Check returns why a token cannot be one that replicas accept: it is not a JSON Web Token,
// is also valid for somebody else than replicas, or has expired. It verifies no signature,
// so a token without an error may still be forged: only a TokenReview says who sent it.
func Check(token string, now time.Time) error {
	if token == "" {
		return errors.New("a bearer token is required")
	}
	if len(token) > maxToken {
		return fmt.Errorf("the bearer token is longer than %d bytes", maxToken)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errForm
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return errForm
	}
	var claims struct {
		Audience audience `json:"aud"`
		Expires  *float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return errForm
	}
	switch {
	case !slices.Equal(claims.Audience, audience{Audience}):
		return errAudience
	case claims.Expires == nil:
		return errors.New("the bearer token never expires; replicas accept only tokens that do")
	case *claims.Expires < float64(now.Add(-maxSkew).Unix()):
		return errors.New("the bearer token has expired")
	}
	return nil
}

var (
	errForm     = errors.New("the bearer token is not a JSON Web Token; replicas accept only those for the audience " + Audience)
	errAudience = errors.New("the bearer token is not for the audience " + Audience + " alone, and replicas accept no other")
)

// audience is a claim that has one form for one text and another for several.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(a))
}
