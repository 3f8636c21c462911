package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
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
	schema *smdschema.Schema
	ref    smdschema.TypeRef
}

func schemasUnderTest(t testing.TB) []schemaUnderTest {
	t.Helper()
	parser, err := typed.NewParser(widgetSchema)
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

// maker makes values of a type: mostly good ones, of a small vocabulary so
// that the two sides meet.
type maker struct {
	*dice
	s     *smdschema.Schema
	patch bool
	bad   int // one in so many values is wrong; 0: none
	left  int // values still to make
}

func (k *maker) make(tr smdschema.TypeRef, depth int) any {
	if k.left--; k.left < 0 {
		return nil
	}
	if k.n(25) == 0 {
		return nil
	}
	if k.bad > 0 && k.n(k.bad) == 0 {
		return pick[any](k.dice, "x", int64(1), true, []any{}, []any{nil}, map[string]any{"zz": int64(1)}, uint64(7), time.Time{}, time.Second, 2.5)
	}
	atom, ok := k.s.Resolve(tr)
	if !ok {
		return nil
	}
	var forms []string
	if atom.Map != nil {
		forms = append(forms, "map")
	}
	if atom.List != nil {
		forms = append(forms, "list")
	}
	if atom.Scalar != nil {
		forms = append(forms, "scalar")
	}
	if len(forms) == 0 {
		return nil
	}
	switch pick(k.dice, forms...) {
	case "map":
		m := map[string]any{}
		if depth <= 0 {
			return m
		}
		if n := len(atom.Map.Fields); n > 0 {
			for range k.n(min(n, 6) + 1) {
				f := atom.Map.Fields[k.n(n)]
				m[f.Name] = k.make(f.Type, depth-1)
			}
		}
		if !isZeroRef(atom.Map.ElementType) {
			for range k.n(4) {
				m[pick(k.dice, "a", "b", "c", "d")] = k.make(atom.Map.ElementType, depth-1)
			}
		}
		return m
	case "list":
		return k.list(atom.List, depth)
	}
	switch *atom.Scalar {
	case smdschema.String:
		return pick(k.dice, "a", "b", "c", "d", "")
	case smdschema.Boolean:
		return pick(k.dice, true, false)
	case smdschema.Numeric:
		return pick[any](k.dice, int64(1), int64(80), int64(81), 80.0, 1.5)
	}
	return pick[any](k.dice, "a", "b", int64(1), 1.0, int64(2), true)
}

func (k *maker) list(t *smdschema.List, depth int) any {
	list := []any{}
	if depth <= 0 {
		return list
	}
	keys := newKeyer(k.s, t)
	seen := map[itemKey]bool{}
	for range k.n(6) {
		item := k.make(t.ElementType, depth-1)
		if t.ElementRelationship == smdschema.Associative {
			if m, ok := item.(map[string]any); ok {
				for i, name := range t.Keys {
					if k.n(10) > 0 {
						m[name] = k.key(t, name)
					} else if i > 0 {
						delete(m, name)
					}
				}
			}
			key, err := keys.of(item)
			if err != nil && k.n(50) > 0 {
				continue
			}
			if seen[key] && (k.patch && k.n(50) > 0 || k.n(3) > 0) {
				continue
			}
			seen[key] = true
		}
		list = append(list, item)
	}
	return list
}

func (k *maker) key(t *smdschema.List, name string) any {
	atom, _ := k.s.Resolve(t.ElementType)
	if atom.Map != nil {
		if f, ok := atom.Map.FindField(name); ok {
			if v := k.make(f.Type, 1); v != nil {
				return v
			}
		}
	}
	return "a"
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

	patchTyped, wantErr := typed.AsTyped(value.NewValueInterface(patch), s.schema, s.ref)
	gotErrs := checker{s.schema}.validate(patch, s.ref)
	if (wantErr != nil) != (len(gotErrs) > 0) {
		t.Fatalf("validate: %v, typed says %v\n%s", gotErrs, wantErr, show())
	}
	if wantErr != nil {
		// Several come in random order, and not always all of them.
		if want := wantErr.(typed.ValidationErrors); len(want) == 1 && len(gotErrs) == 1 && countErrors(s, patch) == 1 && want.Error() != gotErrs.Error() {
			t.Fatalf("validate:\n%v\ntyped says\n%v\n%s", gotErrs, wantErr, show())
		}
		return false
	}
	liveTyped, err := typed.AsTyped(value.NewValueInterface(live), s.schema, s.ref, typed.AllowDuplicates)
	if err != nil {
		return false
	}
	mergedTyped, err := liveTyped.Merge(patchTyped)
	if err != nil {
		t.Fatalf("typed.Merge: %v\n%s", err, show())
	}
	var want any
	if v := mergedTyped.AsValue(); v != nil {
		want = v.Unstructured()
	}
	got, err := merger{s.schema}.merge(live, patch, s.ref)
	if err != nil {
		t.Fatalf("merge: %v\n%s", err, show())
	}
	if !tree.Equal(want, got) {
		t.Fatalf("-typed.Merge +merge\n%s\n%s", cmp.Diff(want, got), show())
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
		_, err := typed.AsTyped(value.NewValueInterface(patch), s.schema, s.ref)
		if errs, ok := err.(typed.ValidationErrors); ok {
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
	n := 30_000
	if testing.Short() {
		n = 4_000
	}
	d := &dice{r: rand.New(rand.NewPCG(4, 5))}
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

func makePair(d *dice, s schemaUnderTest) (live, patch any) {
	bad := 0
	if d.n(4) == 0 {
		bad = 20
	}
	live = (&maker{dice: d, s: s.schema, left: 60}).make(s.ref, 7)
	patch = (&maker{dice: d, s: s.schema, patch: true, bad: bad, left: 30}).make(s.ref, 7)
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
		d := &dice{data: data}
		s := all[d.n(len(all))]
		live, patch := makePair(d, s)
		compareMerge(t, s, live, patch)
	})
}

// TestMergeLists has the orders of spec §7.4.
func TestMergeLists(t *testing.T) {
	parser, err := typed.NewParser(widgetSchema)
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
			got, err := merger{widget.Schema}.merge(object(t, tt.live), object(t, tt.patch), widget.TypeRef)
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
	parser, err := typed.NewParser(widgetSchema)
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
