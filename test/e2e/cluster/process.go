//go:build e2e

package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a server that a test has started. It may be stopped and started
// again any number of times; its methods may be called from any goroutine.
type Process struct {
	Name string
	// LogFile holds what it printed, of all its lives.
	LogFile string

	path string
	args []string
	env  []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
	err  error         // how it ended
}

// newProcess describes a process of a test without starting it. When the test
// ends it is killed, and the end of its log is printed if the test has failed.
func newProcess(t testing.TB, dir, name, path string, args, env []string) *Process {
	p := &Process{Name: name, LogFile: filepath.Join(dir, name+".log"), path: path, args: args, env: env}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", p.Name, p.tail(40))
		}
	})
	return p
}

// Start starts the process; it must not be running.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	if err := p.start(); err != nil {
		t.Fatalf("start %s: %v", p.Name, err)
	}
}

func (p *Process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("it is running")
	}
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Dir = filepath.Dir(p.LogFile)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes()
	if err := spawn(cmd); err != nil {
		return err
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

// running is called with the lock held.
func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Running says whether the process is there, paused or not.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// PID is the number of the process that runs now; 0 if none does.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Done is closed when the process that runs now has ended.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return p.done
}

// ExitCode is that of the process that has ended; -1 if it runs or a signal ended it.
func (p *Process) ExitCode() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.running() {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// Stop sends SIGTERM and waits for the end. The test fails if that takes longer
// than timeout, or if the exit code is not 0.
func (p *Process) Stop(t testing.TB, timeout time.Duration) {
	t.Helper()
	p.Terminate()
	p.WaitEnd(t, timeout)
}

// WaitEnd waits for the end after Terminate, as Stop does.
func (p *Process) WaitEnd(t testing.TB, timeout time.Duration) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(timeout):
		t.Errorf("%s still runs %s after SIGTERM", p.Name, timeout)
		p.Kill()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		t.Errorf("%s after SIGTERM: %v", p.Name, p.err)
	}
}

// Terminate sends SIGTERM and does not wait; see WaitEnd. (A second SIGTERM
// would end mapd at once.)
func (p *Process) Terminate() { p.signal(syscall.SIGTERM) }

// Kill ends the process at once, and what it has started.
func (p *Process) Kill() {
	done := p.Done()
	p.signal(syscall.SIGKILL)
	<-done
}

// Pause stops the process in its tracks: its connections stay open and nothing
// is answered. Continue lets it go on. A thread that is at work takes a moment to
// stop, so Pause waits until all of them have.
func (p *Process) Pause() {
	p.signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(time.Minute); p.Running() && !stopped(p.cmd.Process.Pid) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// Continue ends a Pause.
func (p *Process) Continue() { p.signal(syscall.SIGCONT) }

// signal sends a signal to the process and what it has started.
func (p *Process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		// The only error is that it has just ended, which Done tells.
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

// Log returns what the process has printed.
func (p *Process) Log(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile(p.LogFile)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

// tail returns the last n lines of the log.
func (p *Process) tail(n int) string {
	data, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	lines = lines[max(0, len(lines)-n):]
	return string(bytes.Join(lines, []byte("\n")))
}

// ended describes a process that should run and does not; nil while it runs.
func (p *Process) ended() error {
	p.mu.Lock()
	running, err := p.running(), p.err
	p.mu.Unlock()
	if running {
		return nil
	}
	return fmt.Errorf("%s has ended: %v\n%s", p.Name, err, p.tail(20))
}

// spawn starts commands from one thread that never ends: Linux sends the signal
// of a parent's death when the thread dies that started the child.
func spawn(cmd *exec.Cmd) error {
	spawner.once.Do(func() {
		spawner.commands = make(chan *exec.Cmd)
		spawner.errors = make(chan error)
		go func() {
			runtime.LockOSThread()
			for cmd := range spawner.commands {
				spawner.errors <- cmd.Start()
			}
		}()
	})
	spawner.mu.Lock()
	defer spawner.mu.Unlock()
	spawner.commands <- cmd
	return <-spawner.errors
}

var spawner struct {
	once     sync.Once
	mu       sync.Mutex
	commands chan *exec.Cmd
	errors   chan error
}

// run runs a command to its end and returns what it printed to standard output.
func run(t testing.TB, dir string, stdin []byte, env []string, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(path), strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// Process describes a server of the test's own, which runs beside those of the cluster
// and ends with the test. It is not started.
func (c *Cluster) Process(t testing.TB, name, path string, args ...string) *Process {
	return newProcess(t, c.Dir, name, path, args, nil)
}
