//go:build e2e && !linux

package cluster

import "syscall"

// attributes puts a process into a process group of its own, so that it can be killed together with
// the processes that it starts. Only Linux can also kill it when the test program is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// stopped always returns true, because without /proc the states of threads are not known.
func stopped(int) bool { return true }
