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
		case is(e, "_?_:_", 3):
			return choose(r.boolean(args[0]), r.patch(args[1]), r.patch(args[2]))
		case is(e, "flatten", 1) && r.isListOfPatches(args[0]):
			return r.patch(args[0])
		case is(e, "_+_", 2):
			return inTurn(r.patch(args[0]), r.patch(args[1]))
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

func inTurn(list ...patchOf) patchOf {
	for _, p := range list {
		if p == nil {
			return nil
		}
	}
	if len(list) == 1 {
		return list[0]
	}
	return func(f *frame) bool {
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
	return inTurn(list...)
}

func (r *reader) patchLoop(e ast.Expr) patchOf {
	var filter boolOf
	var yield patchOf
	l := r.loop(e, func(l *loop) bool {
		if l.filter != nil {
			if filter = r.boolean(l.filter); filter == nil {
				return false
			}
		}
		yield = r.patch(l.yield)
		return yield != nil
	})
	if l == nil {
		return nil
	}
	return func(f *frame) bool {
		return l.each(f, func(f *frame) (more, ok bool) {
			if filter != nil {
				if v, ok := filter(f); !ok || !v {
					return true, ok
				}
			}
			return true, yield(f)
		})
	}
}

// operation reads JSONPatch{…} with an op that is written out.
func (r *reader) operation(s ast.StructExpr) patchOf {
	if s.TypeName() != mutation.JSONPatchTypeName {
		return nil
	}
	var op string
	var path text
	var value valueOf
	seen := map[string]bool{}
	for _, entry := range s.Fields() {
		field := entry.AsStructField()
		if field.IsOptional() || seen[field.Name()] {
			return nil
		}
		seen[field.Name()] = true
		switch field.Name() {
		case "op":
			op = literalText(field.Value())
		case "path":
			if path = r.text(field.Value()); path == nil {
				return nil
			}
		case "value":
			if value = r.value(field.Value()); value == nil {
				return nil
			}
		default:
			return nil
		}
	}
	if op == "" || path == nil {
		return nil
	}
	written, isWritten := path.literal()
	return func(f *frame) bool {
		o := PatchOp{Op: op, Path: written, HasValue: value != nil}
		if !isWritten {
			var ok bool
			if o.Path, ok = path.join(f); !ok {
				return false
			}
		}
		if value != nil {
			v, ok := value(f)
			if ok {
				o.Value, ok = sharedTree(v, typedLeaf)
			}
			if !ok {
				return false
			}
		}
		f.ops = append(f.ops, o)
		return true
	}
}

func literalText(e ast.Expr) string {
	if e.Kind() != ast.LiteralKind {
		return ""
	}
	s, _ := e.AsLiteral().(types.String)
	return string(s)
}
