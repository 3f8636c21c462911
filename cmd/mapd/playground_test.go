package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mapd-project/mapd/internal/author/playground"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// smallSite is served in a tree in which nobody ran "make web".
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

// What policies are evaluated with is a document, all else an object.
func TestPlaygroundFiles(t *testing.T) {
	const (
		policy    = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nspec: {paramKind: {apiVersion: v1, kind: ConfigMap}}\n"
		pod       = "apiVersion: v1\nkind: Pod # a\n"
		configMap = "{apiVersion: v1, kind: ConfigMap}\n"
		list      = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n"
	)
	for _, test := range []struct{ text, document, object string }{
		{policy, policy, ""},
		{pod, "", pod},
		{configMap, configMap, ""},
		{list, list, ""},
		{pod + "---\n" + policy + "---\n" + configMap, policy + "---\n" + configMap, pod},
		{"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n", ""},
		{"apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\n", "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\n", ""},
		{pod + "---\na: [", pod + "---\na: [", ""},
		{"# a comment\n", "# a comment\n", ""},
	} {
		want := playground.State{Documents: []playground.Text{}, Objects: []playground.Text{}}
		if test.document != "" {
			want.Documents = append(want.Documents, playground.Text{Name: "x.yaml", Text: test.document})
		}
		if test.object != "" {
			want.Objects = append(want.Objects, playground.Text{Name: "x.yaml", Text: test.object})
		}
		want.Documents = append(want.Documents, playground.Text{Name: "stdin.yaml", Text: policy})
		got := stateOf([]mapd.File{{Name: "a/b/x.yaml", Data: []byte(test.text)}, {Name: "<stdin>", Data: []byte(policy)}})
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", test.text, d)
		}
	}
}

func TestPlaygroundHelp(t *testing.T) {
	if want := fmt.Sprintf("the port is %d,", playground.Port); !strings.Contains(playgroundLong, want) {
		t.Errorf("the help does not say that %s", want)
	}
}
