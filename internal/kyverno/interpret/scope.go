package interpret

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	jmespath "github.com/kyverno/go-jmespath"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Bounds of one request, so that no policy takes long or much memory.
const (
	maxQuery  = 16 << 10 // bytes of a JMESPath expression
	maxGrowth = 256      // how many times as long as its input the result of an expression may be
	maxText   = 1 << 20  // bytes of a text with variables filled in, or that a function returns
	maxValues = 8 << 20  // values that are read, copied and compared
	maxSteps  = 20_000   // expressions that are evaluated, and elements that a foreach visits
)

// scope has the names that expressions of a rule can use: the request, elements of a foreach, and
// the variables of contexts. A variable is evaluated when an expression uses it for the first
// time.
type scope struct {
	configMaps map[string]map[string]string // of the request
	namespace  string                       // of the policy
	ctx        context.Context
	data       map[string]any
	saved      []map[string]any
	vars       []*variable
	// loading is set while a variable is evaluated: it can use only variables before it, of its
	// own level or outer ones.
	loading       bool
	level, before int
	steps, values int
	parsed        *expressions
}

// variable is a variable of a context, which load evaluates when it is used.
type variable struct {
	level   int
	mention *regexp.Regexp
	tried   bool
	loaded  bool
	load    func() error
}

// step counts an evaluated expression or a visited element, and ends the interpretation if there
// are too many.
func (s *scope) step() {
	if s.steps++; s.steps > maxSteps {
		unknown("more than %d expressions and elements for one object", maxSteps)
	}
	if err := s.ctx.Err(); err != nil {
		panic(interrupted{err})
	}
}

// spend counts values that are read or copied, and ends the interpretation if there are too many.
func (s *scope) spend(n int) {
	if s.values += n; s.values > maxValues {
		unknown("more than %d values for one object", maxValues)
	}
}

// size returns the number of values in v, including those within objects and lists.
func size(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += size(e)
		}
	case []any:
		for _, e := range v {
			n += size(e)
		}
	}
	return n
}

// save stores the state. restore returns to the last stored state and drops it from the stored
// ones; reset returns to it and keeps it stored.
func (s *scope) save() { s.saved = append(s.saved, state(s.data)) }

// state returns a copy of those parts of the data that a scope changes: the names, and the object
// of the request. The values themselves are shared.
func state(data map[string]any) map[string]any {
	out := maps.Clone(data)
	if request, ok := data["request"].(map[string]any); ok {
		out["request"] = maps.Clone(request)
	}
	return out
}

func (s *scope) restore() {
	s.data = s.saved[len(s.saved)-1]
	s.saved = s.saved[:len(s.saved)-1]
	s.forget(true)
}

func (s *scope) reset() {
	s.data = state(s.saved[len(s.saved)-1])
	s.forget(false)
}

// forget drops the variables of the state that restore or reset leaves. Variables of outer states
// that were evaluated are evaluated again in the present state, and errors of that do not count.
func (s *scope) forget(restoring bool) {
	level := len(s.saved)
	for _, v := range s.vars {
		v.tried = false
	}
	for i := 0; i < len(s.vars); i++ {
		v := s.vars[i]
		drop := v.level > level
		switch {
		case drop:
		case v.loaded:
			if restoring || v.level < level {
				_ = s.loadAt(v, i)
			}
			drop = v.level == level
		default:
			drop = !restoring && v.level == level
		}
		if drop {
			s.vars = slices.Delete(s.vars, i, i+1)
			i--
		}
	}
}

func (s *scope) loadAt(v *variable, i int) error {
	s.loading, s.level, s.before = true, v.level, i
	defer func() { s.loading = false }()
	return v.load()
}

// mentioned evaluates the variables that an expression uses.
func (s *scope) mentioned(query string) error {
	level, before := len(s.saved), len(s.vars)
	if s.loading {
		level, before = s.level, s.before
	}
	for {
		i := slices.IndexFunc(s.vars[:min(before, len(s.vars))], func(v *variable) bool {
			return !v.tried && !v.loaded && v.level <= level && v.mention.MatchString(query)
		})
		if i < 0 {
			return nil
		}
		s.vars[i].tried = true
		if err := s.loadAt(s.vars[i], i); err != nil {
			return err
		}
	}
}

// declare adds the variables of a context.
func (s *scope) declare(entries []policy.Context) error {
	for _, e := range entries {
		switch {
		case e.ConfigMap != nil && s.configMaps == nil:
			unknown("a ConfigMap")
		case e.ConfigMap == nil && e.Variable == nil:
			unknown("a context that is no variable")
		}
		v, err := s.newVariable(e.Name)
		if err != nil {
			return err
		}
		v.load = func() error {
			value, err := s.valueOf(e)
			if err != nil {
				return err
			}
			v.loaded = true
			s.data[e.Name] = value
			return nil
		}
	}
	return nil
}

// valueOf returns the value of an entry of a context.
func (s *scope) valueOf(e policy.Context) (any, error) {
	if e.ConfigMap == nil {
		return s.evaluate(e)
	}
	var parts [2]string
	for i, text := range []string{e.ConfigMap.Namespace, e.ConfigMap.Name} {
		filled, err := s.substitute(text)
		if err != nil {
			return nil, err
		}
		var ok bool
		if parts[i], ok = filled.(string); !ok {
			return nil, fmt.Errorf("the name or the namespace of the ConfigMap %s is no text", e.Name)
		}
	}
	namespace := cmp.Or(parts[0], s.namespace, "default")
	data, ok := s.configMaps[namespace+"/"+parts[1]]
	if !ok {
		return nil, fmt.Errorf("there is no ConfigMap %s/%s", namespace, parts[1])
	}
	values := map[string]any{}
	for k, v := range data {
		values[k] = v
	}
	return map[string]any{"data": values, "metadata": map[string]any{"name": parts[1], "namespace": namespace}}, nil
}

func (s *scope) newVariable(name string) (*variable, error) {
	mention, err := s.parsed.mention(name)
	if err != nil {
		return nil, err
	}
	v := &variable{level: len(s.saved), mention: mention}
	s.vars = append(s.vars, v)
	return v, nil
}

// evaluate returns the value of a variable of a context.
func (s *scope) evaluate(e policy.Context) (any, error) {
	v := e.Variable
	path := ""
	if v.JMESPath != "" {
		text, err := s.substitute(v.JMESPath)
		if err != nil {
			return nil, err
		}
		var ok bool
		if path, ok = text.(string); !ok {
			return nil, fmt.Errorf("the jmesPath of %s is no text", e.Name)
		}
	}
	var fallback any
	if v.Default != nil {
		var err error
		if fallback, err = s.substitute(loose(v.Default)); err != nil {
			return nil, err
		}
	}
	out := fallback
	switch {
	case v.Value != nil:
		value, err := s.substitute(loose(v.Value))
		if err != nil {
			return nil, err
		}
		out = value
		if path != "" {
			found, err := s.search(path, value)
			switch {
			case err == nil:
				out = found
			case fallback == nil:
				return nil, err
			default:
				out = fallback
			}
		}
	case path != "":
		found, err := s.query(path)
		if err != nil && fallback == nil {
			return nil, err
		}
		if err == nil && found != nil {
			out = found
		}
	}
	if out == nil {
		return nil, fmt.Errorf("the variable %s is null", e.Name)
	}
	return floats(out), nil
}

// loose returns a value as Kyverno decodes it from a policy: a number becomes a float; texts,
// lists and objects stay as they are.
func loose(v any) any {
	switch v.(type) {
	case string, []any, map[string]any:
		return v
	}
	return floats(v)
}

// requestFields matches the fields of a request that the interpreter knows.
var requestFields = regexp.MustCompile(`^(object|oldObject|operation|namespace|name|kind|userInfo)\b`)

// query evaluates a JMESPath expression.
func (s *scope) query(text string) (any, error) {
	if err := s.mentioned(text); err != nil {
		return nil, err
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, errors.New("an empty expression")
	}
	return s.search(text, s.data)
}

func (s *scope) search(text string, data any) (found any, err error) {
	s.step()
	if len(text) > maxQuery {
		unknown("a JMESPath expression of %d bytes", len(text))
	}
	defer func() {
		switch x := recover().(type) {
		case nil:
		case *Unknown, interrupted:
			panic(x)
		default:
			// Functions of the JMESPath library panic for some types.
			unknown("a JMESPath expression that panics: %v", x)
		}
	}()
	query, err := s.parsed.query(text)
	if err != nil {
		return nil, err
	}
	if strings.Contains(text, "sort_by") { // sort_by sorts its argument in place
		s.spend(size(data))
		data = copied(data)
	}
	found, err = jmespath.NewInterpreter().Execute(query, data, jmespath.WithFunctionCaller(caller()))
	if err != nil {
		return nil, err
	}
	return s.plain(found), nil
}

// check refuses expressions whose result is not certain, or may be too large.
func check(n jmespath.ASTNode) {
	if growth(n) > maxGrowth {
		unknown("a JMESPath expression that can make more than %d times of what it is given", maxGrowth)
	}
	each(n, func(n jmespath.ASTNode) {
		switch n.NodeType {
		case jmespath.ASTValueProjection:
			unknown("the values of an object in any order (*)")
		case jmespath.ASTFunctionExpression:
			if name := fmt.Sprint(n.Value); undecided[name] {
				unknown("the function %s", name)
			}
		case jmespath.ASTSubexpression:
			left, right := n.Children[0], n.Children[1]
			if left.NodeType == jmespath.ASTField && left.Value == "request" &&
				(right.NodeType != jmespath.ASTField || !requestFields.MatchString(fmt.Sprint(right.Value))) {
				unknown("request.%v", right.Value)
			}
		}
	})
}

func each(n jmespath.ASTNode, f func(jmespath.ASTNode)) {
	f(n)
	for _, c := range n.Children {
		each(c, f)
	}
}

// growth bounds how often an expression may repeat its input in its result. For nested
// expressions the numbers multiply, for parallel ones they add up.
func growth(n jmespath.ASTNode) int {
	g := 1
	switch n.NodeType {
	case jmespath.ASTMultiSelectList, jmespath.ASTMultiSelectHash, jmespath.ASTFunctionExpression:
		g = 0
		for _, c := range n.Children {
			g += growth(c)
		}
	default:
		for _, c := range n.Children {
			g *= growth(c)
		}
	}
	return min(max(g, 1), maxGrowth+1)
}

// plain returns the result of an expression as JSON values.
func (s *scope) plain(v any) any {
	s.spend(1)
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			s.plain(e)
		}
		return v
	case []any:
		for i, e := range v {
			if maps, ok := e.([]map[string]any); ok {
				v = slices.Clone(v)
				v[i] = s.plain(maps)
				continue
			}
			s.plain(e)
		}
		return v
	case []map[string]any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = s.plain(e)
		}
		return out
	case []string:
		return anyList(v)
	case nil, string, bool, float64, int64, int:
		return v
	}
	unknown("a value of the type %T", v)
	return nil
}

// copied returns a copy of JSON values, in which lists and objects can be changed.
func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = copied(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = copied(e)
		}
		return out
	}
	return v
}

// floats returns JSON values as encoding/json decodes them, with float64 for all numbers. If v
// has no other numbers, it is returned itself.
func floats(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := v
		for k, e := range v {
			f := floats(e)
			if tree.Same(f, e) {
				continue
			}
			if tree.Same(out, v) {
				out = maps.Clone(v)
			}
			out[k] = f
		}
		return out
	case []any:
		out := v
		for i, e := range v {
			f := floats(e)
			if tree.Same(f, e) {
				continue
			}
			if tree.Same(out, v) {
				out = slices.Clone(v)
			}
			out[i] = f
		}
		return out
	case int64:
		return float64(v)
	case int:
		return float64(v)
	}
	return v
}

// text returns a value as it appears within a longer text.
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	data, err := json.Marshal(v)
	if err != nil {
		unknown("a value that is no JSON")
	}
	return string(data)
}

// keysOf returns the fields of an object in their order.
func keysOf(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
