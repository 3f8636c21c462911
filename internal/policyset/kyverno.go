package policyset

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
	kyverno "github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/internal/parallel"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// kyvernoDocuments are Kyverno's mutating policies. They run as the MutatingAdmissionPolicies to
// which they are converted.
type kyvernoDocuments struct{}

func (kyvernoDocuments) on(o *Options) bool { return convertsKyverno && o.Kyverno != api.Off }
func (kyvernoDocuments) parameters() bool   { return false }
func (kyvernoDocuments) readsAll() bool     { return false }
func (kyvernoDocuments) takes(gvk schema.GroupVersionKind, _ string) bool {
	return kyverno.Is(gvk)
}
func (kyvernoDocuments) namespaced(gvk schema.GroupVersionKind) bool {
	return kyverno.IsNamespaced(gvk.Kind)
}

// kinds returns the kinds of both groups; files of Kyverno's own command use the first group,
// too.
func (kyvernoDocuments) kinds() map[string][]string {
	return map[string][]string{
		kyverno.Group: {
			"ClusterPolicy", "Policy", "PolicyException", "CleanupPolicy", "ClusterCleanupPolicy", "GlobalContextEntry", "UpdateRequest", "GenerateRequest",
			"AdmissionReport", "ClusterAdmissionReport", "BackgroundScanReport", "ClusterBackgroundScanReport", "ReportChangeRequest", "ClusterReportChangeRequest",
			"Test", "Value", "Values", "UserInfo",
		},
		kyverno.CELGroup: {
			"ValidatingPolicy", "NamespacedValidatingPolicy", "MutatingPolicy", "NamespacedMutatingPolicy", "GeneratingPolicy", "NamespacedGeneratingPolicy",
			"DeletingPolicy", "NamespacedDeletingPolicy", "ImageValidatingPolicy", "NamespacedImageValidatingPolicy", "PolicyException",
		},
	}
}

// KyvernoRule is the result of converting a mutate rule of one of Kyverno's policies.
type KyvernoRule struct {
	// Name is the rule's name in Steps, such as "ClusterPolicy/labels/add-team". A MutatingPolicy
	// has no rules, so its name is the policy's.
	Name string
	// Rule is its name in the policy.
	Rule string
	// Document has the rule, at Path.
	Document *manifest.Document
	Path     string
	// Unconverted is the reason why the rule has no effect, "" if it was converted.
	Unconverted string
	// Reorders: the order of a list with a key may differ from Kyverno's.
	Reorders bool
	// Says is what a user should know about the rule, "" if it has exactly Kyverno's effect.
	Says string
}

// Text is Says with the place where the rule stands, if it is of a file.
func (r *KyvernoRule) Text() string {
	text := r.Says
	live := r.Document.File == manifest.Name(r.Document.Object)
	if at := r.Document.ErrorAt(r.Path, nil); text != "" && !live && at.Column > 0 {
		return fmt.Sprintf("%s:%d:%d: %s", at.File, at.Line, at.Column, text)
	}
	return text
}

// converted is the result for one policy.
type converted struct {
	rules []KyvernoRule
	// others names the rules that do not mutate.
	others   []string
	programs []program
	errs     []error
}

// program is a policy to which rules were converted.
type program struct {
	policy  *policy.Policy
	binding *binding.Binding
	// called has the name in Steps of the policy, followed by those of its mutations.
	called []string
}

// builtKyverno is their result.
type builtKyverno struct {
	rules     []KyvernoRule
	others    []string
	converted map[*manifest.Document]*converted
}

// Kyverno returns the result for each mutate rule of Kyverno's policies.
func (s *Snapshot) Kyverno() []KyvernoRule {
	return resultOf[builtKyverno](s, kyvernoDocuments{}).rules
}

// NotMutating returns the names of the other rules of policies that have a mutate rule.
func (s *Snapshot) NotMutating() []string {
	return resultOf[builtKyverno](s, kyvernoDocuments{}).others
}

// build converts the policies, and compiles the results.
func (kyvernoDocuments) build(b *builder, docs []*manifest.Document, opts *Options) {
	if len(docs) == 0 {
		return
	}
	all := make([]*converted, len(docs))
	parallel.Each(len(docs), func(i int) {
		if b.like != nil {
			all[i] = resultOf[builtKyverno](b.like, kyvernoDocuments{}).converted[docs[i]]
		}
		if all[i] == nil {
			all[i] = convertKyverno(docs[i], policy.Deps{Env: b.env, Types: b.snapshot.Types})
		}
	})
	result := builtKyverno{converted: make(map[*manifest.Document]*converted, len(docs))}
	called := map[string][]string{} // by the name in the index
	var programs []*policy.Policy
	var bindings []*binding.Binding
	for i, c := range all {
		result.converted[docs[i]] = c
		b.errs = append(b.errs, c.errs...)
		result.rules = append(result.rules, c.rules...)
		switch {
		case len(c.errs) > 0:
		case len(c.rules) == 0:
			b.snapshot.Ignored[docs[i].Object.GetKind()]++
		case len(c.others) > 0:
			result.others = append(result.others, docs[i].Name()+": "+strings.Join(c.others, ", "))
		}
		for _, p := range c.programs {
			programs, bindings = append(programs, p.policy), append(bindings, p.binding)
			called[p.policy.Name()] = p.called
		}
	}
	b.snapshot.results[kyvernoDocuments{}] = result
	if len(b.errs) > 0 || len(programs) == 0 {
		return
	}
	ix, err := binding.NewIndex(programs, bindings, binding.Sources{
		Params: b.params, Namespaces: b.snapshot.Namespaces, Equivalents: Equivalents(b.snapshot.Types),
	})
	if err != nil {
		b.fail(err)
		return
	}
	b.snapshot.stages = append(b.snapshot.stages, engine.Rules(ix, opts.Kyverno, func(policy string, mutation int) string {
		return called[policy][mutation+1]
	}))
}

// KyvernoRules returns the results for the mutate rules of one of Kyverno's policies. It returns
// errors for a policy that Kyverno would refuse.
func KyvernoRules(d *manifest.Document, deps policy.Deps) ([]KyvernoRule, []error) {
	c := convertKyverno(d, deps)
	return c.rules, c.errs
}
