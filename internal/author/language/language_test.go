package language

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

const top = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
`

// at puts a document with a cursor "§" into a workspace and returns the cursor.
func at(t testing.TB, w *Workspace, name, text string) Position {
	t.Helper()
	i := strings.Index(text, "§")
	if i < 0 {
		t.Fatalf("no cursor in %s", text)
	}
	text = text[:i] + text[i+len("§"):]
	if err := w.Set(name, text); err != nil {
		t.Fatal(err)
	}
	return positionOf(text, i)
}

func labels(items []Completion) (out []string) {
	for _, c := range items {
		out = append(out, c.Label)
	}
	return out
}

func apply(expression string) string {
	return top + "  variables:\n  - name: images\n    expression: object.spec.containers.map(c, c.image)\n  - {name: first, expression: 'object.spec.containers[0]'}\n" +
		"  mutations:\n  - patchType: ApplyConfiguration\n    applyConfiguration:\n      expression: |-\n        " + strings.ReplaceAll(expression, "\n", "\n        ") + "\n"
}

func TestComplete(t *testing.T) {
	const widget = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, description: How large it is.}
              parts: {type: array, items: {type: object, properties: {colour: {type: string}}}}
`
	widgets := strings.ReplaceAll(strings.ReplaceAll(top, `""`, "example.com"), "pods", "widgets")
	tests := map[string]struct {
		text  string
		want  []string // among others
		never []string
	}{
		"fields of the object":      {apply("object.spec.§"), []string{"containers", "nodeSelector", "serviceAccountName"}, []string{"replicas", "size"}},
		"a word that is begun":      {apply("object.spec.termin§"), []string{"terminationGracePeriodSeconds"}, []string{"containers"}},
		"in the middle":             {apply("object.spec.§ == 1 && true"), []string{"containers"}, nil},
		"the old object":            {apply("oldObject.metadata.§"), []string{"labels", "name"}, nil},
		"an element":                {apply("object.spec.containers[0].§"), []string{"image", "name"}, []string{"size", "nodeSelector"}},
		"a variable of a macro":     {apply("object.spec.containers.all(c, c.§"), []string{"image", "resources"}, []string{"nodeSelector"}},
		"two macros":                {apply("object.spec.containers.all(c, c.env.exists(e, e.§ == ''))"), []string{"valueFrom"}, []string{"image"}},
		"index and element":         {apply("object.spec.containers.transformList(i, c, c.§"), []string{"image"}, nil},
		"what is perhaps there":     {apply("object.spec.?securityContext.§"), []string{"runAsUser", "orValue"}, nil},
		"behind orValue":            {apply("object.spec.?securityContext.orValue({}).§"), []string{"runAsUser"}, nil},
		"lists have macros":         {apply("object.spec.containers.§"), []string{"all", "map", "size"}, []string{"image", "startsWith"}},
		"texts":                     {apply("object.metadata.name.§"), []string{"startsWith", "size"}, []string{"all", "asInteger"}},
		"types":                     {apply("Object.§"), []string{"spec", "metadata"}, []string{"kind", "all"}},
		"types of elements":         {apply("Object.spec.containers.§"), []string{"env", "resources"}, []string{"image"}},
		"fields of a literal":       {apply("Object{spec: Object.spec{§"), []string{"containers", "nodeSelector"}, []string{"object"}},
		"other fields of a literal": {apply("Object{spec: Object.spec{\n  nodeSelector: {},\n  §\n}}"), []string{"containers"}, []string{"nodeSelector"}},
		"fields of an element":      {apply("Object{spec: Object.spec{containers: [Object.spec.containers{§"), []string{"image"}, []string{"nodeSelector"}},
		"a value":                   {apply("Object{spec: Object.spec{hostname: §"), []string{"object", "variables"}, []string{"containers"}},
		"variables":                 {apply("variables.§"), []string{"first", "images"}, []string{"size"}},
		"of a variable":             {apply("variables.first.§"), []string{"image"}, nil},
		"names":                     {apply("§"), []string{"Object", "authorizer", "has", "object", "quantity", "request", "variables"}, []string{"params", "JSONPatch"}},
		"the request":               {apply("request.§"), []string{"operation", "userInfo"}, nil},
		"of the request":            {apply("request.userInfo.§"), []string{"groups", "username"}, nil},
		"the authorizer":            {apply("authorizer.§"), []string{"group", "serviceAccount"}, []string{"all"}},
		"functions of a space":      {apply("sets.§"), []string{"contains"}, nil},
		"not in a text":             {apply("'object.§'"), nil, []string{"spec"}},
		"not in a comment":          {apply("true // object.§"), nil, []string{"spec"}},
		"on one line":               {top + "  matchConditions:\n  - name: a\n    expression: object.spec.§\n", []string{"containers"}, nil},
		"on one line, no YAML":      {top + "  mutations:\n  - applyConfiguration:\n      expression: Object{spec: Object.spec{§\n", []string{"containers"}, nil},
		"others are no YAML":        {top + "  mutations:\n  - applyConfiguration:\n      expression: Object{spec: Object.spec{hostname: 'a'}} # why\n  matchConditions:\n  - expression: object.spec.§\n", []string{"containers"}, nil},
		"in braces":                 {top + "  matchConditions:\n  - {name: a, expression: object.spec.§}\n", []string{"containers"}, nil},
		"in braces and quotes":      {top + "  matchConditions:\n  - {expression: 'object.spec.containers.all(c, c.§', name: a}\n  variables: []\n", []string{"image"}, nil},
		"in braces behind a key":    {top + "  mutations:\n  - applyConfiguration: {expression: \"Object.§\"}\n", []string{"spec"}, nil},
		"elsewhere in braces":       {top + "  matchConditions:\n  - {name: object.§, expression: 'a'}\n", nil, nil},
		"in double quotes":          {top + "  matchConditions:\n  - expression: \"'a' == object.spec.§\"\n    name: a\n", []string{"containers"}, nil},
		"in single quotes":          {top + "  matchConditions:\n  - expression: '''a'' == object.spec.§'\n", []string{"containers"}, nil},
		"on the next line":          {top + "  matchConditions:\n  - expression:\n      object.spec.§\n", []string{"containers"}, nil},
		"only variables before":     {top + "  variables:\n  - {name: z, expression: \"1\"}\n  - name: a\n    expression: variables.§\n  - {name: b, expression: \"1\"}\n", []string{"z"}, []string{"a", "b"}},
		"a JSON patch":              {top + "  mutations:\n  - jsonPatch:\n      expression: |\n        [JSONPatch{op: 'add', §\n", []string{"path", "value"}, []string{"op", "object"}},
		"a List": {"apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSuffix(top, "\n"), "\n", "\n  ") + "\n    matchConditions:\n    - expression: object.spec.§\n",
			[]string{"containers"}, nil},
		"the second document":  {"kind: x\n---\n" + top + "  matchConditions:\n  - expression: object.spec.§\n---\na: b: c\n", []string{"containers"}, nil},
		"a kind of the folder": {widgets + "  matchConditions:\n  - expression: object.spec.§\n", []string{"parts", "size"}, []string{"containers"}},
		"parts of one":         {widgets + "  matchConditions:\n  - expression: object.spec.parts.all(p, p.§\n", []string{"colour"}, nil},
		"parameters":           {top + "  paramKind: {apiVersion: example.com/v1, kind: Widget}\n  matchConditions:\n  - expression: params.spec.§\n", []string{"size"}, nil},
		"not elsewhere":        {"apiVersion: v1\nkind: ConfigMap\ndata:\n  expression: object.§\n", nil, []string{"spec"}},
	}
	w := New(Options{})
	if err := w.Set("widgets.yaml", widget); err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cursor := at(t, w, "p.yaml", tt.text)
			items, err := w.Complete(t.Context(), "p.yaml", cursor)
			if err != nil {
				t.Fatal(err)
			}
			got := labels(items)
			for _, l := range tt.want {
				if !slices.Contains(got, l) {
					t.Errorf("no %s in %q", l, got)
				}
			}
			for _, l := range tt.never {
				if slices.Contains(got, l) {
					t.Errorf("%s in %q", l, got)
				}
			}
			if tt.want == nil && len(got) > 0 {
				t.Errorf("%q", got)
			}
		})
	}
	// The edit replaces the word that is begun.
	cursor := at(t, w, "p.yaml", apply("object.spec.termin§"))
	items, _ := w.Complete(t.Context(), "p.yaml", cursor)
	text, _ := w.Text("p.yaml")
	text, err := Apply(text, Change{&items[0].Edit.Range, items[0].Edit.Text})
	if err != nil || !strings.Contains(text, "object.spec.terminationGracePeriodSeconds\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestHover(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"a field":              {apply("object.spec.ho§stname"), "object.spec.hostname: string"},
		"its kind":             {apply("object.spec.ho§stname"), "v1 Pod"},
		"a list":               {apply("object.spec.cont§ainers.all(c, true)"), "list of object"},
		"a variable of a loop": {apply("object.spec.containers.all(c, c§.image != '')"), "c: object"},
		"an element's field":   {apply("object.spec.containers.all(c, c.im§age != '')"), "c.image: string"},
		"a variable":           {apply("variables.ima§ges"), "object.spec.containers.map(c, c.image)"},
		"its type":             {apply("variables.ima§ges"), "variables.images: list of string"},
		"a function":           {apply("object.metadata.name.starts§With('a')"), "string.startsWith(string) → bool"},
		"a macro":              {apply("object.spec.containers.a§ll(c, true)"), "whether the condition holds for all elements"},
		"a global function":    {apply("quan§tity('1')"), "as a quantity"},
		"one of a space":       {apply("sets.con§tains([1], [1])"), "all elements of the second"},
		"a field of a literal": {apply("Object{spec: Object.spec{host§name: 'a'}}"), "Object.spec.hostname: string"},
		"a type":               {apply("Object{spec: Object.sp§ec{hostname: 'a'}}"), "Object.spec: object"},
		"the request":          {apply("requ§est.name"), "request: kubernetes.AdmissionRequest"},
		"of the request":       {apply("request.user§Info.username"), "Who sent the request"},
		"the object":           {apply("obj§ect.spec"), "as the mutations before this one left it"},
		"nothing":              {apply("unk§nown"), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := New(Options{})
			h, err := w.Hover(t.Context(), "p.yaml", at(t, w, "p.yaml", tt.text))
			switch {
			case err != nil:
				t.Fatal(err)
			case h == nil && tt.want != "":
				t.Fatal("nothing")
			case h != nil && (tt.want == "" || !strings.Contains(h.Text, tt.want)):
				t.Errorf("%+v", h)
			}
		})
	}
}

func TestDefinition(t *testing.T) {
	for name, text := range map[string]string{
		"whole":      apply("variables.ima§ges"),
		"no YAML":    top + "  variables:\n  - name: images\n    expression: '1'\n  matchConditions:\n  - expression: {a: variables.ima§ges\n",
		"behind it":  top + "  mutations:\n  - jsonPatch:\n      expression: |-\n        variables.ima§ges +\n        []\n  variables:\n  - name: \"images\"\n    expression: '1'\n",
		"the second": "a: b\n---\n" + apply("variables.ima§ges"),
	} {
		t.Run(name, func(t *testing.T) {
			w := New(Options{})
			l, err := w.Definition(t.Context(), "p.yaml", at(t, w, "p.yaml", text))
			if err != nil || l == nil {
				t.Fatalf("%v, %v", l, err)
			}
			all, _ := w.Text("p.yaml")
			if got := all[offsetOf(all, l.Range.Start):offsetOf(all, l.Range.End)]; got != "images" || !strings.Contains(all[:offsetOf(all, l.Range.Start)], "name: ") {
				t.Errorf("%q at %+v", got, l)
			}
		})
	}
}

func TestDiagnosticsAndActions(t *testing.T) {
	w := New(Options{})
	text := top + "  failurePolicy: Fail\n  variables:\n  - name: unused\n    expression: '1'\n  mutations:\n  - patchType: JSONPatch\n    jsonPatch:\n      expression: |-\n        object.spec.hostname == ''\n          ? [] : [JSONPatch{op: 'add', path: '/a', value: nope}]\n"
	_ = at(t, w, "p.yaml", text+"§")
	_ = at(t, w, "helm.yaml", "a: {{ b }}: c§")
	found, err := w.Diagnostics(t.Context())
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	i := slices.IndexFunc(found["p.yaml"], func(d Diagnostic) bool { return d.Rule == "invalid" })
	if i < 0 {
		t.Fatal(found)
	}
	d := found["p.yaml"][i]
	if got := text[offsetOf(text, d.Range.Start):offsetOf(text, d.Range.End)]; got != "nope" || !strings.Contains(d.Message, "undeclared reference") {
		t.Errorf("%q: %+v", got, d)
	}
	text = strings.ReplaceAll(text, "nope", "'b'")
	_ = at(t, w, "p.yaml", text+"§")
	all := rangeOf(text, 0, len(text))
	actions, err := w.Actions(t.Context(), "p.yaml", all)
	if err != nil || len(actions) < 2 || actions[len(actions)-1].Diagnostic != nil {
		t.Fatalf("%+v, %v", actions, err)
	}
	mended := text
	for _, a := range actions[:1] {
		for _, e := range a.Edits {
			if mended, err = Apply(mended, Change{&e.Range, e.Text}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if mended == text || strings.Contains(actions[0].Title, "unused") && strings.Contains(mended, "unused") {
		t.Errorf("%s\n%s", actions[0].Title, mended)
	}
	if none, err := w.Actions(t.Context(), "p.yaml", Range{}); err != nil || len(none) != 1 {
		t.Errorf("elsewhere: %+v, %v", none, err)
	}
}

func TestFormat(t *testing.T) {
	w := New(Options{})
	text := apply("true&&\n  false")
	_ = at(t, w, "p.yaml", text+"§")
	edits, err := w.Format(t.Context(), "p.yaml")
	if err != nil || len(edits) != 1 {
		t.Fatalf("%+v, %v", edits, err)
	}
	if got, err := Apply(text, Change{&edits[0].Range, edits[0].Text}); err != nil || !strings.Contains(got, "      expression: true && false\n") {
		t.Errorf("%v\n%s", err, got)
	}
	_ = at(t, w, "p.yaml", apply("true &&")+"§")
	if _, err := w.Format(t.Context(), "p.yaml"); err == nil || !strings.Contains(err.Error(), "Syntax error") {
		t.Error(err)
	}
	// Other files are left alone, whatever stands in them.
	if err := w.Set("chart.yaml", "{{ if }}\na: b: c\n"); err != nil {
		t.Fatal(err)
	}
	if edits, err := w.Format(t.Context(), "chart.yaml"); err != nil || len(edits) > 0 {
		t.Errorf("a template: %v, %v", edits, err)
	}
}

func TestBounds(t *testing.T) {
	w := New(Options{})
	if err := w.Set("a", strings.Repeat("x", MaxDocument+1)); err == nil {
		t.Error("too large")
	}
	for i := range maxTotal / MaxDocument {
		if err := w.Set(fmt.Sprint(i), strings.Repeat("x", MaxDocument)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Set("more", "x"); err == nil {
		t.Error("there is no room")
	}
	w.Remove("0")
	if err := w.Set("more", "x"); err != nil {
		t.Error(err)
	}
	if _, err := Apply("x", Change{Text: strings.Repeat("x", MaxDocument+1)}); err == nil {
		t.Error("too large")
	}
	if _, err := w.Complete(t.Context(), "nowhere", Position{}); err != ErrUnknown {
		t.Error(err)
	}
}

// Documents in which somebody means no good, with the cursor everywhere.
func TestHostile(t *testing.T) {
	deep := strings.Repeat("a.map(x, ", 5000)
	for name, text := range map[string]string{
		"nested macros":   apply(deep),
		"many dots":       apply("object" + strings.Repeat(".spec", 20000)),
		"brackets":        apply(strings.Repeat("[", 50000)),
		"conditionals":    apply(strings.Repeat("a ? b : ", 10000)),
		"variables":       top + "  variables:\n" + strings.Repeat("  - {name: a, expression: variables.a + variables.a}\n", 500) + "  mutations:\n  - jsonPatch:\n      expression: variables.a.b\n",
		"aliases":         "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nspec: {variables: [*c, *c]}\n",
		"deep YAML":       strings.Repeat("- ", 20000) + "expression: a",
		"deeper keys":     top + strings.Repeat(" ", 3000) + "expression: |\n",
		"no characters":   apply("\xff\xfe\x00\xf0"),
		"one long string": apply("'" + strings.Repeat("x", 100_000)),
	} {
		t.Run(name, func(t *testing.T) {
			w := New(Options{})
			if err := w.Set("p.yaml", text); err != nil {
				t.Fatal(err)
			}
			end := positionOf(text, len(text)-1)
			for _, p := range []Position{{}, {Line: 1 << 30}, {Line: -1, Character: -1}, end, {end.Line, end.Character / 2}, {end.Line, 1 << 30}} {
				_, _ = w.Complete(t.Context(), "p.yaml", p)
				_, _ = w.Hover(t.Context(), "p.yaml", p)
				_, _ = w.Definition(t.Context(), "p.yaml", p)
			}
			_, _ = w.Format(t.Context(), "p.yaml")
			if _, err := w.Diagnostics(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Everything that a cursor can be on in an example has an answer, and none panics.
func TestEverywhere(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/policy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, name := range files[:4] {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		w := New(Options{})
		if err := w.Set(name, string(data)); err != nil {
			t.Fatal(err)
		}
		hovers := 0
		for i := 0; i < len(data); i += 5 {
			p := positionOf(string(data), i)
			if h, err := w.Hover(t.Context(), name, p); err != nil {
				t.Fatal(err)
			} else if h != nil {
				hovers++
			}
			if _, err := w.Complete(t.Context(), name, p); err != nil {
				t.Fatal(err)
			}
		}
		if hovers < 3 {
			t.Errorf("%s: %d hovers", name, hovers)
		}
	}
}

func TestFunctionsHaveDocs(t *testing.T) {
	w := New(Options{})
	for _, expression := range []string{"§", "sets.§", "format.§", "optional.§", "ip.§", "lists.§", "strings.§", "dyn(1).§"} {
		items, err := w.Complete(t.Context(), "p.yaml", at(t, w, "p.yaml", apply(expression)))
		if err != nil || len(items) == 0 {
			t.Fatalf("%s: %d, %v", expression, len(items), err)
		}
		for _, c := range items {
			if c.Kind == FunctionItem && (c.Doc == "" || strings.HasPrefix(c.Doc, "```")) {
				t.Errorf("%s%s has no documentation", expression, c.Label)
			}
		}
	}
}

func TestPositions(t *testing.T) {
	const text = "ab\r\nç😀d\ne\rf"
	for offset, want := range map[int]Position{0: {0, 0}, 2: {0, 2}, 4: {1, 0}, 6: {1, 1}, 10: {1, 3}, 11: {1, 4}, 12: {2, 0}, 14: {3, 0}, 15: {3, 1}} {
		if got := positionOf(text, offset); got != want {
			t.Errorf("%d: %v, want %v", offset, got, want)
		}
		if got := offsetOf(text, want); got != offset {
			t.Errorf("%v: %d, want %d", want, got, offset)
		}
	}
	for _, pair := range [][2]string{{"", "a"}, {"a", ""}, {"a\nb\nc\n", "a\nx\nc\n"}, {"a\nb", "a\nb\nc"}, {"a\na\n", "a\na\na\n"}, {"x\ny\n", "y\n"}, {"ab\n", "b\n"}} {
		got := pair[0]
		for _, e := range difference(pair[0], pair[1]) {
			got, _ = Apply(got, Change{&e.Range, e.Text})
		}
		if got != pair[1] {
			t.Errorf("%q: %q", pair, got)
		}
	}
}

// naive is Apply on lines of UTF-16, as the protocol says it.
func naive(text string, r Range, with string) string {
	units := utf16.Encode([]rune(text))
	find := func(p Position) int {
		at, line := 0, 0
		for line < p.Line && at < len(units) {
			if units[at] == '\r' && at+1 < len(units) && units[at+1] == '\n' {
				at++
			}
			if units[at] == '\n' || units[at] == '\r' {
				line++
			}
			at++
		}
		if line < p.Line {
			return len(units)
		}
		for n := 0; n < p.Character && at < len(units) && units[at] != '\n' && units[at] != '\r'; n++ {
			at++
		}
		return at
	}
	start, end := find(r.Start), find(r.End)
	if start > end {
		return text
	}
	return string(utf16.Decode(slices.Concat(units[:start], utf16.Encode([]rune(with)), units[end:])))
}

// FuzzApply compares edits of UTF-8 with those of UTF-16.
func FuzzApply(f *testing.F) {
	f.Add("ab\r\ncd\n", 0, 1, 1, 1, "x\n")
	f.Add("😀\rb", 0, 2, 1, 0, "")
	f.Add("", 3, 3, 4, 4, "é")
	f.Fuzz(func(t *testing.T, text string, a, b, c, d int, with string) {
		r := Range{Position{a % 20, b % 40}, Position{c % 20, d % 40}}
		text, with = strings.ToValidUTF8(text, "?"), strings.ToValidUTF8(with, "?")
		if r.Start.Line < 0 || r.Start.Character < 0 || r.End.Line < 0 || r.End.Character < 0 || len(text)+len(with) > 5000 {
			return
		}
		// Within a character, editors differ.
		for _, p := range []Position{r.Start, r.End} {
			if positionOf(text, offsetOf(text, p)) != p && !pastEnd(text, p) {
				return
			}
		}
		got, err := Apply(text, Change{&r, with})
		if err != nil {
			got = text
		}
		if d := cmp.Diff(naive(text, r, with), got); d != "" {
			t.Errorf("%q %v %q (-naive +got)\n%s", text, r, with, d)
		}
		// And back.
		back := got
		for _, e := range difference(got, text) {
			back, _ = Apply(back, Change{&e.Range, e.Text})
		}
		if back != text {
			t.Errorf("%q is not undone: %q", got, back)
		}
	})
}

// pastEnd reports whether a position is behind the end of its line or of the text.
func pastEnd(text string, p Position) bool {
	end := positionOf(text, offsetOf(text, Position{p.Line, 1 << 20}))
	return p.Line > end.Line || p.Character >= end.Character
}

// FuzzWorkspace asks everything at any place of any text.
func FuzzWorkspace(f *testing.F) {
	f.Add(apply("object.spec.containers.all(c, c.image"), 400)
	f.Add(top+"  matchConditions:\n  - expression: \"a\\n.b\"\n", 330)
	w := New(Options{})
	f.Fuzz(func(t *testing.T, text string, offset int) {
		if len(text) > 4000 || w.Set("p.yaml", text) != nil {
			return
		}
		p := positionOf(text, offset)
		_, _ = w.Complete(t.Context(), "p.yaml", p)
		_, _ = w.Hover(t.Context(), "p.yaml", p)
		_, _ = w.Definition(t.Context(), "p.yaml", p)
	})
}

// BenchmarkDiagnostics is what an edit of one of 200 policies costs that are all open.
func BenchmarkDiagnostics(b *testing.B) {
	w := New(Options{})
	for i := range 200 {
		_ = at(b, w, fmt.Sprintf("p%d.yaml", i), strings.Replace(apply(fmt.Sprintf("Object{metadata: Object.metadata{labels: {\"n\": \"%d\"}}}", i)), "name: p", fmt.Sprintf("name: p%d", i), 1)+"§")
	}
	if _, err := w.Diagnostics(b.Context()); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		_ = at(b, w, "p7.yaml", apply(fmt.Sprintf("Object{metadata: Object.metadata{labels: {\"edited\": \"%d\"}}}", n))+"§")
		if _, err := w.Diagnostics(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
