package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// What is no regular file is not replaced by one.
func TestOverwriteRegular(t *testing.T) {
	dir, err := os.MkdirTemp("", "m") // names of sockets have to be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "s")
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := overwrite(name, nil, []byte("a")); err == nil {
		t.Error("a socket was replaced")
	}
	if info, err := os.Stat(name); err != nil || info.Mode()&os.ModeSocket == 0 {
		t.Errorf("%v, %v", info, err)
	}
}
