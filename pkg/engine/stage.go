package engine

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Stage is one part of what every request goes through. An Engine runs its stages
// in order, each on the object that the stages before it left.
type Stage struct {
	// Name is what Steps call the stage, in the plural, such as "policies". No two
	// stages of an Engine share a name.
	Name string
	// Member is one of them, such as "policy". Round is one run through them, such as
	// "round", and Rounds are several. Reports use these words.
	Member, Round, Rounds string
	// Mode says what follows from the result of the stage: neither the object nor the
	// answer changes unless it is api.Enforce.
	Mode   api.Mode
	Runner Runner
}

// Names of the stages that this package makes.
const (
	PolicyStage    = "policies"
	MutatorStage   = "mutators"
	ModuleStage    = "guests"
	ValidatorStage = "validators"
	RuleStage      = "rules"
)

// Policies returns the stage that runs the policies of an Index.
func Policies(ix *binding.Index) Stage {
	return Stage{Name: PolicyStage, Member: "policy", Round: "round", Rounds: "rounds", Runner: policies{index: ix}}
}

// Modules returns the stage that runs Kubewarden's mutating policies, each once. Their
// Index has one binding for each policy, of which Steps say nothing, and finds them for
// deletions too.
func Modules(ix *binding.Index, mode api.Mode) Stage {
	return Stage{Name: ModuleStage, Member: "guest", Round: "round", Rounds: "rounds", Mode: mode, Runner: policies{index: ix, modules: true}}
}

// Validators returns the stage that runs Kubewarden's policies that may not mutate.
// They see the object that all other stages left.
func Validators(ix *binding.Index, mode api.Mode) Stage {
	return Stage{Name: ValidatorStage, Member: "validator", Round: "round", Rounds: "rounds", Mode: mode, Runner: policies{index: ix, modules: true}}
}

// Rules returns the stage that runs policies that stand for Kyverno's. name returns what Steps
// call a policy of the Index, and with an index from 0 on what they call one of its mutations:
// several may stand for one rule, and one for several. Steps say nothing of the bindings.
func Rules(ix *binding.Index, mode api.Mode, name func(policy string, mutation int) string) Stage {
	return Stage{Name: RuleStage, Member: "rule", Round: "round", Rounds: "rounds", Mode: mode, Runner: policies{index: ix, rule: name}}
}

// Mutators returns the stage that runs Gatekeeper's mutators.
func Mutators(s *Set, mode api.Mode) Stage {
	return Stage{Name: MutatorStage, Member: "mutator", Round: "pass", Rounds: "passes", Mode: mode, Runner: s}
}

// ModeWord returns what options and reports call the mode of a stage: one that is
// enforced is on.
func ModeWord(m api.Mode) string {
	if m == api.Enforce {
		return "on"
	}
	return m.String()
}

// Runner does the work of a stage. It must be safe for concurrent use.
type Runner interface {
	// Run returns what the stage makes of a.Object. met is false if the stage has
	// nothing to do with the request, which then leaves no Record. Run must neither
	// modify a.Object nor retain a.
	Run(ctx context.Context, a *Admission) (result Result, met bool)
}

// Result is what a stage makes of one request.
type Result struct {
	// Object is the content of the object after the stage, in the version in which
	// the request holds it; nil if it is unchanged or the request is refused. Nobody
	// may modify it.
	Object map[string]any
	// Status is the client's answer if the stage refuses the request, else nil.
	Status *metav1.Status
	// Steps are what happened, in order.
	Steps []Step
	// Rounds is how many times the stage ran through its members. For policies it is
	// 1, or 2 if a mutation of the first round completed and the request was not
	// denied (spec §9.3). For mutators the last one is that which changed nothing
	// or failed, and it is 0 if already the first changed nothing.
	Rounds int
	// Warnings are for the client.
	Warnings []string
}

// Admission is one request on its way through the stages of an Engine. It is used
// by one goroutine.
type Admission struct {
	Request *policy.Request
	// Object is the object as the stages before left it, nil if the request has none.
	Object *unstructured.Unstructured

	progress
	run run // buffers of the policies' stage, kept for the next request
}

// progress is what the next request must not see of an Admission.
type progress struct {
	options *Options
	ctx     context.Context
	asked   requestAuthorizer
	turn    turn
	grown   int64               // see policy.Input
	known   map[Question]Answer // what expressions have asked
	asks    int                 // how many times they did
	sources []Asked             // of the stage that is running
	waiting []waiting           // what is not enforced, in order
	leftOut []binding.LeftOut   // of all rounds

	// panicked says that nobody may reuse the Admission.
	panicked bool

	stage *Stage
	steps []Step
	cost  int64 // of the step that is running
	said  policy.Remarks
	began time.Time
	clock time.Duration // from began to the end of the last step
}

// admissions pools Admissions. A Decision must not retain anything of one.
var admissions = sync.Pool{New: func() any { return new(Admission) }}

func newAdmission(ctx context.Context, e *Engine, req *policy.Request) *Admission {
	a := admissions.Get().(*Admission)
	a.Request, a.options, a.ctx = req, &e.options, ctx
	a.turn.lane = e.lane
	a.asked.Authorizer = e.options.Authorizer
	return a
}

func (a *Admission) end() {
	a.turn.leave()
	a.Request, a.Object, a.progress = nil, nil, progress{}
	admissions.Put(a)
}

// enter makes a ready for a stage that takes the object.
func (a *Admission) enter(s *Stage, object *unstructured.Unstructured) {
	a.stage, a.Object, a.steps, a.sources = s, object, nil, nil
}

// startClock starts to measure the steps of a stage.
func (a *Admission) startClock() { a.began, a.clock = time.Now(), 0 }

// stepTime returns the time since its last call, or since startClock.
func (a *Admission) stepTime() time.Duration {
	now := time.Since(a.began)
	d := now - a.clock
	a.clock = now
	return d
}

// input returns what all steps of a stage see that writes to a draft.
func (a *Admission) input(draft *policy.Draft) policy.Input {
	return policy.Input{
		Request: a.Request, Kind: a.Request.Kind, Resource: a.Request.Resource, Object: draft.Object(), OldObject: a.Request.OldObject,
		Run: policy.Run{Draft: draft, Cost: &a.cost, Turn: &a.turn, Grown: &a.grown, Outside: a},
	}
}

// step adds a step about no mutation, skipped so far. The caller may fill it in
// until it adds the next one.
func (a *Admission) step(round int, policyName, bindingName string, params *unstructured.Unstructured) *Step {
	a.steps = append(a.steps, Step{Stage: a.stage.Name, Round: round, Policy: policyName, Binding: bindingName, Mutation: -1})
	step := &a.steps[len(a.steps)-1]
	if params != nil {
		step.Param = params.GetName()
		if ns := params.GetNamespace(); ns != "" {
			step.Param = ns + "/" + step.Param
		}
	}
	return step
}
