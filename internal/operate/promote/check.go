package promote

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/requests"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Level says what a CheckResult means for the move.
type Level string

// The levels.
const (
	OK     Level = "ok"
	Note   Level = "note"   // something is different afterwards
	Window Level = "window" // only with a window in which requests are mutated twice
	Refuse Level = "refuse" // the policy is not moved
)

// CheckResult is the result of one check.
type CheckResult struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Text  string `json:"text"`
	// Row is the row of docs/reference/compat.md that says more.
	Row string `json:"row,omitempty"`
}

// Subject is a policy that is to be moved, with the objects that the checks need.
type Subject struct {
	Direction        Direction
	Policy           *unstructured.Unstructured
	Bindings         []*unstructured.Unstructured
	Minor            int      // of the server
	Exempt           []string // namespaces that mapd excludes
	Others           int      // policies that stay with mapd
	Versions         map[string][]string
	Context          []*unstructured.Unstructured // parameters, Namespaces, definitions
	Given, Live      []*unstructured.Unstructured
	ParamKindMissing bool // the server does not serve the policy's paramKind
	Excepted         Excepted
}

// feature is something in a policy that behaves differently in the API server.
type feature struct {
	row string
	// has describes the difference, "" if the policy is not affected.
	has func(s *Subject, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, text string) string
}

func builtinGroup(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// anyRule reports whether a rule of a policy's matchConstraints satisfies f.
func anyRule(spec *admissionregistrationv1.MutatingAdmissionPolicySpec, f func(r *admissionregistrationv1.NamedRuleWithOperations) bool) bool {
	return spec.MatchConstraints != nil && slices.ContainsFunc(spec.MatchConstraints.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool { return f(&r) })
}

func patches(spec *admissionregistrationv1.MutatingAdmissionPolicySpec) bool {
	return slices.ContainsFunc(spec.Mutations, func(m admissionregistrationv1.Mutation) bool { return m.JSONPatch != nil })
}

var fromRequest = regexp.MustCompile(`\b(request\.|namespaceObject\b)`)

// features are the rows of docs/reference/compat.md that depend on the policy.
var features = []feature{
	{"g1-first", func(s *Subject, _ *admissionregistrationv1.MutatingAdmissionPolicySpec, _ string) string {
		if s.Others == 0 {
			return ""
		}
		return fmt.Sprintf("it runs before all webhooks, so before the other policies of mapd (%d) and before mutators, whatever its name", s.Others)
	}},
	{"stable-order", func(*Subject, *admissionregistrationv1.MutatingAdmissionPolicySpec, string) string {
		return "among native policies it runs in any order, which changes"
	}},
	{"exempt-namespaces", func(s *Subject, _ *admissionregistrationv1.MutatingAdmissionPolicySpec, _ string) string {
		if len(s.Exempt) == 0 {
			return ""
		}
		return "native bindings leave out what mapd leaves out, by their namespaceSelector: " + strings.Join(s.Exempt, ", ")
	}},
	{"g2-passes", func(_ *Subject, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, _ string) string {
		if spec.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy {
			return ""
		}
		return "reinvocationPolicy IfNeeded: it runs again if anything has changed the object after it, and mapd runs both rounds in each call"
	}},
	{"server-defaults", func(_ *Subject, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, _ string) string {
		if len(spec.Mutations) < 2 {
			return ""
		}
		return "a server fills in defaults between its mutations"
	}},
	{"reflection-values", func(s *Subject, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, text string) string {
		builtin := spec.ParamKind != nil && builtinGroup(groupOf(spec.ParamKind.APIVersion))
		if s.Minor < 37 || !builtin && len(spec.MatchConditions) == 0 && !fromRequest.MatchString(text) {
			return ""
		}
		return "a server of 1.37 refuses to copy lists and maps of params of a built-in kind, of request and namespaceObject, and of object after matchConditions"
	}},
	{"decode-errors", func(_ *Subject, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, _ string) string {
		if !patches(spec) || spec.FailurePolicy == nil || *spec.FailurePolicy != admissionregistrationv1.Ignore {
			return ""
		}
		return "a JSONPatch whose result does not decode fails the request in spite of failurePolicy: Ignore"
	}},
	{"custom-scale", func(_ *Subject, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, _ string) string {
		if !patches(spec) || !anyRule(spec, func(r *admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.ContainsFunc(r.Resources, func(n string) bool { return strings.HasSuffix(n, "/scale") || n == "*/*" }) &&
				slices.ContainsFunc(r.APIGroups, func(g string) bool { return !builtinGroup(g) })
		}) {
			return ""
		}
		return "a JSONPatch on the scale of a custom resource fails in the server"
	}},
	{"g6-versions", func(s *Subject, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, _ string) string {
		if spec.MatchConstraints == nil || spec.MatchConstraints.MatchPolicy != nil && *spec.MatchConstraints.MatchPolicy == admissionregistrationv1.Exact {
			return ""
		}
		missing := ""
		anyRule(spec, func(r *admissionregistrationv1.NamedRuleWithOperations) bool {
			for _, g := range r.APIGroups {
				for _, v := range s.Versions[g] {
					if builtinGroup(g) && !slices.Contains(r.APIVersions, v) && !slices.Contains(r.APIVersions, "*") {
						missing = g + "/" + v
					}
				}
			}
			return false
		})
		if missing == "" {
			return ""
		}
		return "requests in other versions of built-in kinds, such as " + missing + ", are converted and then fail; name all versions in the rules"
	}},
	{"g12-admission-kinds", func(_ *Subject, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, _ string) string {
		if !anyRule(spec, func(r *admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Contains(r.APIGroups, api.NativeGroup) || slices.Contains(r.APIGroups, "*")
		}) {
			return ""
		}
		return "it begins to act on webhook configurations, about which a server asks no webhook"
	}},
	{"g10-params", func(_ *Subject, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, _ string) string {
		if spec.ParamKind == nil {
			return ""
		}
		return "the server reads " + spec.ParamKind.Kind + " itself; mapd needs its right to read them for other policies only"
	}},
	{"g11-authorizer", func(_ *Subject, _ *admissionregistrationv1.MutatingAdmissionPolicySpec, text string) string {
		if !strings.Contains(text, "authorizer") {
			return ""
		}
		return "checks of the authorizer are answered by the server in process, those of conditional authorizers too"
	}},
	{"g14-away", func(_ *Subject, spec *admissionregistrationv1.MutatingAdmissionPolicySpec, _ string) string {
		if spec.FailurePolicy == nil || *spec.FailurePolicy != admissionregistrationv1.Ignore {
			return "requests no longer fail while mapd is away"
		}
		return "requests are no longer left alone while mapd is away"
	}},
}

func groupOf(apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// maxTwice bounds the check whether a policy changes its own result.
const maxTwice = 20_000

// Check describes what would be different after the move, and whether the policy can be moved at
// all. An error is that of ctx.
func Check(ctx context.Context, s *Subject) ([]CheckResult, error) {
	var out []CheckResult
	add := func(level Level, check, row, format string, args ...any) {
		out = append(out, CheckResult{check, level, fmt.Sprintf(format, args...), row})
	}
	typed, err := policy.Decode(s.Policy)
	if err != nil {
		add(Refuse, "policy", "", "the policy cannot be read: %v", err)
		return out, nil
	}
	s.rollout(add)
	if s.Direction == Native {
		for _, text := range s.Excepted.Unsaid {
			add(Refuse, "exceptions", "exceptions", "%s", text)
		}
		if n := len(s.Excepted.Conditions); n > 0 {
			add(Note, "exceptions", "exceptions", "exceptions (%d) become matchConditions of the native policy; what becomes of them afterwards changes nothing there", n)
		}
	}
	text := string(manifest.Encode(s.Policy.Object["spec"]))
	if s.Direction == Native {
		env, err := cel.NewEnv(cel.Options{Version: fmt.Sprintf("1.%d", min(s.Minor, lint.NewestMinor))})
		if err != nil {
			return nil, err
		}
		if faults := policy.Validate(typed, env); len(faults) > 0 {
			row := ""
			if strings.Contains(text, "externalData") {
				row = "external-data"
			}
			add(Refuse, "server", row, "a server of 1.%d does not accept it: %v", s.Minor, faults.ToAggregate())
		} else {
			add(OK, "server", "", "a server of 1.%d accepts it", s.Minor)
		}
		if s.ParamKindMissing {
			add(Refuse, "params", "g10-params", "the server does not serve %s, kind %s", typed.Spec.ParamKind.APIVersion, typed.Spec.ParamKind.Kind)
		}
		for _, f := range features {
			if what := f.has(s, &typed.Spec, text); what != "" {
				add(Note, "difference", f.row, "%s", what)
			}
		}
	}
	if err := s.lint(ctx, add); err != nil {
		return nil, err
	}
	err = s.twice(ctx, add)
	return out, err
}

type adder func(level Level, check, row, format string, args ...any)

// rollout refuses to promote a policy that mapd does not enforce everywhere, unless it is being
// moved: then Decide checks that and goes back. For a demotion, rollout notes where mapd will not
// enforce the policy.
func (s *Subject) rollout(add adder) {
	if s.Direction == Mapd {
		if rec, err := recordOf(s.Policy); err == nil && rec != nil && s.Policy.GroupVersionKind().Group == api.OwnGroup {
			for _, text := range limits(s.Policy, s.Bindings, rec.Modes) {
				add(Note, "mode", "rollout-annotations", "mapd will not do all that the server does: %s", text)
			}
		}
		return
	}
	if isMoving(s.Policy) {
		add(OK, "mode", "", "the policy is being moved already; if mapd no longer enforces it, it goes back")
		return
	}
	why := limits(s.Policy, s.Bindings, nil)
	for _, text := range why {
		add(Refuse, "mode", "rollout-annotations", "%s", text)
	}
	if len(why) == 0 {
		add(OK, "mode", "", "the policy and its bindings (%d) are enforced", len(s.Bindings))
	}
	if text := s.Policy.GetAnnotations()[api.BreakerAnnotation]; text != "" {
		add(Note, "mode", "rollout-annotations", "a server has no breaker: %s: %s no longer counts", api.BreakerAnnotation, text)
	}
}

// isMoving reports whether a policy is being moved, so that its mode may be that of a canary.
func isMoving(p *unstructured.Unstructured) bool { return p.GetAnnotations()[recordAnnotation] != "" }

// lint runs the rules of internal/lint for the server's version, on the policy and its
// bindings as they will be written: some rules are about one group only.
func (s *Subject) lint(ctx context.Context, add adder) error {
	group := api.OwnGroup
	if s.Direction == Native {
		group = api.NativeGroup
	}
	var text []byte
	about := map[string]bool{}
	for _, u := range append([]*unstructured.Unstructured{s.Policy}, s.Bindings...) {
		u = bare(&Object{Unstructured: u}, group)
		about[manifest.Name(u)] = true
		text = append(append(text, "---\n"...), manifest.Encode(u.Object)...)
	}
	for _, u := range s.Context {
		text = append(append(text, "---\n"...), manifest.Encode(plain(u).Object)...)
	}
	minor := max(lint.OldestMinor, min(s.Minor, lint.NewestMinor))
	r, err := lint.Run(ctx, []lint.Source{{Name: "cluster", Data: text}}, lint.Options{Oldest: minor, Newest: minor})
	if err != nil {
		return err
	}
	n := 0
	for _, f := range r.Findings {
		if !about[f.Object] || f.Severity == lint.Info {
			continue
		}
		level := Note
		if f.Severity == lint.Error {
			level = Refuse
		}
		n++
		add(level, "lint", "", "%s, %s: %s (%s)", f.Object, f.Field, f.Message, f.Rule)
	}
	switch {
	case r.More:
		add(Note, "lint", "", "there are more findings than are shown; run mapd lint --kubernetes 1.%d", minor)
	case n == 0:
		add(OK, "lint", "", "no finding for servers of 1.%d", minor)
	}
	return nil
}

// plain returns an object without the fields that a server adds and without mapd's annotations.
func plain(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	u.SetManagedFields(nil)
	annotations := u.GetAnnotations()
	for _, a := range []string{recordAnnotation, keptAnnotation, lastAppliedAnnotation, modeAnnotation} {
		delete(annotations, a)
	}
	u.SetAnnotations(annotations)
	delete(u.Object, "status")
	return u
}

// twice checks that the policy does not change its own result, on given, live and generated
// objects.
func (s *Subject) twice(ctx context.Context, add adder) error {
	env, err := cel.NewEnv(cel.Options{Observe: true})
	if err != nil {
		return err
	}
	var text []byte
	var namespaces []string
	for _, u := range append(append([]*unstructured.Unstructured{s.Policy}, s.Bindings...), s.Context...) {
		u = plain(u)
		if api.IsAdmission(u.GroupVersionKind().Group) {
			u.SetAPIVersion(api.OwnGroup + "/v1")
			if u.GetKind() == api.BindingKind { // so that the policy also runs on objects that the binding does not select
				unstructured.RemoveNestedField(u.Object, "spec", "matchResources")
			}
		}
		if u.GetKind() == "Namespace" && u.GetAPIVersion() == "v1" && len(namespaces) < 3 {
			namespaces = append(namespaces, u.GetName())
		}
		text = append(append(text, "---\n"...), manifest.Encode(u.Object)...)
	}
	policies, err := mapd.Load(mapd.Options{Unbound: len(s.Bindings) == 0, ToolOptions: mapd.ToolOptions{Env: env}}, mapd.File{Name: "cluster", Data: text})
	if err != nil {
		add(Refuse, "twice", "", "the policy cannot be tried: %v", err)
		return ctx.Err()
	}
	t := &trial{ctx: ctx, policies: policies}
	for _, kind := range []struct {
		what    string
		objects []*unstructured.Unstructured
	}{{"given objects", s.Given}, {"live ones", s.Live}} {
		before, changed := t.tried, t.changed
		for _, u := range kind.objects {
			requests.Offer(ctx, policies, u, t.again)
		}
		t.counts = append(t.counts, fmt.Sprintf("%d with %s (%d changed)", t.tried-before, kind.what, t.changed-changed))
	}
	before, changed := t.tried, t.changed
	requests.Try(ctx, policies, namespaces, func(r *mapd.Request, got *mapd.Result) {
		if t.tried-before < maxTwice {
			t.again(r, got)
		}
	})
	t.counts = append(t.counts, fmt.Sprintf("%d with generated ones (%d changed)", t.tried-before, t.changed-changed))
	counts := strings.Join(t.counts, ", ")
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case t.why != "":
		add(Window, "twice", "", "the policy changes again what it has made: %s", t.why)
	case t.changed == 0:
		add(Window, "twice", "", "no object was found that the policy changes, so nothing shows that it leaves alone what it has made; give one with -f. Requests tried: %s", counts)
	default:
		add(OK, "twice", "", "the policy leaves alone what it has made. Requests tried: %s", counts)
	}
	return nil
}

// trial applies policies to objects and again to the results.
type trial struct {
	ctx            context.Context
	policies       *mapd.Policies
	tried, changed int
	why            string
	counts         []string
}

// again submits the result of a request as another request.
func (t *trial) again(r *mapd.Request, got *mapd.Result) {
	t.tried++
	d, q := got.Decision, r.Admission
	if t.why != "" || d.Status != nil || d.Object == nil || q.Object == nil || tree.Equal(d.Object.Object, q.Object.Object) {
		return
	}
	t.changed++
	second := t.policies.Engine().Admit(t.ctx, &policy.Request{
		UID: q.UID, Kind: q.Kind, Resource: q.Resource, SubResource: q.SubResource, RequestKind: q.RequestKind,
		RequestResource: q.RequestResource, RequestSubResource: q.RequestSubResource, Name: q.Name, Namespace: q.Namespace,
		Operation: q.Operation, UserInfo: q.UserInfo, DryRun: q.DryRun, Options: q.Options, Object: d.Object, OldObject: q.OldObject,
	})
	switch {
	case t.ctx.Err() != nil:
	case second.Status != nil:
		t.why = fmt.Sprintf("%s of %s is refused the second time: %s", q.Operation, r.Name(), second.Status.Message)
	case !tree.Equal(second.Object.Object, d.Object.Object):
		var paths []string
		for _, op := range tree.Diff(d.Object.Object, second.Object.Object) {
			paths = append(paths, op.Path)
		}
		t.why = fmt.Sprintf("%s of %s: %s", q.Operation, r.Name(), strings.Join(paths[:min(len(paths), 3)], ", "))
	}
}

// Worst returns the worst level of results.
func Worst(results []CheckResult) Level {
	worst := OK
	order := []Level{OK, Note, Window, Refuse}
	for _, f := range results {
		if slices.Index(order, f.Level) > slices.Index(order, worst) {
			worst = f.Level
		}
	}
	return worst
}
