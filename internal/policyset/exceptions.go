package policyset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
)

// exceptionDocuments are PolicyExceptions. They add no stage: policies look up whether an
// exception holds.
type exceptionDocuments struct{}

func (exceptionDocuments) on(*Options) bool { return true }
func (exceptionDocuments) parameters() bool { return false }
func (exceptionDocuments) readsAll() bool   { return false }
func (exceptionDocuments) kinds() map[string][]string {
	return map[string][]string{api.ExceptionGroup: {api.ExceptionKind}}
}
func (exceptionDocuments) takes(gvk schema.GroupVersionKind, _ string) bool {
	return api.IsException(gvk)
}
func (exceptionDocuments) namespaced(schema.GroupVersionKind) bool { return true }

// Exception is a PolicyException of the documents.
type Exception struct {
	*binding.Exception
	Document *manifest.Document
	// Unapplied is the reason why it never holds, "" if it may hold.
	Unapplied string
	// Unknown are the policies and bindings that it names and that do not exist. Native are the
	// policies that it names and that an API server runs, which reads no exceptions.
	Unknown, Native []string
}

// Exceptions returns the exceptions of the documents, in their order.
func (s *Snapshot) Exceptions() []Exception { return resultOf[[]Exception](s, exceptionDocuments{}) }

// Problems describes what a user should know about an exception at a time.
func (x *Exception) Problems(now time.Time) (texts []string) {
	if x.Unapplied != "" {
		texts = append(texts, "does not hold: "+x.Unapplied)
	}
	if _, until := x.Times(); x.Ended(now) {
		texts = append(texts, fmt.Sprintf("has ended, it held %s", binding.UntilText(until)))
	} else if until.IsZero() {
		texts = append(texts, "has no end: mapd serve refuses it without --exceptions-without-end")
	}
	if len(x.Unknown) > 0 {
		texts = append(texts, "names what is not there: "+strings.Join(x.Unknown, ", "))
	}
	if len(x.Native) > 0 {
		texts = append(texts, fmt.Sprintf("is from %s of %s: an API server reads no exceptions; mapd reads them in the group %s", strings.Join(x.Native, ", "), api.NativeGroup, api.OwnGroup))
	}
	return texts
}

// build makes the exceptions apply to the policies of the documents.
func (exceptionDocuments) build(b *builder, docs []*manifest.Document, opts *Options) {
	if len(docs) == 0 {
		return
	}
	var known binding.Known
	for _, d := range slices.Concat(b.policies, b.bindings, b.others) { // others includes documents of features that are off
		known.Add(d.Object.GroupVersionKind(), "", d.Object.GetName())
	}
	for i, f := range features {
		for _, d := range b.of[i] {
			gvk, namespace := d.Object.GroupVersionKind(), ""
			if f.namespaced(gvk) {
				namespace = cmp.Or(d.Object.GetNamespace(), b.namespace)
			}
			known.Add(gvk, namespace, d.Object.GetName())
		}
	}
	result := make([]Exception, 0, len(docs))
	for _, d := range docs {
		text, err := d.JSONText()
		if err != nil {
			b.faults(d, err)
			continue
		}
		obj, err := api.DecodeException(text, b.namespace)
		if err != nil {
			b.faults(d, err)
			continue
		}
		program, err := binding.CompileException(obj, api.ExceptionRules{Own: opts.Installation, Endless: true})
		if err != nil {
			b.faults(d, err)
			continue
		}
		x := Exception{Exception: program, Document: d}
		if obj.UID != "" { // it comes from a cluster
			x.Unapplied = unapplied(obj)
		}
		x.Unknown, _ = known.Unknown(program)
		for _, name := range obj.Spec.Policies {
			if b.snapshot.Native[name] {
				x.Native = append(x.Native, name)
			}
		}
		result = append(result, x)
	}
	var holding []*binding.Exception
	for i := range result {
		if result[i].Unapplied == "" {
			holding = append(holding, result[i].Exception)
		}
	}
	slices.SortStableFunc(holding, binding.Older)
	now := opts.Now
	if now == nil {
		now = time.Now
	}
	exceptions, tooMany := binding.NewExceptions(holding, now)
	for i := range result {
		if slices.Contains(tooMany, result[i].Exception) {
			result[i].Unapplied = binding.TooManyExceptions
		}
	}
	b.snapshot.results[exceptionDocuments{}] = result
	if exceptions != nil {
		b.exceptions = func() *binding.Exceptions { return exceptions }
	}
}

// unapplied returns the reason why a stored exception is not in force, "" if it may be.
func unapplied(obj *api.PolicyException) string {
	if _, err := obj.Allowed(); err != nil {
		return err.Error()
	}
	conditions, _, _ := unstructured.NestedSlice(map[string]any{"status": obj.Status}, "status", "conditions")
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		if c["type"] == api.ExceptionActive && c["reason"] == api.ExceptionInvalid {
			return fmt.Sprint(c["message"])
		}
	}
	return ""
}
