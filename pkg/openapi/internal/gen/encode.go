package main

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Parts that a type or a reference may have, as in pkg/openapi's compact.go.
const (
	hasScalar = 1 << iota
	hasList
	hasMap
	isNamed
	hasRelationship
	isNullable
)

// encode writes a schema in the form that pkg/openapi's compact.go describes
// and reads. Types and fields are sorted by name, so that equal schemas give
// equal bytes.
func encode(s *schema.Schema) ([]byte, error) {
	e := encoder{index: map[string]int{}}
	types := slices.SortedFunc(slices.Values(s.Types), func(a, b schema.TypeDef) int { return cmp.Compare(a.Name, b.Name) })
	e.number(len(types))
	for _, t := range types {
		e.text(t.Name)
		e.atom(t.Atom, 0)
	}
	if e.err != nil {
		return nil, e.err
	}
	var out []byte
	out = binary.AppendUvarint(out, uint64(len(e.table)))
	for _, s := range e.table {
		out = binary.AppendUvarint(out, uint64(len(s)))
		out = append(out, s...)
	}
	return append(out, e.body...), nil
}

type encoder struct {
	body  []byte
	table []string
	index map[string]int
	err   error
}

func (e *encoder) number(n int) { e.body = binary.AppendUvarint(e.body, uint64(n)) }

func (e *encoder) text(s string) {
	i, ok := e.index[s]
	if !ok {
		i = len(e.table)
		e.index[s] = i
		e.table = append(e.table, s)
	}
	e.number(i)
}

func (e *encoder) atom(a schema.Atom, flags int) {
	if a.Scalar != nil {
		flags |= hasScalar
	}
	if a.List != nil {
		flags |= hasList
	}
	if a.Map != nil {
		flags |= hasMap
	}
	e.number(flags)
	if a.Scalar != nil {
		e.text(string(*a.Scalar))
	}
	if a.List != nil {
		e.text(string(a.List.ElementRelationship))
		e.number(len(a.List.Keys))
		for _, k := range a.List.Keys {
			e.text(k)
		}
		e.ref(a.List.ElementType)
	}
	if a.Map != nil {
		if len(a.Map.Unions) > 0 {
			e.err = errors.New("unions are not supported")
		}
		e.text(string(a.Map.ElementRelationship))
		e.ref(a.Map.ElementType)
		fields := slices.SortedFunc(slices.Values(a.Map.Fields), func(a, b schema.StructField) int { return cmp.Compare(a.Name, b.Name) })
		e.number(len(fields))
		for _, f := range fields {
			e.text(f.Name)
			var text string
			if f.Default != nil {
				data, err := json.Marshal(f.Default)
				if err != nil {
					e.err = fmt.Errorf("default of %s: %w", f.Name, err)
				}
				text = string(data)
			}
			e.text(text)
			e.ref(f.Type)
		}
	}
}

func (e *encoder) ref(r schema.TypeRef) {
	flags := 0
	if r.Nullable {
		flags |= isNullable
	}
	if r.ElementRelationship != nil {
		flags |= hasRelationship
	}
	if r.NamedType == nil {
		e.atom(r.Inlined, flags)
	} else {
		e.number(flags | isNamed)
		e.text(*r.NamedType)
	}
	if r.ElementRelationship != nil {
		e.text(string(*r.ElementRelationship))
	}
}
