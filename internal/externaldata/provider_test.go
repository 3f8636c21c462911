package externaldata_test

import (
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/servingcert"
)

func provider(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text, err := yaml.YAMLToJSON([]byte("apiVersion: externaldata.gatekeeper.sh/v1beta1\nkind: Provider\nmetadata: {name: p}\n" + spec))
	if err == nil {
		err = u.UnmarshalJSON(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func caBundle(t *testing.T) string {
	t.Helper()
	_, ca, err := servingcert.SelfSigned([]string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(ca)
}

func TestDecodeProvider(t *testing.T) {
	ca := caBundle(t)
	for spec, want := range map[string]struct {
		timeout time.Duration
		pure    bool
	}{
		"spec: {url: 'https://h:1/x', timeout: 3, caBundle: CA}":                  {3 * time.Second, false},
		"spec: {url: 'HTTPS://h', timeout: 0, caBundle: CA}":                      {5 * time.Second, false},
		"spec: {url: 'https://h', caBundle: CA, unknown: x}\nstatus: {byPod: []}": {5 * time.Second, false},
		"spec: {url: 'https://h', timeout: 9223372036854775807, caBundle: CA}":    {time.Hour, false},
	} {
		u := provider(t, strings.ReplaceAll(spec, "CA", ca))
		for _, version := range legacy.ProviderVersions() {
			u.SetAPIVersion("externaldata.gatekeeper.sh/" + version)
			p, err := externaldata.DecodeProvider(u)
			if err != nil {
				t.Errorf("%s: %v", spec, err)
				continue
			}
			if p.Name != "p" || p.Timeout != want.timeout || p.NoSideEffects || !strings.HasPrefix(string(p.CABundle), "-----BEGIN") {
				t.Errorf("%s: %+v", spec, p)
			}
		}
		u.SetAnnotations(map[string]string{legacy.SideEffectsAnnotation: "None"})
		if p, err := externaldata.DecodeProvider(u); err != nil || !p.NoSideEffects {
			t.Errorf("%s: %+v, %v", spec, p, err)
		}
	}
}

func TestDecodeProviderRefuses(t *testing.T) {
	ca := caBundle(t)
	text, err := base64.StdEncoding.DecodeString(ca)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	block.Type = "TRUSTED CERTIFICATE"
	other := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(block))
	junk := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
	for spec, want := range map[string]string{
		"spec: {}":                                      "spec.url: invalid provider url. value: ",
		"spec: null":                                    "spec.url: invalid provider url. value: ",
		"spec: []":                                      "spec: expected an object, got a list",
		"spec: {url: 7}":                                "spec.url: expected a string, got an integer",
		"spec: {url: 'https://h', timeout: '1'}":        "spec.timeout: expected an integer, got a string",
		"spec: {url: 'https://h', timeout: 1.5}":        "spec.timeout: expected an integer, got a number",
		"spec: {url: 'https://h', timeout: -1}":         "spec.timeout: provider timeout should be a positive integer. value: -1",
		"spec: {url: 'http://h', caBundle: CA}":         "spec.url: only HTTPS scheme is supported for Providers",
		"spec: {url: 'h', caBundle: CA}":                "spec.url: only HTTPS scheme is supported for Providers",
		"spec: {url: 'https://h:x', caBundle: CA}":      `spec.url: parse "https://h:x": invalid port ":x" after host`,
		"spec: {url: 'https://h'}":                      "spec.caBundle: caBundle should be set for HTTPS scheme",
		"spec: {url: 'https://h', caBundle: '?'}":       "spec.caBundle: failed to base64 decode caBundle: illegal base64 data at input byte 0",
		"spec: {url: 'https://h', caBundle: abcd}":      "spec.caBundle: bad caBundle",
		"spec: {url: 'https://h', caBundle: " + junk:    "spec.caBundle: failed to parse caBundle: x509: malformed certificate",
		"spec: {url: 'https://h', caBundle: " + other:   "spec.caBundle: caBundle has no block of the type CERTIFICATE",
		"spec: {url: 'https:///x', caBundle: CA}":       `spec.url: the url "https:///x" has no host`,
		"spec: {url: 'https://h', caBundle: CA, NONAME": "metadata.name: provider name can not be empty. value ",
		"spec: {url: 'https://h', caBundle: CA, V2":     `apiVersion: no kind "Provider" is registered for version "externaldata.gatekeeper.sh/v2"`,
	} {
		t.Run(spec, func(t *testing.T) {
			written, noName := strings.CutSuffix(spec, ", NONAME")
			written, v2 := strings.CutSuffix(written, ", V2")
			if !strings.HasSuffix(written, "}") && strings.Contains(written, "{") {
				written += "}"
			}
			u := provider(t, strings.ReplaceAll(written, "CA}", ca+"}"))
			name := "p"
			if noName {
				u.SetName("")
				name = ""
			}
			if v2 {
				u.SetAPIVersion("externaldata.gatekeeper.sh/v2")
			}
			_, err := externaldata.DecodeProvider(u)
			if err == nil || err.Error() != "Provider/"+name+": "+want {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}
