package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/web/gallery"
)

// The lines of examples/README.md before and after the catalogue.
const (
	catalogueBegin = "<!-- go generate ./web writes the tables from the comments of the policies -->\n"
	catalogueEnd   = "<!-- the end of the tables -->\n"
)

// TestCatalogue compares the tables of examples/README.md with the comments of the policies, or
// writes the tables with -update.
func TestCatalogue(t *testing.T) {
	const file = "../examples/README.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(page), catalogueBegin)
	_, tail, ends := strings.Cut(rest, catalogueEnd)
	if !begins || !ends {
		t.Fatalf("%s lacks the lines %q and %q", file, catalogueBegin, catalogueEnd)
	}
	text := head + catalogueBegin + catalogue(t) + catalogueEnd + tail
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(page), text); diff != "" {
		t.Errorf("%s (-file +want): go generate ./web\n%s", file, diff)
	}
}

// catalogue returns a table for each group.
func catalogue(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	group := ""
	for _, e := range fromExamples(t) {
		if e.Group != group {
			group = e.Group
			fmt.Fprintf(&b, "\n## %s\n\n| Policy | What it changes | Traps | From | CEL |\n| --- | --- | --- | --- | --- |\n", group)
		}
		if strings.Contains(e.Sentence+e.From+strings.Join(e.Traps, ""), "|") {
			t.Errorf("%s: a | would end the cell of a table", e.Name)
		}
		fmt.Fprintf(&b, "| [%s](%s/) | %s | %s | %s | 1.%d |\n", e.Name, e.Name, e.Sentence, strings.Join(e.Traps, " "), e.From, since(t, e))
	}
	return b.String() + "\n"
}

// fromExamples returns the entries made from the directories of examples/.
func fromExamples(t *testing.T) []gallery.Entry {
	t.Helper()
	all, err := gallery.Entries(root)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e gallery.Entry) bool { return e.Traps == nil })
}

// since returns the oldest minor release whose CEL has all functions that an example uses.
func since(t *testing.T, e gallery.Entry) int {
	t.Helper()
	policy := e.State.Documents[0]
	for minor := lint.OldestMinor; minor <= lint.NewestMinor; minor++ {
		r, err := lint.Run(t.Context(), []lint.Source{{Name: policy.Name, Data: []byte(policy.Text)}},
			lint.Options{Oldest: minor, Newest: lint.NewestMinor, Only: []string{"invalid", "library"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Findings) == 0 {
			return minor
		}
	}
	t.Errorf("%s: no minor compiles it", e.Name)
	return 0
}

// Each check of Polaris that has a mutation, and each policy of Kyverno's library that
// examples/README.md mentions, is named by an example.
func TestCatalogueSources(t *testing.T) {
	from := ""
	for _, e := range fromExamples(t) {
		from += " " + strings.NewReplacer(",", " ", ";", " ").Replace(e.From) + " "
	}
	for _, name := range strings.Fields(`
		cpuLimitsMissing cpuRequestsMissing dangerousCapabilities deploymentMissingReplicas hostIPCSet hostNetworkSet hostPIDSet
		hostPortSet insecureCapabilities livenessProbeMissing memoryLimitsMissing memoryRequestsMissing notReadOnlyRootFilesystem
		priorityClassNotSet privilegeEscalationAllowed pullPolicyNotAlways readinessProbeMissing runAsPrivileged runAsRootAllowed
		add-safe-to-evict add-default-resources add-default-securitycontext add-imagepullsecrets add-labels always-pull-images
		inject-sidecar prepend-registry replace-image-registry spread-pods update-image-tag add-capabilities add-tolerations
		insert-pod-antiaffinity add-volume add-nodeselector add-ndots add-image-as-env-var backup-all-volumes add-env-vars-from-cm
		add-pod-proxies add-ttl-jobs mutate-termination-grace-period-seconds add-psa-labels add-certificates-volume
		PodPreset`) {
		if !strings.Contains(from, " "+name+" ") {
			t.Errorf("no example is from %s", name)
		}
	}
}
