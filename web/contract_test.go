package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/internal/author/language"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/tree"
)

// contract has the parameter and the answer of each method. A pointer may be null.
var contract = map[string][2]reflect.Type{
	"evaluate":   {reflect.TypeFor[EvaluateQuestion](), reflect.TypeFor[Answer]()},
	"orders":     {reflect.TypeFor[OrdersQuestion](), reflect.TypeFor[OrdersAnswer]()},
	"migrate":    {reflect.TypeFor[MigrateQuestion](), reflect.TypeFor[MigrateAnswer]()},
	"verify":     {reflect.TypeFor[VerifyQuestion](), reflect.TypeFor[VerifyAnswer]()},
	"suite":      {reflect.TypeFor[Question](), reflect.TypeFor[SuiteAnswer]()},
	"diagnose":   {reflect.TypeFor[LanguageQuestion](), reflect.TypeFor[map[string][]language.Diagnostic]()},
	"complete":   {reflect.TypeFor[PositionQuestion](), reflect.TypeFor[[]language.Completion]()},
	"hover":      {reflect.TypeFor[PositionQuestion](), reflect.TypeFor[*language.Hover]()},
	"definition": {reflect.TypeFor[PositionQuestion](), reflect.TypeFor[*language.Location]()},
	"format":     {reflect.TypeFor[DocumentQuestion](), reflect.TypeFor[[]language.Edit]()},
	"actions":    {reflect.TypeFor[RangeQuestion](), reflect.TypeFor[[]language.Action]()},
}

// written are the types with their own MarshalJSON.
var written = map[reflect.Type]string{
	reflect.TypeFor[tree.Op]():     "{op: string; path: string; from?: string; value?: unknown}",
	reflect.TypeFor[cel.Excerpt](): "{value?: unknown; text?: string; error?: string; hidden?: boolean; cut?: boolean}",
}

// TestContract compares api.ts with the types of api.go, or writes it with -update.
func TestContract(t *testing.T) {
	w := &typescript{named: map[string]reflect.Type{}, texts: map[string]string{}}
	methods := ""
	for _, name := range slices.Sorted(maps.Keys(contract)) {
		methods += fmt.Sprintf("  %s: {params: %s; answer: %s}\n", name, w.of(contract[name][0]), w.answer(contract[name][1]))
	}
	text := "// The types of web/api.go, written by `go generate ./web`.\n\n// Methods are those of the engine.\nexport interface Methods {\n" + methods + "}\n"
	for _, name := range slices.Sorted(maps.Keys(w.texts)) {
		text += "\n" + w.texts[name]
	}
	const file = "app/src/api.ts"
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(got)); diff != "" {
		t.Errorf("%s is stale; run `go generate ./web` (-want +got):\n%s", file, diff)
	}
}

// typescript writes the TypeScript types of the JSON that encoding/json makes from Go types.
type typescript struct {
	named map[string]reflect.Type
	texts map[string]string // of named types
}

func (w *typescript) answer(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		return w.of(t) + " | null"
	}
	return w.of(t)
}

func (w *typescript) of(t reflect.Type) string {
	if t.Name() != "" && (t.Kind() == reflect.Struct || written[t] != "") {
		return w.name(t)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.of(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "number"
	case reflect.Interface:
		return "unknown"
	case reflect.Slice:
		return w.of(t.Elem()) + "[]"
	case reflect.Map:
		return "Record<string, " + w.of(t.Elem()) + ">"
	}
	panic("no TypeScript for " + t.String())
}

// name returns the name of a struct, and writes its interface at the first use.
func (w *typescript) name(t reflect.Type) string {
	name := t.Name()
	if other, ok := w.named[name]; ok && other != t {
		// Two packages have a type of this name: the second one is prefixed with its package.
		pkg := t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]
		name = strings.ToUpper(pkg[:1]) + pkg[1:] + name
	}
	if _, ok := w.named[name]; ok {
		return name
	}
	w.named[name] = t
	if text, ok := written[t]; ok {
		w.texts[name] = fmt.Sprintf("export type %s = %s\n", name, text)
		return name
	}
	if t.Implements(reflect.TypeFor[json.Marshaler]()) {
		panic(t.String() + " writes its JSON itself")
	}
	var extends []string
	fields := ""
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == "-" || !f.IsExported():
		case f.Anonymous && tag == "":
			extends = append(extends, w.of(f.Type))
		default:
			mark := ""
			if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
				mark = "?"
			}
			fields += fmt.Sprintf("  %s%s: %s\n", tag, mark, w.of(f.Type))
		}
	}
	head := "export interface " + name
	if len(extends) > 0 {
		head += " extends " + strings.Join(extends, ", ")
	}
	w.texts[name] = head + " {\n" + fields + "}\n"
	return name
}
