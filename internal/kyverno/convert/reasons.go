package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// effect is what a reason of a verdict makes of an object: how the policy's outcome differs from
// Kyverno's.
type effect struct {
	kind effectKind
	at   string // the field that it is about, as show writes it; "" for any
}

type effectKind int

const (
	byOrder   effectKind = iota // a list has another order
	refuses                     // Kyverno refuses an object, without a field if there is one, and the policy does not
	denies                      // the policy refuses an object, and Kyverno does not
	applies                     // the rule runs on one side only
	writes                      // it writes another value
	badImage                    // Kyverno refuses an image that is no reference
	byUser                      // another user is taken for a service account
	escapes                     // it writes <, > or & otherwise in JSON
	nowhere                     // what neither an engine nor an interpreter of rules can show
	otherwise                   // any of that
)

var (
	reorders        = effect{byOrder, ""}
	kyvernoRefuses  = effect{refuses, ""}
	policyRefuses   = effect{denies, ""}
	runsOtherwise   = effect{applies, ""}
	writesOtherwise = effect{writes, ""}
	anything        = effect{otherwise, ""}
	refusesImages   = effect{badImage, ""}
	takesUsers      = effect{byUser, ""}
	escapesJSON     = effect{escapes, ""}
	notShown        = effect{nowhere, ""}
)

// refusesWithout is for objects without a field, and writesAt for other values below one.
func refusesWithout(p []string) effect { return effect{refuses, show(p)} }
func writesAt(p []string) effect       { return effect{writes, show(p)} }

// inPod takes away where controllers have what Pods have.
var inPod = strings.NewReplacer("spec.jobTemplate.spec.template.", "", "spec.template.", "")

// Case is an object as it is admitted, the same as a server stores it if nothing changes it, and
// who writes it.
type Case struct {
	Object, Unchanged map[string]any
	User              string
}

// Outcome is what became of an object on one side: the object as a server stores it, or why the
// request is refused.
type Outcome struct {
	Object  map[string]any
	Refused string
}

// Reorders reports whether a verdict names the order of a list: by itself, or among other things.
func (r *Result) Reorders() bool {
	return slices.ContainsFunc(r.Rules, func(rule Rule) bool { return rule.Converted() && rule.Reorders })
}

// Explains returns the reason of a verdict that says how the outcomes for an object differ; "" if
// none does. Several reasons explain a difference together if each field that differs is one's.
// The order of lists is Reorders' matter.
func (r *Result) Explains(c Case, kyverno, native Outcome) string {
	object := c.Object
	anyWay := func(e effect) bool {
		return e.kind == otherwise || e.kind == byUser && !strings.HasPrefix(c.User, "system:serviceaccount:")
	}
	var effects []effect
	var texts []string
	converted := 0
	for _, rule := range r.Rules {
		if !rule.Converted() {
			continue
		}
		converted++
		for i, e := range rule.effects[:min(len(rule.effects), len(rule.Reasons))] {
			effects, texts = append(effects, e), append(texts, rule.Reasons[i])
		}
	}
	first := func(holds func(effect) bool) string {
		if i := slices.IndexFunc(effects, holds); i >= 0 {
			return texts[i]
		}
		return ""
	}
	switch {
	case kyverno.Refused != "" && native.Refused != "":
		return ""
	case kyverno.Refused != "":
		return first(func(e effect) bool {
			return e.kind == refuses && lacks(object, e.at) || e.kind == badImage && strangeImage(object) || e.kind == applies || anyWay(e)
		})
	case native.Refused != "":
		return first(func(e effect) bool { return e.kind == denies || e.kind == applies || anyWay(e) })
	}
	a, b := any(kyverno.Object), any(native.Object)
	if r.Reorders() {
		a, b = inOrderOfText(a), inOrderOfText(b)
	}
	runsOnce := converted > 1 || reflect.DeepEqual(kyverno.Object, c.Unchanged) || reflect.DeepEqual(native.Object, c.Unchanged)
	if why := first(func(e effect) bool { return anyWay(e) || e.kind == applies && runsOnce }); why != "" {
		return why
	}
	why := ""
	for _, field := range differing(a, b, "") {
		field = inPod.Replace(field)
		of := first(func(e effect) bool {
			return e.kind == escapes && strings.Contains(text(kyverno.Object), `\\u00`) || e.kind == writes && within(field, inPod.Replace(e.at))
		})
		if of == "" {
			return ""
		}
		why = cmp.Or(why, of)
	}
	return why
}

// within reports whether a field is one at a place or in it, or holds the place.
func within(field, at string) bool {
	return at == "" || field == at || strings.HasPrefix(field, at+".") || strings.HasPrefix(field, at+"[") || strings.HasPrefix(at, field)
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

// inOrderOfText returns a value whose lists of objects are in the order of their text.
func inOrderOfText(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = inOrderOfText(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = inOrderOfText(e)
		}
		if len(out) > 0 {
			if _, ok := out[0].(map[string]any); ok {
				slices.SortStableFunc(out, func(a, b any) int { return cmp.Compare(text(a), text(b)) })
			}
		}
		return out
	}
	return v
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
