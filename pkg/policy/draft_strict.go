package policy

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
)

// This file lets the policies of a server write to a draft. What a mutation does
// is planned first, on the object as it is, and then either all of it is done or,
// where the plan is not sure to give what copying and settling the whole object
// gives, nothing: the caller does it that way then.

// planned is one value that is written.
type planned struct {
	op    *cel.PatchOp
	old   any
	value any
	// same says that the value is there already.
	same bool
}

// Reset begins anew with obj, which is never modified, with room for about as
// many changes.
func (d *Draft) Reset(obj *unstructured.Unstructured, changes int) {
	d.disownAll()
	clear(d.plan)
	clear(d.nodes)
	*d = Draft{object: obj, own: d.own, room: room{values: d.room.values}, plan: d.plan[:0], nodes: d.nodes[:0],
		way: d.way[:0], text: d.text[:0], ends: d.ends[:0]}
	if changes > 0 {
		d.all = make([]string, 0, changes)
	}
}

// Put makes after, which others may hold, the object.
func (d *Draft) Put(after *unstructured.Unstructured) {
	d.disownAll()
	d.object = after
}

// Take is Put for what a mutation made without the draft.
func (d *Draft) Take(after *unstructured.Unstructured) {
	d.paths = tree.Changed(d.object.Object, after.Object)
	d.Put(after)
}

// advance makes root, whose modified parts are the draft's own, the object. Of
// the two objects that take turns the older one is not looked at any more.
func (d *Draft) advance(root map[string]any) {
	next := &d.turns[0]
	if d.object == next {
		next = &d.turns[1]
	}
	next.Object = root
	d.object = next
}

// recent is the map that the last mutation wrote one member of, if that is all
// that it did: the next one often is about the same map.
type recent struct {
	kind *openapi.Kind
	way  string // to the map, with a slash behind
	m    map[string]any
	spot openapi.Spot
}

// again applies a patch that adds a scalar to the map that the last one wrote to.
// It is patch for that case.
func (d *Draft) again(kind *openapi.Kind, op *cel.PatchOp) bool {
	way := &d.recent.way
	if d.recent.m == nil || d.recent.kind != kind || op.Op != "add" || !op.HasValue || isContainer(op.Value) || !strings.HasPrefix(op.Path, *way) {
		return false
	}
	token := op.Path[len(*way):]
	if strings.IndexByte(token, '/') >= 0 || !plainPointer(op.Path) {
		return false
	}
	token = unescape(token)
	old, exists := d.recent.m[token]
	spot := d.recent.spot
	if isContainer(old) || !spot.Field(token) {
		return false
	}
	value, ok := spot.Settle(old, op.Value)
	if !ok {
		return false
	}
	d.paths, d.from = nil, len(d.all)
	if !exists || !tree.Equal(old, value) {
		d.startWriting()
		d.recent.m[token] = value
		d.changed(op.Path)
		d.advance(d.object.Object)
		d.doneWriting()
	}
	return true
}

// remember makes the map that holds what was just written the recent one. It is
// the draft's own; lists are not remembered, since their elements move.
func (d *Draft) remember(root openapi.Spot, kind *openapi.Kind, op *cel.PatchOp) {
	end := strings.LastIndexByte(op.Path, '/') + 1
	if end < 2 {
		return
	}
	m, spot := d.object.Object, root
	for way := op.Path[1:end]; way != ""; {
		token, rest, _ := strings.Cut(way, "/")
		token = unescape(token)
		next, ok := m[token].(map[string]any)
		if !ok || !spot.Field(token) {
			return
		}
		m, way = next, rest
	}
	d.recent = recent{kind: kind, way: op.Path[:end], m: m, spot: spot}
}

// patch applies a patch with the strict semantics of applyJSONPatch and settles
// what it wrote; false if it did nothing because it is not sure. The object must
// have been settled.
func (d *Draft) patch(kind *openapi.Kind, ops []cel.PatchOp) bool {
	if len(ops) == 1 && d.again(kind, &ops[0]) {
		return true
	}
	d.begin()
	root, ok := kind.Spot(d.object.Object, openapi.FromJSONPatch)
	if !ok || !d.prepare(root, ops) {
		return false
	}
	if len(d.own) > 0 {
		for i := range d.plan {
			d.disown(d.plan[i].value)
		}
	}
	d.startWriting()
	var object any = d.object.Object
	changed := false
	for i := range d.plan {
		p := &d.plan[i]
		if p.same {
			continue
		}
		changed = true
		w := write{draft: d, value: p.value, path: p.op.Path, remove: p.op.Op == "remove"}
		object = w.below(object, p.op.Path[1:])
		if isContainer(p.old) && isContainer(p.value) {
			d.changed(tree.ChangedBelow(w.path, p.old, p.value)...)
			continue
		}
		d.changed(w.path)
	}
	clear(d.plan)
	d.plan = d.plan[:0]
	if changed {
		d.advance(object.(map[string]any))
		if len(ops) == 1 {
			d.remember(root, kind, &ops[0])
		}
	}
	d.doneWriting()
	return true
}

// maxPlanned bounds how many paths are compared each with each: about so many
// operations are faster than copying the object.
const maxPlanned = 256

// prepare makes the plan for a patch.
func (d *Draft) prepare(root openapi.Spot, ops []cel.PatchOp) bool {
	clear(d.plan)
	d.plan = d.plan[:0]
	if len(ops) > maxPlanned {
		return false
	}
	for i := range ops {
		op := &ops[i]
		if op.Op == "test" {
			// What a test tells of a document that the patch has begun to change
			// is not known here.
			if len(d.plan) > 0 {
				return false
			}
			p := patching{root: d.object.Object}
			if p.test(op) != nil {
				return false
			}
			continue
		}
		if !plainPointer(op.Path) || op.Path == "/apiVersion" || op.Path == "/kind" {
			return false
		}
		for j := range d.plan {
			if path := d.plan[j].op.Path; path == op.Path && !strings.HasSuffix(path, "/-") {
				return false
			}
		}
		p, ok := d.target(root, op, len(ops))
		if !ok {
			return false
		}
		d.plan = append(d.plan, p)
	}
	return true
}

// target finds out what an operation does.
func (d *Draft) target(spot openapi.Spot, op *cel.PatchOp, ops int) (p planned, ok bool) {
	p.op = op
	var at any = d.object.Object
	way, inList := op.Path[1:], false
	for {
		token, rest, more := strings.Cut(way, "/")
		token = unescape(token)
		if !more {
			way = token
			break
		}
		switch at := at.(type) {
		case map[string]any:
			ok, inList = spot.Field(token), false
		case []any:
			// Of several elements that change, a name tells which is which.
			ok, inList = spot.Element() && (ops == 1 || allNamed(at)), true
		default:
			return p, false
		}
		if !ok {
			return p, false
		}
		if at, ok = child(at, token); !ok {
			return p, false
		}
		way = rest
	}

	token, exists := way, false
	switch at := at.(type) {
	case map[string]any:
		p.old, exists = at[token]
		// An element whose identity changes is another one to a comparison.
		if at == nil || inList && tree.Identifies(token) {
			return p, false
		}
		if op.Op == "remove" {
			return p, exists && len(at) > ops && !(ops > 1 && isContainer(p.old)) && spot.Removable(token)
		}
		ok = (exists || op.Op == "add") && spot.Field(token)
	case []any:
		if at == nil || ops > 1 {
			return p, false
		}
		if token == "-" {
			ok = op.Op == "add" && spot.Element()
			break
		}
		p.old, exists = child(at, token)
		ok = op.Op == "replace" && exists && spot.Element() && !identified(p.old) && !identified(op.Value)
	default:
		return p, false
	}
	if op.Op != "add" && op.Op != "replace" || !op.HasValue || !ok || ops > 1 && isContainer(p.old) {
		return p, false
	}
	if p.value, ok = spot.Settle(p.old, op.Value); !ok {
		return p, false
	}
	p.same = exists && tree.Equal(p.old, p.value)
	return p, true
}

// identified says whether a value may be an element that has an identity.
func identified(v any) bool {
	m, _ := v.(map[string]any)
	return len(m) > 0
}

// allNamed reports whether all elements of a list have different names, which
// identify them wherever that list is compared.
func allNamed(list []any) bool {
	if len(list) > maxNamed {
		return false
	}
	for i, v := range list {
		name, ok := nameOf(v)
		if !ok {
			return false
		}
		for _, other := range list[:i] {
			if n, _ := nameOf(other); n == name {
				return false
			}
		}
	}
	return true
}

// maxNamed bounds how many names are compared each with each.
const maxNamed = 64

func nameOf(v any) (string, bool) {
	m, _ := v.(map[string]any)
	name, ok := m["name"].(string)
	return name, ok
}

// plainPointer reports whether a path is a JSON pointer to something below the
// document, spelled in the one way in which tree spells it, and the same to the
// library after MAP has quoted it. tree has no paths to what is below an empty
// name.
func plainPointer(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for i := 1; i < len(path); i++ {
		switch c := path[i]; {
		case c < 0x20 || c > 0x7e || c == '"' || c == '\\':
			return false
		case c == '/' && path[i-1] == '/':
			return false
		case c == '~' && (i+1 == len(path) || path[i+1] != '0' && path[i+1] != '1'):
			return false
		}
	}
	return true
}
