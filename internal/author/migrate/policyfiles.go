package migrate

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/format"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/api"
)

// File is one file: a policy and its binding, after the ConfigMap that they need, if
// any.
type File struct {
	Name string
	Data []byte
}

// Command is the command that writes Files.
const Command = "mapd migrate gatekeeper"

// Marker returns the line of every file that Write may replace: by is the command that
// wrote it.
func Marker(by string) string { return "# Written by " + by + "." }

// Files formats the units that have a policy, in their order. group is the API
// group of policies and bindings; "" means Kubernetes' own.
func Files(units []translate.Unit, group string) []File {
	if group == "" {
		group = api.NativeGroup
	}
	var out []File
	for _, u := range units {
		if u.Policy == nil {
			continue
		}
		out = append(out, File{fileName(u), Encode(header(u), Objects(u, group))})
	}
	return out
}

// fileName returns the name of the file of a unit, or "" if it has no policy.
func fileName(u translate.Unit) string {
	if u.Policy == nil {
		return ""
	}
	return u.Name + ".yaml"
}

// Objects returns the policy and the binding of a unit as one sends them to a
// server, in a group, after their ConfigMap. It returns none if the unit has no
// policy.
func Objects(u translate.Unit, group string) []*unstructured.Unstructured {
	if u.Policy == nil {
		return nil
	}
	var out []*unstructured.Unstructured
	if u.Params != nil {
		out = append(out, u.Params)
	}
	out = append(out, api.Object(u.Policy, group))
	if u.Binding != nil {
		out = append(out, api.Object(u.Binding, group))
	}
	return out
}

// Encode writes policies and bindings below a comment, which may be empty.
func Encode(comment string, objects []*unstructured.Unstructured) []byte {
	b := []byte(comment)
	for i, u := range objects {
		if i > 0 {
			b = append(b, "---\n"...)
		}
		b = append(b, format.Form.Encode(u.Object)...)
	}
	return b
}

// width is how long lines of comments may be.
const width = 100

// header returns the comment at the top of a file: what the policy does, what
// it was made from, and how exactly it does that.
func header(u translate.Unit) string {
	var b strings.Builder
	line := func(text string) {
		b.WriteString(strings.TrimRight("# "+comment(text), " ") + "\n")
	}
	for text := range strings.SplitSeq(strings.TrimRight(u.Comment, "\n"), "\n") {
		line(text)
	}
	line("")
	for _, v := range u.Verdicts {
		line(fmt.Sprintf("From %s: %s.", v.ID, v.Verdict))
		for _, n := range v.Notes {
			for i, text := range wrap(n.String(), width-6) {
				line([]string{"- ", "  "}[min(i, 1)] + text)
			}
		}
	}
	b.WriteString(Marker(Command) + "\n")
	return b.String()
}

// comment returns s as text that cannot end a comment: the author of the
// mutator chooses names and values.
func comment(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || slices.Contains([]rune{'\u0085', '\u2028', '\u2029', '\ufeff'}, r) {
			return ' '
		}
		return r
	}, s)
}

// wrap breaks text at spaces.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
