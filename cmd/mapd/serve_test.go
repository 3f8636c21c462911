package main

import (
	"bytes"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/servingcert"
)

// A bundle of authorities that is cut off has fewer of them, and must not be taken.
func TestCertPool(t *testing.T) {
	var bundle []byte
	for range 2 {
		_, ca, err := servingcert.SelfSigned([]string{"localhost"})
		if err != nil {
			t.Fatal(err)
		}
		bundle = append(bundle, ca...)
	}
	broken := bytes.Replace(bundle, []byte("MII"), []byte("AAA"), 1)
	for _, tt := range []struct {
		name, text, want string
	}{
		{"two", string(bundle), ""},
		{"words around them", "# ours\n" + string(bundle) + "\n# end\n", ""},
		{"cut off", string(bundle[:len(bundle)-40]), "certificate 2 is cut off, or not in PEM form"},
		{"broken", string(broken), "certificate 1: "},
		{"empty", "", "no certificate in PEM form"},
	} {
		_, err := certPool([]byte(tt.text))
		if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A command bounds the memory of modules wherever it runs, and more than once.
func TestLimitCommand(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	for range 2 {
		o := boundedRuntime(limitCommand())
		if o.AllMemory <= 0 || o.AllMemory > moduleMemory/4 || o.Memory <= 0 || o.Memory > o.AllMemory {
			t.Errorf("guests may have %d bytes, one of them %d", o.AllMemory, o.Memory)
		}
	}
	if limit := debug.SetMemoryLimit(-1); limit == math.MaxInt64 {
		t.Error("the process has no limit")
	}
}
