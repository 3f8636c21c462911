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

// Group is the API group of Kubewarden's policies, and Version the one that Decode reads.
const (
	Group   = "policies.kubewarden.io"
	Version = "v1"
)

// Kinds of policies, and their resources.
const (
	ClusterPolicyKind = "ClusterAdmissionPolicy"
	PolicyKind        = "AdmissionPolicy"
)

// kinds are all kinds of policies, including policy groups.
var kinds = []string{ClusterPolicyKind, PolicyKind, ClusterPolicyKind + "Group", PolicyKind + "Group"}

// IsPolicy reports whether Decode handles objects of a kind. That includes policy groups, for
// which Decode returns an error.
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
	// Monitor says that the policy's result is recorded only.
	Monitor bool
	// Settings are the policy's settings, never nil.
	Settings map[string]any
	// ContextAware are the kinds that the policy may read.
	ContextAware []schema.GroupVersionKind
	// Timeout is the time limit of one evaluation.
	Timeout time.Duration
	// Message replaces the policy's own message when it refuses a request, if it is not empty.
	Message string
	// Unusable is set if Decode returned both a policy and an error, which is only about
	// spec.module.
	Unusable error
	// PolicyServer and BackgroundAudit have no effect in mapd.
	PolicyServer    string
	BackgroundAudit bool

	object *admissionregistrationv1.MutatingAdmissionPolicy
}

// DefaultTimeout is the Timeout without spec.timeoutEvalSeconds (Kubewarden spec §2.10).
const DefaultTimeout = 2 * time.Second

// ID returns the name under which Kubewarden serves the policy and that its messages contain
// (Kubewarden spec §6.1). Policies run in the order of their IDs, which is the order in which
// an API server calls Kubewarden's webhooks.
func (p *Policy) ID() string { return p.object.Name }

// Kind returns ClusterPolicyKind or PolicyKind.
func (p *Policy) Kind() string {
	if p.Namespace == "" {
		return ClusterPolicyKind
	}
	return PolicyKind
}

// Object returns the match criteria and the failurePolicy of the policy as a policy without
// mutations. It must not be modified.
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

// Decode reads a policy. An AdmissionPolicy that names no namespace belongs to the given one.
// Decode is strict: an unknown field is an error, since it may restrict what the policy does.
// All errors are returned as api.Faults. If they are only about the location of the module,
// Decode returns the policy too: see Unusable.
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
		// The match criteria are valid, so the failurePolicy can be applied to matching
		// requests.
		p := d.policy(source)
		p.Unusable = faults
		return p, faults
	}
	return nil, faults
}

// policy returns the Policy of a valid document.
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
	if p.Monitor { // a result that is only recorded cannot fail a request
		ignore := admissionregistrationv1.Ignore
		object.Spec.FailurePolicy = &ignore
	}
	api.SetMatchDefaults(object.Spec.MatchConstraints)
	p.object = object
	return p
}

// namespaceLabel is the label that every Namespace has with its own name.
const namespaceLabel = "kubernetes.io/metadata.name"

// renamed returns a copy of the policy with another ID.
func (p *Policy) renamed(id string) *Policy {
	other := *p
	other.object = p.object.DeepCopy()
	other.object.Name = id
	return &other
}

// Unique returns policies sorted by ID. If two have the same ID, such as namespaced-a-b-c of
// the namespaces a and a-b, the second gets another ID.
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

// Key identifies a policy.
type Key struct{ Namespace, Name string }

// Key returns the namespace, if the policy has one, and the name.
func (p *Policy) Key() Key { return Key{p.Namespace, p.Name} }
