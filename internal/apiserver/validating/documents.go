package validating

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/parallel"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
)

// Documents are the ValidatingAdmissionPolicies and bindings among documents.
type Documents struct {
	Policies []*Program
	Bindings []*Bound
}

// Read decodes, validates and compiles the ValidatingAdmissionPolicies and bindings
// among documents; it leaves all other documents alone. It returns all errors, as
// *manifest.PositionError, in the order of the documents.
func Read(ctx context.Context, docs []*manifest.Document) (Documents, []error) {
	var mine []*manifest.Document
	first := map[[2]string]*manifest.Document{}
	var errs []error
	for _, d := range docs {
		if d.Object == nil {
			continue
		}
		gvk := d.Object.GroupVersionKind()
		if gvk.Group != api.NativeGroup || gvk.Kind != PolicyKind && gvk.Kind != BindingKind {
			continue
		}
		id := [2]string{gvk.Kind, d.Object.GetName()}
		if f := first[id]; f != nil {
			errs = append(errs, d.ErrorAt("metadata.name", fmt.Errorf("%s is given twice, first in %s", d.Name(), f.Where())))
			continue
		}
		first[id] = d
		mine = append(mine, d)
	}
	type reading struct {
		policy  *Program
		binding *Bound
		err     error
	}
	readings := make([]reading, len(mine))
	parallel.Each(len(mine), func(i int) {
		r := &readings[i]
		text, err := mine[i].JSONText()
		switch {
		case err != nil:
			r.err = err
		case mine[i].Object.GetKind() == PolicyKind:
			r.policy, r.err = NewPolicy(ctx, text)
		default:
			r.binding, r.err = NewBinding(text)
		}
	})
	var out Documents
	for i, r := range readings {
		switch {
		case r.err != nil:
			errs = append(errs, mine[i].Errors(api.FaultsOf(r.err))...)
		case r.policy != nil:
			out.Policies = append(out.Policies, r.policy)
		default:
			out.Bindings = append(out.Bindings, r.binding)
		}
	}
	return out, errs
}

// BindAll adds a binding that denies, to everything, for each of the policies.
func (d *Documents) BindAll(policies []string) {
	for _, name := range policies {
		b, err := binding.Compile(&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			// No name of an object has a colon.
			ObjectMeta: metav1.ObjectMeta{Name: "unbound:" + name},
			Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
		})
		if err == nil { // nothing in it can be wrong
			d.Bindings = append(d.Bindings, &Bound{b, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}})
		}
	}
}

// Idle returns the names of the policies that no binding names, and of the bindings
// whose policy is not there, sorted.
func (d Documents) Idle() (unbound, dangling []string) {
	bound, known := map[string]bool{}, map[string]bool{}
	for _, p := range d.Policies {
		known[p.Name()] = true
	}
	for _, b := range d.Bindings {
		bound[b.PolicyName()] = true
		if !known[b.PolicyName()] {
			dangling = append(dangling, b.Name())
		}
	}
	for _, p := range d.Policies {
		if !bound[p.Name()] {
			unbound = append(unbound, p.Name())
		}
	}
	slices.Sort(unbound)
	slices.Sort(dangling)
	return unbound, dangling
}
