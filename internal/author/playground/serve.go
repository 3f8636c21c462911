package playground

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

// Port is the default port of the playground. It is fixed, because a browser stores the site and
// a reader's settings by address and port.
const Port = 6273 // "mapd" on the keys of a telephone

// Listen listens on a port of address. If address is empty, it listens on the loopback addresses
// of this machine, including IPv6 if available, because "localhost" may stand for either. Port 0
// means a free one.
func Listen(address string, port int) ([]net.Listener, error) {
	if address != "" {
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		return []net.Listener{l}, err
	}
	for tries := 0; ; tries++ {
		four, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return nil, err
		}
		_, same, _ := net.SplitHostPort(four.Addr().String())
		six, err := net.Listen("tcp6", net.JoinHostPort("::1", same))
		switch {
		case err == nil:
			return []net.Listener{four, six}, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return []net.Listener{four}, nil
		}
		four.Close()
		if port != 0 || tries == 10 {
			return nil, err
		}
	}
}

// Serve answers requests at listeners until ctx is done, and closes the listeners. Running
// answers then get three more seconds.
func Serve(ctx context.Context, h http.Handler, listeners ...net.Listener) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      5 * time.Minute, // of 10 MB
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // about clients that are gone
	}
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- srv.Serve(l) }()
	}
	var err error
	left := len(listeners)
	select {
	case <-ctx.Done():
	case err = <-ended:
		left--
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if srv.Shutdown(ending) != nil {
		_ = srv.Close()
	}
	for range left {
		<-ended
	}
	return err
}
