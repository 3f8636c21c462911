package audit

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
)

// Excepted is an exception that holds for an object, with what happens when it ends.
type Excepted struct {
	Exception string `json:"exception"`
	Owner     string `json:"owner,omitempty"`
	Reason    string `json:"reason"`
	// Until is empty for an exception without an end.
	Until string `json:"until,omitempty"`
	// Policies are the policies that do not change the object because of it, as policy › binding,
	// or policy alone if it has no binding.
	Policies []string `json:"policies"`
	// Changes are the changes to the object when the exception ends, besides those when earlier
	// exceptions end.
	Changes     []Change `json:"changes,omitempty"`
	MoreChanges int      `json:"moreChanges,omitempty"`
	// Denied is the reason why the object would be refused then, and Error the reason why that is
	// not known.
	Denied string `json:"denied,omitempty"`
	Error  string `json:"error,omitempty"`
}

// excepted returns the result for an object for which exceptions hold, nil if there are none. d
// is the present decision. To find out what happens later, it evaluates requests with a later
// time.
func (a *Asking) excepted(ctx context.Context, s *Set, of *Resource, u *unstructured.Unstructured, d *engine.Decision) *Result {
	byName := map[*binding.Exception]int{}
	var holding []*binding.Exception
	var out []Excepted
	for i := range d.LeftOut {
		o := &d.LeftOut[i]
		x := o.Exception
		if x == nil {
			continue
		}
		at, ok := byName[x]
		if !ok {
			at = len(out)
			byName[x] = at
			spec := &x.Object().Spec
			e := Excepted{Exception: x.Name(), Owner: spec.Owner, Reason: spec.Reason}
			if _, until := x.Times(); !until.IsZero() {
				e.Until = until.UTC().Format(time.RFC3339)
			}
			out, holding = append(out, e), append(holding, x)
		}
		by := o.Policy
		if o.Binding != "" {
			by += " › " + o.Binding
		}
		if !slices.Contains(out[at].Policies, by) { // both rounds may have the policy
			out[at].Policies = append(out[at].Policies, by)
		}
	}
	if len(out) == 0 {
		return nil
	}
	slices.SortStableFunc(holding, func(x, y *binding.Exception) int { return binding.Latest(y, x) }) // by their ends
	for _, x := range holding {
		e := &out[byName[x]]
		_, until := x.Times()
		if until.IsZero() {
			continue
		}
		req := a.request(of, u)
		req.Time = until
		then, err := s.admit(ctx, a, req)
		switch {
		case err != nil:
			e.Error = short(err.Error(), maxText)
		case then.Status != nil:
			e.Denied = short(then.Status.Message, maxText)
		default:
			if d.Status == nil {
				e.Changes, e.MoreChanges = s.differences(u, d.Object, then.Object)
			}
			d = then
		}
	}
	r := newResult(u)
	r.Excepted = out
	return r
}

// differences returns the fields that differ between two versions of u, in the form of results.
func (s *Set) differences(u, before, after *unstructured.Unstructured) ([]Change, int) {
	gvk := u.GroupVersionKind()
	var keys report.Keys
	if kind, err := s.types.Kind(gvk); err == nil {
		keys = report.SchemaKeys(kind)
	}
	return cut(report.Hide(gvk.Group, gvk.Kind, report.Diff(before.Object, after.Object, keys)))
}

// withoutExceptions returns documents without exceptions, which an API server does not read.
func withoutExceptions(docs []*manifest.Document) []*manifest.Document {
	return slices.DeleteFunc(slices.Clone(docs), func(d *manifest.Document) bool {
		return d.Object != nil && api.IsException(d.Object.GroupVersionKind())
	})
}
