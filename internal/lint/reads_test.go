package lint

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestReads(t *testing.T) {
	type spec = admissionregistrationv1.MutatingAdmissionPolicySpec
	of := func(condition, mutation string, variables ...string) *spec {
		s := &spec{MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: condition}}}
		for _, v := range variables {
			name, expression, _ := strings.Cut(v, "=")
			s.Variables = append(s.Variables, admissionregistrationv1.Variable{Name: name, Expression: expression})
		}
		m := admissionregistrationv1.Mutation{ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: mutation}}
		if strings.Contains(mutation, "JSONPatch") {
			m = admissionregistrationv1.Mutation{JSONPatch: &admissionregistrationv1.JSONPatch{Expression: mutation}}
		}
		s.Mutations = append(s.Mutations, m)
		return s
	}
	const empty = "Object{}"
	for _, c := range []struct {
		spec                  *spec
		conditions, mutations string // sorted; ? is Presence, # is Elements, @ is Place
	}{
		{of(`request.operation == "CREATE" && oldObject == null && namespaceObject.metadata.name == "a"`, empty), "", "/"},
		{of(`has(object.metadata.labels) && object.metadata.labels["a/b"] == "1"`, empty), "/metadata/labels/a|b /metadata/labels?", "/"},
		{of(`"a" in object.metadata.labels && object.metadata.?annotations[?"k"].orValue(object.metadata.name) == ""`, empty),
			"/metadata/annotations/k /metadata/labels/a? /metadata/name", "/"},
		{of(`object.metadata.labels[object.metadata.name] == ""`, empty), "/metadata/labels /metadata/name", "/"},
		{of(`object == oldObject`, empty), "/", "/"},
		{of(`object.spec.containers.all(c, has(c.image) && object.spec.os.name == c.name)`, empty),
			"/spec/containers# /spec/containers/[]/image? /spec/containers/[]/name /spec/os/name", "/"},
		{of(`object.metadata.labels.all(k, k != object.metadata.labels[k])`, empty), "/metadata/labels", "/"},
		{of(`object.spec.containers.filter(c, c.tty)[0].image == "a"`, empty),
			"/spec/containers# /spec/containers/[] /spec/containers/[]/image /spec/containers/[]/tty", "/"},
		{of(`[object.metadata.name].exists(n, n.startsWith("a"))`, empty), "/metadata/name", "/"},
		{of("true", `Object{metadata: Object.metadata{labels: {"a": object.metadata.name}, annotations: {object.kind: ""}}}`), "",
			"/kind /metadata/annotations /metadata/labels/a /metadata/name"},
		{of("true", `Object{spec: Object.spec{containers: variables.all.map(c, Object.spec.containers{name: c.name, image: variables.i})}}`,
			"all=object.spec.containers", "i=object.metadata.labels.i", "unused=object.metadata.uid"), "",
			"/metadata/labels/i /spec/containers# /spec/containers/[]/image /spec/containers/[]/name"},
		{of("true", `variables.o == null ? Object{} : Object{metadata: Object.metadata{finalizers: ["a"]}}`, "o=oldObject"), "",
			"/ /metadata/finalizers# /metadata/finalizers/[]"},
		{of("true", `[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey(object.metadata.name), value: "a"}]`), "", "/metadata/labels@ /metadata/name"},
		{of("true", `[JSONPatch{op: "move", from: "/metadata/labels/a~1b", path: "/spec/containers/0/image"}]`), "", "/metadata/labels/a|b@ /spec/containers/[]/image@"},
		{of("true", `[JSONPatch{op: "remove", path: variables.p}]`, "p=object.metadata.name"), "", "/@ /metadata/name"},
		{of("object.metadata.name ==", empty), "/", "/"},
	} {
		conditions, mutations := Reads(c.spec)
		if got := readText(conditions); got != c.conditions {
			t.Errorf("%s: conditions read %q, want %q", c.spec.MatchConditions[0].Expression, got, c.conditions)
		}
		if got := readText(mutations); got != c.mutations {
			t.Errorf("%+v: mutations read %q, want %q", c.spec.Mutations[0], got, c.mutations)
		}
	}
}

func readText(reads []Read) string {
	var out []string
	for _, r := range reads {
		text := ""
		for _, step := range r.Path {
			text += "/" + strings.NewReplacer("/", "|", AnyElement, "[]").Replace(step)
		}
		if text == "" {
			text = "/"
		}
		out = append(out, text+map[How]string{Presence: "?", Elements: "#", Place: "@"}[r.How])
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}
