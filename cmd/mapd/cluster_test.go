package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Where a cluster is looked for, in which order.
func TestClusterConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, host string) string {
		file := filepath.Join(dir, name)
		text := `{apiVersion: v1, kind: Config, current-context: a,
			clusters: [{name: c, cluster: {server: "https://` + host + `"}}, {name: d, cluster: {server: "https://other.` + host + `"}}],
			contexts: [{name: a, context: {cluster: c, user: u}}, {name: b, context: {cluster: d, user: u}}],
			users: [{name: u, user: {token: t}}]}`
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	flag, variable := write("flag", "flag"), write("variable", "variable")
	t.Cleanup(func() { inCluster = rest.InClusterConfig })
	for _, tt := range []struct {
		name  string
		flags clusterFlags
		env   string
		pod   bool
		want  string // the host, or in an error
	}{
		{"the flag", clusterFlags{kubeconfig: flag}, variable, true, "https://flag"},
		{"a context of the flag", clusterFlags{kubeconfig: flag, overrides: clientcmd.ConfigOverrides{CurrentContext: "b"}}, variable, true, "https://other.flag"},
		{"the variable", clusterFlags{}, variable, true, "https://variable"},
		{"a context of the variable", clusterFlags{overrides: clientcmd.ConfigOverrides{CurrentContext: "b"}}, variable, true, "https://other.variable"},
		{"the first of several files", clusterFlags{}, filepath.Join(dir, "none") + string(os.PathListSeparator) + variable, false, "https://variable"},
		{"the Pod", clusterFlags{}, "", true, "https://pod"},
		{"no such file", clusterFlags{kubeconfig: filepath.Join(dir, "none")}, variable, true, "no such file"},
		{"no such context", clusterFlags{overrides: clientcmd.ConfigOverrides{CurrentContext: "z"}}, variable, true, `context "z" does not exist`},
		{"nothing", clusterFlags{}, filepath.Join(dir, "none"), false, "no cluster configured: looked into"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tt.env)
			inCluster = func() (*rest.Config, error) {
				if !tt.pod {
					return nil, rest.ErrNotInCluster
				}
				return &rest.Config{Host: "https://pod"}, nil
			}
			config, err := tt.flags.config()
			if err != nil {
				if !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("error %v, want %s", err, tt.want)
				}
				return
			}
			if config.Host != tt.want {
				t.Errorf("host %s, want %s", config.Host, tt.want)
			}
			if config.QPS != clientQPS || config.Burst != clientBurst || config.UserAgent != "mapd/"+version() {
				t.Errorf("%v requests a second, %d at once, by %s", config.QPS, config.Burst, config.UserAgent)
			}
		})
	}
}

// Which expressions an API server takes, by what it says of itself.
func TestLanguage(t *testing.T) {
	for _, tt := range []struct {
		info apiversion.Info
		want string // empty: an error
	}{
		{apiversion.Info{Major: "1", Minor: "35"}, "1.35"},
		{apiversion.Info{Major: "1", Minor: "33+"}, "1.33"},
		{apiversion.Info{Major: "1", Minor: "30"}, "1.32"},
		{apiversion.Info{Major: "1", Minor: "99"}, "1.38"},
		{apiversion.Info{Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "35"}, "1.35"},
		{apiversion.Info{Major: "2", Minor: "1"}, ""},
		{apiversion.Info{}, ""},
	} {
		got, err := language(&tt.info)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%+v: %q, %v", tt.info, got, err)
		}
	}
}
