package gatekeeper

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	gator "github.com/open-policy-agent/gatekeeper/v3/pkg/gator/expand"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// What is expanded, by random templates, into what, and what random mutators make of
// that: Gatekeeper's expansion system and mapd's.
func TestRandomExpansions(t *testing.T) {
	shapes := NewShapes()
	made, failed, cyclic := 0, 0, 0
	for seed := range uint64(1500) {
		g := &gen{data: seeded(seed)}
		templates, mutators, r := g.expansion()
		var ms []*legacy.Mutator
		for _, u := range mutators {
			m, err := legacy.Decode(u)
			if err != nil {
				t.Fatal(err)
			}
			ms = append(ms, m)
		}
		got, err := shapes.NewRuntime(ms, nil).Expand(t.Context(), templates, r)
		if err != nil {
			t.Fatal(err)
		}
		var difference string
		// Which of two errors comes first is random in Gatekeeper.
		for range 20 {
			want, err := New(mutators, nil).Expand(templates, r)
			if err != nil {
				t.Fatal(err)
			}
			if difference = cmp.Diff(want, got, cmpopts.EquateEmpty()); difference == "" || want.Error == "" {
				break
			}
		}
		if difference != "" {
			t.Fatalf("seed %d: (-Gatekeeper +mapd)\n%s\ntemplates %v\nmutators %v\nrequest %v", seed, difference, templates, mutators, r)
		}
		made += len(got.Objects)
		cyclic += len(got.Cyclic)
		if got.Error != "" {
			failed++
		}
	}
	t.Logf("%d objects, %d expansions failed, %d templates in circles", made, failed, cyclic)
	if made < 500 || failed < 50 || cyclic < 50 {
		t.Error("too few to say anything")
	}
}

// TestOddExpansions has objects and templates that nobody would write, and what both
// make of them.
func TestOddExpansions(t *testing.T) {
	pod := func(name string) string {
		return `{metadata: {name: ` + name + `}, spec: {applyTo: [{groups: [ex.io], versions: [v1], kinds: [Thing]}], templateSource: spec.template, generatedGVK: {version: v1, kind: Pod}}}`
	}
	spec := func(change string) string {
		return strings.Replace(pod("t"), "templateSource: spec.template", change, 1)
	}
	action := func(value string) string {
		return spec(`templateSource: spec.template, enforcementAction: "` + value + `"`)
	}
	thing := func(meta, spec string) string {
		return `{apiVersion: ex.io/v1, kind: Thing, metadata: ` + meta + `, spec: ` + spec + `}`
	}
	const full = `{template: {metadata: {labels: {a: b}}, spec: {x: 1}}}`
	cron := []string{
		`{metadata: {name: cron}, spec: {applyTo: [{groups: [batch], versions: [v1], kinds: [CronJob]}], templateSource: spec.jobTemplate, generatedGVK: {group: batch, version: v1, kind: Job}}}`,
		`{metadata: {name: job}, spec: {applyTo: [{groups: [batch], versions: [v1], kinds: [Job]}], templateSource: spec.template, generatedGVK: {version: v1, kind: Pod}}}`,
	}
	// Of each outcome, want is how many objects there are, and wantError or wantRefused a
	// part of why there are none.
	for name, tc := range map[string]struct {
		object      string
		templates   []string
		want        int
		wantError   string
		wantRefused string
	}{
		"no name":                 {thing(`{}`, full), []string{pod("t")}, 1, "", ""},
		"empty name":              {thing(`{name: ""}`, full), []string{pod("t")}, 1, "", ""},
		"generateName":            {thing(`{generateName: web-}`, full), []string{pod("t")}, 1, "", ""},
		"names of the template":   {thing(`{name: web}`, `{template: {metadata: {name: own, generateName: own-, namespace: other}}}`), []string{pod("t")}, 1, "", ""},
		"capitals":                {thing(`{name: Web.X}`, full), []string{pod("t")}, 1, "", ""},
		"apiVersion and kind":     {thing(`{name: web}`, `{template: {apiVersion: ex.io/v2, kind: Other}}`), []string{pod("t")}, 1, "", ""},
		"source missing":          {thing(`{name: web}`, `{}`), []string{pod("t")}, 0, `could not find source field "spec.template" in resource web`, ""},
		"source missing, no name": {thing(`{}`, `{}`), []string{pod("t")}, 0, "could not find source field", ""},
		"source null":             {thing(`{name: web}`, `{template: null}`), []string{pod("t")}, 0, "could not", ""},
		"source a text":           {thing(`{name: web}`, `{template: x}`), []string{pod("t")}, 0, "could not extract source field from unstructured", ""},
		"source a list":           {thing(`{name: web}`, `{template: [{}]}`), []string{pod("t")}, 0, "could not extract source field from unstructured", ""},
		"source in a text":        {thing(`{name: web}`, `x`), []string{pod("t")}, 0, "could not extract source field from unstructured", ""},
		"source empty":            {thing(`{name: web}`, `{template: {}}`), []string{pod("t")}, 1, "", ""},
		"metadata a text":         {thing(`{name: web}`, `{template: {metadata: x}}`), []string{pod("t")}, 1, "", ""},
		"two templates":           {thing(`{name: web}`, full), []string{pod("a"), pod("b")}, 2, "", ""},
		"same name":               {thing(`{name: web}`, full), []string{action("deny"), action("warn")}, 1, "", ""},
		"cron job": {`{apiVersion: batch/v1, kind: CronJob, metadata: {name: c}, spec: {jobTemplate: {metadata: {labels: {l: m}}, spec: {template: {spec: {x: 1}}}}}}`,
			cron, 2, "", ""},
		"cron job without a Pod": {`{apiVersion: batch/v1, kind: CronJob, metadata: {name: c}, spec: {jobTemplate: {spec: {}}}}`,
			cron, 0, `could not find source field "spec.template" in resource c-job`, ""},
		"unknown action":    {thing(`{name: web}`, full), []string{action("scoped")}, 1, "", ""},
		"action in capital": {thing(`{name: web}`, full), []string{action("Deny")}, 1, "", ""},
		"empty action":      {thing(`{name: web}`, full), []string{action("")}, 1, "", ""},
		"deny":              {thing(`{name: web}`, full), []string{action("deny")}, 1, "", ""},
		"a list":            {`{apiVersion: v1, kind: List, metadata: {}, items: [` + thing(`{name: web}`, full) + `]}`, []string{pod("t")}, 0, "", ""},
		"no template":       {thing(`{name: web}`, full), nil, 0, "", ""},
		"template no name":  {thing(`{name: web}`, full), []string{pod(`""`)}, 0, "", "empty name"},
		"no source":         {thing(`{name: web}`, full), []string{spec(`templateSource: ""`)}, 0, "", "empty source"},
		"dots":              {thing(`{name: web}`, full), []string{spec(`templateSource: ".spec.template"`)}, 0, "could not find source field", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var templates []*unstructured.Unstructured
			for _, text := range tc.templates {
				u := readAll(t, []byte(text))[0]
				u.SetAPIVersion("expansion.gatekeeper.sh/v1beta1")
				u.SetKind("ExpansionTemplate")
				templates = append(templates, u)
			}
			r := Request{Operation: "CREATE", Source: "Original", Object: readAll(t, []byte(tc.object))[0].Object}
			want, err := New(nil, nil).Expand(templates, r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := NewShapes().NewRuntime(nil, nil).Expand(t.Context(), templates, r)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("(-Gatekeeper +mapd)\n%s", d)
			}
			refused := fmt.Sprint(got.Refused)
			if len(got.Objects) != tc.want || (got.Error != "") != (tc.wantError != "") || !strings.Contains(got.Error, tc.wantError) || !strings.Contains(refused, tc.wantRefused) {
				t.Errorf("objects %v, error %q, refused %s", got.Objects, got.Error, refused)
			}
		})
	}
}

// expansion makes templates, mutators, and an object that some of the templates may
// expand.
func (g *gen) expansion() (templates, mutators []*unstructured.Unstructured, r Request) {
	for i := range 1 + g.n(5) {
		spec := map[string]any{
			"applyTo":        []any{g.expands()},
			"templateSource": one(g, "spec.a", "spec.a", "a", "a", "spec"),
			"generatedGVK":   map[string]any{"group": "ex.io", "version": "v1", "kind": one(g, "Thing", "Other", "More", "Last")},
		}
		if g.chance(8) {
			spec["templateSource"] = one(g, "b", "spec.l", "spec.none", "spec.a.x", "spec..a")
		}
		if g.chance(20) {
			spec["applyTo"] = []any{g.expands(), map[string]any{"groups": []any{"other"}, "versions": []any{"v1"}, "kinds": []any{"K"}}}
		}
		if g.chance(20) {
			spec["enforcementAction"] = one(g, "deny", "warn", "dryrun", "?")
		}
		if g.chance(4) {
			delete(spec, one(g, "applyTo", "templateSource", "generatedGVK"))
		}
		if g.chance(4) {
			spec["generatedGVK"] = map[string]any{one(g, "version", "kind"): "V"}
		}
		templates = append(templates, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "expansion.gatekeeper.sh/" + one(g, "v1alpha1", "v1beta1"), "kind": "ExpansionTemplate",
			"metadata": map[string]any{"name": fmt.Sprintf("t%d", i)}, "spec": spec,
		}})
	}
	applyTo := map[string]any{"groups": []any{"ex.io"}, "versions": []any{"v1"}, "kinds": some(g, "Thing", "Other", "More", "Last")}
	if g.chance(40) {
		applyTo["operations"] = one(g, []any{"CREATE"}, []any{"*"}, []any{"CREATE", "UPDATE"})
	}
	for i := range g.n(4) {
		match := map[string]any{}
		if g.chance(70) {
			match["source"] = one(g, "Generated", "Generated", "Original", "All", "")
		}
		if g.chance(30) {
			match["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"l1": "x"}}
		}
		if g.chance(30) {
			match["name"] = one(g, "web-*", "*-other", "web")
		}
		if g.chance(20) {
			match["scope"] = one(g, "Namespaced", "Cluster")
		}
		m := mutator("AssignMetadata", map[string]any{"location": "metadata.labels." + one(g, "l1", "l2"), "match": match,
			"parameters": map[string]any{"assign": one(g, map[string]any{"value": "v"}, map[string]any{"fromMetadata": map[string]any{"field": one(g, "name", "namespace")}})}})
		if g.chance(40) {
			m = mutator("Assign", map[string]any{"applyTo": []any{applyTo}, "match": match,
				"location": one(g, "a.x", "kind", "a.a.y", "l.x"), "parameters": map[string]any{"assign": map[string]any{"value": one(g, "More", "Other")}}})
		}
		m.SetName(fmt.Sprintf("m%d", i))
		mutators = append(mutators, m)
	}
	meta := map[string]any{"name": "web"}
	if g.chance(10) {
		meta = map[string]any{"generateName": "web-"}
	}
	x := map[string]any{"x": "end"}
	for range 4 {
		x = map[string]any{"a": x, "spec": map[string]any{"a": x, "l": []any{x}}}
		if g.chance(30) {
			x["b"] = map[string]any{"metadata": map[string]any{"name": "own", "labels": map[string]any{"l1": "x"},
				"ownerReferences": []any{map[string]any{"apiVersion": "ex.io/v1", "kind": "Thing", "name": "web", "uid": "u"}}}}
		}
	}
	r = Request{Operation: "CREATE", Source: "Original", Username: "alice", Object: map[string]any{
		"apiVersion": "ex.io/v1", "kind": "Thing", "metadata": meta, "spec": x,
	}}
	if g.chance(80) {
		r.Namespace, meta["namespace"] = "shop", "shop"
		r.NamespaceObject = map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": "shop", "labels": map[string]any{"l1": one(g, "x", "y")}}}
	} else {
		r.Object["kind"] = "World"
	}
	return templates, mutators, r
}

// expands makes an entry of applyTo. It names no kind twice, which is an error in
// Gatekeeper though the template works.
func (g *gen) expands() map[string]any {
	kinds := some(g, "Thing", "Thing", "Other", "More", "World")
	slices.SortFunc(kinds, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	return map[string]any{"groups": []any{"ex.io"}, "versions": []any{"v1"}, "kinds": slices.Compact(kinds)}
}

// The script that mapd expand runs through has the output of gator expand in it, for
// examples of Gatekeeper's documentation and tests.
func TestGator(t *testing.T) {
	script, err := txtar.ParseFile("../../cmd/mapd/testdata/script/expand_gator.txtar")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string][]byte{}
	for _, f := range script.Files {
		texts[f.Name] = f.Data
	}
	compared := 0
	for name, text := range texts {
		name, ok := strings.CutSuffix(name, ".want.yaml")
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			made, err := gator.Expand(readAll(t, texts[name+".yaml"]))
			if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(made, func(a, b *unstructured.Unstructured) int { return strings.Compare(key(b), key(a)) })
			if d := cmp.Diff(readAll(t, text), made); d != "" {
				t.Errorf("(-script +gator)\n%s", d)
			}
		})
		compared++
	}
	if compared == 0 {
		t.Error("nothing to compare")
	}
}

// key is what gator sorts by.
func key(u *unstructured.Unstructured) string { return u.GetName() + u.GetAPIVersion() + u.GetKind() }

// readAll reads the documents of a text as gator does.
func readAll(t *testing.T, text []byte) (all []*unstructured.Unstructured) {
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, u)
	}
	return all
}
