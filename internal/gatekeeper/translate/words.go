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

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// describe says in a sentence what a mutator does, for a reader who sees the
// policy and not the mutator.
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
	sentences := []string{strings.Join(slices.Concat([]string{s}, testWords(m), matchWords(m)), ", ") + "."}
	return strings.Join(append(sentences, addedWords(m)...), " ")
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
		return "Sets " + leaf(m) + " to " + valueWords(m) + " on " + placeWords(m)
	}
	what, of := element(m.Location, last), within(m.Location[:last-1], m)
	if v, ok := m.From.Value.(map[string]any); ok {
		if contents := fieldsWords(v, m.Location[last].Name); contents != "" {
			what += ", with " + contents + ","
		}
	}
	switch c, _ := m.Test(last); c {
	case legacy.MustExist:
		return "Replaces " + what + " of " + of
	case legacy.MustNotExist:
		return "Adds " + what + " to " + of
	}
	return "Adds " + what + " to " + of + ", or replaces the one that is there"
}

func describeSet(m *legacy.Mutator) string {
	values := distinct(m.Set.Values)
	what := listWords(values, "values")
	if m.Set.Prune {
		return "Removes " + what + " from " + leaf(m) + " of " + placeWords(m)
	}
	missing := "where it is missing"
	if len(values) > 1 {
		missing = "where they are missing"
	}
	return "Adds " + what + " to " + leaf(m) + " of " + placeWords(m) + ", " + missing
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

// leaf names the fields after the last list selector, or the whole location.
func leaf(m *legacy.Mutator) string {
	return fieldWords(m.Location[lastList(m.Location)+1:])
}

// placeWords names the elements and objects.
func placeWords(m *legacy.Mutator) string { return within(m.Location, m) }

func within(path legacy.Path, m *legacy.Mutator) string {
	i := lastList(path)
	if i < 0 {
		return objects(m)
	}
	return element(path, i) + " of " + within(path[:i-1], m)
}

// testWords describe the path tests.
func testWords(m *legacy.Mutator) []string {
	if m.Kind == legacy.AssignMetadata {
		return nil // it only adds, which is said already
	}
	var s []string
	for _, t := range m.Tests {
		node, last := m.Location[t.Depth], t.Depth == len(m.Location)-1
		switch {
		case node.Glob:
		case node.List && t.Condition == legacy.MustExist:
			s = append(s, "if there is one")
		case node.List:
			s = append(s, "unless there is one")
		case t.Condition == legacy.MustExist:
			s = append(s, "where "+fieldText(m, t.Depth, last)+" is set already")
		case t.Condition == legacy.MustNotExist:
			s = append(s, "unless "+fieldText(m, t.Depth, last)+" is set")
		}
	}
	return s
}

func fieldText(m *legacy.Mutator, d int, last bool) string {
	if last {
		return "it"
	}
	return fieldWords(m.Location[lastList(m.Location[:d])+1 : d+1])
}

// addedWords are sentences about elements that the mutator creates.
func addedWords(m *legacy.Mutator) []string {
	var s []string
	for i, node := range m.Location[:len(m.Location)-1] {
		if !node.List || node.Glob || !creates(m, i) {
			continue
		}
		s = append(s, "Where there is no "+strings.TrimPrefix(element(m.Location, i), "the ")+", one is added.")
	}
	return s
}

// matchWords describe the criteria besides kinds.
func matchWords(m *legacy.Mutator) []string {
	var s []string
	switch create, update := runsOn(m); {
	case create && !update:
		s = append(s, "when it is created")
	case update && !create:
		s = append(s, "when it is updated")
	}
	switch p := m.Match.Name; {
	case p == "" || isEverything(p):
	case kindOf(p) == exactly:
		s = append(s, "if its name is "+word(p))
	default:
		s = append(s, "if its name "+nameWords(p))
	}
	if sel := m.Match.LabelSelector; !api.SelectsAll(sel) {
		s = append(s, "if its label "+selectorWords(sel))
	}
	if sel := m.Match.NamespaceSelector; !api.SelectsAll(sel) {
		s = append(s, "in namespaces whose label "+selectorWords(sel))
	}
	if len(m.Match.Namespaces) > 0 {
		s = append(s, "in "+namespaceWords(m.Match.Namespaces, "or"))
	}
	if len(m.Match.ExcludedNamespaces) > 0 {
		s = append(s, "except in "+namespaceWords(m.Match.ExcludedNamespaces, "and"))
	}
	return s
}

// selectorWords go after "label": "app is web and tier is front or back".
func selectorWords(sel *metav1.LabelSelector) string {
	var terms []string
	for _, r := range api.Requirements(sel) {
		var values []string
		for _, v := range r.Values {
			values = append(values, word(v))
		}
		is := map[metav1.LabelSelectorOperator]string{
			metav1.LabelSelectorOpIn:           "is " + enumerate(values, "or"),
			metav1.LabelSelectorOpNotIn:        "is not " + enumerate(values, "or"),
			metav1.LabelSelectorOpExists:       "is there",
			metav1.LabelSelectorOpDoesNotExist: "is not there",
		}
		terms = append(terms, word(r.Key)+" "+is[r.Operator])
	}
	return enumerate(terms, "and")
}

// namespaceWords names namespaces: "the namespaces a and b", "namespaces that begin
// with kube-".
func namespaceWords(patterns []string, and string) string {
	var names, terms []string
	for _, p := range patterns {
		switch {
		case isEverything(p):
			return "any namespace"
		case kindOf(p) == exactly:
			names = append(names, word(p))
		default:
			terms = append(terms, patternWords(p))
		}
	}
	var parts []string
	switch len(names) {
	case 0:
	case 1:
		parts = append(parts, "the namespace "+names[0])
	default:
		parts = append(parts, "the namespaces "+enumerate(names, and))
	}
	if len(terms) > 0 {
		parts = append(parts, "namespaces that "+enumerate(terms, "or"))
	}
	return strings.Join(parts, " "+and+" in ")
}

// patternWords describe several matching names, nameWords one.
func patternWords(p string) string {
	verb := [...]string{prefix: "begin", suffix: "end", infix: "contain"}[kindOf(p)]
	return verb + withWords(p)
}

func nameWords(p string) string {
	verb := [...]string{prefix: "begins", suffix: "ends", infix: "contains"}[kindOf(p)]
	return verb + withWords(p)
}

func withWords(p string) string {
	if kindOf(p) == infix {
		return " " + word(core(p))
	}
	return " with " + word(core(p))
}

// runsOn returns the operations of all entries of applyTo.
func runsOn(m *legacy.Mutator) (create, update bool) {
	for _, t := range Targets(m) {
		create, update = create || t.Create, update || t.Update
	}
	return create, update
}

// objects names the kinds: "a Pod", "every namespaced object".
func objects(m *legacy.Mutator) string {
	kinds := kindNames(m)
	if len(kinds) > 0 && !slices.Contains(kinds, "*") {
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

// kindNames returns the kinds that a mutator applies to, each once. If there
// are none, it returns those that applyTo names.
func kindNames(m *legacy.Mutator) []string {
	var kinds []string
	for _, t := range Targets(m) {
		kinds = append(kinds, t.Kind)
	}
	if len(kinds) == 0 {
		for _, a := range m.ApplyTo {
			kinds = append(kinds, a.Kinds...)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
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

// singular turns the name of a list into a noun: initContainers, "init
// container".
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
	switch {
	case m.From.Metadata == "name":
		return "the object's name"
	case m.From.Metadata == "namespace":
		return "the object's namespace"
	case m.From.External != nil:
		return "what the provider " + word(m.From.External.Provider) + " answers"
	}
	return inWords(m.From.Value)
}

// inWords returns a short value as it is, and says what a longer one has.
func inWords(v any) string {
	if text := scalarWords(v, ""); len(text) <= maxWords {
		return text
	}
	switch v := v.(type) {
	case map[string]any:
		return "a value with " + fieldsWords(v, "")
	case []any:
		return "the list of " + listWords(v, "elements")
	}
	return scalarWords(v, "")
}

// maxWords is the largest number of bytes of a value that a sentence quotes.
const maxWords = 60

// fieldsWords names the fields of an object, except one, with those of their values that are
// short; "" if there are no other fields.
func fieldsWords(v map[string]any, except string) string {
	var parts []string
	for _, k := range fieldOrder(v) {
		if k == except {
			continue
		}
		part := word(k)
		if text := scalarWords(v[k], "x"); text != "x" && len(text) <= maxWords {
			part += " " + text
		}
		parts = append(parts, part)
	}
	return fewWords(parts, "fields")
}

// listWords names the elements of a list that are short or have a name.
func listWords(list []any, noun string) string {
	var parts []string
	for _, v := range list {
		part := scalarWords(v, "")
		if fields, ok := v.(map[string]any); ok && len(part) > maxWords {
			if part = "one with " + fieldsWords(fields, ""); fields["name"] != nil {
				part = scalarWords(fields["name"], "one")
			}
		}
		parts = append(parts, part)
	}
	return fewWords(parts, noun)
}

// fewWords lists the first parts, and counts the others.
func fewWords(parts []string, noun string) string {
	const most = 5
	if more := len(parts) - most; more > 0 {
		parts = append(slices.Clone(parts[:most]), strconv.Itoa(more)+" more "+noun)
	}
	return enumerate(parts, "and")
}

// scalarWords returns v as text. A long string is cut. Another value that is long is replaced by
// long, unless long is "".
func scalarWords(v any, long string) string {
	if s, ok := v.(string); ok {
		if runes := []rune(s); len(runes) > 2*maxWords {
			s = string(runes[:2*maxWords]) + "…"
		}
		return word(s)
	}
	text, err := json.Marshal(v)
	if err != nil || long != "" && len(text) > maxWords {
		return long
	}
	return string(text)
}

var plain = regexp.MustCompile(`^[A-Za-z0-9*_./@-][A-Za-z0-9*_./:@=-]*$`)

// word quotes s unless it reads as one word. The result has no line break, because it goes into
// comments.
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

// wrap breaks lines at spaces, so that none is longer than width where
// possible; indent precedes all lines except the first.
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
