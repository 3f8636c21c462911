package scheme

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// constants returns the values that the API declares for its string types, such as
// RollingUpdate for k8s.io/api/apps/v1.DeploymentStrategyType.
func constants(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, module := range []string{"k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator"} {
		dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			t.Fatal(err)
		}
		root := strings.TrimSpace(string(dir))
		err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Base(path) != "types.go" {
				return err
			}
			pkg, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, d := range file.Decls {
				decl, ok := d.(*ast.GenDecl)
				if !ok || decl.Tok != token.CONST {
					continue
				}
				for _, s := range decl.Specs {
					spec := s.(*ast.ValueSpec)
					name, ok := spec.Type.(*ast.Ident)
					if !ok || len(spec.Values) != 1 {
						continue
					}
					if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
						value, err := strconv.Unquote(lit.Value)
						if err != nil {
							return err
						}
						key := module + "/" + pkg + "." + name.Name
						out[key] = append(out[key], value)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(out) < 200 {
		t.Fatalf("constants of %d types", len(out))
	}
	return out
}

// A generator makes random objects of Go types, as trees.
type generator struct {
	rand      *rand.Rand
	constants map[string][]string
	// fill is the share of fields that are written, in percent.
	fill int
}

// object returns the i-th object of a kind. The first has nothing but its kind and a
// name.
func (g *generator) object(s *server, i int) map[string]any {
	g.fill = []int{0, 100, 20, 50, 80, 95}[i%6]
	obj := map[string]any{}
	for j := range s.goType.NumField() {
		f := s.goType.Field(j)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" || name == "metadata":
		case i > 0 && g.chance(max(g.fill, 60)):
			if v, ok := g.value(f.Type, 0); ok {
				obj[name] = v
			}
		}
	}
	if _, ok := s.goType.FieldByName("ObjectMeta"); ok {
		obj["metadata"] = g.metadata()
	}
	obj["apiVersion"], obj["kind"] = s.gvk.GroupVersion().String(), s.gvk.Kind
	return obj
}

func (g *generator) metadata() map[string]any {
	meta := map[string]any{"name": "n"}
	if g.chance(30) {
		meta["labels"] = map[string]any{"a": "b"}
	}
	if g.chance(30) {
		meta["annotations"] = map[string]any{"a": "b"}
	}
	return meta
}

func (g *generator) chance(percent int) bool { return g.rand.IntN(100) < percent }

func (g *generator) pick(of ...any) any { return of[g.rand.IntN(len(of))] }

// value returns a value of a type; ok is false for one that is not to be written.
func (g *generator) value(t reflect.Type, depth int) (v any, ok bool) {
	switch t.String() {
	case "resource.Quantity":
		return g.pick("1", "1m", "100u", "1.0001", "2Gi", 3, 0.25, "0"), true
	case "v1.Time":
		return g.pick("2026-01-02T03:04:05Z", nil), true
	case "v1.MicroTime":
		return g.pick("2026-01-02T03:04:05.000001Z", nil), true
	case "v1.Duration":
		return "5m0s", true
	case "intstr.IntOrString":
		return g.pick(0, 1, "25%", "http"), true
	case "runtime.RawExtension":
		return map[string]any{"apiVersion": "example.com/v1", "kind": "X", "a": 1}, true
	case "v1.FieldsV1":
		return map[string]any{}, true
	case "v1.JSON":
		return g.pick(map[string]any{"a": 1}, "x", 1), true
	case "v1.JSONSchemaPropsOrArray", "v1.JSONSchemaPropsOrBool", "v1.JSONSchemaPropsOrStringArray", "v1.ManagedFieldsEntry":
		return nil, false
	}
	if g.chance(6) && t.Kind() != reflect.Struct {
		return nil, true
	}
	switch t.Kind() {
	case reflect.Pointer:
		if g.chance(10) {
			return nil, true
		}
		return g.value(t.Elem(), depth)
	case reflect.Struct:
		return g.structure(t, depth+1), true
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return g.pick("aGVsbG8=", ""), true
		}
		list := []any{}
		for range g.rand.IntN(3) {
			if v, ok := g.value(t.Elem(), depth+1); ok && (v != nil || t.Elem().Kind() != reflect.Pointer) {
				list = append(list, v)
			}
		}
		return list, true
	case reflect.Map:
		m := map[string]any{}
		for _, key := range []string{"cpu", "memory", "x"} {
			if v, ok := g.value(t.Elem(), depth+1); ok && g.chance(50) {
				m[key] = v
			}
		}
		return m, true
	case reflect.String:
		if values := g.constants[t.PkgPath()+"."+t.Name()]; len(values) > 0 && !g.chance(15) {
			return values[g.rand.IntN(len(values))], true
		}
		return g.pick("", "x", "nginx:latest", "10.0.0.1"), true
	case reflect.Bool:
		return g.chance(50), true
	case reflect.Int32, reflect.Int64, reflect.Int:
		return g.pick(0, 1, 7, -1), true
	case reflect.Float64, reflect.Float32:
		return g.pick(0, 1, 0.5), true
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return g.pick(0, 1, 7), true
	}
	panic("a field of type " + t.String())
}

// deepest bounds types that contain themselves, such as JSON schemas.
const deepest = 14

func (g *generator) structure(t reflect.Type, depth int) map[string]any {
	out := map[string]any{}
	if depth > deepest {
		return out
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && (f.Anonymous || slices.Contains(strings.Split(options, ","), "inline")):
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			for key, value := range g.structure(inner, depth) {
				out[key] = value
			}
		case g.chance(g.fill * 3 / (depth + 2)):
			if v, ok := g.value(f.Type, depth); ok {
				out[name] = v
			}
		}
	}
	return out
}
