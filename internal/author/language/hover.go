package language

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/layout"
)

// Hover is the documentation of the word at a position.
type Hover struct {
	Range Range  `json:"range"`
	Text  string `json:"text"` // Markdown
}

// Location is a place in a document.
type Location struct {
	Name  string `json:"name"`
	Range Range  `json:"range"`
}

// wordAt returns the index of the name at an offset of an expression, -1 if there is none.
func (a *author) wordAt(offset int) int {
	return slices.IndexFunc(a.tokens, func(t layout.Token) bool {
		return t.Kind == layout.Identifier && offset >= t.At && offset <= t.At+len(t.Text)
	})
}

// Hover returns the type and description of the word at a position: in an expression, or of a key
// elsewhere. It returns nil if the word is not known.
func (w *Workspace) Hover(ctx context.Context, name string, at Position) (*Hover, error) {
	f, err := w.file(name)
	if err != nil {
		return nil, err
	}
	a := w.author(ctx, f, offsetOf(f.text, at))
	if a == nil {
		return w.hoverYAML(f, offsetOf(f.text, at)), ctx.Err()
	}
	i := a.wordAt(a.site.cursor)
	if i < 0 {
		return nil, nil
	}
	text := w.describe(a, i)
	if text == "" {
		return nil, ctx.Err()
	}
	t := a.tokens[i]
	return &Hover{rangeOf(f.text, a.site.offset(t.At), a.site.offset(t.At+len(t.Text))), text}, nil
}

func headed(head, doc string) string {
	return strings.TrimSpace("```cel\n" + head + "\n```\n\n" + doc)
}

// describe returns what is known of the word at an index.
func (w *Workspace) describe(a *author, i int) string {
	tokens := a.tokens[:len(a.tokens)-1]
	word := strings.Trim(tokens[i].Text, "`")
	next := func(sign string) bool { return i+1 < len(tokens) && isSign(tokens[i+1], sign) }
	behindDot := i > 0 && (isSign(tokens[i-1], ".") || i > 1 && isSign(tokens[i-1], "?") && isSign(tokens[i-2], "."))
	from := i
	if behindDot {
		dot := i - 1
		if !isSign(tokens[dot], ".") {
			dot--
		}
		from = receiver(tokens, dot)
	}
	chain := tokens[from : i+1]
	if next("(") {
		return w.function(a, chain, word, behindDot)
	}
	if !behindDot && next(":") { // a field of a literal
		if typ, _, ok := literalAround(tokens[:i]); ok {
			if typ[0] == patchType {
				return headed(patchType+"."+word+": "+fieldTypes[patchType+"."+word], fieldDocs[patchType+"."+word])
			}
			if v := a.object(typ).field(word); v.known() {
				return headed(strings.Join(typ, ".")+"."+word+": "+v.describe(), v.document())
			}
			return ""
		}
	}
	if names, ok := typeName(chain); ok && (names[0] == objectType || names[0] == patchType) {
		if len(names) == 1 {
			return headed(word, nameDocs[word])
		}
		v := a.object(names[:len(names)-1]).field(word)
		return headed(strings.Join(names, ".")+": "+v.describe(), v.document())
	}
	in := a.around(tokens[:from])
	v := a.typed(chain, in)
	name := a.site.text[tokens[from].At : tokens[i].At+len(tokens[i].Text)]
	switch {
	case len(chain) == 3 && chain[0].Text == "variables":
		for _, x := range a.spec.Variables[:a.before] {
			if x.Name == word {
				return headed(name+": "+a.typeOf("variables."+word, v), "```cel\n"+x.Expression+"\n```")
			}
		}
		return ""
	case v.known() && !v.variables:
		doc := v.document()
		if len(chain) == 1 && nameDocs[word] != "" {
			if _, loop := in.find(word); !loop {
				doc = strings.TrimSpace(nameDocs[word] + "\n\n" + doc)
			}
		}
		kinds := ""
		for _, s := range v.spots {
			if k := s.kind.GroupVersionKind(); !strings.Contains(kinds, k.Kind) {
				kinds = strings.TrimPrefix(kinds+", "+k.GroupVersion().String()+" "+k.Kind, ", ")
			}
		}
		if kinds != "" {
			kinds = "\n\n" + kinds
		}
		return headed(name+": "+v.describe(), doc+kinds)
	case v.typed || nameDocs[word] != "" && len(chain) == 1:
		doc := nameDocs[word]
		if len(chain) > 1 {
			doc = ""
			if outer := a.typed(chain[:len(chain)-2], in); outer.typed {
				doc = fieldDocs[outer.typ.String()+"."+word]
			}
		}
		head := name
		if v.typed {
			head += ": " + v.typ.String()
		}
		return headed(head, doc)
	}
	return ""
}

// function describes the function that is called.
func (w *Workspace) function(a *author, chain []layout.Token, word string, member bool) string {
	all, err := a.scope.Functions(a.want)
	if err != nil {
		return ""
	}
	find := func(name string) *cel.Function {
		if i := slices.IndexFunc(all, func(f cel.Function) bool { return f.Name == name }); i >= 0 {
			return &all[i]
		}
		return nil
	}
	if names, ok := typeName(chain); ok && member {
		if f := find(strings.Join(names, ".")); f != nil {
			return functionDoc(f)
		}
		if names[0] == "cel" && word == "bind" {
			return functionDocs[word]
		}
	}
	f := find(word)
	if f == nil || member && !f.Member || !member && !f.Global {
		return ""
	}
	return functionDoc(f)
}

// Definition returns the place where the variable at a position is defined, nil if there is none.
func (w *Workspace) Definition(ctx context.Context, name string, at Position) (*Location, error) {
	f, err := w.file(name)
	if err != nil {
		return nil, err
	}
	a := w.author(ctx, f, offsetOf(f.text, at))
	if a == nil {
		return nil, ctx.Err()
	}
	i := a.wordAt(a.site.cursor)
	if i < 2 || !isSign(a.tokens[i-1], ".") || a.tokens[i-2].Text != "variables" {
		return nil, nil
	}
	for n, v := range a.spec.Variables {
		if v.Name != a.tokens[i].Text {
			continue
		}
		// The lines of the document before the scalar are those of the file, and those
		// behind it are not; so the whole document is read again if it can be.
		path := fmt.Sprintf("%sspec.variables[%d].name", a.prefix, n)
		d, text := readDocument(name, f.text[a.site.start:a.site.end]), f.text[a.site.start:a.site.end]
		if d == nil {
			d, text = a.doc, a.site.without(f.text)
		}
		pos := d.LineOf(path)
		start := offsetAt(text, pos.Line, max(pos.Column, 1))
		if start+len(v.Name) > len(text) || !strings.Contains(text[start:min(len(text), start+len(v.Name)+1)], v.Name) {
			return nil, nil
		}
		if text[start] == '"' || text[start] == '\'' {
			start++
		}
		if start >= a.site.from-a.site.start && d == a.doc {
			start += a.site.to - a.site.from - len(" x")
		}
		return &Location{name, rangeOf(f.text, a.site.start+start, a.site.start+start+len(v.Name))}, nil
	}
	return nil, nil
}
