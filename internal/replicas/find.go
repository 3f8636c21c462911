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

	"github.com/mapd-project/mapd/pkg/webhook"
)

// Options say whose replicas are asked.
type Options struct {
	// Config is that of the cluster, with the credentials of the user.
	Config *rest.Config
	// URLs are those of the replicas, such as https://10.0.0.7:8443; empty: those of the
	// webhook configuration.
	URLs []string
}

// maxReplicas bounds how many are asked.
const maxReplicas = 100

// Set are the replicas of one installation.
type Set struct {
	config    *rest.Config
	kube      kubernetes.Interface
	namespace string // of the installation
	all       []replica
	missing   error // why there is none in all
	tls       *tls.Config
	auth      auth
}

// replica is one, which is called name.
type replica struct {
	name string
	url  string
	dial func(ctx context.Context) (net.Conn, error) // nil: to the address in url
}

// Find returns the replicas of the cluster's installation. That there are none, or that they
// cannot be found, is an error of Ask.
func Find(ctx context.Context, o Options) (*Set, error) {
	s := &Set{config: rest.CopyConfig(o.Config)}
	s.config.WarningHandler = rest.NoWarnings{}
	var err error
	if s.kube, err = kubernetes.NewForConfig(s.config); err != nil {
		return nil, err
	}
	// The configuration for validation has the one entry that is always there.
	found, err := s.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, webhook.ValidationName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("mapd is not installed in this cluster: there is no ValidatingWebhookConfiguration %s", webhook.ValidationName)
	case err != nil:
		return nil, fmt.Errorf("ValidatingWebhookConfiguration %s: %w", webhook.ValidationName, err)
	case len(found.Webhooks) == 0:
		return nil, fmt.Errorf("no replica of mapd has written the ValidatingWebhookConfiguration %s yet", webhook.ValidationName)
	}
	s.namespace = webhook.InstallationOf(found.ObjectMeta).Namespace
	client := found.Webhooks[0].ClientConfig
	if s.tls, err = trust(client); err != nil {
		return nil, err
	}
	switch {
	case len(o.URLs) > 0:
		err = s.named(o.URLs)
	case client.URL != nil:
		base := strings.TrimSuffix(*client.URL, webhook.ValidatePath)
		s.all = []replica{{name: base, url: base}}
	default:
		s.missing = s.behind(ctx, client.Service)
	}
	if err != nil {
		return nil, err
	}
	s.auth = newAuth(s)
	return s, nil
}

// Namespace returns the one that mapd runs in.
func (s *Set) Namespace() string { return s.namespace }

// trust returns how connections to replicas are verified: all of them have the
// certificate that API servers verify.
func trust(client admissionregistrationv1.WebhookClientConfig) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS13}
	switch {
	case client.Service != nil:
		c.ServerName = client.Service.Name + "." + client.Service.Namespace + ".svc"
	case client.URL != nil:
		u, err := url.Parse(*client.URL)
		if err != nil {
			return nil, fmt.Errorf("the URL in ValidatingWebhookConfiguration %s: %w", webhook.ValidationName, err)
		}
		c.ServerName = u.Hostname()
	default:
		return nil, fmt.Errorf("ValidatingWebhookConfiguration %s has neither a Service nor a URL", webhook.ValidationName)
	}
	if len(client.CABundle) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(client.CABundle) {
			return nil, fmt.Errorf("the caBundle in ValidatingWebhookConfiguration %s has no certificate", webhook.ValidationName)
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

// behind finds the Pods behind a Service, also those that are not ready.
func (s *Set) behind(ctx context.Context, service *admissionregistrationv1.ServiceReference) error {
	found, err := s.kube.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name, Limit: maxReplicas})
	if err != nil {
		return fmt.Errorf("the replicas behind the Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	for i := range found.Items {
		slice := &found.Items[i]
		if len(slice.Ports) == 0 || slice.Ports[0].Port == nil {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.TargetRef == nil || e.TargetRef.Kind != "Pod" || len(s.all) == maxReplicas {
				continue
			}
			name := e.TargetRef.Name
			forward := forwarding{s.config, s.kube, service.Namespace, name, *slice.Ports[0].Port}
			s.all = append(s.all, replica{name: name, url: "https://" + s.tls.ServerName, dial: forward.dial})
		}
	}
	// A Pod with two addresses is in two slices.
	slices.SortFunc(s.all, func(a, b replica) int { return cmp.Compare(a.name, b.name) })
	s.all = slices.CompactFunc(s.all, func(a, b replica) bool { return a.name == b.name })
	if len(s.all) == 0 {
		return fmt.Errorf("there is no Pod behind the Service %s/%s", service.Namespace, service.Name)
	}
	return nil
}

// transport returns one to a replica, which does not reuse connections.
func (s *Set) transport(r replica) *http.Transport {
	t := &http.Transport{TLSClientConfig: s.tls.Clone(), DisableKeepAlives: true, TLSHandshakeTimeout: askTimeout, MaxResponseHeaderBytes: 64 << 10, Proxy: http.ProxyFromEnvironment}
	if r.dial != nil {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx) }
	}
	return t
}

// askTimeout bounds how long one replica is waited for.
const askTimeout = 10 * time.Second

// errNoReplica is what asking says if no replica has answered.
var errNoReplica = errors.New("no replica of mapd has answered")
