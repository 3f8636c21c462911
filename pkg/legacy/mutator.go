package legacy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds returns the kinds in the order in which Gatekeeper runs them.
func Kinds() []Kind { return []Kind{Assign, AssignImage, AssignMetadata, ModifySet} }

// IsMutator reports whether gvk has the group and kind of a mutator. It accepts any version:
// Decode returns an error for versions that Gatekeeper does not serve.
func IsMutator(gvk schema.GroupVersionKind) bool {
	if gvk.Group != Group {
		return false
	}
	switch Kind(gvk.Kind) {
	case Assign, AssignImage, AssignMetadata, ModifySet:
		return true
	}
	return false
}

// served reports whether Gatekeeper serves a kind in a version (Gatekeeper spec
// §1.1).
func served(k Kind, version string) bool {
	switch version {
	case "v1alpha1":
		return true
	case "v1", "v1beta1":
		return k != AssignImage
	}
	return false
}

// Version returns the API version of Mutator.Object for a kind.
func (k Kind) Version() string {
	if k == AssignImage {
		return "v1alpha1"
	}
	return "v1"
}

// Decode decodes a mutator in any of its versions, which all have the same meaning. It does
// what an API server with Gatekeeper's definitions does, as far as that has an effect: it drops
// unknown fields, treats null as absent, and fills in defaults. Then it does Gatekeeper's
// checks, in Gatekeeper's order (Gatekeeper spec §1), and after them those that Gatekeeper does
// only for a request: such a mutator would refuse every request that it matches. It returns the
// first failure as an *Error.
//
// Decode accepts values that only a definition's patterns and enumerations reject, because
// Gatekeeper accepts them in a file; Notes reports them.
func Decode(u *unstructured.Unstructured) (*Mutator, error) {
	gvk := u.GroupVersionKind()
	m := &Mutator{Kind: Kind(gvk.Kind), Name: u.GetName()}
	if err := m.decode(u.Object, gvk); err != nil {
		err.Mutator = m.ID()
		return nil, err
	}
	return m, nil
}

func (m *Mutator) decode(in map[string]any, gvk schema.GroupVersionKind) *Error {
	if !IsMutator(gvk) {
		return refusef("apiVersion", "%s %s is not a mutator", gvk.GroupVersion(), gvk.Kind)
	}
	if !served(m.Kind, gvk.Version) {
		return refusef("apiVersion", "no kind %q is registered for version %q", m.Kind, gvk.GroupVersion())
	}
	r := &reader{}
	raw := m.read(r, in)
	if r.err != nil {
		return r.err
	}
	if err := m.validate(raw); err != nil {
		return err
	}
	return m.refuseEarly(raw)
}

// raw has the fields of a mutator that are decoded and not yet checked.
type raw struct {
	location  string
	tests     []rawTest
	operation string // of a ModifySet
	noValues  bool   // a ModifySet without values.fromList
	value     bool   // assign has a value, which may be null
	metadata  bool   // assign has a fromMetadata
}

type rawTest struct{ subPath, condition string }

// read reads all fields, and makes Object of them.
func (m *Mutator) read(r *reader, in map[string]any) *raw {
	out := map[string]any{"apiVersion": Group + "/" + m.Kind.Version(), "kind": string(m.Kind)}
	top := object{r: r, in: in, out: out}
	if meta, ok := top.object("metadata"); ok {
		meta.str("name")
		meta.strMap("labels")
		meta.strMap("annotations")
		maps.Copy(meta.out, meta.in)
		delete(meta.out, "managedFields")
	}
	checkStatus(top)
	delete(out, "status") // written by Gatekeeper
	spec, _ := top.object("spec")
	raw := &raw{location: spec.str("location")}
	if m.Kind != AssignMetadata {
		m.ApplyTo = readEach(spec, "applyTo", func(o object) ApplyTo {
			return ApplyTo{
				Groups: o.strs("groups"), Versions: o.strs("versions"), Kinds: o.strs("kinds"),
				Operations: o.strs("operations"),
			}
		})
	}
	m.readMatch(spec)
	m.readParameters(spec, raw)
	m.Object = out
	if m.From != nil && m.From.External != nil {
		always := (&unstructured.Unstructured{Object: out}).GetAnnotations()[usernameAnnotation] == "always"
		m.From.External.AlwaysUsername = always && m.From.External.DataSource == "Username"
	}
	return raw
}

// checkStatus checks types only: Gatekeeper rejects a mutator whose status it cannot decode.
func checkStatus(top object) {
	status, _ := top.object("status")
	readEach(status, "byPod", func(pod object) struct{} {
		check[string](pod, "id", "a string")
		check[string](pod, "mutatorUID", "a string")
		pod.strs("operations")
		check[bool](pod, "enforced", "a boolean")
		readEach(pod, "errors", func(e object) struct{} {
			check[string](e, "type", "a string")
			check[string](e, "message", "a string")
			return struct{}{}
		})
		check[int64](pod, "observedGeneration", "an integer")
		return struct{}{}
	})
}

func (m *Mutator) readMatch(spec object) {
	match, ok := spec.object("match")
	if !ok {
		return
	}
	m.Match = Match{
		Kinds: readEach(match, "kinds", func(o object) MatchKinds {
			return MatchKinds{APIGroups: o.strs("apiGroups"), Kinds: o.strs("kinds")}
		}),
		Scope:              match.str("scope"),
		Namespaces:         match.strs("namespaces"),
		ExcludedNamespaces: match.strs("excludedNamespaces"),
		LabelSelector:      readSelector(match, "labelSelector"),
		NamespaceSelector:  readSelector(match, "namespaceSelector"),
		Name:               match.str("name"),
		Source:             match.str("source"),
	}
}

func readSelector(match object, name string) *metav1.LabelSelector {
	o, ok := match.object(name)
	if !ok {
		return nil
	}
	return &metav1.LabelSelector{
		MatchLabels: o.strMap("matchLabels"),
		MatchExpressions: readEach(o, "matchExpressions", func(o object) metav1.LabelSelectorRequirement {
			return metav1.LabelSelectorRequirement{
				Key:      o.str("key"),
				Operator: metav1.LabelSelectorOperator(o.str("operator")),
				Values:   o.strs("values"),
			}
		}),
	}
}

func (m *Mutator) readParameters(spec object, raw *raw) {
	params, ok := spec.object("parameters")
	if m.Kind != AssignMetadata {
		raw.tests = readEach(params, "pathTests", func(o object) rawTest {
			return rawTest{o.str("subPath"), o.str("condition")}
		})
	}
	switch m.Kind {
	case Assign, AssignMetadata:
		m.readSource(params, raw)
	case AssignImage:
		m.Image = &Image{
			Domain: params.str("assignDomain"),
			Path:   params.str("assignPath"),
			Tag:    params.str("assignTag"),
		}
	case ModifySet:
		if ok {
			raw.operation = params.strOr("operation", "merge")
		}
		values, _ := params.object("values")
		list, ok := values.list("fromList")
		if ok {
			values.out["fromList"] = list
		}
		raw.noValues = !ok
		m.Set = &SetValues{Prune: raw.operation == "prune", Values: list}
	}
}

func (m *Mutator) readSource(params object, raw *raw) {
	m.From = &Source{}
	assign, ok := params.object("assign")
	if !ok {
		return
	}
	if v := assign.get("value"); v != nil {
		raw.value = true
		m.From.Value = floats(v)
		assign.out["value"] = m.From.Value
	}
	if o, ok := assign.object("fromMetadata"); ok {
		raw.metadata = true
		m.From.Metadata = o.str("field")
	}
	if o, ok := assign.object("externalData"); ok {
		m.From.External = &External{
			Provider:      o.str("provider"),
			DataSource:    o.strOr("dataSource", "ValueAtLocation"),
			FailurePolicy: o.strOr("failurePolicy", "Fail"),
			Default:       o.str("default"),
		}
	}
}

// floats returns a copy of JSON data in which all numbers are floats, as Gatekeeper reads
// assign.value (Gatekeeper spec §2.4).
func floats(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = floats(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = floats(e)
		}
		return out
	default:
		return v
	}
}

// Error is the reason why a mutator is rejected.
type Error struct {
	Mutator string // "Assign/name"
	Field   string // "spec.location", "spec.parameters.pathTests[0].subPath", …
	Offset  int    // in bytes, within the field's text; -1 if there is no place in it
	// Err has Gatekeeper's text, if Gatekeeper has one. It wraps a *SyntaxError if Offset is
	// not -1.
	Err error
}

// Error returns the mutator, the field, the position in it, and what is wrong.
func (e *Error) Error() string { return e.Mutator + ": " + e.reason() }

// Reason returns the text of err without the name of the mutator.
func Reason(err error) string {
	if e, ok := err.(*Error); ok {
		return e.reason()
	}
	return err.Error()
}

func (e *Error) reason() string {
	s := e.Field + ": "
	if at := e.syntax(); at != nil {
		if at.Line > 1 {
			s += fmt.Sprintf("line %d, ", at.Line)
		}
		s += fmt.Sprintf("column %d: ", at.Column)
	}
	return s + e.Err.Error()
}

// Unwrap returns Err, which has no position.
func (e *Error) Unwrap() error { return e.Err }

// Render returns the error. If a position within a text is known, the text with a caret under
// the position follows, as in SyntaxError.Render.
func (e *Error) Render() string {
	if at := e.syntax(); at != nil {
		return e.Mutator + ": " + e.Field + ": " + at.Render()
	}
	return e.Error()
}

func (e *Error) syntax() *SyntaxError {
	if w, ok := e.Err.(*locationError); ok {
		return w.at
	}
	return nil
}

// locationError is the parser's error within Gatekeeper's text for a location.
type locationError struct {
	text string
	at   *SyntaxError
}

func (e *locationError) Error() string { return e.text + ": " + e.at.Message }

func (e *locationError) Unwrap() error { return e.at }

func refusef(field, format string, args ...any) *Error {
	return &Error{Field: field, Offset: -1, Err: fmt.Errorf(format, args...)}
}

// refuseLocation returns the error for a text that ParsePath rejected.
func refuseLocation(field, text string, err error) *Error {
	at := err.(*SyntaxError)
	return &Error{Field: field, Offset: at.Offset, Err: &locationError{text, at}}
}

// reader keeps the first error about the type of a field.
type reader struct {
	err *Error
	// asked, unless it is nil, collects the objects that were read and the names of the fields
	// that were read, by path.
	asked map[string]*asked
}

type asked struct {
	in    map[string]any
	names []string
}

// object is an object that is read field by field. Every field that is read is copied to out,
// so out has only known fields in the end. The zero object has no fields.
type object struct {
	r       *reader
	path    string
	in, out map[string]any
}

func (o object) at(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// get returns a field.
func (o object) get(name string) any {
	if o.r != nil && o.r.asked != nil && o.in != nil {
		a := o.r.asked[o.path]
		if a == nil {
			a = &asked{in: o.in}
			o.r.asked[o.path] = a
		}
		a.names = append(a.names, name)
	}
	return o.in[name]
}

func (o object) wrong(path, want string, got any) {
	if o.r.err == nil {
		o.r.err = refusef(path, "expected %s, got %s", want, typeName(got))
	}
}

func (o object) str(name string) string { return o.strOr(name, "") }

// strOr reads a field with a default. A default other than "" is written into the
// object.
func (o object) strOr(name, def string) string {
	v := o.get(name)
	if v == nil {
		if def != "" && o.out != nil {
			o.out[name] = def
		}
		return def
	}
	s, ok := v.(string)
	if !ok {
		o.wrong(o.at(name), "a string", v)
		return ""
	}
	o.out[name] = s
	return s
}

// check checks the type of a field and ignores its value.
func check[T any](o object, name, want string) {
	v := o.get(name)
	if _, ok := v.(T); !ok && v != nil {
		o.wrong(o.at(name), want, v)
	}
}

func (o object) list(name string) ([]any, bool) {
	v := o.get(name)
	if v == nil {
		return nil, false
	}
	l, ok := v.([]any)
	if !ok {
		o.wrong(o.at(name), "a list", v)
	}
	return l, ok
}

func (o object) strs(name string) []string {
	l, ok := o.list(name)
	if !ok {
		return nil
	}
	out, given := make([]string, len(l)), make([]any, len(l))
	for i, v := range l {
		out[i] = o.text(fmt.Sprintf("%s[%d]", o.at(name), i), v)
		given[i] = out[i]
	}
	o.out[name] = given
	return out
}

func (o object) strMap(name string) map[string]string {
	in, ok := o.object(name)
	if !ok {
		return nil
	}
	out := make(map[string]string, len(in.in))
	for _, k := range slices.Sorted(maps.Keys(in.in)) {
		out[k] = o.text(in.at(k), in.in[k])
		in.out[k] = out[k]
	}
	return out
}

// text reads a member of a list or map of strings. A null there is the empty
// string, as it is for Gatekeeper.
func (o object) text(path string, v any) string {
	s, ok := v.(string)
	if !ok && v != nil {
		o.wrong(path, "a string", v)
	}
	return s
}

func (o object) object(name string) (object, bool) {
	v := o.get(name)
	if v == nil {
		return object{r: o.r}, false
	}
	return o.child(o.at(name), v, func(out map[string]any) { o.out[name] = out })
}

func (o object) child(path string, v any, put func(map[string]any)) (object, bool) {
	in, ok := v.(map[string]any)
	if !ok {
		o.wrong(path, "an object", v)
		return object{r: o.r}, false
	}
	out := make(map[string]any, len(in))
	put(out)
	return object{r: o.r, path: path, in: in, out: out}, true
}

// readEach reads a list of objects. A null counts as an object without fields.
func readEach[T any](o object, name string, read func(object) T) []T {
	l, ok := o.list(name)
	if !ok {
		return nil
	}
	res, out := make([]T, len(l)), make([]any, len(l))
	for i, v := range l {
		if v == nil {
			v = map[string]any{}
		}
		if c, ok := o.child(fmt.Sprintf("%s[%d]", o.at(name), i), v, func(m map[string]any) { out[i] = m }); ok {
			res[i] = read(c)
		}
	}
	o.out[name] = out
	return res
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int64:
		return "an integer"
	case float64:
		return "a number"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return strings.TrimPrefix(fmt.Sprintf("%T", v), "*")
	}
}
