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
	// LogFile has what the process has printed since it was first started.
	LogFile string

	path string
	args []string
	env  []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
	err  error         // the result of cmd.Wait
}

// newProcess returns a process of a test that is not started yet. When the test ends, the process
// is killed, and the end of its log is printed if the test has failed.
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

// running reports whether the process runs. The caller must hold the lock.
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

// Running reports whether the process exists, even if it is paused.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// PID returns the ID of the running process; 0 if it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Done returns a channel that is closed when the running process has ended.
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

// ExitCode returns the exit code of the process; -1 if it still runs or was ended by a signal.
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

// Terminate sends SIGTERM and does not wait; see WaitEnd. It must not be called twice: a second
// SIGTERM ends mapd at once.
func (p *Process) Terminate() { p.signal(syscall.SIGTERM) }

// Kill kills the process and the processes that it has started.
func (p *Process) Kill() {
	done := p.Done()
	p.signal(syscall.SIGKILL)
	<-done
}

// Pause stops the process by SIGSTOP: its connections stay open, and it does not answer. Continue
// lets it run again. A running thread does not stop immediately, so Pause waits until all threads
// have stopped.
func (p *Process) Pause() {
	p.signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(time.Minute); p.Running() && !stopped(p.cmd.Process.Pid) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// Continue ends a Pause.
func (p *Process) Continue() { p.signal(syscall.SIGCONT) }

// signal sends a signal to the process and the processes that it has started.
func (p *Process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		// The only possible error is that the process has just ended, which closes Done.
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

// ended returns nil while the process runs; else an error with the end of its log.
func (p *Process) ended() error {
	p.mu.Lock()
	running, err := p.running(), p.err
	p.mu.Unlock()
	if running {
		return nil
	}
	return fmt.Errorf("%s has ended: %v\n%s", p.Name, err, p.tail(20))
}

// spawn starts commands from one thread that never ends: Linux sends the parent-death signal to a
// child when the thread that started it ends.
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

// Process returns a server of the test itself, which is not started yet. It ends with the test.
func (c *Cluster) Process(t testing.TB, name, path string, args ...string) *Process {
	return newProcess(t, c.Dir, name, path, args, nil)
}
