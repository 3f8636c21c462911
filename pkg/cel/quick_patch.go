package cel

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// patch reads an expression whose value is an operation, a list of operations, or
// a list of such lists that is about to be flattened: what matters is the
// operations in their order.
func (r *reader) patch(e ast.Expr) patchOf {
	switch e.Kind() {
	case ast.StructKind:
		return r.operation(e.AsStruct())
	case ast.ListKind:
		return r.patches(e.AsList())
	case ast.ComprehensionKind:
		return r.patchLoop(e)
	case ast.CallKind:
		args := operandsOf(e)
		switch {
		case r.is(e, "_?_:_", 3):
			return choose(r.boolean(args[0]), r.patch(args[1]), r.patch(args[2]))
		case r.is(e, "flatten", 1) && r.isListOfPatches(args[0]) && !r.metered:
			return r.patch(args[0])
		case r.is(e, "_+_", 2):
			return inTurn(1, r.patch(args[0]), r.patch(args[1]))
		}
	}
	return nil
}

// isListOfPatches tells lists of patches, which flatten makes a patch, from what
// it leaves as it is or cannot flatten.
func (r *reader) isListOfPatches(e ast.Expr) bool {
	return r.checked.GetType(e.ID()).IsExactType(types.NewListType(patchList))
}

func choose(condition boolOf, then, otherwise patchOf) patchOf {
	if condition == nil || then == nil || otherwise == nil {
		return nil
	}
	return func(f *frame) bool {
		switch v, ok := condition(f); {
		case !ok:
			return false
		case v:
			return then(f)
		default:
			return otherwise(f)
		}
	}
}

func inTurn(cost int64, list ...patchOf) patchOf {
	for _, p := range list {
		if p == nil {
			return nil
		}
	}
	return func(f *frame) bool {
		f.cost += cost
		for _, p := range list {
			if !p(f) {
				return false
			}
		}
		return true
	}
}

func (r *reader) patches(l ast.ListExpr) patchOf {
	if len(l.OptionalIndices()) > 0 {
		return nil
	}
	list := make([]patchOf, 0, l.Size())
	for _, e := range l.Elements() {
		list = append(list, r.patch(e))
	}
	if len(list) == 0 {
		return func(*frame) bool { return true }
	}
	return inTurn(10, list...)
}

func (r *reader) patchLoop(e ast.Expr) patchOf {
	var yield patchOf
	l := r.loop(e, func(l *loop) bool {
		yield = r.patch(l.yield)
		return yield != nil
	})
	if l == nil {
		return nil
	}
	return func(f *frame) bool {
		list, ok := l.elements(f)
		if !ok {
			return false
		}
		for i, v := range list {
			keep, ok := l.turn(f, i, v)
			if !ok || keep && !yield(f) {
				return false
			}
		}
		return true
	}
}

// operation reads JSONPatch{…} with an op that is written out.
func (r *reader) operation(s ast.StructExpr) patchOf {
	if s.TypeName() != mutation.JSONPatchTypeName {
		return nil
	}
	var op string
	var path, from *text
	var value valueOf
	seen := map[string]bool{}
	for _, entry := range s.Fields() {
		field := entry.AsStructField()
		if field.IsOptional() || seen[field.Name()] {
			return nil
		}
		seen[field.Name()] = true
		known := false
		switch field.Name() {
		case "op":
			op = literalText(field.Value())
			known = op != ""
		case "path":
			path = r.text(field.Value())
			known = path != nil
		case "from":
			from = r.text(field.Value())
			known = from != nil
		case "value":
			value = r.patchValue(field.Value())
			known = value != nil
		}
		if !known {
			return nil
		}
	}
	if op == "" || path == nil {
		return nil
	}
	return func(f *frame) bool {
		f.cost += 40
		o := PatchOp{Op: op, HasValue: value != nil}
		var ok bool
		if o.Path, ok = path.join(f); !ok {
			return false
		}
		if from != nil {
			if o.From, ok = from.join(f); !ok {
				return false
			}
		}
		if value != nil {
			if o.Value, ok = value(f); !ok {
				return false
			}
		}
		f.ops = append(f.ops, o)
		return true
	}
}

// patchValue reads the value of an operation, which is data after it.
func (r *reader) patchValue(e ast.Expr) valueOf {
	var of valueOf
	leaf := r.leaf
	if r.makesObject(e) {
		// The fields of an object become data before the patch does.
		forms := r.forms
		r.forms = true
		of, leaf = r.literal(e.AsStruct(), e.AsStruct().TypeName()), structLeaf
		r.forms = forms
	} else {
		of = r.value(e)
	}
	if of == nil {
		return nil
	}
	return r.once(e, func(f *frame) (any, bool) {
		v, ok := of(f)
		if !ok || !f.weigh(v) {
			return nil, false
		}
		return sharedTree(v, leaf)
	})
}
