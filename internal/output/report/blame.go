package report

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/explain"
)

// BlameText returns an object as YAML. Each changed field has a comment with the names of those
// who changed it, in order. For removed fields the comment has the names of the fields.
func BlameText(object map[string]any, b *explain.Blame) string {
	var w blameWriter
	w.fields(object, b, "")
	return w.String()
}

type blameWriter struct{ strings.Builder }

// first are the fields that stand before the others.
var first = []string{"apiVersion", "kind", "metadata"}

func (w *blameWriter) fields(m map[string]any, b *explain.Blame, indent string) {
	names := slices.Sorted(maps.Keys(m))
	if indent == "" {
		slices.SortStableFunc(names, func(x, y string) int { return rank(x) - rank(y) })
	}
	for _, name := range names {
		var of *explain.Blame
		if b != nil {
			of = b.Fields[name]
		}
		w.WriteString(indent + scalar(name) + ":")
		w.value(m[name], of, indent)
	}
	if b != nil {
		for _, name := range slices.Sorted(maps.Keys(b.Removed)) {
			fmt.Fprintf(w, "%s# %s removed: %s\n", indent, Line(name), chain(b.Removed[name]))
		}
	}
}

func rank(name string) int {
	if i := slices.Index(first, name); i >= 0 {
		return i
	}
	return len(first)
}

// value writes the value after a key or a dash.
func (w *blameWriter) value(v any, b *explain.Blame, indent string) {
	comment := ""
	if b != nil && len(b.Causes) > 0 {
		comment = "  # " + chain(b.Causes)
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) > 0 || b != nil && len(b.Removed) > 0 {
			w.WriteString(comment + "\n")
			w.fields(v, b, indent+"  ")
			return
		}
	case []any:
		if len(v) > 0 {
			w.WriteString(comment + "\n")
			for i, e := range v {
				var of *explain.Blame
				if b != nil && i < len(b.Items) {
					of = b.Items[i]
				}
				w.item(e, of, indent)
			}
			return
		}
	}
	w.WriteString(" " + scalar(v) + comment + "\n")
}

// item writes one element of a list. The first field of an object stands behind the dash.
func (w *blameWriter) item(v any, b *explain.Blame, indent string) {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 || b != nil && len(b.Causes) > 0 {
		w.WriteString(indent + "-")
		w.value(v, b, indent)
		return
	}
	var inner blameWriter
	inner.fields(m, b, indent+"  ")
	w.WriteString(indent + "- " + strings.TrimPrefix(inner.String(), indent+"  "))
}

// scalar writes a value on one line.
func scalar(v any) string {
	text := strings.TrimSpace(string(manifest.Encode(v)))
	if s, ok := v.(string); ok && strings.ContainsFunc(text, Hidden) {
		return fmt.Sprintf("%q", s)
	}
	return Printable(text)
}

func chain(causes []explain.Cause) string {
	texts := make([]string, len(causes))
	for i, c := range causes {
		texts[i] = c.String()
	}
	return Line(strings.Join(texts, ", then "))
}

// A BlameLine is the place of a field, in a text, that a mutation wrote.
type BlameLine struct {
	First, Last int    // from 1
	Path        string // such as spec.containers[0].image
	explain.Cause
}

// BlameLines returns where the fields that were changed stand in the text of an object,
// in the order of their paths; one that was changed several times has a line for each.
func BlameLines(text []byte, b *explain.Blame) (out []BlameLine) {
	for d, err := range manifest.ReadStream("", bytes.NewReader(text)) {
		if err == nil && d.Object != nil {
			find := d.Lines()
			walkBlame(b, nil, func(steps []string, path string, causes []explain.Cause) {
				if first, last, ok := find(steps); ok {
					for _, c := range causes {
						out = append(out, BlameLine{first, last, path, c})
					}
				}
			}, "")
		}
	}
	return out
}

// walkBlame calls f with everything that has causes.
func walkBlame(b *explain.Blame, steps []string, f func([]string, string, []explain.Cause), path string) {
	if b == nil {
		return
	}
	if len(b.Causes) > 0 {
		f(steps, path, b.Causes)
	}
	for _, name := range slices.Sorted(maps.Keys(b.Fields)) {
		at := path + "." + name
		if strings.ContainsAny(name, "./[]") {
			at = path + "[" + name + "]"
		}
		walkBlame(b.Fields[name], append(slices.Clip(steps), name), f, strings.TrimPrefix(at, "."))
	}
	for i, e := range b.Items {
		at := strconv.Itoa(i)
		walkBlame(e, append(slices.Clip(steps), at), f, path+"["+at+"]")
	}
}
