package tree

// Patch is Diff for an API server: where more than a few fields of a map of
// strings change, such as labels, and it is the shorter text, the map is replaced.
// A server decodes, applies and annotates operations one by one, and a hundred
// take it ten times as long as one of that length.
//
// Nothing but strings is sent that did not change: they stay what they are,
// however often they are decoded and encoded.
func Patch(before, after any) []Op {
	var room [usualPath]byte
	d := differ{path: room[:0], replaceStrings: true}
	d.diff(before, after)
	return d.ops
}

// fewFields is how many fields of one map are always changed one by one.
const fewFields = 8

// replaced replaces the map that the path leads to by b, which differs from it in
// the fields that keys name, if that is allowed and shorter.
func (d *differ) replaced(b map[string]any, keys []string) bool {
	if !d.replaceStrings || len(keys) <= fewFields || len(d.path) == 0 {
		return false
	}
	const field, removal, addition = len(`"":"",`), len(`{"op":"remove","path":"/"},`), len(`{"op":"add","path":"/","value":""},`)
	shorter := 0 // by so much at least
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
