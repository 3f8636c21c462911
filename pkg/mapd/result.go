package mapd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/apiserver/defaulting"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/explain"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// A Result is the outcome of the policies for an object.
type Result struct {
	Request *Request
	// Decision is about the object as a server stores it: with defaults, and without the fields
	// that a server drops.
	Decision *engine.Decision

	policies *Policies
	// dropped are the fields that policies changed and whose old values a server keeps without
	// an error or a warning: all but status in a request for the subresource status, and status
	// in one for the object itself.
	dropped []string
	after   map[string]any // see Object
}

// Eval runs the policies on the object of a document. A denial is a Result; an
// error says that the object cannot be evaluated.
func (p *Policies) Eval(ctx context.Context, d *Document, opts RequestOptions) (*Result, error) {
	r, err := p.Request(d, opts)
	if err != nil {
		return nil, err
	}
	return p.Admit(ctx, r), nil
}

// Admit runs the policies on a request.
func (p *Policies) Admit(ctx context.Context, r *Request) *Result {
	return p.Result(r, p.engine.Admit(ctx, r.Admission))
}

// Result returns the Result of a decision that another program made, such as a webhook.
func (p *Policies) Result(r *Request, d *engine.Decision) *Result {
	p.exempt.look(p.loaded.Native, r.Admission, d)
	d, dropped := p.stored(r, d)
	return &Result{Request: r, Decision: d, policies: p, dropped: dropped}
}

// Denied reports whether a policy refused the object.
func (r *Result) Denied() bool { return r.Decision.Status != nil }

// Changed reports whether policies changed the object.
func (r *Result) Changed() bool { return r.Decision.Changed && !r.Denied() }

// Object returns the object as it was given with the changes of the policies, but without the
// defaults that a server fills in. If a change depends on those defaults, Object returns the
// object with them. A server stores the same for either form. Object is nil for a request
// without an object. Callers must not modify it.
func (r *Result) Object() map[string]any {
	if !r.Changed() || r.Request.object == nil {
		return r.Request.object
	}
	if r.after == nil {
		r.after = r.Request.replay(r.Decision.Object)
	}
	return r.after
}

// replay applies the change from the request's object to decided to the object as it was given.
// If the change does not apply there, it returns decided.
func (r *Request) replay(decided *unstructured.Unstructured) map[string]any {
	return manifest.ReplayProven(r.object, r.Admission.Object.Object, decided.Object, func(obj map[string]any) (map[string]any, error) {
		// The object as it was given may leave its namespace to the request.
		if m, _ := obj["metadata"].(map[string]any); m["namespace"] == nil && decided.GetNamespace() != "" {
			obj = withNamespace(&unstructured.Unstructured{Object: obj}, decided.GetNamespace()).Object
		}
		return r.decode(obj)
	})
}

// Text returns the document with the changes of the policies. A changed document keeps its
// comments and the order of its keys; an unchanged one is returned byte by byte. Text is nil
// for a request without an object.
func (r *Result) Text() ([]byte, error) {
	var text []byte
	switch {
	case r.Request.object == nil:
		return nil, nil
	case r.Request.review, r.Request.generated:
		text = manifest.Encode(r.Object())
	case !r.Changed():
		return r.Request.doc.Text(), nil
	default:
		text = manifest.Rewrite(r.Request.doc.doc, r.Object())
	}
	if text == nil {
		return nil, errors.New("the result is no JSON data")
	}
	return text, nil
}

// An Edit is the change that a Result makes to its document.
type Edit struct{ edit manifest.Edit }

// Edit returns the change of the document, or false if the policies did not change it or if the
// object is not the document itself.
func (r *Result) Edit() (Edit, bool) {
	if !r.Changed() || !r.Request.Written() {
		return Edit{}, false
	}
	return Edit{manifest.Edit{Document: r.Request.doc.doc, After: r.Object()}}, true
}

// Splice applies edits to the text from which their documents were read. All other bytes of the
// text stay the same.
func Splice(text []byte, edits []Edit) ([]byte, error) {
	list := make([]manifest.Edit, len(edits))
	for i, e := range edits {
		list[i] = e.edit
	}
	return manifest.Splice(text, list)
}

// Patch returns the RFC 6902 operations that turn the object as it was given into Object.
func (r *Result) Patch() []tree.Op { return tree.Diff(r.Request.object, r.Object()) }

// A Change is one field that differs. The value of an absent field is nil.
type Change struct {
	// Path calls list elements by their keys: spec.containers[name=app].image.
	Path   string `json:"path"`
	Before any    `json:"before"`
	After  any    `json:"after"`
	// Moved says that only the order of a list's elements differs; Before and
	// After are their names.
	Moved bool `json:"moved,omitempty"`
}

// Diff returns the fields that differ between the object as it was given and
// Object, in the order of their names.
func (r *Result) Diff() []Change {
	var changes []Change
	for _, c := range r.changes() {
		changes = append(changes, Change(c))
	}
	return changes
}

func (r *Result) changes() []report.Change {
	if !r.Changed() || r.Request.object == nil {
		return nil
	}
	return report.Diff(r.Request.object, r.Object(), r.policies.keys(r.Decision.Object))
}

// Against returns the fields in which Object differs from want, as changes from want.
// There are none if a server would hold the same object for both: quantities may be
// written in another form, and defaults may be left out.
func (r *Result) Against(want map[string]any) []Change {
	got := r.Object()
	if tree.Equal(want, got) {
		return nil
	}
	if ns := r.Request.Admission.Namespace; ns != "" && r.Request.Admission.Object.GetNamespace() == ns {
		want, got = withNamespace(&unstructured.Unstructured{Object: want}, ns).Object, withNamespace(&unstructured.Unstructured{Object: got}, ns).Object
	}
	hold := func(obj map[string]any) map[string]any {
		held, err := r.Request.decode(obj)
		if err != nil {
			return obj
		}
		return held
	}
	before, after := hold(want), hold(got)
	if tree.Equal(before, after) {
		return nil
	}
	keys := r.policies.keys(r.Request.Admission.Object)
	changes := report.Diff(want, got, keys)
	if len(changes) == 0 {
		changes = report.Diff(before, after, keys)
	}
	out := make([]Change, len(changes))
	for i, c := range changes {
		out[i] = Change(c)
	}
	return out
}

// DiffText returns Diff as text below the object's name, for a terminal if
// colour is set. It hides the values of Secrets, as kubectl diff does.
func (r *Result) DiffText(colour bool) string {
	kind := r.Request.Admission.Kind
	changes := report.Hide(kind.Group, kind.Kind, r.changes())
	var b strings.Builder
	_ = report.WriteDiff(&b, r.Request.name, changes, report.Colour(colour)) // a Builder takes everything
	return b.String()
}

// BlameText returns Object as YAML, with a comment behind each field that policies
// changed: policy, binding, parameter and mutation, and all of them in order if there
// were several. Options.Brief must not have been set.
func (r *Result) BlameText() string {
	return report.BlameText(r.Object(), explain.BlameOf(r.Decision))
}

// Summary returns what happened as text: a line with the outcome, and a line for each step except
// those of later rounds that changed nothing.
func (r *Result) Summary() string {
	return report.Summary(r.Request.name, r.Decision, r.policies.keys, report.Brief)
}

// TraceText is Summary with what expressions read and returned, see Options.Observe. If all is
// set, it has all steps, costs and values, otherwise a line for each expression.
func (r *Result) TraceText(all bool) string {
	detail := report.Values
	if all {
		detail = report.Everything
	}
	return report.Summary(r.Request.name, r.Decision, r.policies.keys, detail)
}

// Trace returns the steps of the Decision with what expressions read and returned, see
// Options.Observe.
func (r *Result) Trace() []explain.Traced { return explain.TraceOf(r.Decision) }

// Observe runs the policies once more with Options.Observe.
func (r *Result) Observe(ctx context.Context) (*Result, error) {
	p, err := r.policies.observed()
	if err != nil {
		return nil, err
	}
	return p.Admit(ctx, r.Request), nil
}

// WhyNot yields the reasons why policies, bindings and mutators did nothing with the object,
// for those that left no Step in the Decision.
func (r *Result) WhyNot(ctx context.Context) iter.Seq[explain.Reason] {
	return r.policies.explainer.WhyNot(ctx, r.Request.Admission, r.Decision)
}

// keys returns the fields by which reports name the list elements of an object.
func (p *Policies) keys(u *unstructured.Unstructured) report.Keys {
	kind, err := p.loaded.Types.Kind(u.GroupVersionKind())
	if err != nil {
		return nil
	}
	return report.SchemaKeys(kind)
}

// Refusal returns why the object was denied, in the words of kubectl; empty if it was
// not.
func (r *Result) Refusal() string {
	status := r.Decision.Status
	if status == nil {
		return ""
	}
	d := status.Details
	if status.Reason == metav1.StatusReasonInvalid {
		text := "The request is invalid"
		if d != nil && d.Kind != "" {
			text = fmt.Sprintf("The %s %q is invalid", d.Kind, d.Name)
		}
		if d == nil || len(d.Causes) <= 1 {
			return text + ": " + status.Message
		}
		var b strings.Builder
		b.WriteString(text + ":")
		for _, c := range d.Causes {
			b.WriteString("\n* " + c.Message)
		}
		return b.String()
	}
	if status.Reason == "" {
		return "Error from server: " + status.Message
	}
	text := fmt.Sprintf("Error from server (%s): %s", status.Reason, status.Message)
	if d != nil && len(d.Causes) > 1 {
		for _, c := range d.Causes[1:] {
			text += "\n* " + c.Message
		}
	}
	return text
}

// Missing returns the paths of fields that an API server requires and that the object lacks
// after the policies: a name, and strings and lists that the types of built-in kinds require.
// Nothing else is validated. It is empty for a denied object and for one of a review.
func (r *Result) Missing() []string {
	q := r.Request
	obj := r.Decision.Object
	if r.Denied() || q.review || q.kind == nil || obj == nil || q.Admission.Operation == admissionv1.Connect {
		return nil
	}
	var out []string
	if q.Admission.SubResource == "" && obj.GetName() == "" && obj.GetGenerateName() == "" && !nameless[q.Admission.Kind.Group] && !q.generated {
		out = append(out, "metadata.name")
	}
	return append(out, q.kind.Missing(obj.Object)...)
}

// nameless are the groups whose objects are requests for an answer, and are not stored.
var nameless = map[string]bool{"authentication.k8s.io": true, "authorization.k8s.io": true}

// AsGiven returns the request and its decision about the object as it was given, without
// defaults, for writing a response: a patch of the defaulted object need not apply to the given
// one.
func (r *Result) AsGiven() (*policy.Request, *engine.Decision) {
	if !r.Changed() || r.Request.object == nil {
		return r.Request.Admission, r.Decision
	}
	given := *r.Decision
	given.Object = &unstructured.Unstructured{Object: r.Object()}
	return &policy.Request{UID: r.Request.Admission.UID, Object: &unstructured.Unstructured{Object: r.Request.object}}, &given
}

// Builtin reports whether the object is decoded with the schema of a built-in kind.
func (r *Request) Builtin() bool { return r.kind != nil && r.kind.Builtin() }

// Warnings returns the warnings of the Decision, and one about the fields that policies
// changed and that a server drops.
func (r *Result) Warnings() []string {
	if len(r.dropped) == 0 {
		return r.Decision.Warnings
	}
	why := "status is written by requests for the subresource status only"
	if r.Request.Admission.SubResource == "status" {
		why = "a request for the subresource status writes little else"
	}
	text := fmt.Sprintf("%s: a server silently drops what policies changed in %s, since %s", r.Request.name, strings.Join(r.dropped, ", "), why)
	return append(slices.Clone(r.Decision.Warnings), text)
}

// FilledIn returns the fields of a changed object that a server fills in after the policies:
// fields that a policy removed, and defaults that are derived from a field that a policy set.
// It leaves out the constant defaults of what policies added, which AddedDefaults returns.
func (r *Result) FilledIn() []string {
	fields, _ := r.filledIn()
	return fields
}

// AddedDefaults returns the fields that a server fills in after the policies within what
// they added, such as spec.initContainers[name=wait].terminationMessagePath.
func (r *Result) AddedDefaults() []string {
	_, within := r.filledIn()
	return within
}

func (r *Result) filledIn() (fields, within []string) {
	q := r.Request
	if !r.Changed() || q.kind == nil || q.Admission.Object == nil {
		return nil, nil
	}
	keys := report.SchemaKeys(q.kind)
	before, after := q.Admission.Object.Object, r.Decision.Object.Object
	// Defaults that a review lacks before the policies are not due to them.
	skip := map[string]bool{}
	for _, c := range filledIn(before, keys) {
		skip[c.Path] = true
	}
	var added []string
	for _, c := range report.Diff(before, after, keys) {
		if c.Before == nil {
			added = append(added, c.Path)
		}
	}
	for _, c := range filledIn(after, keys) {
		inside := func(path string) bool {
			rest, ok := strings.CutPrefix(c.Path, path)
			return ok && rest != "" && (rest[0] == '.' || rest[0] == '[')
		}
		switch {
		case skip[c.Path]:
		case reserves(c.Path) || !slices.ContainsFunc(added, inside):
			fields = append(fields, c.Path)
		default:
			within = append(within, c.Path)
		}
	}
	return fields, within
}

// filledIn returns the defaults that a server adds to an object.
func filledIn(obj map[string]any, keys report.Keys) []report.Change {
	out, _ := defaulting.Apply(obj)
	return report.Diff(obj, out, keys)
}

// reserves reports whether a field belongs to the requests of a container, which a server fills
// in from the limits. They are reported for an added container too, since the scheduler
// reserves them.
func reserves(path string) bool { return strings.Contains(path, ".resources.requests") }
