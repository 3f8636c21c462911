package lint

import (
	"math"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// stringMaps are fields whose values are maps of strings with arbitrary keys.
var stringMaps = []string{"labels", "annotations", "matchLabels", "nodeSelector", "data", "binaryData", "stringData", "requests", "limits"}

// inStringMap returns the index of the step of a pointer that leads to a map of strings, -1 if
// there is none.
func (p *pass) inStringMap(steps path) int {
	for i, s := range steps {
		if !slices.Contains(stringMaps, s) {
			continue
		}
		if i == 1 && steps[0] == "metadata" {
			return i
		}
		// A field of such a name may be a list, as the limits of a LimitRange are.
		at := inObject(steps[:i+1])
		if is := p.set.presentIn(p.subject, at); (is == mayBeMissing || is == always) && p.set.presentIn(p.subject, at.with("key")) == mapKey {
			return i
		}
	}
	return -1
}

// escapeKey finds map keys in JSON pointers that contain / or ~ without escaping.
func escapeKey(p *pass) {
	for _, e := range p.subject.exprs {
		for _, o := range e.ops {
			text, _ := o.literal()
			steps, whole := o.path()
			at := p.inStringMap(steps)
			switch {
			case at < 0:
			case len(steps) > at+2 || !whole && len(steps) > at+1:
				if !whole {
					continue // the computed rest need not belong to the key
				}
				parent := "/" + strings.Join(steps[:at+1], "/") + "/"
				key, ok := strings.CutPrefix(text, parent)
				if !ok {
					continue
				}
				right := parent + strings.ReplaceAll(key, "/", "~1")
				f := p.node(e, o.pieces[0], "%s goes below a string; write the key as %s", text, strings.TrimPrefix(right, parent))
				if len(o.pieces) == 1 {
					f.fix = fixAt(e, o.pieces[0].Offset, quotedLength(text), func(old string) string {
						return strings.Replace(old, text, right, 1)
					})
				}
			case !whole && len(steps) == at+1:
				piece := o.pieces[slices.IndexFunc(o.pieces, func(n *syntax.Node) bool { return n.Kind != syntax.Literal })]
				if !strings.HasSuffix(text, "/") || !p.mayHaveSlash(piece, o.in, 0) {
					continue
				}
				f := p.node(e, piece, "a / or ~ in this key leads somewhere else; put it into jsonpatch.escapeKey()")
				f.Severity = Warning
				if n := operandLength([]rune(e.text), piece.Offset); n > 0 {
					f.fix = fixAt(e, piece.Offset, n, func(old string) string { return "jsonpatch.escapeKey(" + old + ")" })
				}
			}
		}
	}
}

func quotedLength(text string) int { return len([]rune(text)) + 2 }

// fixAt returns a fix that changes length characters of an expression at offset.
func fixAt(e *expression, offset, length int, change func(string) string) func(map[string]any) bool {
	return fixText(e, func(text string) string {
		runes := []rune(text)
		if offset < 0 || offset+length > len(runes) {
			return text
		}
		return string(runes[:offset]) + change(string(runes[offset:offset+length])) + string(runes[offset+length:])
	})
}

// operandLength returns the length of the operand of + that begins at from, 0 if its end is not
// certain.
func operandLength(text []rune, from int) int {
	depth := 0
	var open rune
	for i := from; i >= 0 && i < len(text); i++ {
		c := text[i]
		switch {
		case open != 0:
			if c == '\\' {
				return 0
			}
			if c == open {
				open = 0
			}
		case c == '"' || c == '\'':
			open = c
		case strings.ContainsRune("([{", c):
			depth++
		case depth > 0 && strings.ContainsRune(")]}", c):
			depth--
		case depth == 0 && strings.ContainsRune(")]},+?:", c):
			return len(strings.TrimRight(string(text[from:i]), " \t\n")) - (len(string(text[from:i])) - len([]rune(string(text[from:i]))))
		}
	}
	return 0
}

// mayHaveSlash reports whether a key is known to be of a sort that may contain a /: the key of a
// label or annotation, a parameter, or a literal with a /.
func (p *pass) mayHaveSlash(n *syntax.Node, in *names, depth int) bool {
	r := resolver{p.subject, depth}
	if !p.subject.spend(1) {
		return false
	}
	switch {
	case n.Kind == syntax.Literal:
		s, _ := n.Value.(string)
		return strings.ContainsAny(s, "/~")
	case n.Kind == syntax.Call && n.Name == "_?_:_":
		return p.mayHaveSlash(n.Args[1], in, depth) || p.mayHaveSlash(n.Args[2], in, depth)
	case n.Kind == syntax.Ident:
		over := in.over(n.Name)
		if over == nil {
			return false
		}
		if e := r.variable(over, nil); e != nil {
			over = e.root
		}
		if over.Kind == syntax.List {
			return slices.ContainsFunc(over.Args, func(n *syntax.Node) bool { return n.Kind == syntax.Literal && p.mayHaveSlash(n, nil, depth) })
		}
		if over.Kind == syntax.Map {
			for i := 0; i < len(over.Args); i += 2 {
				if over.Args[i].Kind == syntax.Literal && p.mayHaveSlash(over.Args[i], nil, depth) {
					return true
				}
			}
			return false
		}
		at := r.path(over, in)
		return len(at) > 1 && (at[len(at)-1] == "labels" || at[len(at)-1] == "annotations")
	}
	if e := r.variable(n, in); e != nil {
		return p.mayHaveSlash(e.root, nil, depth+1)
	}
	at := r.path(n, in)
	return len(at) > 1 && at[0] == "params"
}

// testOperations finds test operations that always succeed or always fail.
func testOperations(p *pass) {
	r := resolver{policy: p.subject}
	for _, e := range p.subject.exprs {
		for i, o := range e.ops {
			steps, whole := o.path()
			if o.op != "test" || !whole || o.value == nil {
				continue
			}
			if o.value.Kind == syntax.Literal && o.value.Value == nil {
				p.node(e, o.value, "a test for null never passes; leave the value out to test that nothing is there")
				continue
			}
			if at := r.path(o.value, o.in); i == 0 && at != nil && !optional(o.value) && o.value.Name != "orValue" && at.key() == inObject(steps).key() {
				p.node(e, o.node, "this test always passes: the value is read from the place that is tested").Severity = Warning
				continue
			}
			if i > 0 && o.list != nil && e.ops[i-1].list == o.list && o.index == e.ops[i-1].index+1 {
				before := e.ops[i-1]
				if other, ok := before.path(); ok && (before.op == "add" || before.op == "replace") && other.key() == steps.key() && steps[len(steps)-1] != "-" &&
					before.value != nil && before.value.Kind == syntax.Literal && o.value.Kind == syntax.Literal && before.value.Value == o.value.Value {
					p.node(e, o.node, "this test always passes: the operation before has just set the value").Severity = Warning
				}
			}
		}
	}
}

// missingParent finds operations on paths that may not exist. The error of a JSON patch denies
// the request or, with failurePolicy Ignore, leaves out the mutation (spec T20).
func missingParent(p *pass) {
	r := resolver{policy: p.subject}
	looked := facts{}
	for _, e := range p.subject.exprs {
		r.look(e.root, nil, true, looked)
	}
	reported := map[string]bool{}
	for _, e := range p.subject.ofPart(api.Mutations) {
		if !e.patch {
			for _, w := range p.subject.writes(e) {
				looked.add(w.path)
			}
			continue
		}
		for _, o := range e.ops {
			if steps, _ := o.path(); o.op == "test" && len(steps) > 0 {
				looked.add(inObject(steps))
			}
		}
		// needs checks whether the value at steps, or only its parent, may be missing.
		needs := func(o *operation, steps path, whole, all bool) {
			if steps == nil {
				return
			}
			parent := steps
			if whole && !all {
				parent = steps[:len(steps)-1]
			}
			for i := range parent {
				at := inObject(parent[:i+1])
				is := p.set.presentIn(p.subject, at)
				if looked.knows(at) || is != mayBeMissing && (is != mapKey || !all) {
					continue
				}
				if reported[at.key()] {
					break
				}
				reported[at.key()] = true
				pointer := "/" + strings.Join(parent[:i+1], "/")
				switch last := i == len(parent)-1; {
				case all && last && whole:
					p.node(e, o.node, "nothing may be at %s, and then %s fails; ask with has() or in before", pointer, o.op)
				case !all && last && strings.HasSuffix("/"+strings.Join(steps, "/"), "/-"):
					p.node(e, o.node, "there may be no list at %s, and then %s fails; add it before: (has(%s) ? [] : [JSONPatch{op: \"add\", path: %s, value: []}]) + …",
						pointer, o.op, inWords(parent), quote(pointer))
				case !all && last:
					p.node(e, o.node, "there may be nothing at %s, and then %s fails; add it before: (has(%s) ? [] : [JSONPatch{op: \"add\", path: %s, value: {}}]) + …",
						pointer, o.op, inWords(parent), quote(pointer))
				default:
					p.node(e, o.node, "there may be nothing at %s, and then %s fails; ask with has() before", pointer, o.op)
				}
				break
			}
		}
		for _, o := range e.ops {
			steps, whole := o.path()
			switch o.op {
			case "copy", "move":
				from, all := (&operation{pieces: o.from}).path()
				needs(o, from, all, true)
				fallthrough
			case "add", "replace":
				needs(o, steps, whole, false)
				if whole {
					looked.add(inObject(steps))
				}
			case "remove":
				needs(o, steps, whole, true)
			}
		}
	}
}

// replacedMap finds operations that replace a map with arbitrary keys, such as all labels.
func replacedMap(p *pass) {
	asked := facts{}
	for _, e := range p.subject.ofPart(api.MatchConditions) {
		resolver{policy: p.subject}.look(e.root, nil, true, asked)
	}
	for _, e := range p.subject.ofPart(api.Mutations) {
		for _, o := range e.ops {
			steps, whole := o.path()
			if o.op != "add" || !whole || len(steps) == 0 || o.conditional || o.value == nil || o.value.Kind != syntax.Map || p.inStringMap(steps) != len(steps)-1 {
				continue
			}
			pointer := "/" + strings.Join(steps, "/")
			if asked.knows(inObject(steps)) || slices.ContainsFunc(e.ops, func(o *operation) bool {
				text, _ := o.literal()
				return o.op == "test" && (text == pointer || strings.HasPrefix(text, pointer+"/"))
			}) {
				continue
			}
			p.node(e, o.node, "this takes the place of everything that is at %s; add single keys, after (has(%s) ? [] : [JSONPatch{op: \"add\", path: %s, value: {}}])",
				pointer, inWords(steps), quote(pointer))
		}
	}
}

// serverPanic finds operations that crash the patch library of a server, which drops the
// connection.
func serverPanic(p *pass) {
	if group(p.subject.doc) == api.OwnGroup {
		return // no API server runs the policy
	}
	for _, e := range p.subject.exprs {
		for i, o := range e.ops {
			text, whole := o.literal()
			if o.op == "replace" && whole && text == "" && len(o.pieces) > 0 && o.value == nil {
				p.node(e, o.node, "replacing the whole object by nothing makes a server drop the connection, whatever failurePolicy says")
			}
			if o.op == "test" && o.value != nil && o.value.Kind == syntax.List && slices.ContainsFunc(taken(o.value), isNull) {
				p.node(e, o.node, "a test against a list with null in it makes a server drop the connection")
			}
			if isNull(o.value) && (o.op == "add" || o.op == "replace") && whole && o.list != nil {
				if !p.subject.spend(len(e.ops) - i) {
					return
				}
				for _, later := range e.ops[i+1:] {
					if below, _ := later.literal(); later.list == o.list && strings.HasPrefix(below, text+"/") {
						p.node(e, later.node, "an operation below %s, which has just become null, makes a server drop the connection; add {} or [] there", text)
						break
					}
				}
			}
			if oldest := p.set.opts.Oldest; oldest <= 36 && holdsObjects(o.value) {
				p.node(e, o.value, "servers before 1.37 crash on a list of Object literals as the value of a JSONPatch, and 1.%d is among the servers; write maps", oldest)
			}
		}
	}
}

func isNull(n *syntax.Node) bool { return n != nil && n.Kind == syntax.Literal && n.Value == nil }

// holdsObjects reports whether a value is a list of Object.… literals.
func holdsObjects(n *syntax.Node) bool {
	if n == nil {
		return false
	}
	if n.Kind == syntax.Loop {
		if sum := n.Args[3]; sum.Kind == syntax.Call && sum.Name == "_+_" {
			return holdsObjects(sum.Args[1])
		}
	}
	return n.Kind == syntax.List && slices.ContainsFunc(n.Args, func(e *syntax.Node) bool { return e.Kind == syntax.Struct && e.Name != "JSONPatch" })
}

// reflectionValue finds values that Kubernetes 1.37 cannot convert for a JSON patch.
func reflectionValue(p *pass) {
	if p.set.opts.Newest < 37 || group(p.subject.doc) == api.OwnGroup {
		return
	}
	spec := &p.subject.object.Spec
	builtin := len(p.subject.kinds) > 0 && !p.subject.more
	for _, k := range p.subject.kinds {
		kind, err := p.set.types.Kind(k)
		builtin = builtin && err == nil && kind.Builtin()
	}
	typedParams := spec.ParamKind != nil && spec.ParamKind.APIVersion == "v1" && (spec.ParamKind.Kind == "ConfigMap" || spec.ParamKind.Kind == "Secret")
	r := resolver{policy: p.subject}
	for _, e := range p.subject.exprs {
		for _, o := range e.ops {
			for _, value := range taken(o.value) {
				p.reflected(e, value, r.path(value, o.in), typedParams, builtin)
			}
		}
	}
}

// taken returns the value itself, or the elements of list and map literals.
func taken(n *syntax.Node) (out []*syntax.Node) {
	switch {
	case n == nil:
	case n.Kind == syntax.List:
		for _, a := range n.Args {
			out = append(out, taken(a)...)
		}
	case n.Kind == syntax.Map:
		for i := 1; i < len(n.Args); i += 2 {
			out = append(out, taken(n.Args[i])...)
		}
	case n.Kind == syntax.Call && n.Name == "dyn":
		return taken(n.Args[0])
	default:
		out = append(out, n)
	}
	return out
}

// reflected is reflectionValue for a value that is a part of the input.
func (p *pass) reflected(e *expression, value *syntax.Node, at path, typedParams, builtin bool) {
	if len(at) < 2 || at[len(at)-1] == anyElement && at[0] != "object" {
		return
	}
	aggregate := slices.Contains([]string{"labels", "annotations", "finalizers", "metadata", "ownerReferences"}, at[len(at)-1])
	switch at[0] {
	case "params":
		if typedParams && (aggregate || len(at) == 2 && (at[1] == "data" || at[1] == "binaryData")) {
			p.node(e, value, "Kubernetes 1.37 cannot put %s into a JSONPatch; copy it: %s.transformMap(k, v, v)", at, at)
		}
	case "namespaceObject":
		if aggregate || len(at) == 2 {
			p.node(e, value, "Kubernetes 1.37 cannot put %s into a JSONPatch; copy it, such as with transformMap(k, v, v)", at)
		}
	case "request":
		if last := at[len(at)-1]; last == "groups" || last == "userInfo" || len(at) == 2 && (last == "kind" || last == "resource") {
			p.node(e, value, "Kubernetes 1.37 cannot put %s into a JSONPatch; copy it, such as with map(x, x)", at)
		}
	case "object", "oldObject":
		if builtin && len(p.subject.object.Spec.MatchConditions) > 0 && p.aggregate(at[1:]) {
			p.node(e, value, "Kubernetes 1.37 cannot put %s into the JSONPatch of a policy with matchConditions; put the conditions into the mutation, or copy the value field by field", at)
		}
	}
}

// aggregate reports whether the part is a list or a map in every kind that the policy matches.
func (p *pass) aggregate(steps path) bool {
	for _, k := range p.subject.kinds {
		kind, err := p.set.types.Kind(k)
		if err != nil {
			return false
		}
		at, ok := kind.Root()
		for _, s := range steps {
			if !ok {
				return false
			}
			if s == anyElement {
				at, ok = at.Element()
			} else {
				at, ok = at.Field(s)
			}
		}
		if t := at.Type(); !ok || t.Scalar != nil || t.List == nil && t.Map == nil {
			return false
		}
	}
	return len(p.subject.kinds) > 0
}

// integerOverflow finds integers of an ApplyConfiguration that do not fit into the field's
// integer type.
func integerOverflow(p *pass) {
	for _, e := range p.subject.ofPart(api.Mutations) {
		if e.patch {
			continue
		}
		for _, w := range p.subject.writes(e) {
			if w.value == nil || w.value.Kind != syntax.Literal {
				continue
			}
			n, ok := w.value.Value.(int64)
			if !ok || n >= math.MinInt32 && n <= math.MaxInt32 {
				continue
			}
			for _, k := range p.subject.kinds {
				if p.fits(k.GroupVersion().String(), k.Kind, w.path[1:], int64(1)) && !p.fits(k.GroupVersion().String(), k.Kind, w.path[1:], n) {
					p.node(e, w.value, "%d does not fit %s of %s, and a server writes %d without an error", n, w.path[1:], kindName(k), int32(n))
					break
				}
			}
		}
	}
}

// fits reports whether a server can decode an object with a value at a path.
func (p *pass) fits(apiVersion, kind string, steps path, value any) bool {
	obj, ok := buildWith(steps, value).(map[string]any)
	if !ok {
		return false
	}
	obj["apiVersion"], obj["kind"] = apiVersion, kind
	for _, k := range p.subject.kinds {
		if k.GroupVersion().String() == apiVersion && k.Kind == kind {
			known, err := p.set.types.Kind(k)
			if err != nil {
				return false
			}
			_, err = known.Normalize(obj)
			return err == nil
		}
	}
	return false
}

// notIdempotent finds mutations that change the object again each time they run.
func notIdempotent(p *pass) {
	spec := &p.subject.object.Spec
	again := "every update"
	switch {
	case p.subject.operations["UPDATE"]:
	case spec.ReinvocationPolicy == "IfNeeded":
		again = "every reinvocation"
	default:
		return
	}
	for _, c := range p.subject.ofPart(api.MatchConditions) {
		if mentions(c.root, "object", "oldObject") || mentionsOperation(c.root) {
			return
		}
	}
	r := resolver{policy: p.subject}
	for _, e := range p.subject.ofPart(api.Mutations) {
		tested := slices.ContainsFunc(e.ops, func(o *operation) bool { return o.op == "test" })
		for _, o := range e.ops {
			text, whole := o.literal()
			if o.op == "add" && whole && strings.HasSuffix(text, "/-") && !o.conditional && !tested {
				p.node(e, o.node, "%s adds an element to %s again; ask before whether it is there", again, strings.TrimSuffix(text, "/-"))
			}
		}
		for _, w := range p.subject.writes(e) {
			if w.conditional || tested || w.value == nil || w.value.Kind != syntax.Call || w.value.Name != "_+_" || slices.Contains(w.path, anyElement) {
				continue
			}
			self, text := false, false
			for _, n := range added(w.value) {
				at := r.path(n, nil)
				self = self || at != nil && at.key() == w.path.key()
				s, ok := n.Value.(string)
				text = text || n.Kind == syntax.Literal && ok && s != ""
			}
			if self && text {
				p.node(e, w.value, "%s makes %s longer; ask before whether it is done", again, w.path)
			}
		}
	}
}

// mentions reports whether n uses one of the names.
func mentions(n *syntax.Node, list ...string) (found bool) {
	n.Walk(func(n *syntax.Node) bool {
		found = found || n.Kind == syntax.Ident && slices.Contains(list, n.Name)
		return !found
	})
	return found
}

func mentionsOperation(n *syntax.Node) (found bool) {
	n.Walk(func(n *syntax.Node) bool {
		found = found || n.Kind == syntax.Select && (n.Name == "operation" || n.Name == "subResource")
		return !found
	})
	return found
}

// buildWith is build with a given value at the end of the path.
func buildWith(steps path, value any) any {
	if len(steps) == 0 {
		return value
	}
	below := buildWith(steps[1:], value)
	if steps[0] == anyElement {
		return []any{below}
	}
	return map[string]any{steps[0]: below}
}
