package wapc

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"
)

// instance is an instance of a module. It is used for one call only.
type instance struct {
	module api.Module
	guest  api.Function
	memory *accounts
}

func (i *instance) close() {
	i.module.Close(context.Background())
	i.memory.free()
}

// Call asks the module for an operation, validate or another of Kubewarden spec §2.1, and returns
// its answer. It ends soon after ctx is done; if ctx has no deadline, the call has
// Options.Timeout. A nil host refuses every host call. Every failure of the module is an *Error.
func (m *Module) Call(ctx context.Context, operation string, payload []byte, host Host) ([]byte, error) {
	if !m.enter() {
		return nil, &Error{Reason: NotInitialised, text: "the module is closed"}
	}
	defer m.leave()
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, m.runtime.options.Timeout)
		defer cancel()
		ctx = limited
	}
	if host == nil {
		host = noHost{}
	}
	if m.mode == ModeWASI {
		return m.callProgram(ctx, operation, payload, host)
	}
	i, err := m.take(ctx, host)
	if err != nil {
		return nil, err
	}
	defer i.close()
	return m.run(ctx, &call{module: m, host: host, operation: operation, payload: payload}, i)
}

// run makes the single call of an instance.
func (m *Module) run(ctx context.Context, c *call, i *instance) ([]byte, error) {
	ctx = context.WithValue(ctx, callKey{}, c)
	results, err := c.invoke(ctx, i, i.guest, uint64(len(c.operation)), uint64(len(c.payload)))
	if err != nil {
		return nil, i.memory.explain(ctx, err)
	}
	switch {
	case results[0] != 0 && c.response != nil:
		return c.response, nil
	case c.failure != nil:
		return nil, failed("%s", excerpt(string(c.failure)))
	case results[0] != 0:
		return nil, failed("No error message OR response set for call success")
	}
	return nil, failed("No error message set for call failure")
}

// invoke calls a function of the module, and notes it as running, so that tick can charge its
// stack.
func (c *call) invoke(ctx context.Context, i *instance, f api.Function, params ...uint64) ([]uint64, error) {
	c.running, c.memory = f, i.memory
	return invoke(ctx, f, params...)
}

// invoke calls a function of the module. wazero returns panics of host functions as errors;
// invoke also turns a panic of wazero itself into an error.
func invoke(ctx context.Context, f api.Function, params ...uint64) (results []uint64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return f.Call(ctx, params...)
}

// take returns an unused instance: one made in advance, or a new one.
func (m *Module) take(ctx context.Context, host Host) (*instance, error) {
	select {
	case i := <-m.ahead:
		m.runtime.spare.Add(-i.memory.held)
		m.fill()
		if err := i.memory.bill(host); err != nil {
			i.close()
			return nil, err
		}
		return i, nil
	default:
		if n := m.wanted.Load(); int(n) < cap(m.ahead) {
			m.wanted.CompareAndSwap(n, n+1)
		}
		m.fill()
		return m.newInstance(ctx, host)
	}
}

// keep stores an instance for a later call, if there is room.
func (m *Module) keep(i *instance) bool {
	if m.runtime.spare.Add(i.memory.held) <= m.runtime.options.AllMemory/spareShare {
		select {
		case m.ahead <- i:
			return true
		default:
		}
	}
	m.runtime.spare.Add(-i.memory.held)
	i.close()
	return false
}

// spareShare limits the memory of unused instances to 1/spareShare of Options.AllMemory: calls
// cannot use what unused instances hold.
const spareShare = 4

// fill makes instances in advance, in the background: as many as were missing at the same time so
// far.
func (m *Module) fill() {
	r := m.runtime
	lacks := func() bool {
		return len(m.ahead) < int(m.wanted.Load()) && r.spare.Load()+m.begins.Load() <= r.options.AllMemory/spareShare
	}
	if !lacks() || !m.filling.CompareAndSwap(false, true) {
		return
	}
	if !m.enter() {
		m.filling.Store(false)
		return
	}
	go func() {
		defer m.leave()
		defer m.filling.Store(false)
		for lacks() && r.ended.Err() == nil {
			ctx, cancel := context.WithTimeout(r.ended, r.options.Timeout)
			i, err := m.newInstance(ctx, nil)
			cancel()
			if err != nil || !m.keep(i) {
				return // the next call tries again and reports the error
			}
		}
	}()
}

// config returns what every instance gets: streams that are logged, the time, and random numbers.
func (m *Module) config(in io.Reader, out, err io.Writer) wazero.ModuleConfig {
	return wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithStdin(in).WithStdout(out).WithStderr(err).
		WithSysWalltime().WithSysNanotime().WithRandSource(rand.Reader)
}

// newInstance makes an instance and runs its initialisers. All of them share the time that is
// left.
func (m *Module) newInstance(ctx context.Context, host Host) (*instance, error) {
	c := &call{module: m}
	ctx = context.WithValue(ctx, callKey{}, c)
	log := streamLog{context.WithoutCancel(ctx), c}
	i, err := m.instantiate(ctx, host, m.config(bytes.NewReader(nil), log, log))
	if err != nil {
		return nil, err
	}
	for _, name := range initialisers {
		f := i.module.ExportedFunction(name)
		if f == nil {
			continue
		}
		var exit *sys.ExitError
		if _, err := c.invoke(ctx, i, f); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 0 && ctx.Err() == nil) {
			i.close()
			return nil, i.memory.explainInit(ctx, err)
		}
	}
	if i.guest = i.module.ExportedFunction("__guest_call"); i.guest == nil {
		i.close()
		return nil, &Error{Reason: NotInitialised, text: "the guest does not export __guest_call"}
	}
	m.begins.Store(int64(len(i.memory.buf)))
	return i, nil
}

// instantiate makes an instance and runs only its start function.
func (m *Module) instantiate(ctx context.Context, host Host, config wazero.ModuleConfig) (i *instance, err error) {
	acc := &accounts{runtime: m.runtime}
	if err := acc.bill(host); err != nil {
		return nil, err
	}
	acc.first = max(int64(m.binary.memoryPages)*pageSize, m.begins.Load())
	if !acc.charge(acc.first + int64(m.binary.tableEntries)*8) {
		return nil, acc.refused()
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			acc.free()
			err = acc.explainInit(ctx, err)
		}
	}()
	module, err := m.runtime.engine.InstantiateModule(experimental.WithMemoryAllocator(ctx, acc), m.compiled, config)
	if err != nil {
		return nil, err
	}
	i = &instance{module: module, memory: acc}
	if f := module.ExportedFunction(starter); f != nil {
		if _, err := callOf(ctx).invoke(ctx, i, f); err != nil {
			module.Close(ctx)
			return nil, err
		}
	}
	return i, nil
}

// callProgram runs a policy of execution mode wasi: a program that reads its input from stdin and
// writes its answer to stdout.
func (m *Module) callProgram(ctx context.Context, operation string, payload []byte, host Host) ([]byte, error) {
	argument, ok := map[string]string{"validate": "validate", "validate_settings": "validate-settings"}[operation]
	if !ok {
		return nil, failed("a policy of execution mode wasi has no operation %s", excerpt(operation))
	}
	c := &call{module: m, host: host, operation: operation, payload: bytes.Clone(payload)}
	ctx = context.WithValue(ctx, callKey{}, c)
	out, stderr := &bounded{limit: m.runtime.options.Answer}, &bounded{limit: maxLog, drop: true}
	i, err := m.instantiate(ctx, host, m.config(c, out, stderr).WithArgs("policy.wasm", argument))
	if err != nil {
		return nil, err
	}
	defer i.close()
	_, err = c.invoke(ctx, i, i.module.ExportedFunction("_start"))
	said := strings.TrimSpace(strings.ToValidUTF8(stderr.String(), "\uFFFD"))
	var exit *sys.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, interrupted(ctx)
	case err == nil, errors.As(err, &exit) && exit.ExitCode() == 0:
	case said != "":
		return nil, &Error{Reason: Failed, text: excerpt(said)}
	case exit != nil:
		return nil, &Error{Reason: Failed, text: fmt.Sprintf("the policy ended with exit code %d and wrote nothing to stderr", exit.ExitCode())}
	default:
		return nil, i.memory.explain(ctx, err)
	}
	if said != "" {
		c.logText(ctx, slog.LevelWarn, said)
	}
	return out.Bytes(), nil
}

// Read lets a program read its input and, after a host call, the host's answer, which follows the
// end of the input.
func (c *call) Read(b []byte) (int, error) {
	if len(c.payload) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.payload)
	c.payload = c.payload[n:]
	return n, nil
}

// bounded stores what is written to it, up to a limit. Beyond the limit it ends the call, unless
// drop is set.
type bounded struct {
	bytes.Buffer
	limit int
	drop  bool
}

func (w *bounded) Write(b []byte) (int, error) {
	n := min(len(b), w.limit-w.Len())
	w.Buffer.Write(b[:n])
	if n < len(b) && !w.drop {
		trapf("the answer has more than %d bytes", w.limit)
	}
	return len(b), nil
}
