package supportbundle

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// hiddenText replaces text that was removed.
const hiddenText = "[removed]"

// minHidden is the length of the shortest value of a variable that is removed from texts:
// shorter ones, such as "true", also occur in other texts.
const minHidden = 8

// secrets are texts that look like credentials, wherever they are.
var secrets = regexp.MustCompile(`(?s)` + strings.Join([]string{
	`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`,                      // JSON Web Tokens
	`-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)`, // the end may be cut off
	`(?i:\b(?:bearer|basic) +)[A-Za-z0-9+/=._~-]{8,}`,
	`://[^/\s:@"]+:[^/\s@"]+@`, // user and password of a URL
}, "|"))

// hide remembers the values of an object's environment variables.
func (b *builder) hide(o map[string]any) {
	for _, path := range [][]string{{"spec"}, {"spec", "template", "spec"}} {
		for _, of := range []string{"containers", "initContainers", "ephemeralContainers"} {
			list, _, _ := unstructured.NestedSlice(o, append(path, of)...)
			for _, c := range list {
				env, _, _ := unstructured.NestedSlice(asMap(c), "env")
				for _, v := range env {
					if value, _ := asMap(v)["value"].(string); len(value) >= minHidden && value != b.Namespace {
						b.hidden[value] = true
					}
				}
			}
		}
	}
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// clean removes from a text what looks like a credential, and the values that hide remembers.
func (b *builder) clean(text string) string {
	text = secrets.ReplaceAllString(text, hiddenText)
	// The longest first: if a value is a part of a longer one, nothing of the longer one may stay.
	for _, value := range slices.SortedFunc(maps.Keys(b.hidden), func(v, w string) int { return cmp.Or(len(w)-len(v), strings.Compare(v, w)) }) {
		text = strings.ReplaceAll(text, value, hiddenText)
	}
	return text
}
