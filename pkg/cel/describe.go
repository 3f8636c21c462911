package cel

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel"

	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// A Function is a function or a macro that expressions may call, described for completion and
// documentation.
type Function struct {
	Name string
	// Doc is the description in the function's library; it may be empty.
	Doc string
	// Overloads are its forms; a macro has none.
	Overloads []Overload
	Macro     bool
	// Member says that some form has a receiver (x.f()), Global that some form has none (f(x)).
	Member, Global bool
}

// An Overload is a form of a function, with the names of types.
type Overload struct {
	Member bool
	// Args are the types of the arguments. For a member function the receiver is the first.
	Args   []string
	Result string
}

// Functions returns the functions and macros that an expression for want may call, sorted by
// name, without operators.
func (s *Scope) Functions(want Want) ([]Function, error) {
	lang, err := s.env.language(s.vars.Mode, want == Object || want == JSONPatch || want == TypedPatch, s.asks)
	if err != nil {
		return nil, err
	}
	all := map[string]*Function{}
	named := func(name string) *Function {
		if all[name] == nil {
			all[name] = &Function{Name: name}
		}
		return all[name]
	}
	for name, decl := range lang.env.Functions() {
		if decl.IsDeclarationDisabled() || !isWord(name) {
			continue // an operator
		}
		f := named(name)
		f.Doc = decl.Description()
		for _, o := range decl.OverloadDecls() {
			over := Overload{Member: o.IsMemberFunction(), Result: o.ResultType().String()}
			for _, a := range o.ArgTypes() {
				over.Args = append(over.Args, a.String())
			}
			f.Member, f.Global = f.Member || over.Member, f.Global || !over.Member
			f.Overloads = append(f.Overloads, over)
		}
	}
	for _, m := range lang.env.Macros() {
		f := named(m.Function())
		f.Macro = true
		if m.IsReceiverStyle() {
			f.Member = true
		} else {
			f.Global = true
		}
	}
	var out []Function
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[name])
	}
	return out, nil
}

// isWord reports whether a name is that of a function and not of an operator, such as _+_, @in
// or in.
func isWord(name string) bool {
	return name != "in" && name[0] != '_' && name[0] != '!' && name[0] != '-' && !strings.Contains(name, "@")
}

// TypeOf returns the CEL type of an expression. Its errors are those of Compile.
func (s *Scope) TypeOf(expr string) (_ Type, err error) {
	if s.compiling.ctx.Err() != nil {
		return Type{}, syntax.Interrupted(s.compiling.ctx)
	}
	defer func() {
		// As in compileAnew.
		if r := recover(); r != nil {
			err = syntax.NewError(expr, "internal error")
		}
	}()
	giveBack, err := acquireNodes(s.compiling.ctx, expr)
	if err != nil {
		return Type{}, err
	}
	defer giveBack()
	_, checked, _, err := s.check(expr, anything)
	if err != nil {
		return Type{}, err
	}
	return Type{checked.GetType(checked.Expr().ID())}, nil
}

// Type is the type of an expression.
type Type struct {
	of *types.Type
}

// String returns the name of the type, such as list(string).
func (t Type) String() string {
	if t.of == nil {
		return "dyn"
	}
	return t.of.String()
}

// Fields returns the names and the types of the fields of a declared type, such as that of
// request.userInfo.
func (t Type) Fields() map[string]Type {
	if t.of == nil || t.of.Kind() != types.StructKind {
		return nil
	}
	of := declaredTypes()[t.of.TypeName()]
	if of == nil {
		return nil
	}
	out := map[string]Type{}
	for name, field := range of.Fields {
		out[name] = Type{field.Type.CelType()}
	}
	return out
}

// declaredTypes are the types of request and namespaceObject, and of their fields, by name.
var declaredTypes = sync.OnceValue(func() map[string]*cel.DeclType {
	out := map[string]*cel.DeclType{}
	var add func(t *cel.DeclType)
	add = func(t *cel.DeclType) {
		switch {
		case t.IsList():
			add(t.ElemType)
		case t.IsObject():
			out[t.TypeName()] = t
			for _, f := range t.Fields {
				add(f.Type)
			}
		}
	}
	add(requestType)
	add(namespaceType)
	return out
})
