// Package compact encodes merge schemas in a small form that is decoded fast. Making the schema
// of core/v1 from its OpenAPI document takes some 15 ms; decoding this form takes a sixtieth of
// that.
//
// The form is a table of strings, then types and in them references to types in depth-first
// order, with all numbers as varints. The generator of pkg/openapi encodes and pkg/openapi
// decodes, both with the same walk.
package compact

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mapd-project/mapd/pkg/openapi/smd"
)

// Encode writes s. It sorts types and fields by name, in s as well, so that equal
// schemas give equal bytes.
func Encode(s *smd.Schema) ([]byte, error) {
	c := coder{writing: true, index: map[string]int{}}
	c.types(s)
	out := binary.AppendUvarint(nil, uint64(len(c.table)))
	for _, s := range c.table {
		out = binary.AppendUvarint(out, uint64(len(s)))
		out = append(out, s...)
	}
	return append(out, c.data...), c.err
}

// Decode decodes the output of Encode. Truncated data is an error, but nesting is not bounded:
// data must come from the generator.
func Decode(data []byte) (*smd.Schema, error) {
	c := coder{data: data}
	c.table = make([]string, c.count(0))
	for i := range c.table {
		n := c.count(0)
		if c.err != nil {
			return nil, c.err
		}
		c.table[i], c.data = string(c.data[:n]), c.data[n:]
	}
	s := &smd.Schema{}
	c.types(s)
	if c.err == nil && len(c.data) > 0 {
		c.err = fmt.Errorf("%d bytes too many", len(c.data))
	}
	if c.err != nil {
		return nil, c.err
	}
	return s, nil
}

// Parts that a type or a reference may have.
const (
	hasScalar = 1 << iota
	hasList
	hasMap
	isNamed
	hasRelationship
	isNullable
)

// A coder walks a schema. Each of its methods encodes the value that it gets or, when decoding,
// sets it.
type coder struct {
	writing bool
	data    []byte // written, or left to read
	table   []string
	index   map[string]int // of table, when writing
	err     error
}

func (c *coder) number(n int) int {
	if c.writing {
		c.data = binary.AppendUvarint(c.data, uint64(n))
		return n
	}
	v, size := binary.Uvarint(c.data)
	if size <= 0 {
		c.err, c.data = errors.New("the data end early"), nil
		return 0
	}
	c.data = c.data[size:]
	return int(v)
}

// count codes the number of items, each of which has at least one byte.
func (c *coder) count(n int) int {
	n = c.number(n)
	if !c.writing && (n < 0 || n > len(c.data)) {
		c.err = errors.New("the data end early")
		return 0
	}
	return n
}

// list codes the length of l; when decoding, it returns a list of that length.
func list[T any](c *coder, l []T) []T {
	if n := c.count(len(l)); !c.writing && n > 0 {
		return make([]T, n)
	}
	return l
}

var noText string

// text codes a string. When decoding, the result points into the table, since schemas repeat
// names many times.
func (c *coder) text(s *string) *string {
	if c.writing {
		i, ok := c.index[*s]
		if !ok {
			i = len(c.table)
			c.index[*s] = i
			c.table = append(c.table, *s)
		}
		c.number(i)
		return s
	}
	i := c.number(0)
	if i < 0 || i >= len(c.table) {
		c.err = errors.New("no such text")
		return &noText
	}
	return &c.table[i]
}

func (c *coder) relationship(r *smd.ElementRelationship) *smd.ElementRelationship {
	return (*smd.ElementRelationship)(c.text((*string)(r)))
}

func (c *coder) types(s *smd.Schema) {
	slices.SortFunc(s.Types, func(a, b smd.TypeDef) int { return cmp.Compare(a.Name, b.Name) })
	s.Types = list(c, s.Types)
	for i := range s.Types {
		if c.err != nil {
			return
		}
		t := &s.Types[i]
		t.Name = *c.text(&t.Name)
		c.atom(&t.Atom, c.number(parts(t.Atom)))
	}
}

func parts(a smd.Atom) (flags int) {
	if a.Scalar != nil {
		flags |= hasScalar
	}
	if a.List != nil {
		flags |= hasList
	}
	if a.Map != nil {
		flags |= hasMap
	}
	return flags
}

func (c *coder) atom(a *smd.Atom, flags int) {
	if flags&hasScalar != 0 {
		a.Scalar = (*smd.Scalar)(c.text((*string)(a.Scalar)))
	}
	if flags&hasList != 0 {
		if !c.writing {
			a.List = &smd.List{}
		}
		l := a.List
		l.ElementRelationship = *c.relationship(&l.ElementRelationship)
		l.Keys = list(c, l.Keys)
		for i := range l.Keys {
			l.Keys[i] = *c.text(&l.Keys[i])
		}
		c.ref(&l.ElementType)
	}
	if flags&hasMap != 0 {
		if !c.writing {
			a.Map = &smd.Map{}
		}
		m := a.Map
		if len(m.Unions) > 0 {
			c.err = errors.New("unions are not supported")
		}
		m.ElementRelationship = *c.relationship(&m.ElementRelationship)
		c.ref(&m.ElementType)
		slices.SortFunc(m.Fields, func(a, b smd.StructField) int { return cmp.Compare(a.Name, b.Name) })
		m.Fields = list(c, m.Fields)
		for i := range m.Fields {
			f := &m.Fields[i]
			f.Name = *c.text(&f.Name)
			c.value(f)
			c.ref(&f.Type)
			if c.err != nil {
				return
			}
		}
	}
}

// value is a field's default as JSON, empty for none.
func (c *coder) value(f *smd.StructField) {
	var err error
	if c.writing {
		var text []byte
		if f.Default != nil {
			text, err = json.Marshal(f.Default)
		}
		s := string(text)
		c.text(&s)
	} else if text := *c.text(nil); text == "{}" {
		f.Default = map[string]any{}
	} else if text != "" {
		err = json.Unmarshal([]byte(text), &f.Default)
	}
	if err != nil {
		c.err = fmt.Errorf("default of %s: %w", f.Name, err)
	}
}

func (c *coder) ref(r *smd.TypeRef) {
	if c.err != nil {
		return
	}
	flags := parts(r.Inlined)
	if r.NamedType != nil {
		flags = isNamed
	}
	if r.Nullable {
		flags |= isNullable
	}
	if r.ElementRelationship != nil {
		flags |= hasRelationship
	}
	flags = c.number(flags)
	if flags&isNamed != 0 {
		r.NamedType = c.text(r.NamedType)
	} else {
		c.atom(&r.Inlined, flags)
	}
	r.Nullable = flags&isNullable != 0
	if flags&hasRelationship != 0 {
		r.ElementRelationship = c.relationship(r.ElementRelationship)
	}
}
