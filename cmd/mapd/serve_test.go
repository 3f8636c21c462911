package main

import (
	"bytes"
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
