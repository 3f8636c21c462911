package language

import (
	"slices"
	"strings"
)

// completeYAML returns completions of keys or values at an offset of a file that is not in an
// expression.
func (w *Workspace) completeYAML(f *file, offset int) []Completion {
	p := placeAt(f.text, offset)
	if p.node < 0 {
		return nil
	}
	form, in := w.formAt(&p, p.node)
	if form == nil {
		return nil
	}
	c := offers{w: w, f: f, place: &p, form: form, in: in}
	switch {
	case p.value, len(form.fields()) == 0 && !c.hasKeys():
		c.values()
	default:
		c.keys()
	}
	slices.SortStableFunc(c.items, func(a, b Completion) int { return c.begins(b) - c.begins(a) })
	return c.items
}

// begins returns 1 if a completion begins with the word at the cursor, else 0.
func (c *offers) begins(item Completion) int {
	if strings.HasPrefix(strings.ToLower(item.Label), strings.ToLower(c.place.word)) {
		return 1
	}
	return 0
}

// offers collects completions for a place in YAML.
type offers struct {
	w     *Workspace
	f     *file
	place *place
	form  form
	in    object
	items []Completion
}

// hasKeys reports whether a place has keys that the form does not name.
func (c *offers) hasKeys() bool {
	return c.form.scalar() == "" && !c.form.list() && len(c.known(true)) > 0
}

func (c *offers) add(label, text string, kind ItemKind, detail, doc string) {
	if len(c.items) >= maxCompletions || !strings.Contains(strings.ToLower(label), strings.ToLower(c.place.word)) {
		return
	}
	where := rangeOf(c.f.text, c.place.from, c.place.to)
	c.items = append(c.items, Completion{label, kind, detail, doc, Edit{where, c.place.lead + text}})
}

// keys adds completions for the fields that the mapping does not have yet.
func (c *offers) keys() {
	for _, name := range append(c.form.fields(), c.known(true)...) {
		field := c.form.field(name)
		if field == nil || c.has(name) {
			continue
		}
		text := name
		if !c.place.keyed {
			text += ":"
			if field.scalar() != "" {
				text += " "
			}
		}
		detail := field.describe()
		if slices.Contains(c.form.needs(), name) {
			detail = strings.TrimPrefix(detail+", required", ", ")
		}
		c.add(name, text, FieldItem, detail, field.document())
	}
}

// has reports whether the mapping has a key in another place than that of the cursor.
func (c *offers) has(name string) bool {
	return slices.ContainsFunc(c.place.nodes[c.place.node].keys, func(k int) bool {
		n := &c.place.nodes[k]
		return n.name == name && (n.at < c.place.from-1 || n.at > c.place.to)
	})
}

// values adds completions for the value, from the form and from the other fields. If the value
// is a list, the completions are lists of one element, in brackets.
func (c *offers) values() {
	open, end := "", ""
	if c.form.list() {
		element := c.form.element()
		if element == nil || element.scalar() == "" || c.place.word != "" {
			return
		}
		c.form, c.in.path = element, append(slices.Clone(c.in.path), "[]")
		open, end = "[", "]"
	}
	for _, v := range c.form.values() {
		c.value(v, open, end, c.form.describe(), c.form.document())
	}
	for _, v := range c.known(false) {
		c.value(v, open, end, c.detail(v), "")
	}
}

// value adds a completion for one value v. If the cursor is inside quotes, v is inserted without
// its own quotes.
func (c *offers) value(v, open, end, detail, doc string) {
	label := strings.Trim(v, `"`)
	if from := c.place.from; open == "" && from > 0 && indentQuote(c.f.text[from-1:]) > 0 {
		v = label
	}
	if label == "" {
		label = `""`
	}
	if slices.ContainsFunc(c.items, func(i Completion) bool { return i.Label == label }) {
		return
	}
	c.add(label, open+v+end, ValueItem, detail, doc)
}

// hoverYAML returns the documentation of a key or a value that is not in an expression.
func (w *Workspace) hoverYAML(f *file, offset int) *Hover {
	p := placeAt(f.text, offset)
	if p.node < 0 || p.from == p.to {
		return nil
	}
	at, in := w.formAt(&p, p.node)
	name, note := "", ""
	if at == nil {
		return nil
	}
	if !p.value && (p.keyed || len(at.fields()) > 0) {
		name = f.text[p.from:p.to]
		required := slices.Contains(at.needs(), name)
		if at = at.field(name); at == nil {
			return nil
		}
		if required {
			note = "\n\nIt is required."
		}
	} else if name = p.nodes[p.node].name; name == "" {
		for n := p.node; n >= 0 && name == ""; n = p.nodes[n].parent {
			name = p.nodes[n].name
		}
	}
	doc := at.document()
	if values := at.values(); len(values) > 0 {
		doc += "\n\nOne of " + strings.Join(values, ", ") + "."
	}
	doc += note
	if in.kind != "" {
		doc += "\n\n" + in.apiVersion + " " + in.kind
	}
	head := name
	if text := at.describe(); text != "" {
		head += ": " + text
	}
	return &Hover{rangeOf(f.text, p.from, p.to), strings.TrimSpace("```yaml\n" + head + "\n```\n\n" + strings.TrimSpace(doc))}
}

// InExpression reports whether a position is in an expression. There a typed space must not ask
// for completions.
func (w *Workspace) InExpression(name string, at Position) bool {
	f, err := w.file(name)
	if err != nil {
		return false
	}
	s := locate(f.text, offsetOf(f.text, at))
	return s.inside && expressionKeys[s.key()]
}
