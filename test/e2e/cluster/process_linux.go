//go:build e2e

package cluster

import "syscall"

// attributes put a process into a group of its own, so that it can be ended with
// all that it starts, and end it with the test program.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
