package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// usualReviews are of the forms that API servers send.
func usualReviews(t testing.TB) map[string][]byte {
	var create map[string]any
	if err := json.Unmarshal(podReview(t, 3, 3), &create); err != nil {
		t.Fatal(err)
	}
	request := create["request"].(map[string]any)
	pod := request["object"].(map[string]any)
	pod["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{
		"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
		"fieldsV1": map[string]any{"f:metadata": map[string]any{"f:labels": map[string]any{".": map[string]any{}, "f:app": map[string]any{}}},
			"f:spec": map[string]any{"f:containers": map[string]any{`k:{"name":"c0"}`: map[string]any{".": map[string]any{}, "f:image": map[string]any{}}}}},
	}}
	reviews := map[string][]byte{
		"create":  mustJSON(t, create),
		"minimal": []byte(reviewOf("")),
		"all fields": []byte(reviewOf(`"subResource": "scale", "requestSubResource": "scale",
			"requestKind": {"group": "extensions", "version": "v1beta1", "kind": "Deployment"},
			"requestResource": {"group": "extensions", "version": "v1beta1", "resource": "deployments"},
			"name": "web", "namespace": "shop", "dryRun": true, "somethingNew": {"a": [1]},
			"userInfo": {"username": "ann", "uid": "7", "groups": ["dev", "all"], "extra": {"k": ["v"], "l": []}},
			"object": {"apiVersion": "apps/v1", "kind": "Deployment", "replicas": 3, "ratio": 3.0, "big": 9007199254740993, "e": 1e3, "z": -0,
				"text": "a \"quote\", ü, \u00fc, \ud83d\ude00 and \/", "none": null, "list": [true, false, [], {}]}`)),
	}
	request["oldObject"] = pod
	request["operation"] = "UPDATE"
	reviews["update"] = mustJSON(t, create)
	request["object"] = nil
	request["operation"] = "DELETE"
	reviews["delete"] = mustJSON(t, create)
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, reviews["update"], " ", "\t"); err != nil {
		t.Fatal(err)
	}
	reviews["indented"] = append(spaced.Bytes(), '\r', '\n')
	return reviews
}

func TestUsualReviewsAreReadInOnePass(t *testing.T) {
	for name, data := range usualReviews(t) {
		t.Run(name, func(t *testing.T) {
			if !readsAlike(t, data) {
				t.Errorf("read gives %s up", data)
			}
		})
	}
}

// oddities are what the two decoders could understand differently.
var oddities = []string{
	`-0`, `-0.0`, `0e0`, `1e3`, `1E-2`, `1e400`, `-1e400`, `1e-400`, `9223372036854775807`, `9223372036854775808`, `-9223372036854775808`,
	`-9223372036854775809`, `18446744073709551616`, `1.0`, `1.`, `.5`, `01`, `-`, `+1`, `1e`, `0x1`, `1_0`, `NaN`,
	`""`, `"\u0000"`, `"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`, `"\u00FC"`, `"\/\b\f\n\r\t"`, `"\x"`, `"\u12"`, "\"\xff\"", "\"\xed\xa0\x80\"", "\"\x7f\"",
	"\"\n\"", "\"\ufffd\"", "\"\u2028\"", `"\u2028"`, `'a'`, `"`, `"\`, `"kind"`, `"Kind"`, `"k\u0069nd"`, `"object"`, `"name"`,
	`null`, `true`, `false`, `nul`, `True`, `{}`, `[]`, `[[]]`, `{"a":{}}`, `{"a":1,"a":2}`, `{"a":{"b":1},"a":{"c":2}}`, `{"a":1,"a":null}`, `{"":0}`,
	`[null]`, `["a",null]`, `[1]`, `{"a":null}`, `{"a":[null]}`, `{"a":["b"],"a":["c"]}`, `{1:2}`, `{null:1}`, `[1,]`, `{"a":1,}`, `,`, `:`, `{`, `}`, `[`, `]`, ` `, "\f", "\v", "\u00a0", "\ufeff", "\x00", `/**/`,
	`{"group":null}`, `{"group":"a","group":"b"}`, `{"version":1}`, `{"Version":"v2"}`,
}

func TestOdditiesAreReadAlike(t *testing.T) {
	for _, o := range oddities {
		for _, field := range []string{"uid", "kind", "resource", "requestKind", "requestResource", "name", "operation", "userInfo", "object", "oldObject", "options", "dryRun", "unknown", "Object"} {
			readsAlike(t, []byte(`{"apiVersion": "v", "kind": "k", "request": {"`+field+`": `+o+`}}`))
			readsAlike(t, []byte(`{"request": {"`+field+`": {"a": 1, "b": {}}, "`+field+`": `+o+`}}`))
			readsAlike(t, []byte(`{"request": {"`+field+`": null, "`+field+`": `+o+`}}`))
		}
		for _, field := range []string{"username", "uid", "groups", "extra"} {
			readsAlike(t, []byte(`{"request": {"userInfo": {"`+field+`": `+o+`, "other": `+o+`}}}`))
		}
		readsAlike(t, []byte(`{"request": {"userInfo": {"extra": {"k": `+o+`}}}}`))
		readsAlike(t, []byte(`{"request": {"object": {"a": [`+o+`]}}}`))
		readsAlike(t, []byte(`{"request": `+o+`}`))
		readsAlike(t, []byte(`{"request": {"name": "a"}, "request": `+o+`}`))
		readsAlike(t, []byte(`{"kind": `+o+`, "apiVersion": `+o+`}`))
		readsAlike(t, []byte(o))
		readsAlike(t, []byte(`{}`+o))
		readsAlike(t, []byte(o+`{}`))
	}
}

// TestDepthIsReadAlike is about the last levels that can be read: the trees are
// as deep, and what is deeper is refused with the same words.
func TestDepthIsReadAlike(t *testing.T) {
	for depth := 9990; depth < 10010; depth++ {
		for _, field := range []string{"object", "unknown"} {
			lists := `{"request": {"` + field + `": ` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}}`
			maps := `{"request": {"` + field + `": ` + strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth) + `}}`
			if read := readsAlike(t, []byte(lists)); read != (depth+2 <= 10000) {
				t.Errorf("%d lists in %s: read %t", depth, field, read)
			}
			readsAlike(t, []byte(maps))
		}
	}
}

// reads reads a review without bounds.
func reads(t testing.TB, out *review, text string) bool {
	t.Helper()
	ok, err := out.read(t.Context(), nil, text)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// TestReadLeavesTheDocumentAlone: reading does not change the bytes.
func TestReadLeavesTheDocumentAlone(t *testing.T) {
	data := strings.Clone(string(usualReviews(t)["update"]))
	text := string([]byte(data))
	var out review
	if !reads(t, &out, data) {
		t.Fatal("read gives up")
	}
	if data != text {
		t.Error("the document was changed")
	}
}

func FuzzRead(f *testing.F) {
	for _, data := range usualReviews(f) {
		f.Add(data)
	}
	for _, o := range oddities {
		f.Add([]byte(reviewOf(`"object": {"a": [` + o + `]}, "userInfo": ` + o)))
	}
	for _, tt := range badReviews {
		f.Add([]byte(tt.in))
	}
	f.Fuzz(func(t *testing.T, data []byte) { readsAlike(t, data) })
}

// FuzzReadTokens puts oddities into usual reviews, in place of tokens and
// between them.
func FuzzReadTokens(f *testing.F) {
	reviews := usualReviews(f)
	names := slices.Sorted(maps.Keys(reviews))
	for i := range uint64(200) {
		f.Add(i, uint8(i))
	}
	f.Fuzz(func(t *testing.T, seed uint64, changes uint8) {
		random := rand.New(rand.NewPCG(seed, uint64(changes)))
		tokens := tokensOf(string(reviews[names[random.IntN(len(names))]]))
		for range changes%4 + 1 {
			i, j := random.IntN(len(tokens)), random.IntN(len(tokens))
			switch random.IntN(5) {
			case 0:
				tokens[i] = oddities[random.IntN(len(oddities))]
			case 1:
				tokens[i] = tokens[j]
			case 2:
				tokens[i] = ""
			case 3:
				tokens[i] += oddities[random.IntN(len(oddities))]
			case 4: // give something twice
				i, j = min(i, j), min(max(i, j), i+20)
				tokens[j] += strings.Join(tokens[i:j], "")
			}
		}
		readsAlike(t, []byte(strings.Join(tokens, "")))
	})
}

// tokensOf cuts text after strings and around signs.
func tokensOf(text string) (tokens []string) {
	from, quoted := 0, false
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' && (i == 0 || text[i-1] != '\\'):
			quoted = !quoted
			if quoted {
				break
			}
			tokens, from = append(tokens, text[from:i+1]), i+1
		case !quoted && strings.IndexByte("{}[]:,", c) >= 0:
			if from < i {
				tokens = append(tokens, text[from:i])
			}
			tokens, from = append(tokens, text[i:i+1]), i+1
		}
	}
	return append(tokens, text[from:])
}

// readsAlike compares the two ways to read a review, and says whether the one
// that may give up has read it.
func readsAlike(t testing.TB, data []byte) bool {
	t.Helper()
	var got, want review
	if !reads(t, &got, string(data)) {
		return false
	}
	if err := want.unmarshal(data); err != nil {
		t.Errorf("%s is read although %v", shortened(data), err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%s is read differently (-unmarshal +read):\n%s", shortened(data), cmp.Diff(want, got))
	}
	return true
}

func shortened(data []byte) string {
	if len(data) > 2000 {
		return fmt.Sprintf("%q and %d bytes more", data[:2000], len(data)-2000)
	}
	return fmt.Sprintf("%q", data)
}
