package interpret_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/kyverno/interpret"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
)

// read returns the one policy of a text.
func read(t testing.TB, text string) *policy.Policy {
	t.Helper()
	for d, err := range manifest.ReadStream("policy.yaml", strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Object == nil {
			continue
		}
		p, errs := policy.Read(d)
		if errs != nil {
			t.Fatal(errs)
		}
		return p
	}
	t.Fatal("no policy")
	return nil
}

// rule returns a policy with one rule for Pods. Its text is a mutate and what else the rule has.
func rule(t testing.TB, text string) *interpret.Policy {
	t.Helper()
	p, err := interpret.New(read(t, "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  rules:\n  - name: r\n    match: {any: [{resources: {kinds: [Pod]}}]}\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := tree.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What Kyverno's engine was recorded to do in the case files.
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob("../../../test/cases/kyverno/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d case files, %v", len(files), err)
	}
	types := openapi.New(openapi.Builtin())
	compared := 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string]string{}
			for _, f := range a.Files {
				parts[f.Name] = string(f.Data)
			}
			p := read(t, parts["policy.yaml"])
			if p.CEL != nil {
				t.Skip("the interpreter does not take MutatingPolicies")
			}
			engine, err := interpret.New(p, nil)
			if err != nil {
				t.Skip(err)
			}
			var given struct {
				Operation       string            `json:"operation"`
				NamespaceLabels map[string]string `json:"namespaceLabels"`
				User            string            `json:"user"`
				Groups          []string          `json:"groups"`
			}
			if err := yaml.Unmarshal([]byte(parts["request.yaml"]), &given); err != nil {
				t.Fatal(err)
			}
			request := object(t, parts["request.yaml"])
			obj, _ := request["object"].(map[string]any)
			kind, err := types.Kind(schema.FromAPIVersionAndKind(fmt.Sprint(obj["apiVersion"]), fmt.Sprint(obj["kind"])))
			if err != nil {
				t.Fatal(err)
			}
			if obj, err = kind.Normalize(obj); err != nil {
				t.Fatal(err)
			}
			old, _ := request["oldObject"].(map[string]any)
			if given.Operation == "" {
				given.Operation = "CREATE"
			}
			before := runtime.DeepCopyJSON(obj)
			got, err := engine.Mutate(t.Context(), interpret.Request{Operation: given.Operation, Object: obj, Old: old, NamespaceLabels: given.NamespaceLabels, User: given.User, Groups: given.Groups})
			if err != nil {
				t.Skip(err)
			}
			compared++
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Errorf("the object is modified:\n%s", diff)
			}
			if _, refuses := parts["want.kyverno.error"]; refuses != (got.Refused != "") {
				t.Fatalf("Kyverno refuses: %v; the interpreter: %q", refuses, got.Refused)
			} else if refuses {
				return
			}
			want := object(t, parts["want.kyverno.yaml"])
			if diff := cmp.Diff(want, object(t, written(t, got.Object))); diff != "" {
				t.Errorf("- Kyverno, + interpreter\n%s", diff)
			}
		})
	}
	if compared < len(files)*3/4 {
		t.Errorf("only %d of %d cases are compared", compared, len(files))
	}
}

func written(t testing.TB, v any) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {containers: [{name: a, image: 'nginx:1'}, {name: b, image: x}]}\n"

// What the interpreter does not know it says.
func TestUnknown(t *testing.T) {
	for text, want := range map[string]string{
		`mutate: {patchStrategicMerge: {metadata: {labels: {a: "{{ random('[a-z]') }}"}}}}`:                   "uses the function random",
		`mutate: {patchStrategicMerge: {metadata: {labels: {a: "{{ request.uid }}"}}}}`:                       "uses request.uid",
		`mutate: {patchStrategicMerge: {metadata: {labels: {a: "$(./b)"}}}}`:                                  "uses a reference $(…)",
		`mutate: {patchStrategicMerge: {metadata: {labels: {a: "{{ @ }}"}}}}`:                                 "uses the variable @",
		`mutate: {patchStrategicMerge: {metadata: {labels: {a: "{{ request.object.spec.* | [0] }}"}}}}`:       "uses the values of an object in any order (*)",
		`mutate: {patchStrategicMerge: {spec: {containers: [{image: y}]}}}`:                                   "uses an element of spec.containers without name",
		`mutate: {patchStrategicMerge: {spec: {$patch: replace}}}`:                                            "uses the directive $patch: replace",
		`mutate: {patchesJson6902: "[{op: test, path: /a, value: 1}]"}`:                                       "",
		`mutate: {patchesJson6902: "- {op: test, path: /a, value: 1}"}`:                                       `uses a JSON patch with the operation "test"`,
		"context: [{name: c, apiCall: {urlPath: /x}}]\n    mutate: {patchStrategicMerge: {a: b}}":             "uses a context that is no variable",
		"context: [{name: c, configMap: {name: a, namespace: b}}]\n    mutate: {patchStrategicMerge: {a: b}}": "uses a ConfigMap",
		`mutate: {patchStrategicMerge: {metadata: {labels: {(a): x, a: y}}}}`:                                 "",
		`mutate: {patchStrategicMerge: {metadata: {labels: {"+(a)": x, a: y}}}}`:                              "uses an overlay with the field a with and without an anchor",
	} {
		_, err := rule(t, "    "+text+"\n").Mutate(t.Context(), interpret.Request{Operation: "CREATE", Object: object(t, pod)})
		var u *interpret.Unknown
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
		} else if !errors.As(err, &u) || u.Error() != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What Kyverno's functions and operators do: a label with the value of an expression, and one if a
// condition holds.
func TestExpressions(t *testing.T) {
	for expression, want := range map[string]any{
		"add('1Gi', '1Gi')": "2Gi", "subtract('2h', '30s')": "1h59m30s", "add(`1`, `2`)": int64(3), "multiply('1Gi', `2`)": "2Gi", "divide('4', '2')": int64(2),
		"modulo('7', '4')": "3", "to_upper('ab')": "AB", "trim_prefix('abc', 'ab')": "c", "split('a,b', ',') | [1]": "b", "truncate('abcdef', `3`)": "abc",
		"regex_replace_all('([a-z]+)1', 'ab1', '$1-')": "ab-", "regex_replace_all_literal('[0-9]', 'a1', '$')": "a$", "pattern_match('a?c*', 'abcd')": true,
		"label_match(`{\"a\": 1}`, `{\"a\": 1, \"b\": 2}`)": true, "base64_decode(base64_encode('x'))": "x", "path_canonicalize('/a//b/')": "/a/b",
		"parse_json('{\"a\": [1]}').a[0]": int64(1), "parse_yaml('a: b').a": "b", "lookup(`{\"a\": \"b\"}`, 'a')": "b", "items(`{\"x\": 1}`, 'k', 'v')[0].k": "x",
		"object_from_lists(['a'], ['b']).a": "b", "sha1('')": "da39a3ee5e6b4b0d3255bfef95601890afd80709", "md5('')": "d41d8cd98f00b204e9800998ecf8427e",
		"time_add('2024-01-01T00:00:00Z', '1h')": "2024-01-01T01:00:00Z", "time_to_cron('2024-01-02T03:04:00Z')": "4 3 2 1 2",
		"time_between('2024-01-02T00:00:00Z', '2024-01-01T00:00:00Z', '2024-01-03T00:00:00Z')": true, "round(`1.25`, `1`)": 1.3, "equal_fold('A', 'a')": true,
		"image_normalize('nginx')": "docker.io/nginx:latest", "images.containers.a.tag": "1", "request.userInfo.username": "alice", "serviceAccountName": "",
		"sum(['1', '2', '3'])": "6", "to_boolean('TRUE')": true, "compare('a', 'b')": int64(-1), "join('-', ['a', 'b'])": "a-b", "keys(`{\"b\": 1, \"a\": 2}`)[0]": "a",
	} {
		p := rule(t, "    mutate: {patchStrategicMerge: {spec: {x: "+fmt.Sprintf("%q", "{{ "+expression+" }}")+"}}}\n")
		got, err := p.Mutate(t.Context(), interpret.Request{Operation: "CREATE", Object: object(t, pod), User: "alice"})
		if err != nil || got.Refused != "" {
			t.Errorf("%s: %v, refused %q", expression, err, got.Refused)
		} else if v := got.Object["spec"].(map[string]any)["x"]; v != want {
			t.Errorf("%s = %v (%T), want %v", expression, v, v, want)
		}
	}
	for condition, want := range map[string]bool{
		"{key: abc, operator: Equals, value: 'a*'}": true, "{key: 1h, operator: Equals, value: 60m}": true, "{key: 1Gi, operator: Equals, value: 1024Mi}": true,
		"{key: 3, operator: GreaterThan, value: '2'}": true, "{key: 100m, operator: LessThan, value: '1'}": true, "{key: 1h, operator: GreaterThanOrEquals, value: 3600}": true,
		"{key: 10, operator: AnyIn, value: 1-20}": true, "{key: [1, 30], operator: AllIn, value: 1-20}": false, "{key: [1, 30], operator: AnyNotIn, value: 1-20}": true,
		"{key: a, operator: AnyIn, value: '[\"a\", \"b\"]'}": true, "{key: [a, c], operator: AllNotIn, value: [b]}": true, "{key: [a], operator: NotIn, value: a}": true,
		"{key: a, operator: In, value: [a, b]}": true, "{key: [a, c], operator: In, value: [a, b]}": false, "{key: 10s, operator: DurationLessThan, value: 1m}": true,
		"{key: [a], operator: Equals, value: [a]}": true, "{key: {a: 1}, operator: NotEquals, value: {a: 2}}": true, "{key: null, operator: NotEquals, value: a}": false,
		"{key: 10, operator: greaterthan, value: 2}": false,
	} {
		p := rule(t, "    preconditions: {all: ["+condition+"]}\n    mutate: {patchStrategicMerge: {metadata: {labels: {held: 'yes'}}}}\n")
		got, err := p.Mutate(t.Context(), interpret.Request{Operation: "CREATE", Object: object(t, pod)})
		if err != nil || got.Refused != "" {
			t.Errorf("%s: %v, refused %q", condition, err, got.Refused)
		} else if held := got.Object["metadata"].(map[string]any)["labels"] != nil; held != want {
			t.Errorf("%s: %v, want %v", condition, held, want)
		}
	}
}

// Whatever a policy says ends: by itself, or where what it may take is counted. No time is
// measured; without the bounds some of these would not end.
func TestBounds(t *testing.T) {
	label := func(expression string) string {
		return "    mutate: {patchStrategicMerge: {metadata: {labels: {a: " + fmt.Sprintf("%q", "{{ "+expression+" }}") + "}}}}\n"
	}
	doubled := "@"
	for range 40 {
		doubled = "[" + doubled + ", " + doubled + "][]"
		if len(doubled) > 15000 {
			break
		}
	}
	nested := func(list string) string {
		text := "patchStrategicMerge: {metadata: {labels: {a: x}}}"
		for range policy.MaxNesting {
			text = "foreach: [{list: \"" + list + "\", " + text + "}]"
		}
		return "    mutate: {" + text + "}\n"
	}
	big := object(t, pod)
	var containers []any
	for i := range 3000 {
		containers = append(containers, map[string]any{"name": fmt.Sprintf("c%d", i), "image": strings.Repeat("a", 100)})
	}
	big["spec"].(map[string]any)["containers"] = containers
	for name, tt := range map[string]struct{ text, want string }{
		"deep parentheses":      {label(strings.Repeat("(", 7000) + "'a'" + strings.Repeat(")", 7000)), ""},
		"deep negation":         {label(strings.Repeat("!", 15000) + "'a'"), ""},
		"long":                  {label(strings.Repeat("a.", 50000) + "a"), "a JMESPath expression of 100001 bytes"},
		"doubling lists":        {label("request.object.spec.containers | " + doubled), "a JMESPath expression of 28699 bytes"},
		"doubling in a pipe":    {label("request.object" + strings.Repeat(" | [@, @][]", 60)), "more than 256 times"},
		"doubling texts":        {label("'aaaaaaaaaaaaaaaa'" + strings.Repeat(" | replace_all(@, 'a', 'aaaaaaaaaaaaaaaa')", 20)), "more than 256 times"},
		"join":                  {label("join(to_string(request.object), request.object.spec.containers[].image)"), "a text of more than 1048576 bytes"},
		"regular expression":    {label("regex_replace_all('(a*)*b', to_string(request.object), '$1$1$1$1$1$1$1$1$1$1$1$1')"), "a replacement that can be longer than 8388608 bytes"},
		"repeated expression":   {label("regex_match('((a{100}){100}){100}', 'a')"), "invalid repeat count"},
		"nested foreach":        {nested("request.object.spec.containers"), "more than 8388608 values"},
		"variable in itself":    {"    context: [{name: v, variable: {value: '{{ v }}{{ v }}'}}]\n" + label("v"), "Unknown key \"v\" in path"},
		"index":                 {"    mutate: {patchesJson6902: \"- {op: add, path: /spec/x/900000000/y, value: 1}\"}\n", "the index 900000000"},
		"anchors in each other": {"    mutate: {patchStrategicMerge: {spec: {containers: [{(name): \"*\", volumeMounts: [{(name): \"*\", x: [{(name): \"*\", y: 1}]}]}, {(name): \"c*\", a: b}]}}}\n", "an element of spec.containers without name"},
		"yaml bomb":             {"    mutate: {patchesJson6902: \"- {op: add, path: /a, value: [&a [x,x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a,*a,*a], &c [*b,*b,*b,*b,*b,*b,*b,*b], &d [*c,*c,*c,*c,*c,*c,*c,*c], &e [*d,*d,*d,*d,*d,*d,*d], &f [*e,*e,*e,*e,*e,*e,*e], &g [*f,*f,*f,*f,*f,*f,*f]]}\"}\n", "excessive aliasing"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := rule(t, tt.text).Mutate(t.Context(), interpret.Request{Operation: "CREATE", Object: big})
			if got := result.Refused + fmt.Sprint(err); !strings.Contains(got, tt.want) || tt.want == "" && got != fmt.Sprint(nil) {
				t.Errorf("%s, want %q", got, tt.want)
			}
		})
	}
}

// The end of the context ends a run.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := rule(t, "    mutate: {patchStrategicMerge: {metadata: {labels: {a: \"{{ request.operation }}\"}}}}\n")
	if _, err := p.Mutate(ctx, interpret.Request{Operation: "CREATE", Object: object(t, pod)}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// FuzzExpression fills an expression into a label and a precondition.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{"request.object.metadata.name", "element.a || 'b'", "length(request.object.spec.containers[?image=='x'])", "{{ a }}", "- request", "items(@, 'a', 'b')[0].b.request"} {
		f.Add(s)
	}
	obj := object(f, pod)
	f.Fuzz(func(t *testing.T, expression string) {
		text := "    preconditions: {any: [{key: " + fmt.Sprintf("%q", "{{ "+expression+" }}") + ", operator: AnyIn, value: [a, \"*\"]}]}\n" +
			"    mutate: {patchStrategicMerge: {metadata: {labels: {a: " + fmt.Sprintf("%q", "x{{ "+expression+" }}") + "}}}}\n"
		p, ok := tryRule(text)
		if !ok {
			return
		}
		check(t, p, obj)
	})
}

// FuzzOverlay applies an overlay and a JSON patch, given as YAML.
func FuzzOverlay(f *testing.F) {
	for _, s := range []string{
		"{spec: {containers: [{(name): \"*\", +(imagePullPolicy): Always}]}}", "{metadata: {<(labels): {a: b}, annotations: null}}",
		"{spec: {volumes: [{name: a}], $patch: delete}}", "[{op: add, path: /spec/a/-, value: 1}, {op: remove, path: /x}]", "{(a): [(b)], ^(c): [{}], =(d): 1}",
	} {
		f.Add(s)
	}
	obj := object(f, pod)
	f.Fuzz(func(t *testing.T, text string) {
		for _, rule := range []string{
			"    mutate: {patchStrategicMerge: " + strings.ReplaceAll(text, "\n", " ") + "}\n",
			"    mutate: {patchesJson6902: " + fmt.Sprintf("%q", text) + "}\n",
		} {
			if p, ok := tryRule(rule); ok {
				check(t, p, obj)
			}
		}
	})
}

// tryRule is rule for texts that may be no rule.
func tryRule(text string) (*interpret.Policy, bool) {
	whole := "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  rules:\n  - name: r\n    match: {any: [{resources: {kinds: [Pod]}}]}\n" + text
	for d, err := range manifest.ReadStream("policy.yaml", strings.NewReader(whole)) {
		if err != nil || d.Object == nil || !policy.Is(d.Object.GroupVersionKind()) {
			return nil, false
		}
		p, errs := policy.Read(d)
		if errs != nil || p.Rules == nil {
			return nil, false
		}
		engine, err := interpret.New(p, nil)
		return engine, err == nil
	}
	return nil, false
}

// check holds that a run has an object, a refusal or an Unknown, does not modify what it is given,
// and does the same again.
func check(t *testing.T, p *interpret.Policy, obj map[string]any) {
	t.Helper()
	before := runtime.DeepCopyJSON(obj)
	request := interpret.Request{Operation: "CREATE", Object: obj, User: "alice"}
	first, err := p.Mutate(t.Context(), request)
	if diff := cmp.Diff(before, obj); diff != "" {
		t.Fatalf("the object is modified:\n%s", diff)
	}
	var u *interpret.Unknown
	if err != nil && !errors.As(err, &u) {
		t.Fatal(err)
	}
	if err == nil && (first.Object == nil) == (first.Refused == "") {
		t.Fatalf("result %+v", first)
	}
	second, _ := p.Mutate(t.Context(), request)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Fatalf("another result the second time:\n%s", diff)
	}
}
