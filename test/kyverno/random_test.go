package kyverno

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/kyverno/convert"
)

// Parts of which random policies are made. Each is one construct, as people write it.
var (
	metadataParts = []string{
		`annotations: {f: "{{ request.object.spec.containers[0].image }}", l: "{{ request.object.spec.containers[-1].name }}", t: "{{ truncate(request.object.metadata.name, ` + "`2`" + `) }}"}`,
		`annotations: {x: "{{ request.object.metadata.labels.app == 'web' && 'front' || 'back' }}", y: "{{ request.object.spec.containers[?name=='web'].image | [0] || 'none' }}"}`,
		`annotations: {"x/{{ request.object.metadata.name }}": "{{ request.namespace }}"}`, `labels: {(app): "web | o*", tier: web}`, `annotations: {o: "{{ request.oldObject.metadata.labels.app || 'none' }}"}`,
		`annotations: {x: "{{ request.object.spec.containers[].name | [-1] }}"}`, `annotations: {x: "{{ request.object.spec.volumes[].name | [?starts_with(@, 'data')] | [0] || 'none' }}"}`,
		`labels: {team: shop}`, `labels: {+(team): shop}`, `labels: {+(team): shop, tier: web}`, `annotations: {+(a): "1", +(b): "2"}`,
		`annotations: {(inject): "yes"}, labels: {injected: "true"}`, `annotations: {(inject): "y*"}`, `annotations: {<(inject): "?*"}`, `labels: {(app): web, tier: a}`,
		`annotations: {by: "{{ request.userInfo.username }}"}`, `annotations: {from: "{{ request.object.metadata.labels.app }}"}`,
		`annotations: {from: "{{ request.object.metadata.labels.team || 'nobody' }}"}`, `annotations: {n: "{{ request.namespace }}/{{ request.operation }}"}`,
		`labels: {team: null}`, `annotations: {by: "{{ serviceAccountNamespace }}/{{ serviceAccountName }}"}`, `annotations: {who: "{{ request.userInfo.{g: groups, u: username} | to_string(@) }}"}`,
		`annotations: {t: "{{ images.containers.web.tag || 'none' }}", d: "{{ images.containers.web.digest || 'none' }}"}`, `annotations: {r: "{{ images.containers.web.reference }}", w: "{{ images.containers.web.referenceWithTag }}"}`,
		`annotations: {n: "{{ images.containers.web.name }} {{ images.containers.web.path }} {{ images.containers.web.registry }}"}`,
		`annotations: {v: "{{ request.object.spec.volumes[?hostPath].name | [0] || 'none' }}", l: "{{ request.object.spec.volumes[*].name | [-1] || 'none' }}"}`,
		`annotations: {v: "{{ request.object.spec.volumes[?hostPath].name[?starts_with(@, 'd')] | join(',', @) }}"}`, `annotations: {s: "{{ split(request.object.metadata.name, 'e')[0] }}-{{ trim_prefix(request.object.metadata.name, 'w') }}"}`,
		`annotations: {s: "{{ replace(request.object.metadata.labels.app, 'e', 'E', ` + "`1`" + `) }} {{ add(length(request.object.spec.containers), ` + "`3`" + `) }}"}`, `annotations: {t: "{{ not_null(request.object.metadata.labels.team, 'none') }}"}`,
		`annotations: "{{ request.object.metadata.labels }}"`, `labels: "{{ merge(request.object.metadata.annotations, {\"inject\": null}) }}"`, `annotations: {m: "{{ request.object.metadata.labels.\"{{ request.namespace }}\" || 'x' }}"}`,
		`labels: {(team): "*"}, annotations: {a: b}`, `annotations: {x: "{{ to_upper(request.object.metadata.labels.app) }}"}`,
	}
	specParts = []string{
		`containers: [{name: side, image: "s:1", args: [a], env: [{name: N, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: A, value: b}]}]`, `(terminationGracePeriodSeconds): ">40", hostname: slow`, `(dnsPolicy): "Default | None", hostname: d`,
		`containers: [{(image): "!nginx*", imagePullPolicy: Never}]`, `topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]`,
		`priorityClassName: high`, `+(priorityClassName): high`, `(priorityClassName): high, hostname: x`, `nodeSelector: {disk: ssd}`, `+(nodeSelector): {disk: ssd}`,
		`tolerations: [{key: a, operator: Exists}]`, `+(tolerations): [{key: a, operator: Exists}]`, `dnsConfig: {options: [{name: ndots, value: "1"}]}`, `dnsConfig: {+(searches): [a.b]}`,
		`securityContext: {+(runAsUser): 1000, +(runAsNonRoot): true}`, `securityContext: {fsGroup: 5}`, `(securityContext): {}, hostname: y`, `securityContext: {(runAsUser): 0, runAsUser: 1}`,
		`(hostNetwork): true, dnsPolicy: ClusterFirstWithHostNet`, `(dnsPolicy): "Cluster*", dnsPolicy: Default`, `terminationGracePeriodSeconds: 50`, `+(terminationGracePeriodSeconds): 50`,
		`imagePullSecrets: [{name: mine}]`, `imagePullSecrets: [{name: my-secret}, {name: mine}]`, `+(affinity): {podAntiAffinity: {}}`, `affinity: {+(nodeAffinity): {preferredDuringSchedulingIgnoredDuringExecution: []}}`,
		`containers: [{(name): "*", imagePullPolicy: Always}]`, `containers: [{(name): "?*", +(imagePullPolicy): Always}]`, `containers: [{(image): "nginx*", imagePullPolicy: Never}]`,
		`containers: [{(name): "*", securityContext: {capabilities: {drop: [ALL]}, allowPrivilegeEscalation: false}}]`, `containers: [{(name): web, resources: {requests: {+(memory): 1Mi}}}]`,
		`containers: [{(name): "*", env: [{name: A, value: "9"}, {name: C, value: "3"}]}]`, `containers: [{(name): "*", envFrom: [{configMapRef: {name: a}}]}]`, `containers: [{<(image): "corp*"}]`,
		`containers: [{name: sidecar, image: "s:1"}]`, `containers: [{name: web, image: "s:1"}]`, `containers: [{(name): "*", securityContext: {(privileged): true, privileged: false}}]`,
		`containers: [{(name): "*", volumeMounts: [{name: x, mountPath: /secret}]}]`, `containers: [{name: web, volumeMounts: [{name: n, mountPath: /n}]}], volumes: [{name: n, emptyDir: {medium: Memory}}]`,
		`initContainers: [{(name): "*", imagePullPolicy: Always}]`, `initContainers: [{(name): "*", +(env): [{name: A, value: "1"}]}]`, `volumes: [{name: data0, configMap: {name: other}}]`,
		`volumes: [{<(emptyDir): {}}], hostname: z`, `volumes: [{hostPath: {<(path): "/v*"}}], hostname: z`, `volumes: [{(name): "data*", emptyDir: {sizeLimit: 2Gi}}]`, `automountServiceAccountToken: false`,
		`+(hostAliases): [{ip: 1.2.3.4, hostnames: [a]}]`, `hostAliases: [{ip: 1.2.3.4, hostnames: [a]}]`, `containers: [{(name): "*", ports: [{containerPort: 80, name: http}]}]`,
		`containers: [{(imagePullPolicy): Always, image: "p:1"}]`, `containers: [{(name): "*", args: [a, b], +(command): [c]}]`, `securityContext: {}`, `priorityClassName: null`,
	}
	foreachParts = []string{
		`{list: request.object.spec.containers, foreach: [{list: "element.env[]", preconditions: {all: [{key: "{{element.name}}", operator: Equals, value: "A*"}]}, patchesJson6902: "- {op: add, path: '/spec/containers/{{elementIndex0}}/env/{{elementIndex1}}/value', value: '{{element0.name}}-{{element1.name}}'}"}]}`,
		`{list: request.object.spec.containers, order: Ascending, patchStrategicMerge: {spec: {containers: [{(name): "{{element.name}}", stdin: true}]}}}`,
		`{list: request.object.spec.containers, patchesJson6902: "- {op: add, path: '/metadata/annotations/n-{{elementIndex}}', value: '{{element.name}}'}\n- {op: add, path: '/spec/containers/{{elementIndex}}/env/-', value: {name: I, value: x}}"}`,
		`{list: request.object.spec.containers, patchStrategicMerge: {spec: {containers: [{name: "{{ element.name }}", image: "r.io/{{ images.containers.\"{{element.name}}\".path}}:{{images.containers.\"{{element.name}}\".tag}}"}]}}}`,
		`{list: request.object.spec.containers, patchesJson6902: "- {op: add, path: '/metadata/annotations/image-{{element.name}}', value: '{{elementIndex}} {{element.image}}'}"}`,
		`{list: "request.object.spec.initContainers[]", patchesJson6902: "- {op: add, path: '/spec/volumes/-', value: {name: 'v-{{element0.name}}', emptyDir: {}}}"}`,
		`{list: request.object.spec.containers, preconditions: {all: [{key: "{{ elementIndex }}", operator: GreaterThan, value: 0}]}, patchesJson6902: "- {op: add, path: '/spec/containers/{{elementIndex}}/imagePullPolicy', value: Never}"}`,
		`{list: "request.object.spec.containers[]", foreach: [{list: "element.env || ` + "`[]`" + `", order: Descending, preconditions: {all: [{key: "{{element.name}}", operator: Equals, value: A}]}, patchesJson6902: "- {op: remove, path: '/spec/containers/{{elementIndex0}}/env/{{elementIndex1}}'}"}]}`,
		`{list: request.object.spec.containers, patchStrategicMerge: {spec: {containers: [{(name): "{{element.name}}", resources: {requests: {+(memory): 1Mi}}}]}}}`,
		`{list: request.object.spec.containers, patchStrategicMerge: {spec: {containers: [{name: "{{ element.name }}", image: "r.io/{{element.image}}"}]}}}`,
		`{list: request.object.spec.initContainers, patchStrategicMerge: {spec: {initContainers: [{(name): "{{element.name}}", imagePullPolicy: Always}]}}}`,
		`{list: "request.object.spec.initContainers[]", patchStrategicMerge: {spec: {initContainers: [{(name): "{{element.name}}", imagePullPolicy: Always}]}}}`,
		`{list: request.object.spec.containers, preconditions: {all: [{key: "{{element.image}}", operator: Equals, value: "nginx*"}]}, patchStrategicMerge: {spec: {containers: [{(name): "{{element.name}}", imagePullPolicy: Never}]}}}`,
		`{list: "request.object.spec.[initContainers, containers][]", patchStrategicMerge: {spec: {containers: [{(name): "{{element.name}}", tty: true}]}}}`,
		`{list: "request.object.spec.containers[]", patchesJson6902: "- {op: add, path: '/spec/containers/{{elementIndex}}/env/-', value: {name: I, value: '{{element.image}}'}}"}`,
		`{list: "request.object.spec.volumes[]", order: Descending, preconditions: {all: [{key: hostPath, operator: AnyIn, value: "{{ element.keys(@) }}"}]}, patchesJson6902: "- {op: remove, path: '/spec/volumes/{{elementIndex}}'}"}`,
		`{list: request.object.spec.volumes, patchesJson6902: "- {op: remove, path: '/spec/volumes/{{elementIndex}}/emptyDir/sizeLimit'}"}`,
		`{list: "request.object.spec.containers[]", patchesJson6902: "- {op: add, path: '/spec/containers/{{elementIndex}}/securityContext/capabilities/add/-', value: X}"}`,
		`{list: request.object.spec.containers, patchStrategicMerge: {spec: {containers: [{(name): "{{element.name}}", resources: {limits: {+(memory): "{{element.resources.limits.memory || element.resources.requests.memory}}"}}}]}}}`,
	}
	jsonParts = []string{
		`- {op: add, path: /spec/tolerations/-1, value: {operator: Exists}}`, `- {op: remove, path: /spec/volumes/-1}`, `- {op: add, path: /spec/containers/1/tty, value: true}`,
		`- {op: add, path: /spec/tolerations/0, value: {operator: Exists}}`, `- {op: remove, path: /spec/volumes/1}`, `- {op: replace, path: /spec/containers/0/image, value: "x:1"}`, `- {op: add, path: /spec/containers/1/imagePullPolicy, value: Never}`,
		`- {op: add, path: /spec/containers/-1/env/-1, value: {name: E, value: x}}`, `- {op: add, path: /spec/volumes/-1/emptyDir/sizeLimit, value: 1Gi}`, `- {op: remove, path: /spec/imagePullSecrets/-1}`, `- {op: replace, path: /spec/tolerations/-1, value: {operator: Exists}}`,
		`- {op: replace, path: /spec/containers/-1/imagePullPolicy, value: Never}`, `- {op: remove, path: /spec/containers/-1/env}`, `- {op: add, path: "/metadata/annotations/{{ request.object.metadata.labels.app }}", value: x}`,
		`- {op: add, path: /spec/nodeSelector/disk, value: ssd}`, `- {op: add, path: /metadata/annotations/a~1b, value: x}`, `- {op: remove, path: /spec/priorityClassName}`, `- {op: remove, path: /spec/dnsConfig/options}`,
		`- {op: add, path: /spec/tolerations/-, value: {operator: Exists}}`, `- {op: replace, path: /spec/priorityClassName, value: high}`, `- {op: add, path: /spec/containers/0/env/-, value: {name: N, value: "{{request.object.metadata.namespace}}"}}`,
		`- {op: add, path: /spec/securityContext, value: {runAsUser: 1, runAsNonRoot: true}}`, `- {op: add, path: /spec/dnsConfig/options/-, value: {name: ndots, value: "2"}}`, `- {op: replace, path: /metadata/labels/app, value: x}`,
	}
	preconditionParts = []string{
		`{key: "{{ request.object.spec.containers[].name }}", operator: AnyIn, value: [web, "a*"]}`, `{key: "{{ request.object.spec.containers[].image }}", operator: AllNotIn, value: ["corp*"]}`,
		`{key: "{{ request.object.spec.containers[].env[].name }}", operator: AnyNotIn, value: A}`, `{key: "{{ request.object.spec.containers[*].name }}", operator: NotIn, value: [web, app]}`,
		`{key: "{{ request.object.spec.containers[].ports[].containerPort }}", operator: AnyIn, value: [80]}`, `{key: "{{ request.object.spec.[containers, initContainers][].image }}", operator: AllIn, value: ["nginx*", "*x*"]}`,
		`{key: "{{ request.object.spec.containers[0].resources.requests.memory || '0' }}", operator: GreaterThan, value: 512Mi}`, `{key: "{{ request.object.metadata.annotations.inject || '1h' }}", operator: LessThan, value: 2h}`,
		`{key: "{{ length(request.object.spec.containers[?name=='web' && image!='nginx']) }}", operator: GreaterThan, value: 0}`, `{key: "{{ request.object.metadata.labels.app }}", operator: NotEquals, value: "{{ request.object.metadata.name }}"}`,
		`{key: "{{ request.object.spec.volumes[?contains(name, 'data')].name || ` + "`[]`" + ` }}", operator: AnyIn, value: "data?"}`,
		`{key: corp.reg.com, operator: AnyIn, value: "{{ images.containers.*.registry }}"}`, `{key: docker.io, operator: AnyNotIn, value: "{{ images.initContainers.*.registry || ` + "`[]`" + ` }}"}`, `{key: latest, operator: AnyIn, value: "{{ images.containers.*.tag }}"}`,
		`{key: "{{ regex_match('^[a-w]+$', request.object.metadata.name) }}", operator: Equals, value: true}`, `{key: "{{ pattern_match('w*', request.object.metadata.labels.app) }}", operator: Equals, value: true}`, `{key: app, operator: AnyIn, value: "{{ keys(request.object.metadata.labels) }}"}`,
		`{key: "{{ request.operation }}", operator: Equals, value: CREATE}`, `{key: "{{ request.object.metadata.labels.app || '' }}", operator: NotEquals, value: other}`,
		`{key: "{{ request.object.metadata.labels.team || '' }}", operator: AnyIn, value: [shop, "o*"]}`, `{key: "{{ request.object.metadata.name || '' }}", operator: AnyNotIn, value: [web, a]}`,
		`{key: "{{ request.object.spec.terminationGracePeriodSeconds || ` + "`0`" + ` }}", operator: GreaterThan, value: 30}`, `{key: "{{ length(request.object.spec.containers) }}", operator: LessThan, value: 3}`,
		`{key: "{{ request.object.spec.volumes[?hostPath] | length(@) }}", operator: GreaterThanOrEquals, value: 1}`, `{key: mine, operator: AnyNotIn, value: "{{ request.object.spec.imagePullSecrets[].name || ` + "`[]`" + ` }}"}`,
		`{key: "{{ request.object.metadata.annotations.inject }}", operator: Equals, value: "yes"}`, `{key: "{{ request.object.spec.hostNetwork || ` + "`false`" + ` }}", operator: Equals, value: true}`,
		`{key: "{{ request.object.metadata.annotations.inject || \"\" }}", operator: Equals, value: "yes"}`, `{key: "{{ request.object.metadata.labels.app }}", operator: Equals, value: "?*"}`,
	}
	matchParts = []string{
		`{any: [{resources: {kinds: [Pod], names: ["w?b", "d?*"]}}]}`, `{any: [{resources: {kinds: [Pod], selector: {matchLabels: {"a*": "w?*"}}}}]}`, `{any: [{resources: {kinds: [Pod, ConfigMap]}}, {resources: {kinds: [Deployment]}, subjects: [{kind: Group, name: "de*"}]}]}`,
		`{any: [{resources: {kinds: [Pod]}}]}`, `{any: [{resources: {kinds: [Pod]}}]}`, `{any: [{resources: {kinds: [Pod]}}]}`, `{any: [{resources: {kinds: [Pod], names: [web, "d*"]}}]}`,
		`{all: [{resources: {kinds: [Pod], namespaces: [shop, "kube-*"]}}]}`, `{resources: {kinds: [Pod], selector: {matchLabels: {app: web}}}}`, `{any: [{resources: {kinds: [v1/Pod], operations: [CREATE]}}, {resources: {kinds: [Pod], namespaces: [default]}}]}`,
		`{any: [{resources: {kinds: [Pod], namespaceSelector: {matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}}}]}`, `{any: [{resources: {kinds: [Pod]}, subjects: [{kind: User, name: alice}]}]}`,
		`{any: [{resources: {kinds: [Pod], annotations: {inject: "y*"}}}]}`,
	}
	excludeParts = []string{`{any: [{resources: {namespaces: [kube-system]}}]}`, `{any: [{resources: {kinds: [Pod], names: [default]}}]}`, `{all: [{resources: {selector: {matchLabels: {app: other}}}}, {resources: {operations: [UPDATE]}}]}`}
)

// randomPolicy returns a policy with one to three rules.
func randomPolicy(g *rand.Rand) string {
	one := func(parts []string) string { return parts[g.IntN(len(parts))] }
	var b strings.Builder
	b.WriteString("apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: random}\nspec:\n  rules:\n")
	for n := range 1 + g.IntN(5)/3 {
		fmt.Fprintf(&b, "  - name: r%d\n    match: %s\n", n, one(matchParts))
		if g.IntN(4) == 0 {
			fmt.Fprintf(&b, "    exclude: %s\n", one(excludeParts))
		}
		if g.IntN(6) == 0 {
			fmt.Fprintf(&b, "    context: [{name: settings, configMap: {name: settings, namespace: %s}}]\n", one([]string{"kube-system", "'{{ request.namespace }}'"}))
			config := one([]string{`annotations: {c: "{{ settings.data.team }}"}`, `labels: {c: "{{ settings.data.\"a-b\" || 'none' }}"}`, `annotations: {c: "{{ settings.data.\"{{ request.object.metadata.name }}\" || 'none' }}"}`})
			if g.IntN(2) == 0 {
				fmt.Fprintf(&b, "    preconditions: {all: [%s]}\n", one([]string{`{key: "{{ request.object.metadata.name }}", operator: AnyIn, value: "{{ settings.data.allowed }}"}`, `{key: "{{ settings.data.mode || 'on' }}", operator: Equals, value: "on"}`}))
			}
			fmt.Fprintf(&b, "    mutate: {patchStrategicMerge: {metadata: {%s}}}\n", config)
			continue
		}
		if g.IntN(3) == 0 {
			fmt.Fprintf(&b, "    preconditions: {%s: [%s, %s]}\n", one([]string{"any", "all"}), one(preconditionParts), one(preconditionParts))
		}
		switch g.IntN(8) {
		case 0:
			fmt.Fprintf(&b, "    mutate: {foreach: [%s]}\n", one(foreachParts))
		case 1:
			fmt.Fprintf(&b, "    mutate:\n      patchesJson6902: |-\n        %s\n", one(jsonParts))
		default:
			patch := ""
			if g.IntN(2) == 0 {
				patch = "metadata: {" + one(metadataParts) + "}, "
			}
			first, second := one(specParts), one(specParts)
			spec := first
			if name := func(s string) string {
				n, _, _ := strings.Cut(strings.TrimLeft(s, "+<("), ":")
				return strings.Trim(n, "()")
			}; g.IntN(2) == 0 && name(first) != name(second) &&
				!strings.Contains(first, name(second)+":") && !strings.Contains(second, name(first)+":") && !(strings.Contains(first, "hostname") && strings.Contains(second, "hostname")) {
				spec += ", " + second
			}
			fmt.Fprintf(&b, "    mutate: {patchStrategicMerge: {%sspec: {%s}}}\n", patch, spec)
		}
	}
	return b.String()
}

// Random policies on random objects.
func TestRandomPolicies(t *testing.T) {
	var total tally
	converted, refused := 0, 0
	for i := range *policies {
		text := randomPolicy(rand.New(rand.NewPCG(*seed, uint64(i))))
		var probe any
		if yaml.UnmarshalStrict([]byte(text), &probe) != nil {
			continue // a field twice
		}
		for _, s := range read(t, fmt.Sprintf("policy %d", i), []byte(text)) {
			if r := convert.Policy(s.policy, convert.Options{Types: types}); len(r.Units) == 0 {
				refused++
				continue
			}
			converted++
			before := t.Failed()
			differ(t, s, *count/3, &total)
			if t.Failed() && !before {
				t.Logf("seed %d, policy %d:\n%s", *seed, i, text)
			}
		}
	}
	t.Logf("%d policies, of which %d are refused as a whole", converted+refused, refused)
	total.log(t)
	if converted == 0 || total.changed == 0 {
		t.Errorf("%d policies are compared, which change %d objects", converted, total.changed)
	}
}
