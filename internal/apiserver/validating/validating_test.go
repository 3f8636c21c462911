package validating_test

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// file is a case of testdata. test/e2e sends the same files to an API server.
type file struct{ policies, objects, object, want string }

func read(t testing.TB, path string) file {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var f file
	at := map[string]*string{"policies.yaml": &f.policies, "objects.yaml": &f.objects, "object.yaml": &f.object, "want": &f.want}
	for _, section := range archive.Files {
		if at[section.Name] == nil {
			t.Fatalf("%s: no section %q is known", path, section.Name)
		}
		*at[section.Name] = string(section.Data)
	}
	return f
}

func documents(t testing.TB, text string) []*manifest.Document {
	t.Helper()
	docs, errs := manifest.ReadAll([]manifest.Input{{Name: "test.yaml", Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text)), nil
	}}}, func(*manifest.Document) {})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return docs
}

// load makes a Set of documents, and a request for the object.
func load(t testing.TB, policies, objects, object string) (*validating.Set, *policy.Request) {
	t.Helper()
	docs, errs := validating.Read(t.Context(), documents(t, policies))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return loadWith(t, docs, objects, object)
}

func loadWith(t testing.TB, docs validating.Documents, objects, object string) (*validating.Set, *policy.Request) {
	t.Helper()
	s, errs := policyset.Build(documents(t, objects), policyset.Options{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	set, err := validating.NewSet(docs.Policies, docs.Bindings, validating.Sources{
		Sources: s.Sources(), Types: s.Types, Convert: policyset.Convert(s.Types), Authorizer: s.Authorizer(),
	})
	if err != nil {
		t.Fatal(err)
	}
	req, err := policy.NewRequest(s.Types, admissionv1.Create, documents(t, object)[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	return set, req
}

func text(v validating.Result) string {
	var b strings.Builder
	for _, f := range v.Violations {
		fmt.Fprintln(&b, strings.TrimSpace(string(f.Action)+" "+string(f.Reason))+": "+f.String())
	}
	for _, a := range v.Annotations {
		fmt.Fprintf(&b, "annotation %s/%s: %s\n", a.Policy, a.Key, a.Value)
	}
	return b.String()
}

func TestCases(t *testing.T) {
	hammer.Alone(t)
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			f := read(t, path)
			set, req := load(t, f.policies, f.objects, f.object)
			before := req.Object.DeepCopy()
			v, err := set.Judge(context.Background(), req, req.Object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(f.want, text(v)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(before, req.Object); diff != "" {
				t.Errorf("the object was modified: %s", diff)
			}
		})
	}
}
