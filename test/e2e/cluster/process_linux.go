//go:build e2e

package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// attributes puts a process into a process group of its own, so that it can be killed together with
// the processes that it starts, and makes Linux kill it when the test program ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// stopped reports whether all threads of a process are stopped. In stat (proc(5)) the state follows
// the name, which is in parentheses.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, file := range threads {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if i := bytes.LastIndexByte(data, ')'); i < 0 || i+2 >= len(data) || data[i+2] != 'T' {
			return false
		}
	}
	return true
}
