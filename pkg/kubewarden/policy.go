package kubewarden

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
)

// Group is the API group of Kubewarden's policies, and Version the one that Decode
// reads.
const (
	Group   = "policies.kubewarden.io"
	Version = "v1"
)

// Kinds of policies, and their resources.
const (
	ClusterPolicyKind = "ClusterAdmissionPolicy"
	PolicyKind        = "AdmissionPolicy"
)

// kinds are all kinds of policies, groups included.
var kinds = []string{ClusterPolicyKind, PolicyKind, ClusterPolicyKind + "Group", PolicyKind + "Group"}

// IsPolicy reports whether Decode takes objects of a kind. It refuses those of groups of policies.
func IsPolicy(gvk schema.GroupVersionKind) bool {
	return gvk.Group == Group && slices.Contains(kinds, gvk.Kind)
}

// Policy is a ClusterAdmissionPolicy or an AdmissionPolicy with its defaults. It must
// not be modified.
type Policy struct {
	Name string
	// Namespace is that of an AdmissionPolicy, empty for a ClusterAdmissionPolicy.
	Namespace string
	// Module is where the policy's program is, see Source.
	Module Source
	// Mutating says that the policy may change objects.
	Mutating bool
	// Monitor says that the policy runs and only a record tells the result.
	Monitor bool
	// Settings are the policy's settings, never nil.
	Settings map[string]any
	// ContextAware are the kinds that the policy may read.
	ContextAware []schema.GroupVersionKind
	// Timeout bounds one evaluation.
	Timeout time.Duration
	// Message takes the place of the policy's own when it refuses a request, if it
	// is not empty.
	Message string
	// Unusable is not nil if Decode returned a policy and an error: only spec.module is
	// at fault.
	Unusable error
	// PolicyServer and BackgroundAudit mean nothing to mapd.
	PolicyServer    string
	BackgroundAudit bool

	object *admissionregistrationv1.MutatingAdmissionPolicy
}

// DefaultTimeout is that of an evaluation without spec.timeoutEvalSeconds (Kubewarden
// spec §2.10).
const DefaultTimeout = 2 * time.Second

// ID returns the name under which Kubewarden serves the policy and which its messages
// have (Kubewarden spec §6.1). Policies run in the order of their IDs, which is the one in
// which an API server calls Kubewarden's webhooks.
func (p *Policy) ID() string { return p.object.Name }

// Kind returns ClusterPolicyKind or PolicyKind.
func (p *Policy) Kind() string {
	if p.Namespace == "" {
		return ClusterPolicyKind
	}
	return PolicyKind
}

// Object returns what requests the policy meets, and its failurePolicy, as a policy
// without mutations. It must not be modified.
func (p *Policy) Object() *admissionregistrationv1.MutatingAdmissionPolicy { return p.object }

// document is a policy as it is written.
type document struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              spec `json:"spec"`
	Status            any  `json:"status"`
}

type spec struct {
	Module                                  string                                       `json:"module"`
	Mutating                                *bool                                        `json:"mutating"`
	Settings                                *any                                         `json:"settings"`
	Rules                                   []admissionregistrationv1.RuleWithOperations `json:"rules"`
	PolicyServer                            string                                       `json:"policyServer"`
	Mode                                    string                                       `json:"mode"`
	FailurePolicy                           *admissionregistrationv1.FailurePolicyType   `json:"failurePolicy"`
	MatchPolicy                             *admissionregistrationv1.MatchPolicyType     `json:"matchPolicy"`
	SideEffects                             *admissionregistrationv1.SideEffectClass     `json:"sideEffects"`
	TimeoutSeconds                          *int32                                       `json:"timeoutSeconds"`
	TimeoutEvalSeconds                      *int32                                       `json:"timeoutEvalSeconds"`
	MatchConditions                         []admissionregistrationv1.MatchCondition     `json:"matchConditions"`
	ObjectSelector                          *metav1.LabelSelector                        `json:"objectSelector"`
	NamespaceSelector                       *metav1.LabelSelector                        `json:"namespaceSelector"`
	ContextAwareResources                   []contextAware                               `json:"contextAwareResources"`
	AllowInsideAdmissionControllerNamespace bool                                         `json:"allowInsideAdmissionControllerNamespace"`
	BackgroundAudit                         *bool                                        `json:"backgroundAudit"`
	Message                                 string                                       `json:"message"`
}

type contextAware struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// Decode reads a policy. An AdmissionPolicy that names no namespace belongs to the one
// that is given. Decode is strict: an unknown field is an error, since it may restrict
// what the policy does. Everything that is wrong comes as api.Faults. If that is only
// where the module is, there is a policy as well: see Unusable.
func Decode(text []byte, namespace string) (*Policy, error) {
	var head metav1.TypeMeta
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, api.FaultsOf(err)
	}
	if slices.Contains(kinds[2:], head.Kind) {
		return nil, api.Faults{{Path: "kind", Err: fmt.Errorf("a policy group never mutates, since its members only vote, so mapd does not run %s; leave it to Kubewarden's policy-server", head.Kind)}}
	}
	d := new(document)
	spellings := api.Spellings{Group + "/" + Version: func() any { return new(document) }}
	kind := ClusterPolicyKind
	if head.Kind == PolicyKind {
		kind = PolicyKind
	}
	if _, err := api.DecodeSpelling(text, kind, spellings, d); err != nil {
		return nil, api.FaultsOf(err)
	}
	if d.Kind == PolicyKind {
		d.Namespace = cmp.Or(d.Namespace, namespace)
	}
	source, faults := d.validate()
	switch {
	case len(faults) == 0:
		return d.policy(source), nil
	case len(faults) == 1 && faults[0].Path == "spec.module" && d.Spec.Module != "":
		// What it matches is known, so that a server can fail for it.
		p := d.policy(source)
		p.Unusable = faults
		return p, faults
	}
	return nil, faults
}

// policy returns the policy of a valid document.
func (d *document) policy(source Source) *Policy {
	s := &d.Spec
	p := &Policy{
		Name: d.Name, Module: source, Mutating: *s.Mutating, Monitor: s.Mode == "monitor",
		Settings: map[string]any{}, Timeout: DefaultTimeout, Message: s.Message,
		PolicyServer: s.PolicyServer, BackgroundAudit: s.BackgroundAudit == nil || *s.BackgroundAudit,
	}
	if s.Settings != nil {
		if m, ok := (*s.Settings).(map[string]any); ok {
			p.Settings = m
		}
	}
	if s.TimeoutEvalSeconds != nil {
		p.Timeout = time.Duration(*s.TimeoutEvalSeconds) * time.Second
	}
	for _, r := range s.ContextAwareResources {
		p.ContextAware = append(p.ContextAware, schema.FromAPIVersionAndKind(r.APIVersion, r.Kind))
	}
	object := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "clusterwide-" + d.Name, UID: d.UID, Generation: d.Generation},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: s.FailurePolicy, MatchConditions: s.MatchConditions, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: s.NamespaceSelector, ObjectSelector: s.ObjectSelector, MatchPolicy: s.MatchPolicy,
			},
		},
	}
	for _, r := range s.Rules {
		object.Spec.MatchConstraints.ResourceRules = append(object.Spec.MatchConstraints.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	if d.Kind == PolicyKind {
		p.Namespace = d.Namespace
		object.Name = "namespaced-" + d.Namespace + "-" + d.Name
		object.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{namespaceLabel: d.Namespace}}
		namespaced := admissionregistrationv1.NamespacedScope
		for i := range object.Spec.MatchConstraints.ResourceRules {
			object.Spec.MatchConstraints.ResourceRules[i].Scope = &namespaced
		}
	}
	if object.Spec.FailurePolicy == nil {
		object.Spec.FailurePolicy = new(admissionregistrationv1.FailurePolicyType)
		*object.Spec.FailurePolicy = admissionregistrationv1.Fail
	}
	if p.Monitor { // what does not count cannot fail either
		ignore := admissionregistrationv1.Ignore
		object.Spec.FailurePolicy = &ignore
	}
	api.SetMatchDefaults(object.Spec.MatchConstraints)
	p.object = object
	return p
}

// namespaceLabel is the label that every Namespace has with its own name.
const namespaceLabel = "kubernetes.io/metadata.name"

// renamed returns the policy under another ID.
func (p *Policy) renamed(id string) *Policy {
	other := *p
	other.object = p.object.DeepCopy()
	other.object.Name = id
	return &other
}

// Unique returns policies in the order of their IDs. The second of two that have one
// ID, such as namespaced-a-b-c of the namespaces a and a-b, gets another.
func Unique(policies []*Policy) []*Policy {
	policies = slices.Clone(policies)
	slices.SortFunc(policies, func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(a.ID(), b.ID()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	taken := map[string]bool{}
	for i, p := range policies {
		for id := p.ID(); taken[id]; {
			id += "." + p.Namespace
			policies[i] = p.renamed(id)
		}
		taken[policies[i].ID()] = true
	}
	return policies
}

// Key tells policies apart.
type Key struct{ Namespace, Name string }

// Key returns the namespace, if the policy has one, and the name.
func (p *Policy) Key() Key { return Key{p.Namespace, p.Name} }
