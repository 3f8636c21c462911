package syntax

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// relocation moves objects to spec.template, all but metadata.uid, which is not there,
// metadata.namespace, which stays, and kind, which is known.
func relocation() *Relocation {
	kind := "Pod"
	return &Relocation{
		Path: []string{"spec", "template"},
		Field: func(variable string, path []string) (Moved, error) {
			switch said := strings.Join(append([]string{variable}, path...), "."); said {
			case "object.metadata.namespace", "request.namespace":
				return Moved{Stays: true}, nil
			case "object.kind":
				return Moved{Value: &kind}, nil
			case "object.metadata.uid", "object", "Object.metadata.uid", "request.name":
				return Moved{}, fmt.Errorf("no %s", said)
			}
			return Moved{}, nil
		},
		Pointer: func(pointer string, whole bool) error {
			if pointer == "/metadata/uid" || pointer == "" && whole {
				return errors.New("no such path")
			}
			return nil
		},
	}
}

func TestRelocateOld(t *testing.T) {
	r := relocation()
	r.Old = true
	for in, want := range map[string]string{
		`oldObject == null || oldObject.spec.x != object.spec.x`: `oldObject == null || oldObject.spec.template.spec.x != object.spec.template.spec.x`,
		`has(oldObject.spec)`:                     `has(oldObject.spec.template.spec)`,
		`[1].all(oldObject, oldObject.spec == 1)`: `[1].all(oldObject, oldObject.spec == 1)`,
	} {
		if got, err := r.Relocate(in, false); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestRelocate(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`object.spec.x`, `object.spec.template.spec.x`},
		{`object["spec"].x`, `object.spec.template["spec"].x`},
		{`object.?spec.x[?"a"].orValue(1)`, `object.spec.template.?spec.x[?"a"].orValue(1)`},
		{`object.spec.list[0].object.name`, `object.spec.template.spec.list[0].object.name`},
		{`has(object.spec.x) && !has(object.kind)`, `has(object.spec.template.spec.x) && !true`},
		{`object.kind == "Pod" && object.metadata.namespace != 'a"b'`, `"Pod" == "Pod" && object.metadata.namespace != "a\"b"`},
		{`object != null && oldObject == null`, `object != null && true`},
		{`has(oldObject.spec)`, `has(dyn(null).spec)`},
		{`variables.object + params.object.spec + namespaceObject.spec`, `variables.object + params.object.spec + namespaceObject.spec`},
		// Names that macros define are other ones.
		{`[1].all(object, object.spec == 1) && object.spec.x`, `[1].all(object, object.spec == 1) && object.spec.template.spec.x`},
		{`[1].exists(i, object, object.spec == object.x)`, `[1].exists(i, object, object.spec == object.x)`},
		{`object.spec.map(object, object.spec > 1, object.x)`, `object.spec.template.spec.map(object, object.spec > 1, object.x)`},
		{`object.spec.transformList(object, v, object.x)`, `object.spec.template.spec.transformList(object, v, object.x)`},
		{`cel.bind(object, object.spec, object.spec)`, `cel.bind(object, object.spec.template.spec, object.spec)`},
		{`object.?spec.optMap(object, object.x)`, `object.spec.template.?spec.optMap(object, object.x)`},
		{`object.spec.filter(request, request.name)`, `object.spec.template.spec.filter(request, request.name)`},
		{`object.spec.map(x)`, `object.spec.template.spec.map(x)`},
		// A name with a dot is that of a variable outside of all macros.
		{`.object.spec.x && [1].all(object, .object.spec.y == object)`, `object.spec.template.spec.x && [1].all(object, .object.spec.template.spec.y == object)`},
		{`[1].all(object, .oldObject == null)`, `[1].all(object, true)`},
		// Types and paths of mutations.
		{`.Object{spec: .Object.spec{a: 1}}`, `Object.spec.template{spec: Object.spec.template.spec{a: 1}}`},
		{`Object{spec: Object.spec{a: object.spec.a, ?b: object.?spec.b}}`, `Object.spec.template{spec: Object.spec.template.spec{a: object.spec.template.spec.a, ?b: object.spec.template.?spec.b}}`},
		{`[JSONPatch{op: "add", path: "/spec/x", value: Object.spec.x{y: 1}}]`, `[JSONPatch{op: "add", path: "/spec/template/spec/x", value: Object.spec.template.spec.x{y: 1}}]`},
		{`[JSONPatch{op: "move", from: "/spec/" + variables.a, path: has(object.spec.x) ? "/spec/a" : "/spec/b"}]`,
			`[JSONPatch{op: "move", from: "/spec/template/spec/" + variables.a, path: has(object.spec.template.spec.x) ? "/spec/template/spec/a" : "/spec/template/spec/b"}]`},
		{`[JSONPatch{op: "add", path: variables.p + "/x", value: "/spec/x"}]`, `[JSONPatch{op: "add", path: "/spec/template" + variables.p + "/x", value: "/spec/x"}]`},
		{`[?object.spec.?a, 1] + {"a": object.spec.b, ?"c": object.?spec.c}.d`, `[?object.spec.template.spec.?a, 1] + {"a": object.spec.template.spec.b, ?"c": object.spec.template.?spec.c}.d`},
		{"object.spec.`a-b`\n// a comment", "object.spec.template.spec.`a-b`"},
	} {
		got, err := relocation().Relocate(c.in, false)
		if err != nil || got != c.want {
			t.Errorf("%s\n    becomes %s (error %v)\nwant %s", c.in, got, err, c.want)
		}
		if again, err := relocation().Relocate(c.in, false); err != nil || again != got {
			t.Errorf("%s becomes %s the second time, error %v", c.in, again, err)
		}
	}
	got, err := relocation().Relocate(`variables.x ? Object{} : variables.y`, true)
	want := `Object{spec: Object.spec{template: variables.x ? Object.spec.template{} : variables.y}}`
	if err != nil || got != want {
		t.Errorf("as a configuration: %s, error %v, want %s", got, err, want)
	}
}

// Each reason has its place.
func TestRelocateRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`object.metadata.uid`, "1:1: no object.metadata.uid"},
		{"true &&\n  dyn(object) == 1", "2:7: no object"},
		{`object[variables.x] == 1 || request.name == ""`, "1:1: no object; 1:29: no request.name"},
		{`Object{metadata: Object.metadata{uid: "x"}}`, "1:39: no Object.metadata.uid"},
		{`[JSONPatch{op: "add", path: "/metadata/uid"}, JSONPatch{op: "add", path: true ? "" : "/x"}]`, "1:29: no such path; 1:81: no such path"},
		{`.object.metadata.uid == ""`, "1:2: no object.metadata.uid"},
		{`(-variables.a).b() + (!true).c`, "1:2: a negation that is the operand of something else cannot be printed; move it into a variable; 1:23: a negation that is the operand of something else cannot be printed; move it into a variable"},
		{`object.`, ""},
	} {
		_, err := relocation().Relocate(c.in, false)
		var at *Error
		if !errors.As(err, &at) {
			t.Errorf("%s: error %v", c.in, err)
			continue
		}
		var all []string
		for _, i := range at.Issues {
			all = append(all, fmt.Sprintf("%d:%d: %s", i.Line, i.Column, i.Message))
		}
		if got := strings.Join(all, "; "); c.want != "" && got != c.want {
			t.Errorf("%s: refused for %s, want %s", c.in, got, c.want)
		}
	}
}

func TestStrings(t *testing.T) {
	got, err := Strings(`object.x == "a" && ["b", 'a', b"c"].exists(x, x == "d" + object["e"])`)
	if want := []string{"a", "b", "d", "e"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, error %v, want %v", got, err, want)
	}
}
