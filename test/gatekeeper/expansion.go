package gatekeeper

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	expansionunversioned "github.com/open-policy-agent/gatekeeper/v3/apis/expansion/unversioned"
	expansionv1alpha1 "github.com/open-policy-agent/gatekeeper/v3/apis/expansion/v1alpha1"
	expansionv1beta1 "github.com/open-policy-agent/gatekeeper/v3/apis/expansion/v1beta1"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/expansion"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	mapdexpansion "github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
)

func init() {
	utilruntime.Must(expansionv1alpha1.AddToScheme(scheme))
	utilruntime.Must(expansionv1beta1.AddToScheme(scheme))
}

// Expansion is what came of expanding an object.
type Expansion struct {
	// Refused has the templates that are not valid, with the reason, and Cyclic those
	// that do nothing, sorted.
	Refused map[string]string
	Cyclic  []string
	// Error is why the object could not be expanded.
	Error string
	// Objects are what was made, one line each, sorted, since Gatekeeper's order is
	// random: the template, its enforcementAction, and the object after mutation.
	Objects []string
}

func newExpansion() Expansion { return Expansion{Refused: map[string]string{}} }

func (e *Expansion) add(template, action string, u *unstructured.Unstructured) error {
	data, err := json.Marshal(u.Object) // which need not have a kind
	if err != nil {
		return err
	}
	e.Objects = append(e.Objects, fmt.Sprintf("%s %q %s", template, action, data))
	return nil
}

// sort makes two expansions comparable.
func (e *Expansion) sort() {
	slices.Sort(e.Objects)
	slices.Sort(e.Cyclic)
}

// Expand is what Gatekeeper makes of an object outside of its webhook, which does not
// change the result: with the mutators in g, and templates in the order in which they
// came.
func (g *Gatekeeper) Expand(templates []*unstructured.Unstructured, r Request) (Expansion, error) {
	e := newExpansion()
	system := expansion.NewSystem(g.system)
	for _, u := range templates {
		t, err := decodeTemplate(u)
		if err == nil {
			err = expansion.ValidateTemplate(t)
		}
		if err != nil {
			e.Refused[u.GetName()] = err.Error()
			continue
		}
		if err := system.UpsertTemplate(t); err != nil && err.Error() != expand.ErrCycle {
			return e, err
		}
	}
	for id := range system.GetConflicts() {
		e.Cyclic = append(e.Cyclic, string(id))
	}
	m, err := mutable(r)
	if err != nil {
		return e, err
	}
	made, err := system.Expand(m)
	if err != nil {
		e.Error = mask(err.Error())
	}
	for _, r := range made {
		if err := e.add(r.TemplateName, r.EnforcementAction, r.Obj); err != nil {
			return e, err
		}
	}
	e.sort()
	return e, nil
}

func decodeTemplate(u *unstructured.Unstructured) (*expansionunversioned.ExpansionTemplate, error) {
	data, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	obj, _, err := codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	t := &expansionunversioned.ExpansionTemplate{}
	return t, scheme.Convert(obj, t, nil)
}

// Expand is what mapd makes of an object without a server's defaults, which
// Gatekeeper does not know.
func (r *Runtime) Expand(ctx context.Context, templates []*unstructured.Unstructured, q Request) (Expansion, error) {
	e := newExpansion()
	var valid []*legacy.Template
	for _, u := range templates {
		t, err := legacy.DecodeTemplate(u)
		if err != nil {
			e.Refused[u.GetName()] = cause(err)
			continue
		}
		valid = append(valid, t)
	}
	set := expand.New(valid)
	for _, circle := range set.Circles() {
		for _, t := range circle {
			e.Cyclic = append(e.Cyclic, t.Name)
		}
	}
	slices.Sort(e.Cyclic)
	r.namespace = q.NamespaceObject
	req := admission(q)
	req.Operation = admissionv1.Create
	x := mapdexpansion.Expander{Templates: set, Types: types, Admit: r.engine.Admit, Raw: true}
	made, err := x.Evaluate(ctx, req, req.Object)
	if err != nil {
		e.Error = err.Error()
		return e, nil
	}
	for _, o := range made {
		if o.Decision.Status != nil {
			// An error of a mutator ends an expansion of Gatekeeper's.
			e.Objects, e.Error = nil, fmt.Sprintf("failed to mutate resultant resource %s: %s", o.Made.GetName(),
				strings.ReplaceAll(o.Decision.Status.Message, string(o.Request.UID), uuidMask))
			break
		}
		if err := e.add(o.Template.Name, o.Template.EnforcementAction, o.Stored); err != nil {
			return e, err
		}
	}
	e.sort()
	return e, nil
}

var uuidMask = mask(uuid.Nil.String())
