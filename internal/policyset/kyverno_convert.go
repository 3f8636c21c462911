//go:build !js

package policyset

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/kyverno/convert"
	kyverno "github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

// convertsKyverno reports whether this build has the converter.
const convertsKyverno = true

func convertKyverno(d *manifest.Document, deps policy.Deps) *converted {
	p, errs := kyverno.Read(d)
	if len(errs) > 0 {
		return &converted{errs: errs}
	}
	result := convert.Policy(p, convert.Options{Types: deps.Types, Apart: true})
	c := &converted{}
	at := map[string]string{} // paths by the names of rules
	if p.Rules != nil {
		for i := range p.Rules.Rules {
			rule := &p.Rules.Rules[i]
			at[rule.Name] = fmt.Sprintf("spec.rules[%d].name", i)
			if does := rule.Does(); does != "mutate" {
				c.others = append(c.others, fmt.Sprintf("%s (%s)", rule.Name, does))
			}
		}
	}
	name := func(rule string) string {
		if p.CEL != nil {
			return p.ID()
		}
		return p.ID() + "/" + rule
	}
	for _, r := range result.Rules {
		c.rules = append(c.rules, ruleOf(name(r.Name), d, cmp.Or(at[r.Name], "metadata.name"), &r))
	}
	for i := range result.Units {
		made, err := compileUnit(&result.Units[i], fmt.Sprintf("%s#%d", p.ID(), i), deps)
		if err != nil {
			c.refuse(d, err)
			return c
		}
		whole := p.ID()
		if len(result.Units[i].Rules) == 1 {
			whole = name(result.Units[i].Rules[0])
		}
		made.called = []string{whole}
		for _, rule := range result.Units[i].Mutations {
			made.called = append(made.called, name(rule))
		}
		c.programs = append(c.programs, made)
	}
	return c
}

// ruleOf returns the result of converting a rule.
func ruleOf(name string, d *manifest.Document, path string, r *convert.Rule) KyvernoRule {
	out := KyvernoRule{Name: name, Rule: r.Name, Document: d, Path: path, Reorders: r.Reorders}
	why := strings.Join(r.Reasons, "; ")
	switch {
	case !r.Converted():
		out.leaveOut(why, r.Instead)
	case r.Verdict != convert.Exact:
		out.Says = fmt.Sprintf("%s: %s: %s", name, r.Verdict, why)
	}
	return out
}

// leaveOut marks the rule as not converted.
func (r *KyvernoRule) leaveOut(why, instead string) {
	r.Unconverted = why
	r.Says = fmt.Sprintf("%s is not converted and changes nothing: %s", r.Name, why)
	if instead != "" {
		r.Says += "; instead: " + instead
	}
}

// compileUnit compiles a converted policy under a name that no other policy has.
func compileUnit(u *convert.Unit, unique string, deps policy.Deps) (p program, err error) {
	object, err := policy.Decode(api.Object(u.Policy, api.NativeGroup))
	if err != nil {
		return p, err
	}
	bound, err := binding.Decode(api.Object(u.Binding, api.NativeGroup))
	if err != nil {
		return p, err
	}
	if faults := policy.Validate(object, deps.Env); len(faults) > 0 {
		return p, faults
	}
	object.Name, bound.Name, bound.Spec.PolicyName = unique, unique, unique
	if p.policy, err = policy.Compile(object, deps); err != nil {
		return p, err
	}
	p.binding, err = binding.Compile(bound)
	return p, err
}

// refuse marks all rules of the policy as not converted, because a converted policy does not
// compile.
func (c *converted) refuse(d *manifest.Document, err error) {
	c.programs = nil
	fault := api.FaultsOf(err)[0]
	for i := range c.rules {
		r := &c.rules[i]
		if r.Unconverted != "" {
			continue
		}
		r.leaveOut(fmt.Sprintf("an API server refuses the policy that it becomes: %v", fault), "")
		if r.Path == "metadata.name" && fault.Path != "" {
			r.Path = fault.Path // a MutatingPolicy has the same fields as the converted policy
		}
	}
}
