package translate

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// plainWalk translates a location where nothing can be null or of a wrong type:
// in built-in kinds, and in the metadata of all kinds. It needs fewer tests
// than walk, so that its policies read as if a person had written them.
type plainWalk struct {
	*walk
	known     known
	variables *variables
	// trusted: the walk can be used for this mutator.
	trusted bool
	// added reports whether some mutator adds an element to list.
	added func(list legacy.Path) bool
	// namespaced: all objects have a namespace.
	namespaced        bool
	namespaceVariable expr
}

// variables are the variables of a policy.
type variables struct{ names, exprs []string }

// add returns a variable with the value of e.
func (v *variables) add(name string, e expr) expr {
	unique := name
	for n := 2; slices.Contains(v.names, unique); n++ {
		unique = name + strconv.Itoa(n)
	}
	v.names, v.exprs = append(v.names, unique), append(v.exprs, e.String())
	return field(ident("variables"), unique)
}

// effect is a choice that happens if all conditions hold; otherwise nothing happens.
type effect struct {
	conds []condition
	do    choice
}

// exprs returns the conditions without their names.
func exprs(conds []condition) []expr {
	out := make([]expr, len(conds))
	for i, c := range conds {
		out[i] = c.Expr
	}
	return out
}

// stretch is a part of the location without list selectors: the fields from the object or a list
// element to the next list or the end.
type stretch struct {
	first, last int
	at          expr // the value that has the first field
	conds       []condition
	// sure is the depth down to which all fields exist if conds hold.
	sure int
	// fresh is the depth at which conds say that the field is missing; -1 if none says so.
	fresh int
}

// stretch collects conditions for the fields between two lists: for path tests, and that fields
// exist which the mutator would not create.
func (w *plainWalk) stretch(first int, at expr) stretch {
	s := stretch{first: first, last: first, at: at, sure: first - 1, fresh: -1}
	for s.last+1 < len(w.path) && !w.path[s.last+1].List {
		s.last++
	}
	need := first - 1
	for d := first; d <= s.last; d++ {
		if c, _ := w.m.Test(d); c == legacy.MustExist || !w.creates(d+1) {
			need = d
		}
	}
	if need >= first && !w.alwaysUntil(first, need) {
		s.conds = append(s.conds, condition{Name: "has-" + kebab(w.path[need].Name), Expr: w.exists(s, need)})
	}
	s.sure = need
	for d := need + 1; d <= s.last; d++ {
		if _, mayMiss := w.allowed(d); mayMiss && !w.mayFind(d) {
			s.conds = append(s.conds, condition{Name: "has-no-" + w.label(d) + kebab(w.path[d].Name), Expr: not(w.exists(s, d))})
			s.fresh = d
			break
		}
	}
	return s
}

// label returns "label-" or "annotation-" if AssignMetadata sets the node at depth d, otherwise
// "".
func (w *plainWalk) label(d int) string {
	switch {
	case w.m.Kind != legacy.AssignMetadata || d < 2:
		return ""
	case w.path[1].Name == "annotations":
		return "annotation-"
	}
	return "label-"
}

func (w *plainWalk) mayFind(d int) bool {
	found, _ := w.allowed(d)
	return found
}

func (w *plainWalk) alwaysUntil(first, last int) bool {
	for d := first; d <= last; d++ {
		if !w.known.nodes[d].always {
			return false
		}
	}
	return true
}

func (w *plainWalk) creates(d int) bool { return creates(w.m, d) }

// creates reports whether a mutator creates the rest of its location, from
// depth d on, where it is missing.
func creates(m *legacy.Mutator, d int) bool {
	return (m.Set == nil || !m.Set.Prune) &&
		!slices.ContainsFunc(m.Tests, func(t legacy.PathTest) bool {
			return t.Depth >= d && t.Condition != legacy.MustNotExist
		}) &&
		!slices.ContainsFunc(m.Location[d:], func(n legacy.Node) bool { return n.Glob })
}

// leavesParents reports whether Gatekeeper may create parents of a list although it then removes
// nothing from that list.
func (w *plainWalk) leavesParents() bool {
	for d := len(w.path) - 1; d >= 0; d-- {
		if _, mayMiss := w.allowed(d); !mayMiss || w.path[d].Glob {
			return false
		}
		if d < len(w.path)-1 && (w.path[d].List || !w.trusted || !w.known.nodes[d].always) {
			return true
		}
	}
	return false
}

// neverMissing returns the depth of a field that always exists and whose path test requires that
// it is missing.
func (w *plainWalk) neverMissing() (int, bool) {
	first := 0
	for d, n := range w.path {
		if n.List {
			first = d + 1
		} else if w.trusted && !w.mayFind(d) && w.alwaysUntil(first, d) {
			return d, true
		}
	}
	return 0, false
}

// undeclaredValue returns a field of the value that the kinds do not declare.
func (w *plainWalk) undeclaredValue() string {
	if !w.known.builtin {
		return ""
	}
	var v any
	switch {
	case w.m.Set != nil:
		v = w.m.Set.Values
	case w.m.From != nil:
		v = w.m.From.Value
	}
	for _, p := range w.known.places {
		if field := undeclaredIn(v, p); field != "" {
			return field
		}
	}
	return ""
}

// exists returns whether there is a field at depth d of a stretch.
func (w *plainWalk) exists(s stretch, d int) expr {
	e, plain := w.reach(s, d-1)
	if plain {
		return has(e, w.path[d].Name)
	}
	return call(optional(e, w.path[d].Name), "hasValue")
}

// read returns the field at depth d of a stretch, or missing if it does not
// exist.
func (w *plainWalk) read(s stretch, d int, missing expr) expr {
	e, plain := w.reach(s, d)
	if plain {
		return e
	}
	return call(e, "orValue", missing)
}

// reach returns the field at depth d of a stretch: as a plain value if it exists for sure,
// otherwise as an optional.
func (w *plainWalk) reach(s stretch, d int) (e expr, plain bool) {
	e, plain = s.at, true
	for i := s.first; i <= d; i++ {
		plain = plain && !w.mayLack(s, i)
		if plain {
			e = field(e, w.path[i].Name)
		} else {
			e = optional(e, w.path[i].Name)
		}
	}
	return e, plain
}

// fieldAt returns the field at depth d. The caller makes sure that it exists.
func (w *plainWalk) fieldAt(s stretch, d int) expr {
	e := s.at
	for i := s.first; i <= d; i++ {
		e = field(e, w.path[i].Name)
	}
	return e
}

// from returns the effect on the value e at p of the location from depth d on. top: no loop is
// around it.
func (w *plainWalk) from(d int, e expr, p pointer, top bool) effect {
	s := w.stretch(d, e)
	at := make([]pointer, s.last+1)
	for i, q := d, p; i <= s.last; i++ {
		q = q.key(w.path[i].Name)
		at[i] = q
	}
	result := effect{conds: s.conds}
	last := s.last // all parents of this depth have to exist
	switch {
	case s.fresh >= 0:
		last = s.fresh
		result.do = w.created(operations(operation("add", at[last], w.made(last+1))))
	case s.last == len(w.path)-1:
		result.add(w.leaf(s, at[s.last]))
	default:
		result.add(w.list(s, at[s.last], top))
		last++
	}
	var parents []expr // parents that may be missing, the outermost first
	for i := d; i < last; i++ {
		if w.mayLack(s, i) {
			parents = append(parents, w.unlessThere(s, i, at[i]))
		}
	}
	result.do = result.do.after(parents...)
	return result
}

// unlessThere returns a list of operations: one that creates an empty value for the field at
// depth i, or none if the field exists.
func (w *plainWalk) unlessThere(s stretch, i int, p pointer) expr {
	empty := mapOf()
	if i+1 < len(w.path) && w.path[i+1].List || i+1 == len(w.path) {
		empty = listOf()
	}
	return cond(w.exists(s, i), listOf(), listOf(operation("add", p, empty)))
}

// mayLack reports whether a field of a stretch may be missing although its
// parent exists and the conditions hold.
func (w *plainWalk) mayLack(s stretch, d int) bool { return d > s.sure && !w.known.nodes[d].always }

func (d *effect) add(more effect) {
	d.conds = append(d.conds, more.conds...)
	d.do = more.do
}

// leaf returns the effect on the last field, at p.
func (w *plainWalk) leaf(s stretch, p pointer) effect {
	d := s.last
	switch {
	case w.recorded != nil:
		key := w.recordedKey(s)
		return effect{do: w.must(key, operations(operation("add", p, w.answer(key))))}
	case w.m.Set == nil:
		return effect{do: operations(operation("add", p, w.assigned(s)))}
	case w.m.Set.Prune:
		return w.pruned(s, p)
	}
	return w.merged(s, p, d)
}

// recordedKey returns the key with which external data is looked up for the last
// field of a stretch.
func (w *plainWalk) recordedKey(s stretch) *lookupKey {
	missing := w.missingKey()
	if w.m.From.External.AlwaysUsername {
		return missing
	}
	if missing == nil {
		missing = &lookupKey{expr: constant("")}
	}
	key := w.read(s, s.last, missing.expr)
	return &lookupKey{key, s.first == 0}
}

// assigned returns the value that the last field gets.
func (w *plainWalk) assigned(s stretch) expr {
	if w.m.Image == nil || w.allParts() {
		return w.made(len(w.path))
	}
	old := w.read(s, s.last, constant(""))
	return w.image(&old)
}

// allParts reports whether the image replaces all parts of the old one.
func (w *plainWalk) allParts() bool {
	i := w.m.Image
	return i.Domain != "" && i.Path != "" && i.Tag != ""
}

func (w *plainWalk) pruned(s stretch, p pointer) effect {
	list := w.fieldAt(s, s.last)
	if !w.listOfScalars() {
		return effect{do: w.prune(list, p)}
	}
	o := w.unused("v", "o", "x")
	values := w.m.Set.Values
	keep := not(binary("in", ident(o), w.literal(values, nil, "")))
	if len(values) == 1 {
		keep = binary("!=", ident(o), w.literal(values[0], nil, ""))
	}
	return effect{do: operations(operation("replace", p, macro(list, "filter", []string{o}, keep)))}
}

// merged appends missing values. One value needs a condition, several a loop.
func (w *plainWalk) merged(s stretch, p pointer, d int) effect {
	values := distinct(w.m.Set.Values)
	list := w.read(s, d, listOf())
	if len(values) < len(w.m.Set.Values) && w.mayLack(s, d) {
		// A new list gets all of them.
		add := operations(operation("add", p, w.made(d+1)))
		return effect{do: decide(tested(w.exists(s, d)), w.appended(values, w.fieldAt(s, d), p), add)}
	}
	result := effect{do: w.appended(values, list, p)}
	if len(w.m.Set.Values) == 1 {
		v := w.literal(values[0], nil, "")
		result.conds = []condition{{Name: "lacks-a-value", Expr: not(binary("in", v, list))}}
		result.do = operations(operation("add", p.key("-"), v))
	}
	if w.mayLack(s, d) {
		result.do = result.do.after(w.unlessThere(s, d, p))
	}
	return result
}

// appended returns the operations that append those values that a list lacks.
func (w *plainWalk) appended(values []any, list expr, p pointer) choice {
	if len(values) == 0 {
		return choice{}
	}
	v := w.unused("v", "w", "x")
	add := macro(w.literal(values, nil, ""), "map", []string{v}, not(binary("in", ident(v), list)), operation("add", p.key("-"), ident(v)))
	return choice{many: &add}
}

func (w *plainWalk) listOfScalars() bool {
	for _, p := range w.known.places {
		if e, ok := p.Element(); !ok || e.Scalar() == "" {
			return false
		}
	}
	return true
}

func (w *plainWalk) terminal() bool { return w.path[len(w.path)-1].List }

// list returns the effect on the list at the end of a stretch, at p.
func (w *plainWalk) list(s stretch, p pointer, top bool) effect {
	d := s.last + 1
	node := w.path[d]
	if d == len(w.path)-1 {
		return w.element(s, p, top)
	}
	list := w.fieldAt(s, s.last) // where an element of it was found
	i, x := w.loop(d)
	sub := w.from(d+1, ident(x), p.index(i), false)
	if node.Glob {
		return effect{do: each(list, i, x, where(exprs(sub.conds)), sub.do)}
	}
	match := w.selects(d, x)
	found := each(list, i, x, where(append([]expr{match}, exprs(sub.conds)...)), sub.do)
	if !w.creates(d) {
		return effect{do: found}
	}
	some := macro(w.read(s, s.last, listOf()), "exists", []string{x}, match)
	push := w.created(operations(operation("add", p.key("-"), w.fresh(d))))
	if w.mayFind(d) {
		return effect{do: decide(tested(some), found, push)}
	}
	return effect{conds: []condition{w.lacks(s, x, match)}, do: push}
}

func where(conds []expr) *expr {
	if len(conds) == 0 {
		return nil
	}
	e := all(conds...)
	return &e
}

// lacks returns the condition that the list has no selected element.
func (w *plainWalk) lacks(s stretch, x string, match expr) condition {
	node := w.path[s.last+1]
	return condition{Name: "has-no-" + kebab(keyText(node)), Expr: not(macro(w.read(s, s.last, listOf()), "exists", []string{x}, match))}
}

// element replaces the first element with the key, or appends one.
func (w *plainWalk) element(s stretch, p pointer, top bool) effect {
	d := s.last + 1
	_, x := w.loop(d)
	match := w.selects(d, x)
	found, missing := w.allowed(d)
	list := w.read(s, s.last, listOf())
	index := call(macro(list, "map", []string{x}, w.key(d, x)), "indexOf", constant(w.path[d].Value))
	if top && found {
		index = w.variables.add("index", index)
	}
	replace := func() choice {
		return operations(message("JSONPatch", entry{Name: "op", Value: constant("replace")}, entry{Name: "path", Value: p.at(index).expr()},
			entry{Name: "value", Value: w.fresh(d)}))
	}
	push := operations(operation("add", p.key("-"), w.fresh(d)))
	if !found {
		return effect{conds: []condition{w.lacks(s, x, match)}, do: push}
	}
	if !missing {
		has := condition{Name: "has-" + kebab(keyText(w.path[d])), Expr: macro(list, "exists", []string{x}, match)}
		return effect{conds: []condition{has}, do: replace()}
	}
	if !top {
		return effect{do: decide(tested(macro(list, "exists", []string{x}, match)), replace(), push)}
	}
	none := binary("<", index, constant(int64(0)))
	either := operations(message("JSONPatch",
		entry{Name: "op", Value: cond(none, constant("add"), constant("replace"))},
		entry{Name: "path", Value: sum(p.key("").expr(), cond(none, constant("-"), fn("string", index)))},
		entry{Name: "value", Value: w.fresh(d)}))
	return effect{do: either}
}

// selects returns whether the list selector at d selects x.
func (w *plainWalk) selects(d int, x string) expr {
	match := equal(field(ident(x), w.path[d].Name), constant(w.path[d].Value))
	if w.known.nodes[d].always {
		return match
	}
	return all(has(ident(x), w.path[d].Name), match)
}

// key returns the key of an element x.
func (w *plainWalk) key(d int, x string) expr {
	if w.known.nodes[d].always {
		return field(ident(x), w.path[d].Name)
	}
	return call(optional(ident(x), w.path[d].Name), "orValue", constant(""))
}

// loop names the variables of a loop over the list at d. The element gets the
// first letter of what it is.
func (w *plainWalk) loop(d int) (i, x string) {
	words := strings.Fields(singular(w.path[d-1].Name))
	return w.named(words[len(words)-1][:1])
}

// made returns the value that the mutator creates for the location from depth d
// on.
func (w *plainWalk) made(d int) expr {
	v := w.content(d)
	place, typ, ok := w.where(d)
	if !ok {
		return w.literal(v, nil, "")
	}
	return w.literal(v, &place, typ)
}

// fresh returns the element that the mutator creates for the list selector at
// d.
func (w *plainWalk) fresh(d int) expr {
	v := w.content(d).([]any)[0]
	place, typ, ok := w.where(d + 1)
	if !ok {
		return w.literal(v, nil, "")
	}
	return w.literal(v, &place, typ)
}

// content returns the value of made: plain JSON data, with an expr where the
// value is not constant.
func (w *plainWalk) content(d int) any {
	if d == len(w.path) {
		switch {
		case w.m.Image != nil:
			image := w.image(nil)
			image.Type = "string"
			return image
		case w.m.Set != nil:
			return w.m.Set.Values
		case w.m.From.Metadata == "namespace":
			namespace := w.namespace()
			namespace.Type = "string"
			return namespace
		case w.recorded != nil:
			return w.answer(w.missingKey())
		case w.m.From.Metadata != "":
			name := w.value()
			name.Type = "dyn" // as all that is read from objects
			return name
		}
		return w.once(w.m.From.Value)
	}
	node := w.path[d]
	if !node.List {
		return map[string]any{node.Name: w.content(d + 1)}
	}
	if d == len(w.path)-1 {
		return []any{w.once(w.m.From.Value)}
	}
	element := map[string]any{node.Name: node.Value}
	for k, v := range w.content(d + 1).(map[string]any) {
		element[k] = v
	}
	return []any{element}
}

// namespace returns the namespace of the request, and "" for a Namespace. It is
// a variable of the policy.
func (w *plainWalk) namespace() expr {
	switch {
	case w.namespaced:
		return namespaceOfRequest
	case w.namespaceVariable.Text == "":
		w.namespaceVariable = w.variables.add("requestNamespace", w.namespaceOf())
	}
	return w.namespaceVariable
}

// once returns an expression for v, or a variable that holds it.
func (w *plainWalk) once(v any) any {
	var plain expr
	if place, typ, ok := w.where(len(w.path)); ok {
		plain = w.literal(v, &place, typ)
	} else {
		plain = w.literal(v, nil, "")
	}
	if e := w.repeats.say(w.valueName(), plain); e.String() != plain.String() {
		return e
	}
	return v
}

func keyText(n legacy.Node) string {
	if s, ok := n.Value.(string); ok {
		return s
	}
	return n.Name
}

// kebab turns a field name into a part of a condition's name:
// readOnlyRootFilesystem, "read-only-root-filesystem".
func kebab(name string) string {
	var b strings.Builder
	for i, c := range name {
		switch {
		case c > unicode.MaxASCII || !(unicode.IsLetter(c) || unicode.IsDigit(c)):
			c = '-'
		case unicode.IsUpper(c) && i > 0 && !unicode.IsUpper(rune(name[i-1])):
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	s := strings.Trim(b.String(), "-")
	return cut(s, 40)
}
