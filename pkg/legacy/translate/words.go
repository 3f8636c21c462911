package translate

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// describe says in a sentence what a mutator does, for somebody who has the
// policy before their eyes and has never seen the mutator.
func describe(m *legacy.Mutator) string {
	var s string
	switch m.Kind {
	case legacy.AssignMetadata:
		s = describeMetadata(m)
	case legacy.AssignImage:
		s = "Sets " + imageWords(m) + " on " + placeWords(m)
	case legacy.ModifySet:
		s = describeSet(m)
	default:
		s = describeAssign(m)
	}
	return strings.Join(append([]string{s}, matchWords(m)...), ", ") + "."
}

func describeMetadata(m *legacy.Mutator) string {
	kind := "label"
	if m.Location[1].Name == "annotations" {
		kind = "annotation"
	}
	key := word(m.Location[2].Name)
	if v, ok := m.From.Value.(string); ok {
		key += "=" + word(v)
	} else {
		key += ", set to " + valueWords(m) + ","
	}
	return fmt.Sprintf("Adds the %s %s to %s that has no such %s", kind, key, objects(m), kind)
}

func describeAssign(m *legacy.Mutator) string {
	last := len(m.Location) - 1
	if !m.Location[last].List {
		return "Sets " + leaf(m) + " to " + valueWords(m) + " on " + placeWords(m) + testWords(m)
	}
	what, of := element(m.Location, last), within(m.Location[:last-1], m)
	switch c, _ := m.Test(last); c {
	case legacy.MustExist:
		return "Replaces " + what + " of " + of + ", if there is one"
	case legacy.MustNotExist:
		return "Adds " + what + " to " + of + ", unless there is one"
	}
	return "Adds " + what + " to " + of + ", in place of one that is there"
}

func describeSet(m *legacy.Mutator) string {
	values := make([]string, len(m.Set.Values))
	for i, v := range m.Set.Values {
		values[i] = scalarWords(v, "a value")
	}
	what := enumerate(values, "and")
	if len(values) > 5 {
		what = strconv.Itoa(len(values)) + " values"
	}
	if m.Set.Prune {
		return "Removes " + what + " from " + leaf(m) + " of " + placeWords(m) + testWords(m)
	}
	missing := "where it is missing"
	if len(values) > 1 {
		missing = "where they are missing"
	}
	return "Adds " + what + " to " + leaf(m) + " of " + placeWords(m) + ", " + missing + testWords(m)
}

func imageWords(m *legacy.Mutator) string {
	image := *m.Image
	var parts []string
	add := func(name, value string) {
		if value == "" {
			return
		}
		of := " of " + leaf(m)
		if len(parts) > 0 {
			name, of = strings.Replace(name, "the", "its", 1), ""
		}
		parts = append(parts, name+of+" to "+word(value))
	}
	add("the registry", image.Domain)
	add("the path", image.Path)
	if digest, ok := strings.CutPrefix(image.Tag, "@"); ok {
		add("the digest", digest)
	} else {
		add("the tag", strings.TrimPrefix(image.Tag, ":"))
	}
	return enumerate(parts, "and")
}

// leaf names the fields behind the last list selector, or all of the location.
func leaf(m *legacy.Mutator) string {
	return fieldWords(m.Location[lastList(m.Location)+1:])
}

// placeWords says which elements of which objects are meant.
func placeWords(m *legacy.Mutator) string {
	i := lastList(m.Location)
	if i < 0 {
		return objects(m)
	}
	return element(m.Location, i) + " of " + within(m.Location[:i-1], m) + elementTest(m, i)
}

func within(path legacy.Path, m *legacy.Mutator) string {
	i := lastList(path)
	if i < 0 {
		return objects(m)
	}
	return element(path, i) + " of " + within(path[:i-1], m) + elementTest(m, i)
}

// elementTest says what becomes of a list that has no such element.
func elementTest(m *legacy.Mutator, i int) string {
	if m.Location[i].Glob {
		return ""
	}
	if c, ok := m.Test(i); ok && c == legacy.MustExist {
		return ", if there is one"
	} else if ok {
		return ", if it is new"
	}
	if m.Set != nil && m.Set.Prune {
		return ""
	}
	for _, t := range m.Tests {
		if t.Depth > i && t.Condition == legacy.MustExist {
			return ""
		}
	}
	return ", which is added if there is none"
}

// testWords is about the path tests of fields.
func testWords(m *legacy.Mutator) string {
	var s string
	for _, t := range m.Tests {
		node := m.Location[t.Depth]
		if node.List {
			continue
		}
		what := "it"
		if t.Depth < len(m.Location)-1 {
			what = fieldWords(m.Location[lastList(m.Location[:t.Depth])+1 : t.Depth+1])
		}
		switch t.Condition {
		case legacy.MustExist:
			s += ", where " + what + " is set already"
		case legacy.MustNotExist:
			s += ", unless " + what + " is set"
		}
	}
	return s
}

// matchWords are what the mutator asks for beyond kinds.
func matchWords(m *legacy.Mutator) []string {
	var s []string
	switch create, update := runsOn(m); {
	case !update:
		s = append(s, "when it is created")
	case !create:
		s = append(s, "when it is updated")
	}
	if m.Match.Name != "" {
		s = append(s, "if its name is "+word(m.Match.Name))
	}
	if sel := m.Match.LabelSelector; !empty(sel) {
		s = append(s, "if its labels match "+metav1.FormatLabelSelector(sel))
	}
	if len(m.Match.Namespaces) > 0 {
		s = append(s, "in "+namespaceWords(m.Match.Namespaces, "or"))
	}
	if len(m.Match.ExcludedNamespaces) > 0 {
		s = append(s, "except in "+namespaceWords(m.Match.ExcludedNamespaces, "and"))
	}
	if sel := m.Match.NamespaceSelector; !empty(sel) {
		s = append(s, "in namespaces whose labels match "+metav1.FormatLabelSelector(sel))
	}
	return s
}

func empty(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

func namespaceWords(names []string, and string) string {
	if len(names) == 1 {
		return "the namespace " + word(names[0])
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = word(name)
	}
	return "the namespaces " + enumerate(quoted, and)
}

// runsOn are the operations that some entry of applyTo has.
func runsOn(m *legacy.Mutator) (create, update bool) {
	for _, t := range Targets(m) {
		create, update = create || t.Create, update || t.Update
	}
	return create, update
}

// objects names the kinds: "a Pod", "every namespaced object".
func objects(m *legacy.Mutator) string {
	var kinds []string
	for _, t := range Targets(m) {
		if t.Kind == "*" {
			kinds = nil
			break
		}
		if !slices.Contains(kinds, t.Kind) {
			kinds = append(kinds, t.Kind)
		}
	}
	if len(kinds) > 0 {
		return article(kinds[0]) + " " + enumerate(kinds, "or")
	}
	switch m.Match.Scope {
	case "Namespaced":
		return "every namespaced object"
	case "Cluster":
		return "every object without a namespace"
	}
	return "every object"
}

func article(noun string) string {
	if strings.ContainsRune("AEIOU", unicode.ToUpper(rune(noun[0]))) {
		return "an"
	}
	return "a"
}

// element names what a list selector selects: "every container", "the container
// foo", "the port whose containerPort is 80".
func element(path legacy.Path, i int) string {
	node, noun := path[i], singular(path[i-1].Name)
	switch {
	case node.Glob:
		return "every " + noun
	case node.Name == "name":
		return "the " + noun + " " + scalarWords(node.Value, "")
	}
	return "the " + noun + " whose " + word(node.Name) + " is " + scalarWords(node.Value, "")
}

func lastList(path legacy.Path) int {
	for i, node := range slices.Backward(path) {
		if node.List {
			return i
		}
	}
	return -1
}

func fieldWords(path legacy.Path) string {
	return path.String()
}

// singular makes a noun of the name of a list: initContainers, "init container".
func singular(list string) string {
	noun := list
	switch {
	case list == "env":
		noun = "environment variable"
	case strings.HasSuffix(list, "ies"):
		noun = strings.TrimSuffix(list, "ies") + "y"
	case strings.HasSuffix(list, "sses"), strings.HasSuffix(list, "xes"):
		noun = strings.TrimSuffix(list, "es")
	case strings.HasSuffix(list, "s") && !strings.HasSuffix(list, "ss") && len(list) > 1:
		noun = strings.TrimSuffix(list, "s")
	default:
		return "element of " + word(list)
	}
	if !plain.MatchString(noun) && noun != "environment variable" {
		return "element of " + word(list)
	}
	var b strings.Builder
	for i, r := range noun {
		if i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(rune(noun[i-1])) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func valueWords(m *legacy.Mutator) string {
	switch m.From.Metadata {
	case "name":
		return "the object's name"
	case "namespace":
		return "the object's namespace"
	}
	if _, ok := m.From.Value.([]any); ok {
		return scalarWords(m.From.Value, "the list below")
	}
	return scalarWords(m.From.Value, "the value below")
}

// scalarWords writes a short value and refers to a long one.
func scalarWords(v any, long string) string {
	if s, ok := v.(string); ok {
		return word(s)
	}
	text, err := json.Marshal(v)
	if err != nil || long != "" && len(text) > 60 {
		return long
	}
	return string(text)
}

var plain = regexp.MustCompile(`^[A-Za-z0-9*_./@-][A-Za-z0-9*_./:@=-]*$`)

// word quotes a string if it would not be read as one word. It never has a line
// break, because it goes into comments.
func word(s string) string {
	if plain.MatchString(s) && s != "true" && s != "false" && s != "null" && !numeric(s) {
		return s
	}
	return strconv.Quote(s)
}

func numeric(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// enumerate joins with commas and, before the last, a word.
func enumerate(parts []string, and string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ", ") + " " + and + " " + parts[last]
}

// wrap breaks lines at spaces, so that none is longer than width where that is
// possible; indent goes before all lines but the first.
func wrap(s string, width int, indent string) string {
	var b strings.Builder
	col := 0
	for i, w := range strings.Fields(s) {
		n := len([]rune(w))
		switch {
		case i == 0:
		case col+1+n > width:
			b.WriteString("\n" + indent)
			col = len(indent)
		default:
			b.WriteByte(' ')
			col++
		}
		b.WriteString(w)
		col += n
	}
	return b.String()
}
