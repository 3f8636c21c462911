package lint

import (
	"context"
	"fmt"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// set has all documents of a run.
type set struct {
	ctx      context.Context
	opts     Options
	types    *openapi.Types
	policies []*subject
	bindings []*bound
	// namespaces and others are objects that selectors and parameters may refer to.
	namespaces []*unstructured.Unstructured
	others     []*unstructured.Unstructured
	mutators   []*manifest.Document // Gatekeeper's
	kyverno    []*manifest.Document // Kyverno's policies
	exceptions []*manifest.Document // PolicyExceptions
	misspelt   []*manifest.Document // documents whose kind or apiVersion is probably a misspelled policy's
	presence   map[string]presence  // results of presence lookups, for all policies
	// served: types are all kinds that the cluster serves.
	served bool

	findings, readErrors []Finding
	count                map[*manifest.Document]int
	more                 bool
}

// subject is a policy with what rules need to know about it.
type subject struct {
	doc    *manifest.Document
	object *admissionregistrationv1.MutatingAdmissionPolicy
	faults api.Faults
	// sound: the policy is valid and compiles, and its expressions are parsed.
	sound    bool
	program  *policy.Policy
	warned   bool
	warnings []policy.Warning
	bindings []*bound
	// exprs are the conditions, the variables and the mutations.
	exprs []*expression
	// kinds are those that the rules name. more: the rules match further kinds.
	kinds []schema.GroupVersionKind
	more  bool
	// operations are those that the rules match.
	operations map[string]bool
	work       int                 // the work of the rules so far, see spend
	presence   map[string]presence // results of presence lookups for this policy
	settings   []setting           // for the rule "order-dependent"
	found      map[string]found    // by rules, see memory.look
}

// maxWork bounds the work of rules for one policy, to about a second. Policies that people write
// need some thousands.
const maxWork = 3_000_000

// spend adds to the work for a policy. It returns false if that exceeds maxWork; rules then
// report nothing more.
func (p *subject) spend(work int) bool {
	p.work += work
	return p.work < maxWork
}

// expression is one expression of a policy.
type expression struct {
	part  api.Part
	index int
	name  string // of a variable or condition
	field string
	text  string
	patch bool // it is a JSON patch
	root  *syntax.Node
	ops   []*operation // of a JSON patch

	looked map[bool]facts // of a variable, see resolver.look
	sets   []write        // of a mutation, see subject.writes
	setsOf bool           // sets is known
}

// bound is a binding.
type bound struct {
	doc    *manifest.Document
	object *admissionregistrationv1.MutatingAdmissionPolicyBinding
	faults api.Faults
	policy *subject // nil if the policy does not exist
}

func group(d *manifest.Document) string { return d.Object.GroupVersionKind().Group }

// languages caches the CEL environments by minor release, because creating one takes longer than
// using it.
var languages sync.Map // of func() (*cel.Env, error), by minor

// language returns the CEL environment of a minor release.
func language(minor int) (*cel.Env, error) {
	made, _ := languages.LoadOrStore(minor, sync.OnceValues(func() (*cel.Env, error) {
		return cel.NewEnv(cel.Options{Version: fmt.Sprintf("1.%d", minor)})
	}))
	return made.(func() (*cel.Env, error))()
}

// understand parses the policy, if it compiles.
func (p *subject) understand(s *set) error {
	if p.program == nil {
		return nil
	}
	env, err := language(s.opts.Newest)
	if err != nil {
		return err
	}
	if group(p.doc) == api.OwnGroup {
		env = env.Asking()
	}
	p.read(s, env.Within(s.ctx))
	return nil
}

// read collects the kinds, operations and expressions of the policy.
func (p *subject) read(s *set, env *cel.Env) {
	p.parse(env)
	spec := &p.object.Spec
	p.kinds, p.more = policy.Targets(spec.MatchConstraints, s.types)
	p.operations = map[string]bool{}
	for _, r := range spec.MatchConstraints.ResourceRules {
		for _, o := range r.Operations {
			if o == "*" {
				p.operations["CREATE"], p.operations["UPDATE"], p.operations["CONNECT"] = true, true, true
				continue
			}
			p.operations[string(o)] = true
		}
	}
	for _, e := range p.exprs {
		if e.patch {
			e.ops = operations(p, e.root)
		}
	}
}

// parse reads the expressions.
func (p *subject) parse(env *cel.Env) {
	spec := &p.object.Spec
	params := spec.ParamKind != nil
	conditions := env.Scope(cel.Vars{Params: params})
	scope := env.Scope(cel.Vars{Params: params, Variables: true})
	p.sound = true
	add := func(scope *cel.Scope, want cel.Want, e expression) {
		root, err := scope.Syntax(e.text, want)
		if err != nil {
			// The expressions compile, so this is the end of ctx.
			p.sound = false
			return
		}
		e.root = root
		p.exprs = append(p.exprs, &e)
	}
	for i, c := range spec.MatchConditions {
		add(conditions, cel.Bool, expression{part: api.MatchConditions, index: i, name: c.Name, text: c.Expression,
			field: fmt.Sprintf("spec.matchConditions[%d].expression", i)})
	}
	for i, v := range spec.Variables {
		add(scope, cel.Anything, expression{part: api.Variables, index: i, name: v.Name, text: v.Expression,
			field: fmt.Sprintf("spec.variables[%d].expression", i)})
		if scope.Define(v.Name, v.Expression) != nil {
			p.sound = false
		}
	}
	for i, m := range spec.Mutations {
		switch {
		case m.ApplyConfiguration != nil:
			add(scope, cel.Object, expression{part: api.Mutations, index: i, text: m.ApplyConfiguration.Expression,
				field: fmt.Sprintf("spec.mutations[%d].applyConfiguration.expression", i)})
		case m.JSONPatch != nil:
			add(scope, cel.JSONPatch, expression{part: api.Mutations, index: i, text: m.JSONPatch.Expression, patch: true,
				field: fmt.Sprintf("spec.mutations[%d].jsonPatch.expression", i)})
		}
	}
}

// ofPart returns the expressions of a part of the spec.
func (p *subject) ofPart(part api.Part) (out []*expression) {
	for _, e := range p.exprs {
		if e.part == part {
			out = append(out, e)
		}
	}
	return out
}

// variable returns the definition of variables.name, nil if there is none.
func (p *subject) variable(name string) *expression {
	for _, e := range p.exprs {
		if e.part == api.Variables && e.name == name {
			return e
		}
	}
	return nil
}

// kindName returns a kind as text: apps/v1 Deployment.
func kindName(gvk schema.GroupVersionKind) string {
	return gvk.GroupVersion().String() + " " + gvk.Kind
}

func kindNames(kinds []schema.GroupVersionKind) string {
	var out []string
	for _, k := range kinds {
		out = append(out, kindName(k))
	}
	return strings.Join(out, ", ")
}

// kindless reports whether err says that a document has no kind. The original error of package
// unstructured was converted to a text before.
func kindless(err error) bool { return strings.HasPrefix(err.Error(), "Object 'Kind' is missing") }
