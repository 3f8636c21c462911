package convert

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	jmespath "github.com/kyverno/go-jmespath"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mapd-project/mapd/internal/celgen"
)

// maxExpression bounds a JMESPath expression, in bytes.
const maxExpression = 4 << 10

// value is the CEL equivalent of a JMESPath expression: path for a value in an object, images,
// object or members if one of these is set, and expr otherwise.
type value struct {
	path *path
	expr expr
	// optional: expr is an optional value. must is then the same value for places where it is
	// known to exist; it has no text if that cannot be written.
	optional bool
	must     expr
	// either has, for an expr that chooses between values (a || b), the paths of these values as
	// show prints them.
	either []string
	// elem is the type of the elements if expr is a list, and place the path of the elements in
	// an object; nil if they are not part of an object.
	elem  string
	place []string
	// config is the ConfigMap into which path points.
	config *configMap
	// images is set for a value within the variable images.
	images *images
	// object is set for an object that an expression builds.
	object *assembled
	// quantity: expr is a quantity by the schema, or its default. sure: the default is known to be
	// a quantity, too.
	quantity, sure bool
	// members are set for an object of constants.
	members map[string]any
}

// scope has the names that the expressions of a rule can use, and records what they use.
type scope struct {
	shape   *shape
	current *value            // @
	names   map[string]value  // element, elementIndex and the variables of the context
	nested  map[string]string // expressions of nested variables, by the name that replaces each
	refused map[string]string // names that no policy can provide, with the reason
	notes   func(Verdict, effect, string)
	// fallible collects the values that are read and may be missing, "" if their path is not
	// known. If one of them is missing, the expression fails, as in Kyverno.
	fallible *[]string
	// params is set to the ConfigMap that the rule reads.
	params **configMap
	// usesIndex is set when a rule reads or writes an element by its index in a list.
	usesIndex *bool
	// usesImages is set when a rule reads the variable images.
	usesImages *bool
	// updates: the rule runs for updates only, so there is an old object.
	updates bool
	// defaulted: the expression is the left side of ||, which provides a value if it is missing.
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

// eval translates a part of an expression. The CEL for a part may be repeated in that of the
// whole, so each part is bounded, not only the whole.
func (s *scope) eval(n jmespath.ASTNode) value {
	v := s.part(n)
	if size := max(len(v.expr.Text), len(v.must.Text)); size > maxCEL {
		refuse("an expression of %d bytes", size)
	}
	return v
}

func (s *scope) part(n jmespath.ASTNode) value {
	switch n.NodeType {
	case jmespath.ASTField:
		return s.field(n.Value.(string))
	case jmespath.ASTCurrentNode, jmespath.ASTIdentity:
		if s.current == nil {
			refuse("@ outside of a list or pipe")
		}
		return *s.current
	case jmespath.ASTSubexpression:
		if f := n.Children[0]; f.NodeType == jmespath.ASTFunctionExpression && f.Value == "parse_yaml" {
			return s.lineOf(f, n.Children[1])
		}
		left := s.eval(n.Children[0])
		if left.images != nil {
			return s.at(left).eval(n.Children[1])
		}
		if left.members != nil {
			return s.memberOf(left.members, n.Children[1])
		}
		if left.path == nil {
			if right := n.Children[1]; right.NodeType == jmespath.ASTField && !left.optional {
				return value{expr: member(left.expr, right.Value.(string), false)}
			}
			refuse("a field of %s", left.expr.Text)
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
	case jmespath.ASTComparator, jmespath.ASTNotExpression:
		return value{expr: typedBool(s.truth(n))}
	case jmespath.ASTAndExpression:
		if decides(n) {
			return value{expr: typedBool(s.truth(n))}
		}
	case jmespath.ASTProjection:
		return s.project(n.Children[0], n.Children[1])
	case jmespath.ASTFilterProjection:
		return s.filter(n)
	case jmespath.ASTValueProjection:
		return s.projectValues(n)
	case jmespath.ASTIndexExpression:
		return s.index(s.eval(n.Children[0]), n.Children[1])
	case jmespath.ASTMultiSelectHash:
		return s.members(n)
	case jmespath.ASTMultiSelectList:
		refuse("a list of several fields, but as [a, b][]")
	case jmespath.ASTFunctionExpression:
		return s.function(n)
	}
	refuse("%s in JMESPath", strings.TrimPrefix(n.NodeType.String(), "AST"))
	return value{}
}

// ints returns a JSON value in which floats that are whole numbers are integers.
func ints(v any) any {
	if f, ok := v.(float64); ok && f == float64(int64(f)) {
		return int64(f)
	}
	return v
}

// field translates a name: of a variable, or of a field of the current value.
func (s *scope) field(name string) value {
	if s.current != nil {
		if m := s.current.members; m != nil {
			return s.memberOf(m, jmespath.ASTNode{NodeType: jmespath.ASTField, Value: name})
		}
		if at := s.current.images; at != nil {
			return s.image(*at, name)
		}
		if p := s.current.path; p != nil {
			if inner, ok := s.nested[name]; ok {
				s.plainName(name)
				return s.member(*p, inner)
			}
			next := p.to(name)
			if p.root.Text == "request" {
				return s.request(next)
			}
			return value{path: &next}
		}
		refuse("a field of %s", s.current.expr.Text)
	}
	if inner, ok := s.nested[name]; ok {
		e := s.plain(s.query(inner))
		if e.Type != "string" {
			refuse("a variable within a variable that is not known to be a string: %s", inner)
		}
		return value{expr: e}
	}
	if why, ok := s.refused[name]; ok {
		needs("", "%s", why)
	}
	if v, ok := s.names[name]; ok {
		if v.config != nil && s.params != nil {
			s.reads(*v.config)
		}
		return v
	}
	if name == "request" {
		return value{path: &path{root: request, prefix: []string{"request"}}}
	}
	switch name {
	case "images":
		if s.usesImages != nil {
			*s.usesImages = true
		}
		return value{images: &images{}}
	case "serviceAccountName", "serviceAccountNamespace":
		return s.serviceAccount(name)
	}
	refuse("the variable %s is not known", name)
	return value{}
}

// reads records that the rule reads a ConfigMap, which becomes the parameter of the policy.
func (s *scope) reads(c configMap) {
	if *s.params != nil && **s.params != c {
		refuseFor("put what is in them into one ConfigMap", "two ConfigMaps: a policy has one parameter")
	}
	*s.params = &c
}

// serviceAccount returns the name or the namespace of the service account that makes the request;
// "" for other users.
func (s *scope) serviceAccount(name string) value {
	s.note(Better, takesUsers, "Kyverno takes any user with a long name for a service account; the policy only system:serviceaccount:…")
	user := atom("request.userInfo.username", "string")
	at := "[3]"
	if name == "serviceAccountNamespace" {
		at = "[2]"
	}
	e := when(call(user, "startsWith", "bool", str("system:serviceaccount:")), atom(call(user, "split", "list", str(":")).Text+at, "string"), str(""))
	e.Type = "string"
	return value{expr: e}
}

// member translates the selection of a member of an object to which a nested variable gives the
// name.
func (s *scope) member(p path, inner string) value {
	outside := *s
	outside.current = nil
	key := outside.plain(outside.query(inner))
	typ := s.shape.scalar(p.to("x").whole())
	if key.Type != "string" || !s.shape.inMap(p.whole()) || typ == "" {
		refuse("the member {{%s}} of %s", inner, show(p.whole()))
	}
	e, _ := s.shape.read(p)
	return value{
		expr: atom(e.Within(celgen.BindMember)+"[?"+key.Text+"]", typ), optional: true,
		must: atom(s.shape.get(p).Within(celgen.BindMember)+"["+key.Text+"]", typ),
	}
}

// request translates what is below request.
func (s *scope) request(p path) value {
	switch first := p.steps[0]; {
	case first == "object" && len(p.steps) == 1:
		return value{path: &path{root: object}}
	case first == "oldObject" && len(p.steps) == 1:
		old := path{root: atom("oldObject", "map"), prefix: []string{oldRoot}}
		if !s.updates {
			old.may = call(atom("optional", ""), "ofNonZeroValue", "", old.root) // oldObject is null for CREATE
		}
		return value{path: &old}
	case first == "operation" || first == "namespace" || first == "name":
		return value{expr: atom("request."+first, "string")}
	case first == "kind" || first == "resource":
		if len(p.steps) == 1 {
			return value{path: &p}
		}
		if len(p.steps) == 2 && (p.steps[1] == "group" || p.steps[1] == "version" || p.steps[1] == first) {
			return value{expr: atom("request."+first+"."+p.steps[1], "string")}
		}
	case len(p.steps) == 2 && first == "userInfo" && p.steps[1] == "username":
		return value{expr: atom("request.userInfo.username", "string")}
	case len(p.steps) == 2 && first == "userInfo" && p.steps[1] == "groups":
		return value{expr: atom("request.userInfo.groups", "list"), elem: "string"}
	case len(p.steps) == 1 && first == "userInfo":
		return value{path: &p}
	}
	refuse("the variable %s", strings.Join(append([]string{"request"}, p.steps...), "."))
	return value{}
}

// plain returns a value that has to exist: Kyverno fails if it does not, and so does the CEL
// expression.
func (s *scope) plain(v value) expr {
	if v.path != nil {
		if v.path.root.Text == "request" {
			refuse("the variable request")
		}
		if v.path.may.Text != "" && v.path.prefix[0] == oldRoot {
			refuseFor("operations: [UPDATE], or a default with ||", "request.oldObject where an object is created, of which Kyverno takes all fields for null")
		}
		if _, optional := s.shape.read(*v.path); optional && s.fallible != nil {
			*s.fallible = append(*s.fallible, show(v.path.whole()))
		}
		return s.shape.get(*v.path)
	}
	switch {
	case v.optional && v.must.Text != "":
		if s.fallible != nil {
			*s.fallible = append(*s.fallible, show(v.place))
		}
		return v.must
	case v.optional:
		refuse("a value that may be missing: %s", v.expr.Text)
	case v.images != nil:
		refuse("the variable images as a whole")
	case v.members != nil:
		return literal(v.members)
	case v.object != nil:
		refuse("an object that an expression makes, but as the whole of a field or in to_string()")
	}
	return v.expr
}

// orElse returns a value, or other if it is missing.
func (s *scope) orElse(v value, other expr) expr {
	switch {
	case v.path != nil:
		return s.shape.or(*v.path, other)
	case v.optional:
		return call(v.expr, "orValue", other.Type, other)
	}
	return v.expr
}

// or translates a || b. JMESPath returns b if a is empty.
func (s *scope) or(n jmespath.ASTNode) value {
	if decides(n) {
		return value{expr: typedBool(s.truth(n))}
	}
	if a := n.Children[0]; a.NodeType == jmespath.ASTAndExpression && decides(a.Children[0]) && a.Children[1].NodeType == jmespath.ASTLiteral {
		// cond && 'a' || 'b'
		then := literal(ints(a.Children[1].Value))
		otherwise := s.plain(s.eval(n.Children[1]))
		if then.Text == `""` || then.Type != otherwise.Type || then.Type != "string" && then.Type != "int" {
			refuse("&& and || that choose between a %s and a %s", then.Type, otherwise.Type)
		}
		return value{expr: celgen.When(s.truth(a.Children[0]), then, otherwise).As(then.Type)}
	}
	inner := *s
	inner.defaulted = true
	left, right := inner.eval(n.Children[0]), n.Children[1]
	if left.expr.Text == "request.operation" || left.expr.Text == "request.namespace" {
		return left // every admission request has one
	}
	if right.NodeType == jmespath.ASTField && right.Value == "" && left.path != nil {
		// || "" for a field: JMESPath takes "" for a field without a name, which is missing.
		e, optional := s.shape.read(*left.path)
		return value{expr: e, optional: optional}
	}
	if right.NodeType != jmespath.ASTLiteral {
		other := s.eval(right)
		if left.path == nil || other.path == nil {
			refuse("|| with %s", other.expr.Text)
		}
		// If the left value is empty, JMESPath returns the right one. That is rare, and noted.
		a, optional := s.shape.read(*left.path)
		b, also := s.shape.read(*other.path)
		if !optional || !also {
			refuse("|| of values that always exist")
		}
		if a.Type == "string" && s.notes != nil {
			s.notes(Differs, finds(show(left.path.whole()), isBlank), fmt.Sprintf("Kyverno takes the right side of || for an empty %s, too", show(left.path.steps)))
		}
		e := call(a, "or", a.Type, b)
		return value{expr: e, optional: true, must: call(e, "value", a.Type), either: []string{show(left.path.whole()), show(other.path.whole())}}
	}
	d := literal(ints(right.Value))
	typ := left.expr.Type
	if left.path != nil {
		typ = s.shape.scalar(left.path.whole())
	}
	empty := map[string]string{`""`: "string", "[]": "list", "{}": "map", "0": "int", "false": "bool"}[d.Text]
	if d.Text == "null" {
		refuse("|| null")
	}
	switch {
	case typ == "" || typ == "untyped" && (empty == "string" || d.Type == "string" && s.quantity(left.path)) || typ == empty && (typ != "int"):
		if empty == "" && typ != "untyped" {
			refuse("|| with a value of unknown type")
		}
		e := s.orElse(left, d)
		out := value{expr: e, elem: left.elem, place: left.place, quantity: s.quantity(left.path), sure: isQuantity(d)}
		if left.path != nil && typ == "list" {
			out.place = append(left.path.whole(), element)
			out.elem = s.shape.scalar(out.place)
		}
		return out
	case typ == "int" && d.Type == "int":
		return value{expr: s.orElse(left, d)} // JMESPath takes 0 for not empty
	case typ == "string" && d.Type == "string":
		e := s.orElse(left, str(""))
		return value{expr: when(not(equal(e, str(""))), e, d)}
	case typ == "list" && empty == "string":
		return value{expr: s.orElse(left, list())}
	}
	refuse("|| of a %s and %s", typ, d.Text)
	return value{}
}

// flatten translates x[]: nothing if x is missing, and a single list if x is a list of lists.
func (s *scope) flatten(n jmespath.ASTNode) value {
	v := s.flattened(n)
	if v.path == nil {
		return v
	}
	e, optional := s.shape.read(*v.path)
	e.Type = "list"
	at := append(v.path.whole(), element)
	return value{expr: e, optional: optional, elem: s.shape.scalar(at), place: at}
}

// flattened is flatten, except that it returns the path of a list that is part of the object.
func (s *scope) flattened(n jmespath.ASTNode) value {
	if n.NodeType == jmespath.ASTSubexpression && n.Children[1].NodeType == jmespath.ASTMultiSelectList {
		return s.several(n)
	}
	v := s.eval(n)
	switch {
	case v.path != nil && s.shape.scalar(v.path.whole()) == "list":
	case v.path == nil && v.expr.Type == "list" && v.elem == "list" && v.place != nil:
		at := append(slices.Clone(v.place), element)
		return value{expr: call(v.expr, "flatten", "list"), elem: s.shape.scalar(at), place: at}
	case v.path == nil && v.expr.Type == "list" && v.elem != "" && v.elem != "list":
	default:
		refuse("[] of what is not known to be a list")
	}
	return v
}

// several translates x.[a, b][]: the concatenation of lists.
func (s *scope) several(n jmespath.ASTNode) value {
	from := s.eval(n.Children[0])
	var lists []expr
	out := value{elem: "map"}
	for _, field := range n.Children[1].Children {
		v := s.at(from).eval(field)
		if v.path == nil || s.shape.scalar(v.path.whole()) != "list" {
			refuse("[] of what is not known to be lists")
		}
		lists = append(lists, s.shape.or(*v.path, list()))
		if at := append(v.path.whole(), element); out.place == nil {
			out.place, out.elem = at, s.shape.scalar(at)
		}
	}
	out.expr = celgen.Joined("+", celgen.BindSum, lists...).As("list")
	return out
}

// project translates x[].y and x[*].y.
func (s *scope) project(left, right jmespath.ASTNode) value {
	v := value{}
	if left.NodeType == jmespath.ASTFlatten {
		v = s.flattened(left.Children[0])
	} else {
		v = s.eval(left)
	}
	return s.items(v, "a projection").to(s, right, yes)
}

// items is a list whose elements an expression visits.
type items struct {
	list expr
	name string // of the loop variable
	at   value  // the element
	path *path  // of the list, nil if the list is computed
}

// items returns the elements of v for a projection or filter; what names the operation in
// refusals.
func (s *scope) items(v value, what string) items {
	if v.path == nil {
		if v.expr.Type != "list" || v.elem == "" || v.optional {
			refuse("%s of what is not known to be a list", what)
		}
		if v.place != nil {
			x, at := s.loopOver(v.place)
			return items{v.expr, x, value{path: &at}, nil}
		}
		x := atom(elementOf(v.expr), v.elem)
		return items{v.expr, x.Text, value{expr: x}, nil}
	}
	if s.shape.scalar(v.path.whole()) != "list" {
		refuse("%s of what is not known to be a list", what)
	}
	x, at := s.loop(*v.path)
	return items{s.shape.or(*v.path, list()), x, value{path: &at}, v.path}
}

// elementOf returns a name for a loop variable that does not occur in the text of the list.
func elementOf(list expr) string {
	for _, name := range []string{"x", "y", "z"} {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(list.Text) {
			return name
		}
	}
	refuse("a list of a list of a list")
	return ""
}

// to translates right for each element for which cond holds.
func (l items) to(s *scope, right jmespath.ASTNode, cond expr) value {
	if right.NodeType == jmespath.ASTIdentity {
		out := l.list
		if cond.Text == yes.Text && l.path != nil {
			e, optional := s.shape.read(*l.path)
			e.Type = "list"
			return value{expr: e, optional: optional, elem: s.elem(l), place: s.place(l)}
		}
		if l.path != nil {
			s.missing(*l.path)
		}
		if cond.Text != yes.Text {
			out = call(out, "filter", "list", atom(l.name, ""), cond)
		}
		return value{expr: out, elem: s.elem(l), place: s.place(l)}
	}
	if l.path != nil {
		s.missing(*l.path)
	}
	next := s.at(l.at).eval(right)
	out := l.list
	if next.path == nil {
		e := s.plain(next)
		if next.optional || e.Type != "string" && e.Type != "int" && e.Type != "bool" {
			refuse("a projection to %s", next.expr.Text)
		}
		if cond.Text != yes.Text {
			out = call(out, "filter", "list", atom(l.name, ""), cond)
		}
		return value{expr: call(out, "map", "list", atom(l.name, ""), e), elem: e.Type}
	}
	if cond := all(cond, s.shape.has(*next.path)); cond.Text != yes.Text {
		out = call(out, "filter", "list", atom(l.name, ""), cond)
	}
	return value{expr: call(out, "map", "list", atom(l.name, ""), s.shape.get(*next.path)), elem: s.shape.scalar(next.path.whole()), place: next.path.whole()}
}

// place returns the path of the elements of a list in an object.
func (s *scope) place(l items) []string {
	if l.at.path == nil {
		return nil
	}
	return l.at.path.whole()
}

// elem returns the type of the elements of a list.
func (s *scope) elem(l items) string {
	if l.at.path == nil {
		return l.at.expr.Type
	}
	return s.shape.scalar(l.at.path.whole())
}

// byIndex records that the rule depends on the order of a list.
func (s *scope) byIndex() {
	if s.usesIndex != nil {
		*s.usesIndex = true
	}
}

// index translates x[n]. In JMESPath a negative n counts from the end, and an index outside of
// the list returns nothing.
func (s *scope) index(v value, n jmespath.ASTNode) value {
	if n.NodeType != jmespath.ASTIndex {
		refuse("%s in JMESPath", strings.TrimPrefix(n.NodeType.String(), "AST"))
	}
	s.byIndex()
	l, i := s.items(v, "an element"), n.Value.(int)
	must, may := l.list, l.list
	if l.path != nil && i >= 0 {
		must = s.shape.get(*l.path)
		may, _ = s.shape.read(*l.path)
	}
	at := strconv.Itoa(i)
	if i < 0 {
		at = relation(call(l.list, "size", "int"), "-", atom(at[1:], "int")).Text
	}
	typ := s.elem(l)
	must = atom(must.Within(celgen.BindMember)+"["+at+"]", typ)
	may = atom(may.Within(celgen.BindMember)+"[?"+at+"]", typ)
	switch place := s.place(l); {
	case typ == "string" || typ == "int" || typ == "bool":
		return value{expr: may, optional: true, must: must}
	case place == nil:
		refuse("an element of a list of objects by its index")
		return value{}
	case l.path != nil && i == 0 && s.neverNone(*l.path):
		return value{path: &path{root: must, prefix: place}}
	default:
		return value{path: &path{root: must, prefix: place, may: may}}
	}
}

// missing notes how Kyverno treats a list that may be missing.
func (s *scope) missing(p path) {
	if !s.defaulted && s.shape.has(p).Text != yes.Text {
		s.note(Better, refusesWithout(show(p.whole())), "Kyverno refuses an object without "+show(p.whole())+"; the policy takes it for an empty list")
	}
}

// loop returns a variable for the elements of a list.
func (s *scope) loop(p path) (name string, at path) { return s.loopOver(append(p.whole(), element)) }

// loopOver is loop for elements at a path. The variable has a name that no loop around it uses.
func (s *scope) loopOver(place []string) (name string, at path) {
	for _, step := range place {
		if step != element {
			name = variableFor(step)
		}
	}
	for _, v := range s.names {
		if v.path != nil && (v.path.root.Text == name || strings.HasPrefix(v.path.root.Text, name+".")) {
			name += "2"
			break
		}
	}
	return name, path{root: atom(name, "map"), prefix: place}
}

// neverNone reports whether a list has at least one element in every object.
func (s *scope) neverNone(p path) bool {
	return s.shape.builtin && p.may.Text == "" && len(p.steps) > 0 && p.steps[len(p.steps)-1] == "containers" && s.shape.has(p).Text == yes.Text
}

var variables = map[string]string{
	"containers": "c", "initContainers": "c", "ephemeralContainers": "c", "volumes": "v", "env": "e", "volumeMounts": "m",
	"imagePullSecrets": "s", "tolerations": "t", "rules": "r", "ports": "p", "tls": "t", "hosts": "h", "paths": "p",
}

func variableFor(list string) string {
	if v, ok := variables[list]; ok {
		return v
	}
	return "x"
}

// filter translates x[?cond] and x[?cond].y.
func (s *scope) filter(n jmespath.ASTNode) value {
	l := s.items(s.eval(n.Children[0]), "a filter")
	if l.path != nil {
		s.missing(*l.path)
	}
	return l.to(s, n.Children[1], s.at(l.at).truth(n.Children[2]))
}

// function translates calls of the functions that have a CEL equivalent.
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
		if e.Type != "string" {
			refuse("%s() of what is not known to be a string: %s", name, e.Text)
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
		if e.Type != "list" && e.Type != "string" && e.Type != "map" && !strings.HasPrefix(e.Type, "list(") {
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
				refuse("keys() of %s", v.expr.Text)
			}
			if _, optional := s.shape.read(*v.path); optional {
				s.note(Better, refusesWithout(show(v.path.whole())), "Kyverno refuses an object without "+show(v.path.whole())+"; the policy takes it for one without "+key)
			}
			return value{expr: typedBool(s.shape.has(v.path.to(key)))}
		}
		a := s.plain(arg(0))
		if a.Type == "list" {
			return value{expr: in(s.plain(arg(1)), a)}
		}
		return value{expr: call(text(0), "contains", "bool", text(1))}
	case "starts_with":
		return value{expr: call(text(0), "startsWith", "bool", text(1))}
	case "ends_with":
		return value{expr: call(text(0), "endsWith", "bool", text(1))}
	case "to_upper", "to_lower":
		s.note(Differs, finds("", hasOtherLetters), "Kyverno's "+name+"() changes the case of all letters, the policy that of A to Z")
		return value{expr: call(text(0), map[string]string{"to_upper": "upperAscii", "to_lower": "lowerAscii"}[name], "string")}
	case "replace_all":
		return value{expr: call(text(0), "replace", "string", text(1), text(2))}
	case "regex_replace_all":
		return value{expr: s.withoutPrefix(n, text(1))}
	case "split":
		return value{expr: call(text(0), "split", "list", text(1)), elem: "string"}
	case "replace":
		n := s.plain(arg(3))
		if n.Type != "int" {
			refuse("replace() whose number is not known to be one")
		}
		return value{expr: call(text(0), "replace", "string", text(1), text(2), n)}
	case "trim_prefix":
		t, prefix := text(0), text(1)
		e := when(call(t, "startsWith", "bool", prefix), call(t, "substring", "string", call(prefix, "size", "int")), t)
		e.Type = "string"
		return value{expr: e}
	case "regex_match":
		pattern := text(0)
		if re, ok := celgen.Unquoted(pattern); !ok || !validPattern(re) {
			refuse("regex_match() with a pattern that is no constant")
		}
		return value{expr: call(text(1), "matches", "bool", pattern)}
	case "pattern_match":
		pattern, ok := celgen.Unquoted(text(0))
		if !ok {
			refuse("pattern_match() with a pattern that is no constant")
		}
		if !strings.ContainsAny(pattern, "*?") {
			return value{expr: equal(text(1), str(pattern))}
		}
		return value{expr: glob(text(1), pattern)}
	case "equal_fold":
		s.note(Differs, decidesBy("", hasOtherLetters), "Kyverno's equal_fold() ignores the case of all letters, the policy that of A to Z")
		return value{expr: equal(call(text(0), "lowerAscii", "string"), call(text(1), "lowerAscii", "string"))}
	case "add", "subtract", "multiply":
		a, b := s.plain(arg(0)), s.plain(arg(1))
		if a.Type != "int" || b.Type != "int" {
			refuse("%s() of what are not known to be integers: Kyverno also computes with quantities and durations", name)
		}
		sign := map[string]string{"add": "+", "subtract": "-", "multiply": "*"}[name]
		return value{expr: expr{Text: a.Within(celgen.BindUnary) + " " + sign + " " + b.Within(celgen.BindUnary), Bind: celgen.BindSum, Type: "int"}}
	case "truncate":
		t, size := text(0), s.plain(arg(1))
		if size.Type != "int" || strings.HasPrefix(size.Text, "-") {
			refuse("truncate() to what is not known to be a number")
		}
		e := when(relation(call(t, "size", "int"), ">", size), call(t, "substring", "string", atom("0", "int"), size), t)
		e.Type = "string"
		return value{expr: e}
	case "trim":
		if set, ok := celgen.Unquoted(text(1)); !ok || set != " " {
			refuse("trim() of other characters than spaces")
		}
		s.note(Differs, finds("", hasOtherSpace), "Kyverno's trim() takes away spaces; the policy other white space, too")
		return value{expr: call(text(0), "trim", "string")}
	case "to_number":
		v := arg(0)
		if e := s.plain(v); e.Type == "int" {
			return value{expr: e}
		}
		return value{expr: fn("double", "number", text(0))}
	case "sort", "reverse":
		v := arg(0)
		e := s.plain(v)
		if e.Type != "list" || name == "sort" && s.elemOf(v) != "string" && s.elemOf(v) != "int" {
			refuse("%s() of what is not known to be a list of texts or numbers", name)
		}
		out := value{expr: call(e, name, "list"), elem: s.elemOf(v), place: v.place}
		if v.path != nil {
			out.place = append(v.path.whole(), element)
		}
		return out
	case "max", "min", "sum":
		v := arg(0)
		e := s.plain(v)
		if e.Type != "list" || s.elemOf(v) != "int" {
			refuse("%s() of what is not known to be a list of integers", name)
		}
		return value{expr: call(e, name, "int")}
	case "not_null":
		v := arg(0)
		for i := 1; i < len(n.Children); i++ {
			other := s.plain(arg(i))
			if v.path == nil && !v.optional || other.Type == "" {
				refuse("not_null() of %s", v.expr.Text)
			}
			v = value{expr: s.orElse(v, other)}
		}
		return v
	case "to_string":
		v := arg(0)
		if v.object == nil && s.plain(v).Type == "string" {
			return v
		}
		return value{expr: s.json(v)}
	case "merge":
		if len(n.Children) != 2 {
			refuse("merge() of %d objects", len(n.Children))
		}
		return s.merged(arg(0), arg(1))
	case "join":
		items := s.plain(arg(1))
		if items.Type != "list" {
			refuse("join() of what is not known to be a list")
		}
		return value{expr: call(items, "join", "string", text(0))}
	case "keys":
		v := arg(0)
		if v.path == nil || s.shape.scalar(v.path.whole()) != "map" || !s.shape.inMap(v.path.whole()) {
			refuse("keys() of what is no labels or annotations, as a value")
		}
		return value{expr: call(s.plain(v), "map", "list", atom("k", ""), atom("k", "")), elem: "string"}
	}
	refuse("the function %s() has no translation", name)
	return value{}
}

// lineOf translates parse_yaml(x).field: CEL cannot parse YAML, so it looks for the line of the
// field. People keep such texts in ConfigMaps.
func (s *scope) lineOf(parse, field jmespath.ASTNode) value {
	name, _ := field.Value.(string)
	if field.NodeType != jmespath.ASTField || !isField(name) || len(parse.Children) != 1 {
		refuse("parse_yaml(), but for one field of its own")
	}
	text := s.plain(s.eval(parse.Children[0]))
	if text.Type != "string" {
		refuse("parse_yaml() of what is not known to be a string: %s", text.Text)
	}
	s.note(Differs, effect{does: writes | refuses | denies}, fmt.Sprintf("Kyverno reads YAML; the policy takes the text behind %q at the beginning of a line, with whatever quotes or comments are there", name+": "))
	line := call(text, "find", "string", str("(?m)^"+name+": .+$"))
	return value{expr: call(line, "substring", "string", atom(strconv.Itoa(len(name)+2), "int"))}
}

var prefixPattern = regexp.MustCompile(`^\^\((.+)\)\?\(\.\*\)\$$`)

// withoutPrefix translates regex_replace_all('^(prefix)?(.*)$', text, 'other$2'), which replaces
// a prefix. CEL has no equivalent for other replacements by a regular expression.
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

func validPattern(re string) bool {
	_, err := regexp.Compile(re)
	return err == nil
}

func typedBool(e expr) expr { e.Type = "bool"; return e }

// variable finds {{ … }}.
var variable = regexp.MustCompile(`\{\{((?:\{[^{}]*\}|[^{}])*)\}\}`)

// hasVariable reports whether a text has a variable or a reference.
func hasVariable(s string) bool { return strings.Contains(s, "{{") || strings.Contains(s, "$(") }

// text translates a text with variables. A single variable without other text keeps its type.
// Within other text it has to be a string, because Kyverno writes other values as JSON there.
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
		switch e.Type {
		case "string":
		case "int":
			e = fn("string", "string", e)
		case "":
			if s.shape.builtin {
				refuse("a value in a text that is not known to be a string: %s", e.Text)
			}
			s.note(Differs, effect{does: denies, says: "no such overload"}, "Kyverno writes a list or an object in a text as JSON; the policy refuses it")
			e = fn("string", "string", e)
		default:
			refuse("a value in a text that is not known to be a string: %s", e.Text)
		}
		parts = append(parts, e)
		end = f[1]
	}
	if end < len(t) {
		parts = append(parts, str(t[end:]))
	}
	e := sum(parts...)
	e.Type = "string"
	return e
}

// variableText translates a text with variables. For a single variable without other text it
// returns the value itself.
func (s *scope) variableText(t string) value {
	t = s.unnest(strings.TrimSpace(t))
	if m := variable.FindStringSubmatch(t); m != nil && m[0] == t {
		return s.query(m[1])
	}
	return value{expr: s.text(t)}
}

// named replaces the nested variables in an expression of the context by names.
func (s *scope) named(t string) string {
	out := strings.TrimSpace(s.unnest("{{" + t + "}}"))
	return strings.TrimSuffix(strings.TrimPrefix(out, "{{"), "}}")
}

// mentionsVariable reports whether a value has a variable in it.
func mentionsVariable(v any) bool {
	switch v := v.(type) {
	case string:
		return hasVariable(v)
	case []any:
		return slices.ContainsFunc(v, mentionsVariable)
	case map[string]any:
		for _, e := range v {
			if mentionsVariable(e) {
				return true
			}
		}
	}
	return false
}

func isQuantity(constant expr) bool {
	text, ok := celgen.Unquoted(constant)
	_, err := resource.ParseQuantity(text)
	return ok && err == nil
}

// quantity reports whether a field is a quantity by the schema; a server writes quantities in
// canonical form.
func (s *scope) quantity(p *path) bool {
	if p == nil || len(p.steps) < 1 {
		return false
	}
	whole := p.whole()
	if last := whole[len(whole)-1]; last == "sizeLimit" || last == "divisor" {
		return true
	}
	return len(whole) > 1 && slices.Contains([]string{"requests", "limits", "hard", "capacity", "overhead", "default", "defaultRequest"}, whole[len(whole)-2])
}

// unnest replaces variables that occur as texts or names within variables by generated names:
// {{ f('{{x}}') }}, {{ images.containers."{{x}}".tag }}.
func (s *scope) unnest(t string) string {
	depth := 0
	for i := 0; i+1 < len(t); i++ {
		switch t[i : i+2] {
		case "{{":
			if depth > 0 && t[i-1] == '.' {
				end := strings.Index(t[i:], "}}")
				if end < 0 || strings.Contains(t[i+2:i+end], "{{") {
					return t
				}
				name := fmt.Sprintf("%s%d", bare, len(s.nested))
				s.nested[name] = t[i+2 : i+end]
				t = t[:i] + name + t[i+end+2:]
				continue
			}
			if depth > 0 && (t[i-1] == '\'' || t[i-1] == '"') {
				end := strings.Index(t[i:], "}}"+t[i-1:i])
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

// bare is the prefix of generated names for nested variables without quotes: {{ a.{{x}} }}.
const bare = "bare_"

// plainName notes how Kyverno treats a nested variable without quotes, if name is one.
func (s *scope) plainName(name string) {
	if strings.HasPrefix(name, bare) {
		s.note(Better, effect{does: refuses}, "Kyverno reads {{"+s.nested[name]+"}} within a variable as a part of the expression, and refuses a name with a - or such in it; the policy looks for the name")
	}
}

// referencePattern finds $(…), which Kyverno replaces by the value at another place in the
// policy.
var referencePattern = regexp.MustCompile(`(^|[^\\])\$\([^ ]*\)`)

// fill returns v with expressions in the place of texts that have variables.
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
