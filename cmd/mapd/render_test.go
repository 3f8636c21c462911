package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/internal/author/ignore"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/test/hammer"
)

// renders runs a command on standard input and returns its standard output.
func renders(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(args, strings.NewReader(stdin), &stdout, &stderr); code != exitOK {
		t.Fatalf("mapd %s: exit code %d\n%s", strings.Join(args, " "), code, &stderr)
	}
	return stdout.String()
}

// Rendering the examples gives the same bytes twice, what eval gives, and the same bytes
// again if it is done with the result: by both commands.
func TestRenderTwice(t *testing.T) {
	hammer.Alone(t)
	for _, name := range exampleNames(t) {
		policies := filepath.Join(examples, name, "policy.yaml")
		objects := readFile(t, examples, name, "objects.yaml")
		want := renders(t, objects, "eval", "-q", "-p", policies, "-f", "-")
		args := []string{"post-render", "-q", "--assume", "-p", policies}
		once := renders(t, objects, args...)
		if once != want || once != renders(t, objects, args...) {
			t.Errorf("%s: post-render prints\n%s\nand eval\n%s", name, once, want)
		}
		if again := renders(t, once, args...); again != once {
			t.Errorf("%s: rendered again\n%s\nafter\n%s", name, again, once)
		}
		list := resourceList(objects)
		args[0] = "krm"
		first := renders(t, list, args...)
		if first != renders(t, list, args...) {
			t.Errorf("%s: krm prints another text the second time", name)
		}
		items, _, _ := strings.Cut(first, "\nresults:")
		second := renders(t, items+"\n", args...)
		if second != items+"\n" {
			t.Errorf("%s: krm again\n%s\nafter\n%s", name, second, items)
		}
	}
}

// resourceList is a ResourceList of the objects of a stream.
func resourceList(stream string) string {
	var b strings.Builder
	b.WriteString("apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems:\n")
	for _, doc := range splitStream(stream) {
		first := true
		for line := range strings.Lines(doc) {
			switch {
			case first && (strings.HasPrefix(line, "#") || strings.TrimSpace(line) == ""):
				b.WriteString(line)
				continue
			case first:
				b.WriteString("- ")
			case line != "\n":
				b.WriteString("  ")
			}
			first = false
			b.WriteString(line)
		}
	}
	return b.String()
}

// The manager that rules have Argo CD trust is the one with which audit --fix writes.
func TestIgnoredManager(t *testing.T) {
	if ignore.Manager != audit.Manager {
		t.Errorf("rules name %s, and audit writes as %s", ignore.Manager, audit.Manager)
	}
}
