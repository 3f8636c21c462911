package tree

import (
	"math/rand"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

func TestApply(t *testing.T) {
	tests := map[string]struct {
		doc  string
		ops  []Op
		want string
		err  string
	}{
		"nothing":                   {doc: `{"a": 1}`, want: `{"a": 1}`},
		"add, replace, remove":      {doc: `{"a": 1, "b": 2}`, ops: []Op{{"add", "/c", "x"}, {"replace", "/a", nil}, {"remove", "/b", nil}}, want: `{"a": null, "c": "x"}`},
		"add overwrites":            {doc: `{"a": 1}`, ops: []Op{{"add", "/a", "x"}}, want: `{"a": "x"}`},
		"append and insert":         {doc: `{"l": [2]}`, ops: []Op{{"add", "/l/-", int64(4)}, {"add", "/l/1", int64(3)}, {"add", "/l/0", int64(1)}, {"add", "/l/4", int64(5)}}, want: `{"l": [1, 2, 3, 4, 5]}`},
		"deep in lists":             {doc: `{"l": [[{"a": 1}]]}`, ops: []Op{{"replace", "/l/0/0/a", "x"}, {"remove", "/l/0/0/a", nil}, {"add", "/l/0/0", "y"}}, want: `{"l": [["y", {}]]}`},
		"into what was just added":  {doc: `{}`, ops: []Op{{"add", "/m", map[string]any{}}, {"add", "/m/k", []any{}}, {"add", "/m/k/-", "v"}}, want: `{"m": {"k": ["v"]}}`},
		"one map, then another":     {doc: `{"a": {"x": 1}, "b": {}}`, ops: []Op{{"add", "/a/y", "2"}, {"remove", "/a/x", nil}, {"replace", "/a", map[string]any{"z": "3"}}, {"add", "/a/w", "4"}, {"add", "/b/w", "5"}, {"add", "/a/v", "6"}}, want: `{"a": {"z": "3", "w": "4", "v": "6"}, "b": {"w": "5"}}`},
		"a map, then the document":  {doc: `{"a": 1}`, ops: []Op{{"add", "/b", "x"}, {"replace", "", map[string]any{"c": "y"}}, {"add", "/d", "z"}}, want: `{"c": "y", "d": "z"}`},
		"escapes":                   {doc: `{"a/b": {}}`, ops: []Op{{"add", "/a~1b/c~0d", "x"}, {"add", "/a~1b/~01", "y"}}, want: `{"a/b": {"c~d": "x", "~1": "y"}}`},
		"a bad escape":              {doc: `{"a": {}}`, ops: []Op{{"add", "/a/b", "x"}, {"add", "/a/~", "x"}}, err: `operation 1, add "/a/~": pointer "/a/~": token "~": "~" must be followed by 0 or 1`},
		"the whole document":        {doc: `{"a": 1}`, ops: []Op{{"replace", "", map[string]any{"b": "c"}}}, want: `{"b": "c"}`},
		"remove the whole document": {doc: `{}`, ops: []Op{{Op: "remove"}}, err: `operation 0, remove "": cannot remove the whole document`},
		"replace what is not there": {doc: `{}`, ops: []Op{{"replace", "/a", "x"}}, err: `operation 0, replace "/a": no field "a"`},
		"remove what is not there":  {doc: `{"a": 1}`, ops: []Op{{"remove", "/a", nil}, {"remove", "/a", nil}}, err: `operation 1, remove "/a": no field "a"`},
		"below what is not there":   {doc: `{}`, ops: []Op{{"add", "/a/b", "x"}}, err: `operation 0, add "/a/b": no field "a"`},
		"below null":                {doc: `{"a": null}`, ops: []Op{{"add", "/a/b", "x"}}, err: `operation 0, add "/a/b": nothing can be below null`},
		"below a scalar":            {doc: `{"a": "s"}`, ops: []Op{{"add", "/a/b", "x"}}, err: `operation 0, add "/a/b": nothing can be below a string`},
		"beyond a list":             {doc: `{"l": [1]}`, ops: []Op{{"add", "/l/2", "x"}}, err: `operation 0, add "/l/2": index 2 is beyond the list`},
		"replace beyond a list":     {doc: `{"l": [1]}`, ops: []Op{{"replace", "/l/1", "x"}}, err: `operation 0, replace "/l/1": index 1 is beyond the list`},
		"remove the end":            {doc: `{"l": [1]}`, ops: []Op{{"remove", "/l/-", nil}}, err: `operation 0, remove "/l/-": "-" is not a list index`},
		"a leading zero":            {doc: `{"l": [1, 2]}`, ops: []Op{{"remove", "/l/01", nil}}, err: `operation 0, remove "/l/01": "01" is not a list index`},
		"a negative index":          {doc: `{"l": [1, 2]}`, ops: []Op{{"remove", "/l/-1", nil}}, err: `operation 0, remove "/l/-1": "-1" is not a list index`},
		"an index with a plus":      {doc: `{"l": [1, 2]}`, ops: []Op{{"remove", "/l/+1", nil}}, err: `operation 0, remove "/l/+1": "+1" is not a list index`},
		"another operation":         {doc: `{"l": 1}`, ops: []Op{{"test", "/l", int64(1)}}, err: `operation 0, test "/l": unknown operation`},
		"another one in a list":     {doc: `{"l": [1]}`, ops: []Op{{"test", "/l/0", int64(1)}}, err: `operation 0, test "/l/0": unknown operation`},
		"a bad pointer":             {doc: `{}`, ops: []Op{{"add", "a", "x"}}, err: `operation 0, add "a": pointer "a": must be empty or start with "/"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			doc := mustDecode(t, tt.doc)
			got, err := Apply(doc, tt.ops)
			if msg := errString(err); msg != tt.err {
				t.Fatalf("Apply(%s, %v) error = %q, want %q", tt.doc, tt.ops, msg, tt.err)
			}
			if err == nil && !Equal(got, mustDecode(t, tt.want)) {
				t.Errorf("Apply(%s, %v) = %s, want %s", tt.doc, tt.ops, encode(t, got), tt.want)
			}
			if !Equal(doc, mustDecode(t, tt.doc)) {
				t.Errorf("Apply changed its input to %s", encode(t, doc))
			}
		})
	}
}

// TestApplyShares wants everything off the path of a change shared with the
// old version, and the values of the patch as they were.
func TestApplyShares(t *testing.T) {
	doc := mustDecode(t, `{"a": {"b": [1, {"x": 1}]}, "c": {"d": []}}`)
	value := map[string]any{"k": "v"}
	got, err := Apply(doc, []Op{{"add", "/a/n", value}, {"add", "/a/n/k2", "w"}, {"replace", "/a/b/0", "y"}})
	if err != nil {
		t.Fatal(err)
	}
	m := got.(map[string]any)
	if !Same(m["c"], doc["c"]) {
		t.Error("an untouched field was copied")
	}
	old := doc["a"].(map[string]any)["b"].([]any)
	if list := m["a"].(map[string]any)["b"].([]any); !Same(list[1], old[1]) {
		t.Error("an untouched element was copied")
	}
	if len(value) != 1 {
		t.Errorf("the value of an operation became %v", value)
	}
}

// What Apply remembers between two operations makes no difference.
func TestApplyAtOnce(t *testing.T) {
	hammer.Alone(t)
	rnd := rand.New(rand.NewSource(1))
	pick := func(s ...string) string { return s[rnd.Intn(len(s))] }
	const text = `{"a": {"x": {"a": 1}, "y": "s"}, "l": [{"x": 1}, {"a": []}, 3], "a/b": {"x": {}}}`
	const values = `{"v": ["v", {}, {"x": {"a": 1}}, [{"x": 2}], null]}`
	applied := 0
	for range 20_000 {
		doc := mustDecode(t, text)
		var ops []Op
		var want any = doc
		var wantErr error
		for n := range 1 + rnd.Intn(6) {
			path := ""
			for range 1 + rnd.Intn(3) {
				path += pick("/a", "/x", "/y", "/l", "/0", "/1", "/-", "/a~1b", "/~", "")
			}
			value := mustDecode(t, values)["v"].([]any)[rnd.Intn(5)]
			op := Op{Op: pick("add", "add", "replace", "remove", "test"), Path: path, Value: value}
			alone, err := Apply(want, []Op{op})
			if err != nil && (n == 0 || rnd.Intn(10) > 0) {
				continue // mostly those that can be applied
			}
			ops = append(ops, op)
			if wantErr = err; err != nil {
				break
			}
			want = alone
		}
		got, err := Apply(doc, ops)
		if (err == nil) != (wantErr == nil) || err == nil && !Equal(got, want) {
			t.Fatalf("Apply(%v) = %v, %v; one by one %v, %v", ops, got, err, want, wantErr)
		}
		if !Equal(doc, mustDecode(t, text)) {
			t.Fatalf("Apply(%v) changed its input to %v", ops, doc)
		}
		if len(ops) > 2 && err == nil {
			applied++
		}
	}
	if applied < 500 {
		t.Errorf("%d patches of some length were applied, which says little", applied)
	}
}
