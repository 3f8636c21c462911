package cel

import (
	"slices"
	"strings"
	"sync/atomic"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/mapd-project/mapd/pkg/cel/syntax"
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
	// Optional is a value that may be absent, in which case the expression uses another value.
	Optional PointKind = "optional"
	// Body is the part of a macro that is evaluated for each element.
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
	// Text is the text of the part.
	Text string
	// Start and End are where it begins and ends in the expression, in code points from 0.
	Start, End int
	Outcomes   []string
}

// Coverage counts the outcomes of the parts of a Program, and knows which parts a Trace
// records. It is safe for concurrent use.
type Coverage struct {
	// Name is the name of the expression in a Trace. It must be set before the first
	// evaluation.
	Name   string
	points []Point
	hits   [][2]atomic.Int64 // by point and outcome
	reads  []read
	// unread is how many places are missing from reads because there are more than maxReads.
	unread int
	at     map[int64]node
}

// node says how a node of the syntax tree is observed: its index in points and its index in
// reads, or -1.
type node struct {
	point, read int
	indexed     bool // it is x[y], x.?y or x[?y]
}

// Points returns the points of the expression: first the expression as a whole, then the others
// in the order of the text. The list must not be modified.
func (c *Coverage) Points() []Point { return c.points }

// Hits returns how many times a point had an outcome.
func (c *Coverage) Hits(point, outcome int) int64 { return c.hits[point][outcome].Load() }

// Coverage returns the counts of the program's parts, nil without Options.Observe.
func (p *Program) Coverage() *Coverage { return p.coverage }

// Coverage returns the Coverage of a variable's expression, nil if there is none.
func (s *Scope) Coverage(variable string) *Coverage {
	if i, ok := s.byName[variable]; ok {
		return s.variables[i].program.coverage
	}
	return nil
}

// newCoverage finds the points of a checked expression.
func newCoverage(checked *ast.AST, expr string, want Want) *Coverage {
	c := &Coverage{at: map[int64]node{}}
	f := pointFinder{info: checked.SourceInfo(), source: []rune(expr), length: len([]rune(expr)), at: map[int64]Point{}, coverage: c}
	root := checked.Expr()
	f.visit(root)
	outcomes := []string{Ran}
	if want == Bool {
		outcomes = []string{True, False}
	}
	f.at[root.ID()] = Point{Kind: Whole, Text: f.text(root), Start: 0, End: f.length, Outcomes: outcomes}
	type place struct {
		id int64
		Point
	}
	var places []place
	for id, p := range f.at {
		places = append(places, place{id, p})
	}
	slices.SortFunc(places, func(a, b place) int {
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
	for i, p := range places {
		n, ok := c.at[p.id]
		if !ok {
			n.read = -1
		}
		n.point = i
		c.points, c.at[p.id] = append(c.points, p.Point), n
	}
	c.hits = make([][2]atomic.Int64, len(c.points))
	return c
}

// pointFinder collects points by node, and the reads of a Coverage.
type pointFinder struct {
	info     *ast.SourceInfo
	source   []rune
	length   int
	at       map[int64]Point
	coverage *Coverage
	bound    []string // names that macros bind around the node that is visited
}

func (f *pointFinder) add(e ast.Expr, kind PointKind, outcomes ...string) {
	f.addAs(e, e, kind, outcomes...)
}

// addAs adds a point for the node e, with the text of the node shown.
func (f *pointFinder) addAs(e, shown ast.Expr, kind PointKind, outcomes ...string) {
	start, end := f.extent(shown)
	f.at[e.ID()] = Point{Kind: kind, Text: f.text(shown), Start: start, End: end, Outcomes: outcomes}
}

// visit adds the points and reads of an expression and of its operands.
func (f *pointFinder) visit(e ast.Expr) {
	f.read(e)
	f.below(e)
}

// below adds the points and reads of the operands of an expression.
func (f *pointFinder) below(e ast.Expr) {
	if next, rest := link(e); next != nil {
		f.below(next) // it is part of what e reads
		for _, arg := range rest {
			f.visit(arg)
		}
		return
	}
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
	case ast.ComprehensionKind:
		loop := e.AsComprehension()
		f.visit(loop.IterRange())
		f.visit(loop.AccuInit())
		n := len(f.bound)
		f.bound = append(f.bound, loop.IterVar(), loop.IterVar2(), loop.AccuVar())
		f.visit(loop.LoopStep())
		f.visit(loop.Result())
		f.bound = f.bound[:n]
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
		return
	}
	for _, p := range syntax.Parts(e) {
		if p.Optional {
			f.add(p.Expr, Optional, Present, Absent)
		}
		f.visit(p.Expr)
	}
}

// accumulator reports whether e is the variable in which a macro gathers its result.
func accumulator(e ast.Expr) bool {
	return e.Kind() == ast.IdentKind && (strings.HasPrefix(e.AsIdent(), "@") || e.AsIdent() == "__result__")
}

// gathered returns the operand that a loop step adds to the accumulator, or step itself if it
// has another form.
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
	// cel-go's location of a call of a function is its opening bracket.
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
	// Closing brackets after the last argument belong to no node.
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

// maxPointText bounds the text of a Point, in characters.
const maxPointText = 60

// text returns an expression on one line, cut to maxPointText.
func (f *pointFinder) text(e ast.Expr) string { return cutText(f.whole(e), maxPointText) }

// whole returns an expression on one line.
func (f *pointFinder) whole(e ast.Expr) string {
	s, err := celgo.ExprToString(e, f.info)
	if err != nil { // cel-go cannot write some macros
		start, end := f.extent(e)
		s = string(f.source[start:end])
	}
	return strings.Join(strings.Fields(s), " ")
}
