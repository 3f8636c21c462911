package wapc

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// Guests that other compilers made of the sources beside them: with the waPC SDK for
// AssemblyScript, in the shape of the crate wapc-guest, and a program of execution mode
// wasi in C. testdata/README.md says how they are built.
func TestOtherSDKs(t *testing.T) {
	const (
		plain  = `{"request":{"uid":"1","object":{"kind":"Pod","metadata":{"name":"a}\"{"}}},"settings":{}}`
		change = `{"request":{"uid":"1","object":{"kind":"Pod","name":"ü","spec":{"a":{"privileged":true},"b":{"privileged":true}}}},"settings":{"privileged":true}}`
		ask    = `{"request":{"object":{"kind":"Pod","owner":"me","privileged":true}},"settings":{}}`
		abort  = `{"request":{"object":{"abort":true}},"settings":{}}`
		gone   = `{"request":{"operation":"DELETE"},"settings":{}}`

		mutated = `{"accepted":true,"mutated_object":{"kind":"Pod","name":"ü","spec":{"a":{"privileged":false},"b":{"privileged":false}}}}`
		asked   = `{"accepted":true,"mutated_object":{"kind":"Pod","owner":"me","privileged":false}}`
		nulls   = `{"accepted":true,"message":null,"code":null,"mutated_object":null,"audit_annotations":null,"warnings":null}`
	)
	grant := hostFunc(func(_ context.Context, binding, namespace, operation string, payload []byte) ([]byte, error) {
		if binding != "kubewarden" || namespace != "kubernetes" || operation != "get_resource" || !bytes.Contains(payload, []byte(`"name":"shop"`)) {
			return nil, errors.New("not this")
		}
		return []byte(`{"kind":"Namespace"}`), nil
	})
	large := strings.Replace(plain, `"a}`, `"`+strings.Repeat("ä", 1<<20)+`a}`, 1)
	var log bytes.Buffer
	r := newRuntime(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for language, c := range map[string]struct {
		wasi                            bool
		accepted, settings, unknown     string
		refused, aborted, asked, logged string
	}{
		"assemblyscript": {
			accepted: `{"accepted":true}`, settings: `{"valid":true}`, unknown: `Guest call failure: Could not find function "mutate"`,
			refused: "Guest call failure: the 'kubernetes/get_resource' host capability is not supported here",
			aborted: "Guest call failure: the guest aborted: asked for (policy.ts:30:40)", asked: asked, logged: "makes it unprivileged",
		},
		"rust": {
			accepted: nulls, settings: `{"valid":true,"message":null}`, unknown: "Guest call failure: No handler registered for function mutate",
			refused: "Guest call failure: Host error: the 'kubernetes/get_resource' host capability is not supported here",
			aborted: "Guest call failure: wasm error: unreachable", asked: asked, logged: "makes it unprivileged",
		},
		"c": {
			wasi: true, accepted: `{"accepted":true}`, settings: "{\"valid\":true}\n", unknown: "Guest call failure: a policy of execution mode wasi has no operation mutate",
			refused: "the 'kubernetes/get_resource' host capability is not supported here", aborted: "asked for", asked: asked,
		},
	} {
		wasm, err := os.ReadFile("testdata/" + language + "/policy.wasm")
		if err != nil {
			t.Fatal(err)
		}
		if c.wasi {
			if _, err := r.Compile(t.Context(), "test", wasm); err == nil || !strings.Contains(err.Error(), "must name execution mode wasi") {
				t.Errorf("%s without metadata: error %v", language, err)
			}
			wasm = asProgram(wasm)
		}
		m := compile(t, r, wasm)
		log.Reset()
		for _, step := range []struct {
			operation, payload, want string
			host                     Host
		}{
			{"validate_settings", `{}`, c.settings, nil},
			{"validate", plain, c.accepted, nil},
			{"validate", change, mutated, nil},
			{"validate", ask, c.asked, grant},
			{"validate", ask, c.refused, nil},
			{"validate", abort, c.aborted, nil},
			{"validate", gone, c.accepted, nil},
			{"validate", large, c.accepted, nil},
			{"mutate", `{}`, c.unknown, nil},
		} {
			answer, err := m.Call(t.Context(), step.operation, []byte(step.payload), step.host)
			got := string(answer)
			if err != nil {
				got = err.Error()
			}
			if got != step.want {
				t.Errorf("%s, %s %.80s: %s; want %s", language, step.operation, step.payload, got, step.want)
			}
		}
		if !strings.Contains(log.String(), c.logged) {
			t.Errorf("%s logged %s", language, log.String())
		}
	}
}

// Everything of WASI that policy-server links is there, whichever of it a compiler's
// library imports.
func TestAllOfWASI(t *testing.T) {
	r := newRuntime(t, Options{})
	offered := r.engine.Module("wasi_snapshot_preview1").ExportedFunctionDefinitions()
	for _, name := range strings.Fields(`args_get args_sizes_get clock_res_get clock_time_get environ_get environ_sizes_get
		fd_advise fd_allocate fd_close fd_datasync fd_fdstat_get fd_fdstat_set_flags fd_fdstat_set_rights fd_filestat_get fd_filestat_set_size fd_filestat_set_times
		fd_pread fd_prestat_dir_name fd_prestat_get fd_pwrite fd_read fd_readdir fd_renumber fd_seek fd_sync fd_tell fd_write
		path_create_directory path_filestat_get path_filestat_set_times path_link path_open path_readlink path_remove_directory path_rename path_symlink path_unlink_file
		poll_oneoff proc_exit proc_raise random_get sched_yield sock_accept sock_recv sock_send sock_shutdown`) {
		if offered[name] == nil {
			t.Errorf("no %s", name)
		}
	}
}
