package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/reports"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/servingcert"
	"github.com/mapd-project/mapd/pkg/webhook"
)

type serveFlags struct {
	set func(flag string) bool // reports whether the user gave the flag

	policies  []string
	recursive bool
	unbound   bool
	poll      time.Duration

	cluster       clusterFlags
	namespace     string
	service       string
	servicePort   int32
	url           string
	secret, lease string
	tlsCA         string
	validity      time.Duration
	caValidity    time.Duration
	exempt        []string
	timeout       time.Duration
	adopt         bool
	externalData  bool
	auditInterval time.Duration
	reports       string
	existing      existingFlags

	listen              string
	tlsCert, tlsKey     string
	clientCA            string
	clientCAErr         func() error // error of the file in its present state; nil without the flag
	callers             callerFlags
	kubernetes          string
	warn                bool
	legacy              string
	expansion           bool
	endless             bool // exceptions without an end are allowed
	logLevel, logFormat string
	verbose             bool
	pprof               string
	modules             moduleFlags
	kubewarden          string
	providers           providerFlags
	delay               time.Duration

	traceSample string
	tracer      webhook.Tracer // of --trace-sample, nil without it
	recordSink  string

	connections  int
	reviewMemory string
	budget       *memory.Budget // of --review-memory
}

const serveLong = `Serve policies as a mutating admission webhook.

Without --policies the policies are those of a cluster: the objects of
admissionregistration.mapd.dev/v1 and the parameters that they name. One of the
replicas, the holder of a Lease, writes the webhook configurations, the
certificate and the status of the objects. mapd install installs all that.

With --policies the policies are those of the files, and POST /mutate takes an
AdmissionReview of admission.k8s.io/v1. serve watches the files; SIGHUP makes it
read them even if it noticed no change. An edit takes effect without a restart and
without a lost request, as soon as the files have stayed the same for half a second,
or for two if one became shorter: a writer may not have finished. A broken edit has no
effect: the log has its position, /readyz?verbose shows it, and the policies of
before stay in force. An emptied file, one that is cut off, and an edit after which no
policy is left are broken edits; remove a file to remove its policies. Without --tls-cert and
--tls-key, serve makes a certificate for localhost, this host and the address in
--listen, and prints the name of the file with its CA bundle.

With --expansion, reviews of workloads (POST /expand) are answered with warnings of
what would be denied, changed or violated among the objects that they create, and
denied where one of Gatekeeper's ExpansionTemplates says deny. Besides policies and
mutators, ValidatingAdmissionPolicies and Pod Security judge these objects.

Requests use TLS 1.3. GET /healthz, /readyz (?verbose) and /metrics report the
state. SIGTERM and SIGINT make /readyz fail, refuse new connections after
--shutdown-delay, and wait for the requests under way; a second signal ends serve
at once.`

func newServe(s streams) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve [--policies PATH...]",
		Short: "Serve policies as a mutating admission webhook",
		Long:  serveLong,
		Example: `  mapd serve                                 # the policies of the cluster it runs in
  mapd serve --policies policies/ --listen 127.0.0.1:0`,
		Args: noArguments("-p"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.set = cmd.Flags().Changed
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // the second signal is not caught
			return serve(ctx, s, &f)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.listen, "listen", "127.0.0.1:8443", "address to listen on; port 0 takes a free one")
	fl.StringVar(&f.tlsCert, "tls-cert", "", "file with the serving certificate; it is read again when it changes")
	fl.StringVar(&f.tlsKey, "tls-key", "", "file with its key")
	fl.StringVar(&f.clientCA, "client-ca", "", "file with the CA bundle for client certificates: only clients with a certificate that it signed, such as the API server, may send reviews")
	f.callers.add(fl)
	fl.StringVar(&f.kubernetes, "kubernetes", "", "the minor version of Kubernetes whose CEL libraries are used, from 1.32 on (default the cluster's, or 1.37)")
	fl.BoolVar(&f.warn, "warn-on-mutation", false, "tell clients which policy changed which field, as a warning")
	choiceVar(fl, &f.legacy, "legacy", "", ": whether Gatekeeper's mutators run; with shadow mapd says what they would change, with native (cluster) it also writes policies that replace the mutators for which a policy does exactly the same (default on for files; off in a cluster, where it needs more rights)", legacyOn, legacyShadow, legacyNative, legacyOff)
	fl.BoolVar(&f.expansion, "expansion", false, "warn the authors of workloads of what admission will do to the objects that these create, or deny where an ExpansionTemplate says so")
	choiceVar(fl, &f.kubewarden, "kubewarden", "", ": whether Kubewarden's policies run; with shadow mapd says what they would do (default on for files; off in a cluster, where it needs more rights)", legacyOn, legacyShadow, legacyOff)
	choiceVar(fl, &f.logLevel, "log-level", "info", "", "debug", "info", "warn", "error")
	choiceVar(fl, &f.logFormat, "log-format", "text", "", "text", "json")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "the same as --log-level debug")
	fl.StringVar(&f.pprof, "pprof", "", "loopback address for profiles, such as 127.0.0.1:6060")
	fl.StringVar(&f.traceSample, "trace-sample", "", "send traces to the OpenTelemetry collector of OTEL_EXPORTER_OTLP_ENDPOINT: those that the API server records, and this share of the reviews without one, from 0 to 1 (default none)")
	fl.StringVar(&f.reviewMemory, "review-memory", "", "memory that all reviews may hold together, such as 128Mi (default what the limit of the container leaves beside the policies)")
	fl.IntVar(&f.connections, "max-connections", 1000, "connections that may be open at once, three quarters of them from one address")
	fl.DurationVar(&f.delay, "shutdown-delay", 0, "how long to go on accepting connections after SIGTERM, for clients that do not know of it yet")

	f.modules.add(cmd)
	f.providers.add(fl)
	fl.DurationVar(&f.providers.ttl, "external-data-cache-ttl", 0, "how long the value that a provider of external data gave for a key is used again (default not at all, as in Gatekeeper)")
	fl.DurationVar(&f.providers.negativeTTL, "external-data-cache-negative-ttl", 0, "the same for a provider's error about a key")
	fl.StringArrayVarP(&f.policies, "policies", "p", nil, "files: policies, bindings, Kubewarden's policies, params, CRDs, Namespaces and RBAC, mixed: file or directory; repeatable")
	fl.BoolVarP(&f.recursive, "recursive", "R", false, "files: read directories recursively")
	fl.BoolVar(&f.unbound, "unbound", false, "files: run policies that have no binding as if bound to everything")
	fl.DurationVar(&f.poll, "poll", 5*time.Second, "files: how often to look for changes that the file system does not report")

	f.cluster.addPlace(fl)
	choiceVar(fl, &f.recordSink, "record-sink", sinkNone, " (cluster): where records of which policy changed which fields are kept besides memory: in a ConfigMap of each replica, or as events at the OpenTelemetry collector of OTEL_EXPORTER_OTLP_ENDPOINT", sinkNone, sinkConfigMap, sinkOTel)
	fl.BoolVar(&f.externalData, "external-data", false, "cluster: ask the Providers of the cluster (externaldata.gatekeeper.sh), which needs more rights; with --policies, those among the files are asked")
	fl.StringVar(&f.namespace, "namespace", "", "cluster: the namespace that mapd runs in (default that of its Pod, or "+defaultNamespace+")")
	fl.StringVar(&f.service, "service", "mapd", "cluster: the Service in that namespace by which the API server reaches mapd")
	fl.Int32Var(&f.servicePort, "service-port", 443, "cluster: the port of that Service")
	fl.StringVar(&f.url, "url", "", "cluster: the URL by which the API server reaches mapd, instead of a Service")
	fl.StringVar(&f.secret, "secret", "mapd-tls", "cluster: the Secret in which mapd keeps its certificate, unless --tls-cert is given")
	fl.StringVar(&f.lease, "lease", "mapd", "cluster: the Lease whose holder writes the webhook configurations, the certificate and status")
	fl.StringVar(&f.tlsCA, "tls-ca", "", "cluster: file with the CA bundle by which the API server verifies --tls-cert")
	fl.DurationVar(&f.validity, "cert-validity", 90*24*time.Hour, "cluster: how long a serving certificate lasts; it is replaced after two thirds of it")
	fl.DurationVar(&f.caValidity, "ca-validity", 5*365*24*time.Hour, "cluster: how long the authority that signs it lasts")
	fl.StringSliceVar(&f.exempt, "exempt-namespace", api.ExemptNamespaces(), "cluster: namespaces besides mapd's own that no policy reaches; replaces the default")
	fl.DurationVar(&f.auditInterval, "audit-interval", 0, "cluster: audit all objects, and again so long after each audit, at least 10m; this needs the right to read all objects (default no audits)")
	choiceVar(fl, &f.reports, "reports", noReports, " (cluster): write the outcome of each audit of --audit-interval as Reports of openreports.io, or PolicyReports of wgpolicyk8s.io, one for each namespace", append([]string{noReports}, reports.Names()...)...)
	f.existing.add(fl)
	fl.BoolVar(&f.endless, "exceptions-without-end", false, "cluster: accept PolicyExceptions that have no end")
	fl.BoolVar(&f.adopt, "adopt", false, "cluster: take the webhook configurations from another installation of mapd that has them")
	fl.DurationVar(&f.timeout, "webhook-timeout", 5*time.Second, "cluster: how long the API server waits for mapd, from 1s to 30s")
	return cmd
}

// noReports is the value of --reports that writes none.
const noReports = "none"

// defaultNamespace is where the manifests put mapd.
const defaultNamespace = "mapd-system"

// Flags that have an effect in only one of the two modes (files or cluster).
var (
	filesOnly   = []string{"recursive", "unbound", "poll"}
	clusterOnly = append([]string{"kubeconfig", "context", "namespace", "service", "service-port", "url", "secret", "lease", "tls-ca",
		"cert-validity", "ca-validity", "exempt-namespace", "webhook-timeout", "adopt", "exceptions-without-end", "external-data", "audit-interval", "reports", "record-sink",
		"caller-tokens", "caller-token-issuer", "caller-token-keys"}, existingFlagNames...)
)

func (f *serveFlags) check() error {
	wrong, mode := filesOnly, "without --policies"
	if len(f.policies) > 0 {
		wrong, mode = clusterOnly, "with --policies"
	}
	for _, name := range wrong {
		if f.set(name) {
			return usagef("serve: --%s has no meaning %s", name, mode)
		}
	}
	if err := f.checkLegacy(); err != nil {
		return err
	}
	if err := f.checkProviders(); err != nil {
		return err
	}
	switch {
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return usagef("serve: --tls-cert and --tls-key go together")
	case f.poll <= 0:
		return usagef("serve: --poll %s: must be positive", f.poll)
	case f.connections < 16:
		return usagef("serve: --max-connections %d: must be at least 16", f.connections)
	case f.delay < 0:
		return usagef("serve: --shutdown-delay %s: must not be negative", f.delay)
	}
	for _, p := range f.policies {
		if p == manifest.Stdin {
			return usagef("serve: standard input cannot be watched; give files")
		}
	}
	if len(f.policies) > 0 {
		return nil
	}
	switch {
	case f.tlsCert != "" && f.tlsCA == "":
		return usagef("serve: --tls-cert needs --tls-ca: the webhook configuration has to say whom API servers trust")
	case f.tlsCert == "" && f.tlsCA != "":
		return usagef("serve: --tls-ca needs --tls-cert and --tls-key")
	case f.auditInterval != 0 && f.auditInterval < leastAuditInterval:
		return usagef("serve: --audit-interval %s: must be at least %s, or 0 for no audits", f.auditInterval, leastAuditInterval)
	case f.reports != noReports && f.auditInterval == 0:
		return usagef("serve: --reports %s needs --audit-interval", f.reports)
	case f.existing.rate < leastExistingRate || f.existing.rate > mostExistingRate:
		return usagef("serve: --existing-rate %g: must be from %g to %d objects a minute", f.existing.rate, leastExistingRate, mostExistingRate)
	case f.timeout < time.Second || f.timeout > 30*time.Second || f.timeout%time.Second != 0:
		return usagef("serve: --webhook-timeout %s: must be whole seconds from 1s to 30s", f.timeout)
	case f.validity <= 0 || f.caValidity < f.validity:
		return usagef("serve: --cert-validity %s must be positive and no longer than --ca-validity %s", f.validity, f.caValidity)
	case (f.callers.issuer == "") != (f.callers.keys == ""):
		return usagef("serve: --caller-token-issuer and --caller-token-keys go together")
	case f.url != "" && (f.set("service") || f.set("service-port")):
		return usagef("serve: --url stands instead of a Service")
	}
	if err := f.existing.parse(); err != nil {
		return err
	}
	if f.url != "" {
		u, err := url.Parse(f.url)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return usagef("serve: --url %q: must be https://HOST[:PORT][/PATH]", f.url)
		}
	}
	return nil
}

// Values of --legacy: how Gatekeeper's mutators run.
const (
	legacyOn     = "on"
	legacyShadow = "shadow"
	legacyOff    = "off"
	legacyNative = "native"
)

// checkLegacy checks --legacy and sets its default.
func (f *serveFlags) checkLegacy() error {
	switch f.legacy {
	case "":
		f.legacy = legacyOff
		if len(f.policies) > 0 {
			f.legacy = legacyOn
		}
	case legacyNative:
		if len(f.policies) > 0 {
			return usagef("serve: --legacy native: only in a cluster; for files, mapd migrate gatekeeper writes policies")
		}
	}
	return nil
}

// logger returns the log, and a Closer that flushes it.
func (f *serveFlags) logger(s streams) (*slog.Logger, io.Closer, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, nil, err
	}
	if f.verbose {
		level = slog.LevelDebug
	}
	opts := &slog.HandlerOptions{Level: level}
	handler := func(w io.Writer) slog.Handler {
		if f.logFormat == "json" {
			return slog.NewJSONHandler(w, opts)
		}
		return slog.NewTextHandler(w, opts)
	}
	w := newLogWriter(s.err, func(w io.Writer, dropped int) {
		slog.New(handler(w)).Warn("lines of the log were dropped: nobody read them fast enough", "lines", dropped)
	})
	return slog.New(handler(w)), w, nil
}

func serve(ctx context.Context, s streams, f *serveFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	log, end, err := f.logger(s)
	if err != nil {
		return err
	}
	defer end.Close()
	clients, err := f.clients()
	if err != nil {
		return err
	}
	if err := f.callers.load(); err != nil {
		return err
	}
	budget, err := limitMemory(f.reviewMemory, log)
	if err != nil {
		return err
	}
	f.budget = budget
	if f.pprof == "" {
		runtime.MemProfileRate = 0 // without --pprof nobody can read the samples, which cost time and memory
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if f.pprof != "" {
		var profiling sync.WaitGroup
		defer profiling.Wait()
		defer cancel(nil)
		profiling.Go(func() {
			if err := webhook.Profiling(ctx, f.pprof); err != nil {
				cancel(usagef("serve: --pprof: %w", err))
			}
		})
	}
	stop, err := f.startTracing(ctx, log)
	if err != nil {
		return err
	}
	defer stop()
	run := serveCluster
	if len(f.policies) > 0 {
		run = serveFiles
	}
	if err := run(ctx, s, f, log, clients); err != nil {
		return err
	}
	var coded *codedError
	if errors.As(context.Cause(ctx), &coded) {
		return coded
	}
	return nil
}

// clients returns the authorities of client certificates, nil if none are required. It reads
// the file again when that has changed; if the file is invalid, it keeps the authorities.
func (f *serveFlags) clients() (func() *x509.CertPool, error) {
	if f.clientCA == "" {
		return nil, nil
	}
	authorities, err := servingcert.LoadFiles(func(texts [][]byte) (*x509.CertPool, error) {
		pool, err := certPool(texts[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.clientCA, err)
		}
		return pool, nil
	}, f.clientCA)
	if err != nil {
		return nil, usagef("serve: --client-ca: %w", err)
	}
	f.clientCAErr = authorities.Err
	return authorities.Get, nil
}

// certPool parses the certificates of a PEM text. Unlike x509's AppendCertsFromPEM, it returns
// an error for one that it cannot parse, such as a truncated one.
func certPool(text []byte) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", n+1, err)
		}
		pool.AddCert(cert)
		n++
	}
	switch {
	case bytes.Contains(text, []byte("-----BEGIN")):
		return nil, fmt.Errorf("certificate %d is cut off, or not in PEM form", n+1)
	case n == 0:
		return nil, errors.New("no certificate in PEM form")
	}
	return pool, nil
}

// longestReview exceeds the time for which any API server waits for a response.
const longestReview = time.Minute

// longEvaluations returns an error if an evaluation blocks all other long ones for too long.
func longEvaluations() error {
	if d := engine.LongestTurn(); d > longestReview {
		return fmt.Errorf("an evaluation has run for %s and cannot be interrupted, so other long ones wait and fail", d.Truncate(time.Second))
	}
	return nil
}

// run listens and serves until ctx is done.
func (f *serveFlags) run(ctx context.Context, options webhook.Options, get func(*tls.ClientHelloInfo) (*tls.Certificate, error), listener net.Listener) error {
	options.Memory, options.Tracer = f.budget, f.tracer
	if f.clientCAErr != nil {
		options.Checks = append(options.Checks, webhook.Check{Name: "client-ca", Run: f.clientCAErr, Advisory: true})
	}
	options.Checks = append(options.Checks, webhook.Check{Name: "long-evaluations", Run: longEvaluations, Advisory: true})
	connections := f.connections
	if files := openFiles(); files > 0 && connections > files/2 {
		connections = files / 2
		options.Log.Warn("fewer connections are accepted than --max-connections says: each needs an open file", "connections", connections, "openFiles", files)
	}
	server := &webhook.Server{Handler: webhook.NewHandler(options), Certificate: get, Delay: f.delay, Connections: connections}
	if err := server.Run(ctx, listener); err != nil {
		return &codedError{exitPartial, err}
	}
	return nil
}
