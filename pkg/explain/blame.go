package explain

import (
	"strconv"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Cause is one mutation that wrote a field.
type Cause struct {
	Stage   string `json:"stage"`
	Round   int    `json:"round"`
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
	Param   string `json:"param,omitempty"`
	// Mutation is the index in spec.mutations.
	Mutation int `json:"mutation"`
}

// String returns policy › binding › parameter › mutation, without the parts that are empty.
func (c Cause) String() string {
	text := c.Policy
	if c.Binding != "" {
		text += " › " + c.Binding
	}
	if c.Binding != "" && c.Param != "" {
		text += " › " + c.Param
	}
	if c.Stage == engine.PolicyStage {
		text += " › mutations[" + strconv.Itoa(c.Mutation) + "]"
	}
	return text
}

// Blame says which mutations wrote a value of an object: Causes are those that wrote it as a
// whole, in order; Fields or Items have the Blame of its parts. A nil Blame means that no
// mutation wrote it.
type Blame struct {
	Causes []Cause
	Fields map[string]*Blame
	Items  []*Blame // of a list, one for each element
	// Removed are the fields that a mutation removed, with all mutations that wrote them before
	// it and the one that removed them.
	Removed map[string][]Cause
}

// BlameOf returns the Blame of the object of d, which an engine with Trace must have made; nil
// if no mutation changed the object. An element of a list keeps its Blame when it moves:
// BlameOf recognizes it by an equal value, or else by the same name.
func BlameOf(d *engine.Decision) *Blame {
	if d.Status != nil {
		return nil
	}
	var all *Blame
	for i := range d.Steps {
		s := &d.Steps[i]
		if s.Outcome != engine.Changed || s.Before == nil || s.After == nil {
			continue
		}
		c := Cause{Stage: s.Stage, Round: s.Round, Policy: s.Policy, Binding: s.Binding, Param: s.Param, Mutation: s.Mutation}
		all = all.after(s.Before.Object, s.After.Object, c)
	}
	return all
}

// after returns the Blame of a value that c changed from before to after. It may modify b and
// return it.
func (b *Blame) after(before, after any, c Cause) *Blame {
	if tree.Equal(before, after) {
		return b
	}
	if b == nil {
		b = &Blame{}
	}
	switch x := after.(type) {
	case map[string]any:
		if y, ok := before.(map[string]any); ok {
			b.fields(y, x, c)
			return b
		}
	case []any:
		if y, ok := before.([]any); ok {
			b.items(y, x, c)
			return b
		}
	}
	return &Blame{Causes: append(b.Causes, c)}
}

func (b *Blame) fields(before, after map[string]any, c Cause) {
	if b.Fields == nil {
		b.Fields = map[string]*Blame{}
	}
	for _, name := range tree.AppendSuspects(nil, before, after) {
		y, had := before[name]
		x, has := after[name]
		switch {
		case had && has:
			if f := b.Fields[name].after(y, x, c); f != nil {
				b.Fields[name] = f
			}
		case has:
			b.Fields[name] = &Blame{Causes: append(b.Removed[name], c)}
			delete(b.Removed, name)
		default:
			if b.Removed == nil {
				b.Removed = map[string][]Cause{}
			}
			var chain []Cause
			if f := b.Fields[name]; f != nil {
				chain = f.Causes
			}
			b.Removed[name] = append(chain, c)
			delete(b.Fields, name)
		}
	}
}

func (b *Blame) items(before, after []any, c Cause) {
	used := make([]bool, len(before))
	from := make([]int, len(after))
	find := func(same func(x, y any, i, j int) bool) {
		for i, x := range after {
			for j, y := range before {
				if from[i] < 0 && !used[j] && same(x, y, i, j) {
					from[i], used[j] = j, true
				}
			}
		}
	}
	for i := range from {
		from[i] = -1
	}
	if len(before)*len(after) <= maxPairs {
		find(func(x, y any, _, _ int) bool { return tree.Equal(x, y) })
		find(func(x, y any, _, _ int) bool { return nameIn(x) != "" && nameIn(x) == nameIn(y) })
	}
	for i, x := range after {
		if from[i] < 0 && len(before) == len(after) && !used[i] && nameIn(x) == nameIn(before[i]) {
			from[i], used[i] = i, true
		}
	}
	items := make([]*Blame, len(after))
	for i, x := range after {
		switch j := from[i]; {
		case j < 0:
			items[i] = &Blame{Causes: []Cause{c}}
		case j < len(b.Items):
			items[i] = b.Items[j].after(before[j], x, c)
		default:
			items[i] = (*Blame)(nil).after(before[j], x, c)
		}
	}
	b.Items = items
}

// maxPairs bounds how many pairs of elements are compared to match two versions of a list.
const maxPairs = 1 << 16

// nameIn returns the name of a list's element, "" if it has none.
func nameIn(v any) string {
	m, _ := v.(map[string]any)
	name, _ := m["name"].(string)
	return name
}
