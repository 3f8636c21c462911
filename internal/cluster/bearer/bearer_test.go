package bearer

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	token := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	for name, tt := range map[string]struct{ token, want string }{
		"one text":             {token(`{"aud": "records.mapd.dev", "exp": 1000600}`), ""},
		"a list of one":        {token(`{"aud": ["records.mapd.dev"], "exp": 1000600.5}`), ""},
		"clocks that differ":   {token(`{"aud": ["records.mapd.dev"], "exp": 999941}`), ""},
		"none":                 {"", "is required"},
		"long":                 {strings.Repeat("x", maxToken+1), "longer than"},
		"opaque":               {"bench-token", "not a JSON Web Token"},
		"two parts":            {"e30.e30", "not a JSON Web Token"},
		"no base64":            {"e30.!!.c2ln", "not a JSON Web Token"},
		"no JSON":              {token(`{`), "not a JSON Web Token"},
		"claims of other kind": {token(`{"aud": {"a": "b"}, "exp": 1000600}`), "not a JSON Web Token"},
		"no audience":          {token(`{"exp": 1000600}`), "not for the audience"},
		"an empty audience":    {token(`{"aud": [], "exp": 1000600}`), "not for the audience"},
		"another audience":     {token(`{"aud": ["https://kubernetes.default.svc"], "exp": 1000600}`), "not for the audience"},
		"also another":         {token(`{"aud": ["records.mapd.dev", "https://kubernetes.default.svc"], "exp": 1000600}`), "not for the audience"},
		"without an end":       {token(`{"aud": "records.mapd.dev"}`), "never expires"},
		"expired":              {token(`{"aud": "records.mapd.dev", "exp": 999939}`), "has expired"},
	} {
		err := Check(tt.token, now)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
