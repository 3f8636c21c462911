package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/policy"
)

// decodeErrors places what strict decoding did not like, each field by itself.
func (b *builder) decodeErrors(d *manifest.Document, err error) {
	const strict = "strict decoding error: "
	faults := unknown.FindAllString(err.Error(), -1)
	if len(faults) == 0 || !strings.HasPrefix(err.Error(), strict) {
		b.fail(d.ErrorOf("", fmt.Errorf("%s: %w", d.Name(), err)))
		return
	}
	for _, fault := range faults {
		b.fail(d.ErrorOf("", fmt.Errorf("%s: %s%s", d.Name(), strict, fault)))
	}
}

var (
	celIssue  = regexp.MustCompile(`(?m)^(?:.*?compilation failed: )?ERROR: <input>:(\d+):(\d+): (.*)$`)
	unknown   = regexp.MustCompile(`(?:unknown|duplicate) field "[^"]+"`)
	fieldPath = regexp.MustCompile(`^((?:spec|metadata)[][\w.]*): `)
	// inExpressions are the lists whose elements have expressions.
	inExpressions = regexp.MustCompile(`^spec\.(?:variables|matchConditions|mutations)`)
)

// crdErrors places what is wrong with a CustomResourceDefinition.
func (b *builder) crdErrors(d *manifest.Document, err error) {
	var several utilerrors.Aggregate
	if errors.As(err, &several) {
		for _, e := range several.Errors() {
			b.crdErrors(d, e)
		}
		return
	}
	text := strings.TrimPrefix(err.Error(), crdPrefix(d))
	if m := fieldPath.FindStringSubmatch(text); m != nil {
		b.fail(d.ErrorAt(m[1], fmt.Errorf("%s: %s", d.Name(), text)))
		return
	}
	b.decodeErrors(d, errors.New(text))
}

// crdPrefix begins the errors of openapi.CRDs about a definition.
func crdPrefix(d *manifest.Document) string {
	return fmt.Sprintf("CustomResourceDefinition %q: ", d.Object.GetName())
}

// fieldErrors places what a server finds invalid; of an expression that does not
// compile each fault is placed in the expression.
func (b *builder) fieldErrors(d *manifest.Document, errs field.ErrorList) {
	for _, e := range errs {
		text, _ := e.BadValue.(string)
		issues := celIssue.FindAllStringSubmatch(e.Detail, -1)
		switch {
		case e.Type != field.ErrorTypeInvalid || !inExpressions.MatchString(e.Field):
			b.fail(d.ErrorAt(e.Field, fmt.Errorf("%s: %w", d.Name(), e)))
		case issues == nil:
			// The value is in the file; it need not be in the text again.
			b.fail(d.ErrorIn(e.Field, text, 1, 1, fmt.Errorf("%s: %s: %s", d.Name(), e.Field, e.Detail)))
		default:
			for _, m := range issues {
				line, _ := strconv.Atoi(m[1])
				column, _ := strconv.Atoi(m[2])
				b.fail(d.ErrorIn(e.Field, text, line, column, fmt.Errorf("%s: %s: %s", d.Name(), e.Field, m[3])))
			}
		}
	}
}

// compileErrors places what only the run-time compiler refuses.
func (b *builder) compileErrors(d *manifest.Document, err error) {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			b.compileErrors(d, e)
		}
		return
	}
	var ee *policy.ExpressionError
	var ce *cel.CompileError
	switch {
	case errors.As(err, &ee) && errors.As(err, &ce) && len(ce.Issues) > 0:
		for _, i := range ce.Issues {
			b.fail(d.ErrorIn(ee.Field, ce.Expr, i.Line, i.Column, fmt.Errorf("%s: %s: %s", d.Name(), ee.Field, i.Message)))
		}
	case errors.As(err, &ee):
		b.fail(d.ErrorAt(ee.Field, fmt.Errorf("%s: %s: %w", d.Name(), ee.Field, ee.Err)))
	default:
		b.fail(d.Errorf("%s: %w", d.Name(), err))
	}
}

// inOrder sorts errors by where they stand, as a reader goes through the files.
func inOrder(errs []error, docs []*manifest.Document) []error {
	rank := map[string]int{}
	for _, d := range docs {
		if _, ok := rank[d.File]; !ok {
			rank[d.File] = len(rank)
		}
	}
	slices.SortStableFunc(errs, func(a, b error) int {
		var x, y *manifest.PositionError
		if !errors.As(a, &x) || !errors.As(b, &y) {
			return 0
		}
		return cmp.Or(cmp.Compare(rank[x.File], rank[y.File]), cmp.Compare(x.Document, y.Document),
			cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column))
	})
	return errs
}
