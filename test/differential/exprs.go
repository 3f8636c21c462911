package differential

import "fmt"

// exprs writes CEL expressions about one kind. They compile, or nearly always
// do; what they do at run time is another matter.
type exprs struct {
	*gen
	kind      kind
	live      any // the object of the request
	params    bool
	variables []string
}

func (e *exprs) condition() string {
	if e.params && e.chance(15) {
		return e.pick("params != null && params.data.k == 'eA=='", "params.metadata.name == 'pa'", "has(params.list)")
	}
	if e.chance(15) {
		return e.pick(
			"object.nosuch == 1",
			"object.metadata.labels.a == 'x'",
			"oldObject.metadata.name == 'x'",
			"namespaceObject.metadata.name == 'default'",
			"object.spec == oldObject.spec",
			"object.metadata.name.startsWith('x')",
		)
	}
	return e.pick(
		"true",

		"has(object.metadata.labels)",
		"request.operation == 'CREATE'",
		"oldObject == null",
		"!has(object.metadata.annotations) || !('a' in object.metadata.annotations)",
		"size(object.metadata.?labels.orValue({})) < 2",
		"oldObject != object",
		"namespaceObject == null",
		"request.userInfo.username != 'bob' && !('bob' in request.userInfo.groups)",
		"!request.dryRun",
		"request.?subResource.orValue('') == ''",
		"request.kind.version == 'v1' && request.resource.version == request.requestResource.version",
		"has(request.options) && request.options.kind != 'DeleteOptions'",
		"authorizer.group('').resource('pods').namespace(request.namespace).check('list').allowed()",
		"authorizer.requestResource.check('create').allowed() || true",
		"object.metadata.?finalizers.orValue([]).exists(f, f == 'x.io/a')",
		"size(object.metadata) > 1",
	)
}

// variable is an expression for a variable: of any type, and often one that
// fails when it is looked at.
func (e *exprs) variable() string {
	if e.chance(60) {
		return e.scalar("")
	}
	return e.pick(
		"object.metadata",
		"object.?spec.orValue(1)",
		"has(object.spec) ? object.spec : dyn(1)",
		"object.nosuch.deeper",
		"1 / (size(object.metadata.?labels.orValue({})) - 1)",
		"object.metadata.?labels.orValue({}).transformMap(k, v, v + 'x')",
		"['a', 'b', 'c'].filter(x, x != 'b')",
		"{'a': 'x', 'b': 'y'}",
		"[[1, 2], [3]].flatten()",
		"oldObject.metadata.labels",
		"quantity('1.5Gi')",
		"[dyn(object.metadata.name), dyn('z')]",
		"object.metadata.labels.a.matches('^[a-z]+$')",
		"timestamp('2024-01-02T03:04:05Z') + duration('1h')",
	)
}

// scalar is an expression for a value of the given kind; "" leaves the kind
// open.
func (e *exprs) scalar(want string) string {
	if want == "" {
		want = e.pick("string", "int", "bool")
	}
	if len(e.variables) > 0 && e.chance(10) {
		return "variables." + e.variables[e.n(len(e.variables))]
	}
	if e.params && want == "bool" && e.chance(20) {
		return e.pick("(params.data == 'a')", "(1 in params.data)", "params.data[?1].hasValue()", "params.?metadata[?params.metadata].hasValue()")
	}
	if e.params && e.chance(10) {
		return e.pick("params.data.k", "params.metadata.name", "params.?list[?1].orValue('none')", "params.spec.a.b", "string(params.?spec.?a.?f.orValue(1.0))")
	}
	if want == "string" && e.chance(10) {
		// These fail more often than not.
		return e.pick("namespaceObject.metadata.name", "object.metadata.labels.a", "oldObject.metadata.name",
			`namespaceObject.metadata.labels["env"]`, "dyn(namespaceObject).metadata.annotations.note", "string(request.options.kind)")
	}
	switch want {
	case "quantity":
		return e.pick(`"1"`, `"500m"`, `"1Gi"`, `"0.5"`, `string("2")`, "2", "1.5", `"1e3"`)
	case "bytes":
		return e.pick(`""`, `"eA=="`, `"/wD+"`, `"aGVs" + "bG8="`)
	case "string":
		return e.pick(
			`"x"`,
			`"500m"`,
			"object.metadata.name",
			`object.metadata.?labels.?a.orValue("none")`,
			"request.operation.lowerAscii()",
			"string(size(object.metadata.?labels.orValue({})))",
			`(has(object.metadata.labels) ? "with" : "without")`,
			"request.userInfo.username",
			`request.?userInfo.?uid.orValue("nobody")`,
			`request.userInfo.groups.join("-")`,
			`request.?subResource.orValue("main")`,
			`request.kind.kind + "/" + request.resource.resource + "/" + request.requestKind.version`,
			"request.name",
			`object.metadata.name.split("").join("-").replace("x", "y")`,
			`"%s-%d".format([object.metadata.name, 3])`,
			`string(quantity("1Gi").add(quantity("1")).asInteger())`,
			`object.metadata.?annotations[?"x.io/y"].orValue("q")`,
			`string(authorizer.group("apps").resource("deployments").check("list").allowed())`,
			`authorizer.requestResource.check("update").reason()`,
			`string(timestamp("2024-01-01T00:00:00Z"))`,
			`string(duration("90s"))`,
			`["b", "a"].sort()[0]`,
			`object.metadata.?labels.orValue({}).transformList(k, v, k + v).sort().join(",")`,
			`"a/b".findAll("[a-z]").join("")`,
			`string(object.metadata.?finalizers.orValue([]).size())`,
			`url("https://example.com:80/p").getHost()`,
			"request.namespace",
		)
	case "int":
		return e.pick("1", "0", "8080", "size(object.metadata.name)", "2 + 1", "-1", "int('3')", "5000000000", "int(2.7)",
			"[3, 1, 2].sort()[0]", "quantity('2k').asInteger()", "object.metadata.?labels.orValue({}).size()")
	case "bool":
		return e.pick("true", "false", "has(object.metadata.labels)", "oldObject != null", "request.dryRun",
			"sets.contains([1, 2], [1])", "isQuantity('1Gi')", "object.metadata.?labels.?a.hasValue()",
			"(object.metadata == 'a')", "(size(object.metadata.name) in dyn(object.metadata))", "object.metadata.?labels[?dyn(1)].hasValue()",
			"(namespaceObject.metadata.labels == dyn('a'))", "(dyn(request.userInfo.groups) == 1)")
	case "double":
		return e.pick("1.5", "2.0", "1.0 / 3.0", "1e21", "double(3)")
	case "intstr":
		return e.pick("80", `"25%"`)
	}
	return "null"
}

// piece is a part of an object that something else has.
func (e *exprs) piece() string {
	return e.pick("object.metadata.labels", "object.metadata", "object.spec", "oldObject.spec", "params.data", "params.list", "params.spec.l",
		"params.spec", "request.userInfo.groups", "request.userInfo.extra", "namespaceObject.metadata.labels", "request.options",
		"object.metadata.ownerReferences", "object.spec.containers", "object.spec.containers[0]", "oldObject.metadata.labels")
}

// odd is now and then a value of a kind that does not belong here.
func (e *exprs) odd() (string, bool) {
	if !e.chance(2) {
		return "", false
	}
	if p := e.piece(); e.chance(20) && (e.params || p[:6] != "params") {
		return p, true
	}
	return e.pick(`"odd"`, "3", "2.5", "true", "null", "[1, 2]", `{"k": "v"}`, "3u", "b'xx'", "duration('1s')",
		"optional.none()", "optional.of('o')", "object.nosuch", "5.0", "9007199254740993", "[]", "{}", "[[1], [2]]",
		`{"k": {"l": "m"}}`, `[{"name": "a"}]`, "quantity('1')", "type(1)", "timestamp('2024-01-01T00:00:00Z')", "{1: 2}", "-1.0 / 0.0",
		"Object{}", "Object.x{y: 1}", "ip('10.0.0.1')", "[null]", `[Object.x{name: "a"}]`, "0.0 / 0.0", "object[object.metadata]", "object[[object.kind]]",
		"google.protobuf.StringValue{value: object.metadata.name}", "google.protobuf.Int64Value{?value: object.?spec.?replicas}", "google.protobuf.BoolValue{}",
		`google.protobuf.Struct{fields: {"s": google.protobuf.Value{string_value: object.metadata.name}}}`, "google.protobuf.ListValue{}",
		"google.protobuf.Duration{seconds: 1}", `JSONPatch{op: "add", path: object.metadata.name}`), true
}

func (e *exprs) list(n int, item func() string) []string {
	var out []string
	for range n {
		out = append(out, item())
	}
	return out
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }
