package manifest

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/tree"
)

func one(t *testing.T, text string) *Document {
	t.Helper()
	var doc *Document
	for d, err := range ReadStream("in.yaml", strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		doc = d
	}
	return doc
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	j, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m, err := tree.Decode(j)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRewrite(t *testing.T) {
	const head = "apiVersion: v1\nkind: A\n"
	tests := []struct{ name, in, after, want string }{
		{
			"comments, order and quotes stay",
			"# top\n" + head + "z: 'old'  # why\nb: {x: 1}\n",
			head + "z: fresh\nb: {x: 1, c: 2}\nadded: [1]\n",
			"# top\n" + head + "z: 'fresh' # why\nb: {x: 1, c: 2}\nadded:\n- 1\n",
		},
		{
			"comments around the document",
			"# licence\n\n# second\n" + head + "a: 1\n\n# the end\n",
			head + "a: 2\n",
			"# licence\n\n# second\n" + head + "a: 2\n\n# the end\n",
		},
		{
			"indented lists and four spaces",
			head + "spec:\n    list:\n        - a: 1\n",
			head + "spec:\n    list:\n        - a: 1\n          b: 2\n",
			head + "spec:\n    list:\n        - a: 1\n          b: 2\n",
		},
		{
			"list elements come and go",
			head + "l:\n- name: a # one\n- name: b # two\n- name: c # three\n",
			head + "l: [{name: new}, {name: a}, {name: c, x: 1}]\n",
			head + "l:\n- name: new\n- name: a # one\n- name: c # three\n  x: 1\n",
		},
		{
			"empty collections",
			head + "m: {}\nl: []\ngone: {a: 1}\nless: [1]\n",
			head + "m: {a: 1}\nl: [1]\ngone: {}\nless: []\n",
			head + "m:\n  a: 1\nl:\n- 1\ngone: {}\nless: []\n",
		},
		{
			"strings that other readers would take for something else",
			head + "m: {a: x}\n",
			head + `m: {a: "yes", b: "5", c: "null", d: "1e3", e: "a: b", f: "", g: "2001-01-01", h: "12:30", i: "<<", j: " x"}`,
			head + `m: {a: "yes", b: "5", c: "null", d: "1e3", e: 'a: b', f: "", g: "2001-01-01", h: "12:30", i: "<<", j: ' x'}` + "\n",
		},
		{
			"one of several aliases changes",
			head + "a: &a {x: 1}\nb: *a\n",
			head + "a: {x: 1}\nb: {x: 2}\n",
			head + "a: {x: 1}\nb: {x: 2}\n",
		},
		{
			"merge keys are written out",
			head + "a: &a {x: 1}\nb:\n  <<: *a\n  z: 1\n",
			head + "a: {x: 1}\nb: {x: 2, z: 1}\n",
			head + "a: {x: 1}\nb:\n  x: 2\n  z: 1\n",
		},
		{
			"merge keys give way to the mapping's own and to earlier ones",
			head + "a: &a {x: 1, y: 1} # a\nb: &b {x: 2, w: 2}\nc: # c\n  y: 3\n  <<: [*b, *a]\n  z: 3\n",
			head + "a: {x: 1, y: 1}\nb: {x: 2, w: 2}\nc: {x: 2, w: 2, y: 3, z: 4}\n",
			head + "a: {x: 1, y: 1} # a\nb: {x: 2, w: 2}\nc: # c\n  y: 3\n  x: 2\n  w: 2\n  z: 4\n",
		},
		{
			"lines end as they did",
			strings.ReplaceAll("# top\n"+head+"a: 1 # why\nb: |\n  x\n  y\n", "\n", "\r\n"),
			head + "a: 2\nb: |\n  x\n  y\nc: |\n  z\n",
			strings.ReplaceAll("# top\n"+head+"a: 2 # why\nb: |\n  x\n  y\nc: |\n  z\n", "\n", "\r\n"),
		},
		{
			"JSON becomes YAML in its own order",
			`{"kind":"A","apiVersion":"v1","s":"yes","l":[],"f":0.50}`,
			head + "s: 'yes'\nl: [a]\nf: 0.5\n",
			"kind: A\napiVersion: v1\ns: \"yes\"\nl:\n- a\nf: 0.50\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := one(t, tt.in)
			after := parse(t, tt.after)
			got := Rewrite(d, after)
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if back := one(t, string(got)); !tree.Equal(back.Object.Object, after) {
				t.Errorf("it reads as %v", back.Object.Object)
			}
		})
	}
}

func TestReplay(t *testing.T) {
	tests := []struct{ name, orig, before, after, want string }{
		{"untouched values keep their spelling",
			"cpu: 0.5\nmem: 1024Mi\nn: null\na: x", "cpu: 500m\nmem: 1Gi\na: x\nr: {}", "cpu: 500m\nmem: 1Gi\na: z\nr: {}", "cpu: 0.5\nmem: 1024Mi\nn: null\na: z"},
		{"a parent that only the server has",
			"a: 1", "a: 1\nr: {}", "a: 1\nr: {limits: {cpu: 1}}", "a: 1\nr: {limits: {cpu: 1}}"},
		{"a parent that is null",
			"r: null", "r: {}", "r: {x: 1}", "r: {x: 1}"},
		{"what the server dropped is not there to remove",
			"a: 1", "a: 1\ns: {}", "a: 1", "a: 1"},
		{"lists by position",
			"l: [{name: a, cpu: 0.5}, {name: b}]", "l: [{name: a, cpu: 500m}, {name: b, r: {}}]", "l: [{name: z}, {name: a, cpu: 500m, x: 1}, {name: b, r: {}}]", "l: [{name: z}, {name: a, cpu: 0.5, x: 1}, {name: b}]"},
		{"removal from a list", "l: [1, 2, 3]", "l: [1, 2, 3]", "l: [1, 3]", "l: [1, 3]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			orig := parse(t, tt.orig)
			got, ok := Replay(orig, parse(t, tt.before), parse(t, tt.after))
			if diff := cmp.Diff(parse(t, tt.want), got); !ok || diff != "" {
				t.Errorf("%v, -want +got:\n%s", ok, diff)
			}
			if diff := cmp.Diff(parse(t, tt.orig), orig); diff != "" {
				t.Errorf("the original was modified:\n%s", diff)
			}
		})
	}
	if _, ok := Replay(parse(t, "l: [1]"), parse(t, "l: [1, 2, 3]"), parse(t, "l: [1, 2, 4]")); ok {
		t.Error("a change without a place was replayed")
	}
}

// Emoji, joined ones too, and other characters beyond U+FFFF stay what they are.
func TestEncodeEmoji(t *testing.T) {
	in := "apiVersion: v1\nkind: A\nmetadata:\n  annotations:\n    a: family 👨\u200d👩\u200d👧\n    b: \"q 😀: \ue000 \ue001\" # 👍🏽\n    c: |\n      block 👍🏽\n      two\n    d: 'x 𝒳'\n    😀: k\nspec: {}\n"
	d := one(t, in)
	after := d.Object.DeepCopy().Object
	after["spec"] = map[string]any{"a": "🚀"}
	want := strings.Replace(in, " {}", "\n  a: 🚀", 1)
	if got := string(Rewrite(d, after)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := string(Encode(map[string]any{"a": "😀", "b": "x\n🚀\n"})); got != "a: 😀\nb: |\n  x\n  🚀\n" {
		t.Errorf("got\n%s", got)
	}
}

func TestEncodeNumbers(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want string
	}{
		{int64(5), "5"},
		{5.0, "5"},
		{0.5, "0.5"},
		{1234567.5, "1.2345675e+06"},
		{float64(1 << 63), "9.223372036854776e+18"},
		{12345678901234567890.0, "1.2345678901234567e+19"},
		{1e300, "1e+300"},
		{math.Copysign(0, -1), "-0e+00"},
	} {
		got := string(Encode(map[string]any{"v": tt.v}))
		if want := "v: " + tt.want + "\n"; got != want {
			t.Errorf("%v is written as %q, want %q", tt.v, got, want)
		}
	}
}
