package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/internal/snapshot"
	"github.com/mapd-project/mapd/pkg/webhook"
)

type serveFlags struct {
	policies         []string
	recursive        bool
	listen           string
	tlsCert, tlsKey  string
	kubernetes       string
	unbound, verbose bool
	poll, delay      time.Duration
}

const serveLong = `Serve policies as a mutating admission webhook.

POST /mutate takes an AdmissionReview of admission.k8s.io/v1 over TLS 1.3.
GET /healthz, /readyz (?verbose) and /metrics tell how it is.

The files are watched; SIGHUP reads them at once. An edit takes effect without a restart and without a
request lost; a broken one does not: it is logged with its position, /readyz?verbose
shows it, and what was loaded before goes on being served.

SIGTERM and SIGINT make /readyz fail, refuse new connections after
--shutdown-delay, and wait for the requests under way; a second one ends it at
once.

Without --tls-cert and --tls-key a certificate is made for localhost, this host
and the address in --listen; the file with its CA bundle is printed.`

func newServe(s streams) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:     "serve --policies PATH...",
		Short:   "Serve policies as a mutating admission webhook",
		Long:    serveLong,
		Example: "  mapd serve --policies policies/ --listen 127.0.0.1:0",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // the second signal is not caught
			return serve(ctx, s, &f)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.policies, "policies", "p", nil, "policies, bindings, params, CRDs, Namespaces and RBAC, mixed: file or directory; repeatable")
	fl.BoolVarP(&f.recursive, "recursive", "R", false, "read directories recursively")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:8443", "address to listen on; port 0 takes a free one")
	fl.StringVar(&f.tlsCert, "tls-cert", "", "file with the serving certificate; it is read again when it changes")
	fl.StringVar(&f.tlsKey, "tls-key", "", "file with its key")
	fl.StringVar(&f.kubernetes, "kubernetes", "", "the minor whose CEL libraries are there, from 1.32 on (default the newest known)")
	fl.BoolVar(&f.unbound, "unbound", false, "run policies that have no binding as if bound to everything")
	fl.DurationVar(&f.poll, "poll", 5*time.Second, "how often to look for changes that the file system does not report")
	fl.DurationVar(&f.delay, "shutdown-delay", 0, "how long to go on accepting connections after SIGTERM, for those who do not know yet")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log more")
	return cmd
}

func (f *serveFlags) check() error {
	switch {
	case len(f.policies) == 0:
		return usagef("serve: no policies; give them with --policies")
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return usagef("serve: --tls-cert and --tls-key go together")
	case f.poll <= 0:
		return usagef("serve: --poll %s: must be positive", f.poll)
	case f.delay < 0:
		return usagef("serve: --shutdown-delay %s: must not be negative", f.delay)
	}
	for _, p := range f.policies {
		if p == manifest.Stdin {
			return usagef("serve: standard input cannot be watched; give files")
		}
	}
	return nil
}

func serve(ctx context.Context, s streams, f *serveFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	env, err := environment(f.kubernetes)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: level}))

	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	// Watching begins before the first load, so that no edit falls between.
	watcher := manifest.NewWatcher(f.policies, f.recursive)
	watcher.Poll = f.poll
	source := &source{
		flags: f, options: snapshot.Options{Env: env, Unbound: f.unbound},
		log: log, metrics: webhook.NewMetrics(),
	}
	if errs, code := source.load(); len(errs) > 0 {
		for _, err := range errs {
			// Without the line itself, which eval shows: what a server says ends up
			// in a log, and the files may hold Secrets.
			fmt.Fprintln(s.err, err)
		}
		return &codedError{code: code}
	}
	checks := []webhook.Check{{Name: "policies", Run: source.lastError, Advisory: true}}

	var get func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	if f.tlsCert != "" {
		cert, err := webhook.LoadCertificate(f.tlsCert, f.tlsKey)
		if err != nil {
			return &codedError{exitUsage, err}
		}
		get = cert.GetCertificate
		checks = append(checks, webhook.Check{Name: "certificate", Run: cert.Check, Advisory: true})
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	if get == nil {
		cert, caFile, err := selfSigned(listener.Addr())
		if err != nil {
			listener.Close()
			return err
		}
		defer os.RemoveAll(filepath.Dir(caFile))
		get = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil }
		fmt.Fprintf(s.out, "mapd serve: CA bundle in %s\n", caFile)
	}
	fmt.Fprintf(s.out, "mapd serve: listening on https://%s/mutate\n", listener.Addr())

	watching, stop := context.WithCancel(ctx)
	defer stop()
	var reloading sync.Mutex
	reload := func() {
		reloading.Lock()
		defer reloading.Unlock()
		source.reload()
	}
	var watchers sync.WaitGroup
	watchers.Go(func() { watcher.Run(watching, reload) })
	watchers.Go(func() {
		for {
			select {
			case <-hangup:
				reload()
			case <-watching.Done():
				return
			}
		}
	})
	server := &webhook.Server{
		Handler: webhook.NewHandler(webhook.Options{
			Admitter: source, Checks: checks, Metrics: source.metrics, Log: log,
		}),
		Certificate: get,
		Delay:       f.delay,
	}
	err = server.Run(ctx, listener)
	stop()
	watchers.Wait()
	if err != nil {
		return &codedError{exitPartial, err}
	}
	return nil
}

// selfSigned makes a certificate for this host and a file with its CA.
func selfSigned(addr net.Addr) (cert *tls.Certificate, caFile string, err error) {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	if host, _, err := net.SplitHostPort(addr.String()); err == nil {
		if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() && !ip.IsLoopback() {
			hosts = append(hosts, host)
		}
	}
	made, ca, err := webhook.SelfSigned(hosts)
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "mapd-serve-")
	if err != nil {
		return nil, "", err
	}
	caFile = filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(caFile, ca, 0o644); err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir))
	}
	return &made, caFile, nil
}

// errorList is errors as one line, for places that have only one.
func errorList(errs []error) error {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}
