package cel

import "testing"

// Texts are integers as resource.ParseQuantity of k8s.io/apimachinery 0.38.0-alpha.2 has them.
func TestExactQuantity(t *testing.T) {
	for text, want := range map[string]bool{
		"100000000000000000":         true,
		"1000000000000000000":        true,
		"-1000000000000000000":       true,
		"+001000000000000000000":     true,
		"10000000000000000000":       false,
		"9223372036854775807":        true,
		"9223372036854775808":        false,
		"100000000000000000.1":       false,
		"100000000000000000.0":       false,
		"0.100000000000000000e18":    true,
		"0.000000000000000001e20":    true,
		"922337203685477580.7e1":     true,
		"1e18":                       true,
		"1000000000000000000k":       false,
		"1000000000000000000Ki":      false,
		"0.000000000000000000":       false,
		"1000000000000000000000e-3":  false,
		"1000000000000000000.000e-3": false,
	} {
		q, err := exactQuantity(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := q.AsInt64(); got != want {
			t.Errorf("%s is an integer: %t, want %t", text, got, want)
		}
	}
	if _, err := exactQuantity("1x"); err == nil {
		t.Error("1x is a quantity")
	}
}
