package language

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/layout"
)

// ItemKind says what a Completion is.
type ItemKind string

// The kinds of completions.
const (
	FieldItem    ItemKind = "field"
	VariableItem ItemKind = "variable"
	FunctionItem ItemKind = "function"
	TypeItem     ItemKind = "type"
	KeywordItem  ItemKind = "keyword"
	ValueItem    ItemKind = "value"
)

// A Completion is a text that can be inserted at the cursor.
type Completion struct {
	Label  string   `json:"label"`
	Kind   ItemKind `json:"kind"`
	Detail string   `json:"detail,omitempty"` // its type, or how it is called
	Doc    string   `json:"doc,omitempty"`    // Markdown
	Edit   Edit     `json:"edit"`
}

// maxCompletions bounds the completions in an answer.
const maxCompletions = 1000

// Complete returns the completions at a position. In an expression, these are fields of objects
// by the schemas of the kinds that the policy matches, variables, functions and types. Elsewhere
// they are keys and values by the form of the document.
func (w *Workspace) Complete(ctx context.Context, name string, at Position) ([]Completion, error) {
	f, err := w.file(name)
	if err != nil {
		return nil, err
	}
	a := w.author(ctx, f, offsetOf(f.text, at))
	if a == nil {
		return w.completeYAML(f, offsetOf(f.text, at)), ctx.Err()
	}
	c := completer{author: a}
	// The tokens before the cursor, without the word at the cursor.
	tokens, last := a.split(a.site.cursor)
	from := a.site.cursor
	if last != nil {
		if last.Kind != layout.Identifier {
			return nil, nil // in a text or a number
		}
		from = last.At
	}
	c.prefix = a.site.text[from:a.site.cursor]
	c.where = rangeOf(f.text, a.site.offset(from), a.site.offset(a.site.cursor))
	if comment := strings.LastIndex(a.site.text[:from], "//"); comment >= 0 && !strings.Contains(a.site.text[comment:from], "\n") &&
		len(layout.Comments(a.site.text[:comment])) < len(layout.Comments(a.site.text[:from])) {
		return nil, nil
	}
	c.at(tokens)
	order := func(x, y Completion) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), strings.Compare(x.Label, y.Label))
	}
	slices.SortStableFunc(c.items, order)
	c.items = slices.CompactFunc(c.items, func(x, y Completion) bool { return x.Label == y.Label && x.Kind == y.Kind })
	return c.items[:min(len(c.items), maxCompletions)], ctx.Err()
}

// split returns the tokens that end before an offset, and the one at the offset if typing can
// extend it.
func (a *author) split(offset int) (tokens []layout.Token, in *layout.Token) {
	for i := range a.tokens {
		t := &a.tokens[i]
		if t.Kind == layout.End || t.At >= offset {
			break
		}
		end := t.At + len(t.Text)
		if end >= offset && t.Kind != layout.Sign && !(t.Kind == layout.String && end == offset && len(t.Text) > 1 && t.Text[len(t.Text)-1] == t.Text[0]) {
			return tokens, t
		}
		tokens = append(tokens, *t)
	}
	return tokens, nil
}

// completer collects completions.
type completer struct {
	*author
	prefix string
	where  Range
	items  []Completion
}

func (c *completer) add(label string, kind ItemKind, detail, doc string) {
	c.insert(label, label, kind, detail, doc)
}

func (c *completer) insert(label, text string, kind ItemKind, detail, doc string) {
	if len(c.prefix) > 0 && !strings.HasPrefix(strings.ToLower(label), strings.ToLower(c.prefix[:1])) && !strings.Contains(strings.ToLower(label), strings.ToLower(c.prefix)) {
		return
	}
	c.items = append(c.items, Completion{label, kind, detail, doc, Edit{c.where, text}})
}

// at collects the completions after tokens.
func (c *completer) at(tokens []layout.Token) {
	n := len(tokens)
	if n > 0 && isSign(tokens[n-1], ".") || n > 1 && isSign(tokens[n-1], "?") && isSign(tokens[n-2], ".") {
		dot := n - 1
		if isSign(tokens[dot], "?") {
			dot--
		}
		c.members(tokens, dot, dot != n-1)
		return
	}
	if typ, set, ok := literalAround(tokens); ok {
		c.literal(typ, set)
		return
	}
	c.globals(tokens)
}

// members collects the completions after the dot at an index.
func (c *completer) members(tokens []layout.Token, dot int, optional bool) {
	from := receiver(tokens, dot)
	chain := tokens[from:dot]
	if names, ok := typeName(chain); ok && (c.want == cel.Object || c.want == cel.JSONPatch) && names[0] == objectType {
		c.types(names)
		return
	}
	in := c.around(tokens[:from])
	v := c.typed(chain, in)
	if v.variables {
		for i := range c.author.before {
			x := c.spec.Variables[i]
			c.add(x.Name, VariableItem, c.typeOf("variables."+x.Name, c.variable(x.Name)), "```cel\n"+x.Expression+"\n```")
		}
		return
	}
	for _, s := range v.spots {
		for _, name := range s.Fields() {
			if at := v.field(name); isName(name) {
				c.add(name, FieldItem, at.describe(), at.document())
			}
		}
	}
	if v.typed {
		fields := v.typ.Fields()
		for name, t := range fields {
			c.add(name, FieldItem, t.String(), fieldDocs[v.typ.String()+"."+name])
		}
	}
	if !optional {
		c.functions(true, v.receivers())
		c.namespaced(chain)
	}
}

// namespaced collects functions such as sets.contains behind their first word.
func (c *completer) namespaced(chain []layout.Token) {
	if len(chain) != 1 {
		return
	}
	all, err := c.scope.Functions(c.want)
	if err != nil {
		return
	}
	for _, f := range all {
		if rest, ok := strings.CutPrefix(f.Name, chain[0].Text+"."); ok && f.Global {
			c.insert(rest, rest+"(", FunctionItem, signature(&f), functionDoc(&f))
		}
	}
}

// functions collects functions with or without a receiver. receivers are the types that the
// receiver may have; empty: any.
func (c *completer) functions(member bool, receivers []string) {
	all, err := c.scope.Functions(c.want)
	if err != nil {
		return
	}
	for _, f := range all {
		if member && !f.Member || !member && !f.Global || strings.Contains(f.Name, ".") {
			continue
		}
		if !member || len(receivers) == 0 || slices.ContainsFunc(receivers, func(r string) bool { return takes(&f, r) }) {
			c.insert(f.Name, f.Name+"(", FunctionItem, signature(&f), functionDoc(&f))
		}
	}
}

// takes reports whether a member function has a form for a type.
func takes(f *cel.Function, receiver string) bool {
	if f.Macro && len(f.Overloads) == 0 {
		optional := strings.HasPrefix(f.Name, "opt")
		return optional == (receiver == "optional_type") && (optional || receiver == "list" || receiver == "map" && f.Name != "sortBy")
	}
	return slices.ContainsFunc(f.Overloads, func(o cel.Overload) bool {
		if !o.Member || len(o.Args) == 0 {
			return false
		}
		arg, _, _ := strings.Cut(o.Args[0], "(")
		return arg == receiver || arg == "dyn" && receiver != "object"
	})
}

// literal collects the fields of a literal that are not set yet.
func (c *completer) literal(typ []string, set []string) {
	if typ[0] == patchType {
		for _, name := range []string{"from", "op", "path", "value"} {
			if !slices.Contains(set, name) {
				c.insert(name, name+": ", FieldItem, fieldTypes[patchType+"."+name], fieldDocs[patchType+"."+name])
			}
		}
		return
	}
	v := c.object(typ)
	for _, s := range v.spots {
		for _, name := range s.Fields() {
			if isName(name) && !slices.Contains(set, name) {
				at := v.field(name)
				c.insert(name, name+": ", FieldItem, at.describe(), at.document())
			}
		}
	}
}

// types collects the fields behind the name of a type that have fields of their own.
func (c *completer) types(names []string) {
	v := c.object(names)
	for _, s := range v.spots {
		for _, name := range s.Fields() {
			at := v.field(name)
			if isName(name) && at.within().structured() {
				c.add(name, FieldItem, at.describe(), at.document())
			}
		}
	}
}

// globals collects what can begin an expression.
func (c *completer) globals(tokens []layout.Token) {
	for in := c.around(tokens); in != nil; in = in.outer {
		c.add(in.name, VariableItem, in.value.describe(), "")
	}
	for _, name := range []string{"object", "oldObject", "request", "namespaceObject", "authorizer"} {
		c.add(name, VariableItem, c.typeOf(name, c.name(name, nil)), nameDocs[name])
	}
	if c.params != nil || c.spec.ParamKind != nil {
		c.add("params", VariableItem, c.typeOf("params", c.name("params", nil)), nameDocs["params"])
	}
	if c.part != "matchConditions" && len(c.spec.Variables) > 0 {
		c.add("variables", VariableItem, "", nameDocs["variables"])
	}
	switch c.want {
	case cel.Object:
		c.add(objectType, TypeItem, "", nameDocs[objectType])
	case cel.JSONPatch:
		c.add(patchType, TypeItem, "", nameDocs[patchType])
		c.add(objectType, TypeItem, "", nameDocs[objectType])
	}
	for _, word := range []string{"true", "false", "null"} {
		c.add(word, KeywordItem, "", "")
	}
	c.functions(false, nil)
	for _, space := range []string{"optional", "sets", "ip", "cidr", "format", "lists", "strings", "jsonpatch", "cel"} {
		if space != "jsonpatch" || c.want == cel.JSONPatch {
			c.add(space, TypeItem, "", "")
		}
	}
}

// The names of types.
const (
	objectType = "Object"
	patchType  = "JSONPatch"
)

// typeName returns the words of a name with dots.
func typeName(tokens []layout.Token) (names []string, ok bool) {
	for i, t := range tokens {
		if i%2 == 0 {
			if t.Kind != layout.Identifier {
				return nil, false
			}
			names = append(names, t.Text)
		} else if !isSign(t, ".") {
			return nil, false
		}
	}
	return names, len(tokens)%2 == 1
}

// literalAround returns the type of the literal in which a field begins after tokens, and the
// fields that it already has.
func literalAround(tokens []layout.Token) (typ, set []string, ok bool) {
	n := len(tokens)
	if n < 2 || !isSign(tokens[n-1], "{") && !isSign(tokens[n-1], ",") && !isSign(tokens[n-1], "?") {
		return nil, nil, false
	}
	depth := 0
	for i := n - 1; i >= 0; i-- {
		switch t := tokens[i]; {
		case isSign(t, ")") || isSign(t, "]") || isSign(t, "}"):
			depth++
		case isSign(t, "(") || isSign(t, "[") || isSign(t, "{"):
			if depth--; depth < 0 {
				if !isSign(t, "{") {
					return nil, nil, false
				}
				typ, ok = typeName(tokens[receiver(tokens, i):i])
				return typ, set, ok && (typ[0] == objectType || typ[0] == patchType)
			}
		case isSign(t, ":") && depth == 0 && i > 0:
			set = append(set, tokens[i-1].Text)
		}
	}
	return nil, nil, false
}

// object returns the value that a literal of a type such as Object.spec represents.
func (a *author) object(typ []string) value {
	v := root(a.kinds...)
	for _, name := range typ[1:] {
		v = v.field(name).within()
	}
	return v
}

// within returns the element if v is a list, and v otherwise, because the type of an element
// literal has the name of its list.
func (v value) within() value {
	if len(v.spots) > 0 && v.spots[0].Type().List != nil {
		return v.each()
	}
	return v
}

func (v value) structured() bool {
	return slices.ContainsFunc(v.spots, func(s spot) bool { return s.Type().Map != nil })
}

// isName reports whether a field can be written after a dot.
func isName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// typed is resolve, but falls back to the type checker if the schemas do not know the expression.
func (a *author) typed(tokens []layout.Token, in *bound) value {
	v := a.resolve(tokens, in)
	if v.known() || len(tokens) == 0 {
		return v
	}
	last := tokens[len(tokens)-1]
	text := a.site.text[tokens[0].At : last.At+len(last.Text)]
	if t, err := a.scope.TypeOf(text); err == nil {
		v.typ, v.typed = t, true
	}
	return v
}

// typeOf describes a value, or what the type checker says of an expression.
func (a *author) typeOf(expression string, v value) string {
	if text := v.describe(); text != "" {
		return text
	}
	if t, err := a.scope.TypeOf(expression); err == nil {
		return t.String()
	}
	return ""
}

// describe returns the type of a value in words, "" if it is not known.
func (v value) describe() string {
	if v.element != nil {
		return strings.TrimSpace("list of " + v.element.describe())
	}
	var out []string
	for _, s := range v.spots {
		text := describe(s, 0)
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " or ")
}

func describe(s spot, depth int) string {
	switch t := s.Type(); {
	case s.Scalar() == "numeric":
		return "number"
	case s.Scalar() == "untyped":
		return "string or number"
	case s.Scalar() != "":
		return s.Scalar()
	case t.List != nil:
		if at, ok := s.Element(); ok && depth < 3 {
			return "list of " + describe(spot{at, s.kind, s.path}, depth+1)
		}
		return "list"
	case t.Map != nil && len(t.Map.Fields) > 0:
		return "object"
	case t.Map != nil:
		if at, ok := s.Field(""); ok && depth < 3 {
			return "map of " + describe(spot{at, s.kind, s.path}, depth+1)
		}
		return "map"
	}
	return ""
}

// receivers returns the CEL types that a value may have; empty: any.
func (v value) receivers() (out []string) {
	if v.optional {
		return []string{"optional_type"}
	}
	if v.element != nil {
		return []string{"list"}
	}
	if v.typed {
		name, _, _ := strings.Cut(v.typ.String(), "(")
		if name == "dyn" {
			return nil
		}
		return []string{name}
	}
	for _, s := range v.spots {
		switch t := s.Type(); {
		case s.Scalar() == "string":
			out = append(out, "string")
		case s.Scalar() == "numeric":
			out = append(out, "int", "double")
		case s.Scalar() == "boolean":
			out = append(out, "bool")
		case t.List != nil:
			out = append(out, "list")
		case t.Map != nil && len(t.Map.Fields) == 0:
			out = append(out, "map")
		case t.Map != nil:
			out = append(out, "object") // its fields are what is asked for
		default:
			return nil
		}
	}
	return out
}

// document returns the description of a value.
func (v value) document() string {
	for _, s := range v.spots {
		if text := s.kind.Describe(s.path...); text != "" {
			return text
		}
	}
	return ""
}
