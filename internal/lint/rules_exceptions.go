package lint

import (
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
)

// longException is the longest duration of an exception that is not reported.
const longException = 366 * 24 * time.Hour

// exceptions finds PolicyExceptions that have no effect, or more than their author may mean.
func exceptions(p *pass) {
	native, known := map[string]bool{}, binding.Known{}
	add := func(o *unstructured.Unstructured) {
		known.Add(o.GroupVersionKind(), o.GetNamespace(), o.GetName())
	}
	for _, s := range p.set.policies {
		add(s.doc.Object)
		if group(s.doc) == api.NativeGroup { // mapd may have one of the same name
			native[s.doc.Object.GetName()] = true
		}
	}
	for _, b := range p.set.bindings {
		add(b.doc.Object)
	}
	for _, m := range p.set.mutators {
		add(m.Object)
	}
	for _, o := range p.set.others { // others includes Kubewarden's policies
		add(o)
	}
	now := time.Now()
	for _, d := range p.set.exceptions {
		x, faults := exception(d)
		if x == nil {
			before := len(p.set.findings)
			p.faults(d, faults, "")
			for i := range p.set.findings[before:] {
				p.set.findings[before+i].Severity = Error
			}
			continue
		}
		spec := &x.Object().Spec
		switch _, until := x.Times(); {
		case x.Ended(now):
			p.field(d, "spec.until", "the exception has ended, it held %s: delete it", binding.UntilText(until))
		case until.IsZero():
			p.field(d, "spec", "the exception has no end: mapd serve refuses it without --exceptions-without-end")
		case until.Sub(now) > longException:
			p.field(d, "spec.until", "the exception holds for more than a year from now").Severity = Info
		}
		for i, name := range spec.Policies {
			at := fmt.Sprintf("spec.policies[%d]", i)
			if !known.Policy(x, name) {
				p.field(d, at, "there is no policy %s", name)
			} else if native[name] {
				p.field(d, at, "policy %s is of %s: an API server reads no exceptions; only mapd does, in the group %s", name, api.NativeGroup, api.OwnGroup)
			}
		}
		for i, name := range spec.Bindings {
			if !known.Binding(name) {
				p.field(d, fmt.Sprintf("spec.bindings[%d]", i), "there is no binding %s", name)
			}
		}
		if len(spec.Names) == 0 && !narrow(spec.Match) && (!x.Whole() || len(spec.Namespaces) == 0) {
			where := "all objects of namespace " + x.Object().Namespace
			if x.Whole() {
				where = "all objects of the cluster"
			}
			p.field(d, "spec", "the exception is for %s that the policies match: say which by names or by match", where)
		}
		if spec.Owner == "" {
			p.field(d, "spec", "nobody is the owner of the exception").Severity = Info
		}
	}
}

// exception returns the compiled exception, or its faults. It accepts exceptions without an end
// and for other namespaces: they may be right in the cluster that they are for.
func exception(d *manifest.Document) (*binding.Exception, api.Faults) {
	text, err := d.JSONText()
	if err != nil {
		return nil, api.FaultsOf(err)
	}
	obj, err := api.DecodeException(text, "default")
	if err != nil {
		return nil, api.FaultsOf(err)
	}
	x, err := binding.CompileException(obj, api.ExceptionRules{Endless: true})
	return x, api.FaultsOf(err)
}

// narrow reports whether a match excludes some objects by their labels or names.
func narrow(m *admissionregistrationv1.MatchResources) bool {
	if m == nil {
		return false
	}
	if !api.SelectsAll(m.ObjectSelector) || !api.SelectsAll(m.NamespaceSelector) {
		return true
	}
	return len(m.ResourceRules) > 0 && !slices.ContainsFunc(m.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, "*/*")
	})
}
