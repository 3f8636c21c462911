//go:build js && mapd_fetch

package main

import (
	"context"
	"runtime/debug"
	"syscall/js"
	"time"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// memory is the soft memory limit of the garbage collector. It is below the hard limit of 1 GiB
// that hack/web.sh sets.
const memory = 800 << 20

// main sets globalThis.mapd to an object with one function, call(method, params):
// a promise of the answer. Params and answer are JSON; see methods. Schemas and descriptions
// come from globalThis.mapdSchema, see schemas. A call works for globalThis.mapdPatience milliseconds
// if that is set.
func main() {
	debug.SetMemoryLimit(memory)
	var s schemas
	openapi.ReadSchema, openapi.ReadDescriptions = s.read, s.describe
	d := pageDesk()
	js.Global().Set("mapd", map[string]any{
		"call": js.FuncOf(func(_ js.Value, args []js.Value) any {
			if len(args) != 2 || args[0].Type() != js.TypeString || args[1].Type() != js.TypeString {
				return js.Global().Get("Promise").Call("reject", js.Global().Get("Error").New("want call(method, params), two texts"))
			}
			method, params := args[0].String(), args[1].String()
			var settle js.Func
			settle = js.FuncOf(func(_ js.Value, args []js.Value) any {
				settle.Release()
				// In a goroutine, since an event handler must not block, and the call may wait for a
				// file.
				go func() {
					before := s.begin()
					answer, err := d.call(context.Background(), method, []byte(params))
					if after, missing := s.failures(); after > before {
						err = missing
						d = pageDesk() // the old desk may have results that lack the file
					}
					if err != nil {
						args[1].Invoke(js.Global().Get("Error").New(err.Error()))
						return
					}
					args[0].Invoke(string(answer))
				}()
				return nil
			})
			return js.Global().Get("Promise").New(settle)
		}),
	})
	select {} // the page can call the function until it is closed
}

func pageDesk() *desk {
	d := newDesk()
	if ms := js.Global().Get("mapdPatience"); ms.Type() == js.TypeNumber {
		d.patience = time.Duration(ms.Int()) * time.Millisecond
	}
	return d
}
