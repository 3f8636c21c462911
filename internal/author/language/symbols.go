package language

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/layout"
)

// Symbol is a part of a document that has a name.
type Symbol struct {
	Name, Detail string
	Kind         SymbolKind
	// Range is all of it, and Selection its name.
	Range, Selection Range
	Children         []Symbol
}

// SymbolKind says what a Symbol is.
type SymbolKind uint8

// The kinds of symbols.
const (
	ObjectSymbol SymbolKind = iota
	VariableSymbol
	ConditionSymbol
	MutationSymbol
	CaseSymbol
)

// symbolLists are the lists whose elements are symbols, by the path in their object.
var symbolLists = map[string]SymbolKind{
	"spec.variables": VariableSymbol, "spec.matchConditions": ConditionSymbol, "spec.mutations": MutationSymbol, "cases": CaseSymbol,
}

// maxSymbols bounds those of a document.
const maxSymbols = 2_000

// Symbols returns the objects of a document with their variables, conditions and mutations, and
// the cases of a suite.
func (w *Workspace) Symbols(_ context.Context, name string) ([]Symbol, error) {
	f, err := w.file(name)
	if err != nil {
		return nil, err
	}
	var out []Symbol
	documents, count := 0, 0
	for d := range documentsOf(f.text) {
		if documents++; documents > maxSymbols || count > maxSymbols {
			break
		}
		p := placeIn(f.text, d.from, d.to, d.from)
		if s, ok := objectSymbol(f.text, &p, d.to, &count); ok {
			out = append(out, s)
		}
	}
	return out, nil
}

func objectSymbol(text string, p *place, end int, count *int) (Symbol, bool) {
	kind := p.text(0, "kind")
	if kind == "" {
		return Symbol{}, false
	}
	*count++
	s := Symbol{Name: kind, Detail: p.text(0, "apiVersion"), Range: rangeOf(text, p.nodes[0].at, end)}
	s.Selection = selection(text, p, p.child(0, "kind"))
	if m := p.child(0, "metadata"); m >= 0 && p.text(m, "name") != "" {
		s.Name = kind + " " + p.text(m, "name")
		s.Selection = selection(text, p, p.child(m, "name"))
	}
	for _, path := range []string{"spec.variables", "spec.matchConditions", "spec.mutations", "cases"} {
		n := 0
		for _, step := range strings.Split(path, ".") {
			if n >= 0 {
				n = p.child(n, step)
			}
		}
		if n < 0 || n == 0 {
			continue
		}
		for i, item := range p.nodes[n].items {
			if *count++; *count > maxSymbols {
				break
			}
			stop := end
			if i+1 < len(p.nodes[n].items) {
				stop = p.nodes[p.nodes[n].items[i+1]].at
			} else if next := p.after(n); next >= 0 {
				stop = next
			}
			name := p.text(item, "name")
			c := Symbol{Name: name, Kind: symbolLists[path], Range: rangeOf(text, p.nodes[item].at, stop)}
			if k := p.child(item, "name"); name != "" {
				c.Selection = selection(text, p, k)
			} else {
				c.Name, c.Detail = fmt.Sprintf("%s[%d]", path[strings.LastIndexByte(path, '.')+1:], i), p.text(item, "patchType")
				c.Selection = rangeOf(text, p.nodes[item].at, min(p.nodes[item].at+1, stop))
			}
			s.Children = append(s.Children, c)
		}
	}
	return s, true
}

// after returns the offset of what follows a node in its mapping or in one around it, -1 if
// nothing does.
func (p *place) after(n int) int {
	for ; n > 0; n = p.nodes[n].parent {
		siblings := p.nodes[p.nodes[n].parent].keys
		if p.nodes[n].item {
			siblings = p.nodes[p.nodes[n].parent].items
		}
		if i := slices.Index(siblings, n); i >= 0 && i+1 < len(siblings) {
			return p.nodes[siblings[i+1]].at
		}
	}
	return -1
}

// selection is the range of the value of a key.
func selection(text string, p *place, n int) Range {
	node := &p.nodes[n]
	return rangeOf(text, node.value, node.end)
}

// variable is a variable of a policy, with the places of its name.
type variable struct {
	name  string
	where []span // the first is its definition
}

var errNoVariable = errors.New("there is no variable of a policy at this place")

// variableAt finds the variable that is defined or used at an offset.
func (w *Workspace) variableAt(ctx context.Context, f *file, offset int) (*variable, error) {
	p := placeAt(f.text, offset)
	spec := p.child(0, "spec")
	kind := p.text(0, "kind")
	if spec < 0 || kind != api.PolicyKind && kind != "ValidatingAdmissionPolicy" {
		return nil, errNoVariable
	}
	defined := map[string]span{}
	if list := p.child(spec, "variables"); list >= 0 {
		for _, item := range p.nodes[list].items {
			if n := p.child(item, "name"); n >= 0 && p.nodes[n].scalar != "" {
				if _, twice := defined[p.nodes[n].scalar]; !twice {
					defined[p.nodes[n].scalar] = span{p.nodes[n].value, p.nodes[n].end}
				}
			}
		}
	}
	used := map[string][]span{}
	collect := func(s site) {
		if !s.inside || !expressionKeys[s.key()] || len(s.path) == 0 || s.path[0] != "spec" {
			return
		}
		tokens, _ := layout.Tokens(s.text)
		for i := 2; i < len(tokens); i++ {
			t := tokens[i]
			dot := i - 1
			if isSign(tokens[dot], "?") && dot > 1 {
				dot--
			}
			if t.Kind != layout.Identifier || !isSign(tokens[dot], ".") || tokens[dot-1].Text != "variables" || dot > 1 && isSign(tokens[dot-2], ".") {
				continue
			}
			from := s.offset(t.At)
			used[t.Text] = append(used[t.Text], span{from, from + len(t.Text)})
		}
	}
	for _, s := range expressions(f.text, offset) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		collect(s)
	}
	for name, at := range defined {
		where := append([]span{at}, used[name]...)
		if slices.ContainsFunc(where, func(s span) bool { return offset >= s.from && offset <= s.to }) {
			return &variable{name, where}, nil
		}
	}
	return nil, errNoVariable
}

// expressions are all those of the document at an offset.
func expressions(text string, offset int) (out []site) {
	start, _ := documentAround(text, offset)
	walk(text, start, func(s site) { out = append(out, s) })
	return out
}

// References returns where a variable of a policy is used, with its definition if that is
// wanted.
func (w *Workspace) References(ctx context.Context, name string, at Position, definition bool) ([]Location, error) {
	f, err := w.file(name)
	if err != nil {
		return nil, err
	}
	v, err := w.variableAt(ctx, f, offsetOf(f.text, at))
	if errors.Is(err, errNoVariable) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Location
	for i, s := range v.where {
		if i > 0 || definition {
			out = append(out, Location{name, rangeOf(f.text, s.from, s.to)})
		}
	}
	return out, nil
}

// elsewhere returns a place that looks like a use of the variable but was not found as one, such
// as in brackets over several lines. Rename refuses to work then.
func (v *variable) elsewhere(text string) (int, bool) {
	start, end := documentAround(text, v.where[0].from)
	use := regexp.MustCompile(`\bvariables\s*\.\s*\??\s*` + regexp.QuoteMeta(v.name) + `\b`)
	for _, m := range use.FindAllStringIndex(text[start:end], -1) {
		to := start + m[1]
		line := text[strings.LastIndexByte(text[:to], '\n')+1 : to]
		if strings.HasPrefix(strings.TrimSpace(line), "#") || slices.ContainsFunc(v.where, func(s span) bool { return s.to == to }) {
			continue
		}
		return to, true
	}
	return 0, false
}

// celName is what a variable may be called.
var celName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Rename returns the edits that give a variable of a policy another name, where it is defined
// and where it is used.
func (w *Workspace) Rename(ctx context.Context, name string, at Position, to string) ([]Edit, error) {
	f, err := w.file(name)
	if err != nil {
		return nil, err
	}
	v, err := w.variableAt(ctx, f, offsetOf(f.text, at))
	if err != nil {
		return nil, err
	}
	if !celName.MatchString(to) {
		return nil, fmt.Errorf("%q is no name in CEL; want letters, digits and _, and no digit first", to)
	}
	if at, ok := v.elsewhere(f.text); ok {
		return nil, fmt.Errorf("line %d may use %s in a form of YAML in which it cannot be renamed", positionOf(f.text, at).Line+1, v.name)
	}
	p := placeAt(f.text, v.where[0].from)
	if list := p.child(p.child(0, "spec"), "variables"); list >= 0 && to != v.name {
		for _, item := range p.nodes[list].items {
			if p.text(item, "name") == to {
				return nil, fmt.Errorf("the policy has a variable %s", to)
			}
		}
	}
	var out []Edit
	for _, s := range v.where {
		out = append(out, Edit{rangeOf(f.text, s.from, s.to), to})
	}
	return out, nil
}

// Signature is how a function is called, in each of its forms.
type Signature struct {
	Forms []SignatureForm
	Doc   string
	// Active is the index of the form that fits the number of arguments, and Argument the index
	// of the argument at the cursor.
	Active, Argument int
}

// SignatureForm is a form of a function and its parameters, which are parts of its label.
type SignatureForm struct {
	Label      string
	Parameters []string
}

// Signature returns the forms of the function in whose arguments the cursor is, nil if it is in
// none.
func (w *Workspace) Signature(ctx context.Context, name string, at Position) (*Signature, error) {
	f, err := w.file(name)
	if err != nil {
		return nil, err
	}
	a := w.author(ctx, f, offsetOf(f.text, at))
	if a == nil {
		return nil, ctx.Err()
	}
	var before []layout.Token
	for _, t := range a.tokens {
		if t.Kind == layout.End || t.At >= a.site.cursor {
			break
		}
		before = append(before, t)
	}
	depth := 0
	for i := len(before) - 1; i > 0; i-- {
		switch t := before[i]; {
		case isSign(t, ")") || isSign(t, "]") || isSign(t, "}"):
			depth++
		case isSign(t, "(") || isSign(t, "[") || isSign(t, "{"):
			if depth--; depth >= 0 {
				continue
			}
			depth = 0
			if !isSign(t, "(") || before[i-1].Kind != layout.Identifier {
				continue // go on outwards
			}
			return w.signature(a, before, i), ctx.Err()
		}
	}
	return nil, ctx.Err()
}

// signature describes the call whose bracket is at an index.
func (w *Workspace) signature(a *author, tokens []layout.Token, open int) *Signature {
	all, err := a.scope.Functions(a.want)
	if err != nil {
		return nil
	}
	word := tokens[open-1].Text
	member := open > 1 && isSign(tokens[open-2], ".")
	if member {
		chain := tokens[receiver(tokens, open-2):open]
		if names, ok := typeName(chain); ok {
			if full := strings.Join(names, "."); slices.ContainsFunc(all, func(f cel.Function) bool { return f.Name == full }) {
				word, member = full, false
			}
		}
	}
	i := slices.IndexFunc(all, func(f cel.Function) bool { return f.Name == word })
	if i < 0 {
		return nil
	}
	f := &all[i]
	out := &Signature{Doc: f.Doc, Argument: len(arguments(tokens[open+1:])) - 1}
	if own := functionDocs[f.Name]; own != "" {
		out.Doc = own
	}
	for _, o := range f.Overloads {
		if o.Member != member || len(out.Forms) == maxForms {
			continue
		}
		args := o.Args
		if o.Member && len(args) > 0 {
			args = args[1:]
		}
		if len(args) > out.Argument && (len(out.Forms) == 0 || len(out.Forms[out.Active].Parameters) <= out.Argument) {
			out.Active = len(out.Forms)
		}
		out.Forms = append(out.Forms, SignatureForm{spelled(f.Name, o), args})
	}
	if f.Macro && len(out.Forms) == 0 {
		out.Forms = []SignatureForm{{Label: f.Name + "(…)"}}
	}
	if len(out.Forms) == 0 {
		return nil
	}
	return out
}
