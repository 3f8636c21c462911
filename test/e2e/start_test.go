//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// TestStartPage runs the commands of docs/start/thirty-minutes.md that need a cluster, in
// their order, and holds the outputs on the page to what they print.
func TestStartPage(t *testing.T) {
	t.Parallel()
	const page = "docs/start/thirty-minutes.md"
	m := cluster.Installed(t, cluster.InstallOptions{})
	m.NeedProcesses(t)
	r := newReader(t, m, cluster.Root(t), map[string]string{
		"make image IMAGE=mapd.example/mapd:1":     "needs docker; make kind does it",
		"mapd install --image mapd.example/mapd:1": "TestInstallation",
		"mapd doctor": "TestInstallation",
	})
	// There is no kubelet that forwards ports to replicas.
	bin := t.TempDir()
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %q \"$@\" --replica https://%s\n", cluster.Binary(t), m.Replicas()[0].Addr)
	if err := os.WriteFile(filepath.Join(bin, "mapd"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	path, _ := strings.CutPrefix(r.env[len(r.env)-1], "PATH=")
	r.env = append(r.env, "PATH="+bin+":"+path)
	pulls := func(name, want string) func(context.Context) error {
		return func(ctx context.Context) error {
			out, err := r.run(ctx, "kubectl -n shop run "+name+" --image=nginx:1.29 --dry-run=server -o jsonpath='{.spec.containers[*].imagePullPolicy}'; mapd rollout status")
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("want %s in\n%s", want, out)
			}
			return err
		}
	}
	var printed strings.Builder
	for _, c := range commands(t, page) {
		bare, _, _ := strings.Cut(c, "  #")
		bare = strings.TrimSpace(bare)
		delete(r.unused, bare)
		if r.elsewhere[bare] != "" {
			continue
		}
		switch {
		case strings.HasPrefix(bare, "kubectl get map,mapb"):
			cluster.Eventually(t, cluster.Patience, "the policy is in use", func(ctx context.Context) error {
				out, err := r.run(ctx, bare)
				if err == nil && strings.Count(out, "True") != 2 {
					err = fmt.Errorf("it is not:\n%s", out)
				}
				return err
			})
		case strings.HasPrefix(bare, "kubectl -n shop run web "):
			// The first dry run that the policy meets is in its counts and samples, too.
			cluster.Eventually(t, cluster.Patience, "the policy records", pulls("web", "Pod shop/web: spec.containers[0].imagePullPolicy"))
		case strings.HasPrefix(bare, "kubectl -n shop run web-2 "):
			cluster.Eventually(t, cluster.Patience, "the policy is enforced", pulls("web-2", "Always"))
		}
		out, err := r.run(t.Context(), c)
		if err != nil {
			t.Errorf("%s: %v\n%s", c, err, out)
		}
		if strings.HasPrefix(bare, "kubectl create namespace") {
			m.DefaultServiceAccounts(t, "shop")
		}
		printed.WriteString(out)
		r.ran++
	}
	r.done(t, 9)
	text, err := os.ReadFile(filepath.Join(cluster.Root(t), page))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Fifteen minutes")
	got := varying(printed.String())
	blocks := regexp.MustCompile("(?s)\n```\n(.*?)```\n").FindAllStringSubmatch(section, -1)
	if len(blocks) != 4 {
		t.Errorf("found %d outputs: the page is not read as it is written", len(blocks))
	}
	for _, b := range blocks {
		for line := range strings.Lines(b[1]) {
			if line = varying(strings.TrimSpace(line)); !strings.Contains(got, line) {
				t.Errorf("no command of the page prints\n%s\nThey print\n%s", line, printed.String())
			}
		}
	}
}

// varying replaces what is another one each time: times, ages, counts, replicas, and how
// wide a table is.
func varying(s string) string {
	s = regexp.MustCompile(`replica \S+`).ReplaceAllString(s, "replica …")
	s = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`).ReplaceAllString(s, "TIME")
	s = regexp.MustCompile(`\b\d+[a-z]*\b`).ReplaceAllString(s, "N")
	return regexp.MustCompile(` +`).ReplaceAllString(s, " ")
}
