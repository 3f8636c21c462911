package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/test/guest"
)

const metadata = `{"protocolVersion":"v1","rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"]}],
"mutating":true,"contextAwareResources":[{"apiVersion":"v1","kind":"Namespace"}],"minimumKubewardenVersion":"1.20.0","somethingNew":1,
"annotations":{"io.kubewarden.policy.title":"drop\u001b[2J","io.kubewarden.policy.author":"me","io.artifacthub.keywords":"pod","io.kubewarden.policy.usage":"Use it.\n"}}`

// annotated appends a custom section, as kwctl annotate does.
func annotated(wasm []byte, metadata string) []byte {
	body := append([]byte{22}, "io.kubewarden.metadata"+metadata...)
	wasm = append(wasm[:len(wasm):len(wasm)], 0)
	return append(binary.AppendUvarint(wasm, uint64(len(body))), body...)
}

func TestInspect(t *testing.T) {
	plain := guest.Module(guest.Answers{})
	good := annotated(annotated(plain, metadata), `{"a later section":"does not count"}`)
	for _, c := range []struct {
		name   string
		wasm   []byte
		output string
		code   int
		want   string // a part
	}{
		{"annotated", good, "text", 0, `
Details
title:                      drop\x1b[2J
author:                     me
mutating:                   true
background audit support:   true
context aware:              true
policy type:                kubernetes
protocol version:           1
minimum kubewarden version: 1.20.0

Annotations
io.artifacthub.keywords:    pod

Rules
- apiGroups:
  - ""
  apiVersions:
  - v1
  operations:
  - CREATE
  resources:
  - pods

Context Aware
- apiVersion: v1
  kind: Namespace

Usage
Use it.
`},
		{"annotated", good, "text", 0, "runs:                       yes\ndigest:                     sha256:"},
		{"annotated", good, "yaml", 0, "\n  mutating: true\n"},
		{"annotated", good, "json", 0, "\n  \"executionMode\": \"kubewarden-wapc\",\n"},
		{"plain", plain, "text", 0, "No Kubewarden metadata found inside of the module; kwctl annotate writes it.\n"},
		{"broken metadata", annotated(plain, "{"), "text", 3, "runs:                       no: the metadata is not what kwctl annotate writes: unexpected end of JSON input\n"},
		{"no module", []byte("MZ"), "text", 3, "runs:                       no: not a WebAssembly module: it does not begin with \"\\0asm\"\n"},
		{"rego", annotated(plain, `{"rules":[],"mutating":false,"executionMode":"gatekeeper"}`), "json", 3,
			`"refused": "execution mode gatekeeper is Rego compiled to WebAssembly; mapd runs kubewarden-wapc and wasi"`},
		{"policy", plain, "xml", 2, ""},
	} {
		t.Run(c.name+" "+c.output, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "module.wasm")
			if err := os.WriteFile(file, c.wasm, 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			if code := run([]string{"inspect", file, "-o", c.output}, nil, &out, &errs); code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, &errs)
			}
			if !bytes.Contains(out.Bytes(), []byte(c.want)) {
				t.Errorf("not part of the output:\n%s", cmp.Diff(c.want, out.String()))
			}
		})
	}
}
