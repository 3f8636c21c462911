//go:build e2e && !linux

package cluster

import "syscall"

// attributes put a process into a group of its own, so that it can be ended with
// all that it starts. Only Linux can end it with a test program that is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// stopped is unknown without a /proc.
func stopped(int) bool { return true }
