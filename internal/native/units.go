package native

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/translate"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Mutator is one that is to run, and the object that it was read from.
type Mutator struct {
	*legacy.Mutator
	Owner Owner
}

// Options say for whom policies are made.
type Options struct {
	// Config may be nil. What it excludes is written into the policies.
	Config *legacy.Config
	// Exempt are namespaces that mapd leaves alone, and its policies as well.
	Exempt []string
	Types  *openapi.Types
}

// Part is a policy or a binding of a Unit, without its API group.
type Part struct {
	Object *unstructured.Unstructured
	Digest string
}

// Unit is a policy and its binding, and the mutators that they stand for.
type Unit struct {
	Name            string
	Owners          []Owner // by ID
	Policy, Binding Part
}

// Wanted is where mutators belong.
type Wanted struct {
	Units []Unit // by name
	// Stay says, by ID, why no policy stands for a mutator.
	Stay map[string]string
}

// Want finds the policies that stand for mutators. Only those move that a policy
// does exactly, and that need not run after one that stays: the engine comes after
// all policies.
func Want(ms []Mutator, o Options) *Wanted {
	owners := make(map[string]Owner, len(ms))
	excluded := o.Config.Patterns(api.GatekeeperProcess)
	moving := make([]*legacy.Mutator, len(ms))
	for i, m := range ms {
		owners[m.ID()] = m.Owner
		moving[i] = m.Excluding(excluded)
	}
	w := &Wanted{Stay: map[string]string{}}
	for {
		units := translate.Native(moving, translate.Options{Types: o.Types})
		behind := map[string]string{}
		for i := range units {
			for _, v := range units[i].Verdicts {
				if why := whyNot(&units[i], v); why != "" {
					behind[v.ID] = why
				}
			}
		}
		if len(behind) == 0 {
			for i := range units {
				w.Units = append(w.Units, unit(&units[i], owners, o.Exempt))
			}
			return w
		}
		moving = without(moving, units, behind)
		for id, why := range behind {
			w.Stay[id] = why
		}
	}
}

// whyNot says why a mutator is not moved; empty if it can be.
func whyNot(u *translate.Unit, v translate.MutatorVerdict) string {
	if v.Verdict == translate.Exact && u.Policy != nil && u.Binding != nil {
		return ""
	}
	var notes []string
	for _, n := range v.Notes {
		text := n.Text
		if n.Trap != "" {
			text = n.Trap + ": " + text
		}
		notes = append(notes, text)
	}
	return string(v.Verdict) + ": " + strings.Join(notes, "; ")
}

// without leaves out those that stay behind, and adds to them what has to run after
// one of them. Native knows that of those of which it makes no policy; of those
// that would differ it is found here.
func without(ms []*legacy.Mutator, units []translate.Unit, behind map[string]string) []*legacy.Mutator {
	differs := map[string]bool{}
	for i := range units {
		for _, v := range units[i].Verdicts {
			if behind[v.ID] != "" && v.Verdict != translate.EngineOnly && v.Verdict != translate.Refused {
				differs[v.ID] = true
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for _, before := range ms {
			if !differs[before.ID()] {
				continue
			}
			for _, m := range ms {
				if behind[m.ID()] == "" && (legacy.Affects(before, m) || legacy.Compare(before, m) < 0 && !legacy.Commute(before, m)) {
					behind[m.ID()] = "has to run after " + before.ID() + ", which stays"
					differs[m.ID()], changed = true, true
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(ms), func(m *legacy.Mutator) bool { return behind[m.ID()] != "" })
}

func unit(t *translate.Unit, owners map[string]Owner, exempt []string) Unit {
	u := Unit{Name: t.Name}
	for _, m := range t.Mutators {
		u.Owners = append(u.Owners, owners[m.ID()])
	}
	slices.SortFunc(u.Owners, compareOwners)
	u.Policy = part(t.Policy, api.PolicyKind, u.Owners)
	b := t.Binding.DeepCopy()
	if len(exempt) > 0 {
		s := b.Spec.MatchResources.NamespaceSelector
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: exempt,
		})
	}
	u.Binding = part(b, api.BindingKind, u.Owners)
	return u
}

// NewUnit is a unit that stands for no mutator.
func NewUnit(p *admissionregistrationv1.MutatingAdmissionPolicy, b *admissionregistrationv1.MutatingAdmissionPolicyBinding) Unit {
	return Unit{Name: p.Name, Policy: part(p, api.PolicyKind, nil), Binding: part(b, api.BindingKind, nil)}
}

// part makes of a policy or binding what is sent to a server.
func part[T admissionregistrationv1.MutatingAdmissionPolicy | admissionregistrationv1.MutatingAdmissionPolicyBinding](obj *T, kind string, owners []Owner) Part {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(fmt.Sprintf("native: a %s is no object: %v", kind, err)) // these types are plain
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(api.NativeGroup + "/v1")
	u.SetKind(kind)
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	label(u)
	var refs []metav1.OwnerReference
	for _, o := range owners {
		refs = append(refs, metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID})
	}
	if len(refs) > 0 {
		u.SetOwnerReferences(refs)
	}
	text, err := json.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("native: a %s is no JSON: %v", kind, err))
	}
	return Part{u, digest(kind == api.BindingKind, text)}
}
