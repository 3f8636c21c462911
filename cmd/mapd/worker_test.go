//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// runProgram is mapd as the scripts run it.
func runProgram(args []string, in io.Reader, out, err io.Writer) int {
	built := site
	defer func() { site = built }()
	switch {
	case os.Getenv("SITE") == "none":
		site = func() fs.FS { return nil }
	case site() == nil: // nobody ran make web in this tree
		site = smallSite
	}
	return run(args, in, out, err)
}

// workers are processes that run the commands of scripts, one at a time, so that not every
// command starts a process and compiles what all commands need. A worker takes the directory
// and the environment of each command; test/command sends them. With MAPD_SCRIPTS=processes
// there are no workers, and every command is a process of its own.
type workers struct {
	dir, socket, program string
}

func startWorkers(t *testing.T) *workers {
	t.Helper()
	program, err := exec.LookPath("mapd")
	if err != nil {
		t.Fatal(err)
	}
	w := &workers{program: program}
	if os.Getenv("MAPD_SCRIPTS") == "processes" {
		return w
	}
	w.dir, err = os.MkdirTemp("", "mapd") // t.TempDir can be too long a name for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(w.dir) })
	if out, err := exec.Command("go", "build", "-o", filepath.Join(w.dir, "mapd"), "../../test/command").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w.socket = filepath.Join(w.dir, "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	listener, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	for range runtime.GOMAXPROCS(0) {
		// Its arguments are those of a program that scripts run, see TestMain.
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), "MAPD_WORKER=1", "HOME=/no-home")
		cmd.Stderr = os.Stderr
		cmd.ExtraFiles = []*os.File{listener}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		})
	}
	// Once no worker is left, commands fail and do not wait.
	listener.Close()
	l.Close()
	return w
}

// setup has the commands of a script find the workers.
func (w *workers) setup(env *testscript.Env) {
	env.Setenv("MAPD_PROGRAM", w.program)
	if w.socket != "" {
		env.Setenv("MAPD_SOCKET", w.socket)
		env.Setenv("MAPD_CALLER", strconv.Itoa(os.Getpid()))
		env.Setenv("PATH", w.dir+string(os.PathListSeparator)+env.Getenv("PATH"))
	}
}

// work is a worker: it runs commands until it is killed.
func work() error {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		if err := serveCall(conn.(*net.UnixConn)); err != nil {
			return err
		}
		conn.Close()
	}
}

func serveCall(conn *net.UnixConn) error {
	rights := make([]byte, syscall.CmsgSpace(3*4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil {
		return err
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("%d messages, %v", len(messages), err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 3 {
		return fmt.Errorf("%d files, %v", len(fds), err)
	}
	var files [3]*os.File
	for i, name := range []string{"/dev/stdin", "/dev/stdout", "/dev/stderr"} {
		files[i] = os.NewFile(uintptr(fds[i]), name)
		defer files[i].Close()
	}
	var call struct {
		Dir       string
		Args, Env []string
	}
	if err := json.NewDecoder(conn).Decode(&call); err != nil {
		return err
	}
	if err := os.Chdir(call.Dir); err != nil {
		return err
	}
	os.Clearenv()
	for _, e := range call.Env {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	os.Stdin = files[0] // whose name a command compares with that of its files
	code := runProgram(call.Args, files[0], files[1], files[2])
	if _, err := conn.Write([]byte{byte(code)}); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}
