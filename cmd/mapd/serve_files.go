package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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

	"github.com/mapd-project/mapd/internal/cluster/metrics"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/servingcert"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// serveFiles serves the policies of files.
func serveFiles(ctx context.Context, s streams, f *serveFlags, log *slog.Logger, clients func() *x509.CertPool) error {
	env, err := environment(f.kubernetes)
	if err != nil {
		return err
	}
	loader, err := f.modules.loader(log, limitToContainer)
	if err != nil {
		return usagef("serve: %w", err)
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	// Start watching before the first load, so that no change is missed.
	watcher := manifest.NewWatcher(f.policies, f.recursive)
	watcher.Poll = f.poll
	metrics := metrics.New()
	providers, err := f.providers.client(metrics, nil)
	if err != nil {
		return usagef("serve: %w", err)
	}
	defer providers.Close()
	source := &source{
		flags: f, options: policyset.Options{Env: env, Unbound: f.unbound, Mutators: f.mutators(), Kyverno: api.Off, Expansion: f.expansion, Modules: loader, ModuleMode: f.moduleMode(api.Enforce), Resolver: providers},
		log: log, metrics: metrics, providers: providers, files: manifest.NewSteady(f.policies, f.recursive),
	}
	errs, code := source.load(ctx, true)
	if ctx.Err() != nil {
		return nil
	}
	if len(errs) > 0 {
		for _, err := range errs {
			// Print only lines of expressions and not other lines of files: the output of a
			// server ends up in a log, and the files may contain Secrets.
			fmt.Fprintln(s.err, strings.TrimSuffix(report.Line(err.Error())+"\n"+report.Printable(expressionOf(err)), "\n"))
		}
		return &codedError{code: code}
	}
	checks := []webhook.Check{{Name: "policies", Run: source.lastError, Advisory: true}}
	var get func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	if f.tlsCert != "" {
		cert, err := servingcert.LoadKeyPair(f.tlsCert, f.tlsKey)
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
	reload := func(again bool) {
		reloading.Lock()
		defer reloading.Unlock()
		source.reload(watching, again)
	}
	var watchers sync.WaitGroup
	watchers.Go(func() { watcher.Run(watching, func() { reload(false) }) })
	watchers.Go(func() {
		for {
			select {
			case <-hangup:
				reload(true)
			case <-watching.Done():
				return
			}
		}
	})
	err = f.run(ctx, webhook.Options{
		Admitter: source, Expansion: f.reviewer(source.expander.Load, source.metrics), Checks: checks, Metrics: source.metrics.Metrics, Log: log,
		WarnOnMutation: f.warn, ClientCAs: clients,
	}, get, listener)
	stop()
	watchers.Wait()
	return err
}

// reviewer returns the Validator for reviews of workloads, nil without --expansion.
func (f *serveFlags) reviewer(expander func() *expansion.Expander, metrics *metrics.Metrics) webhook.Validator {
	if !f.expansion {
		return nil
	}
	return &expansion.Reviewer{Expander: expander, Expanded: metrics.ObjectsExpanded}
}

// mutators returns the mode that --legacy asks for.
func (f *serveFlags) mutators() api.Mode {
	switch f.legacy {
	case legacyShadow:
		return api.Shadow
	case legacyOff:
		return api.Off
	}
	return api.Enforce
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
	made, ca, err := servingcert.SelfSigned(hosts)
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "mapd-serve-")
	if err != nil {
		// The image has no temporary directory.
		return nil, "", fmt.Errorf("no place for the authority of a certificate made for this run, so mount one or give --tls-cert and --tls-key: %w", err)
	}
	caFile = filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(caFile, ca, 0o644); err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir))
	}
	return &made, caFile, nil
}

// expressionOf returns the line of an expression that err is about, with a caret
// below it; it is empty if err is about something else.
func expressionOf(err error) string {
	var at *manifest.IssueError
	if !errors.As(err, &at) {
		return ""
	}
	return at.Excerpt()
}

// errorList returns errors on one line.
func errorList(errs []error) error {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = report.Line(err.Error())
	}
	return errors.New(strings.Join(texts, "; "))
}
