package kyverno

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Parts of policies that are not converted, but that the interpreter has to know or to say that it
// does not.
var (
	wildOverlays = []string{
		`metadata: {finalizers: [a.example.com/b, x.example.com/y], labels: {a: null, "+(b)": c}}`, `metadata: {annotations: {"(inject)": "yes", n: 5, b: true, "+(app)": x}}`,
		`metadata: {"=(labels)": {a: b}}`, `metadata: {labels: {"X(app)": null, a: b}}`, `metadata: {"^(annotations)": [{a: b}], labels: {a: b}}`, `metadata: {"<(labels)": {app: "w* | other"}, annotations: {z: z}}`,
		`metadata: {"(labels)": {app: "!other"}, annotations: {z: z}}`, `spec: {"(volumes)": [{"(hostPath)": {path: "/*"}}], hostNetwork: false}`,
		`spec: {containers: [{(image): "nginx* | corp*", ports: [{containerPort: 80, protocol: TCP}, {containerPort: 443, protocol: UDP}]}]}`,
		`spec: {containers: [{(name): "*", "(ports)": [{containerPort: "<100"}], "+(tty)": true}]}`, `spec: {containers: [{(name): "?*", securityContext: {"+(runAsNonRoot)": true, "(privileged)": true}}]}`,
		`spec: {containers: [{(name): web, args: [a]}, {(name): "a*", args: [b]}]}`, `spec: {containers: [{name: web, image: "a:1"}, {(name): "*", stdin: true}]}`,
		`spec: {containers: [{(name): "*", env: [{(name): "A*", value: z}]}]}`, `spec: {containers: [{(name): "*", volumeMounts: [{(mountPath): "/d*", readOnly: true}], env: [{name: Q, value: q}]}]}`,
		`spec: {volumes: [{(name): "data*", "+(hostPath)": {path: /x}, emptyDir: null}]}`, `spec: {volumes: [{name: data0, $patch: delete}]}`, `spec: {securityContext: {$patch: delete}}`,
		`spec: {"(terminationGracePeriodSeconds)": ">40", priorityClassName: slow}`, `spec: {"(terminationGracePeriodSeconds)": "10-60", priorityClassName: slow}`, `spec: {"(hostNetwork)": true, dnsPolicy: Default}`,
		`spec: {tolerations: null, nodeSelector: {disk: null, "+(zone)": a}}`, `spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}], hostname: a}`,
		`spec: {"<(nodeSelector)": {disk: "s?d"}, "+(hostname)": a}`, `spec: {hostname: "{{ request.object.metadata.name || 'a' }}", subdomain: "{{ to_lower(request.namespace) }}"}`,
		`metadata: {labels: {v: "{{ join('-', request.object.spec.containers[].name) }}"}}`, `metadata: {labels: {v: "{{ request.object.metadata.labels.{{ 'app' }} }}"}}`, `metadata: {labels: {"{{ request.operation }}": x}}`,
		`metadata: {annotations: {i: "{{ images.containers.web.tag || images.containers.*.registry | [0] }}"}}`, `metadata: {annotations: {i: "{{ images.containers.web.registry || 'none' }}/{{ images.containers.a.path || 'x' }}"}}`,
		`metadata: {annotations: {n: "{{ length(request.object.spec.volumes || ` + "`[]`" + `) }}", s: "{{ split(request.object.spec.containers[0].image, ':')[0] }}"}}`, `metadata: {annotations: {e: "\\{{ x }}", f: "{{- request.object.metadata.name }}"}}`,
		`spec: {terminationGracePeriodSeconds: "{{ request.object.spec.terminationGracePeriodSeconds || ` + "`7`" + ` }}"}`, `metadata: {annotations: {v: "{{ regex_replace_all('^([^/]+/)?(.*)$', request.object.spec.containers[0].image, 'r.io/$2') }}"}}`,
		`metadata: {annotations: {w: "{{ v }}"}}`, `metadata: {annotations: {w: "{{ v }}-{{ w }}"}}`, `spec: {initContainers: [{(name): "*", "<(image)": "nginx*", tty: true}]}`,
	}
	wildJSON = []string{
		`- {op: add, path: /spec/tolerations/-1, value: {operator: Exists}}`, `- {op: remove, path: /spec/containers/0/env}`, `- {op: remove, path: /spec/volumes/-1}`, `- {op: replace, path: /spec/containers/0/image, value: n}`,
		`- {op: add, path: /spec/containers/-, value: {name: z, image: z}}`, `- {op: add, path: /spec/dnsConfig/options/0/name, value: x}`, `- {op: add, path: /metadata/labels, value: {a: "{{ request.object.metadata.name || 'x' }}"}}`,
		`- {op: add, path: /metadata/annotations/n, value: {{ length(request.object.spec.containers) }}}`, `- {op: remove, path: /spec/containers/7/env/3}`, `- {op: add, path: /spec/containers/1/args/0, value: "x"}`, `- {op: add, path: /spec/volumes/9, value: {name: q}}`,
		`- {op: add, path: /spec/a~1b/c~0d, value: [1, 2.5, null, {a: yes}]}`, `- {op: replace, path: /spec/hostNetwork, value: off}`, `- {op: add, path: /metadata/name/x, value: 1}`, `- {op: remove, path: /metadata/name/x}`,
	}
	wildForeach = []string{
		`{list: "request.object.spec.containers", foreach: [{list: "element0.env || ` + "`[]`" + `", patchesJson6902: "- {op: add, path: '/metadata/annotations/{{element0.name}}', value: '{{element1.name}}{{elementIndex0}}{{elementIndex1}}'}"}]}`,
		`{list: "request.object.spec.containers[].env[]", patchStrategicMerge: {metadata: {annotations: {"{{element.name}}": "{{elementIndex}}"}}}}`, `{list: "items(request.object.metadata.labels || ` + "`{}`" + `, 'k', 'v')", patchStrategicMerge: {metadata: {annotations: {"x-{{element.k}}": "{{element.v}}"}}}}`,
		`{list: "request.object.spec.containers", order: Ascending, context: [{name: img, variable: {jmesPath: "element.image", default: none}}], preconditions: {any: [{key: "{{ img }}", operator: NotEquals, value: "nginx*"}, {key: "{{ elementIndex }}", operator: Equals, value: 1}]}, patchStrategicMerge: {spec: {containers: [{name: "{{element.name}}", image: "{{ to_upper(img) }}"}]}}}`,
		`{list: "keys(request.object.metadata.annotations || ` + "`{}`" + `)", patchStrategicMerge: {metadata: {annotations: {"{{element}}": "x"}}}}`, `{list: "request.object.spec.volumes[?hostPath].name", patchStrategicMerge: {spec: {volumes: [{(name): "{{element}}", hostPath: {type: Directory}}]}}}`,
		`{list: "request.object.metadata.name", patchStrategicMerge: {metadata: {labels: {n: "{{element}}"}}}}`, `{list: "request.object.spec.containers[0:2]", patchStrategicMerge: {spec: {containers: [{(name): "{{element.name}}", env: [{name: I, value: "{{elementIndex}}"}]}]}}}`,
		`{list: "request.object.spec.containers", patchStrategicMerge: {spec: {containers: [{(name): "{{element.name}}", "(image)": "n*", "+(args)": ["{{element.image}}"]}]}}}, {list: "request.object.spec.containers", patchStrategicMerge: {spec: {containers: [{(name): "{{element.name}}", command: "{{element.args || ` + "`[\"c\"]`" + `}}"}]}}}`,
	}
	wildConditions = []string{
		`{key: "{{ request.object.metadata.labels.app || '' }}", operator: In, value: [web, other]}`, `{key: "{{ request.object.metadata.labels.app || 'x' }}", operator: NotIn, value: [web]}`, `{key: "{{ request.object.spec.containers[].name }}", operator: AllIn, value: [web, a, "*-1"]}`,
		`{key: "{{ request.object.spec.containers[].image }}", operator: AllNotIn, value: ["nginx*"]}`, `{key: "{{ request.object.spec.terminationGracePeriodSeconds || ` + "`5`" + ` }}", operator: AnyIn, value: "10-60"}`, `{key: "{{ request.object.spec.terminationGracePeriodSeconds || ` + "`5`" + ` }}", operator: LessThanOrEquals, value: 1m}`,
		`{key: "{{ request.object.spec.containers[0].resources.limits.memory || '1Gi' }}", operator: GreaterThan, value: 1500Mi}`, `{key: "{{ request.userInfo.username }}", operator: Equals, value: "a*"}`, `{key: "{{ regex_match('^w', request.object.metadata.name || '') }}", operator: Equals, value: true}`,
		`{key: "{{ request.oldObject.metadata.name || 'none' }}", operator: NotEquals, value: none}`, `{key: "{{ w }}", operator: AnyIn, value: [b, web, shop]}`, `{key: "{{ request.object.metadata.labels }}", operator: Equals, value: {app: web}}`, `{key: "{{ request.kind.kind }}", operator: Equals, value: Pod}`,
	}
	wildMatches = []string{
		`{any: [{resources: {kinds: ["*"], names: ["w*", "?efault"]}}]}`, `{any: [{resources: {kinds: ["*/Pod", Deployment]}}, {resources: {kinds: [batch/v1/*]}}]}`, `{all: [{resources: {kinds: [Pod]}}, {resources: {annotations: {"inj*": "*"}}}]}`,
		`{any: [{resources: {kinds: [Pod], selector: {matchLabels: {"a*": "w?b"}}}}]}`, `{any: [{resources: {kinds: [Pod]}, subjects: [{kind: User, name: "al*"}]}, {resources: {kinds: [Pod], operations: [UPDATE]}}]}`, `{resources: {kinds: [Pod, CronJob]}, subjects: [{kind: Group, name: g}]}`,
		`{any: [{resources: {kinds: [Pod]}}]}`, `{any: [{resources: {kinds: [Pod]}}]}`, `{any: [{resources: {kinds: [Pod]}}]}`,
	}
	wildContexts = []string{
		`[{name: w, variable: {jmesPath: request.object.metadata.labels.app, default: b}}, {name: v, variable: {value: "{{ w }}x"}}]`, `[{name: v, variable: {value: {a: [1, "{{ request.object.metadata.name || 'n' }}"]}, jmesPath: "a[1]"}}, {name: w, variable: {jmesPath: "v", default: "{{ v }}"}}]`,
		`[{name: w, variable: {jmesPath: request.namespace}}, {name: v, variable: {jmesPath: "missing.path", default: "d-{{ w }}"}}]`,
	}
)

// wildPolicy returns a policy of all that Kyverno takes.
func wildPolicy(g *rand.Rand) string {
	one := func(parts []string) string { return parts[g.IntN(len(parts))] }
	var b strings.Builder
	b.WriteString("apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: wild\n")
	if g.IntN(6) == 0 {
		fmt.Fprintf(&b, "  annotations: {pod-policies.kyverno.io/autogen-controllers: %q}\n", one([]string{"none", "all", "Deployment,CronJob", "CronJob", "DaemonSet"}))
	}
	b.WriteString("spec:\n")
	if g.IntN(6) == 0 {
		b.WriteString("  failurePolicy: Ignore\n")
	}
	if g.IntN(10) == 0 {
		b.WriteString("  applyRules: One\n")
	}
	b.WriteString("  rules:\n")
	for n := range 1 + g.IntN(3) {
		fmt.Fprintf(&b, "  - name: r%d\n    match: %s\n", n, one(wildMatches))
		if g.IntN(5) == 0 {
			fmt.Fprintf(&b, "    exclude: %s\n", one(excludeParts))
		}
		if g.IntN(2) == 0 {
			fmt.Fprintf(&b, "    context: %s\n", one(wildContexts))
		}
		if g.IntN(3) == 0 {
			fmt.Fprintf(&b, "    preconditions: {%s: [%s, %s]}\n", one([]string{"any", "all"}), one(wildConditions), one(wildConditions))
		}
		switch g.IntN(6) {
		case 0:
			fmt.Fprintf(&b, "    mutate: {foreach: [%s]}\n", one(wildForeach))
		case 1:
			fmt.Fprintf(&b, "    mutate:\n      patchesJson6902: |-\n        %s\n        %s\n", one(wildJSON), one(wildJSON))
		default:
			first, second := one(wildOverlays), one(wildOverlays)
			if head := func(s string) string { h, _, _ := strings.Cut(s, ":"); return h }; head(first) != head(second) {
				first += ", " + second
			}
			fmt.Fprintf(&b, "    mutate: {patchStrategicMerge: {%s}}\n", first)
		}
	}
	return b.String()
}
