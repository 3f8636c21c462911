//go:build js && mapd_fetch

package main

import (
	"context"
	"syscall/js"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// main sets globalThis.mapd to an object with one function, call(method, params):
// a promise of the answer. Params and answer are JSON; see methods. Schemas come from
// globalThis.mapdSchema, see schemas.
func main() {
	var s schemas
	openapi.ReadSchema = s.read
	d := newDesk()
	js.Global().Set("mapd", map[string]any{
		"call": js.FuncOf(func(_ js.Value, args []js.Value) any {
			if len(args) != 2 || args[0].Type() != js.TypeString || args[1].Type() != js.TypeString {
				return js.Global().Get("Promise").Call("reject", js.Global().Get("Error").New("want call(method, params), two texts"))
			}
			method, params := args[0].String(), args[1].String()
			var settle js.Func
			settle = js.FuncOf(func(_ js.Value, args []js.Value) any {
				settle.Release()
				// Not on the stack of the event: an answer may have to wait for a file.
				go func() {
					before, _ := s.failures()
					answer, err := d.call(context.Background(), method, []byte(params))
					if after, missing := s.failures(); after > before {
						err = missing
						d = newDesk() // what the old one keeps may have been made without the file
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
	select {} // the function is called until the page goes
}
