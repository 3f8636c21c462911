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

// set is everything that was given.
type set struct {
	ctx      context.Context
	opts     Options
	types    *openapi.Types
	policies []*subject
	bindings []*bound
	// namespaces and others are what selectors and parameters are held against.
	namespaces []*unstructured.Unstructured
	others     []*unstructured.Unstructured
	mutators   []*manifest.Document // Gatekeeper's
	kyverno    []*manifest.Document // Kyverno's policies
	exceptions []*manifest.Document // PolicyExceptions
	misspelt   []*manifest.Document // documents that may be policies under a wrong name
	presence   map[string]presence  // of parts that were looked for, whoever asked
	// served says that types are all that the cluster of the policies serves.
	served bool

	findings, readErrors []Finding
	count                map[*manifest.Document]int
	more                 bool
}

// subject is a policy.
type subject struct {
	doc    *manifest.Document
	object *admissionregistrationv1.MutatingAdmissionPolicy
	faults api.Faults
	// sound says that it is valid, compiles, and that its expressions are there.
	sound    bool
	program  *policy.Policy
	warned   bool
	warnings []policy.Warning
	bindings []*bound
	// exprs are the conditions, the variables and the mutations.
	exprs []*expression
	// kinds are those that the rules name; more says that they let in others.
	kinds []schema.GroupVersionKind
	more  bool
	// operations that the rules let in.
	operations map[string]bool
	work       int                 // that rules did
	presence   map[string]presence // of parts that rules asked for
	settings   []setting           // for the rule "order-dependent"
	found      map[string]found    // by rules, see memory.look
}

// maxWork bounds what rules do for one policy, to about a second. What a policy that somebody
// wrote needs is some thousands.
const maxWork = 3_000_000

// spend counts work, and returns false if there was too much. Rules then say nothing more.
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
	policy *subject // nil if it is not there
}

func group(d *manifest.Document) string { return d.Object.GroupVersionKind().Group }

// languages are kept, since making one takes longer than using it.
var languages sync.Map // of func() (*cel.Env, error), by minor

// language returns the language of a minor.
func language(minor int) (*cel.Env, error) {
	made, _ := languages.LoadOrStore(minor, sync.OnceValues(func() (*cel.Env, error) {
		return cel.NewEnv(cel.Options{Version: fmt.Sprintf("1.%d", minor)})
	}))
	return made.(func() (*cel.Env, error))()
}

// understand takes the policy apart, if it compiles.
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

// read takes the policy apart.
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
			// It has just compiled; what is left is the end of ctx.
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

// ofPart are the expressions of a part of the spec.
func (p *subject) ofPart(part api.Part) (out []*expression) {
	for _, e := range p.exprs {
		if e.part == part {
			out = append(out, e)
		}
	}
	return out
}

// variable is the definition of variables.name, nil if there is none.
func (p *subject) variable(name string) *expression {
	for _, e := range p.exprs {
		if e.part == api.Variables && e.name == name {
			return e
		}
	}
	return nil
}

// kindName is a kind as it is written in a manifest: apps/v1 Deployment.
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

// kindless says that a document is no object: it has no kind. The error of package
// unstructured has become a text on its way.
func kindless(err error) bool { return strings.HasPrefix(err.Error(), "Object 'Kind' is missing") }
