package translate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// This file writes policies for mutators with external data. Such a policy calls no provider: it
// looks keys up in a ConfigMap that has the values which a provider returned earlier.
//
// The keys are parts of objects, such as images, and most are not valid keys of a ConfigMap. So
// each character that such a key cannot have is escaped, as "_" and its code: nginx:1.25 becomes
// nginx_3a1.25. No two keys get the same name, and a key with a character that the policy does
// not escape has no name in a ConfigMap, so an object cannot be written so that it finds the
// value of another key.

// Recorded are the values that providers have for keys: provider, key, value. Keys
// for which a provider has an error are not there.
type Recorded map[string]map[string]string

const (
	// maxParams is how much an API server lets a ConfigMap hold, in bytes.
	maxParams = 1 << 20
	// maxStored bounds the size of a ConfigMap in etcd, which takes requests of 1.5 MiB;
	// managedFields repeats each key. keyOverhead is added for each key, besides its characters
	// and its value.
	maxStored   = 1_500_000
	keyOverhead = 20
	// maxEscapes bounds the characters that a policy escapes: each costs one replace call per
	// lookup.
	maxEscapes = 24
	// blank is the name of the key "".
	blank = "_"
)

// recording is what a policy knows about the values of a provider.
type recording struct {
	external *legacy.External
	escapes  [][2]string
	// blank: there is a value for the key "", which is that of a missing field.
	blank bool
}

// recordedOf returns the recording and the ConfigMap's data for a mutator with
// external data, or why there can be none.
func (n *translation) recordedOf(m *legacy.Mutator) (*recording, map[string]any, string) {
	e := m.From.External
	values := n.Recorded[e.Provider]
	if len(values) == 0 {
		return nil, nil, "asks the provider " + e.Provider + ", of which the snapshot has no value"
	}
	_, hasBlank := values[""]
	r := &recording{external: e, escapes: escapesFor(values), blank: hasBlank}
	if len(r.escapes) > maxEscapes {
		return nil, nil, fmt.Sprintf("the keys for the provider %s have %d different characters that keys of a ConfigMap cannot have; a policy escapes %d", e.Provider, len(r.escapes), maxEscapes)
	}
	data, size, stored := map[string]any{}, 0, 0
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name, value := r.nameOf(key), values[key]
		if errs := validation.IsConfigMapKey(name); len(errs) > 0 {
			return nil, nil, fmt.Sprintf("the key %s for the provider %s cannot be in a ConfigMap: %s", shorten(key), e.Provider, errs[0])
		}
		if !utf8.ValidString(value) {
			return nil, nil, fmt.Sprintf("the value of the provider %s for the key %s is not UTF-8", e.Provider, shorten(key))
		}
		data[name] = value
		size += len(name) + len(value)
		stored += 2*len(name) + len(value) + keyOverhead
	}
	if size > maxParams {
		return nil, nil, fmt.Sprintf("the values of the provider %s take %d bytes, and a ConfigMap holds %d", e.Provider, size, maxParams)
	}
	if stored > maxStored {
		return nil, nil, fmt.Sprintf("the %d keys for the provider %s take %d bytes with managedFields, and an API server stores %d", len(data), e.Provider, stored, maxStored)
	}
	return r, data, ""
}

func shorten(key string) string {
	if runes := []rune(key); len(runes) > 60 {
		key = string(runes[:60]) + "…"
	}
	return quote(key)
}

// escapesFor returns the characters to escape, and what becomes of each. The
// underscore is first. Those of images are always among them, so that one can be
// added to the ConfigMap.
func escapesFor(values map[string]string) [][2]string {
	chars := map[rune]bool{'/': true, ':': true, '@': true}
	for key := range values {
		for _, c := range key {
			if len(validation.IsConfigMapKey("x"+string(c))) > 0 {
				chars[c] = true
			}
		}
		if key == "." || strings.HasPrefix(key, "..") {
			chars['.'] = true // not valid keys of a ConfigMap
		}
	}
	out := [][2]string{{"_", "_5f"}}
	for _, c := range slices.Sorted(maps.Keys(chars)) {
		code := fmt.Sprintf("_%02x", c)
		if c >= utf8.RuneSelf {
			code = fmt.Sprintf("_x%x_", c)
		}
		out = append(out, [2]string{string(c), code})
	}
	return out
}

// nameOf returns the name of a key in the ConfigMap.
func (r *recording) nameOf(key string) string {
	if key == "" {
		return blank
	}
	for _, e := range r.escapes {
		key = strings.ReplaceAll(key, e[0], e[1])
	}
	return key
}

// lookupKey is the expression of a key whose recorded value is looked up.
type lookupKey struct {
	expr
	// everywhere: the expression uses no loop variable, so it can be a variable of the policy.
	everywhere bool
}

// name is nameOf for an expression. Nil stands for the key "".
func (r *recording) name(key *lookupKey) expr {
	if key == nil {
		return constant(blank)
	}
	name := key.expr
	for _, e := range r.escapes {
		name = call(name, "replace", constant(e[0]), constant(e[1]))
	}
	if r.blank {
		return cond(equal(key.expr, constant("")), constant(blank), name)
	}
	return name
}

var recordedData = field(ident("params"), "data")

// answer returns the recorded value for a key; a nil key stands for "". If failurePolicy is Fail,
// the expression assumes that there is a value, which must has tested.
func (w *walk) answer(key *lookupKey) expr {
	r := w.recorded
	name := w.recordedName(key)
	if r.external.FailurePolicy == "Fail" {
		value := item(recordedData, name)
		value.Type = "dyn"
		return value
	}
	fallback := constant("")
	switch {
	case r.external.FailurePolicy == "UseDefault":
		fallback = constant(r.external.Default)
	case r.external.FailurePolicy == "Ignore" && key != nil:
		fallback = key.expr
	}
	found := celgen.OptionalItem(recordedData, ident(name.Within(celgen.BindOr)))
	value := call(found, "orValue", fallback)
	value.Type = "dyn"
	return value
}

// recordedName returns the name of a key in the ConfigMap, or a variable that holds it.
func (w *walk) recordedName(key *lookupKey) expr {
	name := w.recorded.name(key)
	if key == nil || !key.everywhere {
		return name
	}
	name.Type = "string"
	return w.repeats.say("key", name)
}

// must guards c, which writes the value for a key. If failurePolicy is Fail and no value is
// recorded, the program refuses the object. It does so by removing a path below apiVersion:
// apiVersion is a string, so the path never exists.
func (w *walk) must(key *lookupKey, c choice) choice {
	r := w.recorded
	if r == nil || r.external.FailurePolicy != "Fail" || c.isNone() {
		return c
	}
	p := pointer{}.key("apiVersion").key("provider " + r.external.Provider + ": no value is recorded for the key ")
	if key != nil {
		p = pointer{parts: []expr{constant(p.tail), key.expr}}
	} else {
		p.tail += `""`
	}
	return decide(tested(binary("in", w.recordedName(key), recordedData)), c, operations(operation("remove", p)))
}

// missingKey returns the key that is looked up for a missing field; nil stands for "".
func (w *walk) missingKey() *lookupKey {
	if w.m.From.External.DataSource != "Username" {
		return nil
	}
	return &lookupKey{field(field(ident("request"), "userInfo"), "username"), true}
}

// created guards an operation that creates the field, see must.
func (w *walk) created(c choice) choice {
	if w.recorded == nil {
		return c
	}
	return w.must(w.missingKey(), c)
}

// recordedNotes returns notes on what a policy with recorded values relies on.
func (n *translation) recordedNotes(m *legacy.Mutator) []Note {
	e := m.From.External
	values := n.Recorded[e.Provider]
	other := map[string]string{"Fail": "refuses the request", "Ignore": "stays", "UseDefault": "becomes " + word(e.Default)}[e.FailurePolicy]
	if other == "" {
		other = "becomes empty"
	}
	keys := "1 key"
	if len(values) != 1 {
		keys = strconv.Itoa(len(values)) + " keys"
	}
	notes := []Note{{"", "asks nobody: a ConfigMap has the values of " + keys + ", any other key " + other +
		"; apply the policy and delete the mutator in one step"}}
	if m.Kind == legacy.AssignMetadata || e.AlwaysUsername {
		return notes
	}
	only, _ := m.Test(len(m.Location) - 1)
	if _, update := runsOn(m); update && only != legacy.MustNotExist {
		for _, v := range values {
			if _, ok := values[v]; !ok {
				return append(notes, Note{"", "an update looks up what is there, as in Gatekeeper, and not all values are recorded as keys"})
			}
		}
	}
	return notes
}

// keepRecordedAlone gives no policy to mutators with external data whose order with others
// matters: Gatekeeper fills in external values after all other mutators have run.
func (n *translation) keepRecordedAlone() {
	for _, m := range n.movable() {
		if !m.Asks() {
			continue
		}
		for _, other := range n.movable() {
			if other != m && !legacy.Commute(m, other) {
				n.fates[m.ID()] = engineOnly("", "its order with "+other.ID()+" matters, and its value comes after all others have run, which no policy can say")
				break
			}
		}
	}
}

// fromRecorded adds the ConfigMap to a policy that is complete otherwise.
func (d *policyDraft) fromRecorded(m *legacy.Mutator) {
	_, data, _ := d.recordedOf(m)
	d.inline()
	d.spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	d.binding.ParamRef = &admissionregistrationv1.ParamRef{Name: d.unit.Name, Namespace: d.paramsNamespace(), ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": data}}
	labels, annotations := origin(d.unit.Mutators)
	u.SetNamespace(d.paramsNamespace())
	u.SetName(d.unit.Name)
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	d.unit.Params = u
}

func (n *translation) paramsNamespace() string {
	if n.ParamsNamespace == "" {
		return "kube-system"
	}
	return n.ParamsNamespace
}
