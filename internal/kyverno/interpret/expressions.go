package interpret

import (
	"regexp"

	jmespath "github.com/kyverno/go-jmespath"
)

// maxKept is how many expressions are kept. Texts of objects can be parts of expressions, so that
// there can be more than a policy has.
const maxKept = 1000

// expressions are those of a policy that are parsed, by their text.
type expressions struct {
	queries  map[string]jmespath.ASTNode
	mentions map[string]*regexp.Regexp
}

func newExpressions() *expressions {
	return &expressions{queries: map[string]jmespath.ASTNode{}, mentions: map[string]*regexp.Regexp{}}
}

// query returns an expression that check lets pass.
func (e *expressions) query(text string) (jmespath.ASTNode, error) {
	return kept(e.queries, text, func() (jmespath.ASTNode, error) {
		query, err := jmespath.NewParser().Parse(text)
		if err == nil {
			check(query)
		}
		return query, err
	})
}

// mention returns what matches expressions that mention a variable.
func (e *expressions) mention(name string) (*regexp.Regexp, error) {
	return kept(e.mentions, name, func() (*regexp.Regexp, error) {
		return regexp.Compile(`(?:\A|\z|\s|[^.0-9A-Za-z])` + name + `\b`)
	})
}

// kept returns what is in all by a text, or else what f makes of it.
func kept[T any](all map[string]T, text string, f func() (T, error)) (T, error) {
	found, ok := all[text]
	if ok {
		return found, nil
	}
	made, err := f()
	if err == nil && len(all) < maxKept {
		all[text] = made
	}
	return made, err
}
