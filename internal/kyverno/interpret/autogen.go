package interpret

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

// made is a rule as Kyverno runs it: a rule of the policy, or one that Kyverno generated from it
// for controllers of Pods.
type made struct {
	policy.Rule
	of    string // the name of the rule in the policy
	whole any    // the rule as JSON values
}

// controllersAnnotation lists the controllers for which Kyverno generates rules.
const controllersAnnotation = "pod-policies.kyverno.io/autogen-controllers"

// controllers maps kinds for which Kyverno generates rules to the form in which a match block
// names them.
var controllers = map[string]string{
	"DaemonSet": "apps/v1/DaemonSet", "Deployment": "apps/v1/Deployment", "Job": "batch/v1/Job", "StatefulSet": "apps/v1/StatefulSet",
	"ReplicaSet": "apps/v1/ReplicaSet", "ReplicationController": "v1/ReplicationController", "CronJob": "batch/v1/CronJob",
}

// rules returns the rules that Kyverno runs, in its order.
func rules(p *policy.Policy) []made {
	var own, more []made
	for _, r := range p.Rules.Rules {
		own = append(own, made{Rule: r, of: r.Name})
	}
	if !makesRules(p.Rules) {
		return own
	}
	kinds := keysOf(anyMap(controllers))
	if a, ok := p.Annotations[controllersAnnotation]; ok {
		kinds = strings.Split(a, ",")
		slices.Sort(kinds)
		kinds = slices.Compact(kinds)
	}
	if joined := strings.Join(kinds, ","); joined != "none" {
		for _, r := range p.Rules.Rules {
			more = append(more, rulesFor(r, kinds)...)
		}
	}
	if len(more) == 0 {
		return own
	}
	own = slices.DeleteFunc(own, func(r made) bool { return strings.HasPrefix(r.of, "autogen-") })
	return append(own, more...)
}

func anyMap(m map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// makesRules reports whether Kyverno generates rules for a policy at all. A single rule that does
// not allow it prevents it for all.
func makesRules(s *policy.Spec) bool {
	pods := false
	suits := func(f policy.Filter) bool {
		r := f.Resources
		if r.Name != "" || len(r.Names) > 0 || r.Selector != nil || r.Annotations != nil || len(r.Kinds) > 1 && aboutPods(r.Kinds) {
			return false
		}
		for _, k := range r.Kinds {
			pods = pods || k == "Pod" || controllers[k] != ""
		}
		return true
	}
	for _, r := range s.Rules {
		if r.Generate != nil {
			return false
		}
		if m := r.Mutate; m != nil {
			if m.PatchesJSON6902 != "" || slices.ContainsFunc(m.ForEach, func(f policy.ForEach) bool { return f.PatchesJSON6902 != "" }) {
				return false
			}
		}
		for _, m := range []*policy.Match{&r.Match, r.Exclude} {
			if m == nil {
				continue
			}
			for _, f := range slices.Concat([]policy.Filter{m.Filter}, m.Any, m.All) {
				if !suits(f) {
					return false
				}
			}
		}
	}
	return pods
}

// aboutPods reports whether one of the kinds is Pod, in any version and with any subresource.
func aboutPods(kinds []string) bool {
	return slices.ContainsFunc(kinds, func(k string) bool {
		parts := strings.Split(k, "/")
		switch len(parts) {
		case 1:
			k = parts[0]
		case 2:
			if k = parts[0]; versionForm.MatchString(parts[0]) {
				k = parts[1]
			}
		case 3:
			if k = parts[2]; versionForm.MatchString(parts[0]) {
				k = parts[1]
			}
		case 4:
			k = parts[2]
		default:
			return false
		}
		k, _, _ = strings.Cut(k, ".")
		return k == "Pod"
	})
}

func kindsOf(m *policy.Match) []string {
	if m == nil {
		return nil
	}
	var out []string
	for _, f := range slices.Concat([]policy.Filter{m.Filter}, m.All, m.Any) {
		out = append(out, f.Resources.Kinds...)
	}
	return out
}

// rulesFor returns the rules that Kyverno generates from r: for the given controllers, and for
// CronJobs from that rule.
func rulesFor(r policy.Rule, kinds []string) (out []made) {
	about := kindsOf(&r.Match)
	excluded := kindsOf(r.Exclude)
	if strings.HasPrefix(r.Name, "autogen-") || !aboutPods(about) || len(excluded) > 0 && !aboutPods(excluded) {
		return nil
	}
	var others []string
	all := slices.Equal(kinds, []string{"all"})
	for _, k := range kinds {
		if all || k != "CronJob" && controllers[k] != "" {
			others = append(others, k)
		}
	}
	if all {
		others = keysOf(anyMap(controllers))
	}
	withoutCron := slices.DeleteFunc(slices.Clone(others), func(k string) bool { return k == "CronJob" })
	if len(withoutCron) == 0 {
		withoutCron = slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return k == "CronJob" })
	}
	if strings.Join(withoutCron, ",") != "" {
		if m := wrapped(r, "template", withoutCron, false); m != nil {
			out = append(out, made{Rule: rewritten(*m, "spec.template"), of: r.Name})
		}
	}
	if all || slices.ContainsFunc(kinds, func(k string) bool { return strings.Contains(k, "CronJob") }) {
		if m := wrapped(r, "template", kinds, false); m != nil {
			if m = wrapped(*m, "jobTemplate", []string{"CronJob"}, true); m != nil {
				out = append(out, made{Rule: rewritten(*m, "spec.jobTemplate.spec.template"), of: r.Name})
			}
		}
	}
	return out
}

// wrapped returns a rule for other kinds, with its overlays nested below spec and key. Of a
// foreach, Kyverno keeps only the list, the context, the preconditions and the overlay.
func wrapped(r policy.Rule, key string, kinds []string, every bool) *policy.Rule {
	named := make([]string, len(kinds))
	for i, k := range kinds {
		if named[i] = k; controllers[k] != "" {
			named[i] = controllers[k]
		}
	}
	sort.Strings(named)
	filters := func(fs []policy.Filter) []policy.Filter {
		out := slices.Clone(fs)
		for i := range out {
			if every || aboutPods(out[i].Resources.Kinds) {
				out[i].Resources.Kinds = named
			}
		}
		return out
	}
	switch m := &r.Match; {
	case len(m.Any) > 0:
		m.Any = filters(m.Any)
	case len(m.All) > 0:
		m.All = filters(m.All)
	default:
		m.Resources.Kinds = named
	}
	if r.Exclude != nil {
		x := *r.Exclude
		switch {
		case len(x.Any) > 0:
			x.Any = filters(x.Any)
		case len(x.All) > 0:
			x.All = filters(x.All)
		case len(x.Resources.Kinds) > 0:
			x.Resources.Kinds = named
		}
		r.Exclude = &x
	}
	if r.Mutate == nil {
		return nil
	}
	below := func(patch any) any { return map[string]any{"spec": map[string]any{key: patch}} }
	switch m := r.Mutate; {
	case m.PatchStrategicMerge != nil:
		r.Mutate = &policy.Mutate{PatchStrategicMerge: below(m.PatchStrategicMerge)}
	case len(m.ForEach) > 0:
		made := &policy.Mutate{}
		for _, f := range m.ForEach {
			made.ForEach = append(made.ForEach, policy.ForEach{List: f.List, Context: f.Context, Preconditions: f.Preconditions, PatchStrategicMerge: below(f.PatchStrategicMerge)})
		}
		r.Mutate = made
	default:
		return nil
	}
	return &r
}

// rewritten returns a rule whose expressions about a Pod are about the template at path instead.
// Kyverno replaces text in the whole rule.
func rewritten(r policy.Rule, path string) policy.Rule {
	data, err := json.Marshal(r)
	if err != nil {
		unknown("a rule that is no JSON")
	}
	text := string(data)
	for _, part := range []string{"spec", "metadata"} {
		for _, object := range []string{"object", "oldObject"} {
			text = strings.ReplaceAll(text, "request."+object+"."+part, "request."+object+"."+path+"."+part)
		}
	}
	out := policy.Rule{}
	if err := decodeInto([]byte(text), &out); err != nil {
		unknown("a rule that cannot be made for controllers: %v", err)
	}
	if out.Preconditions, err = preconditionsOf(out.RawPreconditions); err != nil {
		unknown("preconditions that cannot be made for controllers: %v", err)
	}
	return out
}

// preconditionsOf parses preconditions, which older policies write as a list.
func preconditionsOf(raw any) (*policy.Conditions, error) {
	if raw == nil {
		return nil, nil
	}
	if l, ok := raw.([]any); ok {
		raw = map[string]any{"all": l}
	}
	data, err := json.Marshal(raw)
	if err != nil {
		return nil, fmt.Errorf("preconditions: %w", err)
	}
	c := &policy.Conditions{}
	return c, decodeInto(data, c)
}
