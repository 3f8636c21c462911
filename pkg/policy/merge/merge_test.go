package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/openapi/smd"
	"github.com/mapd-project/mapd/pkg/policy/draft"
	"github.com/mapd-project/mapd/pkg/policy/internal/random"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

// widgetSchema has one of everything that a CRD's schema can turn into.
const widgetSchema = `
types:
- name: widget
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: count, type: {scalar: numeric}}
    - {name: "on", type: {scalar: boolean}}
    - {name: any, type: {scalar: untyped}}
    - name: set
      type: {list: {elementType: {scalar: untyped}, elementRelationship: associative}}
    - name: ports
      type: {list: {elementType: {namedType: port}, elementRelationship: associative, keys: [name, port]}}
    - name: items
      type: {list: {elementType: {namedType: item}, elementRelationship: associative, keys: [id]}}
    - name: triples
      type: {list: {elementType: {namedType: triple}, elementRelationship: associative, keys: [c, a, b]}}
    - name: refs
      type: {list: {elementType: {namedType: ref}, elementRelationship: associative, keys: [name]}}
    - name: args
      type: {list: {elementType: {scalar: string}, elementRelationship: atomic}}
    - {name: fixed, type: {namedType: item, elementRelationship: atomic}}
    - {name: nested, type: {namedType: widget}}
    - name: labels
      type: {map: {elementType: {scalar: string}}}
    - name: byName
      type: {map: {elementType: {namedType: item}}}
    - name: atomicMap
      type: {map: {elementType: {scalar: string}, elementRelationship: atomic}}
    - {name: free, type: {namedType: __untyped_deduced_}}
    - {name: opaque, type: {namedType: __untyped_atomic_}}
    - {name: open, type: {namedType: open}}
    - {name: intOrMap, type: {scalar: untyped, map: {elementType: {scalar: numeric}}}}
    - {name: nothing, type: {map: {fields: []}}}
- name: port
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: port, type: {scalar: numeric}, default: 80}
    - {name: v, type: {scalar: string}}
    - {name: args, type: {list: {elementType: {scalar: string}, elementRelationship: atomic}}}
- name: item
  map:
    fields:
    - {name: id, type: {scalar: untyped}}
    - {name: v, type: {scalar: string}}
    - {name: sub, type: {namedType: widget}}
    - {name: tags, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
- name: triple
  map:
    fields:
    - {name: a, type: {scalar: string}}
    - {name: b, type: {scalar: numeric}, default: 1}
    - {name: c, type: {scalar: boolean}}
    - {name: v, type: {scalar: string}}
- name: ref
  map:
    fields:
    - {name: name, type: {scalar: string}, default: ""}
    elementRelationship: atomic
- name: open
  map:
    fields:
    - {name: a, type: {scalar: string}}
    - {name: list, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
    elementType: {namedType: __untyped_deduced_}
    elementRelationship: separable
- name: __untyped_atomic_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
- name: __untyped_deduced_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_deduced_}, elementRelationship: separable}
`

// schemaUnderTest is a type of some schema.
type schemaUnderTest struct {
	name   string
	schema *smd.Schema
	ref    smd.TypeRef
}

func schemasUnderTest(t testing.TB) []schemaUnderTest {
	t.Helper()
	parser, err := smd.NewParser(widgetSchema)
	if err != nil {
		t.Fatal(err)
	}
	widget := parser.Type("widget")
	all := []schemaUnderTest{{"widget", widget.Schema, widget.TypeRef}}
	types := openapi.New(openapi.Builtin())
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"},
		{Version: "v1", Kind: "Service"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
	} {
		kind, err := types.Kind(gvk)
		if err != nil {
			t.Fatal(err)
		}
		s, ref := kind.Schema()
		all = append(all, schemaUnderTest{gvk.Kind, s, ref})
	}
	return all
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	m, err := tree.Decode([]byte(text))
	if err != nil {
		t.Fatalf("Decode(%s): %v", text, err)
	}
	return m
}

// mergeValues merges a patch into a value that is not settled, after having undone the
// same once.
func mergeValues(s *smd.Schema, live, patch any, ref smd.TypeRef) (any, error) {
	var d draft.Draft
	d.Edit.Reset(live)
	m := merger{draft: &d, schema: s}
	d.Begin()
	_ = m.root(live, patch, ref, openapi.Spot{})
	if d.Undo(); !tree.Same(d.Edit.Root(), live) {
		return nil, errors.New("the value is not what it was after Undo")
	}
	d.Begin()
	err := m.root(live, patch, ref, openapi.Spot{})
	return d.Edit.Root(), err
}

// compareMerge merges both ways.
func compareMerge(t testing.TB, s schemaUnderTest, live, patch any) (merged bool) {
	t.Helper()
	show := func() string {
		l, _ := json.Marshal(live)
		return fmt.Sprintf("%s\nlive  %s\npatch %#v", s.name, l, patch)
	}
	liveText, _ := json.Marshal(live)
	patchText, _ := json.Marshal(patch)

	patchTyped, wantErr := smd.AsTyped(smd.NewValueInterface(patch), s.schema, s.ref)
	gotErrs := checker{s.schema}.validate(patch, s.ref)
	if (wantErr != nil) != (len(gotErrs) > 0) {
		t.Fatalf("validate: %v, typed says %v\n%s", gotErrs, wantErr, show())
	}
	if wantErr != nil {
		// Several come in random order, and not always all of them.
		if want := wantErr.(smd.ValidationErrors); len(want) == 1 && len(gotErrs) == 1 && countErrors(s, patch) == 1 && want.Error() != gotErrs.Error() {
			t.Fatalf("validate:\n%v\ntyped says\n%v\n%s", gotErrs, wantErr, show())
		}
		return false
	}
	liveTyped, err := smd.AsTyped(smd.NewValueInterface(live), s.schema, s.ref, smd.AllowDuplicates)
	if err != nil {
		return false
	}
	mergedTyped, err := liveTyped.Merge(patchTyped)
	if err != nil {
		t.Fatalf("smd.Merge: %v\n%s", err, show())
	}
	var want any
	if v := mergedTyped.AsValue(); v != nil {
		want = v.Unstructured()
	}
	got, err := mergeValues(s.schema, live, patch, s.ref)
	if err != nil {
		t.Fatalf("merge: %v\n%s", err, show())
	}
	if !tree.Equal(want, got) {
		t.Fatalf("-smd.Merge +merge\n%s\n%s", cmp.Diff(want, got), show())
	}
	if tree.Equal(live, got) && !tree.Same(live, got) {
		t.Fatalf("nothing changed, but the result is not the live value\n%s", show())
	}
	checkShared(t, live, patch, got, show)
	if text, _ := json.Marshal(live); string(text) != string(liveText) {
		t.Fatalf("the live value was modified: %s\n%s", text, show())
	}
	if text, _ := json.Marshal(patch); string(text) != string(patchText) {
		t.Fatalf("the patch was modified: %s\n%s", text, show())
	}
	return true
}

// countErrors is how many errors the library can report at most: it stops in a
// map at the first undeclared field, wherever in its random order that is.
func countErrors(s schemaUnderTest, patch any) int {
	most := 0
	for range 8 {
		_, err := smd.AsTyped(smd.NewValueInterface(patch), s.schema, s.ref)
		if errs, ok := err.(smd.ValidationErrors); ok {
			most = max(most, len(errs))
		}
	}
	return most
}

// checkShared fails unless everything the patch does not name is the live
// value's own.
func checkShared(t testing.TB, live, patch, got any, show func() string) {
	t.Helper()
	l, ok1 := live.(map[string]any)
	p, ok2 := patch.(map[string]any)
	g, ok3 := got.(map[string]any)
	if !ok1 || !ok2 || !ok3 {
		return
	}
	for k, gv := range g {
		lv, inLive := l[k]
		pv, inPatch := p[k]
		switch {
		case inLive && !inPatch:
			if !tree.Same(lv, gv) {
				t.Fatalf("%s is not shared\n%s", k, show())
			}
		case inLive && inPatch:
			checkShared(t, lv, pv, gv, show)
		}
	}
}

func TestMergeDifferential(t *testing.T) {
	hammer.Alone(t)
	n := hammer.Count(15_000)
	d := &random.Dice{R: rand.New(rand.NewPCG(4, 5))}
	all := schemasUnderTest(t)
	merged := 0
	for i := range n {
		s := all[i%len(all)]
		if i%2 == 0 {
			s = all[0]
		}
		live, patch := makePair(d, s)
		if compareMerge(t, s, live, patch) {
			merged++
		}
	}
	if merged < n/2 {
		t.Errorf("only %d of %d pairs could be merged", merged, n)
	}
}

func makePair(d *random.Dice, s schemaUnderTest) (live, patch any) {
	bad := 0
	if d.N(4) == 0 {
		bad = 20
	}
	live = (&random.Maker{Dice: d, Schema: s.schema, Left: 60}).Make(s.ref, 7)
	patch = (&random.Maker{Dice: d, Schema: s.schema, Patch: true, Bad: bad, Left: 30}).Make(s.ref, 7)
	return live, patch
}

func FuzzMerge(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 6))
		data := make([]byte, 256)
		for i := range data {
			data[i] = byte(r.UintN(256))
		}
		f.Add(data)
	}
	all := schemasUnderTest(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &random.Dice{Data: data}
		s := all[d.N(len(all))]
		live, patch := makePair(d, s)
		compareMerge(t, s, live, patch)
	})
}

// TestMergeLists has the orders of spec §7.4.
func TestMergeLists(t *testing.T) {
	parser, err := smd.NewParser(widgetSchema)
	if err != nil {
		t.Fatal(err)
	}
	widget := parser.Type("widget")
	tests := map[string]struct{ live, patch, want string }{
		"the patch's order wins":             {`{"set":["1","2"]}`, `{"set":["2","0","1"]}`, `{"set":["2","0","1"]}`},
		"a new element is appended":          {`{"set":["1","2"]}`, `{"set":["0"]}`, `{"set":["1","2","0"]}`},
		"a new element before one they have": {`{"set":["1","2"]}`, `{"set":["0","2"]}`, `{"set":["1","0","2"]}`},
		"sets unite":                         {`{"set":["a","b"]}`, `{"set":["b","c"]}`, `{"set":["a","b","c"]}`},
		"a key's default":                    {`{"ports":[{"name":"a","port":80,"v":"old"}]}`, `{"ports":[{"name":"a","v":"new"}]}`, `{"ports":[{"name":"a","port":80,"v":"new"}]}`},
		"copies alone stay":                  {`{"items":[{"id":"e"},{"id":"e"}]}`, `{"items":[{"id":"z"}]}`, `{"items":[{"id":"e"},{"id":"e"},{"id":"z"}]}`},
		"copies named collapse":              {`{"items":[{"id":"e","v":"1"},{"id":"e","v":"2"}]}`, `{"items":[{"id":"e"}]}`, `{"items":[{"id":"e"}]}`},
		"an atomic list in a map of structs": {`{"byName":{"a":{"v":"1"}}}`, `{"byName":{"a":{"id":"x"}}}`, `{"byName":{"a":{"v":"1","id":"x"}}}`},
		"preserved fields":                   {`{"free":{"a":{"b":1},"l":[1]}}`, `{"free":{"l":[2]}}`, `{"free":{"a":{"b":1},"l":[2]}}`},
		"null unsets a scalar":               {`{"count":3}`, `{"count":null}`, `{"count":null}`},
		"null leaves a map and a list alone": {`{"labels":{"a":"b"},"set":["a"]}`, `{"labels":null,"set":null}`, `{"labels":{"a":"b"},"set":["a"]}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := mergeValues(widget.Schema, object(t, tt.live), object(t, tt.patch), widget.TypeRef)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(object(t, tt.want)), got); diff != "" {
				t.Errorf("merge(%s, %s): -want +got\n%s", tt.live, tt.patch, diff)
			}
		})
	}
}

// TestAtomics has the rule of spec §7.3.
func TestAtomics(t *testing.T) {
	parser, err := smd.NewParser(widgetSchema)
	if err != nil {
		t.Fatal(err)
	}
	widget := parser.Type("widget")
	tests := map[string]struct {
		patch string
		want  []string
	}{
		"nothing atomic":                       {`{"set":["a"],"labels":{"a":"b"},"ports":[{"name":"a"}]}`, nil},
		"a list":                               {`{"args":["a"]}`, []string{".args"}},
		"an empty list":                        {`{"args":[]}`, []string{".args"}},
		"null":                                 {`{"args":null}`, nil},
		"a map":                                {`{"atomicMap":{}}`, []string{".atomicMap"}},
		"a struct made atomic by its field":    {`{"fixed":{"id":"a"}}`, []string{".fixed"}},
		"below an atomic struct":               {`{"fixed":{"sub":{"args":[]}}}`, []string{".fixed", ".fixed.sub.args"}},
		"elements by index":                    {`{"ports":[{"name":"a"},{"name":"b","args":[]}],"refs":[{"name":"a"}]}`, []string{".ports[1].args", ".refs[0]"}},
		"not in the values of a map":           {`{"byName":{"a":{"sub":{"args":[]}}}}`, nil},
		"not in what is preserved":             {`{"free":{"l":[1]},"open":{"x":[1]}}`, nil},
		"what is preserved at an atomic field": {`{"opaque":{"l":[1]}}`, []string{".opaque"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := checker{widget.Schema}.atomics(nil, nil, object(t, tt.patch), widget.TypeRef)
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("atomics(%s) = %q, want %q", tt.patch, got, tt.want)
			}
		})
	}
}
