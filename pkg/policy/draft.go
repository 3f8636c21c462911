package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"unsafe"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Draft is one object on its way through mutations. What a mutation has copied
// belongs to the Draft, and the next one writes to it in place: a hundred labels
// copy the map of labels once.
//
// So an object that Object or a mutation returned is good only until the next
// mutation, unless Keep was called in between. It must not be used by two
// goroutines at once.
type Draft struct {
	object *unstructured.Unstructured
	// own are the containers that may be modified, by address. They are kept as
	// values too, so that no address is given to somebody else's container. A
	// container of the draft's own is only reached through others of its own,
	// and from one place.
	own map[unsafe.Pointer]any
	// paths are the last of all, from from on.
	paths, all []string
	from       int
	turns      [2]unstructured.Unstructured // see advance
	recent     recent
	// writing says that a mutation writes to the object, or did not come to the
	// end of that.
	writing bool

	// plan, nodes and way are room for what is planned, see draft_strict.go and
	// draft_merge.go.
	plan  []planned
	nodes []node
	way   []byte
	text  []byte
	ends  []int

	// room is for one evaluation at a time, and asked is the variable request of
	// the last one.
	room  room
	asked struct {
		request  *Request
		kind     schema.GroupVersionKind
		resource schema.GroupVersionResource
		value    func() map[string]any
		by       *Request // whose user this is
		user     user.Info
	}
}

// NewDraft begins with obj, which is never modified.
func NewDraft(obj *unstructured.Unstructured) *Draft { return &Draft{object: obj} }

// Object is the object as it is now.
func (d *Draft) Object() *unstructured.Unstructured { return d.object }

// Keep returns the object, which no later mutation modifies.
func (d *Draft) Keep() *unstructured.Unstructured {
	d.disownAll()
	if d.object == &d.turns[0] || d.object == &d.turns[1] {
		d.object = &unstructured.Unstructured{Object: d.object.Object}
	}
	return d.object
}

// Torn reports whether a mutation panicked while it wrote: then the object is
// neither what it was nor what it was to become, and good for nothing.
func (d *Draft) Torn() bool { return d.writing }

// startWriting and doneWriting are around all that writes to the object.
func (d *Draft) startWriting() {
	d.writing = true
	if whileWriting != nil {
		whileWriting()
	}
}

func (d *Draft) doneWriting() { d.writing = false }

// whileWriting is nil but in a test.
var whileWriting func()

// Changed returns the JSON pointers of what the last mutation wrote; none if it
// changed nothing.
func (d *Draft) Changed() []string { return d.paths }

// begin is called before every mutation, and changed for every path that it
// wrote to.
func (d *Draft) begin() { d.paths, d.from, d.recent = nil, len(d.all), recent{} }

func (d *Draft) changed(paths ...string) {
	d.all = append(d.all, paths...)
	d.paths = d.all[d.from:len(d.all):len(d.all)]
}

// Replace makes after, which others may hold, the object.
func (d *Draft) Replace(after *unstructured.Unstructured) { d.replace(after.Object) }

func (d *Draft) replace(after map[string]any) *unstructured.Unstructured {
	d.paths = nil
	if before := d.object.Object; !tree.Equal(before, after) {
		d.paths = tree.Changed(before, after)
		d.disownAll()
		d.object = &unstructured.Unstructured{Object: after}
	}
	return d.object
}

// request is how an expression gets the variable request.
func (d *Draft) request(r *Request, kind schema.GroupVersionKind, resource schema.GroupVersionResource) func() map[string]any {
	a := &d.asked
	if a.request != r || a.kind != kind || a.resource != resource {
		a.request, a.kind, a.resource = r, kind, resource
		a.value = func() map[string]any { return r.celRequest(kind, resource) }
	}
	return a.value
}

// user is who makes the request, made up once.
func (d *Draft) user(r *Request) user.Info {
	if d.asked.by != r {
		d.asked.by, d.asked.user = r, r.User()
	}
	return d.asked.user
}

// apply applies a patch, all of it or nothing.
func (d *Draft) apply(ops []cel.PatchOp) (*unstructured.Unstructured, error) {
	d.begin()
	if len(ops) == 0 {
		return d.object, nil
	}
	if !d.inPlace(ops) {
		after, err := applyJSONPatch(d.object.Object, ops)
		switch {
		case errors.Is(err, errTestFailed):
			return d.object, nil
		case err != nil:
			return nil, fmt.Errorf("JSON Patch: %w", err)
		}
		return d.replace(after), nil
	}
	if len(d.own) > 0 {
		// A value that is part of the object will be in two places.
		for i := range ops {
			d.disown(ops[i].Value)
		}
	}
	d.startWriting()
	var root any = d.object.Object
	for i := range ops {
		op := &ops[i]
		at, token, _ := descend(root, op.Path[1:])
		if old, exists := child(at, token); exists && tree.Equal(old, op.Value) {
			continue
		}
		w := write{draft: d, value: op.Value, path: op.Path}
		root = w.below(root, op.Path[1:])
		d.changed(w.path)
	}
	if d.paths != nil {
		d.object = &unstructured.Unstructured{Object: root.(map[string]any)}
	}
	d.doneWriting()
	return d.object, nil
}

// inPlace says whether a patch consists of what can be written in place, one
// operation after the other, without any of them failing or getting in the way
// of another: members and elements that are added, scalars that are replaced.
func (d *Draft) inPlace(ops []cel.PatchOp) bool {
	for i := range ops {
		op := &ops[i]
		if op.Op != "add" && op.Op != "replace" || !op.HasValue || !strings.HasPrefix(op.Path, "/") {
			return false
		}
		at, token, ok := descend(d.object.Object, op.Path[1:])
		if !ok {
			return false
		}
		old, exists := child(at, token)
		switch at := at.(type) {
		case map[string]any:
			ok = at != nil && (exists || op.Op == "add")
		case []any:
			// To add at an index is to insert, which moves others.
			ok = at != nil && (op.Op == "add") == (token == "-") && (exists || token == "-")
		default:
			ok = false
		}
		if !ok || len(ops) > 1 && isContainer(old) {
			return false
		}
	}
	return true
}

// child returns what a container has under a token.
func child(container any, token string) (any, bool) {
	switch container := container.(type) {
	case map[string]any:
		v, ok := container[token]
		return v, ok
	case []any:
		if i, ok := position(token, container); ok {
			return container[i], true
		}
	}
	return nil, false
}

// descend follows a path, without its first slash, to the container that holds
// its last token.
func descend(at any, way string) (container any, token string, ok bool) {
	for {
		token, rest, more := strings.Cut(way, "/")
		token = unescape(token)
		if !more {
			return at, token, true
		}
		if at, ok = child(at, token); !ok {
			return nil, "", false
		}
		way = rest
	}
}

// position reads the index of an element that is there.
func position(token string, list []any) (int, bool) {
	i, err := strconv.Atoi(token)
	return i, err == nil && i < len(list) && token[0] >= '0' && token[0] <= '9' && (token[0] != '0' || len(token) == 1)
}

func isContainer(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// lenientMutator is a mutation of type JSONPatch of a lenient policy.
type lenientMutator struct{ expr expression }

// Mutate evaluates the patch and applies it, which is all.
func (m *lenientMutator) Mutate(ctx context.Context, in Input) (*unstructured.Unstructured, error) {
	if in.Object == nil {
		return nil, nil
	}
	ops, err := evaluate(ctx, m.expr, in, (*cel.Program).JSONPatch)
	if err != nil {
		return nil, err
	}
	return in.draft().apply(ops)
}

// draft is the draft that a lenient mutation works on: one of its own if nobody
// gave one.
func (in *Input) draft() *Draft {
	if in.Draft != nil {
		return in.Draft
	}
	return NewDraft(in.Object)
}

// write is one operation of a patch that was planned.
type write struct {
	draft *Draft
	value any
	path  string // with the index of an element that is appended
	// remove takes a member of a map away.
	remove bool
}

// below does it at the place that way leads to from a container, and returns that
// or what stands in its place.
func (w *write) below(container any, way string) any {
	token, rest, more := strings.Cut(way, "/")
	token = unescape(token)
	switch node := container.(type) {
	case map[string]any:
		node = w.draft.mapping(node)
		switch {
		case more:
			before := node[token]
			if after := w.below(before, rest); !tree.Same(before, after) {
				node[token] = after
			}
		case w.remove:
			delete(node, token)
		default:
			node[token] = w.value
		}
		return node
	case []any:
		node = w.draft.list(node)
		if !more && token == "-" {
			w.path = strings.TrimSuffix(w.path, "-") + strconv.Itoa(len(node))
			return w.draft.append(node, w.value)
		}
		i, _ := position(token, node)
		if more {
			node[i] = w.below(node[i], rest)
		} else {
			node[i] = w.value
		}
		return boxed(container, node)
	}
	return container
}

// boxed is list as a value: was, if that is the same.
func boxed(was any, list []any) any {
	if l := was.([]any); len(l) == len(list) && unsafe.SliceData(l) == unsafe.SliceData(list) {
		return was
	}
	return list
}

// mapping returns m if it is the draft's own, or a copy that is.
func (d *Draft) mapping(m map[string]any) map[string]any {
	if _, ok := d.own[reflect.ValueOf(m).UnsafePointer()]; ok {
		return m
	}
	m = maps.Clone(m)
	d.keep(reflect.ValueOf(m).UnsafePointer(), m)
	return m
}

// list is mapping for a list.
func (d *Draft) list(l []any) []any {
	if _, ok := d.own[unsafe.Pointer(unsafe.SliceData(l))]; ok {
		return l
	}
	l = append(make([]any, 0, len(l)+1), l...)
	d.keep(unsafe.Pointer(unsafe.SliceData(l)), l)
	return l
}

// append appends to a list of the draft's own.
func (d *Draft) append(l []any, v any) []any {
	l = append(l, v)
	d.keep(unsafe.Pointer(unsafe.SliceData(l)), l)
	return l
}

func (d *Draft) keep(address unsafe.Pointer, container any) {
	if d.own == nil {
		d.own = make(map[unsafe.Pointer]any, 8)
	}
	d.own[address] = container
}

// maxOwn is how many containers leave their room to the next ones: to clear a
// bigger map costs whoever needs less.
const maxOwn = 1 << 10

// disownAll disowns everything.
func (d *Draft) disownAll() {
	if len(d.own) > maxOwn {
		d.own = nil
	} else {
		clear(d.own)
	}
	d.recent = recent{}
}

// disown releases the ownership of everything in v.
func (d *Draft) disown(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(d.own, reflect.ValueOf(v).UnsafePointer())
		for _, e := range v {
			d.disown(e)
		}
	case []any:
		delete(d.own, unsafe.Pointer(unsafe.SliceData(v)))
		for _, e := range v {
			d.disown(e)
		}
	}
}
