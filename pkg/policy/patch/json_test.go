package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/policy/draft"
	"github.com/mapd-project/mapd/pkg/policy/internal/random"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	m, err := tree.Decode([]byte(text))
	if err != nil {
		t.Fatalf("Decode(%s): %v", text, err)
	}
	return m
}

func op(kind, path string, value ...any) cel.PatchOp {
	o := cel.PatchOp{Op: kind, Path: path}
	if len(value) > 0 {
		o.Value, o.HasValue = value[0], true
	}
	return o
}

func newDraft(doc map[string]any) *draft.Draft {
	var d draft.Draft
	d.Reset(&unstructured.Unstructured{Object: doc}, 0)
	return &d
}

// applyJSONPatch applies a patch as the library does.
func applyJSONPatch(doc map[string]any, ops []cel.PatchOp) (map[string]any, error) {
	d := newDraft(doc)
	d.Begin()
	p := patching{draft: d, ops: len(ops)}
	if err := p.all(ops); err != nil {
		d.Undo()
		if !tree.Same(d.Edit.Root(), doc) {
			panic("the document is not what it was after Undo")
		}
		return nil, err
	}
	return d.Edit.Root().(map[string]any), nil
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestApplyJSONPatch has the rows of spec §8.3 (column v4) and more.
func TestApplyJSONPatch(t *testing.T) {
	from := func(kind, from, path string) cel.PatchOp { return cel.PatchOp{Op: kind, Path: path, From: from} }
	tests := map[string]struct {
		doc  string
		ops  []cel.PatchOp
		want string // empty: unchanged
		err  string
	}{
		"replace of a missing key adds it":             {doc: `{"a":1}`, ops: []cel.PatchOp{op("replace", "/b", int64(2))}, want: `{"a":1,"b":2}`},
		"add below a missing parent":                   {doc: `{}`, ops: []cel.PatchOp{op("add", "/a/b", "x")}, err: `add operation does not apply: doc is missing path: "/a/b": missing value`},
		"remove of a missing key":                      {doc: `{}`, ops: []cel.PatchOp{op("remove", "/b")}, err: `error in remove for path: '/b': Unable to remove nonexistent key: b: missing value`},
		"remove of a missing index":                    {doc: `{"l":[1]}`, ops: []cel.PatchOp{op("remove", "/l/1")}, err: `error in remove for path: '/l/1': Unable to access invalid index: 1: invalid index referenced`},
		"dash appends":                                 {doc: `{"l":[1]}`, ops: []cel.PatchOp{op("add", "/l/-", int64(2))}, want: `{"l":[1,2]}`},
		"dash replaces nothing":                        {doc: `{"l":[1]}`, ops: []cel.PatchOp{op("replace", "/l/-", int64(2))}, err: `replace operation does not apply: doc is missing key: /l/-: missing value`},
		"dash removes nothing":                         {doc: `{"l":[1]}`, ops: []cel.PatchOp{op("remove", "/l/-")}, err: `error in remove for path: '/l/-': strconv.Atoi: parsing "-": invalid syntax`},
		"add at -1 appends":                            {doc: `{"l":[1,2]}`, ops: []cel.PatchOp{op("add", "/l/-1", int64(3))}, want: `{"l":[1,2,3]}`},
		"replace at -1 is the last":                    {doc: `{"l":[1,2]}`, ops: []cel.PatchOp{op("replace", "/l/-1", int64(3))}, want: `{"l":[1,3]}`},
		"way through -1":                               {doc: `{"l":[{},{}]}`, ops: []cel.PatchOp{op("add", "/l/-1/a", int64(3))}, want: `{"l":[{},{"a":3}]}`},
		"01 and +1 are 1":                              {doc: `{"l":[1,2]}`, ops: []cel.PatchOp{op("replace", "/l/01", "a"), op("add", "/l/+1", "b")}, want: `{"l":[1,"b","a"]}`},
		"add beyond the end":                           {doc: `{"l":[1]}`, ops: []cel.PatchOp{op("add", "/l/2", "a")}, err: `error in add for path: '/l/2': Unable to access invalid index: 2: invalid index referenced`},
		"add at no index":                              {doc: `{"l":[1]}`, ops: []cel.PatchOp{op("add", "/l/x", "a")}, err: `error in add for path: '/l/x': value was not a proper array index: 'x': strconv.Atoi: parsing "x": invalid syntax`},
		"test of an absent key without value":          {doc: `{}`, ops: []cel.PatchOp{op("test", "/a"), op("add", "/a", "x")}, want: `{"a":"x"}`},
		"test of an absent key with null":              {doc: `{}`, ops: []cel.PatchOp{op("test", "/a", nil)}, err: `testing value /a failed: test failed`},
		"test of a null with null":                     {doc: `{"a":null}`, ops: []cel.PatchOp{op("test", "/a", nil)}, err: `testing value /a failed: test failed`},
		"test of a null without value":                 {doc: `{"a":null}`, ops: []cel.PatchOp{op("test", "/a")}},
		"test of a value without value":                {doc: `{"a":1}`, ops: []cel.PatchOp{op("test", "/a")}, err: `testing value /a failed: test failed`},
		"test compares a float by its text":            {doc: `{"a":1}`, ops: []cel.PatchOp{op("test", "/a", 1.0)}},
		"test of a list that holds null":               {doc: `{"a":[null]}`, ops: []cel.PatchOp{op("test", "/a", []any{nil})}, err: `test operation compares a list that holds null`},
		"test below a missing parent is an error":      {doc: `{}`, ops: []cel.PatchOp{op("test", "/a/b", "x")}, err: `test operation does not apply: is missing path: /a/b: missing value`},
		"test of the whole document":                   {doc: `{"a":1}`, ops: []cel.PatchOp{op("test", "", map[string]any{"a": int64(1)})}},
		"copy from nothing writes null":                {doc: `{}`, ops: []cel.PatchOp{from("copy", "/a", "/b")}, want: `{"b":null}`},
		"move from nothing":                            {doc: `{}`, ops: []cel.PatchOp{from("move", "/a", "/b")}, err: `error in move for path: 'a': Unable to remove nonexistent key: a: missing value`},
		"move without from":                            {doc: `{}`, ops: []cel.PatchOp{from("move", "", "/b")}, err: `move operation failed to decode from: operation, missing from field: missing value`},
		"add without value writes null":                {doc: `{}`, ops: []cel.PatchOp{op("add", "/a")}, want: `{"a":null}`},
		"add below a null just written":                {doc: `{}`, ops: []cel.PatchOp{op("add", "/a", nil), op("add", "/a/b", "x")}, err: `add operation below a null that the patch has just written`},
		"add below a null of the document":             {doc: `{"a":null}`, ops: []cel.PatchOp{op("add", "/a/b", "x")}, err: `add operation does not apply: doc is missing path: "/a/b": missing value`},
		"replace of the whole document":                {doc: `{"a":1}`, ops: []cel.PatchOp{op("replace", "", map[string]any{"b": "x"})}, want: `{"b":"x"}`},
		"replace of the whole document by a scalar":    {doc: `{"a":1}`, ops: []cel.PatchOp{op("replace", "", "x")}, err: `replace operation value must be object or array: %!w(<nil>)`},
		"replace of the whole document by nothing":     {doc: `{"a":1}`, ops: []cel.PatchOp{op("replace", "")}, err: `replace operation of the whole document has no value`},
		"replace of the whole document by a list":      {doc: `{"a":1}`, ops: []cel.PatchOp{op("replace", "", []any{})}, err: `the patched document is not an object`},
		"add of the whole document":                    {doc: `{"a":1}`, ops: []cel.PatchOp{op("add", "", map[string]any{})}, err: `add operation does not apply: doc is missing path: "": missing value`},
		"first segment without slash is ignored":       {doc: `{"a":1}`, ops: []cel.PatchOp{op("add", "zzz/b", "x")}, want: `{"a":1,"b":"x"}`},
		"escapes":                                      {doc: `{}`, ops: []cel.PatchOp{op("add", "/~01", "a"), op("add", "/~1", "b"), op("add", "/~2", "c"), op("add", "/", "d")}, want: `{"~1":"a","/":"b","~2":"c","":"d"}`},
		"unknown op":                                   {doc: `{}`, ops: []cel.PatchOp{op("Add", "/a", "x")}, err: `Unexpected kind: Add`},
		"no op":                                        {doc: `{}`, ops: []cel.PatchOp{op("", "/a", "x")}, err: `Unexpected kind: `},
		"a path that Go quotes differently than JSON":  {doc: `{}`, ops: []cel.PatchOp{op("add", "/\u007f", "x")}, err: `add operation failed to decode path: missing value`},
		"a path with ordinary letters":                 {doc: `{}`, ops: []cel.PatchOp{op("add", "/\"ä\\\n", "x")}, want: `{"\"ä\\\n":"x"}`},
		"a copy is apart from its source":              {doc: `{"a":{"b":"1"}}`, ops: []cel.PatchOp{op("add", "/a/c", "2"), from("copy", "/a", "/d"), op("add", "/a/e", "3"), op("remove", "/d/b")}, want: `{"a":{"b":"1","c":"2","e":"3"},"d":{"c":"2"}}`},
		"a moved container can still be changed":       {doc: `{"a":{"b":"1"}}`, ops: []cel.PatchOp{op("add", "/a/c", "2"), from("move", "/a", "/d"), op("add", "/d/e", "3")}, want: `{"d":{"b":"1","c":"2","e":"3"}}`},
		"move into itself":                             {doc: `{"a":{"b":"1"}}`, ops: []cel.PatchOp{from("move", "/a", "/a/c")}, err: `move operation does not apply: doc is missing destination path: /a/c: missing value`},
		"a failed test after a change":                 {doc: `{"a":"1"}`, ops: []cel.PatchOp{op("add", "/b", "x"), op("test", "/a", "2")}, err: `testing value /a failed: test failed`},
		"test of an empty object with null":            {doc: `{"a":{}}`, ops: []cel.PatchOp{op("test", "/a", nil)}},
		"a null just written equals an empty object":   {doc: `{}`, ops: []cel.PatchOp{op("add", "/a", nil), op("test", "/a", map[string]any{})}, want: `{"a":null}`},
		"a null just written is something to test for": {doc: `{}`, ops: []cel.PatchOp{op("add", "/a", nil), op("test", "/a")}, err: `testing value /a failed: test failed`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			doc := object(t, tt.doc)
			got, err := applyJSONPatch(doc, tt.ops)
			if msg := errString(err); msg != tt.err {
				t.Fatalf("applyJSONPatch(%s, %v) error = %q, want %q", tt.doc, tt.ops, msg, tt.err)
			}
			if diff := cmp.Diff(object(t, tt.doc), doc); diff != "" {
				t.Errorf("applyJSONPatch(%s, %v) modified its input:\n%s", tt.doc, tt.ops, diff)
			}
			switch {
			case tt.err != "":
			case tt.want == "":
				if !tree.Same(doc, got) {
					t.Errorf("applyJSONPatch(%s, %v) = %v, want the same document", tt.doc, tt.ops, got)
				}
			default:
				if diff := cmp.Diff(object(t, tt.want), got); diff != "" {
					t.Errorf("applyJSONPatch(%s, %v): -want +got\n%s", tt.doc, tt.ops, diff)
				}
			}
			if tt.err == "" {
				if v := upstreamJSONPatch(t, object(t, tt.doc), tt.ops); v.err != "" {
					t.Errorf("json-patch v4 refuses what we accept: %s", v.err)
				}
			} else if v := upstreamJSONPatch(t, object(t, tt.doc), tt.ops); v.err == "" && !v.panicked && v.object {
				t.Errorf("json-patch v4 accepts what we refuse")
			}
		})
	}
}

func TestApplyJSONPatchShares(t *testing.T) {
	doc := object(t, `{"metadata":{"name":"x","labels":{"a":"b"}},"spec":{"containers":[{"name":"a","env":[]},{"name":"b"}]}}`)
	value := map[string]any{"x": map[string]any{}}
	got, err := applyJSONPatch(doc, []cel.PatchOp{
		op("add", "/spec/containers/1/image", value),
		op("add", "/spec/containers/1/image/y", "z"),
		op("add", "/spec/containers/1/image/x/y", "z"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"x": map[string]any{}}, value); diff != "" {
		t.Errorf("the operation's value was modified:\n%s", diff)
	}
	if !tree.Same(doc["metadata"], got["metadata"]) {
		t.Error("metadata is not shared")
	}
	before := doc["spec"].(map[string]any)["containers"].([]any)
	after := got["spec"].(map[string]any)["containers"].([]any)
	if !tree.Same(before[0], after[0]) {
		t.Error("containers[0] is not shared")
	}
}

func TestApplyJSONPatchCopyLimit(t *testing.T) {
	doc := map[string]any{"a": strings.Repeat("<", 600_000)}
	_, err := applyJSONPatch(doc, []cel.PatchOp{{Op: "copy", From: "/a", Path: "/b"}})
	// Every < takes six bytes of JSON, as the server's encoder writes it.
	const want = "Unable to complete the copy, the accumulated size increase of copy is 3600002, exceeding the limit 3145728"
	if errString(err) != want {
		t.Errorf("error = %q, want %q", errString(err), want)
	}
}

// upstream is what json-patch v4 makes of a patch as MAP hands it over.
type upstream struct {
	doc      any
	object   bool // doc is an object
	err      string
	failed   bool // a test failed
	panicked bool
}

func upstreamJSONPatch(t testing.TB, doc map[string]any, ops []cel.PatchOp) (u upstream) {
	t.Helper()
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if r := recover(); r != nil {
			u = upstream{panicked: true, err: fmt.Sprint(r)}
		}
	}()
	raw := func(text string) *json.RawMessage { m := json.RawMessage(text); return &m }
	var patch jsonpatch.Patch
	for _, op := range ops {
		o := jsonpatch.Operation{"op": raw(strconv.Quote(op.Op)), "path": raw(strconv.Quote(op.Path))}
		if op.From != "" {
			o["from"] = raw(strconv.Quote(op.From))
		}
		if op.HasValue {
			text, err := json.Marshal(op.Value)
			if err != nil {
				t.Fatal(err)
			}
			o["value"] = raw(string(text))
		}
		patch = append(patch, o)
	}
	out, err := patch.Apply(text)
	if err != nil {
		return upstream{err: err.Error(), failed: errors.Is(err, jsonpatch.ErrTestFailed)}
	}
	if m, err := tree.Decode(out); err == nil {
		return upstream{doc: m, object: m != nil}
	}
	return upstream{}
}

// compareJSONPatch applies ops both ways.
func compareJSONPatch(t testing.TB, doc map[string]any, ops []cel.PatchOp) {
	t.Helper()
	show := func() string {
		d, _ := json.Marshal(doc)
		o, _ := json.Marshal(ops)
		return fmt.Sprintf("doc %s\nops %s", d, o)
	}
	want := upstreamJSONPatch(t, doc, ops)
	text, _ := json.Marshal(doc)
	got, err := applyJSONPatch(doc, ops)
	if after, _ := json.Marshal(doc); string(after) != string(text) {
		t.Fatalf("the document was modified: %s\n%s", after, show())
	}
	var crashed *crashError
	switch {
	case want.panicked:
		// Objects are compared in random order there, so a difference may
		// save it from the null that brings it down.
		if !errors.As(err, &crashed) && !errors.Is(err, errTestFailed) {
			t.Fatalf("got %v, %v; json-patch panics: %s\n%s", got, err, want.err, show())
		}
	case errors.As(err, &crashed):
		if !want.failed {
			t.Fatalf("got %v; json-patch gives %v, %q\n%s", err, want.doc, want.err, show())
		}
	case want.err == "" && !want.object:
		if errString(err) != "the patched document is not an object" {
			t.Fatalf("got %v, %v; json-patch makes no object\n%s", got, err, show())
		}
	case errString(err) != want.err || errors.Is(err, errTestFailed) != want.failed:
		t.Fatalf("error %q; json-patch says %q\n%s", errString(err), want.err, show())
	case err == nil:
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		back, err := tree.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.doc, any(back)); diff != "" {
			t.Fatalf("-json-patch +ours\n%s\n%s", diff, show())
		}
	}
}

// dice makes documents and patches.
type dice struct{ random.Dice }

func (d *dice) value(depth int) any {
	n := 12
	if depth <= 0 {
		n = 8
	}
	switch d.N(n) {
	case 0:
		return nil
	case 1:
		return random.Pick(&d.Dice, true, false)
	case 2, 3:
		return random.Pick(&d.Dice, "", "a", "b", "<&>", "\u2028", "1")
	case 4, 5, 6:
		return random.Pick[any](&d.Dice, int64(0), int64(1), int64(2), int64(-3))
	case 7:
		return random.Pick[any](&d.Dice, 1.5, 1e21, 1e-7, int64(9007199254740993))
	case 8, 9:
		list := []any{}
		for range d.N(4) {
			list = append(list, d.value(depth-1))
		}
		return list
	}
	m := map[string]any{}
	for range d.N(4) {
		m[random.Pick(&d.Dice, "a", "b", "c", "", "0", "~1", "/")] = d.value(depth - 1)
	}
	return m
}

func (d *dice) doc() map[string]any {
	m := map[string]any{"a": d.value(3), "b": d.value(3)}
	if d.N(2) == 0 {
		m["l"] = []any{d.value(2), d.value(2), d.value(1)}
	}
	if d.N(2) == 0 {
		m["o"] = map[string]any{"a": d.value(2), "b": d.value(2)}
	}
	return m
}

// path is mostly a way that exists, sometimes with a step of chance.
func (d *dice) path(doc any) string {
	if d.N(30) == 0 {
		return random.Pick(&d.Dice, "", "/", "a", "a/b", "//", "/a//", "\u007f/a", "/\x01", "/ä", "/~", "/~2", "/-", "x/l/0", "/\"", "/\\")
	}
	path := ""
	for depth := 0; ; depth++ {
		if depth > 0 && d.N(3) == 0 {
			return path
		}
		switch v := doc.(type) {
		case map[string]any:
			key := random.Pick(&d.Dice, "a", "b", "c", "l", "o", "", "0", "~1", "/", "new")
			path += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
			doc = v[key]
		case []any:
			token := random.Pick(&d.Dice, "0", "1", "2", "-", "-1", "-2", "01", "+1", "-0", "9", "-9", "x", "", "99999999999999999999")
			path += "/" + token
			i, err := strconv.Atoi(token)
			if err != nil || i < -len(v) || i >= len(v) {
				doc = nil
				continue
			}
			if i < 0 {
				i += len(v)
			}
			doc = v[i]
		default:
			if depth > 0 && d.N(4) > 0 {
				return path
			}
			return path + "/" + random.Pick(&d.Dice, "a", "0", "")
		}
	}
}

func (d *dice) ops(doc map[string]any) []cel.PatchOp {
	var ops []cel.PatchOp
	now := doc
	for range 1 + d.N(5) {
		o := cel.PatchOp{Op: random.Pick(&d.Dice, "add", "add", "add", "remove", "replace", "replace", "move", "copy", "test", "test"), Path: d.path(now)}
		if d.N(60) == 0 {
			o.Op = random.Pick(&d.Dice, "", "Add", "ä", "\a")
		}
		if o.Op == "move" || o.Op == "copy" {
			o.From = d.path(now)
		}
		if d.N(8) > 0 {
			o.Value, o.HasValue = d.value(2), true
			if o.Op == "test" && d.N(2) == 0 {
				// A test that has a chance to hold.
				p := patching{draft: newDraft(now)}
				if key, ok := p.find(o.Path); ok {
					o.Value, _ = p.get(key)
				}
			}
		}
		ops = append(ops, o)
		if next, err := applyJSONPatch(now, ops[len(ops)-1:]); err == nil {
			now = next
		} else if d.N(4) > 0 {
			// Errors end a patch: keep most of them alive.
			ops = ops[:len(ops)-1]
		}
	}
	return ops
}

func TestJSONPatchDifferential(t *testing.T) {
	hammer.Alone(t)
	n := hammer.Count(15_000)
	d := &dice{random.Dice{R: rand.New(rand.NewPCG(1, 2))}}
	for range n {
		doc := d.doc()
		compareJSONPatch(t, doc, d.ops(doc))
	}
}

func FuzzJSONPatch(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 3))
		data := make([]byte, 128)
		for i := range data {
			data[i] = byte(r.UintN(256))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &dice{random.Dice{Data: data}}
		doc := d.doc()
		compareJSONPatch(t, doc, d.ops(doc))
	})
}

// A string comes through the server's two quotings as it is, or not at all.
func TestQuoted(t *testing.T) {
	for s, want := range map[string]bool{
		"": true, "/metadata/labels/a~1b": true, "/ä/日本": true, "/a\nb\t\"\\": true, "\u00ad": true, "\u2028": true,
		"😀": true, "/a\x7f": false, "\a": false, "\v": false, "\x01": false, "\xff": false, "\U000e0001": false, "\u0085": true,
	} {
		got, err := quoted(s)
		if (err == nil) != want || want && got != s {
			t.Errorf("quoted(%q) = %q, %v; want it to come through: %v", s, got, err, want)
		}
	}
}

// A patch that opens a gap in a long list again and again ends.
func TestMovedElements(t *testing.T) {
	hammer.Alone(t)
	list := make([]any, 1<<18)
	ops := make([]cel.PatchOp, 1000)
	for i := range ops {
		ops[i] = cel.PatchOp{Op: "add", Path: "/list/0", Value: "x", HasValue: true}
	}
	doc := map[string]any{"list": list}
	if _, err := applyJSONPatch(doc, ops); err == nil || !strings.Contains(err.Error(), "elements of lists") {
		t.Errorf("error = %v", err)
	}
	doc["list"] = list[:1000]
	if _, err := applyJSONPatch(doc, ops); err != nil {
		t.Error(err)
	}
}

// inkless is a value whose text cannot be had.
type inkless struct{}

func (inkless) MarshalJSON() ([]byte, error) { panic("no ink") }

// A patch that panics in its middle is undone.
func TestPanicIsUndone(t *testing.T) {
	d := newDraft(object(t, `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"x"}}`))
	if err := Lenient(d, []cel.PatchOp{op("add", "/data/a", "y")}); err != nil {
		t.Fatal(err)
	}
	before := d.Object()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = Lenient(d, []cel.PatchOp{op("add", "/data/b", "z"), op("add", "/data/c", inkless{}), {Op: "copy", From: "/data/c", Path: "/data/d"}})
	}()
	d.Undo()
	if diff := cmp.Diff(object(t, `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"y"}}`), d.Object().Object); diff != "" || d.Object() != before {
		t.Errorf("after Undo (-want +got):\n%s", diff)
	}
	if err := Lenient(d, []cel.PatchOp{op("add", "/data/a", "w")}); err != nil || d.Object().Object["data"].(map[string]any)["a"] != "w" {
		t.Errorf("a patch after Undo gives %v, %v", d.Object().Object, err)
	}
}
