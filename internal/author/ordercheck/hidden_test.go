package ordercheck_test

import (
	"strings"
	"testing"

	"github.com/mapd-project/mapd/internal/author/ordercheck"
)

// What hides from a look at expressions that policies touch each other.
func TestHidden(t *testing.T) {
	setB := label("b", "1")
	addArg := `[JSONPatch{op: "replace", path: "/metadata/labels/a", value: object.metadata.labels.a + "x"}]`
	edit := func(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }
	vars := func(text, name, expr string) string {
		return strings.Replace(text, "  failurePolicy", "  variables: [{name: "+name+", expression: '"+expr+"'}]\n  failurePolicy", 1)
	}
	for name, policies := range map[string]string{
		"reinvocation appends":          policyOf("x", "IfNeeded", "", addArg) + policyOf("y", "Never", "", setB),
		"reinvocation appends, y first": policyOf("y", "IfNeeded", "", addArg) + policyOf("x", "Never", "", setB),
		"denied first":                  policyOf("x", "Never", "", `[JSONPatch{op: "test", path: "/metadata/labels/b", value: "1"}]`) + policyOf("y", "Never", "", setB),
		"denied first cond":             policyOf("x", "Never", `object.metadata.labels.b == "1" || object.metadata.labels.nix == ""`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"denied hides":                  policyOf("x", "Never", "", `[JSONPatch{op: "test", path: "/metadata/labels/b", value: "1"}]`) + policyOf("y", "Never", `object.metadata.labels.a == "9"`, setB) + policyOf("z", "Never", "", label("a", "9")),
		"variable":                      vars(policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: {"q": variables.v}}}`), "v", "object.metadata.labels.b") + policyOf("y", "Never", "", setB),
		"variable whole":                vars(policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: {"q": variables.v.metadata.labels["b"]}}}`), "v", "object") + policyOf("y", "Never", "", setB),
		"variable dyn index":            vars(policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: {"q": object.metadata.labels[variables.v]}}}`), "v", "\"b\"") + policyOf("y", "Never", "", setB),
		"keys":                          policyOf("x", "Never", `object.metadata.labels.exists(k, k == "z")`, label("q", "1")) + policyOf("y", "Never", "", label("z", "1")),
		"size":                          policyOf("x", "Never", `size(object.metadata.labels) == 2`, label("a", "1")) + policyOf("y", "Never", "", label("z", "1")),
		"in list":                       policyOf("x", "Never", `"nginx:1" in object.spec.containers.map(c, c.image)`, label("a", "1")) + policyOf("y", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "nginx:1"}]`),
		"two variables":                 policyOf("x", "Never", `object.metadata.labels.all(k, v, v == "0")`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"equality":                      policyOf("x", "Never", `object == oldObject || object.metadata == object.metadata && object.metadata.labels == {"a": "0", "b": "0"}`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"string":                        policyOf("x", "Never", `string(object.metadata.labels.b) == "0"`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"format":                        policyOf("x", "Never", `"%s".format([object.metadata.labels]).contains("z")`, label("q", "1")) + policyOf("y", "Never", "", label("z", "1")),
		"list literal":                  policyOf("x", "Never", `[object][0].metadata.labels.b == "0"`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"map literal":                   policyOf("x", "Never", `{"o": object}.o.metadata.labels.b == "0"`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"ternary":                       policyOf("x", "Never", `(true ? object : object).metadata.labels.b == "0"`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"ternary has":                   policyOf("x", "Never", `has((true ? object : object).metadata.labels.z)`, label("q", "1")) + policyOf("y", "Never", "", label("z", "1")),
		"elements":                      policyOf("x", "Never", `[object.metadata].exists(m, m.labels.b == "0")`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"elements of pair":              policyOf("x", "Never", `[object.metadata, object.metadata].map(m, m.labels).exists(m, m.b == "0")`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"optional":                      policyOf("x", "Never", `object.?metadata.labels.b.hasValue() && object.?metadata.?labels[?"z"].hasValue()`, label("q", "1")) + policyOf("y", "Never", "", label("z", "1")),
		"optMap":                        policyOf("x", "Never", `object.?metadata.optMap(m, m.labels.b == "0").orValue(false)`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"optFlatMap":                    policyOf("x", "Never", `object.?metadata.optFlatMap(m, m.?labels.z).hasValue()`, label("q", "1")) + policyOf("y", "Never", "", label("z", "1")),
		"or optional":                   policyOf("x", "Never", `optional.none().or(object.?metadata).value().labels.b == "0"`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"optional.of":                   policyOf("x", "Never", `optional.of(object).metadata.labels.b.value() == "0"`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"dyn":                           policyOf("x", "Never", `dyn(object).metadata.labels.b == "0"`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"move":                          policyOf("x", "Never", "", `[JSONPatch{op: "move", from: "/metadata/labels/b", path: "/metadata/labels/q"}]`) + policyOf("y", "Never", "", setB),
		"copy":                          policyOf("x", "Never", "", `[JSONPatch{op: "copy", from: "/metadata/labels/b", path: "/metadata/labels/q"}]`) + policyOf("y", "Never", "", setB),
		"copy dynamic":                  policyOf("x", "Never", "", `[JSONPatch{op: "copy", from: "/metadata/labels/" + ("b" + ""), path: "/metadata/labels/q"}]`) + policyOf("y", "Never", "", setB),
		"copy all":                      policyOf("x", "Never", "", `[JSONPatch{op: "copy", from: "/metadata/labels", path: "/metadata/annotations"}]`) + policyOf("y", "Never", "", setB),
		"test":                          policyOf("x", "Never", "", `[JSONPatch{op: "test", path: "/metadata/labels/b", value: "0"}, JSONPatch{op: "add", path: "/metadata/labels/q", value: "1"}]`) + policyOf("y", "Never", "", setB),
		"test ignore":                   edit(policyOf("x", "Never", "", `[JSONPatch{op: "test", path: "/metadata/labels/b", value: "1"}, JSONPatch{op: "add", path: "/metadata/labels/q", value: "1"}]`), "Fail", "Ignore") + policyOf("y", "Never", "", setB),
		"variable ops":                  vars(policyOf("x", "Never", "", `[JSONPatch{op: "copy", from: variables.p, path: "/metadata/labels/q"}]`), "p", "\"/metadata/labels/b\"") + policyOf("y", "Never", "", setB),
		"op ternary":                    policyOf("x", "Never", "", `true ? [JSONPatch{op: "copy", from: "/metadata/labels/b", path: "/metadata/labels/q"}] : []`) + policyOf("y", "Never", "", setB),
		"ops map":                       policyOf("x", "Never", "", `["b"].map(k, JSONPatch{op: "copy", from: "/metadata/labels/" + k, path: "/metadata/labels/q"})`) + policyOf("y", "Never", "", setB),
		"index shift":                   policyOf("x", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "x"}]`) + policyOf("y", "Never", "", `[JSONPatch{op: "add", path: "/spec/containers/0", value: Object.spec.containers{name: "new", image: "n"}}]`),
		"index shift same length":       policyOf("x", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "x"}]`) + policyOf("y", "Never", "", `[JSONPatch{op: "move", from: "/spec/containers/0", path: "/spec/containers/1"}]`),
		"list end":                      policyOf("x", "Never", "", `[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "x", image: "n"}}]`) + policyOf("y", "Never", "", `[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "y", image: "n"}}]`),
		"apply list map":                policyOf("x", "Never", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "x", image: "n"}]}}`) + policyOf("y", "Never", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "y", image: "n"}]}}`),
		"apply list map, map":           policyOf("x", "Never", "", `Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, tty: true})}}`) + policyOf("y", "Never", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "y", image: "n"}]}}`),
		"apply set":                     policyOf("x", "Never", "", `Object{metadata: Object.metadata{finalizers: ["x.io/a"]}}`) + policyOf("y", "Never", "", `Object{metadata: Object.metadata{finalizers: ["y.io/a"]}}`),
		"apply whole":                   policyOf("x", "Never", "", `Object{metadata: Object.metadata{annotations: object.metadata.labels}}`) + policyOf("y", "Never", "", setB),
		"apply key":                     policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: {object.metadata.labels.b: "q"}}}`) + policyOf("y", "Never", "", setB),
		"apply entries":                 policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: object.metadata.labels.transformMapEntry(k, v, {k+v: v})}}`) + policyOf("y", "Never", "", setB),
		"same policy twice":             policyOf("x", "IfNeeded", `object.metadata.labels.b == "1"`, addArg) + policyOf("y", "IfNeeded", "", setB) + policyOf("z", "Never", "", label("z", "1")),
		"absent parent":                 policyOf("x", "Never", "", `(has(object.metadata.annotations) ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) + [JSONPatch{op: "add", path: "/metadata/annotations/x", value: "1"}]`) + policyOf("y", "Never", "", `[JSONPatch{op: "add", path: "/metadata/annotations", value: {"y": "1"}}]`),
		"parent needed":                 edit(policyOf("x", "Never", "", `[JSONPatch{op: "add", path: "/metadata/annotations/x", value: "1"}]`), "Fail", "Ignore") + policyOf("y", "Never", "", `Object{metadata: Object.metadata{annotations: {"y": "1"}}}`),
		"parent of parent":              edit(policyOf("x", "Never", "", `[JSONPatch{op: "add", path: "/spec/securityContext/runAsUser", value: 1}]`), "Fail", "Ignore") + policyOf("y", "Never", "", `Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsGroup: 1}}}`),
		"optional of parent":            policyOf("x", "Never", `object.spec.?securityContext.hasValue()`, label("q", "1")) + policyOf("y", "Never", "", `Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsGroup: 1}}}`),
		"parent is null":                policyOf("x", "Never", `object.spec.?securityContext.orValue(null) == null`, label("q", "1")) + policyOf("y", "Never", "", `Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsGroup: 1}}}`),
		"select errors":                 edit(policyOf("x", "Never", `object.spec.securityContext.?runAsUser.orValue(7) == 7`, label("q", "1")), "Fail", "Ignore") + policyOf("y", "Never", "", `Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsGroup: 1}}}`),
		"index opt":                     policyOf("x", "Never", `object.spec.containers[?2].hasValue()`, label("q", "1")) + policyOf("y", "Never", "", `[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "y", image: "n"}}]`),
		"exists in empty":               policyOf("x", "Never", `object.spec.?volumes.orValue([]).exists(v, true)`, label("q", "1")) + policyOf("y", "Never", "", `Object{spec: Object.spec{volumes: [Object.spec.volumes{name: "v", emptyDir: Object.spec.volumes.emptyDir{}}]}}`),
		"all loop ignoring":             policyOf("x", "Never", `object.spec.containers.exists(c, c.?env.orValue([]).exists(e, e.name == "E"))`, label("q", "1")) + policyOf("y", "Never", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "app", env: [Object.spec.containers.env{name: "E", value: "1"}]}]}}`),
		"env map":                       policyOf("x", "Never", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "app", env: [Object.spec.containers.env{name: "A", value: "1"}]}]}}`) + policyOf("y", "Never", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "app", env: [Object.spec.containers.env{name: "B", value: "1"}]}]}}`),
		"selector of binding": policyOf("x", "IfNeeded", "", addArg) + policyOf("y", "Never", "", setB) + `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: bx}
spec: {policyName: x, matchResources: {objectSelector: {matchLabels: {b: "0"}}}}
`,
		"selector of policy":       edit(policyOf("x", "IfNeeded", "", addArg), "    resourceRules", "    objectSelector: {matchLabels: {b: \"0\"}}\n    resourceRules") + policyOf("y", "Never", "", setB),
		"has of name":              policyOf("x", "Never", `has(object.metadata.labels) && has(object.metadata.annotations)`, label("q", "1")) + policyOf("y", "Never", "", `Object{metadata: Object.metadata{annotations: {"y": "1"}}}`),
		"removes last":             policyOf("x", "Never", `has(object.metadata.labels)`, `Object{metadata: Object.metadata{annotations: {"y": "1"}}}`) + policyOf("y", "Never", "", `[JSONPatch{op: "remove", path: "/metadata/labels"}]`),
		"ignored failure half way": edit(policyOf("x", "Never", "", label("q", "1"), `Object{metadata: Object.metadata{labels: {"r": object.metadata.labels.z}}}`), "Fail", "Ignore") + policyOf("y", "Never", "", label("z", "1")),
		"regex":                    policyOf("x", "Never", `object.metadata.labels["b"].matches("^0$")`, label("q", "1")) + policyOf("y", "Never", "", setB),
		"variable unread":          vars(policyOf("x", "Never", `object.metadata.labels.a == "0"`, `Object{metadata: Object.metadata{labels: {"q": variables.v.filter(k, k == "z").join()}}}`), "v", "object.metadata.labels.map(k, k)") + policyOf("y", "Never", "", label("z", "1")),
		"sort":                     policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: {"q": object.metadata.labels.map(k, k).filter(k, k < "z1").sort().join("-")}}}`) + policyOf("y", "Never", "", label("z", "1")),
		"nested var":               vars(policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: {"q": variables.v.exists(c, c.image == "n:1") ? "1" : "2"}}}`), "v", "object.spec.containers.filter(c, c.name == \"app\")") + policyOf("y", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "n:1"}]`),
		"nested var name":          vars(policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: {"q": variables.v.size() == 1 ? "1" : "2"}}}`), "v", "object.spec.containers.filter(c, c.image == \"n:1\")") + policyOf("y", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "n:1"}]`),
		"index zero":               policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: {"q": object.spec.containers.filter(c, c.image == "n:1")[?0].?name.orValue("none")}}}`) + policyOf("y", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "n:1"}]`),
		"concat":                   policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: {"q": (object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, c.image == "n:1") ? "1" : "2"}}}`) + policyOf("y", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "n:1"}]`),
		"defaults":                 policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: {"q": object.spec.?restartPolicy.orValue("none")}}}`) + policyOf("y", "Never", "", `[JSONPatch{op: "add", path: "/spec/restartPolicy", value: "Never"}]`),
		"has select name":          policyOf("x", "Never", `has(object.spec.containers[0].tty)`, label("q", "1")) + policyOf("y", "Never", "", `[JSONPatch{op: "add", path: "/spec/containers/0/tty", value: true}]`),
		"list equals":              policyOf("x", "Never", `object.spec.containers[0] == object.spec.containers[0] && object.spec.containers.map(c, c)[0].image == "nginx"`, label("q", "1")) + policyOf("y", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "n:1"}]`),
		"two names":                policyOf("x", "Never", `object.spec.containers.exists(i, c, i == 0 && c.image == "nginx")`, label("q", "1")) + policyOf("y", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "n:1"}]`),
		"transformList":            policyOf("x", "Never", `object.spec.containers.transformList(i, c, c.image)[0] == "nginx"`, label("q", "1")) + policyOf("y", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "n:1"}]`),
		"exists_one":               policyOf("x", "Never", `object.spec.containers.exists_one(c, c.image == "nginx")`, label("q", "1")) + policyOf("y", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "n:1"}]`),
		"in var":                   policyOf("x", "Never", `["z"].exists(k, k in object.metadata.labels)`, label("q", "1")) + policyOf("y", "Never", "", label("z", "1")),
		"in list of names":         policyOf("x", "Never", `"z" in object.metadata.labels.map(k, k)`, label("q", "1")) + policyOf("y", "Never", "", label("z", "1")),
		"in in":                    policyOf("x", "Never", `"z" in object.metadata["labels"]`, label("q", "1")) + policyOf("y", "Never", "", label("z", "1")),
		"finalizer in":             policyOf("x", "Never", `"y.io/a" in object.metadata.?finalizers.orValue([])`, label("q", "1")) + policyOf("y", "Never", "", `Object{metadata: Object.metadata{finalizers: ["y.io/a"]}}`),
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, policies)
			req := request(t, p, pod)
			r, err := ordercheck.Check(t.Context(), p, req, 0)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, n := range []string{"x", "y", "z"} {
				if strings.Contains(policies, `metadata: {name: "`+n+`"}`) {
					names = append(names, n)
				}
			}
			fields := differing(t, p, req, names)
			found := false
			for _, f := range r.Differences {
				found = found || f.Kind == ordercheck.Order
			}
			if found != (len(fields) > 0) || !r.Whole {
				t.Errorf("%v, and found %q (%s)", fields, texts(r), r.Summary())
			}
			t.Log(len(fields) > 0)
		})
	}
}
