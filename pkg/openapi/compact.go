package openapi

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// The generator writes merge schemas as bytes, because making that of core/v1
// from its OpenAPI document takes some 15 ms and reading this form a sixtieth
// of it. A schema is a table of strings, then types and in them references
// to types in depth-first order, all numbers as varints. internal/gen/encode.go
// is the other half. (The two halves share no package: this one may import
// pkg/tree and nothing else of mapd.)

// Parts that a type, a type reference or a field may have.
const (
	hasScalar = 1 << iota
	hasList
	hasMap
	isNamed
	hasRelationship
	isNullable
)

// decodeSchema reads one smdschema. Data that end early are refused, but nesting
// is not bounded: data must come from our generator.
func decodeSchema(data []byte) (*smdschema.Schema, error) {
	d := schemaReader{rest: data}
	d.table = make([]string, d.count())
	for i := range d.table {
		n := d.count()
		if d.err != nil {
			return nil, d.err
		}
		d.table[i], d.rest = string(d.rest[:n]), d.rest[n:]
	}
	s := &smdschema.Schema{Types: make([]smdschema.TypeDef, d.count())}
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

type schemaReader struct {
	rest  []byte
	table []string
	err   error
}

var noText string

func (d *schemaReader) number() int {
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
func (d *schemaReader) count() int {
	n := d.number()
	if n < 0 || n > len(d.rest) {
		d.err = errors.New("the data end early")
		return 0
	}
	return n
}

// text gives a pointer into the table: a schema points to names a lot.
func (d *schemaReader) text() *string {
	i := d.number()
	if i < 0 || i >= len(d.table) {
		d.err = errors.New("no such text")
		return &noText
	}
	return &d.table[i]
}

// atom reads a type and the flags of the reference that holds it.
func (d *schemaReader) atom() (smdschema.Atom, int) {
	flags := d.number()
	return d.parts(flags), flags
}

func (d *schemaReader) parts(flags int) smdschema.Atom {
	var a smdschema.Atom
	if flags&hasScalar != 0 {
		a.Scalar = (*smdschema.Scalar)(d.text())
	}
	if flags&hasList != 0 {
		a.List = &smdschema.List{ElementRelationship: smdschema.ElementRelationship(*d.text())}
		if n := d.count(); n > 0 {
			a.List.Keys = make([]string, n)
			for i := range a.List.Keys {
				a.List.Keys[i] = *d.text()
			}
		}
		a.List.ElementType = d.ref()
	}
	if flags&hasMap != 0 {
		a.Map = &smdschema.Map{ElementRelationship: smdschema.ElementRelationship(*d.text())}
		a.Map.ElementType = d.ref()
		if n := d.count(); n > 0 {
			a.Map.Fields = make([]smdschema.StructField, n)
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

func (d *schemaReader) ref() smdschema.TypeRef {
	if d.err != nil {
		return smdschema.TypeRef{}
	}
	var r smdschema.TypeRef
	flags := d.number()
	if flags&isNamed != 0 {
		r.NamedType = d.text()
	} else {
		r.Inlined = d.parts(flags)
	}
	r.Nullable = flags&isNullable != 0
	if flags&hasRelationship != 0 {
		r.ElementRelationship = (*smdschema.ElementRelationship)(d.text())
	}
	return r
}
