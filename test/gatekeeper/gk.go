package gatekeeper

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	mutationsv1 "github.com/open-policy-agent/gatekeeper/v3/apis/mutations/v1"
	mutationsv1alpha1 "github.com/open-policy-agent/gatekeeper/v3/apis/mutations/v1alpha1"
	mutationsv1beta1 "github.com/open-policy-agent/gatekeeper/v3/apis/mutations/v1beta1"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/mutators/assign"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/mutators/assignimage"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/mutators/assignmeta"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/mutators/modifyset"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/schema"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Gatekeeper is its mutation system with some mutators in it. Mutate must not be
// called from several goroutines.
type Gatekeeper struct {
	// Refused are the mutators that the webhook would not let in and Conflicts
	// those that were in conflict when they came, with the reason, by kind and
	// name: "Assign/a". What is refused is not in the system.
	Refused, Conflicts map[string]string

	system    *mutation.System
	providers Providers
	passes    int
	// members are the mutators of the system in its order.
	members []member
}

// Request is what a webhook knows about the object to mutate.
type Request struct {
	// Object is decoded as Gatekeeper decodes it: integers are int64. It is not
	// modified.
	Object map[string]any
	// Namespace is the request's, which the object need not say itself.
	Namespace string
	// NamespaceObject is what Namespace names; nil if that is not known, which a
	// webhook would not let pass.
	NamespaceObject map[string]any
	Operation       string // CREATE or UPDATE
	Source          string // Original
	Username        string
	// Annotate stands for the flag --mutation-annotations.
	Annotate bool
}

// Result is what became of an object.
type Result struct {
	// Passes are Gatekeeper's iterations: 0 if nothing changed.
	Passes int
	// Error is what the request is refused with, its identifiers as <uuid>.
	Error string
	// Object is the request's if nothing changed, and nil after an error.
	Object map[string]any
}

// New makes a system and puts mutators in, one after the other, if they are valid
// (Gatekeeper's pkg/webhook/policy.go and pkg/controller/mutators).
func New(mutators []*unstructured.Unstructured, providers Providers) *Gatekeeper {
	g := &Gatekeeper{Refused: map[string]string{}, Conflicts: map[string]string{}, providers: providers}
	g.system = mutation.NewSystem(providers.options(mutation.SystemOpts{
		Reporter: counter{&g.passes},
		NewUUID:  func() uuid.UUID { return uuid.Nil },
	}))
	for _, u := range mutators {
		id := u.GetKind() + "/" + u.GetName()
		m, err := decode(u)
		if err != nil {
			g.Refused[id] = err.Error()
			continue
		}
		if err := g.system.Upsert(m); err != nil {
			g.Conflicts[id] = err.Error()
		}
		g.members = slices.DeleteFunc(g.members, func(other member) bool { return other.ID() == m.ID() })
		g.members = append(g.members, newMember(u, m))
	}
	slices.SortFunc(g.members, func(a, b member) int { return cmp.Compare(a.ID().String(), b.ID().String()) })
	return g
}

// counter learns the number of passes, which System.Mutate only reports.
type counter struct{ passes *int }

func (c counter) ReportIterationConvergence(_ mutation.SystemConvergenceStatus, passes int) error {
	*c.passes = passes
	return nil
}

var codecs, scheme = func() (serializer.CodecFactory, *runtime.Scheme) {
	s := runtime.NewScheme()
	utilruntime.Must(mutationsv1.AddToScheme(s))
	utilruntime.Must(mutationsv1beta1.AddToScheme(s))
	utilruntime.Must(mutationsv1alpha1.AddToScheme(s))
	return serializer.NewCodecFactory(s), s
}()

// decode is the webhook's validation of a mutator, and what the controller makes
// of a valid one.
func decode(u *unstructured.Unstructured) (mutationtypes.Mutator, error) {
	data, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	obj, _, err := codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	switch u.GetKind() {
	case "Assign":
		return convert(obj, assign.IsValidAssign, assign.MutatorForAssign)
	case "AssignImage":
		return convert(obj, assignimage.IsValidAssignImage, assignimage.MutatorForAssignImage)
	case "AssignMetadata":
		return convert(obj, assignmeta.IsValidAssignMetadata, assignmeta.MutatorForAssignMetadata)
	case "ModifySet":
		return convert(obj, modifyset.IsValidModifySet, modifyset.MutatorForModifySet)
	}
	return nil, fmt.Errorf("kind %q is not a mutator", u.GetKind())
}

func convert[T any, M mutationtypes.Mutator](obj runtime.Object, valid func(*T) error, mutator func(*T) (M, error)) (mutationtypes.Mutator, error) {
	out := new(T)
	if err := scheme.Convert(obj, out, nil); err != nil {
		return nil, err
	}
	if err := valid(out); err != nil {
		return nil, err
	}
	return mutator(out)
}

// Mutate does what the webhook does once it has decided to (Gatekeeper's
// pkg/webhook/mutation.go, mutateRequest).
func (g *Gatekeeper) Mutate(ctx context.Context, r Request) (Result, error) {
	return mutate(r, func(m *mutationtypes.Mutable) (int, error) {
		annotations.Lock()
		defer annotations.Unlock()
		*mutation.MutationAnnotationsEnabled = r.Annotate
		_, err := g.system.Mutate(ctx, m)
		return g.passes, err
	})
}

// mutate is Mutate with any system.
func mutate(r Request, system func(*mutationtypes.Mutable) (passes int, err error)) (Result, error) {
	m, err := mutable(r)
	if err != nil {
		return Result{}, err
	}
	before := m.Object.GetNamespace()
	m.Object.SetNamespace(r.Namespace)
	if isNamespace(m.Object) {
		m.Object.SetNamespace("")
	}
	passes, err := system(m)
	if err != nil {
		return Result{Passes: passes, Error: mask(err.Error())}, nil
	}
	if passes == 0 {
		return Result{Object: r.Object}, nil
	}
	m.Object.SetNamespace(before)
	return Result{Passes: passes, Object: m.Object.Object}, nil
}

// annotations guards Gatekeeper's flag.
var annotations sync.Mutex

// mutable is r as Gatekeeper's system takes it, but for the namespace.
func mutable(r Request) (*mutationtypes.Mutable, error) {
	obj := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(r.Object)}
	m := &mutationtypes.Mutable{
		Object:    obj,
		Username:  r.Username,
		Source:    mutationtypes.SourceType(r.Source),
		Operation: admissionv1.Operation(r.Operation),
	}
	namespace := r.NamespaceObject
	if isNamespace(obj) {
		namespace = r.Object
	}
	if namespace == nil {
		return m, nil
	}
	m.Namespace = &corev1.Namespace{}
	return m, runtime.DefaultUnstructuredConverter.FromUnstructured(namespace, m.Namespace)
}

// conflictText is the error of a mutator in conflict.
func conflictText(with map[mutationtypes.ID]bool) string {
	return schema.NewErrConflictingSchema(with).Error()
}

func isNamespace(u *unstructured.Unstructured) bool {
	gvk := u.GroupVersionKind()
	return gvk.Group == "" && gvk.Kind == "Namespace"
}

// pointer is an address, which an error text of Gatekeeper has in it.
var pointer = regexp.MustCompile(`0x[0-9a-f]+`)

// placeholder is how either side prints what stands for external data.
var placeholder = regexp.MustCompile(`&\{Ref:[^ ]+ ValueAtLocation:(?s:.*?)\} is not|what [a-z]+ has for "(?s:.*?)" is not|\*unversioned\.ExternalDataPlaceholder|\*tree\.Pending`)

// notString is how either side says that there is no string where external data belongs.
var notString = regexp.MustCompile(`(external data placeholder is not a string), got (?s:.*)$`)

// unresolved has the messages of the Providers, in any order.
var unresolved = regexp.MustCompile(`^(failed to resolve external data placeholders: )\[(.*)\]$`)

func mask(text string) string {
	text = strings.ReplaceAll(text, uuid.Nil.String(), "<uuid>")
	text = placeholder.ReplaceAllString(text, "<placeholder>")
	text = notString.ReplaceAllString(text, "$1")
	if parts := unresolved.FindStringSubmatch(text); parts != nil {
		messages := strings.Split(parts[2], ", ")
		slices.Sort(messages)
		text = parts[1] + "[" + strings.Join(messages, ", ") + "]"
	}
	return pointer.ReplaceAllString(text, "<ptr>")
}
