package replicas

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/cluster/list"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/httpsclient"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Finder finds the replicas of the mapd in a cluster. Each call of Find looks for them again,
// because replicas start and end. A Finder is safe for concurrent use.
type Finder struct {
	// Config is that of the cluster, with the credentials of the user.
	Config *rest.Config
	// URLs are the addresses of the replicas, such as https://10.0.0.7:8443. If there are none,
	// Find takes the Service or the URL in the webhook configuration.
	URLs []string

	tokens tokens
}

// The errors of Find for a cluster without mapd, and for one where no replica has been ready
// since mapd was installed.
var (
	ErrNotInstalled = errors.New("mapd is not installed in this cluster")
	ErrNotStarted   = errors.New("mapd has not started in this cluster")
)

const (
	// maxReplicas bounds how many replicas are asked.
	maxReplicas = 500
	// portName is the name of mapd's port, which a Service may have beside others.
	portName = "https"
)

// Set is the set of replicas of one installation.
type Set struct {
	config    *rest.Config
	kube      kubernetes.Interface
	namespace string // of the installation
	all       []replica
	outside   []string // hosts in all that are not Pods behind a Service
	missing   error    // the error if no replicas were found
	tls       *tls.Config
	tokens    *tokens
	patience  time.Duration // how long one replica is waited for
}

// replica is one replica: name is that of its Pod, or its URL or address.
type replica struct {
	name string
	url  string
	dial func(ctx context.Context) (net.Conn, error) // nil: to the address in url
	skip error                                       // the reason why it is not asked; nil if it is
}

// Find returns the replicas of the cluster's mapd. If the Service has no Pods, or its
// EndpointSlices cannot be read, Find succeeds, and Ask returns that error.
func (f *Finder) Find(ctx context.Context) (*Set, error) {
	s := &Set{config: rest.CopyConfig(f.Config), tokens: &f.tokens, patience: askTimeout}
	s.config.WarningHandler = rest.NoWarnings{}
	var err error
	if s.kube, err = kubernetes.NewForConfig(s.config); err != nil {
		return nil, err
	}
	// Once mapd has started, the ValidatingWebhookConfiguration has an entry; the mutating one has
	// none without policies.
	found, err := s.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, webhookconfig.ValidationName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: there is no ValidatingWebhookConfiguration %s", ErrNotInstalled, webhookconfig.ValidationName)
	case err != nil:
		return nil, fmt.Errorf("ValidatingWebhookConfiguration %s: %w", webhookconfig.ValidationName, err)
	case len(found.Webhooks) == 0:
		return nil, fmt.Errorf("%w: no replica has written the ValidatingWebhookConfiguration %s yet", ErrNotStarted, webhookconfig.ValidationName)
	}
	if s.namespace = webhookconfig.InstallationOf(found.ObjectMeta).Namespace; s.namespace == "" {
		return nil, fmt.Errorf("ValidatingWebhookConfiguration %s does not say where mapd runs: it has no annotation %s", webhookconfig.ValidationName, webhookconfig.InstallationAnnotation)
	}
	client := found.Webhooks[0].ClientConfig
	if s.tls, err = trust(client); err != nil {
		return nil, err
	}
	switch {
	case len(f.URLs) > 0:
		err = s.named(f.URLs)
	case client.URL != nil:
		base := strings.TrimSuffix(*client.URL, webhook.ValidatePath)
		s.all = []replica{{name: base, url: base}}
	default:
		s.missing = s.behind(ctx, client.Service)
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	for _, r := range s.all {
		if u, err := url.Parse(r.url); err == nil && !slices.Contains(s.outside, u.Host) {
			s.outside = append(s.outside, u.Host)
		}
	}
	return s, nil
}

// Outside returns the hosts that are asked although they are not Pods behind mapd's Service:
// those of Finder.URLs, or that of the URL in the webhook configuration.
func (s *Set) Outside() []string { return s.outside }

// Namespace returns the namespace that mapd runs in.
func (s *Set) Namespace() string { return s.namespace }

// trust returns the TLS configuration for connections to replicas. It verifies the same
// certificate as API servers do, which all replicas have.
func trust(client admissionregistrationv1.WebhookClientConfig) (*tls.Config, error) {
	c := &tls.Config{}
	switch {
	case client.Service != nil:
		c.ServerName = client.Service.Name + "." + client.Service.Namespace + ".svc"
	case client.URL != nil:
		u, err := url.Parse(*client.URL)
		if err != nil {
			return nil, fmt.Errorf("the URL in ValidatingWebhookConfiguration %s: %w", webhookconfig.ValidationName, err)
		}
		c.ServerName = u.Hostname()
	default:
		return nil, fmt.Errorf("ValidatingWebhookConfiguration %s has neither a Service nor a URL", webhookconfig.ValidationName)
	}
	if len(client.CABundle) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(client.CABundle) {
			return nil, fmt.Errorf("the caBundle in ValidatingWebhookConfiguration %s has no certificate", webhookconfig.ValidationName)
		}
	}
	return c, nil
}

func (s *Set) named(urls []string) error {
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return fmt.Errorf("replica %q: must be https://HOST[:PORT]", text)
		}
		s.all = append(s.all, replica{name: text, url: strings.TrimSuffix(text, "/")})
	}
	if len(s.all) > maxReplicas {
		return fmt.Errorf("%d replicas are too many; at most %d are asked", len(s.all), maxReplicas)
	}
	return nil
}

// behind adds the Pods behind a Service to the Set, including those that are not ready.
func (s *Set) behind(ctx context.Context, service *admissionregistrationv1.ServiceReference) error {
	endpoints, err := list.All[*discoveryv1.EndpointSlice](ctx, s.kube.DiscoveryV1().EndpointSlices(service.Namespace).List,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
	if err != nil {
		return fmt.Errorf("the replicas behind the Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	for _, slice := range endpoints {
		port, wrong := portOf(slice)
		for _, e := range slice.Endpoints {
			switch {
			case e.TargetRef != nil && e.TargetRef.Kind == "Pod":
				r := replica{name: e.TargetRef.Name, url: "https://" + s.tls.ServerName, skip: wrong}
				forward := forwarding{s.config, s.kube, service.Namespace, r.name, port}
				r.dial = forward.dial
				s.all = append(s.all, r)
			case len(e.Addresses) > 0:
				s.all = append(s.all, replica{name: e.Addresses[0], skip: errors.New("not asked: it is no Pod, so it is reached by no port-forward; name it with --replica")})
			}
		}
	}
	// A Pod with an IPv4 and an IPv6 address is in two slices, and one of them may lack the port.
	slices.SortStableFunc(s.all, func(a, b replica) int {
		return cmp.Or(cmp.Compare(a.name, b.name), compareBool(a.skip != nil, b.skip != nil))
	})
	s.all = slices.CompactFunc(s.all, func(a, b replica) bool { return a.name == b.name })
	if len(s.all) == 0 {
		return fmt.Errorf("there is no Pod behind the Service %s/%s", service.Namespace, service.Name)
	}
	for i := maxReplicas; i < len(s.all); i++ {
		s.all[i].skip = fmt.Errorf("not asked: there are %d replicas, and at most %d are asked", len(s.all), maxReplicas)
	}
	return nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// portOf returns the port of mapd in an EndpointSlice: the port named https, or the only one. The
// error is the reason why its Pods cannot be asked.
func portOf(slice *discoveryv1.EndpointSlice) (int32, error) {
	var names []string
	for _, p := range slice.Ports {
		if p.Port == nil {
			continue
		}
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if name == portName || len(slice.Ports) == 1 {
			return *p.Port, nil
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return 0, errors.New("not asked: the EndpointSlice names no port of it")
	}
	return 0, fmt.Errorf("not asked: none of the ports %q of the Service is called %s", names, portName)
}

// client returns an HTTP client for a replica. It follows no redirects, so that the token is not
// sent to another host.
func (s *Set) client(r replica) *http.Client {
	o := httpsclient.Options{TLS: s.tls, Proxy: http.ProxyFromEnvironment}
	if r.dial != nil {
		o.Proxy = nil
		o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx) }
	}
	return httpsclient.New(o)
}

// askTimeout bounds how long one replica is waited for.
const askTimeout = 10 * time.Second

// errNoReplica is the error of Ask if no replica has answered.
var errNoReplica = errors.New("no replica of mapd has answered")
