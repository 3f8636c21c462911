package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

// operation is one operation of patchesJson6902. It may contain variables.
type operation struct {
	Op    string  `json:"op"`
	Path  string  `json:"path"`
	From  *string `json:"from"`
	Value any     `json:"value"`
}

const placeholder = "kyverno-variable-"

var (
	placeholderPattern = regexp.MustCompile(placeholder + `(\d+)-`)
	bareVariable       = regexp.MustCompile(`(?m)^\s*(- )?\w+:\s*\{\{.*\}\}\s*$`)
)

// operations parses the text of a JSON patch. Kyverno fills in the variables first and parses the
// result as YAML.
func (s *scope) operations(text string) []operation {
	text = s.unnest(text)
	var found []string
	bare := bareVariable.MatchString(text)
	replaced := variable.ReplaceAllStringFunc(text, func(v string) string {
		found = append(found, v)
		return placeholder + strconv.Itoa(len(found)-1) + "-"
	})
	if strings.Contains(replaced, "{{") {
		refuse("a variable within a variable in patchesJson6902")
	}
	var list []operation
	var read any
	if yaml.Unmarshal([]byte(replaced), &read) == nil {
		all, ok := read.([]any)
		if !ok {
			refuse("patchesJson6902 is no list of operations")
		}
		if i := slices.IndexFunc(all, func(e any) bool { _, ok := e.(map[string]any); return !ok }); i >= 0 {
			refuse("operation %d of patchesJson6902 is no object", i+1)
		}
	}
	if err := yaml.UnmarshalStrict([]byte(replaced), &list); err != nil {
		refuse("patchesJson6902 cannot be read: %v", err)
	}
	if bare {
		s.note(Better, writesOtherwise, "Kyverno reads what it filled in as YAML, so that it may become a number or a boolean; the policy writes the text")
	}
	back := func(t string) string {
		return placeholderPattern.ReplaceAllStringFunc(t, func(p string) string {
			i, _ := strconv.Atoi(placeholderPattern.FindStringSubmatch(p)[1])
			return found[i]
		})
	}
	for i := range list {
		list[i].Path = back(list[i].Path)
		list[i].Value = normal(restore(list[i].Value, back))
	}
	return list
}

func restore(v any, back func(string) string) any {
	switch v := v.(type) {
	case string:
		return back(v)
	case []any:
		for i, e := range v {
			v[i] = restore(e, back)
		}
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[back(k)] = restore(e, back)
		}
		return out
	}
	return v
}

// tokens divides a JSON pointer into its steps.
func tokens(pointer string) []string {
	if !strings.HasPrefix(pointer, "/") {
		refuse("the path %q", pointer)
	}
	var out []string
	for t := range strings.SplitSeq(pointer[1:], "/") {
		out = append(out, strings.NewReplacer("~1", "/", "~0", "~").Replace(t))
	}
	return out
}

// patch adds the operations for op, whose path continues with steps from the value at a path.
func (o *ops) patch(s *scope, op operation, at path, ptr pointer, steps []string) {
	if op.From != nil || !slices.Contains([]string{"add", "replace", "remove"}, op.Op) {
		refuse("the operation %s of a JSON patch", op.Op)
	}
	for i, step := range steps {
		last := i == len(steps)-1
		number, err := strconv.Atoi(step)
		if (err == nil || step == "-") && s.shape.inMap(at.whole()) {
			err = strconv.ErrSyntax // the name looks like a number
		}
		switch {
		case step == "-" && !s.shape.inMap(at.whole()) || err == nil && number < 0:
			if number < -1 {
				refuse("the path %s: the index %s", op.Path, step)
			}
			if last && op.Op == "add" {
				// Kyverno takes -1 for the end of the list, too.
				v := literal(s.fill(op.Value))
				o.add(yes, patchOp("add", append(slices.Clone(ptr), str("/-")), &v))
				return
			}
			if step == "-" {
				refuse("the path %s: - stands for an element that is not there", op.Path)
			}
			s.byIndex()
			o.last(s, op, at, ptr, steps[i+1:])
			return
		case err == nil && last:
			s.byIndex()
			o.element(s, op, at, ptr, number)
			return
		case err == nil:
			s.byIndex()
			if number != 0 || i == 0 || steps[i-1] != "containers" {
				o.note(s, op, at, number)
			}
			at = path{root: atom(s.shape.get(at).Text+"["+step+"]", ""), prefix: append(at.whole(), element)}
			ptr = append(slices.Clone(ptr), str("/"+step))
			continue
		case hasVariable(step):
			at, ptr = o.variable(s, op, at, ptr, step, last)
		case strings.ContainsAny(step, "{}"):
			refuse("a variable in the path %s", op.Path)
		default:
			at, ptr = at.to(step), ptr.to(step)
		}
		if bad := s.shape.undeclared(at.whole()); bad != "" {
			refuse("the kind has no field %s", bad)
		}
		if last {
			o.field(s, op, at, ptr)
			return
		}
		if op.Op == "add" && !hasVariable(step) {
			empty := "{}"
			if n, err := strconv.Atoi(steps[i+1]); steps[i+1] == "-" || err == nil {
				empty = "[]"
				if n < 0 && i+1 < len(steps)-1 {
					continue // the method last creates the list, in the next iteration
				}
			}
			o.ensure(at, ptr, empty)
		}
	}
}

// begins reports whether evaluating value fails if the field is missing for which the condition
// there asks, because value reads that field unconditionally.
func begins(value, there string) bool {
	read, ok := strings.CutPrefix(there, "has(")
	before, after, found := strings.Cut(value, strings.TrimSuffix(read, ")"))
	return ok && found && !strings.ContainsAny(before, "?|&") && !regexp.MustCompile(`^\w`).MatchString(after)
}

// field writes an operation on a field.
func (o *ops) field(s *scope, op operation, at path, ptr pointer) {
	if op.Op == "remove" {
		o.add(o.shape.has(at), patchOp("remove", ptr, nil))
		return
	}
	v := literal(s.fill(op.Value))
	there := o.shape.has(at).Text
	if op.Op == "replace" && there != yes.Text && !begins(v.Text, there) {
		s.note(Better, refusesWithout(show(at.whole())), "Kyverno refuses an object without "+show(at.whole())+"; the policy adds it")
		o.parents(ptr, at)
	}
	o.add(yes, patchOp("add", ptr, &v))
}

// element adds an operation on the element of a list at index number.
func (o *ops) element(s *scope, op operation, at path, ptr pointer, number int) {
	to := append(slices.Clone(ptr), str("/"+strconv.Itoa(number)))
	if op.Op == "remove" {
		// Kyverno ignores the removal of an element that does not exist.
		there := relation(call(o.shape.or(at, list()), "size", "int"), ">", atom(strconv.Itoa(number), "int"))
		o.add(there, patchOp("remove", to, nil))
		return
	}
	v := literal(s.fill(op.Value))
	o.add(yes, patchOp(op.Op, to, &v))
}

// note records how Kyverno treats a path through a list element that does not exist.
func (o *ops) note(s *scope, op operation, at path, number int) {
	if op.Op == "remove" {
		refuse("a removal in an element of %s by its index, which need not exist", show(at.whole()))
	}
	if number > maxIndex {
		refuse("the index %d", number)
	}
	s.note(Better, effect{does: denies, of: func(d *difference) bool { return fewer(d, at.whole(), number) }}, fmt.Sprintf("Kyverno fills %s with null up to element %d, or refuses an object without it; the policy refuses it", show(at.whole()), number))
}

// maxIndex bounds list indices in paths.
const maxIndex = 1000

// last adds an operation on a path through the last element of a list. If the list is empty and
// the operation adds something, Kyverno creates the element.
func (o *ops) last(s *scope, op operation, at path, ptr pointer, rest []string) {
	if len(o.loops) > 0 {
		refuse("the path %s: -1 in an element of a list", op.Path)
	}
	items := o.shape.or(at, list())
	x := variableFor(at.steps[len(at.steps)-1])
	if op.Op == "add" {
		v := literal([]any{nest(rest, s.fill(op.Value))})
		o.add(equal(items, list()), patchOp("add", ptr, &v))
	} else if op.Op == "replace" || len(rest) == 0 {
		s.note(Better, refusesWithout(show(at.whole())), "Kyverno refuses an object whose "+show(at.whole())+" has no element; the policy passes over it")
	}
	isLast := equal(atom("i", "int"), expr{Text: call(items, "size", "int").Text + " - 1", Bind: celgen.BindSum, Type: "int"})
	o.loops = []loop{{items, "i", x, isLast, false}}
	defer func() { o.loops = nil }()
	elem := path{root: atom(x, "map"), prefix: append(at.whole(), element)}
	if len(rest) > 0 {
		o.patch(s, op, elem, ptr.at("i"), rest)
		return
	}
	if op.Op == "remove" {
		o.add(yes, patchOp("remove", ptr.at("i"), nil))
		return
	}
	v := literal(s.fill(op.Value))
	o.add(yes, patchOp("replace", ptr.at("i"), &v))
}

// nest returns v wrapped in the objects and lists of a path.
func nest(steps []string, v any) any {
	for _, step := range slices.Backward(steps) {
		if n, err := strconv.Atoi(step); step == "-" || err == nil && n <= 0 {
			v = []any{v}
		} else if err == nil || hasVariable(step) {
			refuse("the step %s behind -1 in a path", step)
		} else {
			v = map[string]any{step: v}
		}
	}
	return v
}

// variable handles a step of a path that contains a variable: an index, or a key of labels or
// annotations.
func (o *ops) variable(s *scope, op operation, at path, ptr pointer, step string, last bool) (path, pointer) {
	e := s.text(step)
	switch {
	case e.Type == "int" && s.shape.scalar(at.whole()) == "list":
		elem := path{root: atom(s.shape.get(at).Text+"["+e.Text+"]", ""), prefix: append(at.whole(), element)}
		if last {
			refuse("the path %s: an element by an index that is a variable", op.Path)
		}
		return elem, append(slices.Clone(ptr), str("/"), fn("string", "string", e))
	case last && (e.Type == "string" || e.Type == "int") && s.shape.inMap(at.whole()):
		if e.Type == "int" {
			e = fn("string", "string", e)
		}
		if strings.Contains(step, "/") {
			refuse("a / in the path %s", op.Path)
		}
		s.note(Differs, effect{does: writes | refuses | spoils}, "Kyverno takes / in a variable of a path for a step; the policy writes a name with it")
		if op.Op != "add" {
			refuse("the operation %s at a name that is a variable", op.Op)
		}
		return at.to("x"), append(slices.Clone(ptr), str("/"), fn("jsonpatch.escapeKey", "string", e))
	}
	refuse("a variable in the path %s", op.Path)
	return at, ptr
}

// parents refuses a replacement if the parent of the field may be missing.
func (o *ops) parents(_ pointer, at path) {
	parent := at.parent()
	if len(parent.steps) > 1 && o.shape.has(parent).Text != yes.Text {
		refuse("a replacement in %s, which may be missing", show(parent.whole()))
	}
}

var multiple = regexp.MustCompile(`^(.+)\.\[([A-Za-z, ]+)\]\s*\[\]$`)

// listOf translates the list of a foreach.
func (s *scope) listOf(text string) (lists []path, optional bool) {
	text = strings.TrimSpace(text)
	if m := multiple.FindStringSubmatch(text); m != nil {
		v := s.query(m[1])
		if v.path == nil {
			refuse("the list %s", text)
		}
		for name := range strings.SplitSeq(m[2], ",") {
			lists = append(lists, v.path.to(strings.TrimSpace(name)))
		}
		return lists, true
	}
	if before, ok := strings.CutSuffix(text, "[]"); ok {
		text, optional = before, true
	}
	if i := strings.LastIndex(text, "||"); i > 0 && strings.TrimSpace(text[i+2:]) == "`[]`" {
		text, optional = text[:i], true
	}
	v := s.query(text)
	if v.path != nil && !s.shape.builtin && s.shape.scalar(v.path.whole()) == "" {
		// Without a schema, the foreach itself is the only evidence that the field is a list.
		s.note(Differs, effect{does: writes | refuses | denies}, fmt.Sprintf("that %s is a list is taken from the policy; pass the CustomResourceDefinition", show(v.path.whole())))
		return []path{*v.path}, optional
	}
	if v.path == nil || s.shape.scalar(v.path.whole()) != "list" {
		refuse("the list %s is not known to be one", text)
	}
	return []path{*v.path}, optional
}

var indexVariable = regexp.MustCompile(`^\{\{\s*elementIndex\d*\s*\}\}$`)

// pointerTo returns the pointer of a place in the object.
func pointerTo(p path) pointer {
	var out pointer
	for _, step := range p.whole() {
		out = out.to(step)
	}
	return out
}

// foreach translates one foreach with a JSON patch, or with another foreach.
func (c *compiler) foreach(f policy.ForEach) expr {
	lists, optional := c.listOf(f.List)
	loopName, _ := c.loop(lists[0])
	o := &ops{shape: c.shape}
	if len(f.ForEach) > 0 {
		if len(lists) > 1 {
			refuse("foreach over several lists with another foreach in it")
		}
		_, at := c.loop(lists[0])
		e, i := value{path: &at}, value{expr: atom("i", "int")}
		inner := c.with("element", e).with("element0", e).with("elementIndex", i).with("elementIndex0", i)
		inner = c.context(inner, f.Context)
		where := all(exprsOf(inner.conditions(f.Preconditions))...)
		for _, each := range f.ForEach {
			c.nested(o, each, inner, lists[0], optional, loopName, where)
		}
		return o.expr()
	}
	appends := 0
	for _, op := range c.operations(f.PatchesJSON6902) {
		steps := tokens(op.Path)
		if last := steps[len(steps)-1]; last == "-" || last == "-1" {
			appends++
		}
		n := -1
		for i, l := range lists {
			if w := l.whole(); len(steps) > len(w) && slices.Equal(w, steps[:len(w)]) && indexVariable.MatchString(steps[len(w)]) {
				n = i
			}
		}
		if n < 0 {
			if appends > 1 {
				refuse("a foreach that appends twice: Kyverno does both for one element after the other")
			}
			c.elsewhere(o, f, op, steps, lists, optional)
			continue
		}
		l := lists[n]
		if len(lists) > 1 {
			c.note(Better, writesAt(l.whole()), "Kyverno counts elementIndex over all lists of the foreach and so changes other elements; the policy changes the elements of "+show(l.whole()))
		}
		name, at := c.loop(l)
		inner := c.context(c.element(at, "i"), f.Context)
		where := all(exprsOf(inner.conditions(f.Preconditions))...)
		items, may := c.shape.read(l)
		if may && !optional {
			items, may = c.shape.get(l), false
		}
		rest := steps[len(l.whole())+1:]
		if len(rest) == 0 {
			if op.Op != "remove" {
				refuse("a foreach that replaces its elements")
			}
			if f.Order == nil || *f.Order != "Descending" {
				refuseFor("order: Descending", "a foreach that removes elements in ascending order: Kyverno removes others than it looked at")
			}
			if may {
				items = call(items, "orValue", "list", list())
			}
			kept := call(c.shape.get(l), "filter", "list", atom(name, ""), not(where))
			o.add(call(items, "exists", "bool", atom(name, ""), where), patchOp("replace", pointerTo(l), &kept))
			continue
		}
		o.loops = []loop{{items, "i", name, where, may}}
		o.patch(inner, op, at, pointerTo(l).at("i"), rest)
		o.loops = nil
	}
	return o.expr()
}

// element returns a scope in which element and elementIndex are those of a foreach.
func (k *compiler) element(at path, index string) *scope {
	e, i := value{path: &at}, value{expr: atom(index, "int")}
	return k.with("element", e).with("element0", e).with("elementIndex", i).with("elementIndex0", i)
}

// elsewhere adds an operation of a foreach whose path is outside of its list.
func (k *compiler) elsewhere(o *ops, f policy.ForEach, op operation, steps []string, lists []path, optional bool) {
	if len(lists) > 1 {
		refuse("a foreach over several lists whose path %s is not that of an element of one", op.Path)
	}
	if f.Order != nil && *f.Order == "Descending" {
		refuse("order: Descending of a foreach whose path %s is not that of an element of its list", op.Path)
	}
	if op.Op != "add" {
		refuse("a foreach that says %s for %s, which is not in its list", op.Op, op.Path)
	}
	if w := lists[0].whole(); len(steps) > len(w) && slices.Equal(w, steps[:len(w)]) {
		refuse("a foreach that changes its list at %s", op.Path)
	}
	name, at := k.loop(lists[0])
	inner := k.context(k.element(at, "i"), f.Context)
	where := all(exprsOf(inner.conditions(f.Preconditions))...)
	items, may := k.shape.read(lists[0])
	if may && !optional {
		items, may = k.shape.get(lists[0]), false
	}
	o.loops = []loop{{items, "i", name, where, may}}
	o.patch(inner, op, path{root: object}, nil, steps)
	o.loops = nil
}

// nested translates a foreach within a foreach that removes elements of the inner list.
func (c *compiler) nested(o *ops, f policy.ForEach, s *scope, outer path, outerOptional bool, outerName string, outerWhere expr) {
	lists, optional := s.listOf(f.List)
	if len(lists) != 1 || len(f.ForEach) > 0 || f.PatchesJSON6902 == "" {
		refuse("what is in a foreach within a foreach")
	}
	l := lists[0]
	operations := s.operations(f.PatchesJSON6902)
	items, may := c.shape.read(outer)
	if may && !outerOptional {
		items, may = c.shape.get(outer), false
	}
	outerLoop := loop{items, "i", outerName, outerWhere, may}
	if !optional && s.shape.has(l).Text != yes.Text {
		c.note(Better, refusesWithout(show(l.whole())), "Kyverno refuses an object in which an element has no "+l.steps[len(l.steps)-1]+"; the policy passes over it")
	}
	if c.inElements(o, f, operations, s, outer, l, outerLoop) {
		return
	}
	if len(f.Context) > 0 {
		refuse("a context of a foreach within a foreach that removes or replaces its elements")
	}
	want := append(slices.Clone(outer.whole()), "", l.steps[len(l.steps)-1], "")
	replaces := len(operations) == 1 && operations[0].Op == "replace" && f.Preconditions == nil
	if !replaces && (len(operations) != 1 || operations[0].Op != "remove" || f.Order == nil || *f.Order != "Descending") {
		refuse("a foreach within a foreach that neither replaces its elements nor removes them in descending order")
	}
	steps := tokens(operations[0].Path)
	for i := range steps {
		if indexVariable.MatchString(steps[i]) {
			steps[i] = ""
		}
	}
	if !slices.Equal(steps, want) {
		refuse("a foreach within a foreach whose path %s is not that of its element", operations[0].Path)
	}
	name, inner := s.loop(l)
	within := s.with("element", value{path: &inner}).with("element1", value{path: &inner})
	where := all(exprsOf(within.conditions(f.Preconditions))...)
	kept := call(s.shape.get(l), "filter", "list", atom(name, ""), not(where))
	exists := call(s.shape.or(l, list()), "exists", "bool", atom(name, ""), where)
	if replaces {
		v := literal(within.fill(operations[0].Value))
		kept, exists = call(s.shape.get(l), "map", "list", atom(name, ""), v), s.shape.has(l)
	}
	o.loops = []loop{outerLoop}
	o.add(exists, patchOp("replace", pointerTo(outer).at("i").to(l.steps[len(l.steps)-1]), &kept))
	o.loops = nil
}

// inElements translates a foreach within a foreach whose operations change elements of the inner
// list. It returns false if the operations do something else.
func (c *compiler) inElements(o *ops, f policy.ForEach, operations []operation, s *scope, outer, l path, outerLoop loop) bool {
	depth := len(outer.whole())
	var rests [][]string
	for _, op := range operations {
		steps := tokens(op.Path)
		n := depth + 1 + len(l.steps)
		if len(steps) <= n+1 || !slices.Equal(steps[:depth], outer.whole()) || !slices.Equal(steps[depth+1:n], l.steps) ||
			!outerIndex.MatchString(steps[depth]) || !innerIndex.MatchString(steps[n]) {
			return false
		}
		rests = append(rests, steps[n+1:])
	}
	name, inner := s.loop(l)
	e, j := value{path: &inner}, value{expr: atom("j", "int")}
	within := s.with("element", e).with("element1", e).with("elementIndex", j).with("elementIndex1", j)
	within = c.context(within, f.Context)
	where := all(exprsOf(within.conditions(f.Preconditions))...)
	items, may := s.shape.read(l)
	at := pointerTo(outer).at("i")
	for _, step := range l.steps {
		at = at.to(step)
	}
	o.loops = []loop{outerLoop, {items, "j", name, where, may}}
	for i, op := range operations {
		o.patch(within, op, inner, at.at("j"), rests[i])
	}
	o.loops = nil
	return true
}

var (
	outerIndex = regexp.MustCompile(`^\{\{\s*elementIndex0\s*\}\}$`)
	innerIndex = regexp.MustCompile(`^\{\{\s*elementIndex1?\s*\}\}$`)
)
