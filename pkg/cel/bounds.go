package cel

import (
	"context"
	"errors"
	"fmt"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/parser"
	"golang.org/x/sync/semaphore"

	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// What all expressions of one policy may need together, see [Env.Within]. cel-go and the
// in-tree plugin bound only the length of an expression (100,000 code points). Macros expand
// that to any number of nodes, and nested types and calls of generic functions need any amount
// of type checking.
const (
	// maxNodes bounds syntax-tree nodes after macro expansion. 1 MiB of ordinary expressions
	// has about as many. A node takes 5 µs to compile, 1 KiB while it is compiled and 100 B
	// from then on.
	maxNodes = 200_000
	// maxSteps bounds the weigher's estimate of the type checker's work. A step takes about 0.1
	// µs. An ordinary expression takes some hundreds.
	maxSteps = 10_000_000
	// maxInstructions bounds the compiled programs of regular expressions that are literals. An
	// instruction takes 40 B for as long as the policy exists.
	maxInstructions = 100_000
	// maxErrors bounds the text of errors in bytes: cel-go reports up to 100 for each
	// expression, and quotes the whole line in each.
	maxErrors = 64 << 10
)

// weight is the estimated cost of compiling an expression, or all expressions of a policy.
type weight struct{ nodes, steps, instructions int64 }

// compiling holds what Scopes need only while expressions are compiled. All Scopes of one
// policy share it.
type compiling struct {
	ctx    context.Context
	used   weight
	errors int // bytes
}

// alone returns a compiling for a Scope that shares its bounds with no other Scope.
func alone() *compiling { return &compiling{ctx: context.Background()} }

// fit shortens the text of an error, and its issues, to what remains of maxErrors for the
// policy.
func (c *compiling) fit(err *CompileError) {
	const more = "\nmore errors are not shown"
	if left := max(maxErrors-c.errors, 0); len(err.Text) > left {
		text := err.Text[:left]
		// Keep whole errors, and at least the beginning of one.
		if i := strings.LastIndex(text, "\nERROR: "); i > 0 {
			text = text[:i]
		} else {
			text = err.Text[:min(len(err.Text), 200)]
		}
		shown := max(strings.Count(text, "ERROR: <input>"), 1)
		err.Issues = err.Issues[:min(len(err.Issues), shown)]
		if len(err.Issues) == 1 && err.Issues[0].Message == err.Text {
			err.Issues[0].Message = strings.ToValidUTF8(text, "") + more
		}
		err.Text = strings.ToValidUTF8(text, "") + more
	}
	c.errors += len(err.Text)
}

// keptWeight is a weight within all bounds, so that 32 bits suffice.
type keptWeight struct{ nodes, steps, instructions uint32 }

func (w weight) kept() keptWeight {
	return keptWeight{uint32(w.nodes), uint32(w.steps), uint32(w.instructions)}
}

func (w keptWeight) weight() weight {
	return weight{int64(w.nodes), int64(w.steps), int64(w.instructions)}
}

// add adds the weight of one more expression and returns the name of the bound that is
// exceeded, "" if none is.
func (w *weight) add(more weight) string {
	w.nodes += more.nodes
	w.steps += more.steps
	w.instructions += more.instructions
	switch {
	case w.nodes > maxNodes:
		return nodesText
	case w.steps > maxSteps:
		return fmt.Sprintf("the types of the policy's expressions need more than %d steps to be checked", maxSteps)
	case w.instructions > maxInstructions:
		return fmt.Sprintf("the regular expressions of the policy have more than %d instructions", maxInstructions)
	}
	return ""
}

var nodesText = fmt.Sprintf("the expressions of the policy have more than %d syntax-tree nodes after macros are expanded", maxNodes)

// Within returns e for the expressions of one policy: the bounds apply to all Scopes of the
// result together, and compilation stops soon after ctx ends. In an Env that does not come from
// Within, the bounds apply to each Scope by itself.
func (e *Env) Within(ctx context.Context) *Env {
	return &Env{e.languages, &compiling{ctx: ctx}, e.asks}
}

// countNodes makes every macro of an environment stop once an expression has too many
// nodes. Nested macros that copy an operand, such as optMap, double them with each
// level.
func countNodes(e *celgo.Env) (*celgo.Env, error) {
	macros := e.Macros()
	for i, m := range macros {
		macros[i] = countingMacro{m}
	}
	e, err := celgo.ClearMacros()(e)
	if err != nil {
		return nil, err
	}
	return celgo.Macros(macros...)(e)
}

type countingMacro struct{ parser.Macro }

func (m countingMacro) Expander() parser.MacroExpander {
	expand := m.Macro.Expander()
	return func(eh parser.ExprHelper, target ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
		out, err := expand(eh, target, args)
		// Node IDs count up from 1, and the node that a macro returns is the last one that it
		// made.
		if out != nil && out.ID() > maxNodes {
			syntax.Stop(placed{eh.OffsetLocation(out.ID()), nodesText})
		}
		return out, err
	}
}

// placed is an error with a location in an expression.
type placed struct {
	location common.Location
	text     string
}

func (e placed) Error() string { return e.text }

// boundError returns an error in the form of cel-go's own, if it has a location.
func boundError(expr string, source common.Source, err error) error {
	var at placed
	if !errors.As(err, &at) {
		return err
	}
	errs := common.NewErrors(source)
	errs.ReportErrorString(at.location, at.text)
	return issuesError(expr, celgo.NewIssues(errs))
}

// parse is cel-go's Env.Parse, except that it stops when ctx ends.
func parse(ctx context.Context, env *celgo.Env, expr string) (parsed *celgo.Ast, err error) {
	text, err := syntax.Text(ctx, expr)
	if err != nil {
		return nil, issuesError(expr, celgo.ErrorAsIssues(err))
	}
	defer func() { err = boundError(expr, text, err) }()
	defer syntax.Stopped(&err)
	parsed, issues := env.ParseSource(text)
	if issues.Err() != nil {
		return nil, issuesError(expr, issues)
	}
	return parsed, nil
}

// compiled limits how many nodes are compiled at the same time in the process: a node takes up
// to 3 KiB while it is parsed.
var compiled = semaphore.NewWeighted(maxNodes)

// fewNodes is the size of an expression up to which compilation does not wait for others.
const fewNodes = 1024

// acquireNodes waits until compiled has room for the nodes of an expression. The caller must
// call giveBack afterwards.
func acquireNodes(ctx context.Context, expr string) (giveBack func(), err error) {
	nodes := mostNodes(expr)
	if nodes < fewNodes {
		return func() {}, nil
	}
	if err := compiled.Acquire(ctx, nodes); err != nil {
		return nil, syntax.Interrupted(ctx)
	}
	return func() { compiled.Release(nodes) }, nil
}

// mostNodes returns an upper bound for the number of nodes of an expression, at most maxNodes.
func mostNodes(expr string) int64 {
	// The densest text is that of macros: 17 nodes for [].map(x,x).
	nodes := 2 * int64(len(expr))
	for _, name := range copyingMacros {
		// Each of these macros can double all nodes. Beyond 2^20 the bound exceeds maxNodes
		// anyway.
		nodes <<= min(strings.Count(expr, name), 20)
		if nodes > maxNodes {
			return maxNodes
		}
	}
	return min(nodes, maxNodes)
}

// copyingMacros are the macros that repeat an operand.
var copyingMacros = []string{"optMap", "optFlatMap", "sortBy"}
