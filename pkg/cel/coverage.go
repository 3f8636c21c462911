package cel

import (
	"slices"
	"strings"
	"sync/atomic"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// PointKind says what a Point is.
type PointKind string

// The kinds of points.
const (
	// Whole is the expression itself.
	Whole PointKind = "expression"
	// Choice is the condition of a ?:, or of a macro that picks elements.
	Choice PointKind = "condition"
	// Operand is one of && or ||, and the predicate of all and exists.
	Operand PointKind = "operand"
	// Optional is a value that may be absent and has something else in its place then.
	Optional PointKind = "optional"
	// Body is what a macro does for each element.
	Body PointKind = "body"
)

// Outcomes of points. A Bool expression, a Choice and an Operand have True and False, an
// Optional has Present and Absent, and others have Ran.
const (
	True    = "true"
	False   = "false"
	Present = "present"
	Absent  = "absent"
	Ran     = "run"
)

// Point is a part of an expression whose evaluations are counted.
type Point struct {
	Kind PointKind
	// Text is the part.
	Text string
	// Start and End are where it begins and ends in the expression, in code points from 0.
	Start, End int
	Outcomes   []string
}

// Coverage counts what evaluations of a Program gave. It is safe for concurrent use.
type Coverage struct {
	points []Point
	hits   [][2]atomic.Int64 // by point and outcome
	at     map[int64]int     // the point of a node
}

// Points returns the points of the expression, the whole of it first and the others in
// the order of the text. The list must not be modified.
func (c *Coverage) Points() []Point { return c.points }

// Hits returns how many times a point had an outcome.
func (c *Coverage) Hits(point, outcome int) int64 { return c.hits[point][outcome].Load() }

// Coverage returns what was counted, nil if the Env does not count.
func (p *Program) Coverage() *Coverage { return p.coverage }

// Coverage returns that of a variable, nil if there is none.
func (s *Scope) Coverage(variable string) *Coverage {
	if i, ok := s.byName[variable]; ok {
		return s.variables[i].program.coverage
	}
	return nil
}

// newCoverage finds the points of a checked expression.
func newCoverage(checked *ast.AST, expr string, want Want) *Coverage {
	f := pointFinder{info: checked.SourceInfo(), source: []rune(expr), length: len([]rune(expr)), at: map[int64]Point{}}
	root := checked.Expr()
	f.visit(root)
	outcomes := []string{Ran}
	if want == Bool {
		outcomes = []string{True, False}
	}
	f.at[root.ID()] = Point{Kind: Whole, Text: f.text(root), Start: 0, End: f.length, Outcomes: outcomes}
	c := &Coverage{at: map[int64]int{}}
	type node struct {
		id int64
		Point
	}
	var nodes []node
	for id, p := range f.at {
		nodes = append(nodes, node{id, p})
	}
	slices.SortFunc(nodes, func(a, b node) int {
		switch {
		case (a.Kind == Whole) != (b.Kind == Whole):
			return index(b.Kind == Whole) - index(a.Kind == Whole)
		case a.Start != b.Start:
			return a.Start - b.Start
		case a.End != b.End:
			return b.End - a.End
		}
		return int(a.id - b.id)
	})
	for i, n := range nodes {
		c.points, c.at[n.id] = append(c.points, n.Point), i
	}
	c.hits = make([][2]atomic.Int64, len(c.points))
	return c
}

// pointFinder collects points by node.
type pointFinder struct {
	info   *ast.SourceInfo
	source []rune
	length int
	at     map[int64]Point
}

func (f *pointFinder) add(e ast.Expr, kind PointKind, outcomes ...string) {
	f.addAs(e, e, kind, outcomes...)
}

// addAs adds a point that is shown as another node than that which is evaluated.
func (f *pointFinder) addAs(e, shown ast.Expr, kind PointKind, outcomes ...string) {
	start, end := f.extent(shown)
	f.at[e.ID()] = Point{Kind: kind, Text: f.text(shown), Start: start, End: end, Outcomes: outcomes}
}

// visit adds the points of an expression and what is below it.
func (f *pointFinder) visit(e ast.Expr) {
	switch e.Kind() {
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		switch call.FunctionName() {
		case operators.Conditional:
			if c := args[0]; c.Kind() == ast.CallKind && c.AsCall().FunctionName() == "hasValue" && c.AsCall().IsMemberFunction() {
				f.addAs(c, c.AsCall().Target(), Optional, Present, Absent) // optMap and the like
			} else {
				f.add(c, Choice, True, False)
			}
		case operators.LogicalAnd, operators.LogicalOr:
			for _, arg := range args {
				nested := arg.Kind() == ast.CallKind && arg.AsCall().FunctionName() == call.FunctionName()
				if !nested && !accumulator(arg) {
					f.add(arg, Operand, True, False)
				}
			}
		case "or", "orValue":
			if call.IsMemberFunction() && len(args) == 1 {
				f.add(call.Target(), Optional, Present, Absent)
			}
		}
		if call.IsMemberFunction() {
			f.visit(call.Target())
		}
		for _, arg := range args {
			f.visit(arg)
		}
	case ast.SelectKind:
		f.visit(e.AsSelect().Operand())
	case ast.ListKind:
		list := e.AsList()
		for i, elem := range list.Elements() {
			if list.IsOptional(int32(i)) {
				f.add(elem, Optional, Present, Absent)
			}
			f.visit(elem)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			m := entry.AsMapEntry()
			if m.IsOptional() {
				f.add(m.Value(), Optional, Present, Absent)
			}
			f.visit(m.Key())
			f.visit(m.Value())
		}
	case ast.StructKind:
		for _, entry := range e.AsStruct().Fields() {
			s := entry.AsStructField()
			if s.IsOptional() {
				f.add(s.Value(), Optional, Present, Absent)
			}
			f.visit(s.Value())
		}
	case ast.ComprehensionKind:
		loop := e.AsComprehension()
		f.visit(loop.IterRange())
		f.visit(loop.AccuInit())
		f.visit(loop.LoopStep())
		f.visit(loop.Result())
		if r := loop.IterRange(); r.Kind() == ast.ListKind && r.AsList().Size() == 0 {
			return // binds a name
		}
		// The steps of all, exists and filter have points of their own.
		if step := loop.LoopStep(); step.Kind() == ast.CallKind {
			switch step.AsCall().FunctionName() {
			case operators.LogicalAnd, operators.LogicalOr, operators.Conditional:
			default:
				f.addAs(step, gathered(step), Body, Ran)
			}
		}
	}
}

// accumulator reports whether e is the variable in which a macro gathers its result.
func accumulator(e ast.Expr) bool {
	return e.Kind() == ast.IdentKind && (strings.HasPrefix(e.AsIdent(), "@") || e.AsIdent() == "__result__")
}

// gathered returns what a step adds to its accumulator, or the step.
func gathered(step ast.Expr) ast.Expr {
	for _, arg := range step.AsCall().Args() {
		if accumulator(arg) {
			continue
		}
		if arg.Kind() == ast.ListKind && arg.AsList().Size() == 1 {
			return arg.AsList().Elements()[0]
		}
		return arg
	}
	return step
}

// extent returns where the text of an expression begins and ends.
func (f *pointFinder) extent(e ast.Expr) (start, end int) {
	start, end = f.length, 0
	note := func(id int64) {
		if r, ok := f.info.GetOffsetRange(id); ok {
			start, end = min(start, int(r.Start)), max(end, int(r.Stop))
		}
	}
	if call, ok := f.info.GetMacroCall(e.ID()); ok {
		e = call
	}
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) { note(e.ID()) }))
	if start > end {
		return 0, f.length
	}
	// A call of a function stands at its bracket.
	name := ""
	switch {
	case e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly():
		name = operators.Has
	case e.Kind() == ast.CallKind && !e.AsCall().IsMemberFunction():
		name = e.AsCall().FunctionName()
	}
	if begin := start - len([]rune(name)); begin >= 0 && string(f.source[begin:start]) == name {
		start = begin
	}
	// The brackets behind the last argument belong to no node.
	end = min(end, f.length)
	open := 0
	for i, r := range f.source[start:] {
		if start+i >= end && open <= 0 {
			return start, start + i
		}
		open += strings.Count("([{", string(r)) - strings.Count(")]}", string(r))
	}
	if open <= 0 {
		return start, f.length
	}
	return start, end // a bracket within a text
}

// text returns an expression on one line, cut if it is long.
func (f *pointFinder) text(e ast.Expr) string {
	s, err := celgo.ExprToString(e, f.info)
	if err != nil { // cel-go cannot write some macros
		start, end := f.extent(e)
		s = string(f.source[start:end])
	}
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 60 {
		s = string(r[:59]) + "…"
	}
	return s
}

// counting makes the nodes of points count their values. It comes after the observer of
// costs, which sees the nodes themselves.
func (c *Coverage) counting(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if point, ok := c.at[i.ID()]; ok {
		return &counted{i, c.points[point].Outcomes, &c.hits[point]}, nil
	}
	return i, nil
}

// counted is the node of a point.
type counted struct {
	interpreter.InterpretableV2
	outcomes []string
	hits     *[2]atomic.Int64
}

func (c *counted) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := c.InterpretableV2.Exec(frame)
	outcome := -1
	switch v := v.(type) {
	case *types.Err, *types.Unknown:
	case types.Bool:
		if len(c.outcomes) == 2 {
			outcome = index(!bool(v))
		} else {
			outcome = 0
		}
	case *types.Optional:
		outcome = 0
		if len(c.outcomes) == 2 {
			outcome = index(!v.HasValue())
		}
	default:
		if len(c.outcomes) == 1 {
			outcome = 0
		}
	}
	if outcome >= 0 {
		c.hits[outcome].Add(1)
	}
	return v
}

func (c *counted) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}
