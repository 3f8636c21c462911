// Package compact writes merge schemas of structured-merge-diff as bytes and
// reads them back. Making a schema from the OpenAPI document of core/v1 takes
// some 15 ms, reading it in this form less than a tenth of that, so that the
// generator makes the built-in ones once and for all.
//
// A schema is a table of strings, then types and in them type references in
// depth-first order, all numbers as varints. Types and fields are sorted by
// name, so equal schemas give equal bytes. Unions are not supported:
// Kubernetes has none.
package compact

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Parts that a type, a type reference or a field may have.
const (
	hasScalar = 1 << iota
	hasList
	hasMap
	isNamed
	hasRelationship
	isNullable
)

// Encode writes a schema.
func Encode(s *schema.Schema) ([]byte, error) {
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

// Decode reads what Encode wrote. It does not keep data. Data that end early
// are refused, but nesting is not bounded: data must come from a friend.
func Decode(data []byte) (*schema.Schema, error) {
	d := decoder{rest: data}
	d.table = make([]string, d.count())
	for i := range d.table {
		n := d.count()
		if d.err != nil {
			return nil, d.err
		}
		d.table[i], d.rest = string(d.rest[:n]), d.rest[n:]
	}
	s := &schema.Schema{Types: make([]schema.TypeDef, d.count())}
	for i := range s.Types {
		s.Types[i].Name = *d.text()
		s.Types[i].Atom, _ = d.atom()
		if d.err != nil {
			return nil, d.err
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	if len(d.rest) > 0 {
		return nil, fmt.Errorf("%d bytes too many", len(d.rest))
	}
	return s, nil
}

type decoder struct {
	rest  []byte
	table []string
	err   error
}

var empty string

func (d *decoder) number() int {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.err = errors.New("the data end early")
		d.rest = nil
		return 0
	}
	d.rest = d.rest[size:]
	return int(n)
}

// count reads a number of things that take at least a byte each.
func (d *decoder) count() int {
	n := d.number()
	if n < 0 || n > len(d.rest) {
		d.err = errors.New("the data end early")
		return 0
	}
	return n
}

// text gives a pointer into the table: a schema points to names a lot.
func (d *decoder) text() *string {
	i := d.number()
	if i < 0 || i >= len(d.table) {
		d.err = errors.New("no such text")
		return &empty
	}
	return &d.table[i]
}

// atom reads a type and the flags of the reference that holds it.
func (d *decoder) atom() (schema.Atom, int) {
	flags := d.number()
	return d.parts(flags), flags
}

func (d *decoder) parts(flags int) schema.Atom {
	var a schema.Atom
	if flags&hasScalar != 0 {
		a.Scalar = (*schema.Scalar)(d.text())
	}
	if flags&hasList != 0 {
		a.List = &schema.List{ElementRelationship: schema.ElementRelationship(*d.text())}
		if n := d.count(); n > 0 {
			a.List.Keys = make([]string, n)
			for i := range a.List.Keys {
				a.List.Keys[i] = *d.text()
			}
		}
		a.List.ElementType = d.ref()
	}
	if flags&hasMap != 0 {
		a.Map = &schema.Map{ElementRelationship: schema.ElementRelationship(*d.text())}
		a.Map.ElementType = d.ref()
		if n := d.count(); n > 0 {
			a.Map.Fields = make([]schema.StructField, n)
			for i := range a.Map.Fields {
				f := &a.Map.Fields[i]
				f.Name = *d.text()
				switch text := *d.text(); text {
				case "":
				case "{}":
					f.Default = map[string]any{}
				default:
					if err := json.Unmarshal([]byte(text), &f.Default); err != nil {
						d.err = fmt.Errorf("default of %s: %w", f.Name, err)
					}
				}
				f.Type = d.ref()
				if d.err != nil {
					return a
				}
			}
		}
	}
	return a
}

func (d *decoder) ref() schema.TypeRef {
	if d.err != nil {
		return schema.TypeRef{}
	}
	var r schema.TypeRef
	flags := d.number()
	if flags&isNamed != 0 {
		r.NamedType = d.text()
	} else {
		r.Inlined = d.parts(flags)
	}
	r.Nullable = flags&isNullable != 0
	if flags&hasRelationship != 0 {
		r.ElementRelationship = (*schema.ElementRelationship)(d.text())
	}
	return r
}
