package gatekeeper

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/oracle"
	"github.com/mapd-project/mapd/test/subject"
)

// Native is what mutators are as policies.
type Native struct {
	// Exact says that the policies do all that the mutators do.
	Exact bool
	// Traps are the notes of those that do not, as a trap of Gatekeeper spec §13
	// or, without one, the verdict.
	Traps []string

	policies, bindings []*unstructured.Unstructured
}

// NewNative translates mutators. What is in conflict does nothing and so needs
// no policy.
func NewNative(ms []*legacy.Mutator, o translate.Options) (*Native, error) {
	n := &Native{Exact: true}
	off := legacy.Conflicts(ms)
	for _, unit := range translate.Native(ms, o) {
		for _, v := range unit.Verdicts {
			if _, ok := off[v.ID]; !ok && v.Verdict != translate.Exact {
				n.differs(v)
			}
		}
		if unit.Policy == nil {
			continue
		}
		policy, err := content(unit.Policy)
		if err != nil {
			return nil, err
		}
		binding, err := content(unit.Binding)
		if err != nil {
			return nil, err
		}
		n.policies, n.bindings = append(n.policies, policy), append(n.bindings, binding)
	}
	return n, nil
}

func (n *Native) differs(v translate.MutatorVerdict) {
	n.Exact = false
	for _, note := range v.Notes {
		if note.Trap != "" {
			n.Traps = append(n.Traps, note.Trap)
		}
	}
	if len(n.Traps) == 0 {
		n.Traps = append(n.Traps, string(v.Verdict))
	}
}

// String writes the policies for somebody who looks at a difference.
func (n *Native) String() string {
	var b strings.Builder
	for _, p := range n.policies {
		data, err := yaml.Marshal(p.Object["spec"])
		fmt.Fprintf(&b, "policy %s:\n%s", p.GetName(), data)
		if err != nil {
			fmt.Fprintln(&b, err)
		}
	}
	return b.String()
}

func content(obj runtime.Object) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	return &unstructured.Unstructured{Object: fields}, err
}

// normal is a request as a server has it once it decoded it, with its namespace
// in the object and the name of a Namespace in its label. It fails if the object is none
// of its kind, or of no known one.
func normal(r Request) (Request, error) {
	obj := (&unstructured.Unstructured{Object: r.Object}).DeepCopy()
	if _, ok := types.ResourceFor(obj.GroupVersionKind()); !ok {
		return r, fmt.Errorf("%s is not known", obj.GroupVersionKind())
	}
	obj.SetNamespace(r.Namespace)
	obj, err := cases.Normal(obj, definitions)
	if err != nil {
		return r, err
	}
	r.Object = obj.Object
	if isNamespace(obj) {
		labelName(obj)
	}
	if r.NamespaceObject != nil {
		namespace := (&unstructured.Unstructured{Object: r.NamespaceObject}).DeepCopy()
		labelName(namespace)
		r.NamespaceObject = namespace.Object
	}
	return r, nil
}

// labelName gives a Namespace the label with its name that servers give it.
func labelName(u *unstructured.Unstructured) {
	if u.GetName() == "" {
		return
	}
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["kubernetes.io/metadata.name"] = u.GetName()
	u.SetLabels(labels)
}

// Mapd runs the policies in mapd's engine. The request must be a normal one.
func (n *Native) Mapd(ctx context.Context, r Request) (Result, error) {
	c := n.testCase(r)
	e, err := subject.New(c)
	if err != nil {
		return Result{}, err
	}
	d := e.Admit(ctx, subject.Request(&c.Request))
	return admitted(d.Object, d.Status), nil
}

// Kubernetes runs the policies in the dispatcher of the API server.
func (n *Native) Kubernetes(ctx context.Context, r Request) (Result, error) {
	got, err := oracle.Run(ctx, n.testCase(r))
	if err != nil {
		return Result{}, err
	}
	if got.Panic != nil {
		return Result{}, fmt.Errorf("kubernetes panics: %v", got.Panic)
	}
	return admitted(got.Object, got.Status), nil
}

// admitted tells whether a request was refused, but not in whose words.
func admitted(obj *unstructured.Unstructured, status *metav1.Status) Result {
	if status != nil {
		return Result{Error: status.Message}
	}
	return Result{Object: obj.Object}
}

func (n *Native) testCase(r Request) *cases.Case {
	c := &cases.Case{Policies: n.policies, Bindings: n.bindings, CRDs: definitions}
	if r.NamespaceObject != nil {
		c.Namespaces = []*unstructured.Unstructured{{Object: r.NamespaceObject}}
	}
	q := admission(r)
	if isNamespace(q.Object) {
		c.Namespaces = append(c.Namespaces, q.Object)
	}
	kind := map[string]string{"CREATE": "CreateOptions", "UPDATE": "UpdateOptions"}[r.Operation]
	c.Request = cases.RequestSpec{Operation: r.Operation, Kind: q.Kind, Resource: q.Resource, RequestKind: q.Kind, RequestResource: q.Resource,
		Name: q.Name, Namespace: q.Namespace, User: authenticationv1.UserInfo{Username: r.Username},
		Options: map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": kind}, Object: q.Object, OldObject: q.OldObject}
	return c
}
