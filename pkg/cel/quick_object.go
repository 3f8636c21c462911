package cel

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"google.golang.org/protobuf/types/known/structpb"
)

// object reads an expression of type Object.
func (r *reader) object(e ast.Expr) valueOf {
	switch {
	case e.Kind() == ast.StructKind:
		return r.literal(e.AsStruct(), "Object")
	case r.is(e, "_?_:_", 3):
		args := operandsOf(e)
		return chosen(r.boolean(args[0]), r.object(args[1]), r.object(args[2]))
	}
	return nil
}

// literal reads a struct literal, which must be of the type that its place wants.
func (r *reader) literal(s ast.StructExpr, path string) valueOf {
	if s.TypeName() != path {
		return nil
	}
	type field struct {
		name     string
		of       valueOf
		optional optionalOf
	}
	fields := make([]field, 0, len(s.Fields()))
	for _, e := range s.Fields() {
		from := e.AsStructField()
		to := field{name: from.Name()}
		if from.IsOptional() {
			read := func(e ast.Expr) valueOf { return r.field(e, path+"."+to.name) }
			to.optional = r.optional(from.Value(), true, reading{read, fieldOf})
		} else {
			to.of = r.field(from.Value(), path+"."+to.name)
		}
		for i := range fields {
			if fields[i].name == to.name {
				return nil
			}
		}
		if to.of == nil && to.optional == nil {
			return nil
		}
		fields = append(fields, to)
	}
	return func(f *frame) (any, bool) {
		f.cost += 40
		out := make(map[string]any, len(fields))
		for i := range fields {
			to := &fields[i]
			if to.of != nil {
				v, ok := to.of(f)
				if !ok {
					return nil, false
				}
				out[to.name] = v
				continue
			}
			v, has, ok := to.optional(f)
			if !ok {
				return nil, false
			}
			if has {
				out[to.name] = v
			}
		}
		return out, true
	}
}

// field reads the value of a field as nativeField returns it. item reads an element
// of a literal list or map there.
func (r *reader) field(e ast.Expr, path string) valueOf {
	item := func(e ast.Expr) valueOf { return r.item(e, path) }
	switch {
	case e.Kind() == ast.StructKind:
		return r.literal(e.AsStruct(), path)
	case e.Kind() == ast.ListKind:
		return r.once(e, fromList(r.elements(e.AsList(), item)))
	case e.Kind() == ast.MapKind:
		of := r.entries(e.AsMap(), item)
		if of == nil {
			return nil
		}
		return r.once(e, func(f *frame) (any, bool) {
			v, ok := of(f)
			return v, ok
		})
	case e.Kind() == ast.ComprehensionKind:
		if of := r.binding(e, func(e ast.Expr) valueOf { return r.field(e, path) }); of != nil {
			return of
		}
		if of := fromList(r.gathered(e, item)); of != nil {
			return of
		}
	case r.is(e, "_+_", 2) && r.overload(e) == overloads.AddList:
		if of := r.sumOfItems(e, item); of != nil {
			return of
		}
	case r.is(e, "_?_:_", 3):
		return r.either(e, fieldOf, func(e ast.Expr) valueOf { return r.field(e, path) })
	}
	return converted(r.value(e), fieldOf)
}

// either reads a ?: of operands that read knows, or convert if they are attributes.
func (r *reader) either(e ast.Expr, convert func(any) (any, bool), read func(ast.Expr) valueOf) valueOf {
	operand := func(e ast.Expr) valueOf {
		if c, attribute := r.chain(e); attribute {
			return converted(c.value(false), convert)
		}
		return read(e)
	}
	args := operandsOf(e)
	return chosen(r.boolean(args[0]), operand(args[1]), operand(args[2]))
}

// items reads a list whose elements item reads.
func (r *reader) items(e ast.Expr, item func(ast.Expr) valueOf) func(f *frame) ([]any, bool) {
	switch e.Kind() {
	case ast.ListKind:
		of, constant := r.elements(e.AsList(), item), r.constant(e)
		if of == nil || !constant {
			return of
		}
		return func(f *frame) ([]any, bool) {
			defer func(cost int64) { f.cost = cost }(f.cost)
			return of(f)
		}
	case ast.ComprehensionKind:
		return r.gathered(e, item)
	}
	return nil
}

// sumOfItems reads a list behind another. Items that need more than one conversion
// get it from cel-go.
func (r *reader) sumOfItems(e ast.Expr, item func(ast.Expr) valueOf) valueOf {
	args := operandsOf(e)
	first, second := r.items(args[0], item), r.items(args[1], item)
	if first == nil || second == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		x, ok := first(f)
		if !ok {
			return nil, false
		}
		y, ok := second(f)
		f.cost++
		switch {
		case !ok:
			return nil, false
		case len(x) == 0:
			return y, true
		case len(y) == 0:
			return x, true
		}
		out := append(x[:len(x):len(x)], y...)
		return out, shareable(out)
	}
}

func (r *reader) item(e ast.Expr, path string) valueOf {
	switch {
	case e.Kind() == ast.StructKind:
		return r.literal(e.AsStruct(), path)
	case r.is(e, "_?_:_", 3):
		return r.either(e, itemOf, func(e ast.Expr) valueOf { return r.item(e, path) })
	}
	return converted(r.value(e), itemOf)
}

// fromList is a list of items, nil if there are none.
func fromList(of func(f *frame) ([]any, bool)) valueOf {
	if of == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		return v, ok
	}
}

func converted(of valueOf, convert func(any) (any, bool)) valueOf {
	if of == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		if !ok || !f.weigh(v) {
			return nil, false
		}
		return convert(v)
	}
}

// fieldOf is nativeField for what a value can be.
func fieldOf(v any) (any, bool) {
	switch list := v.(type) {
	case nil:
		return structpb.NullValue_NULL_VALUE, true
	case madeList:
		var out []any
		for _, e := range list {
			e, ok := itemOf(e)
			if !ok {
				return nil, false
			}
			out = append(out, e)
		}
		return out, true
	case madeMap:
		out := make(map[string]any, len(list))
		for k, e := range list {
			e, ok := itemOf(e)
			if !ok {
				return nil, false
			}
			out[k] = e
		}
		return out, true
	case map[string]any:
		return v, list != nil && shareable(list)
	}
	return v, shareable(v)
}

// itemOf is the Go value of an element, which is not looked into.
func itemOf(v any) (any, bool) {
	switch m := v.(type) {
	case nil:
		return structpb.NullValue_NULL_VALUE, true
	case bool, string, int64, float64:
		return v, true
	case map[string]any:
		return v, m != nil
	case []any:
		return v, m != nil
	}
	return nil, false
}
