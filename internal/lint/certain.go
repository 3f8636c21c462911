package lint

import (
	"context"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Certain returns the findings of the rules in a policy that hold whatever else the cluster has:
// all Errors, and the warnings of rules that look at the policy alone. types are the kinds that
// the cluster serves. It returns nothing for a policy that does not compile, or after ctx is
// done.
func Certain(ctx context.Context, program *policy.Policy, env *cel.Env, types *openapi.Types) []policy.Warning {
	if program.Err() != nil {
		return nil
	}
	s := newServed(ctx, types)
	p := &subject{doc: standIn(api.PolicyKind, program.Name()), object: program.Object(), program: program}
	p.read(s, env.Within(ctx))
	if !p.sound {
		return nil
	}
	return s.certain(p)
}

// CertainOfBinding is Certain for the rules and selectors of a binding.
func CertainOfBinding(ctx context.Context, b *admissionregistrationv1.MutatingAdmissionPolicyBinding, types *openapi.Types) []policy.Warning {
	s := newServed(ctx, types)
	p := &subject{doc: standIn(api.PolicyKind, b.Spec.PolicyName), object: &admissionregistrationv1.MutatingAdmissionPolicy{}}
	p.object.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{}
	p.bindings = []*bound{{doc: standIn(api.BindingKind, b.Name), object: b, policy: p}}
	for _, r := range ruleList() {
		if r.Name == unknownResourceRule || r.Name == unreviewedResource || r.Name == selectorRule {
			r.policy(&pass{set: s, rule: &r, subject: p})
		}
	}
	return s.warnings()
}

// MatchesNothing returns the warning that explains why the rules of a policy or of a binding can
// match no request: all resources that they name are unknown or never reviewed, or a selector
// contradicts itself. It returns nil if there is no such warning.
func MatchesNothing(m *admissionregistrationv1.MatchResources, warnings []policy.Warning) *policy.Warning {
	if m == nil {
		return nil
	}
	named, unknown := 0, map[string]bool{}
	for _, r := range m.ResourceRules {
		named += len(r.Resources)
	}
	var first *policy.Warning
	for i, w := range warnings {
		switch {
		case w.Rule == selectorRule:
			return &warnings[i]
		case (w.Rule == unknownResourceRule || w.Rule == unreviewedResource) && strings.Contains(w.Field, ".resourceRules[") && strings.Contains(w.Field, "].resources["):
			if unknown[w.Field] = true; first == nil {
				first = &warnings[i]
			}
		}
	}
	if len(unknown) < named {
		return nil
	}
	return first
}

func newServed(ctx context.Context, types *openapi.Types) *set {
	return &set{
		ctx: ctx, opts: Options{Oldest: CurrentMinor, Newest: CurrentMinor}, types: types, served: true,
		presence: map[string]presence{}, count: map[*manifest.Document]int{},
	}
}

// standIn returns a document for an object that does not come from a file.
func standIn(kind, name string) *manifest.Document {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(api.OwnGroup + "/v1")
	u.SetKind(kind)
	u.SetName(name)
	return &manifest.Document{Object: u}
}

// certain applies the rules to one policy.
func (s *set) certain(p *subject) []policy.Warning {
	for _, r := range ruleList() {
		if r.policy == nil || r.Severity != Error && !r.certain {
			continue
		}
		if s.ctx.Err() != nil {
			return nil
		}
		r.policy(&pass{set: s, rule: &r, subject: p})
	}
	return s.warnings()
}

// warnings returns the findings that are certain.
func (s *set) warnings() (out []policy.Warning) {
	sure := map[string]bool{}
	for _, r := range ruleList() {
		sure[r.Name] = r.certain
	}
	for _, f := range s.findings {
		if f.Severity == Error || f.Severity == Warning && sure[f.Rule] {
			out = append(out, policy.Warning{Rule: f.Rule, Field: f.Field, Line: f.line, Column: f.column, Message: f.Message})
		}
	}
	return out
}
