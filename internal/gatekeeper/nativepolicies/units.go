package nativepolicies

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Mutator is a mutator that has to run, and its stored object.
type Mutator struct {
	*legacy.Mutator
	Owner Owner
}

// Options are what the policies depend on besides the mutators.
type Options struct {
	// Config may be nil. The policies exclude what it excludes.
	Config *legacy.Config
	// Exempt are namespaces that mapd's webhook does not reach. The policies exclude them too.
	Exempt []string
	Types  *openapi.Types
	// Stay maps IDs of mutators that must not get a policy to the reason.
	Stay map[string]string
}

// Part is a policy or a binding of a Unit, without its API group.
type Part struct {
	Object *unstructured.Unstructured
	Digest string
}

// Unit is a policy, its binding, and the mutators that it was written for.
type Unit struct {
	Name            string
	Owners          []Owner // by ID
	Policy, Binding Part
}

// Wanted says for every mutator whether it gets a policy.
type Wanted struct {
	Units []Unit // by name
	// Stay maps the IDs of mutators without a policy to the reason.
	Stay map[string]string
}

// Want finds the policies for mutators. A mutator gets one if the policy does
// exactly the same, and if it need not run after a mutator that has none: the
// engine runs after all policies.
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
				if why := cmp.Or(whyNot(&units[i], v), o.Stay[v.ID]); why != "" {
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

// whyNot returns why a mutator gets no policy, or "".
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

// without returns ms without the mutators in behind, and without those that have to run after one
// of them, which it adds to behind. translate.Native has already left out mutators that run after
// one without a policy; without handles those that run after one whose policy would differ.
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
	u.Policy = part(t.Policy, u.Owners)
	b := t.Binding.DeepCopy()
	if len(exempt) > 0 {
		s := b.Spec.MatchResources.NamespaceSelector
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: exempt,
		})
	}
	u.Binding = part(b, u.Owners)
	return u
}

// NewUnit returns a unit without mutators.
func NewUnit(p *admissionregistrationv1.MutatingAdmissionPolicy, b *admissionregistrationv1.MutatingAdmissionPolicyBinding) Unit {
	return Unit{Name: p.Name, Policy: part(p, nil), Binding: part(b, nil)}
}

// part returns the form of a policy or binding that is sent to a server.
func part[T admissionregistrationv1.MutatingAdmissionPolicy | admissionregistrationv1.MutatingAdmissionPolicyBinding](obj *T, owners []Owner) Part {
	u := api.Object(obj, api.NativeGroup)
	label(u)
	var refs []metav1.OwnerReference
	for _, o := range owners {
		refs = append(refs, metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID})
	}
	if len(refs) > 0 {
		u.SetOwnerReferences(refs)
	}
	return NewPart(u)
}

// NewPart returns u as a Part.
func NewPart(u *unstructured.Unstructured) Part {
	text, err := json.Marshal(u.Object)
	if err != nil {
		panic(fmt.Sprintf("native: a %s is no JSON: %v", u.GetKind(), err))
	}
	return Part{u, Digest(u.GetKind() == api.BindingKind, text)}
}
