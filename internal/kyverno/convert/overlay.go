package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// action says how a node of a patch changes its field.
type action int

const (
	set     action = iota // write a scalar, or replace a list
	add                   // set if the field is missing: +()
	drop                  // remove: null
	inside                // change the fields of an object
	merge                 // merge elements of a list by a key
	forEach               // change existing elements
	copied                // copy all members of a map
)

// node is the part of a patch for one field.
type node struct {
	action action
	name   string
	value  any // for set and add; exprs stand for variables
	fields []*node
	// elements are the list elements for merge, each a list of its fields.
	elements [][]*node
	listKeys []string
	// names is the name of a label or annotation if the name contains a variable; name is then a
	// placeholder for it.
	names *expr
	// at and loop are the path and the variable of an element, and where the condition on it, for
	// forEach.
	at    path
	loop  string
	where expr
	// must: if the list is missing, Kyverno fails, and so does the policy.
	must bool
}

// overlay translates a patchStrategicMerge.
type overlay struct {
	*scope
	conds []condition
	notes func(Verdict, effect, string)
	// each is the foreach around the patch; nil if there is none.
	each *eachElement
	// unneeded are values of fallible that are read within +() only, and so are not read if the
	// field exists.
	unneeded []string
}

// eachElement is the current element of a foreach; the patch selects it by its name.
type eachElement struct {
	list     path
	lists    [][]string // all lists that the foreach visits
	loop     string
	at       path
	optional bool // the list may be missing
	where    expr
	used     bool
}

var anchorPattern = regexp.MustCompile(`^([+<=X^])?\((.+)\)$`)

// anchor divides a key into its anchor ("" for none, "()" for the conditional one) and the name.
func anchor(key string) (kind, name string) {
	key = strings.TrimSpace(key)
	m := anchorPattern.FindStringSubmatch(key)
	if m == nil {
		return "", key
	}
	if m[1] == "" {
		return "()", m[2]
	}
	return m[1], m[2]
}

// keyOf has the keys by which kustomize merges the elements of lists.
var keyOf = map[string][]string{
	"containers": {"name"}, "initContainers": {"name"}, "ephemeralContainers": {"name"}, "env": {"name"}, "volumes": {"name"},
	"imagePullSecrets": {"name"}, "volumeMounts": {"mountPath"}, "hostAliases": {"ip"}, "volumeDevices": {"devicePath"},
	"topologySpreadConstraints": {"topologyKey", "whenUnsatisfiable"},
}

// keysOf returns the keys of a list at a path: those of keyOf, or for ports of containers others.
func (o *overlay) keysOf(name string, at path) []string {
	if !o.shape.builtin {
		return nil
	}
	if whole := at.whole(); name == "ports" && len(whole) > 2 && (whole[len(whole)-3] == "containers" || whole[len(whole)-3] == "initContainers") {
		return []string{"containerPort", "protocol"}
	}
	return keyOf[name]
}

// merged are lists that kustomize merges in ways that this package does not know.
var merged = []string{"ports", "finalizers", "ownerReferences", "secrets", "conditions", "subsets", "resourceClaims", "taints", "podCIDRs"}

// fields translates the fields of a patch for the object at a path.
func (o *overlay) fields(m map[string]any, at path) []*node {
	var out []*node
	for _, key := range celgen.FieldOrder(stripped(m)) {
		raw := rawKey(m, key)
		kind, name := anchor(raw)
		if hasVariable(name) {
			if kind != "" || !o.shape.inMap(at.whole()) || o.shape.scalar(at.to("x").whole()) != "string" {
				refuse("a variable in the name of a field: %s", name)
			}
			text, ok := m[raw].(string)
			e := o.text(name)
			if !ok || e.Type != "string" && e.Type != "int" {
				refuse("a variable in the name of a field: %s", name)
			}
			if e.Type == "int" {
				e = fn("string", "string", e)
			}
			out = append(out, &node{action: set, name: "x", names: &e, value: o.fits(o.text(text), at.to("x"))})
			continue
		}
		if strings.ContainsAny(name, "*?") {
			refuse("a wildcard in the name of a field: %s", name)
		}
		next := at.to(name)
		if bad := o.shape.undeclared(next.whole()); bad != "" && kind != "=" && kind != "X" && kind != "^" {
			refuse("the kind has no field %s, so a server drops what Kyverno writes", bad)
		}
		switch kind {
		case "()", "<":
			o.conds = append(o.conds, condition{"has-" + label(name), o.holds(next, m[raw])})
		case "=", "X", "^":
			refuseFor("leave out the anchor", "%s is an anchor of validation; Kyverno would write a field of that name", raw)
		case "+":
			before := len(*o.fallible)
			if t, ok := m[raw].(string); ok && hasVariable(t) {
				out = append(out, &node{action: add, name: name, value: o.mayMiss(t, next)})
			} else if v := plainValue(m[raw]); v != nil {
				out = append(out, &node{action: add, name: name, value: o.fill(v)})
			}
			o.unneeded = append(o.unneeded, (*o.fallible)[before:]...)
		default:
			if n := o.field(name, m[raw], next); n != nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// stripped returns m with the anchors removed from its keys, which decides their order.
func stripped(m map[string]any) map[string]any {
	out := map[string]any{}
	for k := range m {
		_, name := anchor(k)
		if _, ok := out[name]; ok {
			refuseFor("ask for its value in preconditions", "the field %s twice", name)
		}
		out[name] = nil
	}
	return out
}

func rawKey(m map[string]any, name string) string {
	for k := range m {
		if _, n := anchor(k); n == name {
			return k
		}
	}
	return name
}

func label(s string) string {
	s = strings.ToLower(s)
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(s, "-"), "-")
}

// plainValue returns a value of +() anchors without the anchors, and without empty objects, which
// Kyverno drops. All anchors in it have to be +(). It returns nil if nothing is left.
func plainValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			kind, name := anchor(k)
			if kind != "" && kind != "+" {
				refuse("the anchor %s within +()", k)
			}
			if e := plainValue(e); e != nil {
				out[name] = e
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			if anchored(e) {
				refuse("an anchor in a list within +()")
			}
			if out[i] = plainValue(e); out[i] == nil {
				refuse("an empty element of a list")
			}
		}
		return out
	}
	return v
}

// anchored reports whether Kyverno would find an anchor in a value.
func anchored(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if kind, _ := anchor(k); kind == "()" || kind == "<" || kind == "+" || anchored(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, anchored)
	case string:
		kind, _ := anchor(v)
		return kind == "()" || kind == "<"
	}
	return false
}

func global(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if kind, _ := anchor(k); kind == "<" || global(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, global)
	}
	return false
}

// holds returns the condition of an anchor: that the value at p matches want.
func (o *overlay) holds(p path, want any) expr {
	if bad := o.shape.undeclared(p.whole()); bad != "" {
		refuse("there is no field %s", bad)
	}
	typ := o.shape.scalar(p.whole())
	switch want := want.(type) {
	case map[string]any:
		if len(want) == 0 && typ == "map" {
			return typedBool(o.shape.has(p))
		}
		refuseFor("write the anchor at the fields in it", "a condition on a whole object, of which Kyverno writes what is in it")
	case string:
		if hasVariable(want) {
			e := o.text(want)
			if e.Type != "string" || typ != "string" {
				refuse("a condition with the variable %s", want)
			}
			return equal(o.shape.or(p, str("")), e)
		}
		if typ == "int" {
			return o.number(p, want)
		}
		if typ == "bool" {
			return o.boolean(p, want)
		}
		if typ != "string" {
			refuse("a condition on what is not known to be a string: %s", show(p.whole()))
		}
		return o.like(p, want)
	case bool:
		if typ != "bool" {
			refuse("a condition on what is not known to be a boolean: %s", show(p.whole()))
		}
		e, optional := o.shape.read(p)
		if !optional {
			return equal(e, literal(want))
		}
		return equal(e, fn("optional.of", "", literal(want)))
	case int64:
		if typ != "int" {
			refuse("a condition on what is not known to be an integer: %s", show(p.whole()))
		}
		e, optional := o.shape.read(p)
		if !optional {
			return equal(e, literal(want))
		}
		return equal(e, fn("optional.of", "", literal(want)))
	}
	refuse("a condition with %v", want)
	return no
}

// boolean returns the condition that a boolean matches a pattern such as "!true": Kyverno
// compares booleans as texts.
func (o *overlay) boolean(p path, pattern string) expr {
	if strings.ContainsAny(pattern, "<>") {
		refuse("a condition with operators: %q", pattern)
	}
	var fit []bool
	for _, value := range []bool{true, false} {
		text := strconv.FormatBool(value)
		if slices.ContainsFunc(strings.Split(pattern, "|"), func(alternative string) bool {
			return !slices.ContainsFunc(strings.Split(alternative, "&"), func(part string) bool {
				part, negated := strings.CutPrefix(strings.TrimSpace(part), "!")
				is := regexp.MustCompile("^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(strings.TrimSpace(part))) + "$")
				return is.MatchString(text) == negated
			})
		}) {
			fit = append(fit, value)
		}
	}
	switch len(fit) {
	case 1:
		return o.holds(p, fit[0])
	case 2:
		return typedBool(o.shape.has(p))
	}
	return no
}

var numberPattern = regexp.MustCompile(`^(>=|<=|>|<|!|)\s*(-?\d{1,18})$`)

// number returns the condition that an integer matches a pattern such as >2, 1-5, or 1 | 2.
func (o *overlay) number(p path, pattern string) expr {
	v, optional := o.shape.read(p)
	there := yes
	if optional {
		there, v = typedBool(o.shape.has(p)), o.shape.get(p)
	}
	var alternatives []expr
	for alternative := range strings.SplitSeq(pattern, "|") {
		parts := []expr{there}
		for part := range strings.SplitSeq(strings.TrimSpace(alternative), "&") {
			part = strings.TrimSpace(part)
			if a, b, ok := strings.Cut(part, "-"); ok && numberPattern.MatchString(a) && numberPattern.MatchString(b) && rangePattern.MatchString(part) {
				parts = append(parts, relation(v, ">=", atom(a, "int")), relation(v, "<=", atom(b, "int")))
				continue
			}
			m := numberPattern.FindStringSubmatch(part)
			if m == nil {
				refuse("the condition %q on a number", pattern)
			}
			sign := map[string]string{"": "==", "!": "!="}[m[1]]
			if sign == "" {
				sign = m[1]
			}
			parts = append(parts, relation(v, sign, atom(m[2], "int")))
		}
		alternatives = append(alternatives, all(parts...))
	}
	return anyOf(alternatives...)
}

// like returns the condition that a text matches a pattern: | separates alternatives, & joins
// patterns that all have to match, and ! negates.
func (o *overlay) like(p path, pattern string) expr {
	if strings.ContainsAny(pattern, "<>") || rangePattern.MatchString(pattern) {
		refuse("a condition with operators: %q", pattern)
	}
	m := &matcher{shape: o.shape}
	if texts := strings.Split(pattern, "|"); len(texts) > 1 && !strings.ContainsAny(pattern, "*?&!") {
		for i := range texts {
			texts[i] = strings.TrimSpace(texts[i])
		}
		if !slices.ContainsFunc(texts, func(t string) bool { return t == "" || comparesOtherwise(t) != "" }) {
			return in(o.shape.or(p, str("")), strs(texts))
		}
	}
	var alternatives []expr
	for alternative := range strings.SplitSeq(pattern, "|") {
		var parts []expr
		for part := range strings.SplitSeq(strings.TrimSpace(alternative), "&") {
			part = strings.TrimSpace(part)
			negated := false
			if len(part) > 1 {
				part, negated = strings.CutPrefix(part, "!")
				part = strings.TrimSpace(part)
			}
			if why := comparesOtherwise(part); why != "" {
				refuse("%s", why)
			}
			e := m.text(p, part)
			if negated {
				e = all(typedBool(o.shape.has(p)), not(e))
			}
			parts = append(parts, e)
		}
		alternatives = append(alternatives, all(parts...))
	}
	return anyOf(alternatives...)
}

func (o *overlay) field(name string, v any, at path) *node {
	switch v := v.(type) {
	case nil:
		return &node{action: drop, name: name}
	case map[string]any:
		fields := o.fields(v, at)
		if len(fields) == 0 {
			return nil // Kyverno drops an object that contains only conditions
		}
		return &node{action: inside, name: name, fields: fields}
	case []any:
		return o.list(name, v, at)
	case string:
		if hasVariable(v) {
			if o.shape.inMap(at.whole()) {
				return o.copied(name, v)
			}
			return &node{action: set, name: name, value: o.mayMiss(v, at)}
		}
	}
	if typ, is := o.shape.scalar(at.whole()), literal(v).Type; typ != "" && typ != "untyped" && typ != is && is != "double" {
		refuseFor("write a value of that type", "a %s for %s, which is a %s: a server refuses what Kyverno writes", is, show(at.whole()), typ)
	}
	return &node{action: set, name: name, value: v}
}

// copied returns a node for a map, such as labels, whose members all come from a variable.
func (o *overlay) copied(name, text string) *node {
	m := variable.FindStringSubmatch(text)
	if m == nil || m[0] != text || hasVariable(m[1]) {
		refuse("a text for %s, which has members", name)
	}
	all, without, ok := o.texts(o.query(m[1]))
	if !ok {
		refuse("%s for %s: not known to be an object of texts", text, name)
	}
	n := &node{action: copied, name: name, value: all}
	for _, key := range without {
		n.fields = append(n.fields, &node{action: drop, name: key}) // merge() with null removes a member
	}
	return n
}

// either is an optional value that Kyverno takes for null if it is missing; the field then keeps
// its value.
type either struct{ expr }

// mayMiss translates the text of a field like text does, and also accepts a || b where both may
// be missing. In that case Kyverno writes null, which removes the field. That has no effect if
// the field is one of the two values, so other fields are refused.
func (s *scope) mayMiss(t string, at path) any {
	if m := variable.FindStringSubmatch(t); m != nil && m[0] == t && !hasVariable(m[1]) && strings.Contains(m[1], "||") {
		if v := s.query(m[1]); v.either != nil {
			if !slices.Contains(v.either, show(at.whole())) {
				refuse("|| of values that may both be missing, for a field that Kyverno then removes")
			}
			return either{v.expr}
		}
	}
	return s.fits(s.text(t), at)
}

// fits refuses a variable whose type differs from that of its field.
func (s *scope) fits(e expr, at path) expr {
	if typ := s.shape.scalar(at.whole()); typ != "" && e.Type != "" && e.Type != typ {
		refuse("a value of type %s for %s, which is a %s", e.Type, show(at.whole()), typ)
	}
	return e
}

func (o *overlay) list(name string, v []any, at path) *node {
	if len(v) == 0 {
		refuse("an empty list")
	}
	keyed := o.keysOf(name, at)
	if _, ok := v[0].(map[string]any); !ok {
		if slices.Contains(merged, name) || slices.ContainsFunc(v, anchored) {
			refuse("the list %s, which Kyverno merges", name)
		}
		return &node{action: set, name: name, value: o.fill(v)}
	}
	own := o.each != nil && slices.ContainsFunc(o.each.lists, func(l []string) bool { return slices.Equal(l, at.whole()) })
	if own || slices.ContainsFunc(v, anchored) {
		if len(v) != 1 {
			if !own {
				refuseFor("make a rule of each", "several elements of %s of which some have anchors: Kyverno mixes them up", name)
			}
			refuse("several elements of the list of a foreach")
		}
		return o.some(name, v[0].(map[string]any), at, keyed, own)
	}
	if keyed == nil {
		if o.shape.builtin && slices.Contains(merged, name) {
			refuse("the list %s, which Kyverno merges", name)
		}
		return &node{action: set, name: name, value: o.fill(plainList(v))}
	}
	n := &node{action: merge, name: name, listKeys: keyed}
	inside := path{root: atom("", ""), prefix: append(at.whole(), element)}
	for _, e := range v {
		m, ok := e.(map[string]any)
		if !ok || m[keyed[0]] == nil {
			refuse("an element of %s without %s", name, keyed[0])
		}
		for _, key := range keyed[1:] {
			if m[key] == nil {
				o.notes(Differs, writesAt(at.whole()), fmt.Sprintf("Kyverno pairs elements of %s by their %s alone if the policy has no %s; the policy by both", name, keyed[0], key))
			}
		}
		n.elements = append(n.elements, o.fields(m, inside))
	}
	return n
}

func plainList(v []any) any {
	out := plainValue(v)
	return out
}

// some translates the only element of a list in a patch if it has anchors, or selects the element
// of a foreach by name.
func (o *overlay) some(name string, m map[string]any, at path, keyed []string, own bool) *node {
	if !slices.Equal(keyed, []string{"name"}) {
		refuse("an anchor in %s, which Kyverno does not merge by name", name)
	}
	loop := variableFor(name)
	if strings.HasPrefix(at.root.Text, loop) {
		loop += "2"
	}
	elem := path{root: atom(loop, "map"), prefix: append(at.whole(), element)}
	inner := &overlay{scope: o.scope, notes: o.notes, each: nil}
	where := yes
	fields := map[string]any{}
	for k, v := range m {
		fields[k] = v
	}
	if own {
		e := o.each
		raw := rawKey(m, "name")
		kind, _ := anchor(raw)
		text, _ := m[raw].(string)
		if !regexp.MustCompile(`^\{\{\s*element\.name\s*\}\}$`).MatchString(text) || kind != "" && kind != "()" {
			refuse("a foreach whose patch does not name its element by {{element.name}}")
		}
		if kind == "" && len(e.lists) > 1 {
			refuse("a foreach over several lists whose patch adds elements to one of them")
		}
		if e.used {
			refuse("a foreach that patches its list twice")
		}
		e.used = true
		delete(fields, raw)
		loop, elem, where = e.loop, e.at, e.where
		if kind == "" && anchored(fields) {
			refuseFor(`write (name): "{{element.name}}"`, "+() beside a name without parentheses: Kyverno applies it to every element")
		}
	} else {
		if global(m) {
			conds := o.only(m, elem)
			items := o.shape.or(at, list())
			o.conds = append(o.conds, condition{"has-" + label(name), call(items, "exists", "bool", atom(loop, ""), all(conds...))})
			return nil
		}
		top := false
		for k := range m {
			kind, _ := anchor(k)
			top = top || kind == "()"
		}
		if !top && !conditional(m) {
			refuseFor(`write (name): "*" for all elements`, "+() in an element of %s without a condition: Kyverno applies it to every element, whatever its name", name)
		}
	}
	n := &node{action: forEach, name: name, at: elem, loop: loop, must: own && !o.each.optional}
	n.fields = inner.fields(fields, elem)
	n.where = all(append([]expr{where}, exprsOf(inner.conds)...)...)
	if n.where.Text != yes.Text || own && !always(n.fields) {
		o.notes(Order, reorders, "Kyverno moves the elements that it changes before the others of "+name)
	}
	if !own && hasAdd(n.fields) && !exactName(m) {
		o.notes(Better, writesAt(at.whole()), "Kyverno decides about +() at the first element of "+name+" and does the same to all; the policy decides for each")
	}
	if len(n.fields) == 0 {
		refuse("a patch of %s in which nothing is left to write", name)
	}
	return n
}

func conditional(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if kind, _ := anchor(k); kind == "()" || conditional(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, conditional)
	}
	return false
}

// exactName reports whether the element is selected by one exact name.
func exactName(m map[string]any) bool {
	s, ok := m["(name)"].(string)
	return ok && !strings.ContainsAny(s, "*?!|&")
}

func hasAdd(nodes []*node) bool {
	return slices.ContainsFunc(nodes, func(n *node) bool { return n.action == add || hasAdd(n.fields) })
}

// always reports whether a patch of an element always writes something.
func always(nodes []*node) bool {
	return slices.ContainsFunc(nodes, func(n *node) bool {
		if n.action == inside || n.action == forEach {
			return always(n.fields)
		}
		_, may := n.value.(either)
		return n.action == merge || n.action == copied || n.action == set && !may
	})
}

// only returns the conditions of an element that has only global anchors.
func (o *overlay) only(m map[string]any, at path) []expr {
	var out []expr
	for _, k := range sortedKeys(m) {
		kind, name := anchor(k)
		switch v := m[k].(type) {
		case map[string]any:
			if kind == "" {
				out = append(out, o.only(v, at.to(name))...)
				continue
			}
		}
		if kind != "<" {
			refuse("%s beside <(): Kyverno drops it", k)
		}
		out = append(out, o.holds(at.to(name), m[k]))
	}
	return out
}

// atomic reports whether an apply configuration cannot write below a path, because a merge treats
// the value as a whole.
func (s *shape) atomic(p []string) bool {
	places, ok := s.at(p)
	return !ok || slices.ContainsFunc(places, openapi.Place.Atomic)
}
