package tree

import (
	"testing"
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
