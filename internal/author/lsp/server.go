// Package lsp answers one question: how does an editor talk to mapd?
//
// It speaks the Language Server Protocol on two streams, and manages files and open documents.
// The answers come from internal/author/language. Start reading at Serve.
package lsp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/mapd-project/mapd/internal/author/language"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/lint"
)

// Bounds of a server.
const (
	// maxOpen is how many documents may be open.
	maxOpen = 1_000
	// maxRequests is how many requests may wait for their answers.
	maxRequests = 64
	// requestTime bounds a request, and lintTime the search for what is wrong.
	requestTime = 10 * time.Second
	lintTime    = time.Minute
	// pause is the time after the last key before diagnostics are computed. It is short, because
	// only what has changed is linted.
	pause = 75 * time.Millisecond
)

// Options say what a server is.
type Options struct {
	Version string
	Lint    lint.Options
	Log     io.Writer
}

// ErrNoShutdown is returned if the client disconnects without a shutdown request.
var ErrNoShutdown = errors.New("the client ended without shutdown")

// Serve answers a client until it says exit, or until there is no more to read.
func Serve(ctx context.Context, in io.Reader, out io.Writer, opts Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{
		opts: opts, workspace: language.New(language.Options{Lint: opts.Lint}), open: map[string]*document{}, running: map[jsonrpc2.ID]context.CancelFunc{},
		edited: make(chan struct{}, 1), exit: cancel, log: log.New(opts.Log, "mapd lsp: ", 0),
	}
	framing := &codec{}
	stream := jsonrpc2.NewBufferedStream(&pipes{in, out, cancel}, framing)
	framing.refuse = func(code int64, text string) {
		// The id of the request is not known, and the protocol requires null then.
		_ = stream.WriteObject(object{"jsonrpc": "2.0", "id": nil, "error": jsonrpc2.Error{Code: code, Message: text}})
	}
	var watching sync.WaitGroup
	conn := jsonrpc2.NewConn(ctx, stream, s, jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
	watching.Go(func() { s.watch(ctx, conn) })
	<-conn.DisconnectNotify() // it also ends with ctx
	cancel()
	watching.Wait()
	s.requests.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil
	}
	if err := framing.failed.Load(); err != nil {
		return *err
	}
	return ErrNoShutdown
}

// pipes are the two streams.
type pipes struct {
	io.Reader
	io.Writer
	cancel func()
}

func (p *pipes) Close() error {
	p.cancel()
	return nil
}

// server is the state of a connection.
type server struct {
	opts      Options
	workspace *language.Workspace
	log       *log.Logger
	exit      func()
	requests  sync.WaitGroup
	edited    chan struct{} // something has changed

	mu      sync.Mutex
	ready   bool // initialized
	down    bool // shutdown
	folders []string
	watches bool
	open    map[string]*document // by the name in the workspace
	running map[jsonrpc2.ID]context.CancelFunc
	lint    context.CancelFunc // of the run under way; nil: none
}

// document is one that is open in the editor.
type document struct {
	uri       string
	version   int
	published []diagnostic
	sent      bool // published was sent for some version
}

// Handle implements jsonrpc2.Handler. Messages arrive one by one, in their order. Handle applies
// changes itself; other goroutines answer requests.
func (s *server) Handle(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	if req.Notif {
		s.guard(req.Method, func() { s.notified(ctx, conn, req) })
		return
	}
	s.mu.Lock()
	ready, down, busy := s.ready, s.down, len(s.running) >= maxRequests
	s.mu.Unlock()
	fail := func(code int64, text string) {
		_ = conn.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: code, Message: text})
	}
	switch {
	case !ready && req.Method != "initialize":
		fail(-32002, "the server is not initialized")
		return
	case down:
		fail(jsonrpc2.CodeInvalidRequest, "the server was shut down")
		return
	case busy:
		fail(requestFailed, "too many requests at a time")
		return
	case req.Method == "initialize" || req.Method == "shutdown": // in their order
		result, err := s.answer(ctx, req)
		s.reply(ctx, conn, req, result, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	s.mu.Lock()
	s.running[req.ID] = cancel
	s.mu.Unlock()
	s.requests.Go(func() {
		defer func() {
			cancel()
			s.mu.Lock()
			delete(s.running, req.ID)
			s.mu.Unlock()
		}()
		var result any
		err := errors.New("internal error")
		s.guard(req.Method, func() { result, err = s.answer(ctx, req) })
		if err == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = ctx.Err()
		}
		s.reply(context.WithoutCancel(ctx), conn, req, result, err)
	})
}

// Codes of errors.
const (
	requestFailed    = -32803
	requestCancelled = -32800
)

// guard calls f. A panic is a bug of this program, and ends only f.
func (s *server) guard(method string, f func()) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Printf("%s: panic: %v", method, r)
		}
	}()
	f()
}

func (s *server) reply(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request, result any, err error) {
	failure := &jsonrpc2.Error{}
	switch {
	case err == nil:
		_ = conn.Reply(ctx, req.ID, result) // an error is that the client is gone
		return
	case errors.As(err, &failure):
	case errors.Is(err, context.Canceled):
		failure = &jsonrpc2.Error{Code: requestCancelled, Message: "cancelled"}
	case errors.Is(err, context.DeadlineExceeded):
		failure = &jsonrpc2.Error{Code: requestFailed, Message: fmt.Sprintf("not done after %v", requestTime)}
	default:
		failure = &jsonrpc2.Error{Code: requestFailed, Message: err.Error()}
	}
	_ = conn.ReplyWithError(ctx, req.ID, failure)
}

// read decodes the parameters of a message.
func read[T any](req *jsonrpc2.Request) (params T, err error) {
	if req.Params == nil {
		return params, nil
	}
	if err := json.Unmarshal(*req.Params, &params); err != nil {
		return params, &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidParams, Message: "params: " + manifest.Mistyped(err)}
	}
	return params, nil
}

// answer returns the result of a request.
func (s *server) answer(ctx context.Context, req *jsonrpc2.Request) (any, error) {
	switch req.Method {
	case "initialize":
		return s.initialize(req)
	case "shutdown":
		s.mu.Lock()
		s.down = true
		s.mu.Unlock()
		return nil, nil
	}
	p, err := read[documentParams](req)
	if err != nil {
		return nil, err
	}
	name := nameOf(p.TextDocument.URI)
	switch req.Method {
	case "textDocument/completion":
		if p.Context.TriggerCharacter == " " && s.workspace.InExpression(name, p.Position) {
			return []completionItem{}, nil // in an expression, a space asks for no completion
		}
		items, err := s.workspace.Complete(ctx, name, p.Position)
		out := make([]completionItem, len(items))
		for i, c := range items {
			out[i] = completionItem{c.Label, itemKinds[c.Kind], c.Detail, markdown(c.Doc), fmt.Sprintf("%04d", i), c.Edit}
		}
		return out, err
	case "textDocument/hover":
		h, err := s.workspace.Hover(ctx, name, p.Position)
		if h == nil {
			return nil, err
		}
		return hover{markdown(h.Text), h.Range}, err
	case "textDocument/definition":
		l, err := s.workspace.Definition(ctx, name, p.Position)
		if l == nil {
			return nil, err
		}
		return location{p.TextDocument.URI, l.Range}, err
	case "textDocument/documentSymbol":
		symbols, err := s.workspace.Symbols(ctx, name)
		return symbolsOf(symbols), err
	case "textDocument/references":
		locations, err := s.workspace.References(ctx, name, p.Position, p.Context.IncludeDeclaration)
		out := make([]location, len(locations))
		for i, l := range locations {
			out[i] = location{p.TextDocument.URI, l.Range}
		}
		return out, err
	case "textDocument/rename":
		edits, err := s.workspace.Rename(ctx, name, p.Position, p.NewName)
		if err != nil {
			return nil, err
		}
		return object{"changes": object{p.TextDocument.URI: edits}}, nil
	case "textDocument/signatureHelp":
		sig, err := s.workspace.Signature(ctx, name, p.Position)
		if sig == nil {
			return nil, err
		}
		return signatureOf(sig), err
	case "textDocument/formatting":
		edits, err := s.workspace.Format(ctx, name)
		return append([]language.Edit{}, edits...), err
	case "textDocument/codeAction":
		return s.actions(ctx, name, p)
	}
	return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: req.Method + " is not served"}
}

var itemKinds = map[language.ItemKind]int{
	language.FieldItem: 5, language.VariableItem: 6, language.FunctionItem: 3, language.TypeItem: 7, language.KeywordItem: 14, language.ValueItem: 12,
}

var symbolKinds = map[language.SymbolKind]int{
	language.ObjectSymbol: 19, language.VariableSymbol: 13, language.ConditionSymbol: 17, language.MutationSymbol: 24, language.CaseSymbol: 12,
}

func symbolsOf(symbols []language.Symbol) []documentSymbol {
	out := make([]documentSymbol, len(symbols))
	for i, s := range symbols {
		out[i] = documentSymbol{s.Name, s.Detail, symbolKinds[s.Kind], s.Range, s.Selection, symbolsOf(s.Children)}
	}
	return out
}

func signatureOf(s *language.Signature) object {
	forms := make([]object, len(s.Forms))
	for i, f := range s.Forms {
		parameters := make([]object, len(f.Parameters))
		for j, p := range f.Parameters {
			parameters[j] = object{"label": p}
		}
		forms[i] = object{"label": f.Label, "parameters": parameters, "documentation": markdown(s.Doc)}
	}
	return object{"signatures": forms, "activeSignature": s.Active, "activeParameter": s.Argument}
}

func (s *server) initialize(req *jsonrpc2.Request) (any, error) {
	p, err := read[initializeParams](req)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready {
		return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidRequest, Message: "initialized twice"}
	}
	s.ready, s.watches = true, p.Capabilities.Workspace.DidChangeWatchedFiles.DynamicRegistration
	for _, f := range p.WorkspaceFolders {
		s.folders = append(s.folders, f.URI)
	}
	if len(s.folders) == 0 && p.RootURI != "" {
		s.folders = []string{p.RootURI}
	}
	return capabilities(s.opts.Version), nil
}

func (s *server) actions(ctx context.Context, name string, p documentParams) (any, error) {
	wants := func(kind string) bool {
		return len(p.Context.Only) == 0 || slices.ContainsFunc(p.Context.Only, func(only string) bool {
			return kind == only || strings.HasPrefix(kind, only+".")
		})
	}
	out := []codeAction{}
	if !wants(quickFix) && !wants(fixAll) {
		return out, nil
	}
	actions, err := s.workspace.Actions(ctx, name, p.Range)
	for _, a := range actions {
		c := codeAction{Title: a.Title, Kind: fixAll, Edit: object{"changes": object{p.TextDocument.URI: a.Edits}}}
		if a.Diagnostic != nil {
			c.Kind, c.Diagnostics = quickFix, []diagnostic{spoken(*a.Diagnostic)}
		}
		if wants(c.Kind) {
			out = append(out, c)
		}
	}
	return out, err
}

// notified takes a notification.
func (s *server) notified(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	switch req.Method {
	case "exit":
		s.exit()
		return
	case "$/cancelRequest":
		if p, err := read[cancelParams](req); err == nil {
			var id jsonrpc2.ID
			if json.Unmarshal(p.ID, &id) == nil {
				s.mu.Lock()
				if cancel := s.running[id]; cancel != nil {
					cancel()
				}
				s.mu.Unlock()
			}
		}
		return
	}
	s.mu.Lock()
	ready, folders, watches := s.ready, s.folders, s.watches
	s.mu.Unlock()
	if !ready {
		return
	}
	switch req.Method {
	case "initialized":
		s.scan(folders)
		if watches {
			s.requests.Go(func() {
				_ = conn.Call(ctx, "client/registerCapability", registration, nil) // without it, files are read once
			})
		}
	case "workspace/didChangeWorkspaceFolders":
		p, err := read[changeFoldersParams](req)
		if err != nil {
			s.log.Print(err)
			return
		}
		s.changeFolders(p)
	case "workspace/didChangeWatchedFiles":
		p, err := read[watchedFilesParams](req)
		if err != nil {
			s.log.Print(err)
			return
		}
		for _, c := range p.Changes[:min(len(p.Changes), language.MaxDocuments)] {
			s.reread(nameOf(c.URI))
		}
	case "textDocument/didOpen", "textDocument/didChange", "textDocument/didClose":
		p, err := read[documentParams](req)
		if err == nil {
			err = s.change(ctx, conn, req.Method, p)
		}
		if err != nil {
			s.log.Printf("%s: %v", req.Method, err)
			_ = conn.Notify(ctx, "window/showMessage", object{"type": 2, "message": "mapd: " + err.Error()})
			return
		}
	default:
		return
	}
	s.kick()
}

// kick asks for new diagnostics.
func (s *server) kick() {
	s.mu.Lock()
	if s.lint != nil {
		s.lint()
	}
	s.mu.Unlock()
	select {
	case s.edited <- struct{}{}:
	default:
	}
}

// change opens, changes or closes a document.
func (s *server) change(ctx context.Context, conn *jsonrpc2.Conn, method string, p documentParams) error {
	name := nameOf(p.TextDocument.URI)
	s.mu.Lock()
	d, count := s.open[name], len(s.open)
	s.mu.Unlock()
	switch {
	case method == "textDocument/didClose":
		if d == nil {
			return nil
		}
		s.mu.Lock()
		delete(s.open, name)
		s.mu.Unlock()
		s.reread(name)
		return conn.Notify(ctx, "textDocument/publishDiagnostics", publishParams{URI: d.uri, Diagnostics: []diagnostic{}})
	case method == "textDocument/didOpen":
		if d == nil && count >= maxOpen {
			return fmt.Errorf("more than %d documents are open", maxOpen)
		}
		if err := s.workspace.Set(name, p.TextDocument.Text); err != nil {
			return err
		}
	case d == nil:
		return language.ErrUnknown
	default:
		text, _ := s.workspace.Text(name)
		text, err := language.Apply(text, p.Changes...)
		if err == nil {
			err = s.workspace.Set(name, text)
		}
		if err != nil { // the two sides no longer have the same text
			s.mu.Lock()
			delete(s.open, name)
			s.mu.Unlock()
			s.workspace.Remove(name)
			return fmt.Errorf("%s: %w; close it and open it again", p.TextDocument.URI, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d = s.open[name]; d == nil {
		d = &document{}
		s.open[name] = d
	}
	d.uri, d.version, d.sent = p.TextDocument.URI, p.TextDocument.Version, false
	return nil
}

// watch computes diagnostics after each pause, and sends them to the client.
func (s *server) watch(ctx context.Context, conn *jsonrpc2.Conn) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.edited:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		run, cancel := context.WithTimeout(ctx, lintTime)
		s.mu.Lock()
		s.lint = cancel
		versions := map[string]int{}
		for name, d := range s.open {
			versions[name] = d.version
		}
		s.mu.Unlock()
		s.guard("diagnostics", func() {
			found, err := s.workspace.Diagnostics(run)
			switch {
			case errors.Is(run.Err(), context.DeadlineExceeded):
				s.log.Printf("diagnostics: not done after %v", lintTime)
			case err == nil:
				s.publish(ctx, conn, found, versions)
			case run.Err() == nil:
				s.log.Printf("diagnostics: %v", err)
			}
		})
		s.mu.Lock()
		s.lint = nil
		s.mu.Unlock()
		cancel()
	}
}

// publish sends what is new for open documents that still have these versions.
func (s *server) publish(ctx context.Context, conn *jsonrpc2.Conn, found map[string][]language.Diagnostic, versions map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		all := []diagnostic{}
		for _, d := range found[name] {
			all = append(all, spoken(d))
		}
		s.mu.Lock()
		d := s.open[name]
		if d == nil || d.version != versions[name] || d.sent && reflect.DeepEqual(d.published, all) {
			s.mu.Unlock()
			continue
		}
		d.published, d.sent = all, true
		params := publishParams{URI: d.uri, Version: new(int), Diagnostics: all}
		*params.Version = d.version
		s.mu.Unlock()
		_ = conn.Notify(ctx, "textDocument/publishDiagnostics", params)
	}
}

var severities = map[lint.Severity]int{lint.Error: 1, lint.Warning: 2, lint.Info: 3}

func spoken(d language.Diagnostic) diagnostic {
	return diagnostic{d.Range, severities[d.Severity], d.Rule, "mapd", d.Message}
}

// relevant are the words of files that others are held against.
var relevant = [][]byte{[]byte("AdmissionPolicy"), []byte("CustomResourceDefinition"), []byte("kind: Namespace")}

func isRelevant(data []byte) bool {
	return slices.ContainsFunc(relevant, func(word []byte) bool { return bytes.Contains(data, word) })
}

// registration asks the client to watch files.
var registration = object{"registrations": []object{{
	"id": "mapd-files", "method": "workspace/didChangeWatchedFiles",
	"registerOptions": object{"watchers": []object{{"globPattern": "**/*.{yaml,yml}"}}},
}}}
