package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/mapd-project/mapd/test/load"
)

// serveFloor serves one of the floors until ctx is done. It prints its address in the same form as
// mapd does.
func serveFloor(ctx context.Context, f *flags) error {
	handler := load.Floors[f.floor]
	if handler == nil {
		return fmt.Errorf("-floor %q: must be allow or patch", f.floor)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mutate", handler)
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // no request is under way then
	fmt.Fprintf(f.out, "floor %s: listening on https://%s/mutate\n", f.floor, listener.Addr())
	if err := server.ServeTLS(listener, f.cert, f.key); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
