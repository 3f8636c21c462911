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
	// Audience is the only audience that a token for a replica may have.
	Audience = "records.mapd.dev"
	// ServiceAccount is the ServiceAccount in mapd's namespace for which mapd's commands request
	// tokens.
	ServiceAccount = "mapd-reader"
	// maxToken bounds the length of a token that Check parses.
	maxToken = 16 << 10
	// maxSkew is how far the clocks of two machines may differ.
	maxSkew = time.Minute
)

// Check returns the reason why replicas would refuse a token: it is not a JSON Web Token, it has
// an audience other than replicas, or it has expired. Check verifies no signature, so a token
// without an error may still be forged: only a TokenReview tells who sent it.
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

// audience is the claim "aud": JSON has a string for one audience and a list for several.
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
