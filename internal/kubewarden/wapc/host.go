package wapc

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/mapd-project/mapd/internal/words"
)

// Host answers what a guest asks during a call. An error is the guest's to handle.
// It must return soon after ctx is done. A Host that also has the method
//
//	Charge(int64) error
//
// is charged for the memory of the guest before it gets it.
type Host interface {
	HostCall(ctx context.Context, binding, namespace, operation string, payload []byte) ([]byte, error)
}

// noHost refuses every host call, as policy-server does for a policy without
// contextAwareResources, and names the capability.
type noHost struct{}

// HostCall returns an error.
func (noHost) HostCall(_ context.Context, binding, namespace, operation string, _ []byte) ([]byte, error) {
	return nil, Unsupported(binding, namespace, operation)
}

// Unsupported returns the error for a host call that nobody can answer: policy-server's error for
// an unknown name, otherwise that mapd does not support the capability.
func Unsupported(binding, namespace, operation string) error {
	operations, ok := capabilities[namespace]
	switch {
	case binding != "kubewarden":
		return fmt.Errorf("unknown binding: %s", excerpt(binding))
	case !ok:
		return fmt.Errorf("unknown namespace: %s", excerpt(namespace))
	case !strings.Contains(operations, " "+operation+" "):
		return fmt.Errorf("unknown operation: %s", excerpt(operation))
	}
	return fmt.Errorf("the '%s/%s' host capability is not supported here", namespace, operation)
}

// capabilities are the host capabilities of policy-server.
var capabilities = map[string]string{
	"tracing":    " log ",
	"oci":        " v1/verify v2/verify v1/manifest_digest v1/oci_manifest v1/oci_manifest_config ",
	"net":        " v1/dns_lookup_host ",
	"crypto":     " v1/is_certificate_trusted ",
	"kubernetes": " get_resource list_resources_by_namespace list_resources_all can_i ",
}

const (
	maxError   = 4 << 10  // bytes of a failure text that are kept
	maxLog     = 64 << 10 // bytes that one call may log
	maxEntries = 100      // log entries of one call
	maxName    = 1 << 10  // bytes of a binding, a namespace and an operation
)

// call is the state of one call: the guest's question, the answers of its host, and its log.
type call struct {
	module *Module
	host   Host // nil during initialisation

	operation         string
	payload           []byte
	response, failure []byte // nil: not set
	hostAnswer        []byte
	hostFailure       []byte

	logged, entries int

	running api.Function // the guest's function that runs
	memory  *accounts    // the guest's
}

type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// read copies from the guest's memory.
func read(m api.Module, at, n uint32, limit int, what string) []byte {
	if n == 0 {
		return []byte{} // any pointer is valid for no bytes
	}
	if int64(n) > int64(limit) {
		trapf("%s of %d bytes, more than %d", what, n, limit)
	}
	b, ok := m.Memory().Read(at, n)
	if !ok {
		trapf("%s is outside of the guest's memory", what)
	}
	return bytes.Clone(b)
}

func readText(m api.Module, at, n uint32, limit int, what string) string {
	b := read(m, at, n, limit, what)
	if !utf8.Valid(b) {
		trapf("%s is not valid UTF-8", what)
	}
	return string(b)
}

// write copies to the guest's memory.
func write(m api.Module, at uint32, b []byte, what string) {
	if len(b) > 0 && !m.Memory().Write(at, b) {
		trapf("%s does not fit into the guest's memory at the place it named", what)
	}
}

// hostFunction is a function that a host module exports. It has i32 parameters, and one i32
// result if result is set.
type hostFunction struct {
	module, name string
	params       int
	result       bool
	do           func(ctx context.Context, m api.Module, c *call, p []uint64)
}

var hostFunctions = []hostFunction{
	{"wapc", "__guest_request", 2, false, func(_ context.Context, m api.Module, c *call, p []uint64) {
		if c.host == nil {
			trapf("__guest_request was called outside of a call")
		}
		write(m, uint32(p[1]), c.payload, "the request")
		write(m, uint32(p[0]), []byte(c.operation), "the operation")
	}},
	{"wapc", "__guest_response", 2, false, func(_ context.Context, m api.Module, c *call, p []uint64) {
		c.response = read(m, uint32(p[0]), uint32(p[1]), c.module.runtime.options.Answer, "the answer")
	}},
	{"wapc", "__guest_error", 2, false, func(_ context.Context, m api.Module, c *call, p []uint64) {
		c.failure = []byte(readText(m, uint32(p[0]), uint32(p[1]), c.module.runtime.options.Answer, "the error"))
	}},
	{"wapc", "__console_log", 2, false, func(ctx context.Context, m api.Module, c *call, p []uint64) {
		c.logText(ctx, slog.LevelInfo, readText(m, uint32(p[0]), uint32(p[1]), c.module.runtime.options.Answer, "the log entry"))
	}},
	{"wapc", "__host_call", 8, true, func(ctx context.Context, m api.Module, c *call, p []uint64) {
		p[0] = api.EncodeI32(boolInt(c.hostCall(ctx, m, p)))
	}},
	{"wapc", "__host_response_len", 0, true, func(_ context.Context, _ api.Module, c *call, p []uint64) {
		p[0] = uint64(len(c.hostAnswer))
	}},
	{"wapc", "__host_response", 1, false, func(_ context.Context, m api.Module, c *call, p []uint64) {
		write(m, uint32(p[0]), c.hostAnswer, "the host's answer")
	}},
	{"wapc", "__host_error_len", 0, true, func(_ context.Context, _ api.Module, c *call, p []uint64) {
		p[0] = uint64(len(c.hostFailure))
	}},
	{"wapc", "__host_error", 1, false, func(_ context.Context, m api.Module, c *call, p []uint64) {
		write(m, uint32(p[0]), c.hostFailure, "the host's error")
	}},
	{"env", "abort", 4, false, func(_ context.Context, m api.Module, _ *call, p []uint64) {
		text := "the guest aborted"
		if why := scriptText(m, uint32(p[0])); why != "" {
			text += ": " + why
		}
		if file := scriptText(m, uint32(p[1])); file != "" {
			text += fmt.Sprintf(" (%s:%d:%d)", file, uint32(p[2]), uint32(p[3]))
		}
		trapf("%s", text)
	}},
	// For policies of execution mode wasi: 0 means success here, unlike in waPC, and the program
	// reads the answer from stdin.
	{"host", "call", 8, true, wasiHostCall},
	{"kubewarden:javy/host", "call", 8, true, wasiHostCall},
}

// scriptText returns the beginning of an AssemblyScript string: UTF-16, preceded by its length in
// bytes.
func scriptText(m api.Module, at uint32) string {
	n, ok := m.Memory().ReadUint32Le(at - 4)
	if at < 4 || !ok {
		return ""
	}
	b, ok := m.Memory().Read(at, min(n, maxName)&^1)
	if !ok {
		return ""
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}

func wasiHostCall(ctx context.Context, m api.Module, c *call, p []uint64) {
	ok := c.hostCall(ctx, m, p)
	c.payload = append(c.payload, c.hostAnswer...)
	c.payload = append(c.payload, c.hostFailure...)
	p[0] = api.EncodeI32(boolInt(!ok))
}

func boolInt(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// hostCall calls the Host and stores either its response or its failure for the guest. It returns
// whether the call succeeded.
func (c *call) hostCall(ctx context.Context, m api.Module, p []uint64) bool {
	binding := readText(m, uint32(p[0]), uint32(p[1]), maxName, "the binding of a host call")
	namespace := readText(m, uint32(p[2]), uint32(p[3]), maxName, "the namespace of a host call")
	operation := readText(m, uint32(p[4]), uint32(p[5]), maxName, "the operation of a host call")
	limit := c.module.runtime.options.Answer
	payload := read(m, uint32(p[6]), uint32(p[7]), limit, "the payload of a host call")
	c.hostAnswer, c.hostFailure = nil, nil
	if ctx.Err() != nil {
		panic(interrupted(ctx))
	}
	if binding == "kubewarden" && namespace == "tracing" && operation == "log" {
		c.trace(ctx, payload)
		return true
	}
	if c.host == nil {
		c.hostFailure = []byte("host calls are answered during a call only, not while a guest is made ready")
		return false
	}
	answer, err := c.host.HostCall(ctx, binding, namespace, operation, payload)
	switch {
	case ctx.Err() != nil:
		panic(interrupted(ctx))
	case err != nil:
		c.hostFailure = []byte(strings.ToValidUTF8(excerpt(err.Error()), "\uFFFD"))
		return false
	case len(answer) > limit:
		c.hostFailure = fmt.Appendf(nil, "the host's answer has %d bytes, more than %d", len(answer), limit)
		return false
	}
	c.hostAnswer = answer
	return true
}

// excerpt cuts a text to the length that a message may have.
func excerpt(s string) string { return words.Cut(s, maxError) }

// trace logs a message of an SDK's logger. It never fails for the guest.
func (c *call) trace(ctx context.Context, payload []byte) {
	var entry struct{ Level, Message string }
	if json.Unmarshal(payload, &entry) != nil {
		c.logText(ctx, slog.LevelInfo, strings.ToValidUTF8(string(payload), "\uFFFD"))
		return
	}
	level := slog.LevelInfo
	switch strings.ToLower(entry.Level) {
	case "trace", "debug":
		level = slog.LevelDebug
	case "warning", "warn":
		level = slog.LevelWarn
	case "error":
		level = slog.LevelError
	}
	c.logText(ctx, level, entry.Message)
}

// logText logs a text of the guest, up to a number of entries and bytes per call.
func (c *call) logText(ctx context.Context, level slog.Level, text string) {
	if c.entries++; c.entries > maxEntries || c.logged >= maxLog {
		if c.entries == maxEntries+1 || c.logged < maxLog+1 && c.logged >= maxLog {
			c.logged = maxLog + 1
			c.module.runtime.log.WarnContext(ctx, "The policy logs too much; the rest of this call is dropped", "module", c.module.name)
		}
		return
	}
	text = words.Cut(text, maxLog-c.logged)
	c.logged += len(text)
	c.module.runtime.log.Log(ctx, level, text, "module", c.module.name)
}

// Write logs what a waPC guest writes to its standard streams.
type streamLog struct {
	ctx context.Context
	c   *call
}

func (w streamLog) Write(b []byte) (int, error) {
	if text := strings.TrimSpace(strings.ToValidUTF8(string(b[:min(len(b), maxLog)]), "\uFFFD")); text != "" {
		w.c.logText(w.ctx, slog.LevelInfo, text)
	}
	return len(b), nil
}

// offer creates the host modules from which guests import functions.
func (runtime *Runtime) offer(ctx context.Context) error {
	r := runtime.engine
	i32s := func(n int) []api.ValueType {
		return bytes.Repeat([]byte{api.ValueTypeI32}, n)
	}
	var last string
	var b wazero.HostModuleBuilder
	for _, f := range hostFunctions {
		if f.module != last {
			if b != nil {
				if _, err := b.Instantiate(ctx); err != nil {
					return err
				}
			}
			last, b = f.module, r.NewHostModuleBuilder(f.module)
		}
		results := 0
		if f.result {
			results = 1
		}
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, m api.Module, p []uint64) {
			f.do(ctx, m, callOf(ctx), p)
		}), i32s(f.params), i32s(results)).Export(f.name)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return err
	}
	w := r.NewHostModuleBuilder(wasi_snapshot_preview1.ModuleName)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(w)
	// wazero's own proc_exit closes the instance. Some guests call proc_exit(0) at the end of
	// their initialisers and are called afterwards. This one only ends the running function.
	w.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, _ api.Module, p []uint64) {
		panic(sys.NewExitError(uint32(p[0])))
	}), i32s(1), nil).Export("proc_exit")
	if _, err := w.Instantiate(ctx); err != nil {
		return err
	}
	_, err := r.NewHostModuleBuilder(meterModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, _ api.Module, p []uint64) {
			if ctx.Err() != nil || runtime.ended.Err() != nil {
				panic(interrupted(ctx))
			}
			if c, _ := ctx.Value(callKey{}).(*call); c != nil {
				c.memory.chargeStack(c.running)
			}
			p[0] = slice
		}), nil, i32s(1)).Export(meterName).Instantiate(ctx)
	return err
}

// offers reports whether a host module exports the function.
func (r *Runtime) offers(i Import) bool {
	m := r.engine.Module(i.Module)
	return m != nil && m.ExportedFunctionDefinitions()[i.Name] != nil
}

func join(items []string) string { return strings.Join(items, ", ") }
