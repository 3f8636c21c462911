package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Change is one field that differs. Before or After is nil if the field is missing or null, which
// count as equal.
type Change struct {
	Path          string
	Before, After any
	// Moved: only the order of a list's elements differs. Before and After then have the names of
	// the elements.
	Moved bool
}

// Diff lists what differs between two versions of an object, in the order of
// the fields' names.
func Diff(before, after map[string]any, keys Keys) []Change {
	d := differ{keys: keys}
	d.maps("", nil, before, after)
	return d.changes
}

// Hide returns changes without the values of Secrets, including those in the annotation of
// kubectl apply. Changes of other kinds stay as they are.
func Hide(group, kind string, changes []Change) []Change {
	if group != "" || kind != "Secret" {
		return changes
	}
	out := slices.Clone(changes)
	for i, c := range out {
		steps, err := tree.SplitField(c.Path)
		if err == nil && steps[0].Name != "data" && steps[0].Name != "stringData" && steps[0].Name != "metadata" || c.Moved {
			continue
		}
		before, after := "***", "***"
		if c.Before != nil && c.After != nil {
			before, after = "*** (before)", "*** (after)"
		}
		hide := hide
		if err == nil && steps[0].Name == "metadata" && steps[len(steps)-1].Name != corev1.LastAppliedConfigAnnotation {
			hide = hideApplied
		}
		out[i].Before, out[i].After = hide(c.Before, before), hide(c.After, after)
	}
	return out
}

// hideApplied hides the annotation in which kubectl apply keeps the whole object.
func hideApplied(v any, text string) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(m))
	for k, e := range m {
		if k == corev1.LastAppliedConfigAnnotation {
			out[k] = hide(e, text)
		} else {
			out[k] = hideApplied(e, text)
		}
	}
	return out
}

func hide(v any, text string) any {
	switch v := v.(type) {
	case nil:
		return nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = hide(e, text)
		}
		return out
	}
	return text
}

type differ struct {
	keys    Keys
	changes []Change
}

func (d *differ) value(path string, steps []string, before, after any) {
	if b, ok := before.(map[string]any); ok && len(b) > 0 {
		if a, ok := after.(map[string]any); ok && len(a) > 0 {
			d.maps(path, steps, b, a) // which finds nothing if they are equal
			return
		}
	}
	if tree.Equal(before, after) {
		return
	}
	if d.elements(path, steps, before, after) {
		return
	}
	switch b := before.(type) {
	case []any:
		if a, ok := after.([]any); ok && len(a) > 0 && len(b) > 0 {
			d.lists(path, steps, b, a)
			return
		}
	case nil:
		// A new object that only contains new fields gets no line of its own.
		if a, ok := after.(map[string]any); ok && len(a) > 0 && len(steps) <= 2 {
			d.maps(path, steps, nil, a)
			return
		}
	}
	d.changes = append(d.changes, Change{Path: path, Before: before, After: after})
}

// elements reports a keyed list that was added or removed as a whole by its
// elements.
func (d *differ) elements(path string, steps []string, before, after any) bool {
	b, isList := before.([]any)
	if before != nil && !isList {
		return false
	}
	a, isList := after.([]any)
	if after != nil && !isList || len(a) > 0 && len(b) > 0 || len(a)+len(b) == 0 {
		return false
	}
	keys := keysOf(d.keys, steps, b, a)
	if keys == nil {
		return false
	}
	d.keyed(path, append(steps[:len(steps):len(steps)], ""), keys, b, a)
	return true
}

func (d *differ) maps(path string, steps []string, before, after map[string]any) {
	names := tree.AppendSuspects(nil, before, after)
	slices.Sort(names)
	for _, name := range names {
		d.value(tree.JoinField(path, name), append(steps[:len(steps):len(steps)], name), before[name], after[name])
	}
}

func (d *differ) lists(path string, steps []string, before, after []any) {
	element := append(steps[:len(steps):len(steps)], "")
	if keys := keysOf(d.keys, steps, before, after); keys != nil {
		d.keyed(path, element, keys, before, after)
		return
	}
	if scalars(before) && scalars(after) {
		d.changes = append(d.changes, Change{Path: path, Before: before, After: after})
		return
	}
	at := func(i int) string { return path + "[" + strconv.Itoa(i) + "]" }
	head, tail := common(before, after)
	oldMiddle, newMiddle := before[head:len(before)-tail], after[head:len(after)-tail]
	switch {
	case len(oldMiddle) == len(newMiddle):
		for i := range oldMiddle {
			d.value(at(head+i), element, oldMiddle[i], newMiddle[i])
		}
	case len(oldMiddle) == 0:
		for i, e := range newMiddle {
			d.changes = append(d.changes, Change{Path: at(head + i), After: e})
		}
	case len(newMiddle) == 0:
		for i, e := range oldMiddle {
			d.changes = append(d.changes, Change{Path: at(head + i), Before: e})
		}
	default:
		d.changes = append(d.changes, Change{Path: path, Before: before, After: after})
	}
}

// common counts the elements that two lists begin and end with.
func common(a, b []any) (head, tail int) {
	n := min(len(a), len(b))
	for head < n && tree.Equal(a[head], b[head]) {
		head++
	}
	for tail < n-head && tree.Equal(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	return head, tail
}

func (d *differ) keyed(path string, element, keys []string, before, after []any) {
	old := map[string]any{}
	var oldOrder, newOrder []string
	for _, e := range before {
		id, _ := identity(e, keys)
		old[id] = e
		oldOrder = append(oldOrder, id)
	}
	fresh := map[string]any{}
	for _, e := range after {
		id, _ := identity(e, keys)
		fresh[id] = e
		newOrder = append(newOrder, id)
	}
	for _, id := range oldOrder {
		if _, ok := fresh[id]; !ok {
			d.changes = append(d.changes, Change{Path: path + "[" + id + "]", Before: old[id]})
		}
	}
	for _, id := range newOrder {
		if b, ok := old[id]; ok {
			d.value(path+"["+id+"]", element, b, fresh[id])
		} else {
			d.changes = append(d.changes, Change{Path: path + "[" + id + "]", After: fresh[id]})
		}
	}
	kept := func(order []string, in map[string]any) []string {
		return slices.DeleteFunc(slices.Clone(order), func(id string) bool { _, ok := in[id]; return !ok })
	}
	if b, a := kept(oldOrder, fresh), kept(newOrder, old); !slices.Equal(b, a) {
		d.changes = append(d.changes, Change{Path: path, Before: strings.Join(b, ", "), After: strings.Join(a, ", "), Moved: true})
	}
}

// nested reports whether a value needs more than one line.
func nested(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) > 0
	case []any:
		return !scalars(v)
	}
	return false
}

func scalars(list []any) bool {
	return !slices.ContainsFunc(list, func(e any) bool {
		switch e.(type) {
		case map[string]any, []any:
			return true
		}
		return false
	})
}

// Colour says whether a diff is printed in a terminal's colours; the zero value
// prints none.
type Colour bool

// Paint returns s in the colour of an escape code.
func (c Colour) Paint(code, s string) string {
	if !c {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// WriteDiff prints changes under a title: "~" changed, "+" added, "-" removed.
// An added or removed object or list of them is printed as YAML below
// its path.
func WriteDiff(w io.Writer, title string, changes []Change, colour Colour) error {
	var b strings.Builder
	b.WriteString(colour.Paint("1", Line(title)) + "\n")
	for _, c := range changes {
		c.Path = Line(c.Path)
		switch {
		case c.Moved:
			b.WriteString(colour.Paint("33", "~ "+c.Path+": order "+Printable(fmt.Sprintf("[%s] → [%s]", c.Before, c.After))) + "\n")
		case c.Before == nil:
			writeWhole(&b, "+ ", c.Path, c.After, "32", colour)
		case c.After == nil:
			writeWhole(&b, "- ", c.Path, c.Before, "31", colour)
		default:
			b.WriteString(colour.Paint("33", "~ "+c.Path+": ") + colour.Paint("31", inline(c.Before)) + " → " + colour.Paint("32", inline(c.After)) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeWhole(b *strings.Builder, sign, path string, v any, code string, colour Colour) {
	if !nested(v) {
		b.WriteString(colour.Paint(code, sign+path+": "+inline(v)) + "\n")
		return
	}
	b.WriteString(colour.Paint(code, sign+path+":") + "\n")
	for line := range strings.Lines(string(manifest.Encode(v))) {
		b.WriteString(colour.Paint(code, sign+"    "+Line(strings.TrimSuffix(line, "\n"))) + "\n")
	}
}
