package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// ruleFor is a resource rule written as "group/version resource,resource".
func ruleFor(spec string) admissionregistrationv1.NamedRuleWithOperations {
	gv, resources, _ := strings.Cut(spec, " ")
	group, version, ok := strings.Cut(gv, "/")
	if !ok {
		group, version = "", gv
	}
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: strings.Split(resources, ",")},
	}}
}

func TestWarnings(t *testing.T) {
	deps := testDeps(t)
	tests := map[string]struct {
		rules     string // separated by "; "
		exclude   string
		condition string
		mutations []string
		want      []string
	}{
		"nothing wrong": {
			rules:     "v1 pods",
			mutations: []string{`Object{metadata: Object.metadata{labels: {"a": "b"}}, spec: Object.spec{containers: [Object.spec.containers{name: "a", image: "b"}]}}`},
		},
		"everything includes what no apply configuration can change": {
			rules:     "*/* */*",
			mutations: []string{`Object{metadata: Object.metadata{labels: {"a": "b"}}}`},
			want: []string{
				`0 1:1 an ApplyConfiguration cannot change authentication.k8s.io/v1 TokenRequest, whose schema is not published with its group; exclude serviceaccounts/token, which a wildcard includes`,
				`0 1:1 an ApplyConfiguration cannot change policy/v1 Eviction, whose schema is not published with its group; exclude pods/eviction, which a wildcard includes`,
			},
		},
		"everything but that": {
			rules: "*/* */*", exclude: "v1 serviceaccounts/token,pods/eviction",
			mutations: []string{`Object{metadata: Object.metadata{labels: {"a": "b"}}}`},
		},
		"everything that conditions let through": {
			rules: "*/* */*", condition: "request.resource.resource != 'serviceaccounts'",
			mutations: []string{`Object{metadata: Object.metadata{labels: {"a": "b"}}}`},
		},
		"all resources, but no subresource": {
			rules:     "*/* *",
			mutations: []string{`Object{metadata: Object.metadata{labels: {"a": "b"}}}`},
		},
		"a wildcard of one resource": {
			rules:     "v1 serviceaccounts/*",
			mutations: []string{`Object{metadata: Object.metadata{labels: {"a": "b"}}}`},
			want: []string{
				`0 1:1 an ApplyConfiguration cannot change authentication.k8s.io/v1 TokenRequest, whose schema is not published with its group; exclude serviceaccounts/token, which a wildcard includes`,
			},
		},
		"a misspelt field": {
			rules:     "v1 pods",
			mutations: []string{"Object{\n  spec: Object.spec{contianers: []}}"},
			want:      []string{`0 2:21 v1 Pod has no field spec.contianers; did you mean spec.containers?`},
		},
		"a field in the wrong case": {
			rules:     "apps/v1 deployments",
			mutations: []string{`Object{spec: Object.spec{MINREADYSECONDS: 1}}`},
			want:      []string{`0 1:26 apps/v1 Deployment has no field spec.MINREADYSECONDS; did you mean spec.minReadySeconds?`},
		},
		"a field of another place": {
			rules:     "apps/v1 deployments",
			mutations: []string{`Object{}`, `Object{spec: Object.spec{containers: []}}`},
			want:      []string{`1 1:26 apps/v1 Deployment has no field spec.containers; leave it out`},
		},
		"through lists and maps": {
			rules: "ex.io/v1 widgets",
			mutations: []string{`Object{spec: Object.spec{
				items: [Object.spec.items{name: "a", w: 1}],
				m: {"k": Object.spec.m{l: [], x: 1}, "j": Object.spec.m{l: [1]}},
				puf: Object.spec.puf{any: Object.spec.puf.any{thing: [1]}}}}`},
			want: []string{
				`0 2:42 ex.io/v1 Widget has no field spec.items[].w; leave it out`,
				`0 3:35 ex.io/v1 Widget has no field spec.m[k].x; leave it out`,
				`0 3:61 spec.m[j].l[] of ex.io/v1 Widget must be a string, not an integer`,
			},
		},
		"atomic": {
			rules: "v1 pods",
			mutations: []string{`Object{spec: Object.spec{
				nodeSelector: {}, tolerations: variables.list,
				containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, args: object.args + ["x"]}),
				imagePullSecrets: [Object.spec.imagePullSecrets{name: "a"}, Object.spec.imagePullSecrets{name: "b"}],
				hostAliases: object.spec.hostAliases}}`},
			want: []string{
				`0 2:5 spec.nodeSelector of v1 Pod is atomic, and an ApplyConfiguration cannot set it; use a JSONPatch`,
				`0 2:23 spec.tolerations of v1 Pod is atomic, and an ApplyConfiguration cannot set it; use a JSONPatch`,
				`0 3:84 spec.containers[].args of v1 Pod is atomic, and an ApplyConfiguration cannot set it; use a JSONPatch`,
				`0 4:53 spec.imagePullSecrets[] of v1 Pod is atomic, and an ApplyConfiguration cannot set it; use a JSONPatch`,
			},
		},
		"atomic content in what is atomic is told once": {
			rules: "v1 pods",
			mutations: []string{`Object{spec: Object.spec{securityContext: Object.spec.securityContext{sysctls: [Object.spec.securityContext.sysctls{name: "x"}]},
				tolerations: [Object.spec.tolerations{nosuch: ["x"]}]}}`},
			want: []string{
				`0 1:71 spec.securityContext.sysctls of v1 Pod is atomic, and an ApplyConfiguration cannot set it; use a JSONPatch`,
				`0 2:5 spec.tolerations of v1 Pod is atomic, and an ApplyConfiguration cannot set it; use a JSONPatch`,
				`0 2:43 v1 Pod has no field spec.tolerations[].nosuch; leave it out`,
			},
		},
		"what is left out is not set": {
			rules:     "v1 pods",
			mutations: []string{`Object{spec: Object.spec{nodeSelector: optional.none(), ?tolerations: optional.none(), priority: optional.none()}}`},
		},
		"literals that do not fit": {
			rules: "apps/v1 deployments",
			mutations: []string{`Object{metadata: {"labels": "x"}, spec: Object.spec{
				replicas: "1", paused: 1, minReadySeconds: null, revisionHistoryLimit: 3u, progressDeadlineSeconds: true,
				strategy: [], template: 1.5}}`},
			want: []string{
				`0 2:5 spec.replicas of apps/v1 Deployment must be a number, not a string`,
				`0 2:20 spec.paused of apps/v1 Deployment must be a boolean, not an integer`,
				`0 2:31 spec.minReadySeconds of apps/v1 Deployment must be a number, not null`,
				`0 2:54 spec.revisionHistoryLimit of apps/v1 Deployment must be a number, not an unsigned integer`,
				`0 2:80 spec.progressDeadlineSeconds of apps/v1 Deployment must be a number, not a boolean`,
				`0 3:5 spec.strategy of apps/v1 Deployment must be an object, not a list`,
				`0 3:19 spec.template of apps/v1 Deployment must be an object, not a double`,
			},
		},
		"literals in literals": {
			rules:     "v1 pods",
			mutations: []string{`Object{spec: Object.spec{containers: object.spec.containers.map(c, {"name": c.name}), volumes: object.x + [{"name": "a"}]}}`},
			want: []string{
				`0 1:26 spec.containers of v1 Pod holds lists or maps that are written inside a list or map, which are not converted; write Object.spec.containers{…} for them`,
			},
		},
		"a quantity may be a number, an integer or string either": {
			rules: "v1 pods,services",
			mutations: []string{`object.kind == "Pod" ? Object{spec: Object.spec{containers: [Object.spec.containers{name: "a", resources: Object.spec.containers.resources{limits: {"cpu": dyn(1)}}}]}}
				: Object{spec: Object.spec{ports: [Object.spec.ports{port: 1, targetPort: "x"}, Object.spec.ports{port: 2, targetPort: 3}]}}`},
		},
		"types with wrong names": {
			rules:     "v1 nosuchthings",
			mutations: []string{`Object{metadata: Object.meta{nosuch: 1}}`},
			want:      []string{`0 1:8 the value of metadata is of type Object.meta; name it Object.metadata, after the fields that lead to it`},
		},
		"apiVersion and kind are ignored": {
			rules:     "v1 configmaps",
			mutations: []string{`Object{apiVersion: 1, kind: Object.kind{a: 1}}`},
		},
		"kinds without a schema": {
			rules:     "apps/v1 deployments/scale,deployments/status; v1 pods/exec",
			mutations: []string{`Object{spec: Object.spec{replicaz: 1}}`},
			want: []string{
				`0 1:1 an ApplyConfiguration cannot change autoscaling/v1 Scale, whose schema is not published with its group; use a JSONPatch`,
				`0 1:1 an ApplyConfiguration cannot change v1 PodExecOptions, whose schema is not published with its group; use a JSONPatch`,
				`0 1:26 apps/v1 Deployment has no field spec.replicaz; did you mean spec.replicas?`,
			},
		},
		"several kinds: what is set in any case": {
			rules:     "v1 pods; apps/v1 deployments",
			mutations: []string{`Object{spec: Object.spec{replicas: 1}}`},
			want:      []string{`0 1:26 v1 Pod has no field spec.replicas; leave it out`},
		},
		"several kinds: an expression that may tell them apart": {
			rules: "v1 pods; apps/v1 deployments",
			mutations: []string{
				`object.kind == "Pod" ? Object{spec: Object.spec{nodeName: "x"}} : Object{spec: Object.spec{replicas: 1}}`,
				`Object{spec: Object.spec{?nodeName: object.kind == "Pod" ? optional.of("x") : optional.none()}}`,
			},
		},
		"several kinds: wrong for each": {
			rules:     "v1 pods; apps/v1 deployments",
			mutations: []string{`object.kind == "Pod" ? Object{spec: Object.spec{replicaz: 1}} : Object{}`},
			want: []string{
				`0 1:49 apps/v1 Deployment has no field spec.replicaz; did you mean spec.replicas?`,
				`0 1:49 v1 Pod has no field spec.replicaz; leave it out`,
			},
		},
		"several kinds: conditions may keep one away": {
			rules:     "v1 pods; apps/v1 deployments,deployments/scale",
			condition: `object.kind == "Deployment"`,
			mutations: []string{`Object{spec: Object.spec{replicas: 1}}`},
		},
		"one kind with conditions": {
			rules:     "v1 pods",
			condition: `object.metadata.name == "a"`,
			mutations: []string{`Object{spec: Object.spec{replicas: 1}}`},
			want:      []string{`0 1:26 v1 Pod has no field spec.replicas; leave it out`},
		},
		"wildcards: other kinds may have the field": {
			rules:     "v1 pods; apps/v1 *",
			mutations: []string{`object.kind == "Pod" ? Object{} : Object{spec: Object.spec{replicas: 1}}`, `Object{spec: Object.spec{replicas: 1}}`},
			want:      []string{`1 1:26 v1 Pod has no field spec.replicas; leave it out`},
		},
		"wildcards only": {
			rules:     "*/* *; v1 services/*; apps/* deployments; */* pods/eviction",
			mutations: []string{`Object{nosuch: 1}`},
		},
		"excluded": {
			rules:     "v1 pods,services",
			exclude:   "*/v1 services; v1 pods/*",
			mutations: []string{`Object{spec: Object.spec{nosuch: 1}}`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var mutations []admissionregistrationv1.Mutation
			for _, expr := range tt.mutations {
				mutations = append(mutations, applyMutation(expr))
			}
			mutations = append(mutations, jsonMutation(`[JSONPatch{op: "add", path: "/nosuch", value: Object.x{y: 1}}]`))
			obj := newPolicy(mutations...)
			obj.Spec.Variables = []admissionregistrationv1.Variable{{Name: "list", Expression: "[1, 2]"}}
			obj.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{}
			for spec := range strings.SplitSeq(tt.rules, "; ") {
				obj.Spec.MatchConstraints.ResourceRules = append(obj.Spec.MatchConstraints.ResourceRules, ruleFor(spec))
			}
			if tt.exclude != "" {
				for spec := range strings.SplitSeq(tt.exclude, "; ") {
					obj.Spec.MatchConstraints.ExcludeResourceRules = append(obj.Spec.MatchConstraints.ExcludeResourceRules, ruleFor(spec))
				}
			}
			if tt.condition != "" {
				obj.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: tt.condition}}
			}
			var got []string
			for _, w := range Warnings(compiled(t, deps, obj), deps.Types) {
				var mutation int
				if _, err := fmt.Sscanf(w.Field, "spec.mutations[%d].applyConfiguration.expression", &mutation); err != nil {
					t.Errorf("field %q: %v", w.Field, err)
				}
				if !w.Kind.Empty() && !strings.Contains(w.Message, kindName(w.Kind)) {
					t.Errorf("kind %v is not in %q", w.Kind, w.Message)
				}
				got = append(got, fmt.Sprintf("%d %d:%d %s", mutation, w.Line, w.Column, w.Message))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// Groups and resources of a rule multiply. What is not there and cannot be defined is no other kind.
func TestTargets(t *testing.T) {
	types := testDeps(t).Types
	for name, tt := range map[string]struct {
		groups, versions, resources []string
		want                        string
	}{
		"a product":               {[]string{"", "apps"}, []string{"v1"}, []string{"pods", "deployments"}, "[apps/v1, Kind=Deployment /v1, Kind=Pod] false"},
		"versions":                {[]string{"apps"}, []string{"v1", "v1beta9"}, []string{"deployments"}, "[apps/v1, Kind=Deployment] false"},
		"a group to be defined":   {[]string{"apps", "example.com"}, []string{"v1"}, []string{"deployments"}, "[apps/v1, Kind=Deployment] true"},
		"no such resource at all": {[]string{"", "apps"}, []string{"v1"}, []string{"pods", "nosuch"}, "[/v1, Kind=Pod] true"},
	} {
		r := ruleFor("v1 pods")
		r.APIGroups, r.APIVersions, r.Resources = tt.groups, tt.versions, tt.resources
		kinds, more := Targets(&admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{r}}, types)
		if got := fmt.Sprint(kinds, more); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// Operations and names make an exclusion partial.
func TestWarningsPartlyExcluded(t *testing.T) {
	deps := testDeps(t)
	for name, change := range map[string]func(rule, exclude *admissionregistrationv1.NamedRuleWithOperations){
		"by name": func(_, exclude *admissionregistrationv1.NamedRuleWithOperations) {
			exclude.ResourceNames = []string{"a"}
		},
		"by operation": func(rule, _ *admissionregistrationv1.NamedRuleWithOperations) {
			rule.Operations = append(rule.Operations, "UPDATE")
		},
		"by group": func(_, exclude *admissionregistrationv1.NamedRuleWithOperations) {
			exclude.APIGroups = []string{"apps"}
		},
	} {
		rule, exclude := ruleFor("v1 pods"), ruleFor("v1 pods")
		change(&rule, &exclude)
		obj := newPolicy(applyMutation(`Object{nosuch: 1}`))
		obj.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
			ResourceRules:        []admissionregistrationv1.NamedRuleWithOperations{rule},
			ExcludeResourceRules: []admissionregistrationv1.NamedRuleWithOperations{exclude},
		}
		if got := Warnings(compiled(t, deps, obj), deps.Types); len(got) != 1 {
			t.Errorf("excluded %s: %d warnings, want 1", name, len(got))
		}
	}
}

func TestWarningsOfNothing(t *testing.T) {
	deps := testDeps(t)
	obj := newPolicy(applyMutation(`Object{nosuch: 1}`))
	if got := Warnings(compiled(t, deps, obj), deps.Types); got != nil {
		t.Errorf("without rules: %v", got)
	}
	obj.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{ruleFor("v1 pods")}}
	if got := Warnings(Broken(obj, errors.New("x")), deps.Types); got != nil {
		t.Errorf("of a broken policy: %v", got)
	}
	if got := Warnings(compiled(t, deps, obj), openapi.New()); got != nil {
		t.Errorf("without kinds: %v", got)
	}
}

// The three lists of a rule multiply, and every field can be wrong.
func TestWarningsBounded(t *testing.T) {
	deps := testDeps(t)
	many := func(prefix string) []string {
		out := make([]string, 20_000)
		for i := range out {
			out[i] = fmt.Sprint(prefix, i)
		}
		return out
	}
	var wrong []string
	for _, name := range many("f")[:300] {
		wrong = append(wrong, name+": 1")
	}
	rule := ruleFor("v1 pods")
	rule.APIGroups, rule.APIVersions, rule.Resources = append(rule.APIGroups, many("g")...), append(rule.APIVersions, many("v")...), append(rule.Resources, many("r")...)
	exclude := rule
	exclude.APIGroups = many("h")
	obj := newPolicy(applyMutation("Object{" + strings.Join(wrong, ", ") + "}"))
	obj.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		ResourceRules:        []admissionregistrationv1.NamedRuleWithOperations{ruleFor("v1 pods"), rule},
		ExcludeResourceRules: []admissionregistrationv1.NamedRuleWithOperations{exclude},
	}
	p := compiled(t, deps, obj)
	if got := Warnings(p, deps.Types); len(got) != maxWarnings {
		t.Errorf("%d warnings, want %d", len(got), maxWarnings)
	}
}

func FuzzWarnings(f *testing.F) {
	deps := testDeps(f)
	for _, expr := range []string{
		`Object{spec: Object.spec{containers: [Object.spec.containers{name: "a", args: ["b"]}], nodeSelector: {}}}`,
		`Object{spec: Object.spec{m: {"k": Object.spec.m{l: [1]}}, puf: Object.spec.puf{a: null}}}`,
		`object.a ? Object{metadata: Object.meta{}} : Object{data: {"a": 1u, "b": 2u}}`,
	} {
		f.Add(expr)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		obj := newPolicy(applyMutation(expr))
		obj.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
			ruleFor("v1 pods,configmaps"), ruleFor("ex.io/v1 widgets"), ruleFor("apps/v1 deployments/scale"),
		}}
		p, err := Compile(obj, deps)
		if err != nil {
			return
		}
		got := Warnings(p, deps.Types)
		if diff := cmp.Diff(got, Warnings(p, deps.Types)); diff != "" {
			t.Errorf("%q: a second look differs:\n%s", expr, diff)
		}
	})
}
