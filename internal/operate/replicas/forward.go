package replicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forwarding connects to a port of a Pod through the API server, without listening on a local
// port.
type forwarding struct {
	config          *rest.Config
	kube            kubernetes.Interface
	namespace, name string
	port            int32
}

// portForwardProtocol is the protocol that kubelets accept (k8s.io/client-go/tools/portforward).
const portForwardProtocol = "portforward.k8s.io"

// dialer returns a dialer that uses WebSocket, as kubectl does, and falls back to SPDY if the
// server or a proxy does not support it: many proxies pass only one of the two.
func (f *forwarding) dialer() (httpstream.Dialer, error) {
	to := f.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(f.namespace).Name(f.name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(f.config)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport, Timeout: askTimeout}, http.MethodPost, to)
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(to, f.config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(tunnel, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

func (f *forwarding) dial(ctx context.Context) (net.Conn, error) {
	dialer, err := f.dialer()
	if err != nil {
		return nil, err
	}
	type dialled struct {
		stream *stream
		err    error
	}
	done := make(chan dialled, 1)
	go func() {
		connection, _, err := dialer.Dial(portForwardProtocol)
		if err != nil {
			done <- dialled{nil, fmt.Errorf("port-forward to Pod %s/%s: %w", f.namespace, f.name, err)}
			return
		}
		s, err := open(connection, f.port)
		done <- dialled{s, err}
	}()
	select {
	case d := <-done:
		if d.err != nil {
			return nil, d.err
		}
		return d.stream, nil
	case <-ctx.Done():
		go func() {
			if d := <-done; d.err == nil {
				_ = d.stream.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// stream is one connection to a Pod's port, as a net.Conn.
type stream struct {
	httpstream.Stream // of data
	connection        httpstream.Connection

	heard  chan struct{} // closed when the error stream has ended
	failed error         // the kubelet's error; read it only after heard is closed
}

// sayTimeout bounds how long a data stream that ended waits for the kubelet's error, which is sent
// on another stream and may arrive later.
const sayTimeout = 5 * time.Second

func open(connection httpstream.Connection, port int32) (*stream, error) {
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	failures, err := connection.CreateStream(headers)
	if err == nil {
		_ = failures.Close() // nothing is written to it
		headers.Set(corev1.StreamType, corev1.StreamTypeData)
		var data httpstream.Stream
		if data, err = connection.CreateStream(headers); err == nil {
			s := &stream{Stream: data, connection: connection, heard: make(chan struct{})}
			go s.watch(failures)
			return s, nil
		}
	}
	_ = connection.Close()
	return nil, err
}

// watch reads the kubelet's error stream. If there is an error, watch closes the connection.
func (s *stream) watch(failures io.Reader) {
	defer close(s.heard)
	text, _ := io.ReadAll(io.LimitReader(failures, 1<<10)) // it ends with the connection, however that ends
	if len(text) > 0 {
		s.failed = errors.New("port-forward: " + string(text))
		_ = s.connection.Close()
	}
}

// Read implements net.Conn.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	return n, s.reason(err)
}

// Write implements net.Conn.
func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Stream.Write(b)
	return n, s.reason(err)
}

// reason returns the kubelet's error for a stream that ended with err, or err if there is none.
func (s *stream) reason(err error) error {
	if err == nil {
		return nil
	}
	wait := time.NewTimer(sayTimeout)
	defer wait.Stop()
	select {
	case <-s.heard:
		if s.failed != nil {
			return s.failed
		}
	case <-wait.C:
	}
	return err
}

// Close implements net.Conn.
func (s *stream) Close() error { return s.connection.Close() }

// address is the net.Addr of a stream, which has no address of its own.
type address struct{}

func (address) Network() string { return "portforward" }
func (address) String() string  { return "portforward" }

// LocalAddr implements net.Conn.
func (s *stream) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (s *stream) RemoteAddr() net.Addr { return address{} }

// SetDeadline implements net.Conn. It does nothing: when the request's context ends, the stream
// is closed.
func (s *stream) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (s *stream) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (s *stream) SetWriteDeadline(time.Time) error { return nil }
