package cel

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// Excerpt is a value as text, cut if it is long.
type Excerpt struct {
	Form Form
	// Text is the value; of a Hidden one it is empty.
	Text string
	// Cut says that Text is only the beginning of the value.
	Cut bool
}

// Form says what the text of an Excerpt is.
type Form uint8

// The forms of an Excerpt.
const (
	// JSON is for values that have a JSON form.
	JSON Form = iota
	// Plain is for values without one, such as optional.none().
	Plain
	// Failure is the text of an error.
	Failure
	// Hidden is for values that may be in a Secret.
	Hidden
)

// String returns the value for people.
func (v Excerpt) String() string {
	text := v.Text
	switch {
	case v.Form == Hidden:
		return "***"
	case v.Form == Failure:
		text = "error: " + text
	}
	if v.Cut {
		text += "…"
	}
	return text
}

// MarshalJSON returns an object with one of value, text, error and hidden, and cut if it
// is.
func (v Excerpt) MarshalJSON() ([]byte, error) {
	out := map[string]any{}
	switch {
	case v.Form == Hidden:
		out["hidden"] = true
	case v.Form == Failure:
		out["error"] = v.Text
	case v.Form == JSON && !v.Cut:
		out["value"] = json.RawMessage(v.Text)
	default:
		out["text"] = v.Text
	}
	if v.Cut {
		out["cut"] = true
	}
	return json.Marshal(out)
}

const (
	// maxValueText bounds the text of an Excerpt in bytes.
	maxValueText = 256
	// maxSorted is how many keys of a map are put in order to show some of them.
	maxSorted = 1024
	// maxNesting is how deep an Excerpt shows lists and maps.
	maxNesting = 16
)

// shown returns a value as text; hidden says that it may be in a Secret. Booleans are shown all
// the same: they reveal little of a Secret, and the trace of a condition would be useless
// without them.
func shown(v ref.Val, hidden bool) (out Excerpt) {
	if _, ok := v.(types.Bool); hidden && !ok {
		return Excerpt{Form: Hidden}
	}
	if err, ok := v.(*types.Err); ok {
		w := excerpter{}
		w.raw(err.Error())
		return Excerpt{Failure, string(w.text), w.cut}
	}
	w := excerpter{}
	defer func() {
		if recover() != nil { // the value panicked while it was read
			out = Excerpt{Plain, string(w.text), true}
		}
	}()
	w.value(v, 0)
	form := JSON
	if w.plain {
		form = Plain
	}
	return Excerpt{form, string(w.text), w.cut}
}

// excerpter writes the beginning of a value. It reads little more of the value than it writes.
type excerpter struct {
	text []byte
	// plain says that the text is not JSON, cut that a part of the value is missing.
	plain, cut bool
}

// raw appends as much of a text as fits, without splitting a character.
func (w *excerpter) raw(s string) {
	if room := maxValueText - len(w.text); len(s) > room {
		w.cut = true
		for room > 0 && !utf8.RuneStart(s[room]) {
			room--
		}
		s = s[:room]
	}
	w.text = append(w.text, s...)
}

func (w *excerpter) quoted(s string) {
	cut := len(s) > maxValueText
	if cut {
		s = s[:maxValueText]
		for len(s) > 0 {
			if r, n := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || n != 1 {
				break
			}
			s = s[:len(s)-1]
		}
	}
	b, _ := json.Marshal(s) // a string has a text
	w.raw(string(b))
	w.cut = w.cut || cut
}

// call writes a value that has no JSON form as the call of a function.
func (w *excerpter) call(function string, arg func()) {
	w.plain = true
	w.raw(function + "(")
	arg()
	w.raw(")")
}

func (w *excerpter) value(v any, depth int) {
	if w.cut = w.cut || depth > maxNesting; w.cut {
		return
	}
	switch v := v.(type) {
	case nil, types.Null:
		w.raw("null")
	case bool:
		w.raw(strconv.FormatBool(v))
	case types.Bool:
		w.raw(strconv.FormatBool(bool(v)))
	case string:
		w.quoted(v)
	case types.String:
		w.quoted(string(v))
	case int64, float64, types.Int, types.Uint:
		w.raw(fmt.Sprint(v))
	case types.Double:
		w.raw(fmt.Sprint(float64(v)))
	case types.Bytes:
		w.call("bytes", func() { w.quoted(string(v[:min(len(v), 2*maxValueText)])) })
	case types.Duration:
		w.call("duration", func() { w.quoted(v.String()) })
	case types.Timestamp:
		w.call("timestamp", func() { w.quoted(v.UTC().Format("2006-01-02T15:04:05.999999999Z")) })
	case *types.Optional:
		if !v.HasValue() {
			w.call("optional.none", func() {})
		} else {
			w.call("optional.of", func() { w.value(v.GetValue(), depth) })
		}
	case *objectVal:
		w.fields(slices.Collect(maps.Keys(v.fields)), func(name string) any { return v.fields[name] }, depth)
	case *mutation.JSONPatchVal:
		w.operation(v, depth)
	case map[string]any:
		if len(v) > maxSorted {
			w.many(len(v))
			return
		}
		w.fields(slices.Collect(maps.Keys(v)), func(name string) any { return v[name] }, depth)
	case []any:
		w.list(len(v), func(i int) any { return v[i] }, depth)
	case *variablesVal, ref.Type:
		w.plain = true
		w.raw(v.(ref.Val).Type().TypeName())
	case traits.Lister:
		n, _ := v.Size().(types.Int)
		w.list(int(n), func(i int) any { return v.Get(types.Int(i)) }, depth)
	case traits.Mapper:
		w.mapper(v, depth)
	default:
		w.other(v)
	}
}

// many writes a placeholder for a map that is too large.
func (w *excerpter) many(n int) {
	w.raw(fmt.Sprintf("{%d entries", n))
	w.cut = true
}

func (w *excerpter) fields(names []string, of func(string) any, depth int) {
	slices.Sort(names)
	w.raw("{")
	for i, name := range names {
		if i > 0 {
			w.raw(",")
		}
		w.quoted(name)
		w.raw(":")
		if w.value(of(name), depth+1); w.cut {
			return
		}
	}
	w.raw("}")
}

func (w *excerpter) list(n int, of func(int) any, depth int) {
	w.raw("[")
	for i := range n {
		if i > 0 {
			w.raw(",")
		}
		if w.value(of(i), depth+1); w.cut {
			return
		}
	}
	w.raw("]")
}

// mapper writes a map of CEL, whose keys need not be strings.
func (w *excerpter) mapper(m traits.Mapper, depth int) {
	if n, _ := m.Size().(types.Int); n > maxSorted {
		w.many(int(n))
		return
	}
	keys, names := map[string]ref.Val{}, []string{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name := fmt.Sprint(key.Value())
		if _, ok := key.(types.String); !ok {
			w.plain = true // one of JSON has no such keys
		}
		if _, ok := keys[name]; !ok {
			names = append(names, name)
		}
		keys[name] = key
	}
	w.fields(names, func(name string) any { return m.Get(keys[name]) }, depth)
}

func (w *excerpter) operation(op *mutation.JSONPatchVal, depth int) {
	parts := map[string]any{"op": op.Op, "path": op.Path}
	names := []string{"op", "path"}
	if op.From != "" {
		parts["from"], names = op.From, append(names, "from")
	}
	if op.Val != nil {
		parts["value"], names = op.Val, append(names, "value")
	}
	w.fields(names, func(name string) any { return parts[name] }, depth)
}

// other writes a value of a library, such as a quantity.
func (w *excerpter) other(v any) {
	w.plain = true
	val, ok := v.(ref.Val)
	if !ok {
		w.raw(fmt.Sprintf("%T", v))
		return
	}
	if s, ok := val.Value().(fmt.Stringer); ok {
		w.call(val.Type().TypeName(), func() { w.quoted(s.String()) })
		return
	}
	w.raw(val.Type().TypeName())
}
