package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
)

// A log that nobody reads does not block who writes to it; a later reader gets the number of
// lines that were dropped.
func TestLogWithoutReader(t *testing.T) {
	r, pipe := io.Pipe()
	w := newLogWriter(pipe, func(w io.Writer, dropped int) { fmt.Fprintf(w, "dropped %d\n", dropped) })
	line := strings.Repeat("x", 99) + "\n"
	const many = 3 * logBytes / 100
	for range many {
		if n, err := fmt.Fprint(w, line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	go func() { w.Close(); pipe.Close() }()
	kept, dropped := 0, 0
	for s := bufio.NewScanner(r); s.Scan(); {
		var n int
		if _, err := fmt.Sscanf(s.Text(), "dropped %d", &n); err == nil {
			dropped += n
			continue
		}
		kept++
	}
	if kept+dropped != many || kept < logBytes/100 || dropped == 0 {
		t.Errorf("%d lines and %d dropped of %d", kept, dropped, many)
	}
}
