package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/mapd-project/mapd/internal/cluster/certs"
	"github.com/mapd-project/mapd/internal/cluster/controllers"
	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/cluster/metrics"
	"github.com/mapd-project/mapd/internal/cluster/policyvalidation"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/internal/operate/promote"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// serveCluster serves the policies of a cluster.
func serveCluster(ctx context.Context, s streams, f *serveFlags, log *slog.Logger, clients func() *x509.CertPool) error {
	c, err := f.connect(ctx, log)
	if err != nil {
		if ctx.Err() != nil {
			return nil // interrupted before the API server responded
		}
		return err
	}
	metrics := metrics.New()
	metrics.Watch(c.health)
	identity := identity()
	records := history.New(identity)
	certificates, err := f.certificates(c, log)
	if err != nil {
		return err
	}
	var outside *externaldata.Client
	if f.externalData {
		// Gatekeeper uses its serving certificate as client certificate, too.
		if outside, err = f.providers.client(metrics, func() (*tls.Certificate, error) { return certificates.GetCertificate(nil) }); err != nil {
			return usagef("serve: %w", err)
		}
		defer outside.Close()
	}
	for _, name := range api.ExemptNamespaces() {
		if !slices.Contains(f.exempt, name) {
			log.Warn("--exempt-namespace does not name a namespace that the cluster needs itself: policies reach it", "namespace", name)
		}
	}
	features, expander, err := f.features(ctx, c, metrics, outside, log)
	if err != nil {
		return err
	}
	options := store.Options{
		Dynamic: c.dynamic, Kubernetes: c.kube, Env: c.env, Log: log, Metrics: metrics, Prune: records.Prune,
		Exempt: append([]string{c.namespace}, f.exempt...), Features: features,
	}
	if outside != nil {
		options.Resolver = outside
	}
	policies := store.New(options)
	callers := f.verifier(c, metrics, log)
	repeats, existing, err := f.repeater(c, policies, metrics, log)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	writes := controllers.New(controllers.Options{
		Kubernetes: c.kube, Dynamic: c.dynamic, Store: policies, Certificates: certificates, Maintain: certificates.maintain,
		Namespace: c.namespace, Lease: f.lease, Identity: identity, Service: f.service, ServicePort: f.servicePort, URL: f.url,
		Exempt: f.exempt, Timeout: f.timeout, Adopt: f.adopt, User: c.user, Features: features, Counts: records.Totals, Audit: repeats, Existing: existing,
		Ready: func() error {
			if err := policies.Ready(); err != nil {
				return err
			}
			return certificates.Check()
		},
		Log: log,
	})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	fmt.Fprintf(s.out, "mapd serve: listening on https://%s\n", listener.Addr())

	end, err := f.startSink(ctx, records, writes, c.namespace, identity, metrics, log)
	if err != nil {
		return err
	}
	defer end()
	stop := runInBackground(ctx, log, policies, certificates, writes, callers)
	defer stop()
	checks := []webhook.Check{
		{Name: "policies", Run: policies.Ready},
		{Name: "certificate", Run: certificates.Check},
		{Name: "webhook configurations", Run: writes.Passive, Advisory: true},
		// A replica without an API server keeps serving its policies: see
		// docs/operate/emergencies.md.
		{Name: "API server", Run: c.health.Check, Advisory: true},
	}
	checks = append(checks, callers.checks()...)
	paths := map[string]webhook.Admitter{}
	for _, feature := range features {
		maps.Copy(paths, feature.Admitters())
		if feature.Advisory() { // the others are included in policies.Ready
			checks = append(checks, webhook.Check{Name: feature.Name(), Run: feature.Ready, Advisory: true})
		}
	}
	return f.run(ctx, webhook.Options{
		Entries:   policies.Entry,
		Paths:     paths,
		Expansion: f.reviewer(expander, metrics),
		Validator: &policyvalidation.Validator{
			Env: c.env, Authorizer: policies.Authorizer(), Types: policies.Types(),
			Policy: func(ctx context.Context, name string) (*unstructured.Unstructured, error) {
				return c.dynamic.Resource(api.OwnPolicies).Get(ctx, name, metav1.GetOptions{})
			},
		},
		Recorder: records,
		Records:  &webhook.Records{Authorize: store.NewAccess(c.kube).Authorize, Get: withRunning(records.Get, policies, identity, options.Exempt)},
		Checks:   checks,
		Metrics:  metrics.Metrics, Log: log, WarnOnMutation: f.warn, ClientCAs: clients, Callers: callers.authenticate(),
	}, certificates.GetCertificate, listener)
}

// withRunning adds the record promote.RunningName to others.
func withRunning(others func(string, url.Values) (any, error), policies *store.Store, identity string, exempt []string) func(string, url.Values) (any, error) {
	return func(name string, query url.Values) (any, error) {
		if name != promote.RunningName {
			return others(name, query)
		}
		a := promote.RunningOf(policies.Snapshot(), query.Get("policy"))
		a.Replica, a.Exempt = identity, exempt
		return a, nil
	}
}

// servingCertificates are a source of certificates, a function that keeps it up to date, and
// one that renews the certificates while this replica holds the lease; nil if mapd does not
// renew them.
type servingCertificates struct {
	certs.Source
	run      func(context.Context) error
	maintain func(ctx context.Context, applied func() []byte) error
}

func (f *serveFlags) certificates(c *connection, log *slog.Logger) (*servingCertificates, error) {
	if f.tlsCert == "" {
		issuer := certs.New(certs.Options{
			Kubernetes: c.kube, Dynamic: c.dynamic, Namespace: c.namespace, Secret: f.secret, Hosts: f.hosts(c.namespace),
			Validity: f.validity, CAValidity: f.caValidity, Log: log,
		})
		return &servingCertificates{issuer, issuer.Run, issuer.Maintain}, nil
	}
	files, err := certs.NewFiles(f.tlsCert, f.tlsKey, f.tlsCA)
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	return &servingCertificates{Source: files, run: files.Run}, nil
}

// runInBackground runs everything beside the server; stop ends it and waits. Parts that serving
// needs continue while requests drain after ctx is done. The writer stops at once, so that
// another replica can take over.
func runInBackground(ctx context.Context, log *slog.Logger, policies *store.Store, certificates *servingCertificates, writes *controllers.Writer, callers *callers) (stop func()) {
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	start := func(what string, ctx context.Context, run func(context.Context) error) {
		background.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				log.Error("a part of mapd ended with an error", "part", what, "error", err)
			}
		})
	}
	loaded := loadFrugally()
	start("store", serving, policies.Run)
	start("certificates", serving, certificates.run)
	start("callers", serving, callers.run)
	start("writer", ctx, writes.Run)
	background.Go(func() {
		select {
		case <-policies.Changed(): // all of the cluster has been read
			loaded()
		case <-serving.Done():
		}
	})
	return func() {
		cancel()
		background.Wait()
	}
}

// connection has the clients for the API server, and what mapd asked it once.
type connection struct {
	config    *rest.Config
	kube      kubernetes.Interface
	dynamic   dynamic.Interface
	health    *watch.Health // of what dynamic reads, and of the server
	namespace string        // that mapd runs in
	env       *cel.Env
	user      string // mapd's own user name at the API server
}

// connect waits for the API server.
func (f *serveFlags) connect(ctx context.Context, log *slog.Logger) (*connection, error) {
	config, err := f.cluster.config()
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	// Reviews wait for parameters and access checks, so there is no limit on the client's side:
	// the API server's priority and fairness suffices, and the writer has a limit of its own.
	config.QPS = -1
	c := &connection{namespace: f.ownNamespace(), health: watch.NewHealth()}
	config.Wrap(c.health.Transport)
	c.config = config
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, &codedError{exitUsage, err}
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	c.dynamic = &watch.Client{Interface: client, Health: c.health}
	klog.SetSlogLogger(log.With("component", "client-go"))
	if c.env, err = f.waitForServer(ctx, c.kube, log); err != nil {
		return nil, err
	}
	c.user = ownUser(ctx, c.kube, c.namespace)
	sayOwnUser(log, c.user)
	return c, nil
}

// sayOwnUser logs whose requests mapd excludes, if that is a person, since its requests are not
// mutated.
func sayOwnUser(log *slog.Logger, user string) {
	if !strings.HasPrefix(user, "system:serviceaccount:") {
		log.Info("what this user writes is not mutated, because mapd runs as this user", "user", user)
	}
}

// askTimeout bounds one request to an API server that may not be reachable.
const askTimeout = 10 * time.Second

// waitForServer returns the expression language of the API server, as soon as that responds.
func (f *serveFlags) waitForServer(ctx context.Context, kube kubernetes.Interface, log *slog.Logger) (*cel.Env, error) {
	disco := discovery.ToDiscoveryInterfaceWithContext(kube.Discovery())
	for attempt := 0; ; attempt++ {
		// An address that drops packets must not block the loop.
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		info, err := disco.ServerVersionWithContext(asking)
		cancel()
		if err == nil {
			expressions, minor := f.kubernetes, 0
			if expressions == "" {
				if expressions, minor, err = languageAndMinor(info); err != nil {
					return nil, err
				}
			}
			log.Info("the API server answers", "version", info.GitVersion, "expressions", expressions)
			if assumed := cel.Assumed(minor); assumed != "" {
				log.Warn("the API server is newer than mapd", "version", info.GitVersion, "assumed", assumed)
			}
			return environment(expressions)
		}
		if attempt%10 == 0 {
			log.Warn("waiting for the API server", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// ownUser returns mapd's user name at the API server. It is only used to exclude mapd's own
// requests from its policies, so it is not worth a long wait.
func ownUser(ctx context.Context, kube kubernetes.Interface, namespace string) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	review, err := kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		return "system:serviceaccount:" + namespace + ":mapd"
	}
	return review.Status.UserInfo.Username
}

// language returns the version of the expression language of an API server. For one that
// emulates an older version (--emulated-version) it is that version.
func language(info *apiversion.Info) (string, error) {
	expressions, _, err := languageAndMinor(info)
	return expressions, err
}

// languageAndMinor returns the language, and the server's minor version.
func languageAndMinor(info *apiversion.Info) (string, int, error) {
	major, minor := info.Major, info.Minor
	if info.EmulationMinor != "" {
		major, minor = info.EmulationMajor, info.EmulationMinor
	}
	n, err := strconv.Atoi(strings.TrimRight(minor, "+"))
	if err != nil || major != "1" {
		return "", 0, fmt.Errorf("the API server calls itself %q.%q, not a version of Kubernetes 1", major, minor)
	}
	return cel.Nearest(n), n, nil
}

// namespaceFile is where a Pod finds the namespace that it runs in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func (f *serveFlags) ownNamespace() string {
	if f.namespace != "" {
		return f.namespace
	}
	if data, err := os.ReadFile(namespaceFile); err == nil && len(data) > 0 {
		return strings.TrimSpace(string(data))
	}
	return defaultNamespace
}

// hosts returns the names by which the API server and probes inside the cluster reach mapd.
func (f *serveFlags) hosts(namespace string) []string {
	if f.url != "" {
		u, err := url.Parse(f.url)
		if err == nil { // check has parsed it
			return []string{u.Hostname()}
		}
	}
	name := f.service + "." + namespace
	return []string{name + ".svc", name, name + ".svc.cluster.local"}
}

// identity returns a name that differs between replicas, also between two on one host.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "mapd"
	}
	return host + "_" + string(uuid.NewUUID())
}
