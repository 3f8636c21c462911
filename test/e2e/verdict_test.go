//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// TestVerdicts sends the objects of internal/apiserver/validating/testdata to an API server that
// runs their ValidatingAdmissionPolicies and has their Namespace's levels of Pod
// Security: it denies with a message that the file wants, and warns as it wants.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Flags: []string{"--allow-privileged"}})
	files, err := filepath.Glob("../../internal/apiserver/validating/testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	warnings := &warnings{}
	config := rest.CopyConfig(c.Config)
	config.WarningHandler = warnings
	client := c.DynamicClient(t, config)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string]string{}
			for _, f := range archive.Files {
				sections[f.Name] = string(f.Data)
			}
			namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
			given := sections["policies.yaml"] + "\n---\n" + sections["objects.yaml"]
			defer func() {
				var others []string
				for doc := range strings.SplitSeq(given, "\n---\n") {
					if strings.TrimSpace(doc) != "" && !strings.Contains("\n"+doc, "\nkind: Namespace\n") {
						others = append(others, doc)
					}
				}
				if len(others) == 0 {
					return
				}
				if out, err := c.Kubectl(t, []byte(strings.Join(others, "\n---\n")), "delete", "--ignore-not-found", "--wait=false", "-f", "-"); err != nil {
					t.Errorf("clean up: %v\n%s", err, out)
				}
			}()
			// A Namespace that is made anew would stay Terminating, so its labels change.
			c.Apply(t, namespace)
			c.Apply(t, given)
			var want verdictOf
			for line := range strings.Lines(sections["want"]) {
				what, message, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
				switch action, reason, _ := strings.Cut(what, " "); action {
				case "Deny":
					want.denials = append(want.denials, reason+": "+message)
				case "Warn":
					want.warnings = append(want.warnings, message)
				}
			}
			cluster.Eventually(t, cluster.Patience, "the server's verdict", func(ctx context.Context) error {
				got := send(ctx, client, warnings, sections["object.yaml"])
				return want.check(got)
			})
		})
	}
}

// verdictOf is what a server says of an object: the denials, of which it sends one, and
// the warnings.
type verdictOf struct{ denials, warnings []string }

func (want verdictOf) check(got verdictOf) error {
	slices.Sort(want.warnings)
	slices.Sort(got.warnings)
	if diff := cmp.Diff(want.warnings, got.warnings); diff != "" {
		return fmt.Errorf("warnings: -want +got\n%s", diff)
	}
	switch {
	case len(want.denials) == 0 && len(got.denials) == 0:
	case len(want.denials) > 0 && len(got.denials) == 1 && slices.Contains(want.denials, got.denials[0]):
	default:
		return fmt.Errorf("denied with %q, want one of %q", got.denials, want.denials)
	}
	return nil
}

func send(ctx context.Context, client dynamic.Interface, warnings *warnings, yaml string) (got verdictOf) {
	o, err := parsed(yaml)
	if err != nil {
		return verdictOf{denials: []string{err.Error()}}
	}
	warnings.take()
	pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(o.GetNamespace())
	_, err = pods.Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	var status *apierrors.StatusError
	switch {
	case errors.As(err, &status):
		_, message, _ := strings.Cut(status.ErrStatus.Message, " is forbidden: ")
		got.denials = []string{string(status.ErrStatus.Reason) + ": " + message}
	case err != nil:
		got.denials = []string{err.Error()}
	}
	got.warnings = warnings.take()
	return got
}

// warnings collects what a server warns of.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}
