package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// liveServer is as much of an API server as migrate reads: discovery, and lists in
// pages. It refuses everything that is no GET.
type liveServer struct {
	t         *testing.T
	resources []metav1.APIResourceList
	objects   map[string][]string // JSON by path
	forbidden string              // a path
	mu        sync.Mutex
	pages     map[string]int // how often each path was listed
}

func (s *liveServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		s.t.Errorf("%s %s: migrate must only read", r.Method, r.URL)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch path := r.URL.Path; {
	case path == "/api":
		s.answer(w, metav1.APIVersions{Versions: []string{"v1"}})
	case path == "/apis":
		s.answer(w, s.groups())
	case s.list(path) != nil:
		s.answer(w, s.list(path))
	case path == s.forbidden:
		w.WriteHeader(http.StatusForbidden)
		s.answer(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: "may not list"})
	default:
		s.page(w, r)
	}
}

func (s *liveServer) answer(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Error(err)
	}
}

func (s *liveServer) groups() metav1.APIGroupList {
	var out metav1.APIGroupList
	for _, l := range s.resources {
		group, version, ok := strings.Cut(l.GroupVersion, "/")
		if !ok {
			continue // the core group
		}
		gv := metav1.GroupVersionForDiscovery{GroupVersion: l.GroupVersion, Version: version}
		out.Groups = append(out.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{gv}, PreferredVersion: gv})
	}
	return out
}

func (s *liveServer) list(path string) *metav1.APIResourceList {
	for i, l := range s.resources {
		if path == "/apis/"+l.GroupVersion || path == "/api/"+l.GroupVersion {
			return &s.resources[i]
		}
	}
	return nil
}

// page answers with one object at a time.
func (s *liveServer) page(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("limit") != "500" {
		s.t.Errorf("%s: not in pages of 500", r.URL)
	}
	all, ok := s.objects[r.URL.Path]
	if !ok {
		s.t.Errorf("%s is read", r.URL.Path)
	}
	from := 0
	if c := r.URL.Query().Get("continue"); c != "" {
		if _, err := fmt.Sscan(c, &from); err != nil {
			s.t.Error(err)
		}
	}
	s.mu.Lock()
	s.pages[r.URL.Path]++
	s.mu.Unlock()
	to, next := min(from+1, len(all)), ""
	if to < len(all) {
		next = fmt.Sprint(to)
	}
	fmt.Fprintf(w, `{"apiVersion":"v1","kind":"List","metadata":{"continue":%q},"items":[%s]}`, next, strings.Join(all[from:to], ","))
}

func resource(name, kind string, namespaced bool) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced, Verbs: metav1.Verbs{"get", "list"}}
}

// newLiveServer is a cluster with two mutators, and writes its kubeconfig.
func newLiveServer(t *testing.T) (*liveServer, string) {
	t.Helper()
	pod := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop"},"spec":{"containers":[{"name":"app","image":"nginx:1"}]}}`, name)
	}
	s := &liveServer{
		t: t,
		resources: []metav1.APIResourceList{
			{GroupVersion: "v1", APIResources: []metav1.APIResource{
				resource("pods", "Pod", true), resource("namespaces", "Namespace", false), resource("secrets", "Secret", true),
				resource("configmaps", "ConfigMap", true), resource("events", "Event", true),
				{Name: "pods/status", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"get"}},
				{Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}},
			}},
			{GroupVersion: "mutations.gatekeeper.sh/v1beta1", APIResources: []metav1.APIResource{
				resource("assign", "Assign", false), resource("assignmetadata", "AssignMetadata", false),
			}},
			{GroupVersion: "config.gatekeeper.sh/v1alpha1", APIResources: []metav1.APIResource{resource("configs", "Config", true)}},
			{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{resource("gadgets", "Gadget", true)}},
			{GroupVersion: "apiextensions.k8s.io/v1", APIResources: []metav1.APIResource{resource("customresourcedefinitions", "CustomResourceDefinition", false)}},
		},
		objects: map[string][]string{
			"/apis/mutations.gatekeeper.sh/v1beta1/assign": {
				`{"apiVersion":"mutations.gatekeeper.sh/v1beta1","kind":"Assign","metadata":{"name":"always-pull"},"spec":{"applyTo":[{"groups":[""],"versions":["v1"],"kinds":["Pod"]}],"location":"spec.containers[name: *].imagePullPolicy","parameters":{"assign":{"value":"Always"}}}}`,
				`{"apiVersion":"mutations.gatekeeper.sh/v1beta1","kind":"Assign","metadata":{"name":"size"},"spec":{"applyTo":[{"groups":["example.com"],"versions":["v1"],"kinds":["Gadget"]}],"location":"spec.size","parameters":{"assign":{"value":"small"}}}}`,
			},
			"/apis/mutations.gatekeeper.sh/v1beta1/assignmetadata": {
				`{"apiVersion":"mutations.gatekeeper.sh/v1beta1","kind":"AssignMetadata","metadata":{"name":"owner"},"spec":{"match":{"namespaceSelector":{"matchLabels":{"team":"a"}}},"location":"metadata.labels.owner","parameters":{"assign":{"value":"me"}}}}`,
			},
			"/apis/config.gatekeeper.sh/v1alpha1/configs":             {},
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"kind":"Gadget","listKind":"GadgetList","plural":"gadgets","singular":"gadget"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"string"}}}}}}}]}}`},
			"/api/v1/namespaces":           {`{"metadata":{"name":"shop","labels":{"team":"a"}}}`},
			"/api/v1/pods":                 {pod("a"), pod("b"), pod("c")},
			"/api/v1/secrets":              {`{"metadata":{"name":"s","namespace":"shop"},"data":{"password":"aHVzaA=="}}`},
			"/api/v1/configmaps":           {},
			"/apis/example.com/v1/gadgets": {`{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"g","namespace":"shop"},"spec":{}}`},
		},
		pages: map[string]int{},
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n", server.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, config
}

// ran runs mapd.
func ran(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

func TestMigrateFromCluster(t *testing.T) {
	s, config := newLiveServer(t)
	code, stdout, stderr := ran("migrate", "gatekeeper", "--from-cluster", "--kubeconfig", config)
	if code != 0 || strings.Count(stdout, "kind: MutatingAdmissionPolicy\n") != 3 {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	if s.pages["/api/v1/pods"] != 0 {
		t.Error("objects are read without --verify")
	}
	if s.pages["/apis/mutations.gatekeeper.sh/v1beta1/assign"] != 2 {
		t.Errorf("%d pages of Assigns were read, want 2", s.pages["/apis/mutations.gatekeeper.sh/v1beta1/assign"])
	}
}

func TestMigrateVerifyFromCluster(t *testing.T) {
	s, config := newLiveServer(t)
	report := filepath.Join(t.TempDir(), "report.json")
	code, _, stderr := ran("migrate", "gatekeeper", "--from-cluster", "--kubeconfig", config, "--verify", "--generated", "20", "--report", report)
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	for _, want := range []string{
		"\nnote: Events were not compared\n",
		// Pods, the Namespace, the Secret, the gadget and the definition.
		"both sides ran on 7 live objects, 20 generated objects each (seed 1):",
		"Assign/always-pull: no difference in 27 objects",
		"all 3 policies together: no difference in",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("nothing says %q:\n%s", want, stderr)
		}
	}
	if s.pages["/api/v1/pods"] != 3 {
		t.Errorf("%d pages of Pods were read, want 3", s.pages["/api/v1/pods"])
	}
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Verification struct{ Live int }
	}
	if err := json.Unmarshal(data, &got); err != nil || got.Verification.Live != 7 {
		t.Errorf("%v\n%s", err, data)
	}
}

// Mutators from files may be tried on the objects of a cluster.
func TestMigrateFilesOnCluster(t *testing.T) {
	s, config := newLiveServer(t)
	file := filepath.Join(t.TempDir(), "a.yaml")
	text := "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: a}\nspec:\n  applyTo: [{groups: [''], versions: [v1], kinds: [Pod]}]\n  location: spec.hostNetwork\n  parameters: {assign: {value: false}}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := ran("migrate", "gatekeeper", "-f", file, "--from-cluster", "--kubeconfig", config, "--verify", "--generated", "0")
	if code != 0 || !strings.Contains(stderr, "both sides ran on 3 live objects:") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	if s.pages["/apis/mutations.gatekeeper.sh/v1beta1/assign"] != 0 {
		t.Error("the cluster's mutators are read, too")
	}
}

// What may not be read is told: objects are left out, but mutators are what it is
// all about.
func TestMigrateForbidden(t *testing.T) {
	s, config := newLiveServer(t)
	s.forbidden = "/api/v1/secrets"
	code, _, stderr := ran("migrate", "gatekeeper", "--from-cluster", "--kubeconfig", config, "--verify", "--generated", "0")
	if code != 0 || !strings.Contains(stderr, "note: not compared: list secrets: may not list\n") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	s.forbidden = "/apis/mutations.gatekeeper.sh/v1beta1/assign"
	code, _, stderr = ran("migrate", "gatekeeper", "--from-cluster", "--kubeconfig", config)
	if code != exitUsage || stderr != "mapd: migrate gatekeeper: list assign.mutations.gatekeeper.sh: may not list\n" {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

// docBlock is a code block that shows a command and all that it prints.
var docBlock = regexp.MustCompile("(?s)```\n\\$ (mapd|cat) ([^\n]*)\n(.*?)```\n")

// The commands of docs/gatekeeper.md print what it says they print.
func TestGatekeeperDoc(t *testing.T) {
	doc, err := filepath.Abs("../../docs/gatekeeper.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../docs/tour/gatekeeper")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	text := []byte(readFile(t, doc))
	blocks := docBlock.FindAllSubmatch(text, -1)
	if len(blocks) != 4 {
		t.Fatalf("found %d commands with output", len(blocks))
	}
	after := text
	for _, m := range blocks {
		command, args, want := string(m[1]), string(m[2]), string(m[3])
		var out bytes.Buffer
		if command == "cat" {
			out.WriteString(readFile(t, args))
		} else {
			run(strings.Fields(args), nil, &out, &out)
		}
		if *update {
			block := bytes.Replace(m[0], []byte("\n"+want+"```"), []byte("\n"+out.String()+"```"), 1)
			after = bytes.Replace(after, m[0], block, 1)
			continue
		}
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Errorf("%s %s (-docs +printed):\n%s", command, args, d)
		}
	}
	if *update {
		if err := os.WriteFile(doc, after, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
