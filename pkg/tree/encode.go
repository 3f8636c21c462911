package tree

import (
	"encoding/json"
	"slices"
)

// AppendJSON appends a tree as json.Marshal writes it.
func AppendJSON(b []byte, v any) ([]byte, error) { return appendValue(b, v) }

// appendValue writes a tree as json.Marshal does. It uses reflection only for numbers and for
// values that are not part of a tree.
func appendValue(b []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case string:
		return AppendString(b, v), nil
	case map[string]any:
		if v == nil {
			break
		}
		return appendMap(b, v)
	case []any:
		if v == nil {
			break
		}
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendValue(b, e); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	}
	value, err := json.Marshal(v)
	return append(b, value...), err
}

func appendMap(b []byte, m map[string]any) ([]byte, error) {
	var few [16]string
	keys := few[:0]
	if len(m) > len(few) {
		keys = make([]string, 0, len(m))
	}
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendValue(append(AppendString(b, k), ':'), m[k]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// PatchSize estimates how many bytes EncodePatch writes. It ignores escaped characters.
func PatchSize(ops []Op) int64 {
	var n int64
	for i := range ops {
		n += int64(len(ops[i].Path)) + 32 + textSize(ops[i].Value)
	}
	return n
}

// textSize estimates how many bytes a tree has as JSON.
func textSize(v any) int64 {
	n := int64(8)
	switch v := v.(type) {
	case string:
		n += int64(len(v))
	case map[string]any:
		for k, e := range v {
			n += int64(len(k)) + 4 + textSize(e)
		}
	case []any:
		for _, e := range v {
			n += textSize(e)
		}
	}
	return n
}

// AppendString quotes s as json.Marshal does. It is fast if no character needs an escape.
func AppendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(s) // marshalling a string never fails
			return append(b, quoted...)
		}
	}
	b = append(append(b, '"'), s...)
	return append(b, '"')
}
