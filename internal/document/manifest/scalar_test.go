package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/tree"
)

// A scalar that stands somewhere in a document means what it means to kubectl, as a
// value and as a key.
func TestScalarsMeanWhatTheyMeanToKubectl(t *testing.T) {
	const head = "apiVersion: v1\nkind: A\n"
	words := strings.Fields(`a ~ null Null NULL nULL yes Yes YES yEs no on On off OFF true True TRUE false y Y n N t f
		0 -0 5 +5 -5 007 0777 0o17 0x1F -0x1F 0b11 0b-1 0_1 1_000 _1 -_5 1__0 9223372036854775807 9223372036854775808 -9223372036854775808 18446744073709551615 18446744073709551616
		5.0 -0.0 0.5 .5 -.5 5. 1e3 1E3 1e+3 1e-3 1e400 1.5e 1e . -. +. ... .e5 ._5 .inf -.Inf +.INF .nan .NaN .iNf 1_0.5 0x1p4 1_e_5 0_x1F _0xF +_0b1 500m 1Gi 0xg 1e5m
		1:30 2001-01-02 2001-01-02T03:04:05Z 1.2.3 v1 1Gi 500m -a +b .a "yes" '5' ""`)
	words = append(words, "!!str 5", "!!int 5", "!!float 5", "!!float 5.5", "!!bool yes", "!!null ~", "!!int x", "!!int '5'", "!!binary aGk=", "!!float 9223372036854775808", "!other 5")
	for _, word := range words {
		for _, text := range []string{head + "v: " + word + "\n", head + "v: [" + word + "]\n", head + word + ": v\n"} {
			data, wantErr := yaml.YAMLToJSON([]byte(text))
			for d, err := range ReadStream("in.yaml", strings.NewReader(text)) {
				if (err != nil) != (wantErr != nil) {
					t.Errorf("%q: error %v, want %v", text, err, wantErr)
				}
				if err != nil || wantErr != nil {
					continue
				}
				want, err := tree.Decode(data)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, d.Object.Object); diff != "" {
					t.Errorf("%q (-kubectl +mapd):\n%s", text, diff)
				}
			}
		}
	}
}
