package tree

// Patch is Diff for an API server: where more than a few fields of a map of strings, such as
// labels, change and the result is shorter, it replaces the whole map. A server decodes,
// applies and annotates operations one by one, and a hundred operations take it ten times as
// long as one of the same length.
//
// Only strings may be sent again unchanged, since they stay the same however often they are
// decoded and encoded.
func Patch(before, after any) []Op {
	var room [usualPath]byte
	d := differ{path: room[:0], replaceStrings: true}
	d.diff(before, after)
	return d.ops
}

// fewFields is how many fields of one map are always changed one by one.
const fewFields = 8

// replaced emits one operation that replaces the map at d.path by b, if Patch allows that and
// it is shorter, and reports whether it did. keys are the fields in which b differs.
func (d *differ) replaced(b map[string]any, keys []string) bool {
	if !d.replaceStrings || len(keys) <= fewFields || len(d.path) == 0 {
		return false
	}
	const field, removal, addition = len(`"":"",`), len(`{"op":"remove","path":"/"},`), len(`{"op":"add","path":"/","value":""},`)
	shorter := 0 // the least number of bytes that replacing saves
	for _, k := range keys {
		shorter += len(d.path) + len(k)
		if v, ok := b[k].(string); ok {
			shorter += addition + len(v)
		} else {
			shorter += removal
		}
	}
	for k, v := range b {
		s, ok := v.(string)
		if shorter -= field + len(k) + len(s); !ok || shorter <= 0 {
			return false
		}
	}
	d.emit("replace", b)
	return true
}
