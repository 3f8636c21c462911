package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program that allocates without end ends, and says why.
func TestLimit(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node runs the program, and is not installed")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(`package main

var kept [][]byte

func main() {
	for {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
		if len(kept) > 200 {
			println("there was more")
			return
		}
	}
}
`), 0o666); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "p.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", file, source)
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	run := func() (string, error) {
		out, err := exec.CommandContext(t.Context(), node, filepath.Join(strings.TrimSpace(string(root)), "lib/wasm/wasm_exec_node.js"), file).CombinedOutput()
		return string(out), err
	}
	if out, err := run(); err != nil || out != "there was more\n" {
		t.Fatalf("without a bound: error %v, output %s", err, out)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// Twice, because a bound is replaced, too.
	for _, pages := range []uint64{2048, 1024} {
		if program, err = limit(program, pages); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, program, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "out of memory") {
		t.Errorf("with 64 MiB: error %v, want exit code 2 and Go's report that it is out of memory; output:\n%s", err, out)
	}
}

func TestLimitRefuses(t *testing.T) {
	const head = "\x00asm\x01\x00\x00\x00"
	for program, want := range map[string]string{
		"":                            "no WebAssembly program",
		"GIF89a":                      "no WebAssembly program",
		head:                          "no section of memories",
		head + "\x05":                 "no section of memories",
		head + "\x05\xff":             "no section of memories",
		head + "\x05\x7f\x01":         "no section of memories",
		head + "\x05\x03\x02\x00\x01": "want one",
		head + "\x05\x03\x01\x00\xff": "ends early",
		head + "\x05\x03\x01\x00\x7f": "starts with 8323072 bytes",
	} {
		if _, err := limit([]byte(program), 16); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", program, err, want)
		}
	}
}
