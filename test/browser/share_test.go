package browser

import (
	"archive/zip"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// share presses the button and returns the link.
func (b *tab) share() string {
	b.t.Helper()
	b.idle()
	b.click("#share")
	b.until("a link", `location.hash.startsWith("#1.")`)
	return eval[string](b, "location.href")
}

// A link opened elsewhere asks the same question.
func TestShare(t *testing.T) {
	q := example(t, "sidecar-params")
	q.User, q.Namespace, q.DryRun, q.Kubernetes, q.Operation = &user{"jane", []string{"a", "b"}}, "shop", true, "1.36", "UPDATE"
	q.Objects = []text{{"objects.yaml", pod}}
	q.Old = []text{{"old.yaml", pod}}
	q.Documents = append(q.Documents, text{"snow ☃ & <b>.yaml", "# ünïcödé 🙂\n"})
	b := openTab(t, playside+fragment(q))
	b.stores(asked(t, q))
	q.Objects[0].Text = strings.Replace(pod, "nginx", "nginx:2", 1)
	b.write(objectEditor, q.Objects[0].Text)
	b.stores(asked(t, q))
	link := b.share()
	if got := unpacked(t, link); !reflect.DeepEqual(got, q) {
		t.Errorf("the link has\n%+v, want\n%+v", got, q)
	}

	other := openTab(t, link)
	other.stores(asked(t, q))
	if got := unpacked(t, other.share()); !reflect.DeepEqual(got, q) {
		t.Errorf("the link of the link has\n%+v, want\n%+v", got, q)
	}
}

// The browser's buttons go from link to link.
func TestBack(t *testing.T) {
	labels := example(t, "default-labels")
	b := openTab(t, playside+fragment(good()))
	b.stores(asked(t, good()))
	b.open(playside + fragment(labels))
	b.stores(asked(t, labels))
	eval[bool](b, "history.back() ?? true")
	b.stores(asked(t, good()))
	eval[bool](b, "history.forward() ?? true")
	b.stores(asked(t, labels))
}

// write puts files into a directory and returns their paths.
func files(t *testing.T, texts ...text) []string {
	dir := t.TempDir()
	var out []string
	for _, f := range texts {
		out = append(out, filepath.Join(dir, f.Name))
		if err := os.WriteFile(out[len(out)-1], []byte(f.Text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// choose gives files to the dialog that the button of imports opens.
func (b *tab) choose(paths ...string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, *patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, page.SetInterceptFileChooserDialog, page.SetInterceptFileChooserDialogParams{Enabled: true}); err != nil {
		b.t.Fatal(err)
	}
	opened := chromedp.Events(ctx, page.FileChooserOpened)
	b.click("#import")
	b.click("#import-files")
	for e, err := range opened {
		if err != nil {
			b.t.Fatal(err)
		}
		if _, err := chromedp.Call(ctx, dom.SetFileInputFiles, dom.SetFileInputFilesParams{Files: paths, BackendNodeID: e.BackendNodeID}); err != nil {
			b.t.Fatal(err)
		}
		return
	}
	b.t.Fatal("no dialog for files")
}

func TestImport(t *testing.T) {
	q := good()
	policy := text{"p.yaml", policyOf("imported", strings.Replace(labelMutation, "'b'", "'imported'", 1))[0].Text}
	binding := "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: imported}\n"
	want := asked(t, state{Documents: []text{policy}, Objects: q.Objects, Unbound: true})

	t.Run("files", func(t *testing.T) {
		b := openTab(t, playside+fragment(state{Documents: []text{}, Objects: []text{}, Unbound: true}))
		b.choose(files(t, policy, q.Objects[0])...)
		b.stores(want)
	})
	t.Run("dropped", func(t *testing.T) {
		b := openTab(t, playside+fragment(state{Documents: []text{}, Objects: []text{}, Unbound: true}))
		paths := files(t, policy, q.Objects[0])
		for _, kind := range []input.DispatchDragEventType{"dragEnter", "dragOver", "drop"} {
			b.do(func(ctx context.Context) error {
				_, err := chromedp.Call(ctx, input.DispatchDragEvent, input.DispatchDragEventParams{
					Type: kind, X: 300, Y: 300, Data: &input.DragData{Items: []*input.DragDataItem{}, Files: paths, DragOperationsMask: 1},
				})
				return err
			})
		}
		b.stores(want)
	})
	t.Run("a gist", func(t *testing.T) {
		b := openTab(t, playside+fragment(state{Documents: []text{}, Objects: []text{}}))
		gist := map[string]any{"description": "x", "files": map[string]any{
			"policy.yaml":  map[string]any{"filename": "policy.yaml", "content": policy.Text},
			"binding.yaml": map[string]any{"content": binding},
			"pod.yaml":     map[string]any{"content": pod},
		}}
		b.choose(files(t, text{"gist.json", string(must(json.Marshal(gist)))})...)
		b.stores(want)
	})
	t.Run("nothing of use", func(t *testing.T) {
		b := openTab(t, playside+fragment(q))
		b.choose(files(t, text{"image.png", "\x89PNG\r\n\x1a\n\x00\xff\xfe"}, text{"large.yaml", strings.Repeat("# large\n", 1<<20)})...)
		b.until("words", `document.querySelector("#status").innerText.trim() !== "" || document.querySelector("[role=alert]")`)
		b.stores(asked(t, q))
	})
}

// What the page exports passes under the command.
func TestExport(t *testing.T) {
	q := example(t, "default-labels")
	b := openTab(t, playside+fragment(q))
	dir := t.TempDir()
	b.do(func(ctx context.Context) error {
		_, err := chromedp.CallBrowser(ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
			Behavior: "allow", DownloadPath: dir, BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID,
		})
		return err
	})
	b.click("#export")
	b.click("#export-suite")
	var archive *zip.ReadCloser
	b.poll("an archive", func() (string, bool) {
		names, _ := filepath.Glob(filepath.Join(dir, "*.zip"))
		if len(names) == 0 {
			return "there is none", false
		}
		var err error
		archive, err = zip.OpenReader(names[0])
		return names[0], err == nil
	})
	defer archive.Close()
	out := t.TempDir()
	if err := os.CopyFS(out, archive); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "test", out)
	got, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("mapd test: %v\n%s", err, got)
	}
	t.Logf("%s", got)
}
