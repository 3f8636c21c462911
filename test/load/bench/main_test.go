package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain runs a plain server if the test program was started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-floor" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestQuick runs the whole program, with few policies and for a short time.
func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds mapd and starts servers")
	}
	mapd := filepath.Join(t.TempDir(), "mapd")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", mapd, "./cmd/mapd")
	cmd.Dir = filepath.Join("..", "..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var out bytes.Buffer
	if err := run(t.Context(), &flags{out: &out, mapd: mapd, quick: true, turns: 1, each: 1}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, s := range short {
		for _, n := range connections {
			if row := fmt.Sprintf("\n| %s | %d | ", s.name, n); strings.Count(out.String(), row) != 2 {
				t.Errorf("not one row for each Pod that begins with %q", row)
			}
		}
	}
	if !strings.Contains(out.String(), "\n| 10 labels of 1000, big Pod: CPU ≤ 2× the floor's | ") {
		t.Error("no goals")
	}
	var sized bytes.Buffer
	if err := run(t.Context(), &flags{out: &sized, mapd: mapd, scale: true, quick: true, turns: 1, each: 1}); err != nil {
		t.Fatalf("%v\n%s", err, sized.String())
	}
	if !strings.Contains(sized.String(), "\n| 50 | 10 | 30 | ") {
		t.Errorf("no row for 50 nodes:\n%s", sized.String())
	}
	if t.Failed() {
		t.Log(out.String())
	}
}
