package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

// condition is a named condition of a rule.
type condition struct {
	name string
	expr expr
}

var (
	object  = atom("object", "map")
	request = atom("request", "")
)

// filters returns the filters of a match block, and whether all of them must hold.
func filters(m *policy.Match) (list []policy.Filter, every bool) {
	switch {
	case len(m.Any) > 0:
		return m.Any, false
	case len(m.All) > 0:
		return m.All, true
	}
	return []policy.Filter{m.Filter}, true
}

// appliesTo reports whether a filter's kinds have a target.
func appliesTo(f policy.Filter, t target) bool {
	return len(f.Resources.Kinds) == 0 || slices.ContainsFunc(f.Resources.Kinds, func(k string) bool {
		group, version, kind, sub := parseKind(k)
		return wildcard(group, t.parent.Group) && wildcard(version, t.parent.Version) && wildcard(kind, t.parent.Kind) && wildcard(sub, t.subresource)
	})
}

// isEmpty reports whether a filter says nothing.
func isEmpty(f policy.Filter) bool {
	r := f.Resources
	return f.Users.Empty() && len(r.Kinds) == 0 && r.Name == "" && len(r.Names) == 0 && len(r.Namespaces) == 0 &&
		len(r.Annotations) == 0 && r.Selector == nil && r.NamespaceSelector == nil && len(r.Operations) == 0
}

// matcher translates the match blocks of one rule for the targets of one group.
type matcher struct {
	shape      *shape
	targets    []target
	namespaced bool
	operations []string // of the group
}

// rule returns the conditions of a rule besides its kinds, and a namespace selector if the
// policy's match constraints can contain it.
func (m *matcher) rule(r *policy.Rule) (conds []condition, selector *metav1.LabelSelector) {
	list, every := filters(&r.Match)
	var alternatives []expr
	var own [][]condition
	for _, f := range list {
		if !appliesTo(f, m.targets[0]) {
			if every {
				return []condition{{"never", no}}, nil
			}
			continue
		}
		if isEmpty(f) {
			refuse("an empty filter matches nothing")
		}
		own = append(own, m.filter(f, false))
	}
	applying := slices.DeleteFunc(slices.Clone(list), func(f policy.Filter) bool { return !appliesTo(f, m.targets[0]) })
	switch {
	case len(own) == 1 || every:
		for i, conditions := range own {
			for _, c := range conditions {
				if s := applying[i].Resources.NamespaceSelector; c.name == "namespace-labels" && len(own) == 1 && m.namespaced && !strings.ContainsAny(fmt.Sprint(s.MatchLabels), "*?") {
					selector = s
					continue
				}
				conds = append(conds, c)
			}
		}
	default:
		for _, conditions := range own {
			alternatives = append(alternatives, all(exprsOf(conditions)...))
		}
		conds = []condition{{"match", anyOf(alternatives...)}}
	}
	if r.Exclude != nil {
		conds = append(conds, m.exclude(r.Exclude)...)
	}
	return conds, selector
}

func exprsOf(conds []condition) []expr {
	out := make([]expr, len(conds))
	for i, c := range conds {
		out[i] = c.expr
	}
	return out
}

func (m *matcher) exclude(x *policy.Match) []condition {
	list, every := filters(x)
	var excluded []expr
	for _, f := range list {
		if isEmpty(f) {
			continue
		}
		c := no
		if appliesTo(f, m.targets[0]) {
			c = all(exprsOf(m.filter(f, true))...)
		}
		excluded = append(excluded, c)
	}
	if len(excluded) == 0 {
		return nil
	}
	c := anyOf(excluded...)
	if every {
		c = all(excluded...)
	}
	return []condition{{"not-excluded", not(c)}}
}

// filter returns the conditions of a filter besides its kinds.
func (m *matcher) filter(f policy.Filter, excluding bool) (conds []condition) {
	add := func(name string, e expr) {
		if e.Text != yes.Text {
			conds = append(conds, condition{name, e})
		}
	}
	r := f.Resources
	if len(r.Operations) > 0 {
		add("operation", m.operation(r.Operations))
	}
	names := r.Names
	if r.Name != "" {
		names = append([]string{r.Name}, names...)
	}
	if r.Name != "" && len(r.Names) > 0 {
		refuse("name and names of one filter")
	}
	if len(names) > 0 {
		add("name", oneOf(m.name(), names))
	}
	if len(r.Namespaces) > 0 {
		add("namespace", oneOf(m.namespace(), r.Namespaces))
	}
	for _, k := range sortedKeys(r.Annotations) {
		if strings.ContainsAny(k, "*?") {
			add("annotation", labelLike(m.shape.or(path{root: object, steps: []string{"metadata", "annotations"}}, atom("{}", "map")), k, r.Annotations[k]))
			continue
		}
		add("annotation", m.text(path{root: object, steps: []string{"metadata", "annotations", k}}, r.Annotations[k]))
	}
	if r.Selector != nil {
		add("labels", selects(r.Selector, func(k string) path { return path{root: object, steps: []string{"metadata", "labels", k}} }, m.shape))
	}
	if r.NamespaceSelector != nil {
		if !m.namespaced {
			refuse("a namespaceSelector for a kind without namespaces")
		}
		labels := func(k string) path {
			return path{root: atom("namespaceObject", ""), prefix: []string{"namespace"}, steps: []string{"metadata", "labels", k}}
		}
		add("namespace-labels", selects(r.NamespaceSelector, labels, m.shape))
	}
	if len(f.Roles) > 0 || len(f.ClusterRoles) > 0 {
		needs("match groups or users instead (subjects)", "roles and clusterRoles: Kyverno looks up the user's bindings, which no policy can")
	}
	if len(f.Subjects) > 0 {
		var parts []expr
		for _, s := range f.Subjects {
			user := member(member(request, "userInfo", false), "username", false)
			switch s.Kind {
			case "Group":
				groups := member(member(request, "userInfo", false), "groups", false)
				if strings.ContainsAny(s.Name, "*?") {
					parts = append(parts, call(groups, "exists", "bool", atom("g", ""), glob(atom("g", "string"), s.Name)))
				} else {
					parts = append(parts, in(str(s.Name), groups))
				}
			case "ServiceAccount":
				parts = append(parts, oneOf(user, []string{"system:serviceaccount:" + s.Namespace + ":" + s.Name}))
			case "User":
				parts = append(parts, oneOf(user, []string{s.Name}))
			default:
				refuse("a subject of the kind %s", s.Kind)
			}
		}
		add("user", anyOf(parts...))
	}
	return conds
}

func (m *matcher) operation(ops []string) expr {
	var wanted []string
	for _, o := range m.operations {
		if slices.Contains(ops, o) {
			wanted = append(wanted, o)
		}
	}
	switch len(wanted) {
	case len(m.operations):
		return yes
	case 0:
		return no
	case 1:
		return equal(atom("request.operation", "string"), str(wanted[0]))
	}
	return in(atom("request.operation", "string"), strs(wanted))
}

// name returns the object's name as Kyverno compares it: generateName for an object that has no
// name yet.
func (m *matcher) name() expr {
	e := member(member(object, "metadata", false), "name", true)
	e = call(e, "or", "", member(member(object, "metadata", false), "generateName", true))
	return call(e, "orValue", "string", str(""))
}

func (m *matcher) namespace() expr {
	if slices.ContainsFunc(m.targets, target.every) {
		return atom("request.namespace", "string") // for a Namespace, its own name
	}
	for _, t := range m.targets {
		if t.gvk.Kind == "Namespace" && t.gvk.Group == "" {
			if len(m.targets) > 1 {
				refuse("namespaces of a filter with Namespace and other kinds")
			}
			return m.name()
		}
	}
	if m.namespaced {
		return atom("request.namespace", "string")
	}
	return call(member(member(object, "metadata", false), "namespace", true), "orValue", "string", str(""))
}

// oneOf returns the condition that a string equals one of the values, which may contain
// wildcards.
func oneOf(e expr, values []string) expr {
	var plain []string
	var parts []expr
	for _, v := range values {
		if strings.ContainsAny(v, "*?") {
			parts = append(parts, glob(e, v))
		} else {
			plain = append(plain, v)
		}
	}
	switch len(plain) {
	case 0:
	case 1:
		parts = append([]expr{equal(e, str(plain[0]))}, parts...)
	default:
		parts = append([]expr{in(e, strs(plain))}, parts...)
	}
	return anyOf(parts...)
}

// glob returns the condition that a string matches a pattern with wildcards. ?* stands for any
// text that is not empty.
func glob(e expr, pattern string) expr {
	switch pattern {
	case "*":
		return yes
	case "?*":
		return not(equal(e, str("")))
	}
	if strings.Contains(pattern, "?") {
		return call(e, "matches", "bool", str(regexOf(pattern)))
	}
	parts := strings.Split(pattern, "*")
	if len(parts) == 2 && (parts[0] == "" || parts[1] == "") {
		if parts[1] == "" {
			return call(e, "startsWith", "bool", str(parts[0]))
		}
		return call(e, "endsWith", "bool", str(parts[1]))
	}
	if len(parts) == 3 && parts[0] == "" && parts[2] == "" && parts[1] != "" {
		return call(e, "contains", "bool", str(parts[1]))
	}
	return call(e, "matches", "bool", str(regexOf(pattern)))
}

// regexOf returns the regular expression of a pattern with * and ?.
func regexOf(pattern string) string {
	pattern = oneOrMore.ReplaceAllStringFunc(pattern, func(s string) string { return strings.Repeat("?", strings.Count(s, "?")) + "*" })
	var b strings.Builder
	b.WriteString("(?s)^")
	for i, c := range pattern {
		switch {
		case c == '*' && i > 0 && pattern[i-1] == '?':
			b.WriteString("+") // at least one character
		case c == '*':
			b.WriteString(".*")
		case c == '?':
			b.WriteString(".")
		case strings.ContainsRune(`\.+()|[]{}^$`, c):
			b.WriteString(`\` + string(c))
		default:
			b.WriteRune(c)
		}
	}
	return b.String() + "$"
}

// oneOrMore finds adjacent wildcards.
var oneOrMore = regexp.MustCompile(`[*?]*\*[*?]*`)

// labelLike returns the condition that a label or annotation exists whose name and value match
// patterns.
func labelLike(all expr, name, value string) expr {
	k := atom("k", "string")
	is := celgen.All(glob(k, name), oneOf(atom(all.Within(celgen.BindMember)+"[k]", "string"), []string{value}))
	return call(all, "exists", "bool", k, is)
}

// text returns the condition that a string of the object matches a value, which may contain
// wildcards.
func (m *matcher) text(p path, value string) expr {
	if strings.ContainsAny(value, "*?") {
		if value == "*" {
			return typedBool(m.shape.has(p))
		}
		return glob(m.shape.or(p, str("")), value)
	}
	if value == "" {
		e, optional := m.shape.read(p)
		if optional {
			return equal(e, atom(`optional.of("")`, ""))
		}
		return equal(e, str(""))
	}
	return equal(m.shape.or(p, str("")), str(value))
}

// selects translates a label selector.
func selects(s *metav1.LabelSelector, label func(string) path, sh *shape) expr {
	var parts []expr
	value := func(k string) expr {
		e := label(k)
		return call(member(member(member(e.root, "metadata", false), "labels", true), k, true), "orValue", "string", str(""))
	}
	exists := func(k string) expr {
		e := label(k)
		return call(member(member(member(e.root, "metadata", false), "labels", true), k, true), "hasValue", "bool")
	}
	for _, k := range sortedKeys(s.MatchLabels) {
		v := s.MatchLabels[k]
		if strings.ContainsAny(k, "*?") {
			e := label(k)
			all := call(member(member(e.root, "metadata", false), "labels", true), "orValue", "map", atom("{}", "map"))
			parts = append(parts, labelLike(all, k, v))
			continue
		}
		if strings.ContainsAny(v, "*?") {
			is := glob(value(k), v)
			if strings.Trim(v, "*") == "" {
				is = exists(k)
			}
			parts = append(parts, is)
			continue
		}
		parts = append(parts, equal(value(k), str(v)))
		if v == "" {
			parts[len(parts)-1] = all(exists(k), parts[len(parts)-1])
		}
	}
	for _, r := range s.MatchExpressions {
		none := slices.Contains(r.Values, "")
		switch r.Operator {
		case metav1.LabelSelectorOpExists:
			parts = append(parts, exists(r.Key))
		case metav1.LabelSelectorOpDoesNotExist:
			parts = append(parts, not(exists(r.Key)))
		case metav1.LabelSelectorOpIn:
			c := oneOf(value(r.Key), r.Values)
			if none {
				c = all(exists(r.Key), c)
			}
			parts = append(parts, c)
		case metav1.LabelSelectorOpNotIn:
			c := not(oneOf(value(r.Key), r.Values))
			if none {
				c = anyOf(not(exists(r.Key)), c)
			}
			parts = append(parts, c)
		default:
			refuse("the operator %s in a label selector", r.Operator)
		}
	}
	return all(parts...)
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
