package main

import (
	"bytes"
	"io/fs"
	"net"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mapd-project/mapd/internal/playground"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// smallSite stands for the site where "make web" has not run.
func smallSite() fs.FS {
	return fstest.MapFS{
		"index.html": {Data: []byte(`<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'"><title>mapd playground</title>`)},
	}
}

// startPlayground runs "mapd playground ARGS" on a free port until it listens, and sets
// $URL and $BASE.
func startPlayground(ts *testscript.TestScript, neg bool, args []string) {
	start(ts, append([]string{"playground", "--port", "0"}, args...))
	base, _, _ := strings.Cut(ts.Getenv("URL"), "#")
	ts.Setenv("BASE", base)
}

// The usual port may be in use, one that was asked for may not.
func TestPlaygroundPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var out bytes.Buffer
	s := streams{out: &out, err: &out}
	f := playgroundFlags{port: taken.Addr().(*net.TCPAddr).Port}
	if _, err := f.listen(s, true); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("a port that is in use: %v", err)
	}
	listeners, err := f.listen(s, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range listeners {
		if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
			t.Errorf("listens on %s", ip)
		}
		l.Close()
	}
	if !strings.HasSuffix(out.String(), " is in use\n") {
		t.Errorf("printed %q", &out)
	}
}

func TestPlaygroundAddress(t *testing.T) {
	for address, want := range map[string]string{
		"": "localhost 127.0.0.1 ::1", "::1": "localhost 127.0.0.1 ::1 ::1", "127.0.0.2": "localhost 127.0.0.1 ::1 127.0.0.2", "0.0.0.0": "", "192.0.2.1": "",
	} {
		hosts, err := (&playgroundFlags{address: address}).hosts()
		if got := strings.Join(hosts, " "); err != nil || got != want {
			t.Errorf("%q: %q, %v", address, got, err)
		}
	}
	for ip, want := range map[string]string{
		"127.0.0.1": "http://127.0.0.1:80/", "0.0.0.0": "http://127.0.0.1:80/", "::": "http://[::1]:80/", "192.0.2.1": "http://192.0.2.1:80/",
	} {
		if got := pageURL(&net.TCPAddr{IP: net.ParseIP(ip), Port: 80}); got != want {
			t.Errorf("%s: %s", ip, got)
		}
	}
}

// What a page begins with: what policies are evaluated with is a document.
func TestPlaygroundFiles(t *testing.T) {
	const policy = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nspec: {paramKind: {apiVersion: v1, kind: ConfigMap}}\n"
	for text, document := range map[string]bool{
		policy:                                      true,
		"apiVersion: v1\nkind: Pod\n":               false,
		"apiVersion: v1\nkind: Secret\n":            false,
		"apiVersion: v1\nkind: ConfigMap\n":         true,
		"apiVersion: v1\nkind: Pod\n---\n" + policy: true,
		"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n": true,
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n":                                  true,
		"apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\n":                                         true,
		"a: [":          true,
		"":              true,
		"# a comment\n": true,
	} {
		state := stateOf([]mapd.File{{Name: "x", Data: []byte(text)}, {Name: "p", Data: []byte(policy)}})
		want := 1
		if document {
			want = 2
		}
		if len(state.Documents) != want || len(state.Documents)+len(state.Objects) != 2 {
			t.Errorf("%q: %v", text, state)
		}
	}
	if playground.Port != 6273 {
		t.Error("docs/playground.md and the help name the port 6273")
	}
}
