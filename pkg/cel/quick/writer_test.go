package quick_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/pkg/cel"
)

// kind is what an expression is mostly about; what it is in data may be another.
type kind int

const (
	flags kind = iota
	ints
	texts
	textLists
	intLists
	records
	recordLists
	anys
)

// fieldNames are the names that records have for each kind.
var fieldNames = [...][]string{
	flags: {"f"}, ints: {"n", "i"}, texts: {"s", "t"}, textLists: {"l", "j"}, intLists: {"k"},
	records: {"o", "p"}, recordLists: {"e", "h"}, anys: {"a", "b", "c"},
}

// listOfKind is the kind of a list, elementKind that of its elements.
var (
	listOfKind  = map[kind]kind{texts: textLists, ints: intLists, records: recordLists}
	elementKind = map[kind]kind{textLists: texts, intLists: ints, recordLists: records}
)

// writer makes up expressions in what the quick way knows, and data for them. Most
// have the types that they should have, so that they compile and their values are
// more than errors.
type writer struct {
	*rand.Rand
	depth     int
	loops     []typedName
	variables []typedName // of the policy, so far
	metered   bool
	// patches says that the types of patches are there.
	patches bool
	// single says that records have one key, but for those at the root: loops may go over
	// records, which they do in any order.
	single bool
}

type typedName struct {
	name string
	kind kind
}

func (w *writer) choose(of ...string) string { return of[w.IntN(len(of))] }

func (w *writer) one(in int) bool { return w.IntN(in) == 0 }

func (w *writer) deeper(f func() string) string {
	w.depth++
	defer func() { w.depth-- }()
	return f()
}

// dyn hides the type of an expression, at most times.
func (w *writer) dyn(s string) string {
	if w.one(4) {
		return s
	}
	return "dyn(" + s + ")"
}

// strange writes literals of all types that the environment has and JSON does not, and
// forms of lists and maps that hardly anybody writes. None is read by the quick way, but
// Objects as values of operations. Maps have one key, see single.
func (w *writer) strange() string {
	value := func() string {
		return "google.protobuf.Value{" + w.choose(`string_value: "a"`, "number_value: 1.0", "bool_value: true", "null_value: google.protobuf.NullValue.NULL_VALUE",
			`struct_value: google.protobuf.Struct{fields: {"s": google.protobuf.Value{string_value: "x"}}}`,
			"list_value: google.protobuf.ListValue{values: [google.protobuf.Value{number_value: 2.0}]}", "?string_value: object.?s", "") + "}"
	}
	forms := []func() string{
		func() string {
			return "google.protobuf.StringValue{" + w.choose(`value: "const"`, "", "?value: "+w.optional(texts), "value: "+w.exactly(texts)) + "}"
		},
		func() string {
			return "google.protobuf." + w.choose("Int32Value", "Int64Value") + "{" + w.choose("value: 1", "", "?value: object.?n", "value: "+w.exactly(ints)) + "}"
		},
		func() string {
			return "google.protobuf." + w.choose("UInt32Value", "UInt64Value") + "{" + w.choose("value: 1u", "") + "}"
		},
		func() string {
			return "google.protobuf." + w.choose("DoubleValue", "FloatValue") + "{" + w.choose("value: 1.5", "", "?value: object.?a") + "}"
		},
		func() string {
			return "google.protobuf.BoolValue{" + w.choose("value: true", "", "?value: object.?f", "value: "+w.boolean()) + "}"
		},
		func() string { return "google.protobuf.BytesValue{" + w.choose(`value: b"a"`, "") + "}" },
		value,
		func() string { return `google.protobuf.Struct{fields: {"s": ` + value() + "}}" },
		func() string { return "google.protobuf.ListValue{values: [" + value() + ", " + value() + "]}" },
		func() string { return "google.protobuf.Any{" + w.choose(`type_url: "x", value: b"a"`, "") + "}" },
		func() string {
			return "google.protobuf." + w.choose("Duration", "Timestamp") + "{seconds: " + w.choose("1", w.exactly(ints)) + "}"
		},
		func() string {
			return w.choose("google.protobuf.Empty{}", "google.protobuf.NullValue.NULL_VALUE", "kubernetes.Namespace{}")
		},
		func() string {
			return w.choose(`b"a"`, "3u", "18446744073709551615u", `duration("90s")`, `timestamp("2026-01-02T03:04:05Z")`, `quantity("1Gi")`, `url("https://a/b")`, "type(1)", "int", "list", "type(type(1))", "double(0) / 0.0", "1.0 / 0.0")
		},
		func() string { return "optional.of(" + w.any() + ")" },
		func() string { return w.optional(kind(w.IntN(int(anys) + 1))) },
		func() string { return "[?" + w.optional(kind(w.IntN(int(anys)+1))) + ", dyn(" + w.any() + ")]" },
		func() string {
			return `{?"s": ` + w.optional(kind(w.IntN(int(anys)+1))) + w.choose("", `, "s": dyn(`+w.any()+")") + "}"
		},
		func() string { return "{" + w.choose("1", "true", "1u", "dyn(1)") + ": " + w.any() + "}" },
		func() string {
			return `{"s": dyn(` + w.any() + "), " + w.choose(`"s"`, `string("s")`, `"" + "s"`) + ": dyn(" + w.any() + ")}"
		},
		func() string {
			return w.choose("authorizer", "dyn(variables)", ".object", ".params", "request", "namespaceObject", "request.dryRun", "request.options", "namespaceObject.metadata.creationTimestamp")
		},
	}
	if w.patches {
		forms = append(forms,
			func() string { return w.object(w.choose("Object", "Object.v", "Object.v.a", "Object.a", ".Object"), 3) },
			func() string { return w.object(w.choose("Object.v", "Object.v.a"), 3) + w.choose(".a", `.?b`, "") },
			w.operation,
			func() string { return "[" + w.operation() + "]" },
			func() string { return `JSONPatch{op: "add", path: "/s"}` + w.choose("", ".op", ".path") },
		)
	}
	if w.one(2) {
		return w.deeper(w.anyCall)
	}
	return w.deeper(forms[w.IntN(len(forms))])
}

func (w *writer) literal(k kind) string {
	if w.depth < 7 && w.one(40) {
		if s := w.strange(); w.one(2) {
			return s
		} else {
			return "dyn(" + s + ")"
		}
	}
	switch k {
	case flags:
		return w.choose("true", "false")
	case ints:
		return w.choose("0", "1", "2", "-1", "9223372036854775807")
	case texts:
		return w.choose(`"a"`, `""`, `"lång"`, `"a longer text than others"`, `"s"`, `"~/"`)
	case textLists:
		return w.choose(`["a", "b"]`, `["lång"]`, `[]`)
	case intLists:
		return w.choose("[1, 2]", "[]", "[0]")
	case records:
		return w.choose("{}", `{"s": "a"}`, `{"n": 1}`, `{"l": ["a"]}`)
	case recordLists:
		return w.choose("[]", `[{"s": "a"}]`)
	}
	return w.choose("null", "1.5", "-0.0", `"a"`, "1", "true", "[]", "{}", "[[1]]")
}

// any writes an expression of some kind.
func (w *writer) any() string { return w.expr(kind(w.IntN(int(anys) + 1))) }

// expr writes an expression of a kind, and sometimes of another.
func (w *writer) expr(k kind) string {
	if w.one(24) {
		if k = kind(w.IntN(int(anys) + 1)); k == records && !w.single {
			k = anys
		}
	}
	return w.exactly(k)
}

func (w *writer) exactly(k kind) string {
	if w.depth > 5 {
		if w.one(2) {
			return w.literal(k)
		}
		return w.path(k)
	}
	return w.deeper(func() string {
		switch w.IntN(9) {
		case 0:
			return w.literal(k)
		case 1, 2:
			return w.path(k)
		case 3:
			return w.optional(k) + w.choose(".orValue("+w.dyn(w.exactly(k))+")", ".orValue("+w.literal(k)+")", ".value()")
		case 4:
			return "(" + w.boolean() + " ? " + w.dyn(w.exactly(k)) + " : " + w.dyn(w.exactly(k)) + ")"
		}
		switch k {
		case flags:
			return w.boolean()
		case ints:
			return w.number()
		case texts:
			return w.text()
		case textLists, intLists, recordLists:
			return w.list(k)
		case records:
			return "{" + w.choose(`"s"`, `"a"`, w.text()) + ": dyn(" + w.any() + ")}"
		}
		return w.choose(w.any(), "[dyn("+w.any()+"), dyn("+w.any()+")]", w.path(anys)+"[dyn("+w.any()+")]", "["+w.any()+"]")
	})
}

// root writes a map to begin a path with.
func (w *writer) root() string {
	roots := []string{"object", "object", "object", "params", "oldObject"}
	for _, v := range slices.Concat(w.loops, w.variables) {
		if v.kind == records {
			roots = append(roots, v.name, v.name)
		}
	}
	root := w.choose(roots...)
	switch w.IntN(8) {
	case 0:
		root += w.choose(".o", ".p", `["o"]`)
	case 1:
		root += w.choose(".e[0]", ".h[1]", ".o.p")
	case 2:
		if w.depth < 5 {
			return w.deeper(func() string {
				return "(" + w.boolean() + " ? " + w.dyn(w.root()) + " : " + w.dyn(w.root()) + ")"
			})
		}
	}
	return root
}

// path writes an attribute.
func (w *writer) path(k kind) string {
	var direct []string
	for _, v := range slices.Concat(w.loops, w.variables) {
		if v.kind == k {
			direct = append(direct, v.name)
		}
	}
	if len(direct) > 0 && w.one(2) {
		return w.choose(direct...)
	}
	switch {
	case k == texts && w.one(6):
		return w.choose("namespaceObject.metadata.name", "request.namespace", `namespaceObject.metadata.labels["b"]`, "request.userInfo.username", "request.operation")
	case k == textLists && w.one(6):
		return w.choose("request.userInfo.groups", `request.userInfo.extra["a"]`)
	case k == texts && w.one(4):
		return w.root() + w.choose(".l[0]", ".j[1]")
	}
	name := w.choose(fieldNames[k]...)
	root := w.root()
	switch w.IntN(10) {
	case 0:
		return root + `["` + name + `"]`
	case 1:
		return root + "[dyn(\"" + name + "\")]"
	case 2:
		if w.depth < 4 {
			return w.deeper(func() string {
				return root + "[" + w.choose(w.text(), "("+w.boolean()+` ? "`+name+`" : "s")`) + "]"
			})
		}
	}
	return root + "." + name
}

func (w *writer) optional(k kind) string {
	name := w.choose(fieldNames[k]...)
	s := w.root()
	switch w.IntN(8) {
	case 0:
		s += ".?o." + name
	case 1:
		s += ".?p.?" + name
	case 2:
		s += ".?e[?0]." + name
	case 3:
		s += `[?"` + name + `"]`
	case 4:
		s += ".e[?" + w.choose("1", "dyn(object.n)", "-1") + "].?" + name
	default:
		s += ".?" + name
	}
	if w.depth > 4 {
		return s
	}
	return w.deeper(func() string {
		switch w.IntN(14) {
		case 0:
			return s + ".or(" + w.optional(k) + ")"
		case 1:
			return "optional.none()"
		case 2:
			return "optional.of(" + w.dyn(w.exactly(k)) + ")"
		case 3:
			return "(" + w.boolean() + " ? " + w.optional(k) + " : " + w.optional(k) + ")"
		case 4, 5:
			from := kind(w.IntN(int(anys) + 1))
			return w.optional(from) + w.loop("optMap", func() string { return w.exactly(k) }, from)
		case 6:
			return w.root() + "[?" + w.text() + "]"
		}
		return s
	})
}

// loop writes the call of a macro with variables, of which outer ones may be hidden.
func (w *writer) loop(macro string, body func() string, of ...kind) string {
	known := len(w.loops)
	defer func() { w.loops = w.loops[:known] }()
	names := []string{w.choose("z", "q"), w.choose("x", "x", "y", "y", "object", "params", "variables")}[2-len(of):]
	for i, n := range names {
		w.loops = append(w.loops, typedName{n, of[i]})
	}
	filter := ""
	if (macro == "map" || macro == "transformList") && w.one(3) {
		filter = w.boolean() + ", "
	}
	return "." + macro + "(" + strings.Join(names, ", ") + ", " + filter + body() + ")"
}

// over writes a list for a loop and returns the kind of its elements.
func (w *writer) over() (string, kind) {
	if w.single && w.one(4) {
		return w.exactly(records), texts
	}
	k := []kind{textLists, intLists, recordLists}[w.IntN(3)]
	return w.exactly(k), elementKind[k]
}

func (w *writer) boolean() string {
	if w.depth > 5 {
		return w.choose("true", "false", "has(object.s)", "has(object.o.s)", "object.n == 1", "object.s == \"a\"")
	}
	return w.deeper(func() string {
		switch w.IntN(19) {
		case 0, 1:
			return "has(" + w.root() + "." + w.choose("s", "n", "o", "e", "a", "l") + ")"
		case 2:
			return "(" + w.exactly(ints) + w.choose(" < ", " <= ", " > ", " >= ") + w.exactly(ints) + ")"
		case 3:
			return "(" + w.exactly(texts) + " in " + w.choose(`["a", "b", ""]`, `[]`, `[dyn("a"), null]`, `[dyn(1), "a", 2.5]`, `{"a": 1, "": 2}`, `["a", "lång", "s"]`) + ")"
		case 4:
			return "(dyn(" + w.any() + ") in " + w.choose(`[1, 2]`, `["a"]`, `[dyn(1), dyn("a"), dyn(2.5), dyn(true)]`, w.exactly(textLists), w.exactly(records)) + ")"
		case 5:
			return w.text() + w.choose(`.matches("^a")`, `.matches("[a-z]+g?$")`, `.contains("a")`, ".contains("+w.text()+")", ".startsWith("+w.text()+")", ".endsWith("+w.text()+")")
		case 6:
			return "has(" + w.choose("("+w.boolean()+" ? "+w.dyn(w.root())+" : "+w.dyn(w.root())+")", w.path(anys), w.optional(records)+".orValue({})", w.exactly(records)) + ".s)"
		case 7:
			return "(" + w.boolean() + w.choose(" == ", " != ") + w.boolean() + ")"
		case 8:
			if len(w.variables) > 0 {
				return "has(" + w.variables[w.IntN(len(w.variables))].name + ")"
			}
			return "has(request.namespace)"
		case 9:
			return "!" + w.boolean()
		case 10:
			return "(" + w.boolean() + w.choose(" && ", " || ") + w.boolean() + ")"
		case 11:
			k := kind(w.IntN(int(anys) + 1))
			return "(" + w.dyn(w.expr(k)) + w.choose(" == ", " != ") + w.dyn(w.expr(k)) + ")"
		case 12:
			return "(" + w.dyn(w.any()) + " == " + w.dyn(w.any()) + ")"
		case 13:
			return "(type(" + w.any() + ") == " + w.choose("map", "list", "string", "int", "double", "bool") + ")"
		case 14:
			k := []kind{texts, ints}[w.IntN(2)]
			return "(" + w.exactly(k) + " in " + w.exactly(listOfKind[k]) + ")"
		case 15, 16:
			over, k := w.over()
			return over + w.loop(w.choose("exists", "all"), w.boolean, k)
		case 17:
			return w.optional(kind(w.IntN(int(anys)+1))) + ".hasValue()"
		}
		return w.path(flags) + " == true"
	})
}

func (w *writer) number() string {
	switch w.IntN(5) {
	case 0:
		return w.exactly([]kind{texts, textLists, intLists, records, recordLists}[w.IntN(5)]) + ".size()"
	case 1:
		return "size(" + w.any() + ")"
	case 2:
		return "(" + w.exactly(ints) + " - " + w.exactly(ints) + ")"
	case 3:
		return "(size(" + w.path(textLists) + ") + " + w.choose("1", w.exactly(ints)) + ")"
	}
	return w.path(ints)
}

func (w *writer) list(k kind) string {
	element := elementKind[k]
	switch w.IntN(7) {
	case 0:
		return "[" + w.dyn(w.expr(element)) + ", " + w.dyn(w.expr(element)) + "]"
	case 1:
		return "(" + w.exactly(k) + " + " + w.exactly(k) + ")"
	case 2:
		return w.exactly(k) + w.loop("filter", w.boolean, element)
	case 3:
		over, from := w.over()
		return over + w.loop("map", func() string { return w.expr(element) }, from)
	case 4:
		over, from := w.over()
		return over + w.loop("transformList", func() string { return w.expr(element) }, ints, from) + w.choose("", "", "", ".reverse()")
	case 5:
		return "[" + w.expr(element) + "]"
	}
	return w.path(k)
}

func (w *writer) text() string {
	if w.depth > 5 {
		return w.literal(texts)
	}
	return w.deeper(func() string {
		switch w.IntN(12) {
		case 0, 1:
			return w.literal(texts)
		case 2, 3, 4:
			return "(" + w.text() + " + " + w.exactly(texts) + ")"
		case 5:
			return "string(" + w.choose(w.exactly(ints), w.boolean(), w.text(), w.any()) + ")"
		case 6:
			return "jsonpatch.escapeKey(" + w.dyn(w.text()) + ")"
		case 7:
			return w.exactly(textLists) + w.choose(".join()", ".join("+w.text()+")")
		case 8:
			return w.text() + ".substring(" + w.choose("0", "1", w.exactly(ints)) + w.choose("", ", 1", ", "+w.exactly(ints)) + ")"
		}
		return w.path(texts)
	})
}

func (w *writer) patch() string {
	if w.depth > 4 {
		return "[" + w.operation() + "]"
	}
	return w.deeper(func() string {
		switch w.IntN(7) {
		case 0:
			return "(" + w.boolean() + " ? " + w.patch() + " : " + w.choose(w.patch(), "[]") + ")"
		case 1:
			return "(" + w.patch() + " + " + w.patch() + ")"
		case 2:
			over, k := w.over()
			return over + w.loop("map", w.operation, k)
		case 3:
			over, k := w.over()
			return over + w.loop("transformList", w.operation, ints, k)
		case 4:
			over, k := w.over()
			return over + w.loop("transformList", w.patch, ints, k) + ".flatten()"
		case 5:
			return "[" + w.operation() + ", " + w.operation() + "]"
		default:
			return "[" + w.operation() + "]"
		}
	})
}

func (w *writer) operation() string {
	op := `JSONPatch{op: "` + w.choose("add", "remove", "replace") + `", path: ` + w.choose(`"/" + `, "") + w.text()
	switch w.IntN(6) {
	case 0, 1, 2:
		op += ", value: " + w.any()
	case 3:
		op += ", from: " + w.text()
	case 4:
		op += ", value: " + w.object("Object.v", 3)
	case 5:
		if !w.one(3) {
			break
		}
		op += w.choose(", value: ", ", value: ", ", ?value: optional.of(") + w.strange()
		if strings.Contains(op, "?value") {
			op += ")"
		}
	}
	return op + "}"
}

// object writes a literal of the type, or of another at times.
func (w *writer) object(name string, depth int) string {
	if w.one(60) {
		name += "x"
	}
	field := func(path string) string {
		if depth > 3 {
			return w.any()
		}
		inner := func() string { return w.object(path, depth+1) }
		switch w.IntN(14) {
		case 0:
			return inner()
		case 1:
			return "[" + inner() + ", " + inner() + "]"
		case 2:
			return `{"k": ` + inner() + "}"
		case 3:
			over, k := w.over()
			return over + w.loop("map", inner, k)
		case 4:
			over, k := w.over()
			return over + w.loop("transformList", inner, ints, k)
		case 5:
			return "(" + w.boolean() + " ? dyn(" + inner() + ") : dyn(" + w.any() + "))"
		case 6:
			return "(" + w.boolean() + " ? " + w.choose(inner(), w.path(anys)) + " : " + w.choose(inner(), w.path(anys)) + ")"
		case 7:
			over, k := w.over()
			return "[" + inner() + "] + " + over + w.loop("map", inner, k)
		case 8:
			over, k := w.over()
			return over + w.loop("map", inner, k) + " + [" + w.choose(inner(), w.any()) + "]"
		default:
			if w.one(12) {
				return w.strange()
			}
			return w.any()
		}
	}
	var fields []string
	for _, f := range []string{"a", "b", "c"}[:1+w.IntN(3)] {
		switch {
		case w.one(4):
			fields = append(fields, "?"+f+": "+w.optional(kind(w.IntN(int(anys)+1))))
		case w.one(6):
			k := kind(w.IntN(int(anys) + 1))
			fields = append(fields, "?"+f+": "+w.optional(k)+w.loop("optMap", func() string { return field(name + "." + f) }, k))
		case w.one(8):
			fields = append(fields, "?"+f+": ("+w.boolean()+" ? optional.of("+field(name+"."+f)+") : optional.none())")
		default:
			fields = append(fields, f+": "+field(name+"."+f))
		}
	}
	return name + "{" + strings.Join(fields, ", ") + "}"
}

// expression writes one of a type that programs have.
func (w *writer) expression(want cel.Want) string {
	w.depth = 1 + w.IntN(5)
	w.patches = want != cel.Bool
	defer func() { w.depth, w.patches = 0, false }()
	switch want {
	case cel.Bool:
		return w.boolean()
	case cel.Object:
		if w.one(4) {
			return "(" + w.boolean() + " ? " + w.object("Object", w.IntN(3)) + " : Object{})"
		}
		return w.object("Object", w.IntN(3))
	}
	return w.patch()
}

// Leaves of data: those of JSON, and what it does not have.
var (
	leaves   = []any{"a", "", "é", "\xff", int64(1), int64(0), 1.0, 2.5, true, nil, int64(-1 << 63), int64(1<<53 + 1), float64(1 << 53)}
	oddities = []any{map[string]any(nil), []any(nil), math.Copysign(0, -1), math.NaN(), math.Inf(1), int32(1), uint64(1), []string{"a"}, json.Number("1")}
)

// value makes up data of a kind.
func (w *writer) value(k kind, depth int) any {
	if w.one(20) {
		return w.odd(depth)
	}
	list := func(of kind) any {
		l := []any{}
		for range w.IntN(3) + w.IntN(2) {
			l = append(l, w.value(of, depth+1))
		}
		return l
	}
	switch k {
	case flags:
		return w.one(2)
	case ints:
		return []any{int64(0), int64(1), int64(2), int64(1), int64(70000), int64(-3)}[w.IntN(6)]
	case texts:
		return w.choose("a", "", "lång", "s", "a/b~c", "a long text of more than 10 code points: ääöå", "n", "a")
	case textLists:
		return list(texts)
	case intLists:
		return list(ints)
	case recordLists:
		return list(records)
	case records:
		return w.record(depth + 1)
	}
	return w.odd(depth)
}

// record makes up a map with a value for most names.
func (w *writer) record(depth int) map[string]any {
	m := map[string]any{}
	if depth > 2 {
		return m
	}
	for k, names := range fieldNames {
		for _, n := range names {
			if w.IntN(8) > 0 && (!w.single || depth == 0 || len(m) == 0) {
				m[n] = w.value(kind(k), depth)
			}
		}
	}
	return m
}

// odd makes up data of no kind. Its records have one key at most.
func (w *writer) odd(depth int) any {
	switch n := w.IntN(10); {
	case n == 0 && depth < 4:
		return map[string]any{w.choose("a", "s", "", "o", "\xff"): w.odd(depth + 1)}
	case n < 3 && depth < 4:
		l := []any{}
		for range w.IntN(4) {
			l = append(l, w.odd(depth+1))
		}
		return l
	case n == 3:
		return oddities[w.IntN(len(oddities))]
	}
	return leaves[w.IntN(len(leaves))]
}

// input makes up what expressions read.
func (w *writer) input() (in *cel.Input, all any) {
	request := map[string]any{"operation": "CREATE", "userInfo": map[string]any{"username": "ann", "groups": []any{"a", "b"}, "extra": map[string]any{"a": []any{"x"}}}}
	if w.IntN(4) > 0 {
		request["namespace"] = w.choose("a", "", "lång", "\xff")
	}
	in = &cel.Input{
		Object: w.record(0), OldObject: w.record(0), Params: w.record(0),
		Namespace: map[string]any{"metadata": map[string]any{"name": "shop", "labels": map[string]any{"a": "x", "b": "y"}}},
		Request:   func() map[string]any { return request },
	}
	if w.one(20) {
		in.Request = nil
	}
	for _, root := range []*map[string]any{&in.Object, &in.OldObject, &in.OldObject, &in.OldObject, &in.Params, &in.Namespace} {
		if w.one(12) {
			*root = nil
		}
	}
	return in, []any{in.Object, in.OldObject, in.Params, in.Namespace, request}
}
