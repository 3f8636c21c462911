package convert

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

// controllersAnnotation lists the Pod controllers for which Kyverno generates rules.
const controllersAnnotation = "pod-policies.kyverno.io/autogen-controllers"

var podControllers = []string{"DaemonSet", "Deployment", "Job", "StatefulSet", "ReplicaSet", "ReplicationController", "CronJob"}

// filtered is a kind of controller for which no policies are written. Kyverno's own ConfigMap
// excludes it (resourceFilters) from all rules. A policy for ReplicaSets would change the
// template of a Deployment's ReplicaSet and not that of the Deployment, so the Deployment's
// controller would create another ReplicaSet, and so on without end.
const filtered = "ReplicaSet"

// variant is a rule as Kyverno runs it: a rule of the policy, or one that Kyverno generated from
// it for controllers.
type variant struct {
	rule  *policy.Rule
	from  int    // index of the rule of the policy
	suits string // "", "controllers" or "cronjobs"
}

// variants returns the rules that Kyverno runs, in its order.
func variants(p *policy.Policy) []variant {
	var out []variant
	s := p.Rules
	generated := autogen(p)
	for i := range s.Rules {
		if len(generated) == 0 || !strings.HasPrefix(s.Rules[i].Name, "autogen-") {
			out = append(out, variant{&s.Rules[i], i, ""})
		}
	}
	return append(out, generated...)
}

// autogen returns the rules that Kyverno makes for the controllers of Pods.
func autogen(p *policy.Policy) []variant {
	if !canAutogen(p.Rules) {
		return nil
	}
	controllers := podControllers
	if a, ok := p.Annotations[controllersAnnotation]; ok {
		controllers = strings.Split(a, ",")
	}
	if len(controllers) == 1 && controllers[0] == "none" {
		return nil
	}
	everything := slices.Equal(controllers, []string{"all"})
	var others []string
	for _, c := range podControllers {
		if c != "CronJob" && c != filtered && (everything || slices.Contains(controllers, c)) {
			others = append(others, c)
		}
	}
	var out []variant
	for i := range p.Rules.Rules {
		r := &p.Rules.Rules[i]
		if strings.HasPrefix(r.Name, "autogen-") || r.Mutate == nil || !forPods(r) || nestedForEach(r) {
			continue
		}
		if len(others) > 0 {
			if g := generate(r, "template", others, "template", false); g != nil {
				out = append(out, variant{g, i, "controllers"})
			}
		}
		if everything || slices.Contains(controllers, "CronJob") {
			if g := generate(r, "template", nil, "jobTemplate.spec.template", true); g != nil {
				out = append(out, variant{g, i, "cronjobs"})
			}
		}
	}
	return out
}

// nestedForEach reports whether a rule has a foreach within a foreach. The rule that Kyverno
// generates from it for controllers removes their template, which API servers refuse.
func nestedForEach(r *policy.Rule) bool {
	return slices.ContainsFunc(r.Mutate.ForEach, func(f policy.ForEach) bool { return len(f.ForEach) > 0 })
}

func canAutogen(s *policy.Spec) bool {
	needed := false
	for i := range s.Rules {
		r := &s.Rules[i]
		if r.Generate != nil {
			return false
		}
		if r.Mutate != nil && (r.Mutate.PatchesJSON6902 != "" || slices.ContainsFunc(r.Mutate.ForEach, func(f policy.ForEach) bool { return f.PatchesJSON6902 != "" })) {
			return false
		}
		blocks := []*policy.Match{&r.Match}
		if r.Exclude != nil {
			blocks = append(blocks, r.Exclude)
		}
		for _, m := range blocks {
			for _, f := range slices.Concat([]policy.Filter{m.Filter}, m.Any, m.All) {
				x := f.Resources
				if x.Name != "" || len(x.Names) > 0 || x.Selector != nil || x.Annotations != nil || len(x.Kinds) > 1 && slices.ContainsFunc(x.Kinds, isPod) {
					return false
				}
				needed = needed || slices.ContainsFunc(x.Kinds, func(k string) bool { return k == "Pod" || slices.Contains(podControllers, k) })
			}
		}
	}
	return needed
}

func isPod(kind string) bool {
	_, _, k, _ := parseKind(kind)
	return k == "Pod"
}

func kindsIn(m *policy.Match) []string {
	out := slices.Clone(m.Resources.Kinds)
	for _, f := range slices.Concat(m.All, m.Any) {
		out = append(out, f.Resources.Kinds...)
	}
	return out
}

func forPods(r *policy.Rule) bool {
	if !slices.ContainsFunc(kindsIn(&r.Match), isPod) {
		return false
	}
	if r.Exclude == nil {
		return true
	}
	kinds := kindsIn(r.Exclude)
	return len(kinds) == 0 || slices.ContainsFunc(kinds, isPod)
}

// qualified maps kinds of controllers to the form in which Kyverno writes them into generated
// rules.
var qualified = map[string]string{
	"DaemonSet": "apps/v1/DaemonSet", "Deployment": "apps/v1/Deployment", "StatefulSet": "apps/v1/StatefulSet", "ReplicaSet": "apps/v1/ReplicaSet",
	"Job": "batch/v1/Job", "CronJob": "batch/v1/CronJob", "ReplicationController": "v1/ReplicationController",
}

// generate returns the rule that Kyverno generates for controllers, or for CronJobs.
func generate(r *policy.Rule, key string, kinds []string, where string, cron bool) *policy.Rule {
	data, err := json.Marshal(r)
	if err != nil {
		return nil
	}
	text := string(data)
	for _, part := range []string{"spec", "metadata"} {
		for _, object := range []string{"request.object.", "request.oldObject."} {
			// Kyverno replaces text in the rule; this is the same replacement.
			text = strings.ReplaceAll(text, object+part, object+"spec."+where+"."+part)
		}
	}
	out := &policy.Rule{}
	if json.Unmarshal([]byte(text), out) != nil {
		return nil
	}
	out.Preconditions = nil
	if r.Preconditions != nil {
		data, _ := json.Marshal(r.Preconditions)
		replaced := string(data)
		for _, part := range []string{"spec", "metadata"} {
			replaced = strings.ReplaceAll(replaced, "request.object."+part, "request.object.spec."+where+"."+part)
		}
		out.Preconditions = &policy.Conditions{}
		if json.Unmarshal([]byte(replaced), out.Preconditions) != nil {
			return nil
		}
		for _, list := range [][]policy.Condition{out.Preconditions.Any, out.Preconditions.All} {
			for i := range list {
				list[i].Key, list[i].Value = normal(list[i].Key), normal(list[i].Value)
			}
		}
	}
	kinds = slices.Sorted(slices.Values(kinds))
	if cron {
		kinds = []string{"CronJob"}
	}
	var names []string
	for _, k := range kinds {
		names = append(names, qualified[k])
	}
	rewrite := func(m *policy.Match, always bool) {
		switch {
		case len(m.Any) > 0:
			m.Any = kindsOf(m.Any, names, cron)
		case len(m.All) > 0:
			m.All = kindsOf(m.All, names, cron)
		case always || len(m.Resources.Kinds) > 0:
			m.Resources.Kinds = names
		}
	}
	rewrite(&out.Match, true)
	if out.Exclude != nil {
		rewrite(out.Exclude, false)
	}
	wrap := func(patch any) any {
		v := map[string]any{"spec": map[string]any{key: patch}}
		if cron {
			return map[string]any{"spec": map[string]any{"jobTemplate": v}}
		}
		return v
	}
	m := out.Mutate
	switch {
	case m.PatchStrategicMerge != nil:
		out.Mutate = &policy.Mutate{PatchStrategicMerge: normal(wrap(m.PatchStrategicMerge))}
	case len(m.ForEach) > 0:
		each := make([]policy.ForEach, len(m.ForEach))
		for i, f := range m.ForEach {
			each[i] = policy.ForEach{List: f.List, Context: f.Context, Preconditions: f.Preconditions, PatchStrategicMerge: normal(wrap(f.PatchStrategicMerge))}
		}
		out.Mutate = &policy.Mutate{ForEach: each}
	default:
		return nil
	}
	return out
}

// normal turns floats of decoded JSON that are whole numbers into integers.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = normal(e)
		}
	case []any:
		for i, e := range v {
			v[i] = normal(e)
		}
	case float64:
		return ints(v)
	}
	return v
}

func kindsOf(fs []policy.Filter, names []string, cron bool) []policy.Filter {
	out := slices.Clone(fs)
	for i := range out {
		if cron || slices.ContainsFunc(out[i].Resources.Kinds, isPod) {
			out[i].Resources.Kinds = names
		}
	}
	return out
}
