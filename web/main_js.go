//go:build js

package main

import (
	"context"
	"syscall/js"
)

func main() {
	js.Global().Set("mapd", map[string]any{
		"evaluate": js.FuncOf(func(_ js.Value, args []js.Value) any {
			if len(args) != 1 || args[0].Type() != js.TypeString {
				return string(answerJSON(context.Background(), nil))
			}
			return string(answerJSON(context.Background(), []byte(args[0].String())))
		}),
	})
	select {} // the function is called until the page goes
}
