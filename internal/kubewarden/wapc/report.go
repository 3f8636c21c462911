package wapc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
)

// Report describes a module.
type Report struct {
	Digest string `json:"digest"`
	Bytes  int    `json:"bytes"`
	Mode   Mode   `json:"executionMode,omitempty"`
	// Annotated reports whether the module has metadata.
	Annotated bool     `json:"annotated"`
	Imports   []string `json:"imports,omitempty"`
	Exports   []string `json:"exports,omitempty"` // functions
	Functions int      `json:"functions,omitempty"`
	Memory    int64    `json:"memory,omitempty"` // initial size in bytes
	// Refused is the reason why mapd does not run the module; empty if it does.
	Refused  string   `json:"refused,omitempty"`
	Metadata Metadata `json:"metadata,omitzero"`
}

// Inspect describes a module. It compiles the module to find out whether it can run. An error
// comes from the context or the machine; problems of the module are in the report.
func (r *Runtime) Inspect(ctx context.Context, wasm []byte) (Report, error) {
	digest := sha256.Sum256(wasm)
	report := Report{Digest: "sha256:" + hex.EncodeToString(digest[:]), Bytes: len(wasm)}
	b, err := readBinary(wasm, &r.bounds)
	if err != nil {
		report.Refused = err.Error()
		return report, nil
	}
	report.Annotated = b.metadata != nil
	report.Functions = len(b.functions)
	report.Memory = int64(b.memoryPages) * pageSize
	for _, i := range b.imports {
		report.Imports = append(report.Imports, i.Module+"."+i.Name)
	}
	for name := range b.exports {
		report.Exports = append(report.Exports, name)
	}
	slices.Sort(report.Imports)
	report.Imports = slices.Compact(report.Imports) // a module may import a function twice
	slices.Sort(report.Exports)
	report.Metadata, err = readMetadata(b.metadata)
	if err != nil {
		report.Refused = err.Error()
		return report, nil
	}
	report.Mode = b.mode(report.Metadata)
	m, err := r.Compile(ctx, "inspected", wasm)
	var refusal *Refusal
	var guest *Error
	switch {
	case err == nil:
		return report, m.Close()
	case errors.As(err, &refusal), errors.As(err, &guest):
		report.Refused = err.Error()
		return report, nil
	}
	return report, err
}
