package direct

import (
	"testing"

	"github.com/mapd-project/mapd/pkg/legacy"
)

func from(m *legacy.Mutator, source legacy.Source) *legacy.Mutator {
	m.From = &source
	return m
}

func TestAssignFromMetadata(t *testing.T) {
	testApply(t, map[string]application{
		"name": {
			mutator: from(assignTo("a", nil), legacy.Source{Metadata: "name"}),
			in:      `{"metadata":{"generateName":"p-"}}`,
			want:    `{"a":"","metadata":{"generateName":"p-"}}`,
		},
		"external data": {
			mutator: from(assignTo("a", nil), legacy.Source{External: &legacy.External{Provider: "p"}}),
			in:      `{}`,
			want:    `{"a":"\u003cwhat p has for \"\"\u003e"}`,
		},
		"external data for what is there": {
			mutator: from(assignTo("a", nil), legacy.Source{External: &legacy.External{Provider: "p"}}),
			in:      `{"a":"x"}`,
			want:    `{"a":"\u003cwhat p has for \"x\"\u003e"}`,
		},
		"external data where there is no string": {
			mutator: from(assignTo("a", nil), legacy.Source{External: &legacy.External{Provider: "p", DataSource: "Username"}}),
			in:      `{"a":7}`,
			err:     "value assigned to external data placeholder is not a string, got int64",
		},
	})
	const in = `{"metadata":{"name":"p","namespace":"shop"}}`
	for field, want := range map[string]string{"name": "p", "namespace": "shop"} {
		got, _, err := Apply(from(assignTo("a", nil), legacy.Source{Metadata: field}), object(t, in), Context{})
		if err != nil || got["a"] != want {
			t.Errorf("%s of %s = %v, %v; want %s", field, in, got["a"], err, want)
		}
	}
}

func TestAssignMetadataOnlyAdds(t *testing.T) {
	testApply(t, map[string]application{
		"all is missing": {
			mutator: label("k", legacy.Match{}),
			in:      `{}`,
			want:    `{"metadata":{"labels":{"k":"x"}}}`,
		},
		"an empty value is there": {
			mutator: label("k", legacy.Match{}),
			in:      `{"metadata":{"labels":{"k":""}}}`,
		},
		"null is there": {
			mutator: label("k", legacy.Match{}),
			in:      `{"metadata":{"labels":{"k":null}}}`,
		},
		"no labels, said with null": {
			mutator: label("k", legacy.Match{}),
			in:      `{"metadata":{"labels":null}}`,
			err:     "mismatch between path entry (type: object) and received object (type: <nil>). Path: k",
		},
	})
}

func TestMerge(t *testing.T) {
	letters := legacy.SetValues{Values: []any{"a", "a", "b", "c"}}
	testApply(t, map[string]application{
		"a new list keeps duplicates": {
			mutator: setOf("spec.args", letters),
			in:      `{}`,
			want:    `{"spec":{"args":["a","a","b","c"]}}`,
		},
		"what is not there is appended, once": {
			mutator: setOf("args", letters),
			in:      `{"args":["c","c","x"]}`,
			want:    `{"args":["c","c","x","a","b"]}`,
		},
		"members have types": {
			mutator: setOf("args", legacy.SetValues{Values: []any{int64(1), 1.0, "1", nil, true}}),
			in:      `{"args":[1]}`,
			want:    `{"args":[1,1,"1",null,true]}`,
		},
		"members within members, too": {
			mutator: setOf("args", legacy.SetValues{Values: []any{map[string]any{"a": 1.0, "b": "x"}}}),
			in:      `{"args":[{"a":1,"b":"x"}]}`,
			want:    `{"args":[{"a":1,"b":"x"},{"a":1,"b":"x"}]}`,
		},
		"an empty list of values makes an empty list": {
			mutator: setOf("args", legacy.SetValues{Values: []any{}}),
			in:      `{}`,
			want:    `{"args":[]}`,
		},
		"no list of values makes null": {
			mutator: setOf("args", legacy.SetValues{}),
			in:      `{}`,
			want:    `{"args":null}`,
		},
		"null is no list": {
			mutator: setOf("args", letters),
			in:      `{"args":null}`,
			err:     "<nil> is not a list of values, cannot treat it as a set",
		},
		"an object is no list": {
			mutator: setOf("args", letters),
			in:      `{"args":{"a":[true],"b":1}}`,
			err:     "map[a:[true] b:1] is not a list of values, cannot treat it as a set",
		},
	})
}

func TestPrune(t *testing.T) {
	a := legacy.SetValues{Prune: true, Values: []any{"a"}}
	testApply(t, map[string]application{
		"all of them, and the empty list stays": {
			mutator: setOf("c[name: *].args", a),
			in:      `{"c":[{"args":["a","a"]},{},{"args":["b","a","b"]}]}`,
			want:    `{"c":[{"args":[]},{},{"args":["b","b"]}]}`,
		},
		"members are compared as a whole": {
			mutator: setOf("args", legacy.SetValues{Prune: true, Values: []any{map[string]any{"a": int64(1)}, "b"}}),
			in:      `{"args":[{"a":1},{"a":1,"b":2},"b",{"a":1.5}]}`,
			want:    `{"args":[{"a":1,"b":2},{"a":1.5}]}`,
		},
		"parents are created": {
			mutator: setOf("spec.x.args", a),
			in:      `{}`,
			want:    `{"spec":{"x":{}}}`,
		},
		"elements are created": {
			mutator: setOf("c[name: side].args", a),
			in:      `{"c":[{"name":"c"}]}`,
			want:    `{"c":[{"name":"c"},{"name":"side"}]}`,
		},
		"a string is no list": {
			mutator: setOf("args", a),
			in:      `{"args":"a"}`,
			err:     "a is not a list of values, cannot treat it as a set",
		},
	})
}
