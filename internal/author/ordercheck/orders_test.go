package ordercheck_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/internal/author/ordercheck"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
)

const pod = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {a: "0", b: "0"}}
spec: {containers: [{name: app, image: nginx}, {name: side, image: proxy}]}
`

// policyOf returns a policy for Pods: a condition, which may be "", and its mutations.
func policyOf(name, reinvocation, condition string, mutations ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %q}
spec:
  reinvocationPolicy: %s
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
`, name, reinvocation)
	if condition != "" {
		fmt.Fprintf(&b, "  matchConditions:\n  - {name: c, expression: %q}\n", condition)
	}
	b.WriteString("  mutations:\n")
	for _, m := range mutations {
		if strings.HasPrefix(m, "Object") {
			fmt.Fprintf(&b, "  - {patchType: ApplyConfiguration, applyConfiguration: {expression: %q}}\n", m)
		} else {
			fmt.Fprintf(&b, "  - {patchType: JSONPatch, jsonPatch: {expression: %q}}\n", m)
		}
	}
	return b.String()
}

func load(t *testing.T, policies string) *mapd.Policies {
	t.Helper()
	p, err := mapd.Load(mapd.Options{Unbound: true}, mapd.File{Name: "policies.yaml", Data: []byte(policies)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func request(t *testing.T, p *mapd.Policies, object string) *mapd.Request {
	t.Helper()
	for d, err := range mapd.Read("object.yaml", bytes.NewReader([]byte(object))) {
		if err != nil {
			t.Fatal(err)
		}
		req, err := p.Request(d, mapd.RequestOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	t.Fatal("no object")
	return nil
}

func check(t *testing.T, policies, object string, limit int) *ordercheck.Result {
	t.Helper()
	p := load(t, policies)
	r, err := ordercheck.Check(t.Context(), p, request(t, p, object), limit)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func texts(r *ordercheck.Result) (out []string) {
	for _, f := range r.Differences {
		out = append(out, f.Text())
	}
	return out
}

func label(k, v string) string {
	return fmt.Sprintf(`Object{metadata: Object.metadata{labels: {%q: %q}}}`, k, v)
}

func TestDifferences(t *testing.T) {
	appends := `[JSONPatch{op: "replace", path: "/metadata/labels/a", value: object.metadata.labels.a + "%s"}]`
	for _, c := range []struct {
		name, policies string
		summary        string
		want           []string
	}{
		{
			name:     "those that touch nothing in common",
			policies: policyOf("x", "Never", "", label("x", "1")) + policyOf("y", "Never", "has(object.spec.nodeName)", label("y", "1")),
			summary:  "2 policies, none of which touches another: 1 order run",
		},
		{
			name:     "two values",
			policies: policyOf("x", "Never", "", label("a", "1")) + policyOf("y", "Never", "", label("a", "2")) + policyOf("z", "Never", "", label("z", "1")),
			summary:  "3 policies, 2 of which touch others: 2 orders run, which stand for all 2",
			want: []string{
				"the result depends on the order of policies: x before y, or y before x\n  ~ metadata.labels.a: \"2\" → \"1\"\n",
				"policies undo each other in each pass: x, y\n  ~ metadata.labels.a: \"1\" → \"2\"\n",
			},
		},
		{
			name: "a condition reads what another writes",
			policies: policyOf("x", "Never", `object.metadata.labels.b == "1"`, label("a", "1")) + policyOf("y", "Never", "", label("b", "1")) +
				policyOf("z", "Never", "", label("z", "1")),
			summary: "3 policies, 2 of which touch others: 2 orders run, which stand for all 2",
			want: []string{
				"the result depends on the order of policies: x before y, or y before x\n  ~ metadata.labels.a: \"0\" → \"1\"\n",
				"an update with the result changes it, by x; a second update changes nothing\n  ~ metadata.labels.a: \"0\" → \"1\"\n",
			},
		},
		{
			name:     "the second pass makes up for the order",
			policies: policyOf("x", "IfNeeded", `true`, `[JSONPatch{op: "add", path: "/metadata/labels/a", value: object.metadata.labels.b}]`) + policyOf("y", "Never", "", label("b", "1")),
			summary:  "2 policies, 2 of which touch others: 2 orders run, which stand for all 2",
		},
		{
			name: "a container that is set as a whole has its defaults again",
			policies: policyOf("x", "Never", "", `[JSONPatch{op: "add", path: "/spec/initContainers", value: [Object.spec.initContainers{name: "i", image: "busybox"}]}]`) +
				policyOf("y", "Never", "", `[JSONPatch{op: "remove", path: "/spec/terminationGracePeriodSeconds"}]`),
			summary: "2 policies, none of which touches another: 1 order run",
		},
		{
			name: "an order that leaves out only a default",
			policies: policyOf("x", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0", value: Object.spec.containers{name: "app", image: "nginx"}}]`) +
				policyOf("y", "Never", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/terminationMessagePath", value: "/dev/termination-log"}]`),
			summary: "2 policies, 2 of which touch others: 2 orders run, which stand for all 2",
		},
		{
			name:     "not idempotent",
			policies: policyOf("x", "Never", "", fmt.Sprintf(appends, "x")),
			summary:  "fewer than 2 policies met: 1 order",
			want:     []string{"an update with the result changes it, by x; each update changes it\n  ~ metadata.labels.a: 0x → 0xx\n"},
		},
		{
			name:     "back and forth",
			policies: policyOf("x", "Never", "", `[JSONPatch{op: "replace", path: "/metadata/labels/a", value: object.metadata.labels.a == "0" ? "1" : "0"}]`),
			summary:  "fewer than 2 policies met: 1 order",
			want:     []string{"an update with the result changes it, by x; a second update changes it back\n  ~ metadata.labels.a: \"1\" → \"0\"\n"},
		},
		{
			name:     "refused as an update",
			policies: policyOf("x", "Never", "", `[JSONPatch{op: "remove", path: "/metadata/labels/a"}]`),
			summary:  "fewer than 2 policies met: 1 order",
			want:     []string{"the result is denied as an update: policy 'x' with binding 'unbound-x' denied request: JSON Patch: error in remove for path: '/metadata/labels/a': Unable to remove nonexistent key: a: missing value\n"},
		},
		{
			name:     "an order is denied",
			policies: policyOf("x", "Never", "", `[JSONPatch{op: "remove", path: "/metadata/labels/b"}]`) + policyOf("y", "Never", "", fmt.Sprintf(appends, "y")) + policyOf("z", "Never", "", `[JSONPatch{op: "replace", path: "/metadata/labels/a", value: object.metadata.labels.b}]`),
			summary:  "3 policies, 3 of which touch others: 4 orders run, which stand for all 6",
			want: []string{"the result depends on the order of policies: x before z, or z before x\n  x before z: denied: policy 'z' with binding 'unbound-z' denied request: " +
				"expression '[JSONPatch{op: \"replace\", path: \"/metadata/labels/a\", value: object.metadata.labels.b}]' resulted in error: no such key: b\n"},
		},
		{
			name: "the smallest set",
			policies: policyOf("u", "Never", "", label("a", "1")) + policyOf("v", "Never", "", label("b", "1")) +
				policyOf("w", "Never", `object.metadata.labels.a == "1" && object.metadata.labels.b == "1"`, label("c", "1")) + policyOf("x", "Never", "", label("d", "1")),
			summary: "4 policies, 3 of which touch others: 4 orders run, which stand for all 6",
			want: []string{
				"the result depends on the order of policies: u before v before w, or u before w before v\n  - metadata.labels.c: \"1\"\n",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := check(t, c.policies, pod, 0)
			got := texts(r)
			if r.Summary() != c.summary || !slices.Equal(got, c.want) {
				t.Errorf("%s\n%s\nwant %s\n%s", r.Summary(), strings.Join(got, ""), c.summary, strings.Join(c.want, ""))
			}
		})
	}
}

// Parameters of one policy are invocations of their own, and a server runs those of one
// policy together.
func TestParameters(t *testing.T) {
	policies := strings.Replace(policyOf("x", "Never", "", `Object{metadata: Object.metadata{labels: {"x": params.data.v}}}`), "  failurePolicy", "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  failurePolicy", 1) +
		policyOf("y", "Never", "", `[JSONPatch{op: "add", path: "/metadata/labels/y", value: object.metadata.?labels.?x.orValue("none")}]`) + `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: bx}
spec: {policyName: x, paramRef: {selector: {}, parameterNotFoundAction: Deny}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: shop}, data: {v: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: shop}, data: {v: "2"}}
`
	r := check(t, policies, pod, 0)
	want := "3 policies, 3 of which touch others: 4 orders run, which stand for all 4"
	if got := r.Summary(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if all := strings.Join(texts(r), ""); !strings.Contains(all, "x › bx › shop/one before x › bx › shop/two, or x › bx › shop/two before x › bx › shop/one\n") ||
		!strings.Contains(all, "x › bx › shop/one before y, or y before x › bx › shop/one\n") {
		t.Error(all)
	}
}

// However many policies touch each other, what is run is bounded, and the same each time.
func TestBounds(t *testing.T) {
	var policies strings.Builder
	for i := range 40 {
		policies.WriteString(policyOf(fmt.Sprintf("p%03d", i), "IfNeeded", "", fmt.Sprintf(`[JSONPatch{op: "replace", path: "/metadata/labels/a", value: "%d"}]`, i)))
	}
	p := load(t, policies.String())
	for _, limit := range []int{1, 30, 100} {
		a, err := ordercheck.Check(t.Context(), p, request(t, p, pod), limit)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := ordercheck.Check(t.Context(), p, request(t, p, pod), limit)
		if got, again := a.Summary()+strings.Join(texts(a), ""), b.Summary()+strings.Join(texts(b), ""); got != again {
			t.Errorf("limit %d: %s\nand then\n%s", limit, got, again)
		}
		most := map[int]int{1: 2, 30: 31, 100: 101}[limit]
		if a.Whole || a.Runs > most || a.Runs < most-1 {
			t.Errorf("limit %d: %s", limit, a.Summary())
		}
		if limit != 1 && (len(a.Differences) < 2 || a.Differences[0].Kind != ordercheck.Order || len(a.Differences[0].Members) != 2) {
			t.Errorf("limit %d: %q", limit, texts(a))
		}
	}
}

// Each random set is held against all permutations of its policies, and the smallest
// set that Check names against all subsets.

func TestAgainstBruteForce(t *testing.T) {
	runs, all, dependent := 0, 0, 0
	for seed := range uint64(40) {
		policies, names := randomPolicies(rand.New(rand.NewPCG(seed, 0)))
		p := load(t, policies)
		req := request(t, p, pod)
		got, err := ordercheck.Check(t.Context(), p, req, 0)
		if err != nil {
			t.Fatal(err)
		}
		fields := differing(t, p, req, names)
		smallest := 0
		if len(fields) > 0 {
			dependent++
		sizes:
			for smallest = 2; ; smallest++ {
				for mask := range 1 << len(names) {
					var subset []string
					for i, n := range names {
						if mask>>i&1 == 1 {
							subset = append(subset, n)
						}
					}
					if len(subset) != smallest {
						continue
					}
					for f := range differing(t, p, req, subset) {
						for g := range fields {
							if strings.HasPrefix(f, g) || strings.HasPrefix(g, f) {
								break sizes
							}
						}
					}
				}
			}
		}
		found := 0
		for _, f := range got.Differences {
			if f.Kind == ordercheck.Order && (found == 0 || len(f.Members) < found) {
				found = len(f.Members)
			}
		}
		if found != smallest || !got.Whole {
			t.Errorf("seed %d: a set of %d policies, want %d (%s)\n%s%s", seed, found, smallest, got.Summary(), policies, strings.Join(texts(got), ""))
		}
		runs += got.Runs
		n := 1
		for i := range names {
			n *= i + 1
		}
		all += n
	}
	t.Logf("%d sets depend on the order; %d orders run of %d", dependent, runs, all)
	if dependent < 10 || dependent > 30 || runs > all/2 {
		t.Error("the sets are too much alike, or nothing commutes")
	}
}

// differing returns the fields in which results of permutations of some policies differ.
func differing(t *testing.T, p *mapd.Policies, req *mapd.Request, names []string) map[string]bool {
	t.Helper()
	fields := map[string]bool{}
	var first *engine.Decision
	var permute func(n int)
	list := slices.Clone(names)
	permute = func(n int) {
		if n < len(list) {
			for i := n; i < len(list); i++ {
				list[n], list[i] = list[i], list[n]
				permute(n + 1)
				list[n], list[i] = list[i], list[n]
			}
			return
		}
		at := func(inv binding.Invocation) int { return slices.Index(list, inv.Policy.Name()) }
		d := p.Engine().With(func(o *engine.Options) {
			o.Order = func(in []binding.Invocation) []binding.Invocation {
				in = slices.DeleteFunc(in, func(inv binding.Invocation) bool { return at(inv) < 0 })
				slices.SortStableFunc(in, func(a, b binding.Invocation) int { return at(a) - at(b) })
				return in
			}
		}).Admit(t.Context(), req.Admission)
		switch {
		case first == nil:
			first = d
		case (d.Status == nil) != (first.Status == nil):
			fields["denied"] = true
		case d.Status == nil:
			for _, path := range tree.Changed(first.Object.Object, d.Object.Object) {
				fields[path] = true
			}
		}
	}
	permute(0)
	return fields
}

// randomPolicies returns up to five policies that read and write a few places.
func randomPolicies(r *rand.Rand) (text string, names []string) {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	key := func() string { return pick("a", "b", "c", "d", "e") }
	conditions := func() string {
		k := key()
		return pick("", "",
			fmt.Sprintf(`%q in object.metadata.labels`, k),
			fmt.Sprintf(`object.metadata.?labels[?%q].orValue("") != "1"`, k),
			fmt.Sprintf(`has(object.metadata.annotations) && has(object.metadata.annotations.%s)`, k),
			`!has(object.metadata.annotations)`,
			`object.spec.containers.all(c, c.image.startsWith("nginx") || c.image == "proxy")`,
			`object.spec.?tolerations.orValue([]).exists(t, t.key == "a")`)
	}
	mutation := func() string {
		k, v := key(), pick("1", "2")
		return pick(
			label(k, v), label(k, v),
			fmt.Sprintf(`Object{metadata: Object.metadata{annotations: {%q: %q}}}`, k, v),
			fmt.Sprintf(`Object{metadata: Object.metadata{annotations: {%q: object.metadata.?labels[?%q].orValue("none")}}}`, k, key()),
			fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/%s", value: %q}]`, k, v),
			fmt.Sprintf(`(has(object.metadata.annotations) ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) + [JSONPatch{op: "add", path: "/metadata/annotations/%s", value: %q}]`, k, v),
			`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`,
			`Object{spec: Object.spec{containers: object.spec.containers.filter(c, c.name == "app").map(c, Object.spec.containers{name: c.name, image: "nginx:" + object.metadata.?labels[?"`+k+`"].orValue("x")})}}`,
			`[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "nginx:`+v+`"}]`,
			fmt.Sprintf(`[JSONPatch{op: "add", path: "/spec/tolerations", value: object.spec.?tolerations.orValue([]).map(t, dyn(t)) + [{"key": %q, "operator": "Exists"}]}]`, k),
			`Object{spec: Object.spec{hostNetwork: true, nodeSelector: {"`+k+`": "`+v+`"}}}`,
			`Object{spec: Object.spec{priorityClassName: string(size(object.metadata.labels))}}`)
	}
	for i := range 2 + r.IntN(4) {
		names = append(names, string(rune('p'+i)))
		var mutations []string
		for range 1 + r.IntN(2) {
			mutations = append(mutations, mutation())
		}
		text += policyOf(names[i], pick("Never", "IfNeeded"), conditions(), mutations...)
	}
	return text, names
}
