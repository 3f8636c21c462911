package interpret

import (
	"regexp"

	jmespath "github.com/kyverno/go-jmespath"
)

// maxKept bounds the cached expressions. Expressions can contain texts of objects, so there can
// be more of them than a policy has.
const maxKept = 1000

// expressions caches the parsed expressions of a policy by their text.
type expressions struct {
	queries  map[string]jmespath.ASTNode
	mentions map[string]*regexp.Regexp
}

func newExpressions() *expressions {
	return &expressions{queries: map[string]jmespath.ASTNode{}, mentions: map[string]*regexp.Regexp{}}
}

// query returns a parsed expression that check accepts.
func (e *expressions) query(text string) (jmespath.ASTNode, error) {
	return kept(e.queries, text, func() (jmespath.ASTNode, error) {
		query, err := jmespath.NewParser().Parse(text)
		if err == nil {
			check(query)
		}
		return query, err
	})
}

// mention returns a pattern for expressions that use a variable.
func (e *expressions) mention(name string) (*regexp.Regexp, error) {
	return kept(e.mentions, name, func() (*regexp.Regexp, error) {
		return regexp.Compile(`(?:\A|\z|\s|[^.0-9A-Za-z])` + name + `\b`)
	})
}

// kept returns the cached value for a text, or the result of f, which it caches.
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
