package main

// Sessions of an editor with mapd lsp, as files. Each line is a message, and what it brings is
// written to standard output:
//
//	> METHOD PARAMS   a request and its result
//	! METHOD PARAMS   a notification
//	< METHOD VERSION  a notification of that method is waited for; of diagnostics, one that is
//	                  about a version of a document
//	open FILE         textDocument/didOpen with the text of a file
//
// URIs are below $ROOT, on both sides.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/sourcegraph/jsonrpc2"
)

// editor is the client of a session.
type editor struct {
	conn     *jsonrpc2.Conn
	notified chan *jsonrpc2.Request
	root     string
	out      bytes.Buffer
}

// Handle implements jsonrpc2.Handler.
func (e *editor) Handle(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	if !req.Notif {
		_ = conn.Reply(ctx, req.ID, nil)
	}
	e.notified <- req
}

// stdio are the streams of a process.
type stdio struct {
	io.Reader
	io.WriteCloser
}

// playSession is the command "lsp FILE [FLAGS…]" of scripts.
func playSession(ts *testscript.TestScript, neg bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, ts.Getenv("MAPD_PROGRAM"), append([]string{"lsp"}, args[1:]...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	e := &editor{notified: make(chan *jsonrpc2.Request, 1000), root: "file://" + ts.Getenv("WORK")}
	e.conn = jsonrpc2.NewConn(ctx, jsonrpc2.NewBufferedStream(stdio{out, in}, jsonrpc2.VSCodeObjectCodec{}), e)
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			if err := e.play(ctx, ts, line); err != nil {
				ts.Fatalf("%s: %v\n%s\n%s", line, err, e.out.String(), log.String())
			}
		}
	}
	err = cmd.Wait()
	_ = e.conn.Close()
	if (err != nil) != neg {
		ts.Fatalf("%v\n%s", err, log.String())
	}
	_, _ = ts.Stdout().Write(e.out.Bytes())
	_, _ = ts.Stderr().Write(log.Bytes())
}

func (e *editor) play(ctx context.Context, ts *testscript.TestScript, line string) error {
	line = strings.ReplaceAll(line, "$ROOT", e.root)
	verb, rest, _ := strings.Cut(line, " ")
	method, text, _ := strings.Cut(rest, " ")
	var params any
	if text != "" {
		params = json.RawMessage(text)
	}
	switch verb {
	case "open":
		return e.conn.Notify(ctx, "textDocument/didOpen", map[string]any{"textDocument": map[string]any{
			"uri": e.root + "/" + method, "languageId": "yaml", "version": 1, "text": ts.ReadFile(method),
		}})
	case "!":
		return e.conn.Notify(ctx, method, params)
	case ">":
		var result any
		err := e.conn.Call(ctx, method, params, &result)
		if method == "exit" {
			return nil
		}
		e.print(method, result, err)
		return nil
	case "<":
		for {
			select {
			case req := <-e.notified:
				if req.Method == method {
					var params map[string]any
					if req.Params != nil {
						_ = json.Unmarshal(*req.Params, &params)
					}
					if text != "" && fmt.Sprint(params["version"]) != text {
						continue
					}
					e.print(method, params, nil)
					return nil
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return fmt.Errorf("what is %s?", verb)
}

// print writes what came; of completions only the names and what they are.
func (e *editor) print(method string, result any, err error) {
	fmt.Fprintf(&e.out, "%s:\n", method)
	if items, ok := result.([]any); ok && method == "textDocument/completion" {
		for _, item := range items {
			m := item.(map[string]any)
			fmt.Fprintf(&e.out, "  %v: %v\n", m["label"], m["detail"])
		}
		return
	}
	if err != nil {
		fmt.Fprintf(&e.out, "  %v\n", err)
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("  ", "  ")
	_ = enc.Encode(result)
	fmt.Fprint(&e.out, "  ", strings.ReplaceAll(b.String(), e.root, "$ROOT"))
}
