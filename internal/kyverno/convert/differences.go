package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/pkg/cel/layout"
)

// effect describes a difference between the policy's outcome and Kyverno's that a reason of a
// verdict announces. Explains uses it to find the reason for a difference that was observed.
type effect struct {
	reason string
	does   way
	// at are the fields that may differ; "" stands for all fields. If at is empty, these are the
	// fields that the rule writes.
	at []string
	// without are fields, of which one has to be missing for Kyverno to refuse the object. If
	// without is empty, Kyverno may refuse any object.
	without []string
	// says is a part of the text with which the policy refuses the object.
	says string
	// of reports whether the effect may occur in this case; nil means that it always may.
	of func(*difference) bool
}

// way is a set of ways in which two outcomes differ.
type way int

const (
	byOrder way = 1 << iota // a list that the rule writes has another order
	refuses                 // Kyverno refuses the object, and the policy does not
	spoils                  // Kyverno returns an object that a server cannot decode
	denies                  // the policy refuses the object, and Kyverno does not
	writes                  // a field has another value
	undoes                  // Kyverno leaves the object unchanged
	idles                   // the policy leaves the object unchanged
	apart                   // one of the two leaves the object unchanged, unless another rule changes it
	nowhere                 // an effect that neither an engine nor an interpreter of rules can show
)

var (
	reorders        = effect{does: byOrder}
	policyIdles     = effect{does: idles}
	writesOtherwise = effect{does: writes}
	kyvernoUndoes   = effect{does: undoes, of: func(d *difference) bool { return d.kyverno.Failed }}
	notShown        = effect{does: nowhere}
	notConverted    = effect{}
	// withoutParameter: the ConfigMap is missing.
	withoutParameter = effect{does: denies, says: "params"}
	// refusesImages: an image is not a valid reference. takesUsers: the user has a long name and
	// is no service account.
	refusesImages = effect{does: refuses, of: func(d *difference) bool { return strangeImage(d.object) }}
	takesUsers    = effect{does: writes | refuses | denies, of: func(d *difference) bool {
		return len(d.user) > len(serviceAccounts) && !strings.HasPrefix(d.user, serviceAccounts)
	}}
	// escapesJSON: a text in JSON contains <, > or &.
	escapesJSON = effect{does: writes, of: func(d *difference) bool { return strings.Contains(text(d.kyverno.Object), `\\u00`) }}
)

const serviceAccounts = "system:serviceaccount:"

// refusesWithout: Kyverno refuses objects that lack one of the fields. writesAt: the value of one
// field differs.
func refusesWithout(fields ...string) effect { return effect{does: refuses, without: fields} }
func writesAt(p []string) effect             { return effect{does: writes, at: []string{show(p)}} }

// finds is the effect of a rule that interprets the text of a field differently from Kyverno, if
// like holds for that text: the rule may write something else, or nothing. If field is "", the
// text may be in any field.
func finds(field string, like func(string) bool) effect {
	return effect{does: writes | refuses | denies, of: func(d *difference) bool { return d.anyText(field, like) }}
}

// decidesBy is finds for a field that a condition reads: then the rule runs on one side only.
func decidesBy(field string, like func(string) bool) effect {
	e := finds(field, like)
	e.does |= apart
	return e
}

// inPod removes the path of the Pod template from a path in a controller.
var inPod = strings.NewReplacer("spec.jobTemplate.spec.template.", "", "spec.template.", "")

// Case is a request: the object as it is admitted, the same object as an API server stores it if
// no policy changes it, the operation and the user.
type Case struct {
	Object, Unchanged map[string]any
	Operation, User   string
}

// Outcome is the result on one side: the object as a server stores it, or the text of the
// refusal. Failed: Kyverno ignored an error.
type Outcome struct {
	Object  map[string]any
	Refused string
	Failed  bool
}

// difference is a Case with two outcomes that differ.
type difference struct {
	object, unchanged map[string]any
	operation, user   string
	kyverno, native   Outcome
}

// Reorders reports whether one of the reasons announces another order of a list.
func (r *Result) Reorders() bool {
	return slices.ContainsFunc(r.Rules, func(rule Rule) bool { return rule.Converted() && rule.Reorders })
}

// Ordered returns an object in which the lists whose order may differ are sorted by the names of
// their elements.
func (r *Result) Ordered(object map[string]any) map[string]any {
	var at []string
	for _, rule := range r.Rules {
		if rule.Converted() && rule.Reorders {
			at = append(at, rule.writes...)
		}
	}
	out, _ := inOrderOfNames(object, "", at).(map[string]any)
	return out
}

// Explains returns the reason that announces the difference between two outcomes for a case, or
// "" if the reasons do not explain it. If several fields differ, each has to be explained by a
// reason. Differences in the order of lists do not count if a verdict announces them, see
// Ordered.
func (r *Result) Explains(c Case, kyverno, native Outcome) string {
	d := &difference{c.Object, c.Unchanged, c.Operation, c.User, kyverno, native}
	converted := 0
	for _, rule := range r.Rules {
		if rule.Converted() {
			converted++
		}
	}
	first := func(holds func(*Rule, effect) bool) string {
		for i := range r.Rules {
			rule := &r.Rules[i]
			if !rule.Converted() {
				continue
			}
			for _, e := range rule.effects {
				if (e.of == nil || e.of(d)) && holds(rule, e) {
					return e.reason
				}
			}
		}
		return ""
	}
	switch {
	case kyverno.Refused != "" && native.Refused != "":
		return ""
	case kyverno.Refused != "":
		return first(func(rule *Rule, e effect) bool {
			return (e.does&refuses != 0 && r.refusedBy(rule, kyverno.Refused) || e.does&spoils != 0 && !r.refusedByAny(kyverno.Refused)) &&
				(len(e.without) == 0 || slices.ContainsFunc(e.without, func(f string) bool { return lacks(d.object, f) }))
		})
	case native.Refused != "":
		return first(func(_ *Rule, e effect) bool { return e.does&denies != 0 && strings.Contains(native.Refused, e.says) })
	}
	stays := func(o Outcome) bool { return reflect.DeepEqual(o.Object, d.unchanged) }
	if why := first(func(_ *Rule, e effect) bool {
		return e.does&undoes != 0 && stays(kyverno) || e.does&idles != 0 && stays(native)
	}); why != "" {
		return why
	}
	why := ""
	for _, field := range differing(r.Ordered(kyverno.Object), r.Ordered(native.Object), "") {
		of := first(func(rule *Rule, e effect) bool {
			if e.does&writes == 0 || e.does&apart != 0 && converted == 1 && !stays(kyverno) && !stays(native) {
				return false
			}
			at := e.at
			if len(at) == 0 {
				at = rule.writes
			}
			return slices.ContainsFunc(at, func(at string) bool { return within(field, at) })
		})
		if of == "" {
			return ""
		}
		why = cmp.Or(why, of)
	}
	return why
}

// refusedBy reports whether Kyverno's refusal names the rule, or a rule that it generated from it
// for controllers. The refusal of a MutatingPolicy and a panic name no rule, and count for every
// rule.
func (r *Result) refusedBy(rule *Rule, refused string) bool {
	if r.Policy.CEL != nil || strings.HasPrefix(refused, panicked) {
		return true
	}
	for _, prefix := range []string{"", "autogen-", "autogen-cronjob-"} {
		name := prefix + rule.Name
		name = name[:min(len(name), 63)] + ": "
		if strings.HasPrefix(refused, name) || strings.Contains(refused, "; "+name) {
			return true
		}
	}
	return false
}

// refusedByAny reports whether Kyverno refused the request itself, rather than a server the
// object that Kyverno returned.
func (r *Result) refusedByAny(refused string) bool {
	return slices.ContainsFunc(r.Rules, func(rule Rule) bool { return r.refusedBy(&rule, refused) })
}

// within reports whether one of the paths field and at contains the other. Paths in a Pod
// template count like paths in a Pod.
func within(field, at string) bool {
	if at == "" {
		return true
	}
	a, b := plainPath(field), plainPath(at)
	n := min(len(a), len(b))
	return slices.Equal(a[:n], b[:n])
}

// plainPath returns the names in a path, without list elements and without the path of a Pod
// template.
func plainPath(at string) []string {
	return strings.Split(strings.ReplaceAll(inPod.Replace(at), element, ""), ".")
}

// anyText reports whether like holds for a text in a field of the object, before or after. A
// field "" stands for any field.
func (d *difference) anyText(field string, like func(string) bool) bool {
	for _, root := range []string{"params.", "oldObject.", "namespaceObject.", "request."} {
		if strings.HasPrefix(field, root) {
			return true // read from elsewhere, so it may have any text
		}
	}
	for _, o := range []map[string]any{d.object, d.kyverno.Object, d.native.Object} {
		if textIn(o, "", field, like) {
			return true
		}
	}
	return false
}

// textIn reports whether like holds for a text of a field in v; at is the path of v.
func textIn(v any, at, field string, like func(string) bool) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if textIn(e, strings.TrimPrefix(at+"."+k, "."), field, like) {
				return true
			}
		}
		return len(v) == 0 && field != "" && slices.Equal(plainPath(at), plainPath(field)) && like("")
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return textIn(e, at, field, like) })
	case nil:
	default:
		return (field == "" || slices.Equal(plainPath(at), plainPath(field))) && like(fmt.Sprint(v))
	}
	return false
}

// Predicates for texts that Kyverno may not compare as plain texts.
func isSize(s string) bool {
	_, notQuantity := resource.ParseQuantity(s)
	return notQuantity == nil || isDuration(s)
}

func isDuration(s string) bool {
	_, err := time.ParseDuration(s)
	return err == nil
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// isRead reports whether Kyverno interprets a text when it compares it, instead of taking it as
// it is.
func isRead(s string) bool { return strings.ContainsAny(s, "*?") || looksOtherwise(s) || isSize(s) }

func isBlank(s string) bool { return s == "" }

func hasOtherSpace(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r != ' ' && unicode.IsSpace(r) })
}

// hasGenerateName holds for objects whose name the server generates, and panics for requests in
// which Kyverno panicked.
func hasGenerateName(d *difference) bool {
	v, ok := dig(d.object, []string{"metadata", "generateName"})
	return ok && v != ""
}

func panics(d *difference) bool { return strings.HasPrefix(d.kyverno.Refused, panicked) }

// panicked is the beginning of the refusal after a panic of Kyverno.
const panicked = "panic: "

// forControllers holds for all kinds but Pods.
func forControllers(d *difference) bool { return d.object["kind"] != "Pod" }

// fewer reports whether a list of the object has no element at index number.
func fewer(d *difference, at []string, number int) bool {
	for _, template := range [][]string{nil, {"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}} {
		within, _ := dig(d.object, template)
		v, _ := dig(within, at)
		if l, ok := v.([]any); ok && len(l) > number {
			return false
		}
	}
	return true
}

// hasOtherLetters reports whether a text has letters other than those of ASCII.
func hasOtherLetters(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

// writesOf returns the fields that a mutate rule writes, as far as their names are constant.
func writesOf(m *policy.Mutate) (out []string) {
	out = append(overlaid(m.PatchStrategicMerge, ""), pointed(m.PatchesJSON6902)...)
	var each func([]policy.ForEach)
	each = func(all []policy.ForEach) {
		for _, f := range all {
			out = append(append(out, overlaid(f.PatchStrategicMerge, "")...), pointed(f.PatchesJSON6902)...)
			each(f.ForEach)
		}
	}
	each(m.ForEach)
	return out
}

// writesInCEL returns the fields that a mutation in CEL writes, as far as their names are
// constant; "" stands for any field.
func writesInCEL(m admissionregistrationv1.Mutation) (out []string) {
	var types []string // those of objects, which a field that holds one does not write as a whole
	expression := ""
	switch {
	case m.JSONPatch != nil:
		expression = m.JSONPatch.Expression
	case m.ApplyConfiguration != nil:
		expression = m.ApplyConfiguration.Expression
	}
	all, err := layout.Tokens(expression)
	if err != nil {
		return []string{""}
	}
	at := func(i int) string {
		if i < 0 || i >= len(all) {
			return ""
		}
		return all[i].Text
	}
	const other = "\x00"
	var open []string // the type of each object that is open, or other
	for i := 0; i < len(all); i++ {
		switch text := all[i].Text; {
		case text == "Object" && at(i-1) != ".":
			path := ""
			for at(i+1) == "." {
				path = strings.TrimPrefix(path+"."+strings.Trim(at(i+2), "`"), ".")
				i += 2
			}
			if at(i+1) == "{" {
				i++
				open, types = append(open, path), append(types, path)
				if at(i+1) == "}" {
					out = append(out, path+".")
				}
			}
		case text == "(" || text == "[" || text == "{":
			open = append(open, other)
		case text == ")" || text == "]" || text == "}":
			open = open[:max(len(open)-1, 0)]
		case all[i].Kind != layout.Identifier || at(i+1) != ":" || at(i-1) == "?" && at(i-2) != "{" && at(i-2) != ",":
		case m.JSONPatch == nil && len(open) > 0 && open[len(open)-1] != other:
			out = append(out, strings.TrimPrefix(open[len(open)-1]+"."+strings.Trim(text, "`"), "."))
		case m.JSONPatch != nil && text == "path" && all[i+2].Kind == layout.String && strings.HasPrefix(at(i + 2)[1:], "/"):
			out = append(out, pointedAt(strings.Trim(at(i+2), `"'`)))
		case m.JSONPatch != nil && text == "path":
			out = append(out, "")
		}
	}
	out = slices.DeleteFunc(out, func(f string) bool {
		return m.JSONPatch == nil && slices.ContainsFunc(types, func(t string) bool { return t == f || strings.HasPrefix(t, f+".") })
	})
	for i := range out {
		out[i] = strings.TrimSuffix(out[i], ".") // of an object without fields
	}
	return out
}

// overlaid returns the fields that a strategic merge patch writes.
func overlaid(v any, at string) (out []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, e := range v {
			kind, name := anchor(key)
			switch {
			case kind == "()" || kind == "<":
			case hasVariable(name):
				out = append(out, at)
			default:
				out = append(out, overlaid(e, strings.TrimPrefix(at+"."+name, "."))...)
			}
		}
		if len(v) > 0 {
			return out
		}
	case []any:
		for _, e := range v {
			if _, ok := e.(map[string]any); !ok {
				return []string{at}
			}
			out = append(out, overlaid(e, at)...)
		}
		if len(v) > 0 {
			return out
		}
	}
	if at == "" {
		return nil
	}
	return []string{at}
}

var patchPath = regexp.MustCompile(`\bpath"?\s*:\s*["']?(/(?:\{\{[^}]*\}\}|[^\s"',}])*)`)

// pointed returns the fields to which the paths of a JSON patch point.
func pointed(patch string) (out []string) {
	for _, m := range patchPath.FindAllStringSubmatch(patch, -1) {
		out = append(out, pointedAt(m[1]))
	}
	return out
}

// pointedAt returns the field to which a JSON pointer leads, as far as its steps are constant.
func pointedAt(pointer string) string {
	var names []string
	for _, step := range tokens(pointer) {
		if indexVariable.MatchString(step) {
			continue
		}
		if hasVariable(step) || step == "" {
			break
		}
		if _, err := strconv.Atoi(step); err != nil && step != "-" {
			names = append(names, step)
		}
	}
	return strings.Join(names, ".")
}

// strangeImage reports whether an object has an image that Kyverno may not take for a reference.
func strangeImage(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if s, ok := e.(string); ok && k == "image" && !plainImage.MatchString(s) || strangeImage(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, strangeImage)
	}
	return false
}

var plainImage = regexp.MustCompile(`^[a-z0-9]+([a-z0-9._/@:-]*[a-z0-9])?$`)

// lacks reports whether a field is missing or empty somewhere in an object. In controllers, lacks
// looks in the Pod template.
func lacks(object map[string]any, at string) bool {
	if at == "" {
		return true
	}
	for _, template := range [][]string{{"spec", "jobTemplate", "spec", "template"}, {"spec", "template"}} {
		if inner, ok := dig(object, template); ok && !strings.HasPrefix(at, "spec.template") && !strings.HasPrefix(at, "spec.jobTemplate") {
			if m, ok := inner.(map[string]any); ok && lacksAt(m, strings.Split(at, ".")) {
				return true
			}
			break
		}
	}
	return lacksAt(object, strings.Split(at, "."))
}

func lacksAt(v any, steps []string) bool {
	if len(steps) == 0 {
		return false
	}
	m, _ := v.(map[string]any)
	name, inList := strings.CutSuffix(steps[0], element)
	next, ok := m[name]
	if !ok || next == nil {
		return true
	}
	list, isList := next.([]any)
	if isList && len(list) == 0 {
		return true
	}
	if inList {
		return slices.ContainsFunc(list, func(e any) bool { return lacksAt(e, steps[1:]) })
	}
	return lacksAt(next, steps[1:])
}

// differing returns the fields in which two values differ.
func differing(a, b any, at string) (out []string) {
	x, ok := a.(map[string]any)
	y, also := b.(map[string]any)
	if ok && also {
		keys := slices.Sorted(maps.Keys(x))
		for k := range y {
			if _, both := x[k]; !both {
				keys = append(keys, k)
			}
		}
		for _, k := range keys {
			out = append(out, differing(x[k], y[k], strings.TrimPrefix(at+"."+k, "."))...)
		}
		return out
	}
	l, ok := a.([]any)
	m, also := b.([]any)
	if ok && also && len(l) == len(m) {
		for i := range l {
			out = append(out, differing(l[i], m[i], at+element)...)
		}
		return out
	}
	if reflect.DeepEqual(a, b) || empty(a) && empty(b) {
		return nil
	}
	return []string{at}
}

func empty(v any) bool {
	l, ok := v.([]any)
	return v == nil || ok && len(l) == 0
}

// inOrderOfNames returns v with lists of objects sorted by name, or by their text if they have no
// names. It sorts only lists on the way to one of the fields. at is the path of v.
func inOrderOfNames(v any, at string, fields []string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = inOrderOfNames(e, strings.TrimPrefix(at+"."+k, "."), fields)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = inOrderOfNames(e, at, fields)
		}
		if len(out) > 0 && slices.ContainsFunc(fields, func(f string) bool { return within(at, f) }) {
			if _, ok := out[0].(map[string]any); ok {
				slices.SortStableFunc(out, func(a, b any) int { return cmp.Or(cmp.Compare(named(a), named(b)), cmp.Compare(text(a), text(b))) })
			}
		}
		return out
	}
	return v
}

// named returns the text by which an element of a list is sorted: its name or key.
func named(v any) string {
	m, _ := v.(map[string]any)
	for _, key := range []string{"mountPath", "devicePath", "name", "ip", "topologyKey", "containerPort"} {
		if m[key] != nil {
			return fmt.Sprint(m[key])
		}
	}
	return ""
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
