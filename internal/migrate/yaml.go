package migrate

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/mapd-project/mapd/internal/manifest"
)

// order is the order in which people write the fields of policies and bindings.
// Other fields follow, by name.
var order = []string{
	"apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "spec",
	"policyName", "paramRef", "matchResources",
	"paramKind", "matchConstraints", "matchConditions", "variables", "failurePolicy", "reinvocationPolicy", "mutations",
	"matchPolicy", "resourceRules", "excludeResourceRules", "namespaceSelector", "objectSelector",
	"apiGroups", "apiVersions", "operations", "resources", "resourceNames", "scope",
	"matchLabels", "matchExpressions", "key", "operator", "values",
	"patchType", "jsonPatch", "applyConfiguration", "expression",
}

// free are the fields whose keys are chosen by the user.
var free = []string{"labels", "annotations", "matchLabels"}

// pretty writes an object as a person would.
func pretty(obj map[string]any) []byte {
	var b bytes.Buffer
	mapping(&b, obj, "", true)
	return b.Bytes()
}

// mapping writes the members of m, one a line, at an indent.
func mapping(b *bytes.Buffer, m map[string]any, indent string, ordered bool) {
	for i, k := range keys(m, ordered) {
		if i > 0 {
			b.WriteString(indent)
		}
		b.WriteString(scalar(k) + ":")
		member(b, k, m[k], indent)
	}
}

func keys(m map[string]any, ordered bool) []string {
	all := slices.Sorted(maps.Keys(m))
	if !ordered {
		return all
	}
	var out []string
	for _, k := range order {
		if _, ok := m[k]; ok {
			out = append(out, k)
		}
	}
	for _, k := range all {
		if !slices.Contains(order, k) {
			out = append(out, k)
		}
	}
	return out
}

// member writes a value after "key:", with the end of the line.
func member(b *bytes.Buffer, key string, v any, indent string) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			b.WriteString(" {}\n")
			return
		}
		b.WriteString("\n" + indent + "  ")
		mapping(b, v, indent+"  ", !slices.Contains(free, key))
	case []any:
		if text, ok := flow(v); ok {
			b.WriteString(" " + text + "\n")
			return
		}
		b.WriteByte('\n')
		for _, e := range v {
			b.WriteString(indent + "-")
			if m, ok := e.(map[string]any); ok && len(m) > 0 {
				b.WriteByte(' ')
				mapping(b, m, indent+"  ", true)
				continue
			}
			member(b, "", e, indent+"  ")
		}
	case string:
		text := scalar(v)
		if blocky(v) && (strings.Contains(v, "\n") || key == "expression" && (text[0] == '"' || len(v) > width)) {
			b.WriteString(" |-\n")
			for line := range strings.SplitSeq(v, "\n") {
				if line != "" {
					b.WriteString(indent + "  " + line)
				}
				b.WriteByte('\n')
			}
			return
		}
		b.WriteString(" " + text + "\n")
	default:
		b.WriteString(" " + scalar(v) + "\n")
	}
}

// flow writes a short list of words in one line.
func flow(l []any) (string, bool) {
	words := make([]string, len(l))
	for i, e := range l {
		switch e.(type) {
		case map[string]any, []any:
			return "", false
		}
		words[i] = scalar(e)
		if s, ok := e.(string); ok && words[i][0] != '"' && !word.MatchString(words[i]) {
			words[i] = quoted(s)
		}
	}
	text := "[" + strings.Join(words, ", ") + "]"
	return text, len(text) <= 80
}

// word matches text that needs no quotes, even within brackets.
var word = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// scalar writes one value on one line.
func scalar(v any) string {
	s, ok := v.(string)
	if ok && strings.ContainsFunc(s, unicode.IsControl) {
		return quoted(s)
	}
	text := strings.TrimSuffix(string(manifest.Encode(v)), "\n")
	if ok && text[0] == '\'' {
		return quoted(s) // one kind of quotes in a file
	}
	return text
}

// quoted writes a string as JSON does, which YAML reads, too.
func quoted(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// blocky reports whether a text can be written as a block, over several lines.
func blocky(s string) bool {
	return s != "" && !strings.HasSuffix(s, "\n") && s[0] != ' ' && s[0] != '\n' &&
		!strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}
