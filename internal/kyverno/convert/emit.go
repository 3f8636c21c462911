package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// mutation is one mutation of a policy.
type mutation struct {
	apply bool // an apply configuration; otherwise a JSON patch
	expr  expr
}

// configured divides a patch into the part that an apply configuration can express, and the rest.
func (s *shape) configured(nodes []*node, at []string) (apply, rest []*node) {
	for _, n := range nodes {
		p := append(slices.Clone(at), n.name)
		switch {
		case n.names != nil:
			rest = append(rest, n)
		case !s.builtin && !(len(at) > 0 && at[0] == "metadata") && n.name != "metadata", s.atomic(p) || !isField(n.name) && !s.inMap(at):
			rest = append(rest, n)
		case n.action == inside:
			a, r := s.configured(n.fields, p)
			apply, rest = halves(n, a, r, apply, rest)
		case n.action == copied:
			apply = append(apply, n)
			if len(n.fields) > 0 {
				rest = append(rest, &node{action: inside, name: n.name, fields: n.fields})
			}
		case n.action == forEach:
			a, r := s.configured(n.fields, append(p, element))
			if !s.every(p, isKeyedByName) || s.atomic(append(p, element)) {
				a, r = nil, n.fields
			}
			apply, rest = halves(n, a, r, apply, rest)
		case n.action == merge:
			if s.canMerge(n, p) {
				a, r := s.elements(n, p)
				apply, rest = append(apply, a), append(rest, r...)
			} else {
				rest = append(rest, n)
			}
		case n.action == drop, !s.fits(n.value, p, n.action == add):
			rest = append(rest, n)
		default:
			apply = append(apply, n)
		}
	}
	return apply, rest
}

func halves(n *node, a, r, apply, rest []*node) ([]*node, []*node) {
	half := func(fields []*node) *node {
		out := *n
		out.fields = fields
		return &out
	}
	if len(a) > 0 {
		apply = append(apply, half(a))
	}
	if len(r) > 0 {
		rest = append(rest, half(r))
	}
	return apply, rest
}

// isKeyedByName reports whether a merge tells the elements of a list apart by their name.
func isKeyedByName(p openapi.Place) bool {
	keys := p.Keys()
	return len(keys) == 1 && keys[0] == "name" && !p.Atomic()
}

// inMap reports whether the fields of the object at a path are keys of a map.
func (s *shape) inMap(at []string) bool {
	if len(at) == 2 && at[0] == paramsRoot && at[1] == "data" {
		return true
	}
	at = below(at)
	if len(at) == 2 && at[0] == "metadata" && (at[1] == "labels" || at[1] == "annotations") {
		return true
	}
	places, ok := s.at(at)
	return ok && places[0].Type().Map != nil && len(places[0].Fields()) == 0
}

// canMerge reports whether an apply configuration identifies the elements of a list by the same
// key as Kyverno.
func (s *shape) canMerge(n *node, p []string) bool {
	places, ok := s.at(p)
	if !ok {
		return false
	}
	for _, place := range places {
		if place.Atomic() || !slices.Equal(slices.Sorted(slices.Values(place.Keys())), slices.Sorted(slices.Values(n.listKeys))) {
			return false
		}
	}
	if s.atomic(append(slices.Clone(p), element)) {
		return false
	}
	for _, fields := range n.elements {
		for _, key := range n.listKeys {
			if i := slices.IndexFunc(fields, func(f *node) bool { return f.name == key }); i >= 0 && fields[i].action != set {
				return false
			}
		}
	}
	return true
}

// elements divides the changes to list elements: apply is what an apply configuration can say of
// the elements, and rest are nodes for the other changes, which may assume that the elements
// exist.
func (s *shape) elements(n *node, p []string) (apply *node, rest []*node) {
	inner := append(slices.Clone(p), element)
	out := *n
	out.elements = nil
	for _, fields := range n.elements {
		a, r := s.configured(fields, inner)
		out.elements = append(out.elements, a)
		if len(r) == 0 {
			continue
		}
		x := variableFor(n.name)
		at := path{root: atom(x, "map"), prefix: inner}
		var keys []expr
		for _, f := range fields {
			if slices.Contains(n.listKeys, f.name) {
				keys = append(keys, equal(s.get(at.to(f.name)), literal(f.value)))
			}
		}
		rest = append(rest, &node{action: forEach, name: n.name, at: at, loop: x, where: all(keys...), fields: r})
	}
	return &out, rest
}

// fits reports whether an apply configuration can have a value at a path.
func (s *shape) fits(v any, p []string, nested bool) bool {
	if len(p) == 3 && p[0] == "metadata" && s.inMap(p[:2]) {
		return true
	}
	if s.atomic(p) {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if !nested || !isField(k) && !s.inMap(p) || !s.fits(e, append(slices.Clone(p), k), nested) {
				return false
			}
		}
		return true
	case []any:
		return false
	case float64, nil:
		return false
	case either:
		return true
	case expr:
		return v.Type == "string" || v.Type == "int" || v.Type == "bool" || v.Type == "untyped" && s.scalar(p) == "untyped"
	}
	return s.scalar(p) != "list" && s.scalar(p) != "map"
}

// configuration writes the fields of an apply configuration.
func (s *shape) configuration(nodes []*node, typ string, at path) expr {
	isMap := s.inMap(at.whole())
	var entries []celgen.Entry
	optional := map[int]bool{} // entries whose value is an optional
	write := func(key string, v expr) { entries = append(entries, celgen.Entry{Name: key, Value: v}) }
	writeOptional := func(key string, v expr) {
		optional[len(entries)] = true
		write(key, v)
	}
	for _, n := range nodes {
		key, p, inner := n.name, at.to(n.name), typ+"."+n.name
		switch n.action {
		case inside:
			write(key, s.configuration(n.fields, inner, p))
		case copied:
			write(key, n.value.(expr))
		case set:
			if e, ok := n.value.(either); ok {
				writeOptional(key, e.expr)
				break
			}
			write(key, s.constant(n.value, inner, p))
		case add:
			if e, ok := n.value.(either); ok {
				if there, _ := s.read(p); !strings.HasPrefix(e.Text, there.Text+".or(") {
					e.expr = call(there, "or", "", e.expr)
				}
				writeOptional(key, e.expr)
				break
			}
			v := s.constant(n.value, inner, p)
			switch _, optional := s.read(p); {
			case !optional:
			case scalarValue(n.value) && (s.builtin || at.whole()[0] == "metadata"):
				e := s.or(p, v)
				write(key, e.As(typeInCEL(e)))
			default:
				writeOptional(key, when(s.has(p), atom("optional.none()", ""), fn("optional.of", "", v)))
			}
		case merge:
			var elems []expr
			for _, fields := range n.elements {
				elems = append(elems, s.configuration(fields, inner, path{root: atom("", ""), prefix: append(p.whole(), element)}))
			}
			write(key, list(elems...))
		case forEach:
			value := func(items expr) expr {
				if n.where.Text != yes.Text {
					items = call(items, "filter", "list", atom(n.loop, ""), n.where)
				}
				element := s.configuration(n.fields, inner, n.at)
				element.Text = strings.Replace(element.Text, "{", "{name: "+n.loop+".name, ", 1)
				return call(items, "map", "list", atom(n.loop, ""), element)
			}
			if items, optional := s.read(p); optional && !n.must {
				writeOptional(key, call(items, "optMap", "", atom("list", ""), value(atom("list", "list"))))
			} else {
				write(key, value(s.get(p)))
			}
		}
	}
	if isMap && len(optional) == 0 {
		return celgen.Map(entries...).As("map")
	}
	for i := range entries {
		if isMap {
			entries[i].Name = quote(entries[i].Name)
		}
		if optional[i] {
			entries[i].Name = "?" + entries[i].Name
		}
	}
	if isMap {
		return celgen.Message("", entries...).As("map")
	}
	return celgen.Message(typ, entries...)
}

func scalarValue(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// constant writes a value of an apply configuration.
func (s *shape) constant(v any, typ string, p path) expr {
	m, ok := v.(map[string]any)
	if !ok {
		return literal(v)
	}
	var nodes []*node
	for _, k := range celgen.FieldOrder(m) {
		nodes = append(nodes, &node{action: set, name: k, value: m[k]})
	}
	return s.configuration(nodes, typ, p)
}

// ops collects operations of a JSON patch: lists of them, which are joined.
type ops struct {
	shape *shape
	parts []part
	// loops are the lists around, from the outermost.
	loops []loop
}

// part is one operation, with the loops around it and a condition.
type part struct {
	cond  expr
	op    expr
	loops []loop
	// first: the operation comes before all others, and shares no loop with them.
	first bool
}

// loop goes through a list: items.transformList(index, name, …).
type loop struct {
	items       expr
	index, name string
	where       expr
	optional    bool
}

// pointer is a JSON pointer with indices and keys that may be expressions.
type pointer []expr

func (p pointer) to(name string) pointer {
	e := str("/" + name)
	if strings.ContainsAny(name, "/~") {
		e = fn("jsonpatch.escapeKey", "string", str(name))
		return append(slices.Clone(p), str("/"), e)
	}
	return append(slices.Clone(p), e)
}

func (p pointer) at(index string) pointer {
	return append(slices.Clone(p), str("/"), fn("string", "string", atom(index, "int")))
}

func (p pointer) expr() expr { return sum(p...) }

func patchOp(op string, p pointer, v *expr) expr {
	text := fmt.Sprintf("JSONPatch{op: %s, path: %s", quote(op), p.expr().Text)
	if v != nil {
		text += ", value: " + v.Text
	}
	return atom(text+"}", "JSONPatch")
}

func (o *ops) add(cond, op expr) {
	if cond.Text != no.Text {
		o.parts = append(o.parts, part{cond, op, slices.Clone(o.loops), false})
	}
}

// ensure adds an operation that creates an empty object or list at p where p is missing.
func (o *ops) ensure(p path, ptr pointer, empty string) {
	missing := not(o.shape.has(p))
	if missing.Text == no.Text {
		return
	}
	v := atom(empty, "")
	op := patchOp("add", ptr, &v)
	if len(o.loops) == 0 || p.root.Text != object.Text {
		o.add(missing, op)
		return
	}
	// Within a loop, the operation is added once, before the first operation that writes into p.
	if !slices.ContainsFunc(o.parts, func(other part) bool { return other.first && other.op.Text == op.Text }) {
		at := slices.IndexFunc(o.parts, func(other part) bool { return !other.first })
		if at < 0 {
			at = len(o.parts)
		}
		o.parts = slices.Insert(o.parts, at, part{missing, op, slices.Clone(o.loops), true})
	}
}

// fields adds the operations for the changes to the object at a path.
func (o *ops) fields(nodes []*node, at path, ptr pointer) {
	for _, n := range nodes {
		p, to := at.to(n.name), ptr.to(n.name)
		if n.names != nil {
			to = append(slices.Clone(ptr), str("/"), fn("jsonpatch.escapeKey", "string", *n.names))
		}
		switch n.action {
		case copied:
			refuse("a variable for all of %s, which no apply configuration merges", n.name)
		case inside:
			o.ensure(p, to, "{}")
			o.fields(n.fields, p, to)
		case set:
			v := required(n.value)
			o.add(yes, patchOp("add", to, &v))
		case add:
			v := required(n.value)
			o.add(not(o.shape.has(p)), patchOp("add", to, &v))
		case drop:
			o.add(o.shape.has(p), patchOp("remove", to, nil))
		case merge:
			o.merge(n, p, to)
		case forEach:
			items, optional := o.shape.read(p)
			if n.must {
				items, optional = o.shape.get(p), false
			}
			index := string(rune('i' + len(o.loops)))
			o.loops = append(o.loops, loop{items, index, n.loop, n.where, optional})
			o.fields(n.fields, n.at, to.at(index))
			o.loops = o.loops[:len(o.loops)-1]
		}
	}
}

// required returns a literal for a value that is never missing.
func required(v any) expr {
	if _, ok := v.(either); ok {
		refuse("|| of values that may both be missing, in a JSON patch")
	}
	return literal(v)
}

// merge changes the elements of a list that have a key of the patch, and adds the other elements
// of the patch to the front of the list, as Kyverno does. Changes come before additions, so that
// the indices of existing elements are still valid.
func (o *ops) merge(n *node, p path, to pointer) {
	items, optional := o.shape.read(p)
	index := string(rune('i' + len(o.loops)))
	x := variableFor(n.name)
	for _, l := range o.loops {
		if l.name == x {
			x += "2"
		}
	}
	elem := path{root: atom(x, "map"), prefix: append(p.whole(), element)}
	where := make([]expr, len(n.elements))
	for i, fields := range n.elements {
		var keys []expr
		var others []*node
		for _, f := range fields {
			if !slices.Contains(n.listKeys, f.name) {
				others = append(others, f)
				continue
			}
			if f.action != set {
				refuse("the list %s: %s of an element, which is none of +() or null", n.name, f.name)
			}
			keys = append(keys, equal(o.shape.get(elem.to(f.name)), literal(f.value)))
		}
		where[i] = all(keys...)
		if len(others) > 0 {
			o.loops = append(o.loops, loop{items, index, x, where[i], optional})
			o.fields(others, elem, to.at(index))
			o.loops = o.loops[:len(o.loops)-1]
		}
	}
	o.ensure(p, to, "[]")
	for i, fields := range slices.Backward(n.elements) {
		v := literal(whole(fields))
		exists := call(o.shape.or(p, list()), "exists", "bool", atom(x, ""), where[i])
		o.add(not(exists), patchOp("add", append(slices.Clone(to), str("/0")), &v))
	}
}

// whole returns the value that a patch creates where the object is missing.
func whole(fields []*node) any {
	out := map[string]any{}
	for _, f := range fields {
		switch f.action {
		case set, add:
			if _, ok := f.value.(either); ok || f.names != nil {
				refuse("a variable in an element of a list that no apply configuration merges")
			}
			out[f.name] = f.value
		case inside:
			out[f.name] = whole(f.fields)
		case merge:
			elements := []any{}
			for _, e := range f.elements {
				elements = append(elements, whole(e))
			}
			out[f.name] = elements
		case drop:
		default:
			refuse("elements of %s in a list that no apply configuration merges", f.name)
		}
	}
	return out
}

// expr returns the whole list of operations.
func (o *ops) expr() expr {
	e := joined(o.parts, 0)
	if e.Text == "[]" {
		refuse("a patch in which nothing is left to write")
	}
	if inner, ok := strings.CutPrefix(e.Text, "("); ok && len(o.parts) == 1 && e.Bind == celgen.BindMember {
		return expr{Text: strings.TrimSuffix(inner, ")"), Bind: celgen.BindCond, Type: "list"}
	}
	return e
}

// joined returns a list of the operations of parts, without the outer loops up to depth.
func joined(parts []part, depth int) expr {
	var lists, plain []expr
	flush := func() {
		if len(plain) > 0 {
			lists = append(lists, list(plain...))
			plain = nil
		}
	}
	for len(parts) > 0 {
		p := parts[0]
		if len(p.loops) == depth {
			parts = parts[1:]
			switch {
			case p.cond.Text == yes.Text:
				plain = append(plain, p.op)
				continue
			case strings.HasPrefix(p.cond.Text, "!"):
				flush()
				lists = append(lists, atom("("+when(not(p.cond), list(), list(p.op)).Text+")", "list"))
			default:
				flush()
				lists = append(lists, atom("("+when(p.cond, list(p.op), list()).Text+")", "list"))
			}
			continue
		}
		flush()
		l, n := p.loops[depth], 1
		for !p.first && n < len(parts) && len(parts[n].loops) > depth && parts[n].loops[depth].same(l) {
			n++
		}
		group := slices.DeleteFunc(slices.Clone(parts[:n]), func(p part) bool {
			// The condition of the loop implies that the field exists, so an operation for a
			// missing field is never needed.
			return len(p.loops) == depth+1 && slices.Contains(strings.Split(l.where.Text, " && "), not(p.cond).Text)
		})
		parts = parts[n:]
		if len(group) == 0 {
			continue
		}
		items := l.items
		if l.optional {
			items = call(items, "orValue", "list", list())
		}
		args := []expr{atom(l.index, ""), atom(l.name, "")}
		where := l.where
		one := len(group) == 1 && len(group[0].loops) == depth+1
		if one {
			where = all(where, group[0].cond)
		}
		if where.Text != yes.Text {
			args = append(args, where)
		}
		if one {
			lists = append(lists, call(items, "transformList", "list", append(args, group[0].op)...))
		} else {
			lists = append(lists, call(call(items, "transformList", "list", append(args, joined(group, depth+1))...), "flatten", "list"))
		}
	}
	flush()
	if len(lists) == 0 {
		return list()
	}
	return celgen.Joined("+", celgen.BindSum, lists...)
}

// same reports whether two loops can be joined.
func (l loop) same(other loop) bool {
	return l.items.Text == other.items.Text && l.index == other.index && l.name == other.name && l.where.Text == other.where.Text
}
