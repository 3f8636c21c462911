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

// effect is what a reason of a verdict makes of an object: how the policy's outcome differs from
// Kyverno's. It explains a difference in a field that it is about, and a refusal of its own rule.
type effect struct {
	reason string
	does   way
	// at are the fields that come out otherwise, "" for all; without any, all that the rule writes.
	at []string
	// without are fields of which an object that Kyverno refuses lacks one; without any, it need not.
	without []string
	// says is a part of what the policy refuses with.
	says string
	// of says what a request is like; nil is for all.
	of func(*difference) bool
}

// way is how an outcome differs: a set of these.
type way int

const (
	byOrder way = 1 << iota // a list that the rule writes to has another order
	refuses                 // Kyverno refuses the object, and the policy does not
	spoils                  // Kyverno makes an object that a server cannot decode
	denies                  // the policy refuses the object, and Kyverno does not
	writes                  // a field has another value
	undoes                  // Kyverno leaves the object as it was
	idles                   // the policy leaves the object as it was
	apart                   // one of the two leaves the object as it was, if it has no other rule
	nowhere                 // what neither an engine nor an interpreter of rules can show
)

var (
	reorders        = effect{does: byOrder}
	policyIdles     = effect{does: idles}
	writesOtherwise = effect{does: writes}
	kyvernoUndoes   = effect{does: undoes, of: func(d *difference) bool { return d.kyverno.Failed }}
	notShown        = effect{does: nowhere}
	notConverted    = effect{}
	// withoutParameter is for a ConfigMap that is not there.
	withoutParameter = effect{does: denies, says: "params"}
	// refusesImages is for an image that is no reference, and takesUsers for a user with a long name
	// who is no service account.
	refusesImages = effect{does: refuses, of: func(d *difference) bool { return strangeImage(d.object) }}
	takesUsers    = effect{does: writes | refuses | denies, of: func(d *difference) bool {
		return len(d.user) > len(serviceAccounts) && !strings.HasPrefix(d.user, serviceAccounts)
	}}
	// escapesJSON is for <, > and & in JSON.
	escapesJSON = effect{does: writes, of: func(d *difference) bool { return strings.Contains(text(d.kyverno.Object), `\\u00`) }}
)

const serviceAccounts = "system:serviceaccount:"

// refusesWithout is for objects without one of some fields, and writesAt for other values in one.
func refusesWithout(fields ...string) effect { return effect{does: refuses, without: fields} }
func writesAt(p []string) effect             { return effect{does: writes, at: []string{show(p)}} }

// finds is for what a rule reads otherwise, if a field has a text of some kind, or if any has and the
// field is not known: it may write something else, or nothing.
func finds(field string, like func(string) bool) effect {
	return effect{does: writes | refuses | denies, of: func(d *difference) bool { return d.anyText(field, like) }}
}

// decidesBy is finds for a condition: the rule runs on one side only.
func decidesBy(field string, like func(string) bool) effect {
	e := finds(field, like)
	e.does |= apart
	return e
}

// inPod takes away where controllers have what Pods have.
var inPod = strings.NewReplacer("spec.jobTemplate.spec.template.", "", "spec.template.", "")

// Case is an object as it is admitted, the same as a server stores it if nothing changes it, and
// the request that it is in.
type Case struct {
	Object, Unchanged map[string]any
	Operation, User   string
}

// Outcome is what became of an object on one side: the object as a server stores it, or why the
// request is refused. Failed says that Kyverno ignored an error.
type Outcome struct {
	Object  map[string]any
	Refused string
	Failed  bool
}

// difference is a case whose outcomes differ.
type difference struct {
	object, unchanged map[string]any
	operation, user   string
	kyverno, native   Outcome
}

// Reorders reports whether a verdict names the order of a list: by itself, or among other things.
func (r *Result) Reorders() bool {
	return slices.ContainsFunc(r.Rules, func(rule Rule) bool { return rule.Converted() && rule.Reorders })
}

// Ordered returns an object with the lists in the order of their names of which a verdict names the
// order: those that its rule writes to.
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

// Explains returns the reason of a verdict that says how the outcomes for an object differ; "" if
// none does. Several reasons explain a difference together if each field that differs is one's.
// The order of lists is Ordered's matter.
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

// refusedBy reports whether Kyverno refuses a request with a rule, or with what it makes of it for
// controllers. What it says about a MutatingPolicy has no name, nor has a panic.
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

// refusedByAny reports whether Kyverno refuses a request, and not a server what Kyverno makes of it.
func (r *Result) refusedByAny(refused string) bool {
	return slices.ContainsFunc(r.Rules, func(rule Rule) bool { return r.refusedBy(&rule, refused) })
}

// within reports whether a field is one at a place or in it, or holds the place. Controllers have
// what Pods have in their template.
func within(field, at string) bool {
	if at == "" {
		return true
	}
	a, b := plainPath(field), plainPath(at)
	n := min(len(a), len(b))
	return slices.Equal(a[:n], b[:n])
}

// plainPath are the names of a path, without elements of lists and templates.
func plainPath(at string) []string {
	return strings.Split(strings.ReplaceAll(inPod.Replace(at), element, ""), ".")
}

// anyText reports whether a field of the object, as it was or as it became, has a text of some kind;
// "" is for any field.
func (d *difference) anyText(field string, like func(string) bool) bool {
	for _, root := range []string{"params.", "oldObject.", "namespaceObject.", "request."} {
		if strings.HasPrefix(field, root) {
			return true // the object does not have it
		}
	}
	for _, o := range []map[string]any{d.object, d.kyverno.Object, d.native.Object} {
		if textIn(o, "", field, like) {
			return true
		}
	}
	return false
}

// textIn reports whether a value has a text of some kind in a field; at is where the value is.
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

// What texts Kyverno may compare otherwise than as texts.
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

// isRead reports whether Kyverno reads a text with which it compares another.
func isRead(s string) bool { return strings.ContainsAny(s, "*?") || looksOtherwise(s) || isSize(s) }

func isBlank(s string) bool { return s == "" }

func hasOtherSpace(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r != ' ' && unicode.IsSpace(r) })
}

// hasGenerateName holds for objects to be named, and panics where Kyverno does.
func hasGenerateName(d *difference) bool {
	v, ok := dig(d.object, []string{"metadata", "generateName"})
	return ok && v != ""
}

func panics(d *difference) bool { return strings.HasPrefix(d.kyverno.Refused, panicked) }

// panicked begins what a request is refused with if Kyverno panics.
const panicked = "panic: "

// forControllers holds for all kinds but Pods.
func forControllers(d *difference) bool { return d.object["kind"] != "Pod" }

// fewer reports whether a list of the object has no element of a number.
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

// writesOf are the fields that a mutate rule writes, as far as they are written out.
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

// writesInCEL are the fields that a mutation in CEL writes, as far as they are written out; "" stands
// for any.
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

// overlaid are the fields that a strategic merge writes.
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

// pointed are the fields that the paths of a JSON patch lead to.
func pointed(patch string) (out []string) {
	for _, m := range patchPath.FindAllStringSubmatch(patch, -1) {
		out = append(out, pointedAt(m[1]))
	}
	return out
}

// pointedAt is the field that a JSON pointer leads to, as far as it is written out.
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

// lacks reports whether a field is missing or empty somewhere in an object. Of controllers it is
// looked for in their template.
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

// inOrderOfNames returns a value whose lists of objects are in the order of what names them, or else
// of their text: those on the way to some fields. at is where the value is.
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

// named returns what names an element of a list.
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
