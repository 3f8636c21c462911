package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"
)

// The parser of this package is a YAML 1.2 one, because it knows positions and
// comments. What a scalar means is asked of sigs.k8s.io/yaml, which is how
// kubectl reads: "yes" and "on" are booleans, 0777 is octal, 5.0 arrives as the
// integer 5, and what fits no int64 is a float.

// resolveScalar returns the value that an API server gets from kubectl for a
// scalar.
func resolveScalar(n *yaml.Node) (any, error) {
	text, ok := special(n)
	if !ok {
		return n.Value, nil
	}
	if n.Style == 0 { // what manifests are full of needs no second parser
		if n.Value == "true" || n.Value == "false" {
			return n.Value == "true", nil
		}
		if i, err := strconv.Atoi(n.Value); err == nil && strconv.Itoa(i) == n.Value {
			return int64(i), nil
		}
	}
	data, err := kyaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var v any
	err = kjson.UnmarshalCaseSensitivePreserveInts(data, &v)
	return v, err
}

// resolveKey returns the JSON form of a mapping key.
func resolveKey(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		if n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle != 0 {
			return "", errors.New("a key must be a scalar; if this is a Helm template, render it first (helm template)")
		}
		return "", errors.New("a key must be a scalar")
	}
	text, ok := special(n)
	if !ok {
		return n.Value, nil
	}
	pair, err := kyaml.YAMLToJSON([]byte(text + ": 0"))
	if err != nil {
		value, err := kyaml.YAMLToJSON([]byte(text))
		switch {
		case err != nil:
			return "", errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
		case string(value) == "null":
			return "", errors.New("a key must not be null")
		}
		return "", fmt.Errorf("the key %s does not fit 64 bits with sign", value)
	}
	var key string
	err = json.Unmarshal(bytes.TrimSuffix(pair[1:], []byte(":0}")), &key)
	return key, err
}

// special returns the text of a scalar that may be something else than the string
// in it, false for all others.
func special(n *yaml.Node) (text string, ok bool) {
	if n.Style&yaml.TaggedStyle == 0 {
		if n.Style != 0 || !notString(n.Value) {
			return "", false
		}
		return n.Value, true
	}
	switch tag := n.ShortTag(); tag {
	case "!!binary", "!!null", "!!bool", "!!int", "!!float":
		quoted, err := json.Marshal(n.Value)
		return tag + " " + string(quoted), err == nil
	}
	return "", false
}

// notStrings matches null, booleans, numbers and some strings. No match is a marker
// or has an indicator of YAML, so that a match is the same scalar on its own.
var notStrings = regexp.MustCompile(`^(|~|[nN](ull|ULL)|[yY](es|ES)?|[nN][oO]?|[tT](rue|RUE)|[fF](alse|ALSE)|[oO](n|N|ff|FF)|[-+]?\.[a-zA-Z]{3}|[-+]?[._]?[0-9_][-+._0-9]*([eE][-+_0-9]*)?|[-+]?_*0_*[xXbBoO][-+_0-9a-fA-F]*)$`)

// notString reports whether an unquoted scalar may be no string.
func notString(s string) bool {
	return (s == "" || strings.IndexByte("~yYnNtTfFoO-+.0123456789_", s[0]) >= 0) && notStrings.MatchString(s)
}

// plainString reports whether an unquoted scalar is a string.
func plainString(s string) bool {
	if !notString(s) {
		return true
	}
	data, err := kyaml.YAMLToJSON([]byte(s))
	return err == nil && data[0] == '"'
}
