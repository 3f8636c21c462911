package gatekeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/pkg/api"
)

// A server may store policies and not run them, because the API and the admission plugin are
// enabled separately. Mutators that were moved to such a server would silently stop working. So
// mapd tests the server with a policy that acts only on dry runs of one ConfigMap, the probe.
const (
	probeName       = "mapd-native-probe"
	probeAnnotation = "mapd.dev/native-probe"

	// probeEvery is how often a server is tested, because an upgrade may replace it, and
	// probePause how often while the result is not known.
	probeEvery = time.Minute
	probePause = 500 * time.Millisecond
	// probePatience is how long the probe has to be without effect, since it was stored or last
	// acted, until the server counts as not running policies.
	probePatience = 10 * time.Second
)

type verdict int

const (
	unknown verdict = iota
	yes
	no
)

// probe has what is known about the server.
type probe struct {
	verdict verdict
	since   time.Time // since when the probe is stored and has no effect; zero: this is not so
	next    time.Time // when to test again
}

// Probe is a policy with its binding, both named Name, that shows whether a server runs policies:
// it acts only on dry runs of one ConfigMap.
type Probe struct {
	Name, Namespace, ConfigMap string
}

// Objects returns the policy and the binding, without owners and labels.
func (p Probe) Objects() (*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	ignore, exactly := admissionregistrationv1.Ignore, admissionregistrationv1.Exact
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: &ignore, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy: &exactly,
				NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"kubernetes.io/metadata.name": p.Namespace},
				},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					ResourceNames: []string{p.ConfigMap},
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
					},
				}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "dry-run", Expression: "request.dryRun"}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
					Expression: fmt.Sprintf(`Object{metadata: Object.metadata{annotations: {%q: "runs"}}}`, probeAnnotation),
				},
			}},
		},
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: p.Name},
	}
	return policy, binding
}

// Acts reports whether the server runs the policy.
func (p Probe) Acts(ctx context.Context, client dynamic.Interface) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": p.ConfigMap, "namespace": p.Namespace}}}
	got, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(p.Namespace).
		Apply(ctx, p.ConfigMap, u, metav1.ApplyOptions{FieldManager: nativeManager, Force: true, DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return false, err
	}
	return got.GetAnnotations()[probeAnnotation] != "", nil
}

// serverProbe returns the probe of a nativeWriter.
func (n *nativeWriter) serverProbe() Probe {
	return Probe{Name: probeName, Namespace: n.of.Namespace, ConfigMap: MutatorsName}
}

// probeUnit returns the unit of the probe.
func (n *nativeWriter) probeUnit() nativepolicies.Unit {
	p, b := n.serverProbe().Objects()
	if n.namespace != nil {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: n.namespace.Name, UID: n.namespace.UID}}
		b.OwnerReferences = p.OwnerReferences
	}
	return nativepolicies.NewUnit(p, b)
}

// probeServer returns whether the server runs policies, and when to test again.
func (n *nativeWriter) probeServer(ctx context.Context, s *NativeState, unit *nativepolicies.Placed) (verdict, time.Duration) {
	p, now := &n.probe, time.Now()
	if left := p.next.Sub(now); left > 0 {
		return p.verdict, left
	}
	stored := len(nativepolicies.Plan([]nativepolicies.Placed{*unit}, objectsNamed(s.Objects, probeName), nil).List) == 0
	runs, err := n.serverProbe().Acts(ctx, n.client)
	wait := probeEvery
	switch {
	case err != nil && apierrors.IsForbidden(err), err == nil && !runs && stored:
		if p.since.IsZero() {
			p.since = now
		}
		if wait = probePause; now.Sub(p.since) >= probePatience {
			p.verdict, wait = no, probeEvery
		}
	case err != nil || !runs:
		wait = probePause // the server did not answer, or the probe is not stored
	default:
		p.verdict, p.since = yes, time.Time{}
	}
	p.next = now.Add(wait)
	return p.verdict, wait
}

// forget deletes the probe. It is called after run has returned.
func (n *nativeWriter) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var errs []error
	for _, binding := range []bool{true, false} {
		key := nativepolicies.Key{Group: api.NativeGroup, Binding: binding, Name: probeName}
		s := n.of.state.Load()
		if s == nil || s.Objects[key] == nil || !s.Objects[key].Ours {
			continue
		}
		err := n.client.Resource(resourceOf(key)).Delete(ctx, probeName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.Objects[key].UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
