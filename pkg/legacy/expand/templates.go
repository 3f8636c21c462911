// Package expand answers one question: which objects will this object create?
//
// The answer is in Gatekeeper's ExpansionTemplates (Gatekeeper spec §10), and in built-in
// templates for the workloads of Kubernetes, so that a Deployment can be expanded into its Pod
// without any ExpansionTemplate. The new objects are those of Gatekeeper 3.23.1, with its
// names, namespaces and owner references, but in an order that is the same in every run.
//
// The package does not mutate: its caller mutates each new object, see Options.Admit, before
// that is expanded in turn.
package expand

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// Set has the templates that are in effect. It is immutable. The zero value expands nothing.
type Set struct {
	byKind  map[schema.GroupVersionKind][]*legacy.Template // by name
	circles [][]*legacy.Template
}

// ErrCycle is Gatekeeper's error text for the templates of Set.Circles.
const ErrCycle = "template forms expansion cycle"

// New returns the Set of templates, and of the built-in ones. If two templates have the same
// name, the later one counts. A built-in template is left out if one of the templates expands
// its kind, or if it would close a cycle with the templates.
func New(templates []*legacy.Template) *Set {
	templates = byName(templates)
	s := &Set{byKind: map[schema.GroupVersionKind][]*legacy.Template{}}
	claimed := map[schema.GroupVersionKind]bool{}
	for _, t := range templates {
		for _, gvk := range t.Kinds() {
			claimed[gvk] = true
		}
	}
	s.circles = circles(templates)
	active := slices.DeleteFunc(slices.Clone(templates), func(t *legacy.Template) bool { return s.Circle(t) != nil })
	for _, b := range builtIn {
		if more := append(slices.Clone(active), b); !claimed[b.Kinds()[0]] && len(circles(more)) == 0 {
			active = more
		}
	}
	for _, t := range byName(active) {
		for _, gvk := range t.Kinds() {
			s.byKind[gvk] = append(s.byKind[gvk], t)
		}
	}
	return s
}

// Circles returns the cycles of templates that have no effect because each generates a kind
// that another one of the cycle expands. The templates of a cycle are sorted by name, and the
// cycles by their first templates.
func (s *Set) Circles() [][]*legacy.Template { return s.circles }

// Circle returns the cycle that a template is in, nil if it is in none.
func (s *Set) Circle(t *legacy.Template) []*legacy.Template {
	for _, c := range s.circles {
		if slices.Contains(c, t) {
			return c
		}
	}
	return nil
}

// CycleError returns the error that the templates of a cycle have no effect. It names the first
// ones.
func CycleError(circle []*legacy.Template) error {
	var names []string
	for _, t := range circle[:min(len(circle), maxNamed)] {
		names = append(names, t.Name)
	}
	text := strings.Join(names, ", ")
	if more := len(circle) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s: %s", ErrCycle, text)
}

// maxNamed is how many templates of a cycle an error names.
const maxNamed = 10

// For returns the templates that expand objects of a kind, in the order of their
// names. The list must not be modified.
func (s *Set) For(gvk schema.GroupVersionKind) []*legacy.Template { return s.byKind[gvk] }

// Kinds returns the kinds that are expanded, sorted.
func (s *Set) Kinds() []schema.GroupVersionKind {
	return slices.SortedFunc(maps.Keys(s.byKind), func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.String(), b.String())
	})
}

// byName sorts templates. Of several with one name it keeps the last; a built-in template never
// has the name of an ExpansionTemplate.
func byName(templates []*legacy.Template) []*legacy.Template {
	out := slices.Clone(templates)
	slices.SortStableFunc(out, func(a, b *legacy.Template) int { return strings.Compare(a.Name, b.Name) })
	last := out[:0]
	for i, t := range out {
		if i == len(out)-1 || out[i+1].Name != t.Name || out[i+1].BuiltIn != t.BuiltIn {
			last = append(last, t)
		}
	}
	return last
}

// circles returns the templates that reach themselves through at least one other template
// (Gatekeeper spec §10.2), grouped into those that reach each other. It is Tarjan's algorithm
// for strongly connected components without recursion, since there may be thousands of
// templates. They must be sorted by name.
func circles(templates []*legacy.Template) (out [][]*legacy.Template) {
	expand := map[schema.GroupVersionKind][]int{}
	for i, t := range templates {
		for _, gvk := range t.Kinds() {
			expand[gvk] = append(expand[gvk], i)
		}
	}
	type frame struct{ at, edge int }
	const unseen = 0
	order, low := make([]int, len(templates)), make([]int, len(templates))
	open := make([]bool, len(templates))
	var path []int // of open templates
	next := unseen
	for start := range templates {
		if order[start] != unseen {
			continue
		}
		var frames []frame
		enter := func(i int) {
			next++
			order[i], low[i], open[i] = next, next, true
			path = append(path, i)
			frames = append(frames, frame{at: i})
		}
		enter(start)
		for len(frames) > 0 {
			f := &frames[len(frames)-1]
			at := f.at
			if edges := expand[templates[at].Generates]; f.edge < len(edges) {
				to := edges[f.edge]
				f.edge++
				if order[to] == unseen {
					enter(to)
				} else if open[to] {
					low[at] = min(low[at], order[to])
				}
				continue
			}
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				from := frames[len(frames)-1].at
				low[from] = min(low[from], low[at])
			}
			if low[at] != order[at] {
				continue
			}
			first := slices.Index(path, at)
			members := path[first:]
			slices.Sort(members)
			var circle []*legacy.Template
			for _, i := range members {
				open[i] = false
				circle = append(circle, templates[i])
			}
			if len(circle) > 1 {
				out = append(out, circle)
			}
			path = path[:first]
		}
	}
	slices.SortFunc(out, func(a, b []*legacy.Template) int { return strings.Compare(a[0].Name, b[0].Name) })
	return out
}

// builtIn are the workloads of Kubernetes, one kind each.
var builtIn = []*legacy.Template{
	workload("apps", "Deployment", podTemplate, pod),
	workload("apps", "ReplicaSet", podTemplate, pod),
	workload("apps", "StatefulSet", podTemplate, pod),
	workload("apps", "DaemonSet", podTemplate, pod),
	workload("", "ReplicationController", podTemplate, pod),
	workload("batch", "Job", podTemplate, pod),
	workload("batch", "CronJob", "spec.jobTemplate", schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}),
}

const podTemplate = "spec.template"

var pod = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

func workload(group, kind, source string, generates schema.GroupVersionKind) *legacy.Template {
	return &legacy.Template{
		Name:    "built-in " + kind, // no object has a name with a space
		ApplyTo: []legacy.ApplyTo{{Groups: []string{group}, Versions: []string{"v1"}, Kinds: []string{kind}}},
		Source:  source, Generates: generates, BuiltIn: true,
	}
}
