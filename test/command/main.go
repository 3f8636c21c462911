//go:build unix

// Command command is the program that the test scripts of cmd/mapd run as mapd. It sends its
// arguments, directory, environment and standard streams to a process that TestScript has started,
// which runs the command of mapd. Starting this program takes 3 ms of CPU time; starting mapd
// takes 150.
//
// If a command needs a process of its own, this program executes mapd instead: see alone.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Call is the command that a process is asked to run. The three standard streams are sent with it
// as file descriptors.
type Call struct {
	Dir  string
	Args []string
	Env  []string
}

func main() {
	args := os.Args[1:]
	if alone(args) {
		err := syscall.Exec(os.Getenv("MAPD_PROGRAM"), append([]string{"mapd"}, args...), os.Environ())
		fail(err)
	}
	code, err := ask(os.Getenv("MAPD_SOCKET"), args)
	if err != nil {
		fail(err)
	}
	os.Exit(code)
}

// alone reports whether a command needs a process of its own: it was not started by the script
// itself but by another program such as a shell, which may kill it or run two at a time; it opens
// its own standard input by name; or client-go reads files in a home directory that the script
// made.
func alone(args []string) bool {
	return os.Getenv("MAPD_SOCKET") == "" ||
		strconv.Itoa(os.Getppid()) != os.Getenv("MAPD_CALLER") ||
		slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "/dev/") }) ||
		os.Getenv("HOME") != "/no-home"
}

// ask sends a call and waits for its exit code. It does not use package net, whose initialization
// takes as long as that of the rest of the program.
func ask(socket string, args []string) (int, error) {
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	data, err := json.Marshal(Call{Dir: dir, Args: args, Env: os.Environ()})
	if err != nil {
		return 0, err
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		return 0, fmt.Errorf("%s: %w", socket, err)
	}
	conn := os.NewFile(uintptr(fd), socket)
	if err := syscall.Sendmsg(fd, []byte{0}, syscall.UnixRights(0, 1, 2), nil, 0); err != nil {
		return 0, err
	}
	if _, err := conn.Write(data); err != nil {
		return 0, err
	}
	if err := syscall.Shutdown(fd, syscall.SHUT_WR); err != nil {
		return 0, err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return 0, err
	}
	if len(answer) != 1 {
		return 0, fmt.Errorf("the process that runs commands ended")
	}
	return int(answer[0]), nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "test/command:", err)
	os.Exit(125)
}
