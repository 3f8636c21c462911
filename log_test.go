package mapd_test

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logRow is a row of the table of fields in docs/operate.md. It names one or more.
var logRow = regexp.MustCompile("(?m)^\\| ((?:`[A-Za-z]+`(?:, )?)+) \\| [^|]+ \\|$")

// computedFields are the fields whose names are computed, by the expression.
var computedFields = map[string][]string{
	`stage.Name`:             {"guests", "mutators", "policies", "validators"},
	`stage.Rounds`:           {"passes", "rounds"},
	`s.Stage.Name + "Asked"`: {"guestsAsked", "mutatorsAsked", "policiesAsked", "validatorsAsked"},
}

// Every field that a line of the log can have is in the table of docs/operate.md, and
// every field of the table can be in a line.
func TestLogFields(t *testing.T) {
	_, section, ok := strings.Cut(readText(t, "docs/operate.md"), "\n## The log\n")
	if !ok {
		t.Fatal("docs/operate.md has no section about the log")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]bool{}
	for _, row := range logRow.FindAllStringSubmatch(section, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			if name = strings.Trim(name, "`"); documented[name] {
				t.Errorf("docs/operate.md: %s has two rows", name)
			}
			documented[name] = true
		}
	}
	used := map[string][]string{}
	for _, top := range []string{"cmd", "internal", "pkg"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") {
				findLogFields(t, path, used)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(used) < 50 || len(documented) < 50 {
		t.Fatalf("found %d fields in code and %d in docs/operate.md: they are not read as they are written", len(used), len(documented))
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !documented[name] {
			t.Errorf("the table of the log in docs/operate.md lacks the field %s: %v", name, slices.Compact(used[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if used[name] == nil && name != "time" && name != "level" && name != "msg" {
			t.Errorf("docs/operate.md has a field %s, which no line of the log has", name)
		}
	}
}

// logFirst says at which argument the fields begin.
var logFirst = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "Log": 3, "With": 0,
}

// findLogFields adds the names of the fields that a file logs, with their places.
func findLogFields(t *testing.T, path string, used map[string][]string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		lists := logLists{name: func(e ast.Expr) {
			at := files.Position(e.Pos()).String()
			if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				name, _ := strconv.Unquote(lit.Value)
				used[name] = append(used[name], at)
				return
			}
			names := computedFields[printed(t, files, e)]
			if names == nil {
				t.Errorf("%s: a field whose name is no constant; name what it can be in computedFields", at)
			}
			for _, name := range names {
				used[name] = append(used[name], at)
			}
		}, function: f}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if nameOf(call.Fun) == "append" && nameOf(call.Args[0]) == "facts" {
				lists.fields(call.Args[1:], false) // of a function that returns them
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !isLogger(method.X) {
				return true
			}
			if first, ok := logFirst[method.Sel.Name]; ok && len(call.Args) >= first {
				lists.fields(call.Args[first:], call.Ellipsis.IsValid())
			}
			return true
		})
	}
}

// isLogger reports whether an expression is named as loggers are.
func isLogger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "log" || e.Name == "slog" || e.Name == "logger"
	case *ast.SelectorExpr:
		return e.Sel.Name == "log" || e.Sel.Name == "Log"
	}
	return false
}

// logLists finds the names in lists of names and values within a function.
type logLists struct {
	name     func(ast.Expr)
	function *ast.FuncDecl
}

// fields calls name for each name in args. spread says that the last is a list itself.
func (l *logLists) fields(args []ast.Expr, spread bool) {
	if spread {
		l.list(args[len(args)-1])
		args = args[:len(args)-1]
	}
	for i := 0; i < len(args); i += 2 {
		l.name(args[i])
	}
}

// list does the same for an expression that is a list.
func (l *logLists) list(e ast.Expr) {
	switch e := e.(type) {
	case *ast.CompositeLit:
		l.fields(e.Elts, false)
	case *ast.CallExpr: // append(facts, …), asked(d, …)
		if id, ok := e.Args[0].(*ast.Ident); ok && nameOf(e.Fun) == "append" && !l.assigned(id.Name) {
			l.name(e) // not found
		}
		l.fields(e.Args[1:], e.Ellipsis.IsValid())
	case *ast.Ident:
		if !l.assigned(e.Name) {
			l.name(e)
		}
	default:
		l.name(e)
	}
}

// assigned looks at what is assigned to a variable, and returns whether anything is.
func (l *logLists) assigned(variable string) (found bool) {
	ast.Inspect(l.function, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		if !ok || len(a.Lhs) != 1 || nameOf(a.Lhs[0]) != variable {
			return true
		}
		found = true
		switch from := a.Rhs[0].(type) {
		case *ast.CompositeLit:
			l.fields(from.Elts, false)
		case *ast.CallExpr: // append(variable, …)
			l.fields(from.Args[1:], from.Ellipsis.IsValid())
		default:
			l.name(a.Rhs[0])
		}
		return true
	})
	return found
}

// printed returns an expression as gofmt writes it.
func printed(t *testing.T, files *token.FileSet, e ast.Expr) string {
	t.Helper()
	var b strings.Builder
	if err := format.Node(&b, files, e); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// nameOf returns the name that an expression is, or nothing.
func nameOf(e ast.Expr) string {
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
