package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/mapd-project/mapd/internal/author/suite"
	"github.com/mapd-project/mapd/web/gallery"
)

// passes runs a suite as mapd test does.
func passes(t *testing.T, a SuiteAnswer, cases int) {
	t.Helper()
	if len(a.Errors) > 0 || len(a.Files) < 2 {
		t.Errorf("errors %v and %d files", a.Errors, len(a.Files))
		return
	}
	dir := t.TempDir()
	for _, f := range a.Files {
		if f.Name != filepath.Base(f.Name) {
			t.Fatalf("a file with the name %q", f.Name)
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := suite.Find([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	r := suite.Run(t.Context(), found, suite.Options{})
	if len(r.Errs) > 0 || len(r.Outcomes) != cases || r.Count(suite.Passed) != cases {
		t.Errorf("errors %v\n%s\n%s", r.Errs, r.Text(false, false), a.Files[0].Text)
	}
}

func TestSuite(t *testing.T) {
	secret := "apiVersion: v1\nkind: Pod\nmetadata: {name: db, labels: {owner: 'yes'}}\nspec: {containers: [{name: a, image: b}]}\n"
	for name, tt := range map[string]struct {
		q     Question
		cases int
	}{
		"two objects of one name": {Question{Documents: texts(label("a", `"x"`)), Objects: texts(pod+"---\n"+pod, secret)}, 3},
		"who asks": {Question{
			Documents: texts(label("a", `request.userInfo.username + request.userInfo.groups[0] + request.userInfo.extra["k"][0] + request.namespace + string(request.dryRun)`)), Objects: texts(pod),
			User:      authenticationv1.UserInfo{Username: "eve", UID: "7", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}},
			Namespace: "shop", DryRun: true, Kubernetes: "1.34",
		}, 1},
		"an update": {Question{
			Documents: texts(strings.ReplaceAll(label("a", `oldObject.metadata.labels["owner"] + "!"`), "[CREATE]", "[UPDATE]")), Objects: texts(secret), Old: texts(pod + "---\n" + secret),
		}, 1},
		"without a binding": {Question{Documents: texts(strings.Split(label("a", `"x"`), "---")[0]), Objects: texts(pod), Unbound: true}, 1},
		"a refusal":         {Question{Documents: texts(label("a", `object.metadata.labels["no"]`)), Objects: texts(pod)}, 1},
		"no match":          {Question{Documents: texts(label("a", `"x"`)), Objects: texts("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")}, 1},
		"a mutator":         {Question{Documents: texts(assign), Objects: texts(pod)}, 1},
		"names of files": {Question{
			Documents: []Text{{Name: "../../etc/passwd", Text: label("a", `"x"`)}, {Name: "mapd-test.yaml", Text: label("b", `"x"`)}, {Name: "Ü *?[].YAML", Text: ""}, {Name: "", Text: "# empty"}, {Name: "A", Text: label("c", `"x"`)}, {Name: "a.yaml", Text: label("d", `"x"`)}}, Objects: texts(pod),
		}, 1},
	} {
		t.Run(name, func(t *testing.T) { passes(t, ask[SuiteAnswer](t, unhurried(), "suite", tt.q), tt.cases) })
	}
	for name, q := range map[string]Question{
		"there is no policy among the documents":                  {Objects: texts(pod)},
		"there is no object":                                      {Documents: texts(label("a", `"x"`))},
		"did not find expected node content":                      {Documents: texts("a: [")},
		`operation "BUY": want CREATE, UPDATE, CONNECT or DELETE`: {Operation: "BUY"},
	} {
		if a := ask[SuiteAnswer](t, unhurried(), "suite", q); len(a.Errors) != 1 || a.Errors[0].Message != name || a.Files != nil {
			t.Errorf("%s: answer %+v", name, a)
		}
	}
}

// The suite made from each example passes.
func TestSuiteOfGallery(t *testing.T) {
	entries, err := gallery.Entries(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		q := question(t, e.State)
		a := ask[SuiteAnswer](t, unhurried(), "suite", q)
		switch e.Name {
		case "external-data", "kubewarden": // no provider is asked and no module runs here
			if len(a.Errors) != 1 {
				t.Errorf("%s: errors %v", e.Name, a.Errors)
			}
			continue
		}
		t.Run(e.Name, func(t *testing.T) { passes(t, a, strings.Count(a.Files[0].Text, "\n- name: ")) })
	}
}
