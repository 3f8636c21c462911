package manifest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// resolveScalar gives a scalar the value that an API server gets from kubectl
// for it: plain scalars by the YAML 1.1 rules of sigs.k8s.io/yaml ("yes" and
// "on" are booleans, 0777 is octal), numbers as they are after the JSON step in
// between (5.0 arrives as the integer 5; what fits no int64 is a float).
func resolveScalar(n *yaml.Node) (any, error) {
	tag := n.ShortTag()
	if n.Style&yaml.TaggedStyle == 0 {
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			return n.Value, nil
		}
		return number(resolvePlain(n.Value))
	}
	switch tag {
	case "!!str", "!", "!!timestamp":
		return n.Value, nil
	case "!!binary":
		data, err := base64.StdEncoding.DecodeString(n.Value)
		if err != nil {
			return nil, errors.New("!!binary value contains invalid base64 data")
		}
		return validUTF8(string(data)), nil
	case "!!null", "!!bool", "!!int", "!!float":
		v := resolvePlain(n.Value)
		if kind := tagOf(v); kind != tag && (tag != "!!float" || kind != "!!int") {
			return nil, fmt.Errorf("cannot decode %s `%s` as a %s", kind, n.Value, tag)
		}
		return number(v)
	}
	return n.Value, nil
}

func tagOf(v any) string {
	switch v.(type) {
	case nil:
		return "!!null"
	case bool:
		return "!!bool"
	case int64, uint64:
		return "!!int"
	case float64:
		return "!!float"
	}
	return "!!str"
}

// number brings the two numbers that JSON has no kind for into a tree's form.
func number(v any) (any, error) {
	switch v := v.(type) {
	case uint64:
		return float64(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("json: unsupported value: %v", v)
		}
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 && (v != 0 || !math.Signbit(v)) {
			return int64(v), nil
		}
	}
	return v, nil
}

var (
	plainWords = map[string]any{
		"": nil, "~": nil, "null": nil, "Null": nil, "NULL": nil,
		".nan": math.NaN(), ".NaN": math.NaN(), ".NAN": math.NaN(),
		".inf": math.Inf(1), ".Inf": math.Inf(1), ".INF": math.Inf(1),
		"+.inf": math.Inf(1), "+.Inf": math.Inf(1), "+.INF": math.Inf(1),
		"-.inf": math.Inf(-1), "-.Inf": math.Inf(-1), "-.INF": math.Inf(-1),
	}
	plainFloat = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

func init() {
	for _, w := range []string{"y", "yes", "true", "on"} {
		plainWords[w], plainWords[strings.ToUpper(w)], plainWords[strings.ToUpper(w[:1])+w[1:]] = true, true, true
	}
	for _, w := range []string{"n", "no", "false", "off"} {
		plainWords[w], plainWords[strings.ToUpper(w)], plainWords[strings.ToUpper(w[:1])+w[1:]] = false, false, false
	}
}

// resolvePlain resolves an unquoted scalar: nil, bool, int64, uint64, float64
// or string. Base 60 and dates stay strings.
func resolvePlain(s string) any {
	if v, ok := plainWords[s]; ok {
		return v
	}
	c := s[0]
	if c == '.' {
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return f
		}
		return s
	}
	if c != '+' && c != '-' && (c < '0' || c > '9') {
		return s
	}
	digits := strings.ReplaceAll(s, "_", "")
	if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(digits, 0, 64); err == nil {
		return u
	}
	if plainFloat.MatchString(digits) {
		if f, err := strconv.ParseFloat(digits, 64); err == nil {
			return f
		}
	}
	return s
}

// resolveKey gives a mapping key its JSON form.
func resolveKey(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", errors.New("a key must be a scalar")
	}
	if n.Style&yaml.TaggedStyle == 0 && n.Style != 0 {
		return n.Value, nil
	}
	v := any(n.Value)
	switch n.ShortTag() {
	case "!!str", "!!null", "!!bool", "!!int", "!!float":
		if n.Style&yaml.TaggedStyle == 0 || n.ShortTag() != "!!str" {
			v = resolvePlain(n.Value)
		}
	}
	switch v := v.(type) {
	case nil:
		return "", errors.New("a key must not be null")
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		switch {
		case math.IsNaN(v):
			return ".nan", nil
		case math.IsInf(v, 1):
			return ".inf", nil
		case math.IsInf(v, -1):
			return "-.inf", nil
		}
		return strconv.FormatFloat(v, 'g', -1, 32), nil
	case uint64:
		return "", fmt.Errorf("the key %d does not fit 64 bits with sign", v)
	}
	return validUTF8(n.Value), nil
}

// validUTF8 replaces each byte that is no UTF-8, as encoding/json does.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}
