package direct

import (
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/legacy"
)

func TestWalkFields(t *testing.T) {
	testApply(t, map[string]application{
		"parents are created": {
			mutator: assignTo("spec.a.b", "v"),
			in:      `{}`,
			want:    `{"spec":{"a":{"b":"v"}}}`,
		},
		"a value is replaced as a whole": {
			mutator: assignTo("spec.a", map[string]any{"x": 1.0}),
			in:      `{"spec":{"a":{"y":2}}}`,
			want:    `{"spec":{"a":{"x":1}}}`,
		},
		"the same value is a touch": {
			mutator: assignTo("spec.a", "v"),
			in:      `{"spec":{"a":"v"}}`,
			want:    `{"spec":{"a":"v"}}`,
		},
		"null is no object": {
			mutator: assignTo("spec.a.b", "v"),
			in:      `{"spec":{"a":null}}`,
			err:     "mismatch between path entry (type: object) and received object (type: <nil>). Path: b",
		},
		"null can be replaced": {
			mutator: assignTo("spec.a", "v", must(1)),
			in:      `{"spec":{"a":null}}`,
			want:    `{"spec":{"a":"v"}}`,
		},
		"null exists": {
			mutator: assignTo("spec.a", "v", mustNot(1)),
			in:      `{"spec":{"a":null}}`,
		},
		"a list is no object; a path is quoted where it has to be": {
			mutator: assignTo(`spec.a."b.c"`, "v"),
			in:      `{"spec":{"a":[]}}`,
			err:     `mismatch between path entry (type: object) and received object (type: []interface {}). Path: "b.c"`,
		},
	})
}

func TestWalkLists(t *testing.T) {
	testApply(t, map[string]application{
		"a missing list and element are created": {
			mutator: assignTo("spec.l[k: v].m[port: 80].z", "v"),
			in:      `{}`,
			want:    `{"spec":{"l":[{"k":"v","m":[{"port":80,"z":"v"}]}]}}`,
		},
		"all elements with the key, and nothing said to the others": {
			mutator: assignTo("l[k: v].z", "v"),
			in:      `{"l":[{"k":"v"},{"k":"w"},{"k":"v","z":0},{"q":1},"s",3,null]}`,
			want:    `{"l":[{"k":"v","z":"v"},{"k":"w"},{"k":"v","z":"v"},{"q":1},"s",3,null]}`,
		},
		"no element has the key": {
			mutator: assignTo("l[k: v].z", "v"),
			in:      `{"l":["s"]}`,
			want:    `{"l":["s",{"k":"v","z":"v"}]}`,
		},
		"a key is not its text": {
			mutator: assignTo(`l[n: "80"].x`, "v"),
			in:      `{"l":[{"n":80}]}`,
			want:    `{"l":[{"n":80},{"n":"80","x":"v"}]}`,
		},
		"an integer is no float": {
			mutator: assignTo(`l[n: 80].x`, "v"),
			in:      `{"l":[{"n":80.5},{"n":8e1}]}`,
			want:    `{"l":[{"n":80.5},{"n":80},{"n":80,"x":"v"}]}`,
		},
		"an object as a key": {
			mutator: assignTo(`l[n: 80].x`, "v", must(1)),
			in:      `{"l":[{"n":{}},{"n":[]}]}`,
		},
		"a list is no list": {
			mutator: assignTo("l[k: v].z", "v"),
			in:      `{"l":{"k":"v"}}`,
			err:     "mismatch between path entry (type: List) and received object (type: map[string]interface {}). Path: [k: v]",
		},
		"glob": {
			mutator: assignTo("l[k: *].z", "v"),
			in:      `{"l":[{"q":0},{"k":"v"}]}`,
			want:    `{"l":[{"q":0,"z":"v"},{"k":"v","z":"v"}]}`,
		},
		"a glob of nothing": {
			mutator: assignTo("l[k: *].z", "v"),
			in:      `{"l":[]}`,
		},
		"a glob creates no list": {
			mutator: assignTo("spec.l[k: *].z", "v"),
			in:      `{}`,
		},
		"a glob over null": {
			mutator: assignTo("l[k: *].z", "v"),
			in:      `{"l":null}`,
			err:     "mismatch between path entry (type: List) and received object (type: <nil>). Path: [k: *]",
		},
		"a glob meets a scalar": {
			mutator: assignTo("l[k: *].z", "v"),
			in:      `{"l":[{"k":"v"},"s"]}`,
			err:     "mismatch between path entry (type: object) and received object (type: string). Path: z",
		},
		"a list within a glob is created where it is missing": {
			mutator: assignTo("c[name: *].env[name: FOO].value", "v"),
			in:      `{"c":[{"name":"a"},{"env":[{"name":"BAR"}],"name":"b"}]}`,
			want:    `{"c":[{"env":[{"name":"FOO","value":"v"}],"name":"a"},{"env":[{"name":"BAR"},{"name":"FOO","value":"v"}],"name":"b"}]}`,
		},
	})
}

func TestWalkToAnElement(t *testing.T) {
	value := map[string]any{"name": "a", "v": 1.0}
	testApply(t, map[string]application{
		"only the first is replaced": {
			mutator: assignTo("l[name: a]", value),
			in:      `{"l":[{"name":"b"},{"q":1},{"name":"a","old":1},{"name":"a","v":2}]}`,
			want:    `{"l":[{"name":"b"},{"q":1},{"name":"a","v":1},{"name":"a","v":2}]}`,
		},
		"appended": {
			mutator: assignTo("l[name: a]", value),
			in:      `{"l":[{"name":"b"}]}`,
			want:    `{"l":[{"name":"b"},{"name":"a","v":1}]}`,
		},
		"into a new list": {
			mutator: assignTo("spec.l[name: a]", value),
			in:      `{}`,
			want:    `{"spec":{"l":[{"name":"a","v":1}]}}`,
		},
		"after a scalar": {
			mutator: assignTo("l[name: a]", value),
			in:      `{"l":["s",{"name":"a"}]}`,
			err:     "cast error, unable to case string to map[string]interface{}",
		},
		"before a scalar": {
			mutator: assignTo("l[name: a]", value),
			in:      `{"l":[{"name":"a"},"s"]}`,
			want:    `{"l":[{"name":"a","v":1},"s"]}`,
		},
		"must not be there": {
			mutator: assignTo("l[name: a]", value, mustNot(1)),
			in:      `{"l":[{"name":"a"}]}`,
		},
		"must be there": {
			mutator: assignTo("l[name: a]", value, must(1)),
			in:      `{"l":[{"name":"b"}]}`,
		},
	})
}

func TestPathTests(t *testing.T) {
	unknown := legacy.PathTest{Depth: 1, Condition: "Exists"}
	testApply(t, map[string]application{
		"a parent must be there": {
			mutator: assignTo("spec.a.b", "v", must(1)),
			in:      `{"spec":{}}`,
		},
		"what a stopped walk would have created is not kept": {
			mutator: assignTo("spec.a.b.c", "v", must(2)),
			in:      `{}`,
		},
		"a test on the list says nothing about its elements": {
			mutator: assignTo("c[name: x].p", "v", must(0)),
			in:      `{"c":[]}`,
			want:    `{"c":[{"name":"x","p":"v"}]}`,
		},
		"an element must be there": {
			mutator: assignTo("c[name: x].p", "v", must(1)),
			in:      `{"c":[]}`,
		},
		"an element must not be there": {
			mutator: assignTo("c[name: x].p", "v", mustNot(1)),
			in:      `{"c":[{"name":"x"}]}`,
		},
		"each branch for itself: must not be there": {
			mutator: assignTo("c[name: *].p", "new", mustNot(2)),
			in:      `{"c":[{"name":"a","p":"old"},{"name":"b"}]}`,
			want:    `{"c":[{"name":"a","p":"old"},{"name":"b","p":"new"}]}`,
		},
		"each branch for itself: must be there": {
			mutator: assignTo("c[name: *].p", "new", must(2)),
			in:      `{"c":[{"name":"a","p":"old"},{"name":"b"}]}`,
			want:    `{"c":[{"name":"a","p":"new"},{"name":"b"}]}`,
		},
		"what a glob finds is there": {
			mutator: assignTo("c[name: *].p", "new", must(1)),
			in:      `{"c":[{"name":"a"}]}`,
			want:    `{"c":[{"name":"a","p":"new"}]}`,
		},
		"what a glob finds cannot be missing": {
			mutator: assignTo("c[name: *].p", "new", mustNot(1)),
			in:      `{"c":["not even looked at"]}`,
		},
		"no condition, there": {
			mutator: assignTo("spec.a", "v", unknown),
			in:      `{"spec":{"a":1}}`,
		},
		"no condition, not there": {
			mutator: assignTo("spec.a", "v", unknown),
			in:      `{"spec":{}}`,
		},
	})
}

func TestWriteNode(t *testing.T) {
	for location, want := range map[string]string{
		`"".""[k: *]`:       `"" "" [k: *]`,
		`"a/b"."é"."~-_"`:   "a/b é ~-_",
		`"8a".a8`:           `"8a" a8`,
		`a["k.l": 'x "y"']`: `a ["k.l": "x \"y\""]`,
		`a[k: 80]`:          "a [k: 80]",
		`a[k: "*"].'\\'`:    `a [k: "*"] "\\"`,
	} {
		var got []string
		for _, node := range path(location) {
			got = append(got, legacy.Path{node}.Canonical())
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("nodes of %s are written %s, want %s", location, s, want)
		}
	}
}
