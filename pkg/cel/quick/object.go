package quick

import (
	"github.com/google/cel-go/common/ast"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// literal reads a literal of an Object or of an operation, which must have the type that its
// dest requires.
func (r *reader) literal(s ast.StructExpr, d dest) part {
	switch {
	case d.kind == toOperations && s.TypeName() == mutation.JSONPatchTypeName:
		return r.operation(s)
	case d.kind >= wholeObject && s.TypeName() == d.path:
		return r.object(s)
	}
	return nil
}

// object reads a literal of an Object. An optional field that is empty is left out.
func (r *reader) object(s ast.StructExpr) part {
	type entry struct {
		name string
		of   part
	}
	fields := make([]entry, 0, len(s.Fields()))
	seen := map[string]bool{}
	for _, e := range s.Fields() {
		from := e.AsStructField()
		to := entry{name: from.Name()}
		into := dest{kind: toField, path: s.TypeName() + "." + to.name}
		if from.IsOptional() {
			to.of = r.optional(from.Value(), into, true)
		} else {
			to.of = r.read(from.Value(), into, true)
		}
		if to.of == nil || seen[to.name] {
			return nil
		}
		seen[to.name] = true
		fields = append(fields, to)
	}
	return func(f *frame) (any, bool) {
		f.Cost += 40
		out := make(map[string]any, len(fields))
		for i := range fields {
			v, ok := fields[i].of(f)
			if !ok {
				return nil, false
			}
			if _, empty := v.(none); !empty {
				out[fields[i].name] = v
			}
		}
		return out, true
	}
}

// operation reads JSONPatch{…} with a literal op.
func (r *reader) operation(s ast.StructExpr) part {
	var op string
	var path, from *text
	var value part
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
	return func(f *frame) (any, bool) {
		f.Cost += 40
		o := Op{Op: op, HasValue: value != nil}
		var ok bool
		if o.Path, ok = path.join(f); !ok {
			return nil, false
		}
		if from != nil {
			if o.From, ok = from.join(f); !ok {
				return nil, false
			}
		}
		if value != nil {
			if o.Value, ok = value(f); !ok {
				return nil, false
			}
		}
		f.Ops = append(f.Ops, o)
		return nil, true
	}
}

// patchValue reads the value of an operation, which becomes data. The fields of an Object
// become data before the patch does.
func (r *reader) patchValue(e ast.Expr) part {
	of, leaf, weigh := part(nil), r.Data, r.Weigh
	if r.makesObject(e) {
		of, leaf = r.object(e.AsStruct()), r.Fields
	} else {
		of = r.value(e)
	}
	if of == nil {
		return nil
	}
	return r.once(e, func(f *frame) (any, bool) {
		v, ok := of(f)
		if !ok || !f.weigh(v, weigh) {
			return nil, false
		}
		return Convert(v, leaf)
	})
}

// makesObjects reports whether an expression contains a literal of an Object.
func (r *reader) makesObjects(root ast.Expr) (found bool) {
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) { found = found || r.makesObject(e) }))
	return found
}

// makesObject reports whether e is a literal of type Object or Object.<fields>, whose value has
// the fields as written. Other literals, such as google.protobuf.StringValue, have values of
// their own.
func (r *reader) makesObject(e ast.Expr) bool {
	return e.Kind() == ast.StructKind && isObject(r.checked.GetType(e.ID()))
}
