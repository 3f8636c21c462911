package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mapd-project/mapd/pkg/servingcert"
	"github.com/mapd-project/mapd/test/guest"
)

var update = flag.Bool("update", false, "rewrite the golden files in the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"mapd": func() {
			if os.Getenv("MAPD_WORKER") != "" {
				fmt.Fprintln(os.Stderr, work())
				os.Exit(1)
			}
			os.Exit(runProgram(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// concurrent matches the scripts of commands in which several goroutines work.
var concurrent = regexp.MustCompile(`/(serve.*|lsp|playground|eval_(external.*|guests|record)|expand(_validation)?|bench)\.txtar$`)

func TestScript(t *testing.T) {
	all, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(all) == 0 {
		t.Fatalf("%d scripts, %v", len(all), err)
	}
	if testing.Short() { // for the race detector: each command takes a second with it
		all = slices.DeleteFunc(all, func(file string) bool { return !concurrent.MatchString(filepath.ToSlash(file)) })
	}
	action, err := filepath.Abs("../../hack/action.sh")
	if err != nil {
		t.Fatal(err)
	}
	guests, err := filepath.Abs("../../internal/kubewarden/wapc/testdata")
	if err != nil {
		t.Fatal(err)
	}
	w := startWorkers(t)
	testscript.Run(t, testscript.Params{
		Files: all,
		Setup: func(env *testscript.Env) error {
			env.Setenv("ACTION", action)
			env.Setenv("GUESTS", guests)
			w.setup(env)
			return nil
		},
		UpdateScripts:       *update,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":      exits,
			"serve":      startServer,
			"playground": startPlayground,
			"halt":       stopServer, // "stop" is a command of testscript itself, and ends the script
			"hangup":     hangUp,
			"until":      until,
			"makecert":   makeCert,
			"provider":   startProvider,
			"cluster":    startCluster,
			"lsp":        playSession,
			"env-subst": func(ts *testscript.TestScript, _ bool, args []string) { // puts variables into a file
				text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
			},
			"guest": makeGuest,
			"crlf": func(ts *testscript.TestScript, _ bool, args []string) { // gives a file a mark of its encoding and Windows line ends
				text := "\ufeff" + strings.ReplaceAll(ts.ReadFile(args[0]), "\n", "\r\n")
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
			},
		},
	})
}

// exits runs a program and wants an exit code: "exits CODE PROGRAM ARGS".
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// makeGuest writes a module of Kubewarden's: "guest FILE [validate|settings|fail=TEXT |
// trap]...". TEXT may be "@FILE".
func makeGuest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: guest FILE [FIELD=TEXT]...")
	}
	var a guest.Answers
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		if file, ok := strings.CutPrefix(value, "@"); ok {
			value = strings.TrimSpace(ts.ReadFile(file))
		}
		switch name {
		case "validate":
			a.Validate = value
		case "settings":
			a.Settings = value
		case "fail":
			a.Fail = value
		case "call":
			a.Call[0], a.Call[1], _ = strings.Cut(value, " ")
		case "trap":
			a.Trap = true
		default:
			ts.Fatalf("guest: no field %s", name)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), guest.Module(a), 0o600))
}

// server is a mapd serve, or a mapd playground, that a script started.
type server struct {
	cmd *exec.Cmd
	log *heard
	out chan struct{} // closed when its standard output is
}

// deadline is for what may take long on a busy machine and never takes long on
// another.
const deadline = time.Minute

// startServer runs "mapd serve ARGS --listen 127.0.0.1:0" until it listens, and
// sets $URL, $BASE and $CA.
func startServer(ts *testscript.TestScript, neg bool, args []string) {
	start(ts, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...))
}

func start(ts *testscript.TestScript, args []string) {
	s := &server{log: &heard{}, out: make(chan struct{})}
	s.cmd = exec.Command(ts.Getenv("MAPD_PROGRAM"), args...)
	s.cmd.Dir = ts.Getenv("WORK")
	s.cmd.Env = append(os.Environ(), "TMPDIR="+ts.Getenv("TMPDIR"), "PATH="+ts.Getenv("PATH"))
	s.cmd.Stderr = s.log
	stdout, err := s.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(s.cmd.Start())
	ts.Defer(func() { _ = s.cmd.Process.Kill() })
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if ca, ok := strings.CutPrefix(lines.Text(), "mapd serve: CA bundle in "); ok {
			ts.Setenv("CA", ca)
		}
		if url, ok := strings.CutPrefix(lines.Text(), "mapd "+args[0]+": listening on "); ok {
			ts.Setenv("URL", url)
			ts.Setenv("BASE", strings.TrimSuffix(url, "/mutate"))
			go func() {
				_, _ = io.Copy(io.Discard, stdout)
				close(s.out)
			}()
			running.Store(ts.Getenv("WORK"), s)
			return
		}
	}
	_ = s.cmd.Wait()
	ts.Fatalf("the server did not start:\n%s", s.log)
}

// running are the servers by the directory of their script; scripts run in
// parallel.
var running sync.Map

// stopServer ends the server with SIGTERM and leaves its log in the file "log". With "!" it
// has to end with an error.
func stopServer(ts *testscript.TestScript, neg bool, args []string) {
	v, ok := running.Load(ts.Getenv("WORK"))
	if !ok {
		ts.Fatalf("no server is running")
	}
	s := v.(*server)
	ts.Check(s.cmd.Process.Signal(syscall.SIGTERM))
	<-s.out
	err := s.cmd.Wait()
	ts.Check(os.WriteFile(ts.MkAbs("log"), []byte(s.log.String()), 0o644))
	if err != nil && !neg {
		ts.Fatalf("the server ended with %v:\n%s", err, s.log)
	}
	if err == nil && neg {
		ts.Fatalf("the server ended without an error:\n%s", s.log)
	}
}

// hangUp sends the server SIGHUP.
func hangUp(ts *testscript.TestScript, neg bool, args []string) {
	v, ok := running.Load(ts.Getenv("WORK"))
	if !ok {
		ts.Fatalf("no server is running")
	}
	ts.Check(v.(*server).cmd.Process.Signal(syscall.SIGHUP))
}

// until PATTERN COMMAND... runs a mapd command, or "get URL", until what it
// prints matches; "log" is what the server has printed so far.
func until(ts *testscript.TestScript, neg bool, args []string) {
	pattern := regexp.MustCompile(args[0])
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var out bytes.Buffer
		switch args[1] {
		case "log":
			v, ok := running.Load(ts.Getenv("WORK"))
			if !ok {
				ts.Fatalf("no server is running")
			}
			out.WriteString(v.(*server).log.String())
		case "get":
			f := sendFlags{caFile: ts.Getenv("CA")}
			client, err := f.client()
			ts.Check(err)
			if resp, err := client.Get(args[2]); err == nil {
				_, _ = io.Copy(&out, resp.Body)
				resp.Body.Close()
			}
		default:
			for i, a := range args {
				if strings.HasSuffix(a, ".yaml") {
					args[i] = ts.MkAbs(a)
				}
			}
			run(args[1:], strings.NewReader(""), &out, &out)
		}
		if pattern.Match(out.Bytes()) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			ts.Fatalf("never printed %s, last:\n%s", args[0], out.String())
		}
	}
}

// makeCert writes ca.pem, cert.pem and key.pem for localhost.
func makeCert(ts *testscript.TestScript, neg bool, args []string) {
	cert, ca, err := servingcert.SelfSigned([]string{"localhost", "127.0.0.1"})
	ts.Check(err)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	ts.Check(err)
	var chain []byte
	for _, der := range cert.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	for name, data := range map[string][]byte{
		"ca.pem": ca, "cert.pem": chain, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	} {
		ts.Check(os.WriteFile(ts.MkAbs(name), data, 0o600))
	}
}

// startProvider runs the sample provider of examples/external-data: "provider ARGS".
// It issues certificates into certs, and sets $PROVIDER to the URL and $PROVIDER_CA to
// the caBundle.
func startProvider(ts *testscript.TestScript, neg bool, args []string) {
	program := ts.MkAbs("external-data")
	build := exec.Command("go", "build", "-o", program, "../../examples/external-data")
	if out, err := build.CombinedOutput(); err != nil {
		ts.Fatalf("%v\n%s", err, out)
	}
	certs := ts.MkAbs("certs")
	ts.Check(exec.Command(program, "issue", "--dir", certs, "--host", "127.0.0.1").Run())
	ca, err := os.ReadFile(certs + "/ca.crt")
	ts.Check(err)
	cmd := exec.Command(program, append([]string{"serve", "--certs", certs, "--table", "../../examples/external-data/table.txt"}, args...)...)
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		ts.Fatalf("the provider did not start: %q", line)
	}
	ts.Setenv("PROVIDER", url)
	ts.Setenv("PROVIDER_CA", base64.StdEncoding.EncodeToString(ca))
}
