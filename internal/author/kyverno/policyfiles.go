package kyverno

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/kyverno/convert"
	"github.com/mapd-project/mapd/internal/output/page"
	"github.com/mapd-project/mapd/pkg/api"
)

// Command is the command that writes Files.
const Command = "mapd migrate kyverno"

// Collisions returns the names that two of the policies would have.
func (a *Assessment) Collisions() []string {
	seen := map[string]bool{}
	var out []string
	for _, r := range a.Results {
		for _, u := range r.Units {
			if seen[u.Name] && !slices.Contains(out, u.Name) {
				out = append(out, u.Name)
			}
			seen[u.Name] = true
		}
	}
	return out
}

// Files returns a file for each of Kyverno's policies with a converted rule: a comment, and the
// policies and bindings, of the API group group.
func (a *Assessment) Files(group string) []migrate.File {
	var out []migrate.File
	for _, r := range a.Results {
		if len(r.Units) == 0 {
			continue
		}
		name := r.Policy.Name
		if r.Policy.Namespace != "" {
			name = r.Policy.Namespace + "-" + name
		}
		file := name + ".yaml"
		for n := 2; slices.ContainsFunc(out, func(f migrate.File) bool { return f.Name == file }); n++ {
			file = fmt.Sprintf("%s-%d.yaml", name, n)
		}
		var objects []*unstructured.Unstructured
		for _, u := range r.Units {
			objects = append(objects, api.Object(u.Policy, group), api.Object(u.Binding, group))
		}
		out = append(out, migrate.File{Name: file, Data: migrate.Encode(header(r), objects)})
	}
	return out
}

// header returns the comment at the top of a file: the source of the policies, and how exactly
// they have its effect.
func header(r *convert.Result) string {
	var b strings.Builder
	for _, rule := range r.Rules {
		fmt.Fprintf(&b, "# From %s: %s.\n", page.OneLine(r.Policy.ID()+", rule "+rule.Name), rule.Verdict)
		for _, reason := range rule.Reasons {
			fmt.Fprintf(&b, "# - %s\n", page.OneLine(reason))
		}
	}
	b.WriteString(migrate.Marker(Command) + "\n")
	return b.String()
}
