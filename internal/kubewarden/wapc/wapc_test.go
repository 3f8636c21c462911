package wapc

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"
)

// These two guests are those of Kubewarden spec §1.7 and §1.8.
const (
	validGuest = `0061736d01000000010c0260027f7f0060027f7f017f02300204776170630f5f5f67756573745f7265717565737400000477617063105f5f67
756573745f726573706f6e73650000030201010503010001071902066d656d6f727902000c5f5f67756573745f63616c6c00020a1401120041
1041c0001000418002410e100141010b0b1501004180020b0e7b2276616c6964223a747275657d`
	exitingGuest = `0061736d0100000001130460017f0060027f7f0060000060027f7f017f02530316776173695f736e617073686f745f7072657669657731097072
6f635f65786974000004776170630f5f5f67756573745f7265717565737400010477617063105f5f67756573745f726573706f6e736500010303
02020305030100010606017f0141000b072203066d656d6f72790200065f737461727400030c5f5f67756573745f63616c6c00040a20020b0041
01240041001000000b1200411041c00010014180204111100223000b0b1801004180200b117b226163636570746564223a747275657d`
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newRuntime(t testing.TB, o Options) *Runtime {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second // a busy machine is not what is tested
	}
	r, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if n := r.memory.Load(); n != 0 {
			t.Errorf("%d bytes of guests' memory are left after Close", n)
		}
	})
	return r
}

func compile(t testing.TB, r *Runtime, wasm []byte) *Module {
	t.Helper()
	m, err := r.Compile(t.Context(), "test", wasm)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestSpecGuests(t *testing.T) {
	r := newRuntime(t, Options{})
	for guest, want := range map[string]string{validGuest: `{"valid":true}`, exitingGuest: `{"accepted":true}`} {
		m := compile(t, r, unhex(t, guest))
		for range 5 {
			got, err := m.Call(t.Context(), "validate_settings", []byte(`{"drop":["BPF"]}`), nil)
			if err != nil || string(got) != want {
				t.Fatalf("answer %s, %v; want %s", got, err, want)
			}
		}
	}
}

func TestClosedModule(t *testing.T) {
	m := compile(t, newRuntime(t, Options{}), unhex(t, validGuest))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err := m.Call(context.Background(), "validate", nil, nil); !errors.As(err, &e) || e.Reason != NotInitialised {
		t.Errorf("error %v", err)
	}
}
