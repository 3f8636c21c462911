package legacy

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
)

// Provider is a server that returns values for external data (Gatekeeper spec §11). It is
// immutable.
type Provider struct {
	Name string
	// URL has the scheme https and a host.
	URL string
	// Timeout is the limit for one call. It is positive.
	Timeout time.Duration
	// CABundle has the authorities that must have signed the server's certificate, in PEM form.
	// At least one is usable.
	CABundle []byte
	// NoSideEffects says that calls have no side effects, so that dry runs may make them.
	NoSideEffects bool
}

const (
	// ProviderKind is the kind of a Provider.
	ProviderKind = "Provider"
	// SideEffectsAnnotation on a Provider says whether calls have side effects: "None" means
	// that they have none. A Provider has no field for that.
	SideEffectsAnnotation = "mapd.dev/side-effects"
	// defaultProviderTimeout is the Timeout of a Provider without one, or with 0. Gatekeeper
	// intends the same, but fails every call of such a Provider (Gatekeeper spec §11.2).
	defaultProviderTimeout = 5 * time.Second
)

// ProviderVersions returns the versions in which Gatekeeper serves Providers, the newest first.
// They have the same meaning.
func ProviderVersions() []string { return []string{"v1beta1", "v1alpha1"} }

// IsProvider reports whether gvk is that of a Provider, in whichever version.
func IsProvider(gvk schema.GroupVersionKind) bool {
	return gvk.Group == api.ExternalDataGroup && gvk.Kind == ProviderKind
}

// DecodeProvider decodes a Provider. It rejects what Gatekeeper rejects, in Gatekeeper's order,
// and then what would make every call fail. The error is an *Error. check validates the
// authorities of the caBundle: bundle is all of it, and first is the content of its first PEM
// block. The caller passes it because parsing certificates is a large dependency, which
// programs that make no calls can do without.
func DecodeProvider(u *unstructured.Unstructured, check func(bundle, first []byte) error) (*Provider, error) {
	p := &Provider{Name: u.GetName()}
	if err := p.decode(u, check); err != nil {
		err.Mutator = ProviderKind + "/" + p.Name
		return nil, err
	}
	return p, nil
}

func (p *Provider) decode(u *unstructured.Unstructured, checkBundle func(bundle, first []byte) error) *Error {
	gvk := u.GroupVersionKind()
	switch {
	case !IsProvider(gvk):
		return refusef("apiVersion", "%s %s is not a Provider", gvk.GroupVersion(), gvk.Kind)
	case gvk.Version != "v1beta1" && gvk.Version != "v1alpha1":
		return refusef("apiVersion", "no kind %q is registered for version %q", gvk.Kind, gvk.GroupVersion())
	}
	r := &reader{}
	top := object{r: r, in: u.Object, out: map[string]any{}}
	spec, _ := top.object("spec")
	caBundle := ""
	var seconds int64
	if spec.out != nil {
		p.URL, caBundle = spec.str("url"), spec.str("caBundle")
		check[int64](spec, "timeout", "an integer")
		seconds, _ = spec.in["timeout"].(int64)
	}
	p.NoSideEffects = u.GetAnnotations()[SideEffectsAnnotation] == "None"
	switch {
	case r.err != nil:
		return r.err
	case p.Name == "":
		return refusef("metadata.name", "provider name can not be empty. value %s", p.Name)
	case p.URL == "":
		return refusef("spec.url", "invalid provider url. value: %s", p.URL)
	case seconds < 0:
		return refusef("spec.timeout", "provider timeout should be a positive integer. value: %d", seconds)
	}
	at, err := url.Parse(p.URL)
	switch {
	case err != nil:
		return refusef("spec.url", "%w", err)
	case at.Scheme != "https":
		return refusef("spec.url", "only HTTPS scheme is supported for Providers")
	case caBundle == "":
		return refusef("spec.caBundle", "caBundle should be set for HTTPS scheme")
	}
	if p.CABundle, err = authorities(caBundle, checkBundle); err != nil {
		return refusef("spec.caBundle", "%w", err)
	}
	if at.Hostname() == "" {
		return refusef("spec.url", "the url %q has no host", p.URL)
	}
	p.Timeout = defaultProviderTimeout
	if seconds > 0 {
		// A request has less time in any case, and a larger value might overflow.
		p.Timeout = time.Duration(min(seconds, 3600)) * time.Second
	}
	return nil
}

// authorities decodes a caBundle. Gatekeeper uses the first block only, of any type.
func authorities(caBundle string, check func(bundle, first []byte) error) ([]byte, error) {
	text, err := base64.StdEncoding.DecodeString(caBundle)
	if err != nil {
		return nil, fmt.Errorf("failed to base64 decode caBundle: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("bad caBundle")
	}
	if err := check(text, block.Bytes); err != nil {
		return nil, err
	}
	return text, nil
}

// Equal reports whether two Providers have equal fields.
func (p *Provider) Equal(q *Provider) bool {
	return p.Name == q.Name && p.URL == q.URL && p.Timeout == q.Timeout && p.NoSideEffects == q.NoSideEffects && bytes.Equal(p.CABundle, q.CABundle)
}
