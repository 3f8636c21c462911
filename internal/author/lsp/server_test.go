package lsp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/mapd-project/mapd/internal/lint"
)

// client is an editor on the other end of two pipes.
type client struct {
	t    testing.TB
	conn *jsonrpc2.Conn
	done chan error

	mu        sync.Mutex
	published map[string]int // versions, by the uri
	came      chan struct{}
}

// Handle implements jsonrpc2.Handler.
func (c *client) Handle(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	if !req.Notif {
		_ = conn.Reply(ctx, req.ID, nil)
		return
	}
	var p publishParams
	if req.Method != "textDocument/publishDiagnostics" || json.Unmarshal(*req.Params, &p) != nil || p.Version == nil {
		return
	}
	c.mu.Lock()
	c.published[p.URI] = *p.Version
	c.mu.Unlock()
	select {
	case c.came <- struct{}{}:
	default:
	}
}

// diagnosed waits for the diagnostics of a version.
func (c *client) diagnosed(uri string, version int) {
	for {
		c.mu.Lock()
		now := c.published[uri]
		c.mu.Unlock()
		if now == version {
			return
		}
		select {
		case <-c.came:
		case <-time.After(time.Minute):
			c.t.Fatalf("no diagnostics of %s, version %d", uri, version)
		}
	}
}

type ends struct {
	io.Reader
	io.WriteCloser
}

var options = Options{Lint: lint.Options{Oldest: lint.CurrentMinor, Newest: lint.CurrentMinor}, Log: io.Discard}

// start returns a client of a server in this process.
func start(t testing.TB, root string) *client {
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	c := &client{t: t, done: make(chan error, 1), published: map[string]int{}, came: make(chan struct{}, 1)}
	go func() {
		c.done <- Serve(context.WithoutCancel(t.Context()), toServer, fromServer, options)
		_ = fromServer.Close()
		_ = toServer.Close()
	}()
	c.conn = jsonrpc2.NewConn(context.WithoutCancel(t.Context()), jsonrpc2.NewBufferedStream(ends{toClient, fromClient}, jsonrpc2.VSCodeObjectCodec{}), c)
	if err := c.call("initialize", object{"rootUri": "file://" + root, "capabilities": object{}}, nil); err != nil {
		t.Fatal(err)
	}
	c.notify("initialized", object{})
	return c
}

func (c *client) call(method string, params, result any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), time.Minute)
	defer cancel()
	return c.conn.Call(ctx, method, params, result)
}

func (c *client) notify(method string, params any) {
	if err := c.conn.Notify(context.WithoutCancel(c.t.Context()), method, params); err != nil {
		c.t.Error(err)
	}
}

func (c *client) open(uri, text string) {
	c.notify("textDocument/didOpen", object{"textDocument": object{"uri": uri, "version": 1, "text": text}})
}

func (c *client) stop() {
	if err := c.call("shutdown", nil, nil); err != nil {
		c.t.Error(err)
	}
	c.notify("exit", nil)
	select {
	case err := <-c.done:
		if err != nil {
			c.t.Error(err)
		}
	case <-time.After(time.Minute):
		c.t.Error("the server does not end")
	}
	_ = c.conn.Close()
}

func place(uri string, line, character int) object {
	return object{"textDocument": object{"uri": uri}, "position": object{"line": line, "character": character}}
}

const text = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p%d}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: Object{metadata: Object.metadata{labels: {"n": "%d"}}}
  matchConditions:
  - name: c
    expression: object.spec.
`

func TestDocumentsAreBounded(t *testing.T) {
	c := start(t, t.TempDir())
	defer c.stop()
	for i := range maxOpen + 1 {
		c.open(fmt.Sprintf("file:///d%d.yaml", i), "a: b")
	}
	var items []any
	if err := c.call("textDocument/completion", place(fmt.Sprintf("file:///d%d.yaml", maxOpen-1), 0, 0), &items); err != nil {
		t.Error(err)
	}
	if err := c.call("textDocument/completion", place(fmt.Sprintf("file:///d%d.yaml", maxOpen), 0, 0), &items); err == nil {
		t.Error("one too many is open")
	}
}

// Documents of the folder are known without being opened, as far as they belong to policies.
func TestFolder(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, ".git"), 0o777); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"a policy.yaml": strings.ReplaceAll(fmt.Sprintf(text, 1, 1), "object.spec.", "object.spec.hostname != ''"), "values.yaml": "a: b", ".git/p.yaml": fmt.Sprintf(text, 2, 2), "p.txt": fmt.Sprintf(text, 3, 3),
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	c := start(t, root)
	defer c.stop()
	for name, known := range map[string]bool{"a%20policy.yaml": true, "values.yaml": false, ".git/p.yaml": false, "p.txt": false} {
		var h any
		err := c.call("textDocument/hover", place("file://"+filepath.ToSlash(root)+"/"+name, 14, 20), &h)
		if (err == nil) != known || known && h == nil {
			t.Errorf("%s: %v, %v", name, h, err)
		}
	}
}

// A folder that is added later is read, and one that is removed is forgotten, but for what is
// open and what is in another one.
func TestFoldersChange(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"first/p.yaml", "second/p.yaml", "second/inner/p.yaml", "second/open.yaml"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(strings.ReplaceAll(fmt.Sprintf(text, 1, 1), "object.spec.", "object.spec.hostname != ''")), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	uri := func(name string) string { return "file://" + filepath.ToSlash(root) + "/" + name }
	c := start(t, filepath.Join(root, "first"))
	defer c.stop()
	known := func(want ...string) {
		t.Helper()
		var got []string
		for _, name := range []string{"first/p.yaml", "second/inner/p.yaml", "second/open.yaml", "second/p.yaml"} {
			if c.call("textDocument/hover", place(uri(name), 14, 20), nil) == nil {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("known: %q, want %q", got, want)
		}
	}
	change := func(added, removed []string) {
		of := func(names []string) []object {
			out := []object{}
			for _, name := range names {
				out = append(out, object{"uri": uri(name), "name": name})
			}
			return out
		}
		c.notify("workspace/didChangeWorkspaceFolders", object{"event": object{"added": of(added), "removed": of(removed)}})
	}
	known("first/p.yaml")
	change([]string{"second", "second/inner"}, nil)
	known("first/p.yaml", "second/inner/p.yaml", "second/open.yaml", "second/p.yaml")
	c.open(uri("second/open.yaml"), strings.ReplaceAll(fmt.Sprintf(text, 1, 1), "object.spec.", "object.spec.hostname != ''"))
	change(nil, []string{"first/", "second"})
	known("second/inner/p.yaml", "second/open.yaml")
	c.notify("textDocument/didClose", object{"textDocument": object{"uri": uri("second/open.yaml")}})
	known("second/inner/p.yaml")

	// As Neovim 0.7 writes what it adds, and what it removes.
	c.notify("workspace/didChangeWorkspaceFolders", object{"event": object{"added": []object{{"uri": uri("first"), "name": "first"}}, "removed": [][]string{{}}}})
	known("first/p.yaml", "second/inner/p.yaml")
	c.notify("workspace/didChangeWorkspaceFolders", object{"event": object{"added": [][]string{{}}, "removed": []object{{"uri": uri("first"), "name": "first"}}}})
	known("second/inner/p.yaml")

	var hello struct {
		Capabilities struct {
			Workspace struct {
				WorkspaceFolders struct {
					Supported           bool `json:"supported"`
					ChangeNotifications bool `json:"changeNotifications"`
				} `json:"workspaceFolders"`
			} `json:"workspace"`
		} `json:"capabilities"`
	}
	data, err := json.Marshal(capabilities("1"))
	if err == nil {
		err = json.Unmarshal(data, &hello)
	}
	if f := hello.Capabilities.Workspace.WorkspaceFolders; err != nil || !f.Supported || !f.ChangeNotifications {
		t.Errorf("editors are not told: %+v, %v", f, err)
	}
}

// Many requests and edits at a time: each has an answer, and the text is what it should be.
func TestManyAtATime(t *testing.T) {
	c := start(t, t.TempDir())
	defer c.stop()
	const documents, edits = 4, 20
	var group sync.WaitGroup
	for d := range documents {
		uri := fmt.Sprintf("file:///p%d.yaml", d)
		c.open(uri, fmt.Sprintf(text, d, d))
		group.Go(func() {
			for i := range edits {
				c.notify("textDocument/didChange", object{"textDocument": object{"uri": uri, "version": i + 2}, "contentChanges": []object{
					{"range": object{"start": object{"line": 0, "character": 0}, "end": object{"line": 0, "character": 0}}, "text": "#\n"},
				}})
				var items []completionItem
				err := c.call("textDocument/completion", place(uri, 15+i, 28), &items)
				if err != nil || !slices.ContainsFunc(items, func(i completionItem) bool { return i.Label == "containers" }) {
					t.Errorf("edit %d: %d items, %v", i, len(items), err)
				}
				if err := c.call("textDocument/formatting", object{"textDocument": object{"uri": uri}}, nil); err == nil {
					t.Error("formatted what cannot be parsed")
				}
			}
		})
	}
	group.Wait()
}

// Fields of built-in kinds have the documentation of their Go types.
func TestDescribe(t *testing.T) {
	c := start(t, t.TempDir())
	defer c.stop()
	c.open("file:///p.yaml", strings.ReplaceAll(fmt.Sprintf(text, 1, 1), "object.spec.", "object.spec.containers[0].image"))
	var h hover
	if err := c.call("textDocument/hover", place("file:///p.yaml", 14, 45), &h); err != nil || h.Contents == nil || !strings.Contains(h.Contents.Value, "Container image name") {
		t.Errorf("%+v, %v", h.Contents, err)
	}
}

// What is no message is answered, and the next one is read.
func TestNoMessage(t *testing.T) {
	var in, out bytes.Buffer
	in.Write(message(object{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": object{"capabilities": object{}}}))
	in.WriteString("Content-Length: 5\r\n\r\n{oops")
	in.WriteString("Content-Length: 6\r\n\r\n[1, 2]")
	in.WriteString("Content-Length: 1\r\n\r\n7")
	in.Write(message(object{"jsonrpc": "2.0", "id": 2, "method": "shutdown"}))
	in.Write(message(object{"jsonrpc": "2.0", "method": "exit"}))
	if err := Serve(t.Context(), &in, &out, options); err != nil {
		t.Error(err)
	}
	for _, part := range []string{`"code":-32700`, `"code":-32600`, `"id":null`, `"id":2`} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %s in %s", part, out.String())
		}
	}
}

// A request that nobody waits for any more is answered at once, and says so.
func TestCancel(t *testing.T) {
	c := start(t, t.TempDir())
	defer c.stop()
	const uri = "file:///p.yaml"
	c.open(uri, strings.ReplaceAll(fmt.Sprintf(text, 1, 1), "object.spec.", strings.Repeat("a.map(x, ", 20_000)))
	id := jsonrpc2.ID{Num: 7001}
	call, err := c.conn.DispatchCall(t.Context(), "textDocument/completion", place(uri, 14, 150_000), jsonrpc2.PickID(id))
	if err != nil {
		t.Fatal(err)
	}
	c.notify("$/cancelRequest", object{"id": 7001})
	var failure *jsonrpc2.Error
	if err := call.Wait(t.Context(), nil); !errors.As(err, &failure) || failure.Code != requestCancelled {
		t.Errorf("%v", err)
	}
}

// Questions about the whole document, as a client sends them.
func TestDocumentQuestions(t *testing.T) {
	c := start(t, t.TempDir())
	defer c.stop()
	const uri = "file:///p.yaml"
	c.open(uri, strings.ReplaceAll(fmt.Sprintf(text, 1, 1), "object.spec.", "variables.a == quantity(")+"  variables:\n  - {name: a, expression: \"1\"}\n")
	ask := func(method string, line, character int, more object) string {
		t.Helper()
		params := place(uri, line, character)
		for k, v := range more {
			params[k] = v
		}
		var raw json.RawMessage
		if err := c.call("textDocument/"+method, params, &raw); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		return string(raw)
	}
	for _, tt := range []struct{ got, want string }{
		{ask("completion", 7, 6, nil), `"newText":"reinvocationPolicy"`},
		{ask("completion", 7, 22, object{"context": object{"triggerKind": 2, "triggerCharacter": " "}}), `"IfNeeded"`},
		{ask("hover", 7, 5, nil), "reinvocationPolicy: string"},
		{ask("documentSymbol", 0, 0, nil), `"name":"a","kind":13`},
		{ask("references", 14, 27, object{"context": object{"includeDeclaration": true}}), `"line":16`},
		{ask("rename", 14, 27, object{"newName": "b"}), `"newText":"b"`},
		{ask("signatureHelp", 14, 42, nil), "quantity(string)"},
	} {
		if !strings.Contains(tt.got, tt.want) {
			t.Errorf("no %s in %.600s", tt.want, tt.got)
		}
	}
	if got := ask("completion", 14, 28, object{"context": object{"triggerKind": 2, "triggerCharacter": " "}}); got != "[]" {
		t.Errorf("behind a space of an expression: %.300s", got)
	}
	var failure *jsonrpc2.Error
	if err := c.call("textDocument/rename", object{"textDocument": object{"uri": uri}, "position": object{"line": 0, "character": 0}, "newName": "b"}, nil); !errors.As(err, &failure) {
		t.Errorf("there is nothing to rename: %v", err)
	}
}

func message(v any) []byte {
	data, _ := json.Marshal(v)
	return append(fmt.Appendf(nil, "Content-Length: %d\r\n\r\n", len(data)), data...)
}

// FuzzServe sends a server anything.
func FuzzServe(f *testing.F) {
	hello := message(object{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": object{"capabilities": object{}}})
	f.Add(hello)
	f.Add(slices.Concat(hello, message(object{"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": object{"textDocument": object{"uri": "file:///a", "text": "x"}}}),
		message(object{"jsonrpc": "2.0", "id": "a", "method": "textDocument/hover", "params": place("file:///a", -1, 1<<40)})))
	f.Add([]byte("Content-Length: 2\r\n\r\n{}"))
	f.Add([]byte("Content-Length: -1\r\n\r\n"))
	f.Add([]byte("Content-Length: 4\n\nnull"))
	f.Add(message(object{"jsonrpc": "2.0", "id": 1, "result": 1}))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = Serve(t.Context(), bytes.NewReader(data), io.Discard, options)
	})
}

// BenchmarkCompletion is an edit and the completion behind it, while 200 policies are open and
// are linted after each pause.
func BenchmarkCompletion(b *testing.B) {
	c := start(b, b.TempDir())
	defer c.stop()
	for i := range 200 {
		c.open(fmt.Sprintf("file:///p%d.yaml", i), fmt.Sprintf(text, i, i))
	}
	const uri = "file:///p7.yaml"
	var times []time.Duration
	version := 1
	for b.Loop() {
		version++
		begin := time.Now()
		c.notify("textDocument/didChange", object{"textDocument": object{"uri": uri, "version": version}, "contentChanges": []object{
			{"range": object{"start": object{"line": 14, "character": 28}, "end": object{"line": 14, "character": 29}}, "text": string(rune('a' + version%20))},
		}})
		var items []completionItem
		if err := c.call("textDocument/completion", place(uri, 14, 29), &items); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(times[len(times)-1].Microseconds())/1000, "max-ms")
}

// BenchmarkDiagnostics is an edit and the diagnostics behind it, with the pause between them, while
// 200 policies are open.
func BenchmarkDiagnostics(b *testing.B) {
	c := start(b, b.TempDir())
	defer c.stop()
	uri := func(i int) string { return fmt.Sprintf("file:///p%d.yaml", i) }
	for i := range 200 {
		c.open(uri(i), strings.ReplaceAll(fmt.Sprintf(text, i, i), "object.spec.", "object.metadata.labels.team == 'a'"))
	}
	for i := range 200 {
		c.diagnosed(uri(i), 1)
	}
	var times []time.Duration
	version := 1
	for b.Loop() {
		version++
		at := uri(version % 200)
		begin := time.Now()
		c.notify("textDocument/didChange", object{"textDocument": object{"uri": at, "version": version}, "contentChanges": []object{
			{"range": object{"start": object{"line": 14, "character": 49}, "end": object{"line": 14, "character": 50}}, "text": string(rune('a' + version%20))},
		}})
		c.diagnosed(at, version)
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "p95-ms")
}
