package wapc

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// segments makes a module of random data segments: next to each other, overlapping,
// beyond memory, passive, with offsets that are computed. Some are used by code.
func segments(r *rand.Rand) []byte {
	n := 1 + r.IntN(12)
	code := []byte{0}
	data := uleb(n)
	used := r.IntN(6) == 0
	at := r.IntN(200)
	for i := range n {
		content := make([]byte, r.IntN(6)*r.IntN(6))
		for j := range content {
			content[j] = byte(1 + r.IntN(255))
		}
		switch r.IntN(40) {
		case 0: // over what was there
			at = max(0, at-r.IntN(40))
		case 1: // at the end of the memory, and beyond
			at = 65536 - r.IntN(20)
		case 2:
			at = -1 - r.IntN(2)
		default:
			at += r.IntN(4) * r.IntN(40)
		}
		offset := slicesConcat([]byte{0x41}, sleb(int64(at)), []byte{opEnd})
		switch kind := r.IntN(60); {
		case kind == 0:
			data = slicesConcat(data, []byte{0, 0x41}, sleb(int64(at)), []byte{0x41, 3, 0x6a, opEnd})
		case kind == 1:
			data = slicesConcat(data, []byte{2, 0}, offset)
		case kind == 2 || used && kind < 30:
			data = append(data, 1)
		default:
			data = slicesConcat(data, []byte{0}, offset)
		}
		data = slicesConcat(data, uleb(len(content)), content)
		if r.IntN(3) == 0 { // memory.init, data.drop
			code = slicesConcat(code, []byte{0x41}, sleb(int64(r.IntN(1000))), []byte{0x41, 0, 0x41, 2, opBulk, 8}, uleb(i), []byte{0, opBulk, 9}, uleb(i))
		}
		at += len(content)
	}
	all := []section{{sectionMemory, []byte{1, 0, 1}}, {sectionExport, slicesConcat([]byte{1, 6}, []byte("memory"), []byte{kindMemory, 0})}}
	if used {
		code = append(code, opEnd)
		all = []section{{sectionType, []byte{1, 0x60, 0, 0}}, {sectionFunction, []byte{1, 0}}, all[0], all[1], {sectionStart, []byte{0}},
			{sectionDataCount, uleb(n)}, {sectionCode, slicesConcat([]byte{1}, uleb(len(code)), code)}}
	}
	out := header
	for _, s := range append(all, section{sectionData, data}) {
		out = slicesConcat(out, []byte{s.id}, uleb(len(s.body)), s.body)
	}
	return out
}

// Merged segments make the memory that the module's own would make, or fail as they do.
func TestMergedSegments(t *testing.T) {
	r := newRuntime(t, Options{Memory: 1 << 20})
	plain := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(16).
		WithCoreFeatures(api.CoreFeaturesV2|experimental.CoreFeaturesExtendedConst))
	defer plain.Close(context.WithoutCancel(t.Context()))
	memory := func(of wazero.Runtime, wasm []byte) ([]byte, error) {
		t.Helper()
		m, err := of.InstantiateWithConfig(t.Context(), wasm, wazero.NewModuleConfig().WithName(""))
		if err != nil {
			return nil, err
		}
		defer m.Close(t.Context())
		if f := m.ExportedFunction(starter); f != nil {
			if _, err := invoke(t.Context(), f); err != nil {
				return nil, err
			}
		}
		all, _ := m.Memory().Read(0, m.Memory().Size())
		return bytes.Clone(all), nil
	}
	random := rand.New(rand.NewPCG(1, 2))
	var merged, kept, failed int
	for i := range 400 {
		wasm := segments(random)
		b, err := readBinary(wasm, &r.bounds)
		if err != nil {
			t.Fatalf("%x: %v", wasm, err)
		}
		metered, err := b.metered(&r.bounds)
		if err != nil {
			t.Fatalf("%x: %v", wasm, err)
		}
		want, wantErr := memory(plain, wasm)
		got, gotErr := memory(r.engine, metered)
		if (wantErr == nil) != (gotErr == nil) || !bytes.Equal(got, want) {
			t.Errorf("module %d, %x: error %v, want %v; the same memory: %t", i, wasm, gotErr, wantErr, bytes.Equal(got, want))
		}
		own := b.sections[len(b.sections)-1].body
		switch {
		case wantErr != nil:
			failed++
		case bytes.HasSuffix(metered, own):
			kept++
		default:
			merged++
		}
	}
	if merged < 50 || kept < 50 || failed < 20 {
		t.Errorf("%d modules were merged, %d kept, and %d failed", merged, kept, failed)
	}
}
