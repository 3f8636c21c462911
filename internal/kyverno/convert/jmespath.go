package convert

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	jmespath "github.com/kyverno/go-jmespath"
)

// maxExpression bounds a JMESPath expression, in bytes.
const maxExpression = 4 << 10

// value is what a JMESPath expression stands for: a place in an object, or anything else.
type value struct {
	path *path
	expr expr
	// optional says that expr is an optional value.
	optional bool
}

// scope is what the variables of a rule are.
type scope struct {
	shape   *shape
	current *value            // @
	names   map[string]value  // element, elementIndex, and the variables of the context
	nested  map[string]string // variables within variables, by the name that stands for each
	refused map[string]string // names that no policy knows, and why
	notes   func(Verdict, string)
	// fallible counts the values that were read and may be missing: an expression with one fails
	// as Kyverno does.
	fallible *int
	// defaulted says that || follows, which makes something of what is missing.
	defaulted bool
}

// with returns a scope with one more name.
func (s *scope) with(name string, v value) *scope {
	out := *s
	out.names = map[string]value{name: v}
	for k, v := range s.names {
		if _, ok := out.names[k]; !ok {
			out.names[k] = v
		}
	}
	return &out
}

func (s *scope) at(v value) *scope {
	out := *s
	out.current = &v
	return &out
}

// query translates a JMESPath expression.
func (s *scope) query(text string) value {
	if len(text) > maxExpression {
		refuse("a JMESPath expression of %d bytes", len(text))
	}
	node, err := jmespath.NewParser().Parse(strings.TrimSpace(text))
	if err != nil {
		refuse("%q is no JMESPath: %v", text, err)
	}
	return s.eval(node)
}

func (s *scope) eval(n jmespath.ASTNode) value {
	switch n.NodeType {
	case jmespath.ASTField:
		return s.field(n.Value.(string))
	case jmespath.ASTCurrentNode, jmespath.ASTIdentity:
		if s.current == nil {
			refuse("@ outside of a list or pipe")
		}
		return *s.current
	case jmespath.ASTSubexpression:
		left := s.eval(n.Children[0])
		if left.path == nil {
			if right := n.Children[1]; right.NodeType == jmespath.ASTField && !left.optional {
				return value{expr: member(left.expr, right.Value.(string), false)}
			}
			refuse("a field of %s", left.expr.text)
		}
		return s.at(left).eval(n.Children[1])
	case jmespath.ASTPipe:
		return s.at(s.eval(n.Children[0])).eval(n.Children[1])
	case jmespath.ASTLiteral:
		return value{expr: literal(ints(n.Value))}
	case jmespath.ASTOrExpression:
		return s.or(n)
	case jmespath.ASTFlatten:
		return s.flatten(n.Children[0])
	case jmespath.ASTProjection:
		return s.project(n.Children[0], n.Children[1])
	case jmespath.ASTFilterProjection:
		return s.filter(n)
	case jmespath.ASTFunctionExpression:
		return s.function(n)
	}
	refuse("%s in JMESPath", strings.TrimPrefix(n.NodeType.String(), "AST"))
	return value{}
}

// ints returns a literal of JSON with integers where they are.
func ints(v any) any {
	if f, ok := v.(float64); ok && f == float64(int64(f)) {
		return int64(f)
	}
	return v
}

// field is a name: of the context, or of the current value.
func (s *scope) field(name string) value {
	if s.current != nil {
		if p := s.current.path; p != nil {
			next := p.to(name)
			if p.root.text == "request" {
				return s.request(next)
			}
			return value{path: &next}
		}
		refuse("a field of %s", s.current.expr.text)
	}
	if inner, ok := s.nested[name]; ok {
		e := s.plain(s.query(inner))
		if e.typ != "string" {
			refuse("a variable within a variable that is not known to be a string: %s", inner)
		}
		return value{expr: e}
	}
	if why, ok := s.refused[name]; ok {
		needs("", "%s", why)
	}
	if v, ok := s.names[name]; ok {
		return v
	}
	if name == "request" {
		return value{path: &path{root: request, prefix: []string{"request"}}}
	}
	switch name {
	case "images":
		refuse("images: Kyverno cuts images into registry, path and tag, which CEL cannot")
	case "serviceAccountName", "serviceAccountNamespace":
		refuse("the variable %s", name)
	}
	refuse("the variable %s is not known", name)
	return value{}
}

// request translates what is below request.
func (s *scope) request(p path) value {
	switch first := p.steps[0]; {
	case first == "object" && len(p.steps) == 1:
		return value{path: &path{root: object}}
	case first == "oldObject" && len(p.steps) == 1:
		refuse("request.oldObject")
	case first == "operation" || first == "namespace" || first == "name":
		return value{expr: atom("request."+first, "string")}
	case len(p.steps) == 2 && first == "userInfo" && p.steps[1] == "username":
		return value{expr: atom("request.userInfo.username", "string")}
	case len(p.steps) == 1 && first == "userInfo":
		return value{path: &p}
	}
	refuse("the variable %s", strings.Join(append([]string{"request"}, p.steps...), "."))
	return value{}
}

// plain returns a value that must be there: Kyverno fails if it is not, and so does CEL.
func (s *scope) plain(v value) expr {
	if v.path != nil {
		if v.path.root.text == "request" {
			refuse("the variable request")
		}
		if _, optional := s.shape.read(*v.path); optional && s.fallible != nil {
			*s.fallible++
		}
		return s.shape.get(*v.path)
	}
	if v.optional {
		refuse("a value that may be missing: %s", v.expr.text)
	}
	return v.expr
}

// orElse returns a value, or other if it is missing.
func (s *scope) orElse(v value, other expr) expr {
	switch {
	case v.path != nil:
		return s.shape.or(*v.path, other)
	case v.optional:
		return call(v.expr, "orValue", other.typ, other)
	}
	return v.expr
}

// or is a || b. JMESPath takes b for everything that is empty.
func (s *scope) or(n jmespath.ASTNode) value {
	inner := *s
	inner.defaulted = true
	left, right := inner.eval(n.Children[0]), n.Children[1]
	if left.expr.text == "request.operation" || left.expr.text == "request.namespace" {
		return left // an admission request has one
	}
	if right.NodeType == jmespath.ASTField && right.Value == "" && left.path != nil {
		// || "" is a field without a name, which is missing.
		e, optional := s.shape.read(*left.path)
		return value{expr: e, optional: optional}
	}
	if right.NodeType != jmespath.ASTLiteral {
		other := s.eval(right)
		if left.path == nil || other.path == nil {
			refuse("|| with %s", other.expr.text)
		}
		// An empty value of the left is rare: the right one is taken for it.
		a, optional := s.shape.read(*left.path)
		b, also := s.shape.read(*other.path)
		if !optional || !also {
			refuse("|| of values that always exist")
		}
		if a.typ == "string" && s.notes != nil {
			s.notes(Differs, fmt.Sprintf("Kyverno takes the right side of || for an empty %s, too", show(left.path.steps)))
		}
		e := call(a, "or", a.typ, b)
		e.from = "\x00" + show(left.path.whole()) + "\x00" + show(other.path.whole()) + "\x00"
		return value{expr: e, optional: true}
	}
	d := literal(ints(right.Value))
	typ := left.expr.typ
	if left.path != nil {
		typ = s.shape.scalar(left.path.whole())
	}
	empty := map[string]string{`""`: "string", "[]": "list", "{}": "map", "0": "int", "false": "bool"}[d.text]
	if d.text == "null" {
		refuse("|| null")
	}
	switch {
	case typ == "" || typ == "untyped" && empty == "string" || typ == empty && (typ != "int"):
		if empty == "" {
			refuse("|| with a value of unknown type")
		}
		return value{expr: s.orElse(left, d)}
	case typ == "int" && d.typ == "int":
		return value{expr: s.orElse(left, d)} // 0 is not empty in JMESPath
	case typ == "string" && d.typ == "string":
		e := s.orElse(left, str(""))
		return value{expr: when(not(equal(e, str(""))), e, d)}
	case typ == "list" && empty == "string":
		return value{expr: s.orElse(left, list())}
	}
	refuse("|| of a %s and %s", typ, d.text)
	return value{}
}

// flatten is x[]: of what is missing it is nothing.
func (s *scope) flatten(n jmespath.ASTNode) value {
	v := s.eval(n)
	if v.path == nil || s.shape.scalar(v.path.whole()) != "list" {
		refuse("[] of what is not known to be a list")
	}
	e, optional := s.shape.read(*v.path)
	e.typ = "list"
	return value{expr: e, optional: optional}
}

// project is x[].y and x[*].y.
func (s *scope) project(left, right jmespath.ASTNode) value {
	if left.NodeType == jmespath.ASTFlatten {
		left = left.Children[0]
	}
	v := s.eval(left)
	if v.path == nil || s.shape.scalar(v.path.whole()) != "list" {
		refuse("a projection of what is not known to be a list")
	}
	if right.NodeType == jmespath.ASTIdentity {
		e, optional := s.shape.read(*v.path)
		e.typ = "list"
		return value{expr: e, optional: optional}
	}
	s.missing(*v.path)
	x, at := s.loop(*v.path)
	next := s.at(value{path: &at}).eval(right)
	if next.path == nil {
		refuse("a projection to %s", next.expr.text)
	}
	items := s.shape.or(*v.path, list())
	if has := s.shape.has(*next.path); has.text != yes.text {
		items = call(items, "filter", "list", atom(x, ""), has)
	}
	return value{expr: call(items, "map", "list", atom(x, ""), s.shape.get(*next.path))}
}

// missing notes what Kyverno makes of a list that may be missing.
func (s *scope) missing(p path) {
	if !s.defaulted && s.shape.has(p).text != yes.text {
		s.note(Better, "Kyverno refuses an object without "+show(p.whole())+"; the policy takes it for an empty list")
	}
}

// loop returns a variable for the elements of a list.
func (s *scope) loop(p path) (name string, at path) {
	name = variableFor(p.steps[len(p.steps)-1])
	return name, path{atom(name, "map"), append(p.whole(), element), nil}
}

var variables = map[string]string{
	"containers": "c", "initContainers": "c", "ephemeralContainers": "c", "volumes": "v", "env": "e", "volumeMounts": "m",
	"imagePullSecrets": "s", "tolerations": "t", "rules": "r", "ports": "p", "tls": "t", "hosts": "h",
}

func variableFor(list string) string {
	if v, ok := variables[list]; ok {
		return v
	}
	return "x"
}

// filter is x[?cond] and x[?cond].y.
func (s *scope) filter(n jmespath.ASTNode) value {
	v := s.eval(n.Children[0])
	if v.path == nil || s.shape.scalar(v.path.whole()) != "list" {
		refuse("a filter of what is not known to be a list")
	}
	s.missing(*v.path)
	x, at := s.loop(*v.path)
	inner := s.at(value{path: &at})
	cond := inner.truth(n.Children[2])
	items := s.shape.or(*v.path, list())
	if right := n.Children[1]; right.NodeType != jmespath.ASTIdentity {
		next := inner.eval(right)
		if next.path == nil {
			refuse("a projection to %s", next.expr.text)
		}
		items = call(items, "filter", "list", atom(x, ""), all(cond, s.shape.has(*next.path)))
		return value{expr: call(items, "map", "list", atom(x, ""), s.shape.get(*next.path))}
	}
	return value{expr: call(items, "filter", "list", atom(x, ""), cond)}
}

// truth is whether JMESPath takes a value for true: what is empty is not.
func (s *scope) truth(n jmespath.ASTNode) expr {
	if n.NodeType == jmespath.ASTNotExpression {
		return not(s.truth(n.Children[0]))
	}
	v := s.eval(n)
	typ := v.expr.typ
	if v.path != nil {
		typ = s.shape.scalar(v.path.whole())
	}
	switch typ {
	case "bool":
		return s.orElse(v, no)
	case "string":
		return not(equal(s.orElse(v, str("")), str("")))
	case "map":
		if v.path != nil {
			// An empty object counts as false.
			if s.notes != nil && !s.shape.neverEmpty(v.path.whole()) {
				s.notes(Differs, fmt.Sprintf("Kyverno takes an empty %s for a missing one", show(v.path.steps)))
			}
			return s.shape.has(*v.path)
		}
	case "list":
		return not(equal(s.orElse(v, list()), list()))
	}
	refuse("a condition of unknown type in JMESPath")
	return no
}

// function translates the functions that CEL has.
func (s *scope) function(n jmespath.ASTNode) value {
	name := n.Value.(string)
	arg := func(i int) value {
		if i >= len(n.Children) {
			refuse("%s() has %d arguments", name, len(n.Children))
		}
		return s.eval(n.Children[i])
	}
	text := func(i int) expr {
		e := s.plain(arg(i))
		if e.typ != "string" {
			refuse("%s() of what is not known to be a string: %s", name, e.text)
		}
		return e
	}
	switch name {
	case "length":
		v := arg(0)
		e := v.expr
		if v.path != nil {
			e = s.shape.get(*v.path)
		} else if v.optional {
			refuse("length() of what may be missing")
		}
		if e.typ != "list" && e.typ != "string" && e.typ != "map" && !strings.HasPrefix(e.typ, "list ") {
			refuse("length() of what is not known to be a list or string")
		}
		return value{expr: call(e, "size", "int")}
	case "contains":
		if len(n.Children) != 2 {
			refuse("contains() has %d arguments", len(n.Children))
		}
		if f := n.Children[0]; f.NodeType == jmespath.ASTFunctionExpression && f.Value == "keys" && n.Children[1].NodeType == jmespath.ASTLiteral {
			key, _ := n.Children[1].Value.(string)
			if len(f.Children) != 1 {
				refuse("keys() has %d arguments", len(f.Children))
			}
			v := s.eval(f.Children[0])
			if v.path == nil {
				refuse("keys() of %s", v.expr.text)
			}
			return value{expr: typedBool(s.shape.has(v.path.to(key)))}
		}
		a := s.plain(arg(0))
		if a.typ == "list" {
			return value{expr: in(s.plain(arg(1)), a)}
		}
		return value{expr: call(text(0), "contains", "bool", text(1))}
	case "starts_with":
		return value{expr: call(text(0), "startsWith", "bool", text(1))}
	case "ends_with":
		return value{expr: call(text(0), "endsWith", "bool", text(1))}
	case "to_upper":
		return value{expr: call(text(0), "upperAscii", "string")}
	case "to_lower":
		return value{expr: call(text(0), "lowerAscii", "string")}
	case "replace_all":
		return value{expr: call(text(0), "replace", "string", text(1), text(2))}
	case "regex_replace_all":
		return value{expr: s.withoutPrefix(n, text(1))}
	case "join":
		items := s.plain(arg(1))
		if items.typ != "list" {
			refuse("join() of what is not known to be a list")
		}
		return value{expr: call(items, "join", "string", text(0))}
	case "keys":
		refuse("keys() as a value")
	}
	refuse("the function %s()", name)
	return value{}
}

var prefixPattern = regexp.MustCompile(`^\^\((.+)\)\?\(\.\*\)\$$`)

// withoutPrefix is regex_replace_all('^(prefix)?(.*)$', text, 'other$2'): a prefix that is
// replaced. Other replacements by a regular expression are not in CEL.
func (s *scope) withoutPrefix(n jmespath.ASTNode, text expr) expr {
	const only = "regex_replace_all() but to replace a prefix"
	if len(n.Children) != 3 || n.Children[0].NodeType != jmespath.ASTLiteral || n.Children[2].NodeType != jmespath.ASTLiteral {
		refuse(only)
	}
	pattern, _ := n.Children[0].Value.(string)
	replacement, _ := n.Children[2].Value.(string)
	m := prefixPattern.FindStringSubmatch(pattern)
	prefix, ok := strings.CutSuffix(replacement, "$2")
	if m == nil || !ok || strings.Contains(prefix, "$") {
		refuse(only)
	}
	re, err := regexp.Compile(pattern)
	if err != nil || re.NumSubexp() != 2 {
		refuse(only)
	}
	found := call(call(text, "find", "string", str("^(?:"+m[1]+")")), "size", "int")
	return sum(str(prefix), call(text, "substring", "string", found))
}

func typedBool(e expr) expr { e.typ = "bool"; return e }

// variable finds {{ … }}.
var variable = regexp.MustCompile(`\{\{((?:\{[^{}]*\}|[^{}])*)\}\}`)

// hasVariable reports whether a text has a variable or a reference.
func hasVariable(s string) bool { return strings.Contains(s, "{{") || strings.Contains(s, "$(") }

// text translates a text with variables. One variable alone keeps its type; between other text
// it must be a string, because other values appear as JSON there.
func (s *scope) text(t string) expr {
	if strings.Contains(t, "$(") && referencePattern.MatchString(t) {
		refuse("the reference %s", referencePattern.FindString(t))
	}
	if strings.Contains(t, `\{{`) {
		refuse("an escaped {{")
	}
	if strings.Count(t, "{{") > strings.Count(t, "}}") {
		refuse("a {{ without its }}: %q", t)
	}
	t = s.unnest(t)
	found := variable.FindAllStringSubmatchIndex(t, -1)
	if len(found) == 0 {
		if strings.Contains(t, "{{") {
			refuse("a variable within a variable: %q", t)
		}
		return str(t)
	}
	if left := variable.ReplaceAllString(t, ""); strings.Contains(left, "{{") {
		refuse("a variable within a variable: %q", t)
	}
	if len(found) == 1 && found[0][0] == 0 && found[0][1] == len(t) {
		return s.plain(s.query(t[found[0][2]:found[0][3]]))
	}
	var parts []expr
	end := 0
	for _, f := range found {
		if f[0] > end {
			parts = append(parts, str(t[end:f[0]]))
		}
		e := s.plain(s.query(t[f[2]:f[3]]))
		switch e.typ {
		case "string":
		case "int":
			e = fn("string", "string", e)
		default:
			refuse("a value in a text that is not known to be a string: %s", e.text)
		}
		parts = append(parts, e)
		end = f[1]
	}
	if end < len(t) {
		parts = append(parts, str(t[end:]))
	}
	e := sum(parts...)
	e.typ = "string"
	return e
}

// unnest gives names to variables that stand as texts within variables: {{ f('{{x}}') }}.
func (s *scope) unnest(t string) string {
	depth := 0
	for i := 0; i+1 < len(t); i++ {
		switch t[i : i+2] {
		case "{{":
			if depth > 0 && t[i-1] == '\'' {
				end := strings.Index(t[i:], "}}'")
				if end < 0 {
					return t
				}
				name := fmt.Sprintf("nested_%d", len(s.nested))
				s.nested[name] = t[i+2 : i+end]
				t = t[:i-1] + name + t[i+end+3:]
				continue
			}
			depth++
			i++
		case "}}":
			depth = max(depth-1, 0)
			i++
		}
	}
	return t
}

// referencePattern finds $(…), which Kyverno resolves against the policy.
var referencePattern = regexp.MustCompile(`(^|[^\\])\$\([^ ]*\)`)

// fill replaces the texts of a value with expressions where they have variables.
func (s *scope) fill(v any) any {
	switch v := v.(type) {
	case string:
		if hasVariable(v) {
			return s.text(v)
		}
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = s.fill(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if hasVariable(k) {
				refuse("a variable in the name of a field: %s", k)
			}
			out[k] = s.fill(e)
		}
		return out
	case json.Number:
		n, _ := v.Int64()
		return n
	}
	return v
}
