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

// Stage is one step of the processing of every request. An Engine runs its stages in order,
// each on the object that the stages before it left.
type Stage struct {
	// Name is the name of the stage in Steps, in the plural, such as "policies". No two stages
	// of an Engine may have the same name.
	Name string
	// Member, Round and Rounds are words for reports: for one member, such as "policy", for one
	// run through the members, such as "round", and for several runs.
	Member, Round, Rounds string
	// Mode says what happens with the result of the stage: only with api.Enforce does it change
	// the object or the response.
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

// Modules returns the stage that runs Kubewarden's mutating policies, each once. Their Index
// has one binding for each policy, which Steps do not name, and it matches deletions too.
func Modules(ix *binding.Index, mode api.Mode) Stage {
	return Stage{Name: ModuleStage, Member: "guest", Round: "round", Rounds: "rounds", Mode: mode, Runner: policies{index: ix, modules: true}}
}

// Validators returns the stage that runs Kubewarden's policies that may not mutate. They see
// the object after all other stages.
func Validators(ix *binding.Index, mode api.Mode) Stage {
	return Stage{Name: ValidatorStage, Member: "validator", Round: "round", Rounds: "rounds", Mode: mode, Runner: policies{index: ix, modules: true}}
}

// Rules returns the stage that runs policies that Kyverno's rules were converted to. name
// returns the name in Steps of a policy of the Index or, with an index from 0 on, of one of its
// mutations: several policies or mutations may stand for one rule, and one policy for several.
// Steps do not name the bindings.
func Rules(ix *binding.Index, mode api.Mode, name func(policy string, mutation int) string) Stage {
	return Stage{Name: RuleStage, Member: "rule", Round: "round", Rounds: "rounds", Mode: mode, Runner: policies{index: ix, rule: name}}
}

// Mutators returns the stage that runs Gatekeeper's mutators.
func Mutators(s *Set, mode api.Mode) Stage {
	return Stage{Name: MutatorStage, Member: "mutator", Round: "pass", Rounds: "passes", Mode: mode, Runner: s}
}

// ModeWord returns the word for the mode of a stage in options and reports: "on" for a stage
// that is enforced.
func ModeWord(m api.Mode) string {
	if m == api.Enforce {
		return "on"
	}
	return m.String()
}

// Runner does the work of a stage. It must be safe for concurrent use.
type Runner interface {
	// Run returns the result of the stage for a.Object. met is false if the stage has no policy
	// for the request; then there is no Record. Run must neither modify a.Object nor retain a.
	Run(ctx context.Context, a *Admission) (result Result, met bool)
}

// Result is the result of a stage for one request.
type Result struct {
	// Object is the content of the object after the stage, in the version of the request; nil
	// if it is unchanged or the request is refused. It must not be modified.
	Object map[string]any
	// Status is the response to the client if the stage refuses the request, else nil.
	Status *metav1.Status
	// Steps are what happened, in order.
	Steps []Step
	// Rounds is how many times the stage ran through its members. For policies it is 1, or 2 if
	// a mutation of the first round completed and the request was not denied (spec §9.3). For
	// mutators the last pass, which changed nothing or failed, counts too, and Rounds is 0 if
	// the first pass changed nothing.
	Rounds int
	// Warnings are for the client.
	Warnings []string
}

// Admission is the state of one request in an Engine. It is used by one goroutine.
type Admission struct {
	Request *policy.Request
	// Object is the object as the stages before left it, nil if the request has none.
	Object *unstructured.Unstructured

	progress
	run run // buffers of the policies' stage, kept for the next request
}

// progress is the part of an Admission that is reset for the next request.
type progress struct {
	options *Options
	ctx     context.Context
	asked   requestAuthorizer
	turn    turn
	grown   int64               // see policy.Input
	known   map[Question]Answer // answers to the questions of expressions
	asks    int                 // number of calls by expressions
	sources []Asked             // of the stage that is running
	waiting []waiting           // invocations and stages that are not enforced, in order
	leftOut []binding.LeftOut   // of all rounds

	// panicked says that the Admission must not be reused.
	panicked bool

	stage *Stage
	steps []Step
	cost  int64 // of the step that is running
	said  policy.Remarks
	began time.Time
	clock time.Duration // from began to the end of the last step
}

// admissions pools Admissions. A Decision must not retain any part of one.
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

// enter prepares a for a stage that gets object.
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

// input returns the input of all steps of a stage that write to draft.
func (a *Admission) input(draft *policy.Draft) policy.Input {
	return policy.Input{
		Request: a.Request, Kind: a.Request.Kind, Resource: a.Request.Resource, Object: draft.Object(), OldObject: a.Request.OldObject,
		Run: policy.Run{Draft: draft, Cost: &a.cost, Turn: &a.turn, Grown: &a.grown, Outside: a},
	}
}

// step adds a step that is not about a mutation and has the outcome Skipped. The caller may
// modify it until it adds the next one.
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
